"""The vocabulary shortlist: what is learned, its file, and translations that keep to it."""

import inspect
import json
import random
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from typer.testing import CliRunner

from onehop.cli import app
from onehop.cli.train import shortlist as verb
from onehop.config import ModelSettings, Settings
from onehop.data.store import Pairs, Store, id_type, side_from_lists, tokenizer_hash
from onehop.decoding import shortlist
from onehop.decoding.ctranslate2_engine import Converted
from onehop.decoding.options import SearchOptions
from onehop.decoding.shortlist import Shortlist, make_shortlist, read_shortlist, spread, translations, write_shortlist
from onehop.errors import OnehopError
from onehop.experiments.digits import Images, write_store
from onehop.experiments.reverse import digit_strings, in_words
from onehop.model.transformer import Transformer
from onehop.pipelines import sentence_translator as translator_module
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage import cache, registry
from onehop.storage.ctranslate2_format import vocabulary, vocabulary_map
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import write_model
from onehop.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
TEXTS = in_words(digit_strings(40))
# Nothing is cut off, so that a model with random weights says what it likes.
OPTIONS = SearchOptions(beam=4, loop_repeats=0)


@pytest.fixture(scope="module")
def store(digits) -> Store:
    return digits[1]


@pytest.fixture(scope="module")
def model(store, tmp_path_factory):
    """Random weights over the store's pieces: what it would say is anything, so that a table shows."""
    settings = ModelSettings(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=32, n_heads=2, max_length=64)
    torch.manual_seed(4)
    weights = Transformer(settings, Tokenizer(store.tokenizer).vocab_size).state_dict()
    tensors = {name: tensor.numpy() for name, tensor in weights.items()}
    more = {"tokenizer": store.tokenizer, "source": "en", "target": "de", "provenance": {}}
    file = tmp_path_factory.mktemp("shortlisted") / "model.safetensors"
    return write_model(file, StoredModel(settings=Settings(model=settings), tensors=tensors, **more))


def pairs_of(sentences: list[tuple[list[int], list[int]]]) -> Pairs:
    source, target = zip(*sentences, strict=True)
    return Pairs(side_from_lists(source, id_type(300)), side_from_lists(target, id_type(300)))


def table_of(store: Store, rows: list[list[int]], always: list[int]) -> Shortlist:
    dtype = id_type(len(rows))
    return Shortlist(
        candidates=side_from_lists(rows, dtype),
        frequent=np.array(always, dtype),
        tokenizer=store.tokenizer_hash,
        made={"pairs": 0},
    )


# --- what is learned ------------------------------------------------------------------------------------------

WORDS, EVERYWHERE, SILENT, SPONTANEOUS = range(20), 20, 21, 59


def toy_text(count: int = 400) -> Pairs:
    """Word w becomes 30 + w, in another order; one word is in every sentence, one has no translation, one no source."""
    draw = random.Random(7)
    sentences = []
    for _ in range(count):
        words = [EVERYWHERE, *draw.sample(WORDS, 4)]
        target = [30 + word for word in draw.sample(words, 5)]
        sentences.append(([*words, *([SILENT] if draw.random() < 0.5 else [])], [*target, SPONTANEOUS]))
    return pairs_of(sentences)


def test_a_dictionary_is_found_again():
    rows = translations(toy_text(), 60, rounds=10)
    for word in WORDS:
        ids, likely = rows[word]
        assert ids[likely.argmax()] == 30 + word
        assert likely.max() > 0.9
    # What stands in every pair cannot be told apart.
    ids, likely = rows[EVERYWHERE]
    assert set(ids[likely > 0.4]) == {30 + EVERYWHERE, SPONTANEOUS}


def naively(pairs: Pairs, rounds: int) -> dict[tuple[int, int], float]:
    """The first model as its authors wrote it down, one token after the other; -1 is the empty word."""
    likely: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts, totals = defaultdict(float), defaultdict(float)
        for i in range(len(pairs)):
            source = [-1, *sorted(set(pairs.src(i).tolist()))]
            for token in pairs.tgt(i).tolist():
                together = sum(likely[word, token] for word in source)
                for word in source:
                    share = likely[word, token] / together
                    counts[word, token] += share
                    totals[word] += share
        likely = defaultdict(float, {key: count / totals[key[0]] for key, count in counts.items()})
    return likely


