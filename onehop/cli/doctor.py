"""`onehop doctor`: what this installation has, what is missing, and how to install it.

It runs when something is wrong, so nothing here may fail: a part that raises is reported.
"""

import importlib
import json
import os
import platform
import re
import shlex
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from typing import Any

from onehop._version import __version__
from onehop.errors import is_installed
from onehop.machine import available_cores
from onehop.storage.cache import cache_root, entries

# Instructions that the engines use if the CPU has them.
_CPU_FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
_THREADS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
CPU_INFO = Path("/proc/cpuinfo")
NVIDIA = Path("/proc/driver/nvidia")
_CPU_TORCH = "https://download.pytorch.org/whl/cpu"

# Package, its purpose, and the extra that installs it.
OPTIONAL = (
    ("torch", "trains models, looks inside them and uses a GPU", "torch"),
    ("uvicorn", "serves over HTTP", "serve"),
    ("sacrebleu", "scores translations", "evaluate"),
    ("sacremoses", "scores tokenised text as Moses does", "evaluate"),
    ("pyarrow", "reads Parquet and Arrow files", "data"),
    *((("backports.zstd", "reads .zst files", "data"),) if sys.version_info < (3, 14) else ()),
    ("ray", "uses several machines", "ray"),
    ("lxml", "reads .docx and XLIFF", "formats"),
    ("polib", "reads PO files", "formats"),
    ("pyyaml", "reads YAML", "formats"),
    ("matplotlib", "draws curves", "plots"),
    ("scikit-learn", "has the images of `onehop demo digits`", "digits"),
    ("tensorboard", "writes TensorBoard events", "tensorboard"),
    ("transformers", "compares an exported or imported model", "export"),
    ("onnx", "exports to ONNX", "export"),
    ("onnxruntime", "compares an exported ONNX model", "export"),
)


def report() -> Iterator[str]:
    """The lines to print. A part that fails does not stop the others."""
    for title, part in _PARTS.items():
        yield title
        try:
            yield from (f"  {line}" for line in part())
        except Exception as e:  # importing a broken package may raise anything
            yield f"  cannot be found out: {type(e).__name__}: {' '.join(str(e).split())}"


def installation() -> Iterator[str]:
    """Versions of the required packages."""
    yield f"onehop {__version__} in {Path(__file__).parent.parent}"
    yield f"python {platform.python_version()} on {platform.platform()}"
    for name in needed():
        installed = _version_of(name)
        yield f"{name} {installed}" if installed else f"{name} is missing: pip install {name}"


def needed() -> list[str]:
    """The packages that onehop's metadata requires, without those of its extras."""
    wanted = [requirement for requirement in requires("onehop") or () if "extra ==" not in requirement]
    return sorted(re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in wanted)


def extras() -> Iterator[str]:
    """Versions of the optional packages, or how to install them."""
    missing: dict[str, None] = {}  # ordered, without duplicates
    for name, purpose, extra in OPTIONAL:
        if installed := _version_of(name):
            yield f"{name} {installed}"
        else:
            yield f"{name} is missing: it {purpose} (extra {extra})"
            missing[extra] = None
    if missing:
        yield f"to get what is missing, or some of it: {install_command(*missing)}"


def install_command(*extras: str) -> str:
    """The command that installs extras with this environment's pip, from onehop's source, for CPU or GPU."""
    pip = f"{shlex.quote(sys.executable)} -m pip" if is_installed("pip") else "uv pip"
    origin = json.loads(distribution("onehop").read_text("direct_url.json") or "{}")
    url = urllib.parse.urlsplit(origin.get("url", ""))
    source = urllib.request.url2pathname(url.path) if url.scheme == "file" else "onehop"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    # On Linux, PyPI's torch brings CUDA.
    cpu = "torch" in extras and sys.platform == "linux" and not NVIDIA.exists()
    index = f" --extra-index-url {_CPU_TORCH}" if cpu else ""
    return f'{pip} install{index} {editable}"{source}[{",".join(extras)}]"'


def processor() -> Iterator[str]:
    """The CPU, its features that matter, and the cores that may be used."""
    lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPU_INFO.is_file() else []
    facts = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    yield facts.get("model name", platform.processor() or platform.machine())
    features = (facts.get("flags") or facts.get("Features") or "").split()
    yield f"features: {' '.join(f for f in _CPU_FEATURES if f in features) or 'none that matter, or not known'}"
    variables = "".join(f", {name}={os.environ[name]}" for name in _THREADS if name in os.environ)
    yield f"{available_cores()} of {os.cpu_count()} cores{variables}"


def gpu() -> Iterator[str]:
    if not is_installed("torch"):
        yield "not used: torch is missing"
        return
    torch: Any = importlib.import_module("torch")
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        yield f"cuda:{i} {properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if not torch.cuda.device_count():
        cuda = torch.version.cuda
        yield f"none that torch sees (built for CUDA {cuda})" if cuda else "none for this torch"


def _engines() -> Iterator[str]:
    yield from _engine(
        "ctranslate2", "CPU", lambda m: f"computes in {', '.join(sorted(m.get_supported_compute_types('cpu')))}"
    )
    if is_installed("torch"):
        yield from _engine("torch", "CPU and GPU", lambda m: f"{m.get_num_threads()} threads")


def _engine(name: str, where: str, describe: Callable[[Any], str]) -> Iterator[str]:
    """An engine's description, or why it cannot be imported."""
    try:
        yield f"{name} ({where}): {describe(importlib.import_module(name))}"
    except Exception as e:  # a library that does not fit the machine may raise anything
        yield f"{name} cannot be used: {' '.join(str(e).split())}: pip install --force-reinstall {name}"


def folders() -> Iterator[str]:
    # Imported here, since its own imports may be missing.
    from onehop.storage.registry import installed, labels, package_folder, user_folder

    for folder in (user_folder(), package_folder()):
        yield f"models: {folder}" + ("" if folder.is_dir() else " (not there)")
    models = labels()
    yield f"installed: {', '.join(models) or 'none'}"
    if unreadable := [name for name in installed() if name not in models]:
        yield f"no model, as `onehop models list` explains: {', '.join(unreadable)}"
    yield f"cache: {cache_root()}, {sum(entries().values()) / 1e6:,.1f} MB"


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


_PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "Installation": installation,
    "Extras": extras,
    "Processor": processor,
    "GPU": gpu,
    "Engines": _engines,
    "Folders": folders,
}
