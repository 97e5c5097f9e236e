"""Plain text: tabs, line ends and the byte order mark stay; hard-wrapped paragraphs are translated whole."""

from pathlib import Path

import pytest

from onehop.errors import TextError
from onehop.pipelines.documents import read_document

LETTER = """\
Dear Anna,

thank you for the books. The one about the sea
is the best that I have read for years, and my
brother thinks so too.

  - bring the lamp, which stands in the
    kitchen
  - call the doctor

> What did he say about the house? I have
> not heard from him.
Nothing.

Yours, Tom
"""


@pytest.mark.parametrize("join_lines", [False, True])
@pytest.mark.parametrize("text", [LETTER, "", "\n", "one", "a\n\n\n b \t\tc\n", "no end\r\nmixed\n", "x\ry\n"])
def test_unchanged_text_gives_the_same_bytes(same, text, join_lines):
    for data in (text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert same(data, "letter.txt", join_lines=join_lines)


@pytest.mark.parametrize("file", ["LICENSE", "docs/journal.md", "tests/data/tatoeba-1000.en"])
@pytest.mark.parametrize("join_lines", [False, True])
def test_real_files_round_trip_byte_for_byte(same, file, join_lines):
    assert same((Path(__file__).parents[3] / file).read_bytes(), "x.txt", join_lines=join_lines)


def test_a_last_line_of_one_short_word_is_no_list_item(same, translated):
    text = "They wait between 0.24 and 0.48\ns.\n\nThe next paragraph.\n"
    assert same(text, "x.txt", join_lines=True)
    assert translated(text, "x.txt", join_lines=True) == text.upper()


def test_tabs_and_line_ends_are_kept(translated):
    data = b"\xef\xbb\xbfone\t two.  Three\r\n\r\n\tfour \r\n"
    assert translated(data, "x.txt") == b"\xef\xbb\xbfONE\t TWO.  THREE\r\n\r\n\tFOUR \r\n"


def test_hard_wrapped_lines_are_one_paragraph(translated):
    found = translated(LETTER, "x.txt", lambda word: word + word, join_lines=True)
    assert found.startswith("DearDear Anna,Anna,\n\nthankthank youyou forfor thethe")
    assert "\n  - bringbring thethe lamp,lamp,\n    whichwhich standsstands inin" in found
    assert all(line.startswith("> ") for line in found.split("\n\n")[3].split("\n")[:-1])
    assert max(map(len, found.split("\n"))) <= max(map(len, LETTER.split("\n")))


def test_files_that_are_not_utf8_are_refused():
    with pytest.raises(TextError, match=r"Line 2 of x\.txt is not UTF-8"):
        read_document(b"one\nGr\xfc\xdfe\n", "x.txt")
    with pytest.raises(TextError, match=r"x\.pdf is not text\. Save it as text, docx, odt, epub or HTML\."):
        read_document(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n\0", "x.pdf")
    with pytest.raises(TextError, match="UTF-16"):
        read_document("one".encode("utf-16"), "x.srt")
    with pytest.raises(TextError, match="UTF-32"):
        read_document("one".encode("utf-32"), "x.srt")
