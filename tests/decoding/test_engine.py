"""Both engines give the same translations, whatever the batch; which engine is used; the cache of conversions."""

import os
import random
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from long_tests import LONG, LONG_ONLY, long_only
from stored_models import stored_model

from onehop.config import ModelSettings, TokenizerSettings, with_changes
from onehop.data.prepare import prepare
from onehop.decoding import ctranslate2_engine
from onehop.decoding import engine as engine_module
from onehop.decoding.ctranslate2_engine import QUEUED_PER_WORKER, SHORT, Converted, Ct2Engine, cores, end_of_loop
from onehop.decoding.engine import CTRANSLATE2_LACKS, Engine, lacking
from onehop.decoding.options import SearchOptions
from onehop.decoding.request import ends_in_loop
from onehop.errors import SettingsError
from onehop.experiments.reverse import digit_strings, in_words, reverse_settings, write_pairs
from onehop.model.transformer import Transformer
from onehop.pipelines import sentence_translator as module
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.storage import cache
from onehop.storage.ctranslate2_format import CONVERTER
from onehop.storage.model_io import read_model, write_model
from onehop.storage.registry import installed
from onehop.text.tokenizer import Tokenizer
from onehop.training.trainer import train

GREEDY = SearchOptions(beam=1, loop_repeats=0)
BEAM = SearchOptions(beam=4, loop_repeats=0)
DOCS = Path(__file__).parents[2] / "docs"


def random_sentences(count: int) -> list[str]:
    """Sentences of one to fourteen random words."""
    draw = random.Random(3)
    words = [a + b for a in ("ba", "ki", "to", "ru", "me", "la", "so") for b in ("n", "r", "st", "", "l")]
    return [" ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(count)]


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    """A function that writes a model with random weights. It seldom predicts EOS."""
    tokenizer = Tokenizer.learn(random_sentences(200), TokenizerSettings(vocab_size=400))

    def make(**changes: object) -> Path:
        shape = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 4}
        settings = ModelSettings(**{**shape, "max_length": 128, **changes})
        torch.manual_seed(1)
        stored = stored_model(Transformer(settings, tokenizer.vocab_size), tokenizer)
        return write_model(tmp_path_factory.mktemp("random") / "model", stored)

    return make


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model trained for a short time on the demo's task: it predicts EOS well and digits with little certainty."""
    folder = tmp_path_factory.mktemp("trained")
    write_pairs(folder / "digits.tsv", in_words(digit_strings(1500)))
    shape = ["d_model=32", "d_ff=64", "n_heads=2", "n_encoder_layers=1", "n_decoder_layers=1", "max_length=64"]
    run = ["steps=250", "batch_tokens=512", "warmup=50", "learning_rate=5e-3", "decay=sqrt", "average=1", "keep=1"]
    run += [f"{what}_every=250" for what in ("save", "validate", "report")]
    changes = [*(f"model.{x}" for x in shape), *(f"train.{x}" for x in run)]
    settings = with_changes(reverse_settings(), [*changes, "data.valid_size=40", "tokenizer.vocab_size=340"])
    store = prepare(settings, folder / "store", root=folder, processes=1)
    model = train(settings, store, folder / "run", device="cpu")
    assert model is not None
    return model


FIXED_SET = in_words(digit_strings(1700)[1500:])


def both_engines(path: Path) -> tuple[SentenceTranslator, SentenceTranslator]:
    return SentenceTranslator.load(path, engine="torch"), SentenceTranslator.load(
        path, engine="ctranslate2", compute="float32"
    )


def assert_agree(one: list[list[Translation]], other: list[list[Translation]]) -> None:
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a, b, strict=True):
            assert (x.tokens, x.text, x.finished, x.looped) == (y.tokens, y.text, y.finished, y.looped)
            assert y.score == pytest.approx(x.score, abs=1e-3)
            assert y.log_prob == pytest.approx(x.log_prob, abs=1e-3)


