"""A line in sentences and back, to the last space; what must survive a translation; where long sentences part."""

import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onehop.errors import TextError
from onehop.text.sentences import (
    ADDRESS,
    Segment,
    Term,
    Terms,
    as_stood,
    joined,
    missing_numbers,
    read_glossary,
    restored,
    segment,
    sentences,
    shortened,
)

# Text that is full of what splitters look at, beside any text at all.
TEXT = st.text() | st.lists(
    st.sampled_from(
        [*"aZ1.!?…;:,'\"”)( \t\u00a0\u2028\r", "Dr. ", "No. ", "a.b@c.de ", "http://x.y/z. ", "😀", "👩‍💻", "。"]
    )
).map("".join)


def texts(line, language="en"):
    return [s.text for s in sentences(line, language)]


# --- sentences ------------------------------------------------------------------------------------------------


@given(TEXT, st.sampled_from(["en", "de", "zh-cn", "PT_br", "none", ""]))
@example("\ud800 One. Two.", "en")
@example("a\n\nb. C", "en")
def test_put_together_unchanged_a_line_is_itself(line, language):
    assert joined(sentences(line, language)) == line


@given(TEXT)
def test_a_segment_has_nothing_but_spaces_and_emoji_around_it(line):
    found = segment(line)
    assert found.around(found.text) == line
    assert found.text == found.text.strip()
    assert not any(map(str.isalnum, found.before + found.after))


@pytest.mark.parametrize(
    "marked",
    [
        "Dr. Smith left at 5 p.m. on Jan. 3. |He paid 3.5 euros.",
        "The U.S. grew 2.5%. |Firms, e.g. Apple Inc., did too.",
        'He asked: "Are you sure?" |She nodded.',
        "“Stop!” he cried. |“It is late.” |Then silence.",
        "See https://example.com/a.b?c=d. |Mail a.b@c.org! |Ok?",
        "J. R. R. Tolkien wrote it.\t|Really?! | Yes!",
        "1. First item. |(2) Second. |13. Third",
        "Hello!|How are you?",
        "VISIT WWW.EXAMPLE.COM TODAY. |OR MAIL J.SMITH@EXAMPLE.COM.UK! |NOW.",
        "Open https://www.Example.org/path?A=b now. |SEE HTTPS://EXAMPLE.ORG/A.B?C=D!E. |Bye.",
        "Use {user.Name} here. |1. WWW.A.ORG. |2. WWW.B.ORG",
    ],
)
def test_sentences_of_english(marked):
    assert texts(marked.replace("|", "")) == [part.strip() for part in marked.split("|")]


def test_a_line_without_sentences():
    assert sentences("", "en") == []
    assert sentences("  ", "en") == [Segment("  ", "", "")]


def test_the_language_is_told_to_the_splitter():
    assert texts("Am 3. Oktober kam er.", "de-AT") == ["Am 3. Oktober kam er."]
    assert texts("Am 3. Oktober kam er.", "en") == ["Am 3.", "Oktober kam er."]
    assert texts("これはペンです。あれは本です。", "ja") == ["これはペンです。", "あれは本です。"]
    assert texts("见：https://a.org/b。然后去。", "zh") == ["见：https://a.org/b。", "然后去。"]


def test_a_splitter_that_loses_text_is_not_believed(monkeypatch):
    monkeypatch.setattr("sentencex.segment", lambda language, line: ["One."])
    assert texts("One. Two.") == ["One. Two."]


@pytest.mark.parametrize("space", ["\xa0", "\u2003", "\u202f", "\u3000", "\u3000 \xa0"])
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_a_wide_space_before_a_stop_breaks_no_splitter(space, language):
    line = f"Take vitamin A{space}. Then B{space}."
    assert joined(sentences(line, language)) == line
    plain = line.replace(space, " " * len(space))
    assert [t.split() for t in texts(line, language)] == [t.split() for t in texts(plain, language)]


def test_a_splitter_that_breaks_leaves_the_line_whole(monkeypatch):
    class PanicException(BaseException):
        """Comes from another language."""

    def panic(language, line):
        raise PanicException

    def stop(language, line):
        raise KeyboardInterrupt

    monkeypatch.setattr("sentencex.segment", panic)
    assert texts("One. Two.") == ["One. Two."]
    monkeypatch.setattr("sentencex.segment", stop)
    with pytest.raises(KeyboardInterrupt):
        texts("One. Two.")


