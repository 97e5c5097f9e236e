"""Sentences in capitals: which are, in which letters the model gets them, and how its answer becomes capitals again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.capitals import capital, capitals, in_capitals, ordinary, small, spelling

# Ids of a small vocabulary, the more frequent first; a word that is not in it is read letter by letter.
KNOWN = ["the", "a", "I", "it", "door", "is", "open", "and", "EU", "Berlin", "do", "not", "us", "US", "i", "A"]


def encode(word):
    return [KNOWN.index(word)] if word in KNOWN else [100 + ord(letter) for letter in word]


@pytest.mark.parametrize(
    "text",
    ["THE DOOR IS OPEN.", "HELLO", "5 METRES, NOT 6!", "ÜBER ALLES", "ПРИВЕТ", "DO NOT OPEN THE DOOR OF THE HOUSE, Al"],
)
def test_these_are_in_capitals(text):
    assert in_capitals(text)


@pytest.mark.parametrize(
    "text",
    [
        *("The door is open.", "", "...", "123", "OK", "USA", "EU, NATO and UNESCO", "WARNING: The floor is wet."),
        *("PDFs", "CD-ROMs", "東京", "Siemens AG", "I"),
    ],
)
def test_these_are_not(text):
    assert not in_capitals(text)


def test_what_is_untouched_does_not_count():
    text = "READ https://example.org/a NOW"
    assert not in_capitals(text)
    assert in_capitals(text, [(5, 26)])
    assert not in_capitals("KEEP", [(0, 4)])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("THE DOOR IS OPEN.", "The door is open."),
        ("I OPEN IT AND I'M A DOOR.", "I open it and I'm a door."),
        ("THE EU AND BERLIN", "The EU and Berlin"),
        ("EU AND US", "EU and us"),
        ("«OPEN» THE DOOR’S DOOR", "«Open» the door’s door"),
        ("iPhone AND THE DOOR", "iPhone and the door"),
        ("12 DOOR", "12 Door"),
        ("123", "123"),
        ("İ IS OPEN", "İ is open"),
    ],
)
def test_in_ordinary_letters(text, plain):
    assert ordinary(text, encode) == plain


def test_a_word_is_spelled_in_the_fewest_pieces():
    assert spelling("BERLIN", encode) == "Berlin"
    assert spelling("EU", encode) == "EU"
    assert spelling("DOOR", encode) == "door"
    assert spelling("A", encode) == "a"
    assert spelling("I", encode) == "I"


def test_what_is_untouched_stays_as_it_is():
    assert ordinary("DOOR WWW.X.ORG", encode, [(5, 14)]) == "Door WWW.X.ORG"
    assert capitals("offen anna@x.org", "", [(6, 16)]) == "OFFEN anna@x.org"


def test_in_capitals_again():
    assert capitals("Die Tür ist groß, 5 m.", "THE DOOR IS BIG, 5 M.") == "DIE TÜR IST GROẞ, 5 M."
    assert capitals("das iPhone", "THE iPhone") == "DAS iPhone"


@given(st.text())
def test_no_place_moves(text):
    assert len(small(text)) == len(capital(text)) == len(text)
    assert len(ordinary(text, encode)) == len(capitals(text, text)) == len(text)


@given(st.text("AB, '1"))
def test_what_was_in_capitals_is_so_again(text):
    assert capitals(ordinary(text, encode), text) == text
