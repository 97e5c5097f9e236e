"""Sentences are translated as by an uncached greedy search, whatever the batch; options, positions and devices."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from onehop.config import Settings
from onehop.decoding import engine, torch_engine
from onehop.decoding.engine import batches_by_length
from onehop.decoding.options import LOOP_SPAN, SearchOptions
from onehop.errors import ModelFileError, OnehopError, SettingsError
from onehop.model.device import pick_device
from onehop.model.transformer import Tokens, Transformer
from onehop.pipelines import sentence_translator as module
from onehop.pipelines.load import model_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model, write_model
from onehop.text.tokenizer import BOS, EOS

TEXTS = ["the old house", "a bird", "", "Grüße 😀", "the new tree and the old bird and a house", "x"]
# Models with random weights repeat themselves, so loops are allowed here.
GREEDY = SearchOptions(beam=1, loop_repeats=0)


@pytest.fixture
def translator(model_file):
    return SentenceTranslator.load(model_file, "cpu", engine="torch")


def uncached_greedy_search(translator: SentenceTranslator, text: str) -> tuple[str, float]:
    """Greedy search without cache, batch and padding."""
    src = Tokens.padded(torch.tensor([[*translator.tokenizer.encode(text), EOS]]))
    out, log_prob = [BOS], 0.0
    while len(out) < src.ids.shape[1] + engine.MORE_THAN_SOURCE:
        with torch.no_grad():
            last = translator.model(src, Tokens.padded(torch.tensor([out])))[0, -1].log_softmax(-1)
        out.append(int(last.argmax()))
        log_prob += float(last.max())
        if out[-1] == EOS:
            break
    return translator.tokenizer.decode(out), log_prob


def test_greedy_translations_equal_an_uncached_greedy_search(translator, monkeypatch):
    monkeypatch.setattr(engine, "MORE_THAN_SOURCE", 12)
    found = translator.translate(TEXTS, GREEDY)
    for text, translation in zip(TEXTS, found, strict=True):
        expected, log_prob = uncached_greedy_search(translator, text) if text else ("", 0.0)
        assert translation.text == expected
        assert translation.log_prob == pytest.approx(log_prob, abs=1e-3)
    assert len({t.text for t in found}) == len(TEXTS)  # otherwise a wrong order could go unnoticed


@pytest.mark.parametrize("options", [GREEDY, SearchOptions(beam=3, n_best=2)])
@pytest.mark.parametrize("tokens", [1, 30, 10_000])
def test_a_translation_does_not_depend_on_its_batch(translator, monkeypatch, options, tokens):
    monkeypatch.setattr(engine, "MORE_THAN_SOURCE", 10)
    alone = [translator.n_best([text], options)[0] for text in TEXTS]
    monkeypatch.setattr(torch_engine, "BATCH_TOKENS", tokens)
    for one, many in zip(alone, translator.n_best(TEXTS, options), strict=True):
        assert [t.text for t in many] == [t.text for t in one]
        assert [t.score for t in many] == pytest.approx([t.score for t in one], abs=1e-4)


def test_batches_contain_every_text_once_longest_first():
    sources = [[5] * n for n in (3, 6, 4, 1, 20, 6)]
    batches = list(batches_by_length(sources, 12))
    assert batches == [[4], [1, 5], [2, 0, 3]]
    assert all(len(b) * max(len(sources[i]) for i in b) <= 12 or len(b) == 1 for b in batches)


def test_short_and_long_sources_are_in_separate_batches():
    sources = [[5] * n for n in (3, 6, 4, 5, 20)]
    assert list(batches_by_length(sources, 1000, short=5)) == [[4, 1, 3], [2, 0]]
    assert list(batches_by_length(sources, 1000)) == [[4, 1, 3, 2, 0]]


@pytest.mark.parametrize(("workers", "sizes"), [(1, [6]), (2, [3, 3]), (4, [2, 2, 2]), (9, [1] * 6)])
def test_every_worker_gets_a_batch(workers, sizes):
    assert [len(b) for b in batches_by_length([[5]] * 6, 1000, workers)] == sizes


def test_a_stream_is_translated_in_windows_and_in_order(translator, monkeypatch):
    texts = TEXTS * 3
    whole = translator.translate(texts, GREEDY)
    monkeypatch.setattr(module, "WINDOW", 4)
    taken = []

    def source():
        for text in texts:
            taken.append(text)
            yield text

    stream = translator.stream(source(), GREEDY)
    first = next(stream)
    assert len(taken) == 4
    assert [t.text for t in (first, *stream)] == [t.text for t in whole]


def test_sampling_depends_on_the_position_of_a_text_not_on_its_window(translator, monkeypatch):
    options = SearchOptions(sample=True, loop_repeats=0)
    whole = translator.translate(["the old house"] * 6, options)
    assert len({t.text for t in whole}) == 6
    monkeypatch.setattr(module, "WINDOW", 2)
    assert [t.text for t in translator.translate(["the old house"] * 6, options)] == [t.text for t in whole]


@pytest.mark.parametrize("empty", ["", "  \t ", "\u2581"])
def test_an_empty_text_stays_empty(translator, empty):
    (found,) = translator.translate([empty])
    assert (found.text, found.tokens, found.finished) == ("", (), True)


def test_a_repetitive_source_may_have_a_repetitive_translation(translator):
    """Random weights repeat one token until the loop detector stops them."""
    options, text = SearchOptions(beam=1), "tree " * 9
    (strict,) = translator.reference.translate([translator.tokenizer.encode(text)], options, [0])
    assert len(set(strict[0].ids)) == 1
    assert len(strict[0].ids) == LOOP_SPAN
    (alone,), found = translator.translate([text], options), translator.translate(["the old house", text], options)
    assert len(alone.tokens) == 18
    assert found[1] == alone
    assert found[0] == translator.translate(["the old house"], options)[0]


@pytest.mark.parametrize("verb", ["translate", "stream", "n_best"])
def test_a_single_string_is_refused(translator, verb):
    with pytest.raises(SettingsError, match=r"^One string is given .* Give a list of sentences\.$"):
        list(getattr(translator, verb)("Hello."))


def test_an_empty_list_gives_no_translations(translator):
    assert translator.translate([]) == []


def test_n_best_translations_differ_and_are_sorted_by_score(translator):
    options = SearchOptions(beam=4, n_best=4, loop_repeats=0)
    best = translator.n_best(["the old house"], options)[0]
    assert len(best) == 4
    assert [t.score for t in best] == sorted((t.score for t in best), reverse=True)
    assert len({t.tokens for t in best}) == 4
    assert translator.translate(["the old house"], options) == best[:1]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize(
    ("configured", "requested", "used"), [(None, None, 0.6), (2, None, 2), (2, 0.0, 0.0), (2, 0.6, 0.6)]
)
def test_the_models_length_penalty_is_the_default(model_file, tmp_path, engine, configured, requested, used):
    file = tmp_path / "model.safetensors"
    file.write_bytes(model_file.read_bytes())
    if configured is not None:
        (tmp_path / "model.search.toml").write_text(f"alpha = {configured}\n", encoding="utf-8")
    translator = SentenceTranslator.load(file, "cpu", engine=engine)
    for options in [SearchOptions(alpha=requested), *[None] * (requested is None)]:
        (found,) = translator.translate(["the old house"], options)
        length = len(found.tokens) + found.finished
        assert found.score == pytest.approx(found.log_prob / length**used)


def test_a_translation_has_tokens_and_says_if_it_ended_or_looped(translator):
    (found,) = translator.translate(["the old house"], GREEDY)
    assert translator.tokenizer.decode(translator.tokenizer.encode(found.text)) == found.text
    assert len(found.tokens) > 1
    assert not found.finished
    assert not found.looped
    (stopped,) = translator.translate(["the old house"], SearchOptions(beam=1))
    assert stopped.looped
    assert len(stopped.tokens) < len(found.tokens)


def test_languages_are_read_from_the_model_file(translator):
    assert (translator.source, translator.target) == ("en", "de")


def test_translating_switches_dropout_off(model_file):
    stored = read_model(model_file)
    dropping = replace(stored.settings.model, dropout=0.5)
    model = model_of(replace(stored, settings=Settings(model=dropping))).train()
    tokenizer = SentenceTranslator.load(model_file, "cpu").tokenizer
    found = SentenceTranslator.of_model(model, tokenizer, "en", "de").translate(TEXTS, GREEDY)
    assert found == SentenceTranslator.load(model_file, "cpu", engine="torch").translate(TEXTS, GREEDY)


# --- positions ------------------------------------------------------------------------------------------------


@pytest.fixture
def learned(model_file, tmp_path):
    """A translator with a table of 24 positions."""
    stored = read_model(model_file)
    settings = replace(stored.settings.model, positions="learned", max_length=24)
    torch.manual_seed(1)
    weights = Transformer(settings, len(stored.tensors["embedding.weight"])).state_dict()
    tensors = {name: tensor.numpy() for name, tensor in weights.items()}
    write_model(tmp_path / "learned", replace(stored, settings=Settings(model=settings), tensors=tensors))
    return SentenceTranslator.load(tmp_path / "learned", "cpu", engine="torch")


def test_learned_positions_limit_the_output_length(learned):
    text = "x" * 22  # 24 tokens with the word mark and EOS
    assert len(learned.tokenizer.encode(text)) == 23
    found = learned.translate([text, "the"], GREEDY)
    assert [len(t.tokens) for t in found] == [24, 24]
    (alone,) = learned.translate(["the"], GREEDY)
    assert alone.text == found[1].text


def test_a_sentence_longer_than_learned_positions_is_refused(learned):
    message = "A sentence of 25 tokens is longer than the 24 learned positions. Split it, or train with a larger"
    with pytest.raises(SettingsError, match=message):
        learned.translate(["x" * 23])


def test_sinusoidal_positions_have_no_limit(translator):
    long = "x" * (translator.model.settings.max_length + 40)
    (found,) = translator.translate([long], GREEDY)
    assert len(found.tokens) == len(translator.tokenizer.encode(long)) + engine.MORE_THAN_SOURCE


def test_a_model_can_be_trained_after_translating_a_long_sentence(translator):
    """Validation translates with the model that is trained, so no tensor of inference mode may stay in it."""
    translator.translate(["x" * (translator.model.settings.max_length + 10)], GREEDY)
    ids = Tokens.padded(torch.tensor([[5, 6, EOS]]))
    translator.model.train()(ids, ids).sum().backward()
    assert not translator.model.source_input.positions.is_inference()


# --- device ---------------------------------------------------------------------------------------------------


def test_without_a_gpu_the_device_is_the_cpu(model_file, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert pick_device(None) == torch.device("cpu")
    assert pick_device("cpu") == torch.device("cpu")
    assert next(SentenceTranslator.load(model_file).model.parameters()).device.type == "cpu"
    with pytest.raises(
        SettingsError, match=r"There is no device cuda:0: torch sees no GPU here\. Choose another, or cpu\."
    ):
        SentenceTranslator.load(model_file, "cuda")


def test_with_gpus_the_device_is_that_of_the_local_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert pick_device(None) == pick_device("cuda") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device(None) == torch.device("cuda:1")
    with pytest.raises(SettingsError, match=r"There is no device cuda:2: torch sees 2 GPUs here\."):
        pick_device("cuda:2")


@pytest.mark.parametrize("name", ["tpu", "meta", "cuda:x", "", "cuda:-1", "gpu 0"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(OnehopError, match=r"There is no device .*\. Choose cpu, cuda or cuda:N\."):
        pick_device(name)


def test_a_model_is_loaded_by_name(model_file, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path))
    (tmp_path / "mine.safetensors").write_bytes(model_file.read_bytes())
    by_name, by_path = (SentenceTranslator.load(which, "cpu", engine="torch") for which in ("mine", model_file))
    assert by_name.translate(["the house"])[0].text == by_path.translate(["the house"])[0].text
    with pytest.raises(ModelFileError, match=r"There is no model 'mien'\. Did you mean mine\?"):
        SentenceTranslator.load("mien")


def test_several_threads_get_one_torch_engine(translator):
    made, both = [], threading.Barrier(2)

    def make():
        made.append(translator.reference)
        time.sleep(0.05)  # long enough for the other thread to ask, too
        return made[-1]

    lazy = SentenceTranslator(translator.tokenizer, "en", "de", reference=make)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: (both.wait(30), lazy.reference)[1], range(2)))
    assert found == [translator.reference] * 2
    assert len(made) == 1