# --- the engines agree ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        GREEDY,
        SearchOptions(beam=1),
        replace(GREEDY, penalty="paper"),
        BEAM,
        replace(BEAM, alpha=0.0),
        replace(BEAM, alpha=1.5, beam=3),
        replace(BEAM, n_best=4),
        replace(BEAM, n_best=2, alpha=0.0),
    ],
)
def test_engines_agree_on_every_sentence_of_the_trained_task(trained, options):
    plain, fast = both_engines(trained)
    found = plain.n_best(FIXED_SET, options)
    assert_agree(found, fast.n_best(FIXED_SET, options))
    assert len({best[0].text for best in found}) > 150
    assert sum(best[0].finished for best in found) > 150


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre"}, {"tied": False}, {"positions": "learned"}, {"norm": "pre", "tied": False}]
)
def test_engines_agree_for_every_model_option(random_model, monkeypatch, changes):
    monkeypatch.setattr(engine_module, "MORE_THAN_SOURCE", 8)
    plain, fast = both_engines(random_model(**changes))
    texts = ["", *random_sentences(20)]
    for options in (GREEDY, BEAM):
        found = plain.n_best(texts, options)
        assert_agree(found, fast.n_best(texts, options))
        # Each sentence stops at its own maximum length, though CTranslate2 takes one for a whole call.
        sizes = [len(ids) for ids in plain.tokenizer.encode_batch(texts)]
        stopped = [(len(best[0].tokens), n + 8) for best, n in zip(found, sizes, strict=True) if not best[0].finished]
        assert len(set(stopped)) > 4
        assert all(length == limit for length, limit in stopped)


def test_int8_changes_few_translations(trained):
    plain = SentenceTranslator.load(trained, engine="torch").translate(FIXED_SET, GREEDY)
    quick = SentenceTranslator.load(trained, engine="ctranslate2").translate(FIXED_SET, GREEDY)
    assert {t.compute for t in quick} == {"int8"}
    assert sum(a.text == b.text for a, b in zip(plain, quick, strict=True)) >= 140


def test_both_engines_stop_the_same_loops(random_model):
    plain, fast = both_engines(random_model(norm="pre"))
    texts, options = random_sentences(12), SearchOptions(beam=1)
    found = fast.n_best(texts, options)
    assert sum(best[0].looped for best in found) > 6
    assert_agree(plain.n_best(texts, options), found)


def test_looping_hypotheses_rank_behind_the_others(trained):
    quick = SentenceTranslator.load(trained, engine="ctranslate2", compute="float32")
    texts = ["three " * n for n in (3, 6, 9, 12)] + FIXED_SET
    found = quick.n_best(texts, SearchOptions(beam=4, n_best=4, loop_repeats=2))
    mixed = [best for best in found if 0 < sum(t.looped for t in best) < 4]
    assert mixed
    for best in mixed:
        assert [t.looped for t in best] == sorted(t.looped for t in best)


def test_end_of_loop_is_where_the_last_allowed_repeat_ends():
    assert end_of_loop([7, 8, 9] + [5] * 30, 4) == 15
    assert end_of_loop([5, 6] * 6 + [7], 4) == 12
    assert end_of_loop([5] * 11, 4) is None
    assert end_of_loop([5] * 50, 0) is None
    assert end_of_loop([], 4) is None


def test_end_of_loop_agrees_with_the_searchs_loop_detector():
    draw = random.Random(2)
    ends = set()
    for _ in range(400):
        period = draw.choices(range(5), k=draw.randint(1, 8))
        ids = draw.choices(range(5), k=draw.randint(0, 6)) + period * draw.randint(1, 6) + [9] + period * 5
        seen = (n for n in range(1, len(ids) + 1) if ends_in_loop(np.array([ids[:n]]), 3)[0])
        ends.add(first := next(seen, None))
        assert end_of_loop(ids, 3) == first
    assert None in ends
    assert len(ends) > 10


# --- the shipped model on real sentences ----------------------------------------------------------------------

REAL = (Path(__file__).parents[1] / "data" / "tatoeba-1000.en").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def shipped():
    if "en-de" not in installed():
        pytest.skip("the model en-de is not in this checkout")
    return installed()["en-de"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [SearchOptions(beam=1), SearchOptions()], ids=["greedy", "beam"])
@pytest.mark.long
def test_engines_agree_on_real_sentences(shipped, options):
    plain, fast = both_engines(shipped)
    texts = REAL[:: 5 if LONG else 40]
    found = plain.n_best(texts, options)
    assert_agree(found, fast.n_best(texts, options))
    assert len({best[0].text for best in found}) == len(texts)


