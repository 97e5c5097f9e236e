"""Subtitles: times stay, sentences over lines and cues are translated whole, and lines are broken again."""

import re

import pytest

from onehop.pipelines.documents import read_document
from onehop.pipelines.documents.translate import Memory, translate_document

SRT = """\
1
00:00:01,000 --> 00:00:03,500
I never thought that the old
lighthouse would be

2
00:00:03,600 --> 00:00:06,000
sold to somebody from the city.

3
00:00:06,500 --> 00:00:08,000 X1:117 X2:553
- Did you see him?
- <i>No, nobody</i> came here.

4
00:00:09,000 --> 00:00:11,000
{\\an8}<font color="#ffff00">Meanwhile, in Berlin…</font>

5
00:00:12,000 --> 00:00:13,000

6
00:00:14,000 --> 00:00:15,000
♪ La la ♪
"""
VTT = """\
WEBVTT - A film

STYLE
::cue { color: red }

NOTE nothing of this

intro
00:01.000 --> 00:04.000 align:start position:10%
<v Roger Bingham>We are in <b>New York</b> City &amp; more
and <00:03.000>we stay

00:05.000 --> 00:06.000
Yes.
"""


@pytest.mark.parametrize(("text", "name"), [(SRT, "a.srt"), (VTT, "a.vtt"), (SRT.rstrip(), "a.srt"), ("", "a.srt")])
def test_unchanged_text_gives_the_same_bytes(same, text, name):
    for data in (text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert same(data, name)


def test_a_sentence_over_several_cues_is_divided_again(translated):
    found = translated(SRT, "a.srt", lambda word: word.upper() + "!" * 3)
    times = re.findall(r".*-->.*", SRT)
    assert re.findall(r".*-->.*", found) == times
    assert "I!!! NEVER!!! THOUGHT!!! THAT!!! THE!!!\nOLD!!! LIGHTHOUSE!!! WOULD!!! BE!!!\n\n2\n" in found


def test_the_model_reads_whole_sentences(pipeline):
    by = pipeline()
    translate_document(by, read_document(SRT.encode(), "a.srt"), Memory())
    assert by.translator.asked[:3] == [
        "I never thought that the old lighthouse would be sold to somebody from the city.",
        "Did you see him?",
        "No, nobody came here.",
    ]


def test_tags_settings_and_notes_are_kept(translated):
    found = translated(VTT, "a.vtt")
    for kept in ("WEBVTT - A film", "NOTE nothing of this", "intro\n00:01.000", "::cue { color: red }", "&amp;"):
        assert kept in found
    assert "<v Roger Bingham>WE ARE IN <b>NEW YORK</b> CITY" in found
    assert "<00:03.000>" in found


def test_speakers_keep_their_lines(translated):
    assert "- DID YOU SEE HIM?\n- <i>NO, NOBODY</i> CAME HERE.\n" in translated(SRT, "a.srt")


def test_a_line_of_times_ends_a_cue_without_a_blank_line(translated):
    text = "1\n00:11,000 --> 00:13,000\nWe are\nhere\n2\n00:13,000 --> 00:16,000\n00:16,000 --> 00:18,000\nBye"
    assert translated(text, "a.srt") == text.replace("We are\nhere", "WE ARE\nHERE").replace("Bye", "BYE")
    assert translated("WEBVTT\n\n" + text, "a.vtt").count("00:13,000 --> 00:16,000\n") == 1
