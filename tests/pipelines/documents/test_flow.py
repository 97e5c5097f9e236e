"""Patterns of placeholders, tags and formats take linear time on long text that nearly matches."""

import re
import time

import pytest

from onehop.pipelines.documents.flow import KEPT, TAGGED
from onehop.pipelines.documents.markdown import _FOREIGN
from onehop.pipelines.documents.subtitles import _TIMES
from onehop.pipelines.documents.xliff import _SEGMENT
from onehop.text.language_id import _NOT_A_WORD


def seconds(pattern: re.Pattern[str], text: str) -> float:
    """CPU seconds for all matches."""
    began = time.process_time()
    for _ in pattern.finditer(text):
        pass
    return time.process_time() - began


@pytest.mark.parametrize(
    ("pattern", "first", "repeated"),
    [
        (KEPT, "%", "0"),
        (KEPT, "%(a)", "0"),
        (TAGGED, "", "<!--"),
        (_FOREIGN, "", "[^"),
        (_TIMES, "", "1"),
        (_SEGMENT, "", " "),
        (_SEGMENT, "", "<alt-trans/>"),
        (_SEGMENT, "", '<unit translate="no"/>'),
        (_SEGMENT, "", "<source/>"),
        (_SEGMENT, "", "<source></source><seg-source/>"),
        (_NOT_A_WORD, "", "a"),
    ],
)
def test_patterns_take_linear_time(pattern, first, repeated):
    short, long = (seconds(pattern, first + repeated * (n // len(repeated))) for n in (16_000, 64_000))
    assert long < 0.1 or long < 10 * short  # linear: four times as long, and some milliseconds; else sixteen times


WIDTHS = "%05d %-10s %+.2f %*d %2$05.1f %(n)05d %(n)0.2f %(n)-8s %(n).3f %(n)10x"


@pytest.mark.parametrize("placeholder", f"${{x}} {{0}} {{}} {{{{x}}}} %s %d %1$s %@ %lld %(name)s {WIDTHS}".split())
def test_placeholders_of_many_programs_are_kept(placeholder):
    assert [found[0] for found in KEPT.finditer(f"a {placeholder} b")] == [placeholder]


@pytest.mark.parametrize(
    ("text", "words"), [("ab c/d e1f gh x_y <b> é=", "ab gh"), ("1 a@b @ 2c c2 d", "d"), ("über alles", "über alles")]
)
def test_words_with_symbols_or_digits_are_not_used_to_identify_the_language(text, words):
    assert _NOT_A_WORD.sub(" ", text).split() == words.split()
