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
    """The number of GPUs that the driver sees. torch must not be imported yet."""
    try:
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return 0
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


# Without a GPU, Triton interprets the kernels. It reads the variable when it is imported, perhaps by torch.
# TRITON_INTERPRET=1 runs the tests on a machine with a GPU as on one without.
if os.environ.setdefault("TRITON_INTERPRET", "0" if gpu_count() else "1") == "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import hypothesis
import pytest
import shape_checks

import onehop

# Settings check themselves, and typer checks the command line. Triton reads the source of kernels, and a decorated
# kernel could not call another.
CHECKED_BY_THEMSELVES = ("_version", "errors", "config", "cli", "presets", "__main__", "model.kernels")


def modules_below(folder: Path, package: str = "onehop") -> list[str]:
    """The names of a package's modules, without importing any of them."""
    modules = [(f"{package}.{m.name}", m) for m in pkgutil.iter_modules([str(folder)])]
    checked = [(name, m) for name, m in modules if not name.endswith(CHECKED_BY_THEMSELVES)]
    return list(chain.from_iterable(modules_below(folder / m.name, name) if m.ispkg else [name] for name, m in checked))


# A machine for GPU tests may lack beartype. The tests run without it.
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
    """Files with slow tests come first, so that no worker is left with a long file at the end."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_terminal_summary(terminalreporter):
    if not SHAPES_ARE_CHECKED:
        note = "NOTE: types and shapes were not checked. Install beartype to check them."
        terminalreporter.write_line(note, yellow=True)


# xdist's workers ignore Ctrl-C, and processes that they start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the time of an example depends on the machine. Examples are always the same, so that a failure is due to
# a change. `pytest --hypothesis-profile search` draws new ones.
hypothesis.settings.register_profile("onehop", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile("onehop")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Tests use a cache of their own, not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ONEHOP_CACHE", str(folder))
        yield folder


@pytest.fixture
def quick_peak(monkeypatch):
    """Replaces measuring the device's speed, which takes longer than a small training."""
    monkeypatch.setattr("onehop.training.trainer.measured_peak", lambda *_: 1e10)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Settings with which a step takes milliseconds, and a store of digits and their reverses.

    The digits are words, because a digit would be one piece and BPE-dropout would have nothing to drop.
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
    """The file of a small model with random weights, which are always the same."""
    import torch
    from stored_models import stored_model

    from onehop.config import ModelSettings, TokenizerSettings
    from onehop.model.transformer import Transformer
    from onehop.storage.model_io import write_model
    from onehop.text.tokenizer import Tokenizer

    words = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
    tokenizer = Tokenizer.learn(words, TokenizerSettings(vocab_size=300))
    model = ModelSettings(
        n_encoder_layers=1, n_decoder_layers=2, d_model=16, d_ff=32, n_heads=2, dropout=0.0, max_length=64
    )
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("model") / "model.safetensors"
    return write_model(file, stored_model(Transformer(model, tokenizer.vocab_size), tokenizer))


@pytest.fixture
def install(tmp_path, monkeypatch, model_file):
    """Installs the small model under names such as en-de. No other model is installed."""
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
