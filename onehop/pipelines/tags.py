"""Tags that a model was trained with: which translation a term must get, and how the reader is addressed."""

import re

from onehop.errors import SettingsError
from onehop.pipelines.glossary import Terms
from onehop.text.formality import FORMAL, Formality
from onehop.text.language_id import name_of
from onehop.text.tokenizer import Tokenizer, normalise

# English that addresses nobody: the models were never given a tag for it, and would put a "Sie" into it.
YOU = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.IGNORECASE)
STATEMENT = re.compile(
    r"(?:I|we|he|she|it|they|the|an?|this|that|these|those|there|my|our|his|her|their|its|who|what|when|where|why|how)\b",
    re.IGNORECASE,
)
LIKE_TAG = re.compile(r"</?\w+>")


def with_tags(text: str, terms: Terms, tokenizer: Tokenizer) -> str | None:
    """A text with the tags for its terms and for the formality; None: it gets none.

    A text in which something like a tag stands already gets none: that must stay ordinary text.
    """
    text = normalise(text)
    if not text or LIKE_TAG.search(text):
        return None
    tagged = text
    if tokenizer.knows_tag("<term>"):
        for begin, end, term in reversed(terms.places(text)):
            if begin == 0 or text[begin - 1] == " ":  # a tag's piece begins with the space
                tagged = f"{tagged[:begin]}<term> {text[begin:end]} <as> {term.target} </term>{tagged[end:]}"
    if (
        terms.formality
        and (YOU.search(text) or not STATEMENT.match(text))
        and tokenizer.knows_tag(f"<{terms.formality}>")
    ):
        tagged = f"<{terms.formality}> {tagged}"
    return None if tagged == text else tagged


def check_formality(formality: Formality, tokenizer: Tokenizer, language: str) -> None:
    """Refuse a formality that a model or its target language does not have."""
    if language not in FORMAL:
        languages = " and ".join(map(name_of, FORMAL))
        what = f"{name_of(language)} has no formality {formality}."
        raise SettingsError(what, f"Leave it out, or translate into {languages}.")
    if not tokenizer.knows_tag(f"<{formality}>"):
        raise SettingsError(f"This model has no tag for the formality {formality}.", "Use another model.")
