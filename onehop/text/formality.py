"""How a German or French text addresses its reader: Sie and vous, or du and tu."""

import re
from typing import Literal

Formality = Literal["formal", "informal"]

FORMAL = {
    "de": re.compile(r"(?<!^)(?<![.!?:„“\"»] )\b(Sie|Ihnen|Ihr|Ihre|Ihren|Ihrem|Ihrer|Ihres)\b"),
    "fr": re.compile(r"\b(vous|votre|vos)\b", re.IGNORECASE),
}
_INFORMAL = {
    "de": re.compile(r"\b(du|dich|dir|dein\w{0,2}|euch|euer|eure[mnrs]?)\b|(?<=, )ihr \w+t\b", re.IGNORECASE),
    "fr": re.compile(r"\b(tu|te|toi|ton|ta|tes)\b|\bt'", re.IGNORECASE),
}
_UNCLEAR = {"de": re.compile(r"^Sie\b|[.!?:„“\"»] ?Sie\b|\bihr\b")}


def formality(text: str, language: str) -> Formality | None:
    """How a text addresses the reader; None if it does not, is unclear, or the language has no such forms.

    German "Sie" at the start of a sentence can mean "she" or "they", and "ihr" can mean "her".
    """
    if language not in FORMAL:
        return None
    formal, informal = FORMAL[language].search(text), _INFORMAL[language].search(text)
    unclear = language in _UNCLEAR and _UNCLEAR[language].search(text)
    if bool(formal) == bool(informal) or (informal and unclear):
        return None
    return "formal" if formal else "informal"
