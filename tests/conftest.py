"""Every test runs with the types and shapes in the signatures checked."""

import ctypes
import importlib.util
import os
import pkgutil
import signal
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

# Models this small gain nothing from a second thread, and threads that wait for each other by spinning are very slow
# on a busy machine. Set before torch is imported, here and in every process that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def gpu_count() -> int:
    """GPUs that the driver sees. torch would know it too, but must not be imported yet."""
    try:
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return 0
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


# Where there is no GPU, Triton's kernels are interpreted; it asks when it is imported, and torch may do that. It is one
# or the other: TRITON_INTERPRET=1 has the tests run on a machine with a GPU as they do on one without.
if os.environ.setdefault("TRITON_INTERPRET", "0" if gpu_count() else "1") == "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import hypothesis
import pytest
import shape_checks

import onehop

# Settings check themselves, in words; the command line is checked by typer. Triton reads the sources of kernels, and a
# checked kernel could call no other.
CHECKED_BY_THEMSELVES = ("_version", "errors", "config", "cli", "presets", "__main__", "model.kernels")


def modules_below(folder: Path, package: str = "onehop") -> list[str]:
    """The names of a package's modules, without importing any of them."""
    modules = [(f"{package}.{m.name}", m) for m in pkgutil.iter_modules([str(folder)])]
    checked = [(name, m) for name, m in modules if not name.endswith(CHECKED_BY_THEMSELVES)]
    return list(chain.from_iterable(modules_below(folder / m.name, name) if m.ispkg else [name] for name, m in checked))


# A machine that is lent for its GPU may lack beartype; what a test computes can be compared without it.
SHAPES_ARE_CHECKED = importlib.util.find_spec("beartype") is not None
if SHAPES_ARE_CHECKED:
    shape_checks.install(modules_below(Path(onehop.__path__[0])))


def pytest_configure(config):
    """`-m gpu` without a GPU would pass by skipping everything."""
    if config.option.markexpr == "gpu":
        import torch

        if not torch.cuda.is_available():
            raise pytest.UsageError(
                f"torch {torch.__version__} sees no GPU. These tests need an NVIDIA GPU with its driver, a CUDA build "
                "of torch, Triton and a C compiler: CONTRIBUTING.md, GPU tests."
            )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One worker more than there are cores: tests often wait for a browser, a server or a cluster."""
    from onehop.machine import available_cores

    return available_cores() + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with slow tests come first: no worker shall be alone with a long file at the end."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_terminal_summary(terminalreporter):
    if not SHAPES_ARE_CHECKED:
        note = "NOTE: types and shapes were not checked. Install beartype to check them."
        terminalreporter.write_line(note, yellow=True)


# The processes that share the tests among them ignore Ctrl-C, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine, not about the code. The same examples every time: a change
# is to blame for what fails. `pytest --hypothesis-profile search` looks for new ones.
hypothesis.settings.register_profile("onehop", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile("onehop")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """No test reads or fills the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ONEHOP_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A store of digits in words and their reverses, and settings with which a step on it takes milliseconds.

    In words, because a digit is one piece: BPE-dropout would have nothing to drop.
    """
    from onehop.config import with_changes
    from onehop.data.prepare import prepare
    from onehop.experiments.reverse import digit_strings, in_words, reverse_settings, write_pairs

    folder = tmp_path_factory.mktemp("digits")
    write_pairs(folder / "digits.tsv", in_words(digit_strings(400)))
    model = ["d_model=16", "d_ff=32", "n_heads=2", "n_encoder_layers=1", "n_decoder_layers=1", "max_length=64"]
    train = ["steps=20", "batch_tokens=256", "warmup=10", "save_every=10", "validate_every=10", "report_every=1"]
    train += ["learning_rate=3e-3", "decay=sqrt", "label_smoothing=0.0", "average=1", "keep=2"]
    changes = [
        *(f"model.{x}" for x in model),
        *(f"train.{x}" for x in train),
        "data.valid_size=40",
        "tokenizer.vocab_size=340",
    ]
    settings = with_changes(reverse_settings(), changes)
    return settings, prepare(settings, folder / "store", root=folder, processes=1)


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """A small model with random weights, as a file: what it says makes no sense, but always the same."""
    import torch

    from onehop.config import ModelSettings, Settings, TokenizerSettings
    from onehop.model.transformer import Transformer
    from onehop.storage.model_file import StoredModel
    from onehop.storage.model_io import write_model
    from onehop.text.tokenizer import Tokenizer

    words = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
    tokenizer = Tokenizer.learn(words, TokenizerSettings(vocab_size=300))
    model = ModelSettings(
        n_encoder_layers=1, n_decoder_layers=2, d_model=16, d_ff=32, n_heads=2, dropout=0.0, max_length=64
    )
    torch.manual_seed(0)
    weights = Transformer(model, tokenizer.vocab_size).state_dict()
    stored = StoredModel(
        settings=Settings(model=model),
        tokenizer=tokenizer.model,
        source="en",
        target="de",
        provenance={},
        tensors={name: tensor.numpy() for name, tensor in weights.items()},
    )
    file = tmp_path_factory.mktemp("model") / "model.safetensors"
    write_model(file, stored)
    return file


@pytest.fixture
def install(tmp_path, monkeypatch, model_file):
    """Installs the small model under other languages, and no other model is installed."""
    from onehop.storage import registry
    from onehop.storage.model_io import read_model, write_model

    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(registry, "package_folder", lambda: tmp_path / "none")
    monkeypatch.setattr(registry, "model_packages", dict)
    (tmp_path / "models").mkdir()

    def installed(*names, stored=None):
        for name in names:
            source, target = name.split("-")[:2]
            changed = replace(stored or read_model(model_file), source=source, target=target)
            write_model(tmp_path / "models" / f"{name}.safetensors", changed)
        return tmp_path / "models"

    return installed
