"""Terms, kept words and addresses that a translation must contain."""

import re

import pytest

from onehop.errors import TextError
from onehop.pipelines.glossary import Term, Terms, read_glossary, restore_addresses

GLOSSARY = [Term("contract", "Vertrag"), Term("employment contract", "Arbeitsvertrag"), Term("日本", "Japan")]
TERMS = Terms(GLOSSARY, ["iPhone", "Anna"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The Contract ends.", ["Vertrag"]),
        ("The employment  contract ends.", ["Arbeitsvertrag"]),
        ("An employment contract is a contract.", ["Arbeitsvertrag", "Vertrag"]),
        ("contracts and subcontract", []),
        ("Anna has an iPhone, anna an iphone", ["Anna", "iPhone"]),
        ("I 😀 www.x.org", ["www.x.org", "😀"]),
        ("我去日本了", ["Japan"]),
    ],
)
def test_terms_kept_words_and_addresses_of_a_text_are_required(text, wanted):
    assert [term.target for term in TERMS.required(text)] == wanted


@pytest.mark.parametrize(
    ("term", "translation", "met"),
    [
        (Term("contract", "Vertrag"), "der vertrag.", True),
        (Term("contract", "Vertrag"), "des Vertrages", True),
        (Term("contract", "Vertrag"), "die Verträge", True),
        (Term("contract", "Vertrag"), "der Vertragstext", False),
        (Term("contract", "Vertrag"), "der Auftrag", False),
        (Term("computer", "Rechner"), "wir rechnen", False),
        (Term("black hole", "Schwarzes Loch"), "in einem Schwarzen Loch", True),
        (Term("press", "betätigen"), "Er betätigt den Knopf", True),
        (Term("paper", "journal"), "les journaux", True),
        (Term("key", "Ei"), "die Eier", False),  # too short a stem
        (Term("Anna", "Anna", exact=True), "Annas", False),
        (Term("contract", "gültiger Vertrag"), "gültiger\u00a0 Vertrag", True),
        (Term("Anna", "Anna", exact=True), "anna", False),
        (Term("x", "c++"), "in C++!", True),
        (Term("Japan", "日本"), "我去日本了", True),
    ],
)
def test_a_term_is_met_by_its_inflected_forms(term, translation, met):
    assert term.met(translation) is met


def test_a_term_is_printed_with_an_arrow():
    assert str(Term("a", "b")) == "a → b"
    assert str(Term("a", "a")) == "a"


@pytest.mark.parametrize(
    ("text", "has"),
    [("www.x.org !", False), ("iPhone, Anna?", False), ("…—!", False), ("", False), ("12", True), ("The iPhone", True)],
)
def test_kept_words_and_addresses_are_not_words_to_translate(text, has):
    assert TERMS.has_words(text) is has


def test_protected_spans_are_found_in_order():
    assert TERMS.protected_spans("Anna, www.anna.org/Anna, {a} Anna") == [(0, 4), (6, 23), (19, 23), (25, 28), (29, 33)]


@pytest.mark.parametrize(
    ("text", "decided"),
    [("", ""), ("one", ""), ("one two", "one "), ("one  two ", "one  two "), ("a {na", "a "), ("to me@x.", "to ")],
)
def test_the_stable_length_ends_before_an_unfinished_word(text, decided):
    assert text[: Terms().stable_length(text)] == decided


def test_kept_words_delay_the_stable_length():
    kept = Terms(keep=["Anna", "New York City"])
    assert kept.stable_length("in New") == kept.stable_length("New York") == 0
    assert kept.stable_length("in New York City") == len("in ")
    assert kept.stable_length("in New York is it") == len("in New ")


def test_garbled_addresses_are_restored_if_unambiguous():
    source = "see www.a.org or me@b.com"
    assert restore_addresses(source, "siehe www.A.orrg oder me@c.com") == "siehe www.a.org oder me@b.com"
    assert restore_addresses(source, "siehe www.A.orrg oder") == "siehe www.A.orrg oder"
    assert restore_addresses("none", "siehe www.a.org") == "siehe www.a.org"
    assert restore_addresses("Hello {name}", "Hallo {Name}") == "Hallo {name}"


# --- glossary files -------------------------------------------------------------------------------------------


def test_read_glossary_strips_normalises_and_removes_duplicates(tmp_path):
    (tmp_path / "g.tsv").write_bytes("contract\tVertrag\r\n\n  cafe\u0301 \t Kaffee haus\ncontract\tVertrag".encode())
    assert read_glossary(tmp_path / "g.tsv") == [Term("contract", "Vertrag"), Term("café", "Kaffee haus")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", "Line 2 of {} is not a term. Write: source TAB target."),
        (b"a\t\n", "Line 1 of {} is not a term. Write: source TAB target."),
        (b"a\tb\tc\n", "Line 1 of {} is not a term. Write: source TAB target."),
        (b"a\tb\nA\tc\n", "Line 2 of {} gives 'A' a second translation. Keep one of them."),
        (b"\na\t\xff\n", "Line 2 of {} is not UTF-8. Convert it, e.g. with `iconv -f latin1 -t utf-8`."),
        (None, "{} cannot be read: No such file or directory. Check the file and its permissions."),
    ],
)
def test_invalid_glossaries_are_refused(tmp_path, content, message):
    file = tmp_path / "g.tsv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TextError, match=re.escape(message.format(file))):
        read_glossary(file)