@pytest.mark.parametrize("block", [shortlist.BLOCK, 7])
def test_it_is_the_first_model_of_ibm(monkeypatch, block):
    monkeypatch.setattr(shortlist, "BLOCK", block)
    text = toy_text(60)
    wanted = {pair: likely for pair, likely in naively(text, rounds=4).items() if pair[0] >= 0}
    found = {
        (word, piece): likely
        for word, row in enumerate(translations(text, 60, rounds=4))
        for piece, likely in zip(*(numbers.tolist() for numbers in row), strict=True)
    }
    assert found == pytest.approx(wanted, abs=1e-5)


def test_memory_is_bounded_by_what_is_kept(monkeypatch):
    monkeypatch.setattr(shortlist, "KEPT", 3)
    rows = translations(toy_text(), 60)
    assert {len(ids) for ids, _ in rows} == {0, 3}
    assert all(30 + word in rows[word][0] for word in WORDS)


def test_pairs_come_from_all_over_a_text():
    text = pairs_of([([i], [i, 100 + i]) for i in range(10)])
    sample = spread(text, 4)
    assert (sample.source.lists(), sample.target.lists()) == (
        [[0], [2], [5], [7]],
        [[i, 100 + i] for i in (0, 2, 5, 7)],
    )
    assert spread(text, 99).target.lists() == text.target.lists()


def test_a_table_has_the_likely_the_frequent_and_the_piece_itself(store):
    made = make_shortlist(store, best=3, frequent=2, pairs=300)
    times = np.bincount(spread(store.pairs("train"), 300).target.ids)
    assert sorted(times[made.frequent]) == sorted(times)[-2:]
    rows = made.candidates.lists()
    assert len(rows) == Tokenizer(store.tokenizer).vocab_size
    assert all(piece in row and len(row) <= 4 for piece, row in enumerate(rows))
    assert not set(made.frequent.tolist()) & {
        other for piece, row in enumerate(rows) for other in row if other != piece
    }
    assert made.made == {"store": store.hash, "pairs": 300, "best": 3, "frequent": 2, "least": shortlist.LEAST}


def test_the_same_store_gives_the_same_table(store, tmp_path):
    for name in "ab":
        write_shortlist(tmp_path / name, make_shortlist(store, pairs=200))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# --- the file -------------------------------------------------------------------------------------------------


def test_a_table_comes_back(store, tmp_path):
    table = make_shortlist(store, best=5, frequent=9)
    write_shortlist(tmp_path / "t", table)
    found = read_shortlist(tmp_path / "t", store.tokenizer)
    assert found.candidates.lists() == table.candidates.lists()
    assert found.frequent.tolist() == table.frequent.tolist()
    assert (found.tokenizer, found.made) == (tokenizer_hash(store.tokenizer), table.made)


def test_ids_of_large_vocabularies_come_back(tmp_path, store):
    table = table_of(store, [[i, 70_000] for i in range(70_001)], [69_999])
    write_shortlist(tmp_path / "t", table)
    assert read_shortlist(tmp_path / "t", store.tokenizer).allowed([7]) == {7, 70_000, 69_999}


def damaged(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def of_version_2(file):
    content = file.read_bytes()
    assert b'\\"version\\": 1' in content
    file.write_bytes(content.replace(b'\\"version\\": 1', b'\\"version\\": 2'))


MAKE_AGAIN = "Make it again with `onehop shortlist`."
FOREIGN = "{f} is not a shortlist, or damaged. Give a file that `onehop shortlist` has written."


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda f: f.unlink(),
            "There is no shortlist {f}. Make it with `onehop shortlist STORE -o {f}`, or translate without it.",
        ),
        (lambda f: f.write_bytes(b"{}"), FOREIGN),
        (lambda f: f.write_bytes(f.read_bytes()[:-9]), FOREIGN),
        (lambda f: save_file({"a": np.zeros(2)}, f), FOREIGN),
        (of_version_2, "{f} has format 2; this onehop reads format 1. " + MAKE_AGAIN),
        (damaged, "{f} is damaged: its content does not match its hash. " + MAKE_AGAIN),
    ],
)
def test_what_is_refused(store, tmp_path, spoil, message):
    file = tmp_path / "t.shortlist"
    write_shortlist(file, make_shortlist(store, pairs=50))
    spoil(file)
    with pytest.raises(OnehopError) as refused:
        read_shortlist(file, store.tokenizer)
    assert str(refused.value) == message.format(f=file)


