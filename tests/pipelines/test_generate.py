"""A decoder is prepared, trained and resumed on plain text, and continues prompts."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import onehop

from onehop.config import ModelSettings, Settings, load_settings, with_changes
from onehop.data.prepare import prepare
from onehop.data.store import Store
from onehop.errors import ModelFileError, SettingsError, StoreError
from onehop.model.transformer import Tokens
from onehop.model.variants import DecoderOnly, EncoderOnly
from onehop.pipelines.embed import Embedder
from onehop.pipelines.generate import Continuation, TextStream, Writer, options_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model, write_model
from onehop.text.tokenizer import BOS, Classes, Tokenizer
from onehop.training import trainer as trainer_module
from onehop.training.trainer import train

SMALL = [
    *("model.d_model=32", "model.d_ff=64", "model.n_heads=2", "model.n_decoder_layers=2", "model.max_length=40"),
    *("tokenizer.vocab_size=330", "data.longest=30", "data.valid_size=20", "data.duplicates=false"),
    *("train.steps=60", "train.batch_tokens=512", "train.warmup=10", "train.learning_rate=5e-3"),
    *("train.validate_every=30", "train.save_every=30", "train.report_every=10"),
]


def write_text(file: Path) -> None:
    """Lines in which the first word determines the others."""
    chains = ("one two three", "red green blue", "north east south")  # too short to count as held out
    draw = random.Random(1)
    file.write_text("".join(f"{draw.choice(chains)}\n" for _ in range(300)), encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Settings, store and model file of a decoder that has learned three sequences."""
    folder = tmp_path_factory.mktemp("decoder")
    write_text(folder / "text.txt")
    settings = with_changes(load_settings("decoder"), [*SMALL, 'data.train=["text.txt"]'])
    store = prepare(settings, folder / "store", root=folder, processes=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "measured_peak", lambda *_: 1e10)
        model = train(settings, store, folder / "run", device="cpu")
    return settings, store, model


def test_a_decoder_continues_a_training_text(trained):
    writer = Writer.load(trained[2], "cpu")
    assert writer.write("one two", options_of(temperature=0, top_k=0, top_p=1.0, seed=1), 20) == ["one two three"]
    assert writer.write("north", options_of(temperature=0.2, top_k=3, top_p=0.9, seed=1), 20) == ["north east south"]


def test_samples_depend_only_on_the_seed(trained):
    writer = Writer.load(trained[2], "cpu")

    def first_words(seed: int) -> list[str]:
        options = options_of(temperature=1.0, top_k=0, top_p=1.0, seed=seed, count=12)
        return [(text.split() or [""])[0] for text in writer.write("", options, 20)]

    assert first_words(1) == first_words(1)
    assert first_words(1) != first_words(2)
    assert {"one", "red", "north"} <= set(first_words(1) + first_words(2))


def test_top_k_of_one_equals_greedy_search(trained):
    writer = Writer.load(trained[2], "cpu")
    one = writer.write("red", options_of(temperature=2.0, top_k=1, top_p=1.0, seed=5), 20)
    assert one == writer.write("red", options_of(temperature=0, top_k=0, top_p=1.0, seed=5), 20)


def test_new_text_is_streamed(trained):
    writer, told = Writer.load(trained[2], "cpu"), []
    texts = writer.write("one", options_of(temperature=0, top_k=0, top_p=1.0, seed=1), 20, told.append)
    assert "".join(told) == texts[0]
    assert told == ["one", " two", " three"]


def test_bytes_are_streamed_as_complete_characters():
    tokenizer = Tokenizer.learn(["plain words"] * 20, load_settings("tiny").tokenizer)
    told: list[str] = []
    ids = tokenizer.encode("a € b")
    stream = TextStream(tokenizer, [], told.append)
    for i in ids:
        stream.add(i)
    stream.send(tokenizer.decode(ids))
    assert "".join(told) == "a € b"
    assert "€" in told
    assert not any("\ufffd" in piece for piece in told)