@long_only
@pytest.mark.parametrize("options", [SearchOptions(beam=1), SearchOptions()], ids=["greedy", "beam"])
def test_engines_agree_on_a_thousand_real_sentences(shipped, options):
    found, other = (translator.translate(REAL, options) for translator in both_engines(shipped))
    differ = sum(a.tokens != b.tokens for a, b in zip(found, other, strict=True))
    apart = max(abs(a.score - b.score) for a, b in zip(found, other, strict=True) if a.tokens == b.tokens)
    print(f"{differ} of {len(REAL)} differ; the scores of the others by {apart:.1e} at most")
    assert differ == 0
    assert apart < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "count"),
    [
        ("ctranslate2", 20),
        ("torch", 8),
        pytest.param("ctranslate2", 1000, marks=LONG_ONLY),
        pytest.param("torch", 1000, marks=LONG_ONLY),
    ],
)
def test_real_sentences_do_not_depend_on_their_batch(shipped, engine, count):
    translator = SentenceTranslator.load(shipped, engine=engine, compute="float32", threads=1)
    texts = REAL[:: len(REAL) // count]
    alone = {text: translator.translate([text])[0].tokens for text in texts}
    shuffled = random.Random(5).sample(texts, len(texts))
    # Fewer than 64 sentences are one batch in either order.
    for order, size in ((texts, 7), (shuffled, 64), *[(texts, 64)] * (count > 64)):
        for begin in range(0, len(order), size):
            batch = order[begin : begin + size]
            assert [t.tokens for t in translator.translate(batch)] == [alone[text] for text in batch]


@pytest.mark.slow
@pytest.mark.long
def test_in_int8_few_real_sentences_depend_on_their_batch(shipped):
    """None did on the processors that were tried. Others may sum products in another order."""
    translator = SentenceTranslator.load(shipped, engine="ctranslate2", compute="int8", threads=1)
    texts = REAL[:: 5 if LONG else 25]
    assert {len(ids) < SHORT for ids in translator.tokenizer.encode_batch(texts)} == {True, False}
    alone = [translator.translate([text])[0].tokens for text in texts]
    together = [t.tokens for t in translator.translate(texts)]
    assert sum(a != b for a, b in zip(alone, together, strict=True)) <= len(texts) // 40


# --- independence of the batch --------------------------------------------------------------------------------


ENGINES = [
    pytest.param("ctranslate2", 200, id="ctranslate2"),
    pytest.param("torch", 30, id="torch"),
    pytest.param("torch", 200, id="torch-all", marks=LONG_ONLY),
]


@pytest.mark.parametrize(("engine", "count"), ENGINES)
@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
@pytest.mark.parametrize("which", ["random", "trained"])
def test_a_translation_does_not_depend_on_its_batch(random_model, trained, monkeypatch, engine, count, options, which):
    monkeypatch.setattr(engine_module, "MORE_THAN_SOURCE", 5)
    path, texts = (trained, FIXED_SET) if which == "trained" else (random_model(tied=False), random_sentences(200))
    texts = texts[:count]
    translator = SentenceTranslator.load(path, engine=engine, compute="float32", threads=1)
    alone = {text: translator.translate([text], options)[0].tokens for text in texts}
    assert len(set(alone.values())) > count / 2
    shuffled = random.Random(5).sample(texts, len(texts))
    for order, size in ((texts, 7), (texts, 64), (texts, 200), (shuffled, 64), (shuffled, 200)):
        for begin in range(0, len(order), size):
            batch = order[begin : begin + size]
            assert [t.tokens for t in translator.translate(batch, options)] == [alone[text] for text in batch]


def test_short_and_long_sentences_are_not_batched_together(trained, monkeypatch):
    translator = SentenceTranslator.load(trained, engine="ctranslate2", threads=1)
    begin, seen = translator.fast.queue, []

    def watched(sources, limit, options):
        seen.append(sorted(map(len, sources)))
        return begin(sources, limit, options)

    monkeypatch.setattr(translator.fast, "queue", watched)
    translator.translate(["three " * n for n in (2, 30, SHORT, 4, SHORT - 1)], GREEDY)
    assert seen == [[SHORT, 30], [2, 4, SHORT - 1]]


def test_few_batches_are_queued_at_a_time_so_that_ctrl_c_need_not_wait_long(trained, monkeypatch):
    engine = SentenceTranslator.load(trained, engine="ctranslate2", threads=1).fast
    queue, waiting, seen = engine.queue, [], []

    def queued(sources, limit, options):
        waiting.extend(sources)
        seen.append(len(waiting))
        return queue(sources, limit, options)

    monkeypatch.setattr(engine, "queue", queued)
    batches = [[i] for i in range(20)]
    for _ in engine.search(batches, [[5, 6]] * 20, [9] * 20, GREEDY):
        waiting.pop()
    assert seen == [1] + [QUEUED_PER_WORKER] * 19


def test_several_workers_keep_the_order_of_sentences(trained, monkeypatch):
    monkeypatch.setattr(ctranslate2_engine, "BATCH_TOKENS", 80)  # 40 for a narrow model
    one, three = (SentenceTranslator.load(trained, engine="ctranslate2", threads=n) for n in (1, 3))
    assert [t.text for t in three.translate(FIXED_SET, BEAM)] == [t.text for t in one.translate(FIXED_SET, BEAM)]


@pytest.mark.parametrize(("d_model", "tokens"), [(384, 512), (512, 1024), (1024, 1024)])
def test_a_narrow_model_gets_smaller_batches(trained, d_model, tokens):
    converted = Converted.of(trained, "int8")
    wider = replace(converted, metadata={**converted.metadata, "d_model": d_model})
    assert Ct2Engine(wider, "int8", 1).batch_tokens == tokens


# --- scores of given translations -----------------------------------------------------------------------------


def test_engines_agree_on_the_scores_of_given_translations(trained):
    plain, fast = both_engines(trained)
    sources = plain.tokenizer.encode_batch(FIXED_SET)
    targets = [*sources[1:], []]  # wrong translations and the empty one
    one, other = plain.score(sources, targets), fast.score(sources, targets)
    assert [len(scores) for scores in one] == [len(ids) + 1 for ids in targets]
    for a, b in zip(one, other, strict=True):
        assert b == pytest.approx(a, abs=1e-2)


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_the_score_of_a_found_translation_is_its_log_probability(trained, engine):
    translator = SentenceTranslator.load(trained, engine=engine, compute="float32")
    found = translator.translate(FIXED_SET[:20], BEAM)
    targets = [translator.tokenizer.ids(t.tokens) for t in found]
    scored = translator.score(translator.tokenizer.encode_batch(FIXED_SET[:20]), targets)
    assert all(t.finished for t in found)
    assert [sum(scores) for scores in scored] == pytest.approx([t.log_prob for t in found], abs=1e-3)


def test_targets_too_long_for_ctranslate2_are_scored_by_torch(model_file):
    both_engines, torch_alone = SentenceTranslator.load(model_file), SentenceTranslator.load(model_file, engine="torch")
    alone = SentenceTranslator.load(model_file, engine="ctranslate2")
    both_engines.fast.positions = alone.fast.positions = 60
    ids = both_engines.tokenizer.encode("the old house")
    assert both_engines.score([ids, ids], [ids * 5, ids])[0] == torch_alone.score([ids], [ids * 5])[0]
    with pytest.raises(SettingsError, match=r"CTranslate2 alone\. "):
        alone.score([ids], [ids * 5])


# --- the choice of the engine ---------------------------------------------------------------------------------


LACKING = {
    "penalty": SearchOptions(penalty="paper"),
    "min_length": SearchOptions(min_length=3),
    "patience": SearchOptions(patience=2.0),
    "sample": SearchOptions(sample=True, top_k=5),
}


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(module, "has_gpu", lambda: False)


@pytest.mark.parametrize("name", CTRANSLATE2_LACKS)
def test_options_that_ctranslate2_lacks_run_on_torch(model_file, no_gpu, name):
    options = LACKING[name]
    assert lacking(options) == [name]
    translator = SentenceTranslator.load(model_file)
    assert translator.translate(["the old house"])[0].engine == "ctranslate2"
    found = translator.n_best(["the old house", ""], options)
    assert (found[0][0].engine, found[0][0].compute) == ("torch", "float32")
    assert found == SentenceTranslator.load(model_file, engine="torch").n_best(["the old house", ""], options)
    with pytest.raises(SettingsError, match=rf"CTranslate2 lacks search\.{name} = .*\. Use the engine auto or torch\."):
        SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house"], options)


@pytest.mark.parametrize("options", [SearchOptions(), GREEDY, BEAM, replace(BEAM, alpha=0.0, penalty="paper")])
def test_both_engines_support_the_default_options(options):
    assert lacking(options) == []


def test_the_docs_table_names_the_options_that_ctranslate2_lacks():
    text = (DOCS / "internals" / "decoding.md").read_text(encoding="utf-8")
    rows = {
        row[0]: row[1]
        for row in re.findall(r"^\| `(\w+)` \| \S+ \| (\w+)", text.split("## Options")[1], flags=re.MULTILINE)
    }
    assert rows.keys() == {f.name for f in fields(SearchOptions)}
    belongs_to_sampling = {"temperature", "top_k", "top_p", "seed"}
    assert {name for name, has in rows.items() if has != "yes"} == {*CTRANSLATE2_LACKS, *belongs_to_sampling}


def test_the_engine_depends_on_gpu_packages_and_number_format(model_file, monkeypatch):
    def engine(**request: object) -> str:
        found = SentenceTranslator.load(model_file, **request).translate(["the old house"])[0]
        return f"{found.engine} {found.compute}"

    monkeypatch.setattr(module, "has_gpu", lambda: False)
    assert engine() == engine(device="cpu") == "ctranslate2 int8"
    assert engine(compute="float32") == "ctranslate2 float32"
    assert engine(engine="torch") == "torch float32"
    assert engine(compute="bfloat16") == "torch bfloat16"
    assert engine(compute="float16", engine="torch") == "torch float16"
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    assert engine() == "torch float32"
    assert engine(device="cpu") == "ctranslate2 int8"
    monkeypatch.setattr(module, "is_installed", lambda name: name != "ctranslate2")
    assert engine(device="cpu") == "torch float32"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"engine": "jax"}, "There is no engine 'jax'. Choose auto, torch or ctranslate2."),
        ({"compute": "int4"}, "There is no compute type 'int4'. Choose int8, float32, bfloat16 or float16."),
        ({"threads": 0}, "0 threads cannot translate. Give 1 or more."),
        (
            {"engine": "torch", "compute": "int8"},
            "The engine torch does not compute in int8. Use the engine ctranslate2.",
        ),
        (
            {"engine": "ctranslate2", "compute": "bfloat16"},
            "CTranslate2 does not compute in bfloat16 here. Use the engine torch.",
        ),
        (
            {"engine": "ctranslate2", "device": "cuda"},
            "CTranslate2 runs on the CPU here, not on cuda. Use the engine torch.",
        ),
    ],
)
def test_unavailable_engines_and_formats_are_refused(request_, message):
    asked = {"device": None, "engine": "auto", "compute": None, "threads": None, **request_}
    with pytest.raises(SettingsError, match=re.escape(message)):
        module.check_engine_options(**asked)


