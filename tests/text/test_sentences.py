"""Splitting lines into sentences without loss, splitting long sentences, finding addresses and placeholders."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onehop.pipelines.glossary import Terms
from onehop.text.sentences import ADDRESS, Segment, segment, split_long, split_sentences, with_originals

# Any text, and text full of characters that sentence splitters look at.
TEXT = st.text() | st.lists(
    st.sampled_from(
        [*"aZ1.!?…;:,'\"”)( \t\u00a0\u2028\r", "Dr. ", "No. ", "a.b@c.de ", "http://x.y/z. ", "😀", "👩‍💻", "。"]
    )
).map("".join)


def join(segments):
    return "".join(s.around(s.source) for s in segments)


def texts(line, language="en"):
    return [s.text for s in split_sentences(line, language)]


# --- sentences ------------------------------------------------------------------------------------------------


@given(TEXT, st.sampled_from(["en", "de", "zh-cn", "PT_br", "none", ""]))
@example("\ud800 One. Two.", "en")
@example("a\n\nb. C", "en")
def test_joined_segments_equal_the_line(line, language):
    assert join(split_sentences(line, language)) == line


@given(TEXT)
def test_a_segment_is_surrounded_only_by_spaces_and_emoji(line):
    s = segment(line)
    assert s.around(s.text) == line
    assert s.text == s.text.strip()
    assert not any(map(str.isalnum, s.before + s.after))


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
def test_english_is_split_into_sentences(marked):
    assert texts(marked.replace("|", "")) == [part.strip() for part in marked.split("|")]


def test_empty_and_blank_lines_have_no_sentences():
    assert split_sentences("", "en") == []
    assert split_sentences("  ", "en") == [Segment("  ", "", "")]


def test_sentences_are_split_by_the_rules_of_the_language():
    assert texts("Am 3. Oktober kam er.", "de-AT") == ["Am 3. Oktober kam er."]
    assert texts("Am 3. Oktober kam er.", "en") == ["Am 3.", "Oktober kam er."]
    assert texts("これはペンです。あれは本です。", "ja") == ["これはペンです。", "あれは本です。"]
    assert texts("见：https://a.org/b。然后去。", "zh") == ["见：https://a.org/b。", "然后去。"]


def test_a_split_that_loses_text_is_ignored(monkeypatch):
    monkeypatch.setattr("sentencex.segment", lambda language, line: ["One."])
    assert texts("One. Two.") == ["One. Two."]


@pytest.mark.parametrize("space", ["\xa0", "\u2003", "\u202f", "\u3000", "\u3000 \xa0"])
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_a_wide_space_before_a_full_stop_splits_like_a_space(space, language):
    line = f"Take vitamin A{space}. Then B{space}."
    assert join(split_sentences(line, language)) == line
    plain = line.replace(space, " " * len(space))
    assert [t.split() for t in texts(line, language)] == [t.split() for t in texts(plain, language)]


def test_a_failing_splitter_leaves_the_line_whole(monkeypatch):
    class PanicException(BaseException):
        """Like the exception of a Rust extension, which is no Exception."""

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
def test_joined_sentences_equal_lines_of_spaces_and_stops(line):
    assert join(split_sentences(line, "en")) == line


def test_spaces_and_emoji_are_outside_the_segments_text():
    assert segment(" \t👩‍💻 Hi there 🇩🇪❤️ ") == Segment(" \t👩‍💻 ", "Hi there", " 🇩🇪❤️ ")
    assert segment("I ❤️ it") == Segment("", "I ❤️ it", "")
    assert segment("Press 1️⃣") == Segment("", "Press 1️⃣", "")  # a digit with marks, not an emoji
    assert segment("😀😀") == Segment("😀😀", "", "")


def test_a_long_line_is_passed_to_the_splitter_in_windows(monkeypatch):
    """The splitter takes quadratic time and holds the GIL: a file of "<!--" would stop a server."""
    import sentencex

    lengths, split = [], sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda language, text: lengths.append(len(text)) or split(language, text))
    few = [f"Sentence {number} of a long line." for number in range(1000)]
    assert [s.text for s in split_sentences(" ".join(few), "en")] == few
    assert "".join(s.text for s in split_sentences("<!--" * 10_000, "en")) == "<!--" * 10_000
    assert len(lengths) > 6
    assert max(lengths) == 10_000


@pytest.mark.parametrize(
    "line", ["x" + " " * 500_000 + "x", "a." * 250_000, "😀x" * 200_000, "a@" * 200_000, "WWW." + "A.B" * 200_000]
)
def test_very_long_lines_are_split_without_loss(line):
    assert join(split_sentences(line, "en")) == line
    assert len(Terms().required(line)) < 2


# --- long sentences -------------------------------------------------------------------------------------------


@given(TEXT, st.integers(1, 12))
def test_parts_are_short_enough_and_join_to_the_whole(line, longest):
    whole = segment(line)
    parts = split_long(whole, longest, len)
    assert join(parts) == line
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
def test_a_long_sentence_is_split_at_the_best_point_near_its_middle(text, expected):
    parts = split_long(segment(text), len(text) - 1, len)
    assert [part.text for part in parts] == expected


def test_grapheme_clusters_are_not_split():
    text = "e\u0301" * 4 + "👩‍💻e"
    parts = [part.text for part in split_long(Segment("", text, ""), 7, len)]
    assert parts == ["e\u0301" * 3, "e\u0301👩‍💻e"]


def test_a_single_character_that_is_too_long_is_kept():
    assert split_long(segment("x"), 3, lambda text: 9) == [Segment("", "x", "", split=True)]


# --- addresses and placeholders -------------------------------------------------------------------------------


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
def test_addresses_and_placeholders_are_found(text, found):
    assert ADDRESS.findall(text) == found


def test_parts_of_a_recased_sentence_have_their_original_text():
    whole = segment(" AN OLD, OLD TREE! ")
    parts = with_originals(whole, split_long(replace(whole, text="An old, old tree!"), 10, len))
    assert len(parts) > 1
    assert join(parts) == " AN OLD, OLD TREE! "
    assert "".join(p.before + p.text + p.after for p in parts) == " An old, old tree! "