@given(st.text(alphabet=" AaB.!?\xa0\u2003\u202f\u3000\u0301é’“”1,(U", max_size=12))
@settings(max_examples=300)
def test_sentences_lose_nothing_of_any_line(line):
    assert joined(sentences(line, "en")) == line


def test_spaces_and_emoji_stay_outside():
    assert segment(" \t👩‍💻 Hi there 🇩🇪❤️ ") == Segment(" \t👩‍💻 ", "Hi there", " 🇩🇪❤️ ")
    assert segment("I ❤️ it") == Segment("", "I ❤️ it", "")
    assert segment("Press 1️⃣") == Segment("", "Press 1️⃣", "")  # a digit with marks, not an emoji
    assert segment("😀😀") == Segment("😀😀", "", "")


@pytest.mark.parametrize(
    "line", ["x" + " " * 500_000 + "x", "a." * 250_000, "😀x" * 200_000, "a@" * 200_000, "WWW." + "A.B" * 200_000]
)
def test_a_very_long_line_takes_no_long_time(line):
    assert joined(sentences(line, "en")) == line
    assert len(Terms().wanted(line)) < 2


# --- too long -------------------------------------------------------------------------------------------------


@given(TEXT, st.integers(1, 12))
def test_parts_are_short_enough_and_the_whole_again(line, longest):
    whole = segment(line)
    parts = shortened(whole, longest, len)
    assert joined(parts) == line
    assert all(len(part.text) <= longest for part in parts)
    assert all(part.split for part in parts) if len(whole.text) > longest else parts == [whole]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("we came, we saw; we won, we left", ["we came, we saw;", "we won, we left"]),
        ("we came late, then we left", ["we came late,", "then we left"]),
        ("we came late and then left", ["we came late", "and then left"]),
        ("a: bbbbbbbbbbbbbbbbbb cccc", ["a: bbbbbbbbbbbbbbbbbb", "cccc"]),
        ("bbbbbbbbbbbbb.cc,cccccccccc", ["bbbbbbbbbbbbb", ".cc,cccccccccc"]),
        ("我们来了，我们看见了。我们赢了，我们走了", ["我们来了，我们看见了。", "我们赢了，我们走了"]),
    ],
)
def test_a_sentence_parts_at_the_best_place_near_its_middle(text, expected):
    parts = shortened(segment(text), len(text) - 1, len)
    assert [part.text for part in parts] == expected


def test_what_looks_like_one_character_stays_one():
    text = "e\u0301" * 4 + "👩‍💻e"
    parts = [part.text for part in shortened(Segment("", text, ""), 7, len)]
    assert parts == ["e\u0301" * 3, "e\u0301👩‍💻e"]


def test_a_character_that_is_itself_too_long_is_left():
    assert shortened(segment("x"), 3, lambda text: 9) == [Segment("", "x", "", split=True)]


# --- what must survive ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.b/c?d=e#f, and (www.x.org).", ["https://a.b/c?d=e#f", "www.x.org"]),
        ("mail jo.doe+x@mail.example.co.uk. now", ["jo.doe+x@mail.example.co.uk"]),
        ("<http://a.b/> “ftp://c/d”", ["http://a.b/", "ftp://c/d"]),
        ("Hello {name}, {user.mail} has %(count)d of ${total}", ["{name}", "{user.mail}", "%(count)d", "{total}"]),
        ("a @ b, x@y, http:// no, 3.5, {}, {two words}, 5% (so)", []),
    ],
)
def test_addresses_and_placeholders(text, found):
    assert ADDRESS.findall(text) == found


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
def test_what_is_wanted(text, wanted):
    assert [term.target for term in TERMS.wanted(text)] == wanted


@pytest.mark.parametrize(
    ("term", "translation", "met"),
    [
        (Term("contract", "Vertrag"), "der vertrag.", True),
        (Term("contract", "Vertrag"), "des Vertrages", False),
        (Term("contract", "gültiger Vertrag"), "gültiger\u00a0 Vertrag", True),
        (Term("Anna", "Anna", exact=True), "anna", False),
        (Term("x", "c++"), "in C++!", True),
        (Term("Japan", "日本"), "我去日本了", True),
    ],
)
def test_whether_a_term_is_met(term, translation, met):
    assert term.met(translation) is met