def test_requesting_a_missing_ctranslate2_is_refused(model_file, monkeypatch):
    monkeypatch.setattr(module, "is_installed", lambda name: name != "ctranslate2")
    with pytest.raises(SettingsError, match=r"CTranslate2 is not installed\. Run: pip install ctranslate2\."):
        SentenceTranslator.load(model_file, engine="ctranslate2")


def test_a_model_that_ctranslate2_cannot_express_runs_on_torch(random_model, no_gpu):
    path = random_model(d_k=4)
    assert SentenceTranslator.load(path).translate(["ban kir"])[0].engine == "torch"
    message = r"CTranslate2 has no such model: d_k 4 and d_v 8 are not d_model / n_heads\. Use the engine torch\."
    with pytest.raises(SettingsError, match=message):
        SentenceTranslator.load(path, engine="ctranslate2")


def test_only_sentences_too_long_for_ctranslate2_go_to_torch(model_file, no_gpu, monkeypatch):
    translator = SentenceTranslator.load(model_file)
    monkeypatch.setattr(translator.fast, "positions", 80)
    found = translator.translate(["x" * 40, "the old house"], GREEDY)
    assert [t.engine for t in found] == ["torch", "ctranslate2"]
    assert found[:1] == SentenceTranslator.load(model_file, engine="torch").translate(["x" * 40], GREEDY)
    alone = SentenceTranslator.load(model_file, engine="ctranslate2")
    monkeypatch.setattr(alone.fast, "positions", 80)
    message = r"A sentence of 41 tokens is too long for CTranslate2\. Split it, or use the engine auto or torch\."
    with pytest.raises(SettingsError, match=message):
        alone.translate(["x" * 40])