def test_the_table_of_another_vocabulary_is_refused(store, tmp_path, model_file):
    write_shortlist(tmp_path / "t", make_shortlist(store, pairs=50))
    with pytest.raises(OnehopError, match=r"t belongs to another vocabulary than the model's\. Make it again with"):
        SentenceTranslator.load(model_file, engine="ctranslate2", shortlist=tmp_path / "t")


def test_a_store_without_pairs_is_refused(store, monkeypatch):
    monkeypatch.setattr(Store, "holds", "plain text")
    with pytest.raises(OnehopError, match=r"holds no parallel text\. Give one of sentence pairs\."):
        make_shortlist(store)


def test_a_store_of_images_is_refused_by_what_it_holds(tmp_path):
    images = Images(np.zeros((2, 8, 8), np.int64), np.zeros(2, np.int64))
    path = write_store(tmp_path / "images", images, images).path
    refused = onehop("shortlist", path, "-o", tmp_path / "t")
    what = f"onehop: The token store {path} holds no parallel text. Give one of sentence pairs.\n"
    assert (refused.exit_code, refused.stderr) == (2, what)


def test_a_folder_that_is_not_there_cannot_be_written_to(store, tmp_path):
    with pytest.raises(OnehopError, match=r"cannot be written: No such file or directory\. Give another -o\."):
        write_shortlist(tmp_path / "no" / "t", table_of(store, [[0]], []))


