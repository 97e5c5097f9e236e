"""Tags that a model was trained with, for the translations of terms and for the formality."""

import re

from onehop.errors import SettingsError
from onehop.pipelines.glossary import Terms
from onehop.text.formality import FORMAL, Formality
from onehop.text.language_id import name_of
from onehop.text.tokenizer import Tokenizer, normalise

# A statement without "you" has no form of address. Models saw no tag on it in training, and would insert a "Sie".
YOU = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.IGNORECASE)
STATEMENT = re.compile(
    r"(?:I|we|he|she|it|they|the|an?|this|that|these|those|there|my|our|his|her|their|its|who|what|when|where|why|how)\b",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?\w+>")


def with_tags(text: str, terms: Terms, tokenizer: Tokenizer) -> str | None:
    """A text with tags for its terms and for the formality, or None if it gets no tags.

    A text that contains something like a tag gets none, because that must stay ordinary text.
    """
    text = normalise(text)
    if not text or _TAG.search(text):
        return None
    tagged = text
    if tokenizer.knows_tag("<term>"):
        for begin, end, term in reversed(terms.occurrences(text)):
            if begin == 0 or text[begin - 1] == " ":  # a tag's token includes the space before it
                tagged = f"{tagged[:begin]}<term> {text[begin:end]} <as> {term.target} </term>{tagged[end:]}"
    if (
        terms.formality
        and (YOU.search(text) or not STATEMENT.match(text))
        and tokenizer.knows_tag(f"<{terms.formality}>")
    ):
        tagged = f"<{terms.formality}> {tagged}"
    return None if tagged == text else tagged


def check_formality(formality: Formality, tokenizer: Tokenizer, language: str) -> None:
    """Raise SettingsError if a model or its target language lacks a formality."""
    if language not in FORMAL:
        languages = " and ".join(map(name_of, FORMAL))
        what = f"{name_of(language)} has no formality {formality}."
        raise SettingsError(what, f"Leave it out, or translate into {languages}.")
    if not tokenizer.knows_tag(f"<{formality}>"):
        raise SettingsError(f"This model has no tag for the formality {formality}.", "Use another model.")
