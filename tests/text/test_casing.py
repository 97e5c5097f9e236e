"""Sentences in capitals or Title Case: detection, ordinary case for the model, capitals for the translation."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.text.casing import (
    in_capitals,
    in_title_case,
    lower,
    spelling,
    to_capitals,
    to_ordinary_case,
    to_sentence_case,
    upper,
)

# A small vocabulary, the most frequent first. Other words are encoded letter by letter.
KNOWN = ["the", "a", "I", "it", "door", "is", "open", "and", "EU", "Berlin", "do", "not", "us", "US", "i", "A"]
KNOWN += ["o", "don", "straße", "ﬁne", "ǆin", "cafe\u0301", "οδος", "στον", "ας", "ısı"]


def encode(word):
    return [KNOWN.index(word)] if word in KNOWN else [100 + ord(letter) for letter in word]


def spell(word):
    return spelling(word, encode)


@pytest.mark.parametrize(
    "text",
    [
        "THE DOOR IS OPEN.",
        "HELLO",
        "5 METRES, NOT 6!",
        "ÜBER ALLES",
        "ПРИВЕТ",
        "FUßBALL",
        "DO NOT OPEN THE DOOR OF THE HOUSE, Al",
    ],
)
def test_in_capitals_is_true_for_sentences_in_capitals(text):
    assert in_capitals(text)


@pytest.mark.parametrize(
    "text",
    [
        *("The door is open.", "", "...", "123", "OK", "USA", "EU, NATO and UNESCO", "WARNING: The floor is wet."),
        *("PDFs", "CD-ROMs", "東京", "Siemens AG", "I", "ßßßß"),
    ],
)
def test_in_capitals_is_false_for_other_sentences(text):
    assert not in_capitals(text)


def test_protected_words_do_not_count_as_capitals():
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
        ("DO NOT OPEN O'BERLIN’S DOOR", "Do not open o'Berlin’s door"),
        ("IT IS 'BERLIN' AND 'EU'", "It is 'Berlin' and 'EU'"),
        ("IT'D, IT’LL, DO'RE, I'VE, DON'T", "It'd, it’ll, do're, I've, don't"),
        ("THE STRAßE IS OPEN", "The straße is open"),
        ("THE ﬁNE ǅIN IS", "The ﬁne ǆin is"),
        ("THE CAFE\u0301 IS OPEN", "The cafe\u0301 is open"),
        ("I DO: ΟΔΟΣ ΣΤΟΝ, ΑΣ", "I do: οδος στον, ας"),
    ],
)
def test_to_ordinary_case_uses_the_vocabularys_spelling(text, plain):
    assert to_ordinary_case(text, spell) == plain


def test_a_words_spelling_is_the_one_with_the_fewest_pieces():
    assert spelling("BERLIN", encode) == "Berlin"
    assert spelling("EU", encode) == "EU"
    assert spelling("DOOR", encode) == "door"
    assert spelling("A", encode) == "a"
    assert spelling("I", encode) == "I"


def test_a_greek_name_ends_with_a_final_sigma():
    assert spelling("ΑΣ", lambda word: [1] if word == "Ας" else [2, 3]) == "Ας"


def test_protected_words_keep_their_case():
    assert to_ordinary_case("DOOR WWW.X.ORG", spell, [(5, 14)]) == "Door WWW.X.ORG"
    assert to_capitals("offen anna@x.org", "", [(6, 16)]) == "OFFEN anna@x.org"
    assert to_capitals("a bc d ef g", "", [(2, 6), (2, 4), (7, 9)]) == "A bc d ef G"


def test_protected_spans_are_iterated_once():
    class Counted(list):
        gone_through = 0

        def __iter__(self):
            self.gone_through += 1
            return super().__iter__()

    text = "DOOR {a} " * 100
    places = Counted((i + 5, i + 8) for i in range(0, len(text), 9))
    assert in_capitals(text, places)
    assert to_ordinary_case(text, spell, places) == "Door {a} " + "door {a} " * 99
    assert to_capitals("door {a} " * 100, text, places) == text
    assert places.gone_through == 3


def test_to_capitals_keeps_mixed_case_words_of_the_source():
    assert to_capitals("Die Tür ist groß, 5 m.", "THE DOOR IS BIG, 5 M.") == "DIE TÜR IST GROẞ, 5 M."
    assert to_capitals("das iPhone", "THE iPhone") == "DAS iPhone"
    assert to_capitals("die Straße", "THE STRAßE") == "DIE STRAẞE"
    assert to_capitals("οδός και ας", "ROADS") == "ΟΔΌΣ ΚΑΙ ΑΣ"


@pytest.mark.parametrize("language", ["tr", "az", "tr-TR", "AZ_Latn"])
def test_turkic_languages_distinguish_dotted_and_dotless_i(language):
    assert lower("DİL VE ISPARTA", language) == "dil ve ısparta"
    assert upper("dil ve ısparta", language) == "DİL VE ISPARTA"
    assert spelling("ISI", encode, language) == "ısı"
    assert to_capitals("iyi", "GOOD", language=language) == "İYİ"


def test_other_languages_do_not_distinguish_dotted_and_dotless_i():
    assert lower("DIL", "de") == lower("DIL", "trv") == "dil"
    assert upper("dil ı", "de") == "DIL I"


def test_changes_of_case_keep_the_length():
    every = [c for c in map(chr, range(sys.maxunicode + 1)) if c.lower() != c or c.upper() != c]
    for language in ("", "tr"):
        assert [len(lower(c, language)) for c in every] == [len(upper(c, language)) for c in every] == [1] * len(every)


@given(st.text())
def test_changes_of_case_keep_all_positions(text):
    assert len(lower(text)) == len(upper(text)) == len(text)
    assert len(to_ordinary_case(text, spell)) == len(to_capitals(text, text)) == len(text)


@given(st.text("AB, '1"))
def test_capitals_are_restored(text):
    assert to_capitals(to_ordinary_case(text, spell), text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Storm Leaves Thousands Without Power",
        "How to Train Your Puppy in Ten Days",
        "Disney to Launch New Series on Tablet PCs?",
        "The Girl Who Talked with Trees: A Memoir",
    ],
)
def test_in_title_case_is_true_for_titles(text):
    assert in_title_case(text, "en")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The storm left thousands without power", "en"),
        ("Anna Smith Met Peter Brown Yesterday.", "en"),  # titles do not end with a full stop
        ("United Nations", "en"),
        ("Der Sturm ließ Tausende Menschen ohne Strom", "de"),
        ("STORM LEAVES THOUSANDS WITHOUT POWER", "en"),
        ("", "en"),
    ],
)
def test_in_title_case_is_false_for_other_texts(text, language):
    assert not in_title_case(text, language)


def test_to_sentence_case_keeps_the_first_word_and_names():
    title = "The Door Is Open and the EU Not: J. Greenman Do It in Berlin"
    plain = "The door is open and the EU not: J. Greenman do it in Berlin"
    assert to_sentence_case(title, encode) == plain
    assert (
        to_sentence_case("Open A Door in New York", lambda word: [int(word[0].isupper())]) == "Open a door in New york"
    )
    assert to_sentence_case("The Door Is Open", encode, [(4, 8)]) == "The Door is open"
