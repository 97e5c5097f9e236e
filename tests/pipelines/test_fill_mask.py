"""Masked words: an encoder is trained on plain text and fills masks."""

import pytest
from command_line import onehop

from onehop.config import TokenizerSettings, load_settings, with_changes
from onehop.data.objectives import MASK
from onehop.data.prepare import prepare
from onehop.errors import SettingsError, TextError
from onehop.model.variants import model_for
from onehop.pipelines.embed import Embedder
from onehop.pipelines.fill_mask import Filler
from onehop.storage.run_folder import read_metrics
from onehop.text.tokenizer import Tokenizer
from onehop.training import trainer as trainer_module
from onehop.training.trainer import train

SMALL = [
    *("model.d_model=32", "model.d_ff=64", "model.n_heads=2", "model.n_encoder_layers=2", "model.max_length=40"),
    *("tokenizer.vocab_size=330", "data.longest=30", "data.valid_size=30", "data.duplicates=false"),
    *("train.steps=150", "train.batch_tokens=512", "train.warmup=20", "train.learning_rate=5e-3"),
    *("train.validate_every=50", "train.save_every=75", "train.report_every=10"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An encoder trained on lines in which any word determines the others."""
    folder = tmp_path_factory.mktemp("encoder")
    rows = ("one two three", "red green blue", "north east south")
    (folder / "text.txt").write_text("".join(f"{rows[i % 3]}\n" for i in range(300)))
    settings = with_changes(load_settings("encoder"), [*SMALL, 'data.train=["text.txt"]'])
    store = prepare(settings, folder / "store", root=folder, processes=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "measured_peak", lambda *_: 1e10)
        return train(settings, store, folder / "run", device="cpu")


def test_a_mask_is_filled_from_both_sides(trained):
    filler = Filler.load(trained, "cpu")
    (gap,) = filler.fill("one [MASK] three", 3)
    assert (gap[0].piece, gap[0].text) == ("▁two", "one two three")
    assert gap[0].probability > 0.5 > gap[1].probability
    (first,) = filler.fill("[MASK] green blue", 1)
    assert first[0].text == "red green blue"


def test_several_masks_are_filled_independently(trained):
    one, two = Filler.load(trained, "cpu").fill("[MASK] east [MASK]", 1)
    assert (one[0].text, two[0].text) == ("north east [MASK]", "[MASK] east south")


def test_a_mask_is_tokenized_like_a_word(trained):
    filler = Filler.load(trained, "cpu")
    whole = filler.tokenizer.encode("one two, three")
    masked = filler.encode("one [MASK], three")
    (position,) = masked.positions
    width = len(filler.tokenizer.encode("two"))
    assert masked.ids == [*whole[:position], MASK, *whole[position + width :]]
    assert filler.encode("[MASK]d un[MASK] \ue000").begins_word == [True, False]


def test_a_mask_at_a_words_start_gets_pieces_that_start_words(trained):
    filler = Filler.load(trained, "cpu")
    begins, inside = filler.fill("[MASK] three o[MASK] two", 400)
    assert all(found.piece.startswith("▁") for found in begins)
    assert not any(found.piece.startswith(("▁", "<")) for found in inside)  # no bytes and no special tokens either
    assert 0 < len(begins) < 400  # all that exist
    assert 0 < len(inside) < 400
    assert sum(found.probability for found in begins) == pytest.approx(1.0, abs=1e-4)
    assert inside[0].text == f"[MASK] three o{inside[0].piece} two"
    assert begins[0].text == f"{begins[0].piece[1:]} three o[MASK] two"


def test_text_around_a_mask_is_unchanged(trained):
    (one, _) = Filler.load(trained, "cpu").fill("Ünïcode €5, [MASK]; (see [MASK]).", 1)
    assert one[0].text == f"Ünïcode €5, {one[0].piece[1:]}; (see [MASK])."


def test_a_text_longer_than_the_model_is_refused(trained):
    with pytest.raises(SettingsError, match=r"longer than the 40 learned positions. Split it"):
        Filler.load(trained, "cpu").fill("one two three " * 30 + "[MASK]", 1)


def test_validation_loss_falls_and_counts_only_masked_tokens(trained):
    lines = read_metrics(trained.parent / "metrics.jsonl")
    found = [line["valid_perplexity"] for line in lines if "valid_perplexity" in line]
    assert found[-1] < 1.6 < found[0] * 2
    assert found[-1] < found[0]


def test_a_trained_encoder_gives_sentence_vectors(trained):
    vectors = Embedder.load(trained, "cpu").vectors(["one two three", "one two three", "north east south"])
    assert vectors[0] @ vectors[1] == pytest.approx(1.0, abs=1e-5)
    assert vectors[0] @ vectors[2] < 0.99


def test_a_text_without_a_mask_is_refused(trained):
    with pytest.raises(TextError) as error:
        Filler.load(trained, "cpu").fill("one two three", 1)
    assert str(error.value) == "There is no [MASK] in the text. Write [MASK] where a word is wanted."


def test_fill_on_the_command_line(trained):
    found = onehop("fill", "red [MASK] blue", "-m", trained, "-n", "1")
    share, text = found.stdout.strip().split("  ")
    assert text == "red green blue"
    assert float(share.rstrip("%")) > 50


def test_a_mask_is_found_if_the_vocabulary_has_private_use_characters(trained):
    learned = Tokenizer.learn(["one \ue000 two \ue001", "three \ue000 four"] * 50, TokenizerSettings(vocab_size=330))
    assert len(learned.encode("\ue000")) == 1
    filler = Filler(model_for(Filler.load(trained, "cpu").model.settings, learned.vocab_size).eval(), learned)
    (gap,) = filler.fill("one [MASK] \ue000 two", 2)
    assert len(gap) == 2
    assert filler.encode("one [MASK] \ue000 two").ids == [
        *learned.encode("one"),
        MASK,
        *learned.encode("\ue000"),
        *learned.encode("two"),
    ]