def test_what_cannot_be_written_is_refused_before_anything_is_learned(store, tmp_path, monkeypatch):
    monkeypatch.setattr(shortlist, "make_shortlist", None)
    monkeypatch.setattr(shortlist.os, "access", lambda path, _: path != tmp_path / "closed")
    for name in ("folder", "closed"):
        (tmp_path / name).mkdir()
    for out, why in (
        (tmp_path / "folder", "Is a directory"),
        (tmp_path / "no" / "t", "No such file or directory"),
        (tmp_path / "closed" / "t", "Permission denied"),
    ):
        refused = onehop("shortlist", store.path, "-o", out)
        assert (refused.exit_code, refused.stderr) == (2, f"onehop: {out} cannot be written: {why}. Give another -o.\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "folder"]


# --- translating ----------------------------------------------------------------------------------------------


def translated(model, table, options=OPTIONS, **more):
    translator = SentenceTranslator.load(model, engine="ctranslate2", compute="float32", shortlist=table, **more)
    return translator.n_best(TEXTS, options)


def test_ctranslate2_reads_the_shortlist_as_vmap():
    assert vocabulary_map([2, 0], [[0], [1, 2], []], ["▁a", "b", "c"]).decode() == "\tc ▁a\n▁a\t▁a\nb\tb c\nc\t\n"


@pytest.mark.parametrize("options", [OPTIONS, SearchOptions(beam=1, loop_repeats=0)])
def test_with_the_whole_vocabulary_nothing_changes(store, model, tmp_path, options):
    everything = list(range(Tokenizer(store.tokenizer).vocab_size))
    write_shortlist(tmp_path / "t", table_of(store, [[i] for i in everything], everything))
    for found, plain in zip(translated(model, tmp_path / "t", options), translated(model, False, options), strict=True):
        assert [t.tokens for t in found] == [t.tokens for t in plain]
        assert [t.score for t in found] == pytest.approx([t.score for t in plain], abs=1e-4)
        assert (found[0].shortlist, plain[0].shortlist) == (True, False)


def test_a_translation_has_allowed_pieces_alone(store, model, tmp_path):
    pieces = Tokenizer(store.tokenizer)
    table = make_shortlist(store, best=2, frequent=3)
    write_shortlist(tmp_path / "t", table)
    translator = SentenceTranslator.load(model, engine="ctranslate2", shortlist=tmp_path / "t")
    within = [
        set(pieces.ids(t.tokens)) <= table.allowed(pieces.encode(s))
        for s in TEXTS
        for t in translator.translate([s], OPTIONS)
    ]
    without = SentenceTranslator.load(model, engine="ctranslate2").translate(TEXTS, OPTIONS)
    assert all(within)
    assert not all(
        set(pieces.ids(t.tokens)) <= table.allowed(pieces.encode(s)) for s, t in zip(TEXTS, without, strict=True)
    )


def test_in_a_batch_the_pieces_of_all_its_sentences_are_allowed(store, model, tmp_path):
    pieces = Tokenizer(store.tokenizer)
    everything = range(pieces.vocab_size)
    one, other = pieces.encode("one")[0], pieces.encode("two")[0]
    # "two" may become anything, "one" nearly nothing: what it becomes depends on who stands beside it.
    rows = [list(everything) if i == other else [i] for i in everything]
    write_shortlist(tmp_path / "t", table_of(store, rows, []))
    how = {"engine": "ctranslate2", "compute": "float32", "threads": 1}
    translator = SentenceTranslator.load(model, **how, shortlist=tmp_path / "t")
    alone, beside = (translator.translate(texts, OPTIONS)[0].tokens for texts in (["one"], ["one", "two"]))
    assert set(pieces.ids(alone)) <= {one}
    assert beside == SentenceTranslator.load(model, **how).translate(["one"], OPTIONS)[0].tokens != alone


def test_the_cache_stays_what_it_was(store, model, tmp_path):
    write_shortlist(tmp_path / "t", make_shortlist(store, pairs=50))
    SentenceTranslator.load(model, engine="ctranslate2")
    before = cache.entries()
    SentenceTranslator.load(model, engine="ctranslate2", shortlist=tmp_path / "t")
    assert cache.entries() == before


def test_it_works_without_a_cache(store, model, tmp_path, monkeypatch):
    write_shortlist(tmp_path / "t", make_shortlist(store, pairs=50))
    with_cache = translated(model, tmp_path / "t")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONEHOP_CACHE", str(tmp_path / "file"))
    assert Converted.of(model, "float32").folder is None
    assert translated(model, tmp_path / "t") == with_cache


def test_what_goes_to_torch_is_translated_without(store, model, tmp_path):
    write_shortlist(tmp_path / "t", make_shortlist(store, best=1, frequent=1))
    options = SearchOptions(beam=4, penalty="paper")
    found = SentenceTranslator.load(model, "cpu", shortlist=tmp_path / "t").translate(TEXTS[:3], options)
    assert {(t.engine, t.shortlist) for t in found} == {("torch", False)}
    assert found == SentenceTranslator.load(model, engine="torch", device="cpu").translate(TEXTS[:3], options)


def test_the_torch_engine_refuses_a_shortlist(model):
    with pytest.raises(OnehopError) as refused:
        SentenceTranslator.load(model, engine="torch", shortlist=True)
    assert str(refused.value) == "The engine torch has no shortlist. Use the engine ctranslate2, or do without."


def test_without_the_option_no_table_is_read(model, monkeypatch):
    monkeypatch.setattr(translator_module, "shortlist_beside", None)
    monkeypatch.setattr(Converted, "with_shortlist", None)
    assert SentenceTranslator.load(model, "cpu").translate(["one"])[0].shortlist is False


# --- the commands ---------------------------------------------------------------------------------------------


def onehop(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_table_is_made_and_used(store, model, tmp_path):
    mine = shutil.copy(model, tmp_path / "mine.safetensors")
    asked = ["translate", "-m", mine, "--engine", "ctranslate2", "--beam", 1, "--json", "one two"]
    there = tmp_path / "mine.shortlist"
    refused = onehop(*asked, "--fast")
    assert refused.exit_code == 2
    remedy = f"Make it with `onehop shortlist STORE -o {there}`, or do without."
    assert refused.stderr == f"onehop: There is no shortlist {there}. {remedy}\n"

    made = onehop("shortlist", store.path, "-o", there, "--best", 2, "--frequent", 3, "--pairs", 100)
    mean = len(read_shortlist(there, store.tokenizer).candidates.ids) / Tokenizer(store.tokenizer).vocab_size
    size = there.stat().st_size / 1e6
    assert made.stdout == f"{there}: {mean:.1f} candidates a piece and 3 always, from 100 pairs, {size:.2f} MB\n"
    assert made.stderr == "which piece becomes which\n"

    fast, plain = (json.loads(onehop(*asked, *more).stdout) for more in (["--fast"], []))
    assert (fast["shortlist"], plain["shortlist"]) == (True, False)
    assert fast["tokens"] != plain["tokens"]


def test_where_torch_translates_it_is_said_that_there_is_none(store, model, tmp_path, monkeypatch):
    mine = shutil.copy(model, tmp_path / "mine.safetensors")
    write_shortlist(tmp_path / "mine.shortlist", make_shortlist(store, pairs=50))
    monkeypatch.setattr(translator_module, "prefers_ctranslate2", lambda device: False)
    found = onehop("translate", "-m", mine, "--device", "cpu", "--fast", "--beam", 1, "one two")
    assert found.exit_code == 0
    assert found.stderr.startswith("onehop: --fast is ignored: torch translates, which has no shortlist.\n")


def test_the_verb_s_defaults_are_the_module_s():
    defaults = {
        name: p.default
        for name, p in inspect.signature(verb).parameters.items()
        if name in ("best", "frequent", "pairs")
    }
    assert defaults == {"best": shortlist.BEST, "frequent": shortlist.FREQUENT, "pairs": shortlist.PAIRS}


def test_progress_ends_where_it_was_said_to(store):
    told: list[int] = []
    make_shortlist(store, pairs=20, progress=told.append)
    assert sum(told) == shortlist.steps_of(store)


# --- the pages ------------------------------------------------------------------------------------------------


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def measured(name: str) -> list[dict]:
    return json.loads((ROOT / "results" / "shortlist" / name).read_text(encoding="utf-8"))["rows"]


def figures(row: dict) -> str:
    """A row of a page, but for its first cell."""
    candidates = f"{row['candidates']:,}" if "candidates" in row else "16,000"
    return f" | {candidates} | {min(row['cpu_seconds']):.1f} | {row['bleu']:.2f} | {row['changed']:,} |"


@pytest.mark.parametrize(
    "name",
    [
        "tables-300.json",
        "tables-1000-a.json",
        "tables-1000-b.json",
        "batches.json",
        "newstest2014-20.json",
        "newstest2014.json",
    ],
)
def test_the_figures_on_the_page_are_those_that_were_measured(name):
    rows = measured(name)
    assert len(rows) > 1
    for row in rows:
        assert figures(row) in text_of("results/translation-speed.md")


def test_the_page_has_the_defaults():
    for name, default in (("best", shortlist.BEST), ("frequent", shortlist.FREQUENT), ("pairs", shortlist.PAIRS)):
        assert f"| `--{name}` | {default:,} | " in text_of("internals/engines.md")


# --- the table that comes with the package --------------------------------------------------------------------


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))
    return registry.find_model("en-de")


def test_the_shipped_table_is_small_and_fits_its_model(shipped):
    file = registry.shortlist_beside(shipped)
    assert file.stat().st_size < 2_000_000
    converted = Converted.of(shipped, "int8")
    table = read_shortlist(file, converted.tokenizer.model)
    made = {"pairs": shortlist.PAIRS, "best": shortlist.BEST, "frequent": shortlist.FREQUENT, "least": shortlist.LEAST}
    assert {name: table.made[name] for name in made} == made
    pieces = vocabulary(converted.tokenizer.model)
    assert len(table.candidates) == len(pieces)
    wanted = {"▁house": "▁Haus", "▁because": "▁weil", "▁Commission": "▁Kommission", "▁sie": "▁sie"}
    for source, target in wanted.items():
        assert pieces.index(target) in table.allowed([pieces.index(source)])


@pytest.mark.slow
def test_the_shipped_table_translates(shipped):
    (found,) = SentenceTranslator.load(shipped, "cpu", shortlist=True).translate(["The cat sat because it was sleepy."])
    assert (found.text, found.shortlist) == ("Die Katze saß, weil sie schläfrig war.", True)
