"""onehop: the Transformer of “Attention Is All You Need”, to use and to look inside.

    from onehop import translate
    print(translate("Hello world.", to="de"))

Everything is imported when it is first asked for; only `trace`, `explore`, `train`, `finetune` and
`Transformer` need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onehop._version import __version__
from onehop.errors import EXTRAS, missing_package

if TYPE_CHECKING:
    from onehop.config import load_settings
    from onehop.explorer.view import explore
    from onehop.interpret.tracer import trace
    from onehop.model.transformer import Transformer
    from onehop.pipelines.translate import translate
    from onehop.pipelines.translator import Translator
    from onehop.training.finetune import finetune
    from onehop.training.workflow import train

__all__ = [
    "Transformer",
    "Translator",
    "__version__",
    "explore",
    "finetune",
    "load_settings",
    "trace",
    "train",
    "translate",
]

_HOMES = {
    "Transformer": "model.transformer",
    "Translator": "pipelines.translator",
    "explore": "explorer.view",
    "finetune": "training.finetune",
    "load_settings": "config",
    "trace": "interpret.tracer",
    "train": "training.workflow",
    "translate": "pipelines.translate",
}


def __getattr__(name: str) -> Any:
    # `onehop --help` must not wait for an engine, and translating must not need torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'onehop' has no attribute {name!r}")
    try:
        return getattr(import_module(f"onehop.{_HOMES[name]}"), name)
    except ModuleNotFoundError as e:
        if str(e.name).partition(".")[0] not in EXTRAS:
            raise
        raise missing_package(str(e.name)) from None


def __dir__() -> list[str]:
    return __all__