def test_cached_steps_equal_the_full_forward_pass(trained):
    writer = Writer.load(trained[2], "cpu")
    model, prompt = writer.model, writer.tokenizer.encode("one two")
    step = Continuation(model, prompt, 5, lambda token: None)
    with torch.inference_mode():
        step(torch.tensor([BOS]), None)
        token = writer.tokenizer.encode("three")[0]
        found = step(torch.tensor([token]), None)
        whole = Tokens.padded(torch.tensor([[BOS, *prompt, token]]))
        expected = model(whole, whole)[:, -1].log_softmax(-1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_prompt_that_fills_the_model_is_refused(trained):
    writer = Writer.load(trained[2], "cpu")
    told: list[str] = []
    with pytest.raises(SettingsError) as error:
        writer.write("one " * 60, options_of(temperature=0, top_k=0, top_p=1.0, seed=1), 5, told.append)
    assert told == []
    assert "tokens leaves no room in the 40 of the model. Shorten the prompt." in str(error.value)


def test_a_decoders_training_resumes_bit_for_bit(trained, tmp_path, monkeypatch):
    settings, store, _ = trained
    monkeypatch.setattr(trainer_module, "measured_peak", lambda *_: 1e10)
    half = with_changes(settings, ["train.decay=sqrt", "train.steps=30"])
    whole = with_changes(settings, ["train.decay=sqrt"])
    train(half, store, tmp_path / "run", device="cpu")
    again = train(whole, store, tmp_path / "run", device="cpu")
    once = train(whole, store, tmp_path / "once", device="cpu")
    ours, theirs = read_model(again).weights(), read_model(once).weights()
    assert all((ours[name] == theirs[name]).all() for name in theirs)


# --- plain text -----------------------------------------------------------------------------------------------


def test_a_store_of_plain_text_has_empty_sources(trained):
    store = trained[1]
    assert store.holds == "plain text"
    assert store.pairs("train").src_lengths.sum() == 0
    tokenizer, first = Tokenizer(store.tokenizer), store.pairs("train").tgt(0).tolist()
    assert tokenizer.decode(first) in ("one two three", "red green blue", "north east south")
    assert Store.open(store.path).valid_text("tgt")[0].split()[0] in ("one", "red", "north")


def test_paragraphs_end_at_empty_lines_and_long_ones_are_cut(tmp_path):
    lines = [*["a b c d", "e f"], "", *["word " * 50, "last"], " ", "x y z"] * 20
    (tmp_path / "book.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "valid.txt").write_text("something else\n", encoding="utf-8")
    changes = [*SMALL, 'data.train=["book.txt"]', 'data.valid=["valid.txt"]', "data.plain=paragraphs"]
    store = prepare(with_changes(load_settings("decoder"), changes), tmp_path / "store", root=tmp_path, processes=1)
    tokenizer, pairs = Tokenizer(store.tokenizer), store.pairs("train")
    texts = {tokenizer.decode(pairs.tgt(i).tolist()) for i in range(len(pairs))}
    assert "a b c d e f" in texts
    assert "x y z" in texts
    assert int(pairs.tgt_lengths.max()) <= 30
    long = [text for text in texts if text.startswith("word word")]
    assert any(text.endswith("last") for text in long) or "last" in texts
    assert sum(dropped.count for dropped in store.report.dropped.values()) == 0


def test_empty_texts_and_texts_of_the_test_file_are_dropped(tmp_path):
    (tmp_path / "text.txt").write_text("one two three four five six\n\n" + "other words stand here too\n" * 30)
    (tmp_path / "test.txt").write_text("one two three four five six\n")
    (tmp_path / "valid.txt").write_text("something else\n\n")
    changes = [*SMALL, 'data.train=["text.txt"]', 'data.test=["test.txt"]', 'data.valid=["valid.txt"]']
    store = prepare(with_changes(load_settings("decoder"), changes), tmp_path / "store", root=tmp_path, processes=1)
    counts = {reason: dropped.count for reason, dropped in store.report.dropped.items() if dropped.count}
    assert counts == {"empty": 1, "test": 1}
    assert (store.report.train, store.report.valid) == (30, 1)


# --- errors ---------------------------------------------------------------------------------------------------


def test_each_model_kind_requires_its_own_data(trained, digits, tmp_path):
    settings, store, _ = trained
    with pytest.raises(StoreError) as error:
        train(settings, digits[1], tmp_path / "run", device="cpu")
    assert str(error.value) == (
        f"The store {digits[1].path} holds parallel text, and this model is trained on plain text. "
        "Give another store, or settings with no model.kind."
    )
    with pytest.raises(StoreError) as error:
        train(digits[0], store, tmp_path / "run", device="cpu")
    assert str(error.value) == (
        f"The store {store.path} holds plain text, and this model is trained on parallel text. "
        "Give another store, or settings with model.kind=decoder or model.kind=encoder."
    )


def test_a_decoder_cannot_translate_and_a_translator_cannot_generate(trained, model_file):
    with pytest.raises(ModelFileError) as error:
        SentenceTranslator.load(trained[2], "cpu")
    assert str(error.value) == (
        f"{trained[2]} is a decoder, not a translator. Use onehop generate, or give another model."
    )
    with pytest.raises(ModelFileError) as error:
        Writer.load(model_file, "cpu")
    assert str(error.value) == (
        f"{model_file} is a translator, not a decoder. Use onehop translate, or give another model."
    )


def test_model_files_with_inconsistent_parts_are_refused(trained, tmp_path):
    stored = read_model(trained[2])
    lacking = {name: tensor for name, tensor in stored.tensors.items() if "layers.1" not in name}
    with pytest.raises(ModelFileError, match=r"is inconsistent: the tensor .*layers\.1\..* is missing"):
        write_model(tmp_path / "lacking", replace(stored, tensors=lacking))
    model = ModelSettings(kind="encoder", n_encoder_layers=1, d_model=8, d_ff=8, n_heads=2)
    tensors = {name: tensor.numpy() for name, tensor in EncoderOnly(model, 3).state_dict().items()}
    names = Classes(["cat", "dog"]).model
    wordless = replace(stored, settings=Settings(model=model), tokenizer=names, tensors=tensors)
    file = write_model(tmp_path / "wordless", wordless)
    with pytest.raises(ModelFileError) as error:
        Embedder.load(file, "cpu")
    assert str(error.value) == f"{file} has no pieces to read text with. Make it again."


# --- the command line -----------------------------------------------------------------------------------------


def test_generate_and_perplexity_on_the_command_line(trained, tmp_path):
    model = str(trained[2])
    told = onehop("generate", "one two", "-m", model, "--temperature", "0", "--device", "cpu")
    assert (told.exit_code, told.stdout) == (0, "one two three\n")
    several = onehop("generate", "red", "-m", model, "-n", "2", "--temperature", "0.1", "--device", "cpu")
    assert several.stdout == "red green blue\n" * 2
    (tmp_path / "held.txt").write_text("north east south\n\none two three\n")
    found = onehop("evaluate", "-m", model, "--text", str(tmp_path / "held.txt"), "--json")
    figures = json.loads(found.stdout)
    assert (figures["texts"], figures["words"], figures["bytes"]) == (2, 6, 29)
    assert 1.0 < figures["perplexity"] < 3.0


def test_errors_name_the_command_line_option(trained):
    found = onehop("generate", "-m", str(trained[2]), "--top-k", "-1")
    assert found.stderr.startswith("onehop: --top-k is -1. It must be at least 0: ")
    assert found.exit_code == 2


def test_evaluate_refuses_missing_inputs(tmp_path):
    said = "Evaluation needs --src and --ref. Give --src and --ref, or --text for "
    assert said in onehop("evaluate").stderr
    (tmp_path / "held.txt").write_text("words\n")
    found = onehop("evaluate", "--text", str(tmp_path / "held.txt"))
    assert found.exit_code == 2
    assert "Perplexity needs a model. Give --model with --text." in found.stderr


def test_a_writer_can_be_built_from_a_model_in_memory(trained):
    settings, store, _ = trained
    tokenizer = Tokenizer(store.tokenizer)
    writer = Writer(DecoderOnly(settings.model, tokenizer.vocab_size), tokenizer)
    options = options_of(temperature=1.0, top_k=0, top_p=1.0, seed=1)
    assert writer.write("one", options, 3)[0].startswith("one")