def test_a_term_in_words():
    assert str(Term("a", "b")) == "a → b"
    assert str(Term("a", "a")) == "a"


@pytest.mark.parametrize(
    ("text", "has"),
    [("www.x.org !", False), ("iPhone, Anna?", False), ("…—!", False), ("", False), ("12", True), ("The iPhone", True)],
)
def test_whether_there_is_anything_to_translate(text, has):
    assert TERMS.has_words(text) is has


def test_what_is_untouched_stands_in_order():
    assert TERMS.untouched("Anna, www.anna.org/Anna, {a} Anna") == [(0, 4), (6, 23), (19, 23), (25, 28), (29, 33)]


@pytest.mark.parametrize(
    ("text", "decided"),
    [("", ""), ("one", ""), ("one two", "one "), ("one  two ", "one  two "), ("a {na", "a "), ("to me@x.", "to ")],
)
def test_what_no_further_text_changes(text, decided):
    assert text[: Terms().decided(text)] == decided


def test_kept_words_are_undecided_as_long_as_the_longest_may_go_on():
    kept = Terms(keep=["Anna", "New York City"])
    assert kept.decided("in New") == kept.decided("New York") == 0
    assert kept.decided("in New York City") == len("in ")
    assert kept.decided("in New York is it") == len("in New ")


def test_garbled_addresses_are_put_back_where_it_is_plain_which():
    source = "see www.a.org or me@b.com"
    assert restored(source, "siehe www.A.orrg oder me@c.com") == "siehe www.a.org oder me@b.com"
    assert restored(source, "siehe www.A.orrg oder") == "siehe www.A.orrg oder"
    assert restored("none", "siehe www.a.org") == "siehe www.a.org"
    assert restored("Hello {name}", "Hallo {Name}") == "Hallo {name}"


# --- glossary files -------------------------------------------------------------------------------------------


def test_a_glossary_is_read(tmp_path):
    (tmp_path / "g.tsv").write_bytes("contract\tVertrag\r\n\n  cafe\u0301 \t Kaffee haus\ncontract\tVertrag".encode())
    assert read_glossary(tmp_path / "g.tsv") == [Term("contract", "Vertrag"), Term("café", "Kaffee haus")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", "Line 2 of {} is not a term. Write: source TAB target."),
        (b"a\t\n", "Line 1 of {} is not a term. Write: source TAB target."),
        (b"a\tb\tc\n", "Line 1 of {} is not a term. Write: source TAB target."),
        (b"a\tb\nA\tc\n", "Line 2 of {} gives 'A' a second translation. Keep one of them."),
        (b"\na\t\xff\n", "Line 2 of {} is not UTF-8. Convert it, e.g. with iconv."),
        (None, "{} cannot be read: No such file or directory. Check the file and its permissions."),
    ],
)
def test_a_glossary_that_is_none(tmp_path, content, message):
    file = tmp_path / "g.tsv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TextError, match=re.escape(message.format(file))):
        read_glossary(file)


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("1,250 and 3.75 at 10:30", "1.250 und 3,75 um 10.30", []),
        ("at 10:30 in room 512", "um 22.30 in Raum 512", ["10:30"]),
        ("You win 4-0.", "Du gewinnst 4:0.", []),
        ("20 thousand at 8 o'clock", "20.000 um 8.00 Uhr", []),
        ("on 20.12.2012", "am 20. Dezember 2012", ["20.12.2012"]),
        ("7, 7 and 8", "nichts", ["7", "8"]),
        ("the 40th", "die 40.", []),
        ("at 9pm, 7:30 p.m. and 5 p. m.", "um 21 Uhr, 19.30 Uhr und 5 Uhr nachmittags", []),
        ("at 10:30 a.m., 5 plums", "um 22.30 Uhr, 17", ["10:30", "5"]),
        ("none", "12", []),
        ("², ① and half", "zwei", []),
    ],
)
def test_numbers_that_are_missing(source, translation, missing):
    assert missing_numbers(source, translation) == missing


def test_parts_know_how_they_stood():
    whole = segment(" AN OLD, OLD TREE! ")
    parts = as_stood(whole, shortened(replace(whole, text="An old, old tree!"), 10, len))
    assert len(parts) > 1
    assert joined(parts) == " AN OLD, OLD TREE! "
    assert "".join(p.before + p.text + p.after for p in parts) == " An old, old tree! "