def test_both_engines_refuse_sentences_beyond_learned_positions(random_model):
    path = random_model(positions="learned", max_length=24)
    message = "is longer than the 24 learned positions. Split it, or train with a larger"
    for translator in both_engines(path):
        with pytest.raises(SettingsError, match=message):
            translator.translate(["q" * 40])


def test_a_translator_for_ctranslate2_alone_has_no_torch_model(model_file):
    message = r"This translator was loaded for CTranslate2 alone\. Load it with the engine torch\."
    with pytest.raises(SettingsError, match=message):
        SentenceTranslator.load(model_file, engine="ctranslate2").model  # noqa: B018
    for translator in (SentenceTranslator.load(model_file, "cpu"), SentenceTranslator.load(model_file, engine="torch")):
        assert isinstance(translator.model, Transformer)
        assert isinstance(translator.reference, Engine)


def test_threads_default_to_one_per_core(model_file, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores() == 3
    for nothing in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", nothing)
        assert cores() == len(os.sched_getaffinity(0))
    translator = SentenceTranslator.load(model_file, engine="ctranslate2", threads=2)
    assert translator.fast.workers == translator.fast.translator.num_translators == 2
    before = torch.get_num_threads()
    try:
        SentenceTranslator.load(model_file, engine="torch", threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


# --- without torch, and the cache -----------------------------------------------------------------------------

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # an import of it fails
from onehop.decoding.options import SearchOptions
from onehop.pipelines.sentence_translator import SentenceTranslator
translator = SentenceTranslator.load(sys.argv[1])
for found in translator.translate(["the old house", "", "a bird"], SearchOptions(beam=2, n_best=2)):
    print(found.engine, found.score, found.text)
"""


def test_the_fast_engine_needs_no_torch(model_file, no_gpu):
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, model_file], capture_output=True, text=True)
    assert done.stderr == ""
    options = SearchOptions(beam=2, n_best=2)
    found = SentenceTranslator.load(model_file).translate(["the old house", "", "a bird"], options)
    assert done.stdout == "".join(f"{t.engine} {t.score} {t.text}\n" for t in found)
    assert "ctranslate2" in done.stdout


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEHOP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ctranslate2"


def test_a_model_file_is_converted_once(model_file, empty_cache, monkeypatch):
    first = SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house"])
    (entry,) = empty_cache.iterdir()
    assert entry.name == f"{read_model(model_file).hash[:32]}-int8-{CONVERTER}"
    monkeypatch.delattr("onehop.storage.model_io.read_model")
    again = SentenceTranslator.load(model_file, engine="ctranslate2")
    assert again.translate(["the old house"]) == first
    assert (again.source, again.target) == ("en", "de")


def test_a_damaged_conversion_is_replaced(model_file, empty_cache):
    first = SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house"])
    (entry,) = empty_cache.iterdir()
    whole = (entry / "model.bin").read_bytes()
    (entry / "model.bin").write_bytes(whole[:-100] + bytes(100))
    assert SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house"]) == first
    assert (entry / "model.bin").read_bytes() == whole


def test_each_model_and_number_format_has_its_own_cache_entry(model_file, random_model, empty_cache):
    for path, compute in ((model_file, "int8"), (model_file, "float32"), (random_model(), "int8")):
        Converted.of(path, compute)
    assert len(list(empty_cache.iterdir())) == 3


def test_without_a_writable_cache_the_conversion_stays_in_memory(model_file, empty_cache, monkeypatch):
    expected = SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house"])

    def full(name: str, files: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "put", full)
    monkeypatch.setattr(cache, "find", lambda name: None)
    assert Converted.of(model_file, "int8").folder is None
    assert SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house"]) == expected
