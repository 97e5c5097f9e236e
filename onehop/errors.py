"""Errors that a user can cause: one line that says what happened and what to do about it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

# The extra of onehop that installs a module.
EXTRAS = {
    **dict.fromkeys(("torch", "jaxtyping"), "torch"),
    **dict.fromkeys(("h11", "prometheus_client", "pydantic", "starlette", "uvicorn"), "serve"),
    **dict.fromkeys(("sacrebleu", "sacremoses"), "evaluate"),
    **dict.fromkeys(("google", "onnx", "onnxruntime", "onnxscript", "tokenizers", "transformers"), "export"),
    **dict.fromkeys(("lxml", "polib", "yaml"), "formats"),
    "matplotlib": "plots",
    "sklearn": "digits",
    "tensorboard": "tensorboard",
    **dict.fromkeys(("backports", "pyarrow"), "data"),
    **dict.fromkeys(("fsspec", "ray"), "ray"),
}
# Usual names of modules, for messages.
_NAMES = {
    "backports": "backports.zstd",
    "google": "protobuf",
    "prometheus_client": "prometheus-client",
    "ray": "Ray",
    "sacrebleu": "sacreBLEU",
    "sklearn": "scikit-learn",
    "tensorboard": "TensorBoard",
    "torch": "PyTorch",
    "yaml": "PyYAML",
}
CHECK_FOLDER = "Check the folder and its free space."


class OnehopError(Exception):
    """An error that the user can fix. The command line prints it as one line and exits with status 2."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} {remedy}")
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["OnehopError"], tuple[str, str]]:
        """Pickle both arguments: an exception with two arguments cannot be unpickled by default."""
        return type(self), (self.what, self.remedy)


class SettingsError(OnehopError):
    """A setting has a wrong name, type or value."""


class ModelFileError(OnehopError):
    """A model file is damaged, foreign, too new or does not fit."""


class ModelChangedError(ModelFileError):
    """A model file is not the one that was loaded before."""


class TextError(OnehopError):
    """Input text cannot be read."""


class StoreError(OnehopError):
    """A token store is missing, damaged or does not fit the model."""


class OtherStoreError(StoreError):
    """The token store was made from other text or settings."""


class RunError(OnehopError):
    """A training run cannot start, resume or be written."""


class DivergedError(RunError):
    """The loss or gradient of a training became NaN or infinite."""


class ExportError(OnehopError):
    """A model cannot be written for another program, or read from it."""


class MissingPackageError(OnehopError, ImportError):
    """A package of one of onehop's extras is not installed."""


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def missing_package(module: str, instead: str = "") -> MissingPackageError:
    """The error for a missing module of an extra; `instead` says what else the user can do."""
    package = module.partition(".")[0]
    remedy = f'Install it with: pip install "onehop[{EXTRAS[package]}]"' + (f", or {instead}" if instead else "")
    return MissingPackageError(f"This needs {_NAMES.get(package, package)}.", remedy)


def require(*modules: str, instead: str = "") -> None:
    """Raise the error of the first missing module."""
    for module in modules:
        if not is_installed(module):
            raise missing_package(module, instead)


@contextmanager
def write_errors(
    path: str | Path, remedy: str = "Give another -o.", error: type[OnehopError] = TextError, *, full: str = ""
) -> Iterator[None]:
    """Turn a disk error into one line. `full` is the remedy for a full disk, if it is another one."""
    try:
        yield
    except OSError as e:
        is_full = full and e.errno in (errno.ENOSPC, errno.EDQUOT)
        raise error(f"{path} cannot be written: {e.strerror or e}.", full if is_full else remedy) from None


def check_folder(folder: Path | None) -> None:
    """Refuse a folder that cannot be made or written to, before any work is done."""
    if folder is None:
        return
    around = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    import tempfile  # few commands need it

    with write_errors(folder), tempfile.TemporaryFile(dir=around):  # os.access does not tell why
        pass
