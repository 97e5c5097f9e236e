"""onehop: the Transformer of “Attention Is All You Need”, to use and to look inside.

from onehop import Translator
Translator.load("model.safetensors").translate(["Hello world."])
"""

from typing import TYPE_CHECKING, Any

from onehop._version import __version__

if TYPE_CHECKING:
    from onehop.explorer.view import Translator

__all__ = ["Translator", "__version__"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: `onehop --help` must not wait for an engine.
    if name == "Translator":
        from onehop.explorer.view import Translator

        return Translator
    raise AttributeError(f"module 'onehop' has no attribute {name!r}")
