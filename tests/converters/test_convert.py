"""Exports and imports compared with transformers, onnxruntime and CTranslate2."""

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import sentencepiece as spm
import torch
import transformers
from command_line import onehop
from sentence_pieces import learn_pieces
from stored_models import stored_model

from onehop.cli import convert as commands
from onehop.config import ModelSettings, TokenizerSettings
from onehop.converters import convert, ctranslate2, huggingface, parity
from onehop.converters.convert import export, import_folder
from onehop.converters.huggingface import HuggingFace
from onehop.converters.importing import import_marian
from onehop.converters.onnx import DecoderGraph, EncoderGraph, Onnx, OnnxStep, about
from onehop.converters.parity import SENTENCES, Reference, compare, read_sentences
from onehop.data import prepare as prepare_module
from onehop.decoding.options import SearchOptions
from onehop.decoding.search import search
from onehop.decoding.torch_engine import CachedStep, padded
from onehop.errors import ExportError, MissingPackageError, OnehopError
from onehop.model.transformer import Tokens, Transformer
from onehop.pipelines.load import model_of
from onehop.storage.model_io import read_model, write_model
from onehop.storage.run_folder import read_metrics
from onehop.text.tokenizer import EOS, PAD, Tokenizer
from onehop.training import trainer

TEXTS = (
    "the old house",
    "A new bird, “quoted”, in the tree – at 3:30 p.m.!",
    "birds  birds birds",
    "naïve 🍎",
    "x",
    "trees and houses",
)
WORDS = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
LARGEST = 1e-4


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Models with random weights seldom predict EOS, so outputs are limited to a few tokens."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (parity, huggingface, ctranslate2):
            patch.setattr(module, "MORE_THAN_SOURCE", 8)
        yield


def write_random(file: Path, seed: int = 396, **changes) -> Path:
    """Write a small model. The seeds are chosen so that outputs differ and some end with EOS."""
    tokenizer = Tokenizer.learn(WORDS, TokenizerSettings(vocab_size=300))
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 16, "d_ff": 24, "n_heads": 2, "max_length": 48}
    settings = ModelSettings(**{**sizes, **changes})
    torch.manual_seed(seed)
    model = Transformer(settings, tokenizer.vocab_size)
    with torch.no_grad():
        table = model.embedding.weight if model.output is None else model.output.weight
        randomise(model.named_parameters(), table, model.decoder.layers[-1].feed_add_norm.norm.weight, EOS)
        table[:EOS] *= 0.05  # special tokens, and below single bytes, become improbable
        table[EOS + 1 : 260] *= 0.05
    write_model(file, stored_model(model, tokenizer))
    return file


def randomise(parameters, table, last_gain, end: int) -> None:
    """Change weights from their initial zero or one, so that outputs do not repeat the input and some end."""
    for name, parameter in parameters:
        if "positions" not in name:
            parameter += 0.2 * torch.randn_like(parameter)
        if any(part in name for part in ("cross_attention.w_o", "w_2", "encoder_attn.out_proj", "fc2")):
            parameter *= 6
    last_gain.normal_()
    table[end] *= 3


def are_different(texts: list[str]) -> bool:
    return len(set(texts)) >= len(texts) - 2


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain.search.toml").write_text("alpha = 1.2\n")
    return write_random(folder / "plain.safetensors")


# --- Hugging Face ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def marian(plain, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("marian") / "deep" / "marian"
    export(plain, "huggingface", folder, TEXTS)
    return folder


def test_an_exported_marian_folder_translates_equally_and_has_a_parity_report(plain, marian):
    proof = json.loads((marian / "parity.json").read_text())
    assert (proof["equal"], proof["sentences"], proof["differences"]) == (len(TEXTS), len(TEXTS), [])
    assert proof["largest_logit_difference"] < LARGEST
    assert proof["model"] == read_model(plain).hash
    assert proof["median_ms"].keys() == {"onehop", "huggingface"}
    assert proof["versions"].keys() == {"onehop", "python", "torch", "transformers"}
    assert not list(marian.parent.glob(".*")), "a temporary folder was left"
    ours = Reference(read_model(plain))
    assert are_different([ours.translate(text) for text in TEXTS]), "too alike to prove anything"


def test_transformers_loads_an_exported_folder_without_missing_or_unexpected_keys(marian):
    found, info = transformers.MarianMTModel.from_pretrained(marian, output_loading_info=True)
    assert not any(info.values())
    assert found.generation_config.length_penalty == 1.2
    assert json.loads((marian / "generation_config.json").read_text())["decoder_start_token_id"] == 2


def test_activation_and_biases_are_exported_to_marian(tmp_path):
    file = write_random(tmp_path / "m", seed=192, activation="swish", attention_bias=True, output_bias=True)
    proof = export(f"{file}.safetensors", "huggingface", tmp_path / "marian", TEXTS)
    assert proof.equal == len(TEXTS)
    assert proof.largest_logit_difference < LARGEST


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"norm": "pre"}, "pre-norm (model.norm is pre)"),
        ({"positions": "learned"}, "learned positions"),
        ({"d_k": 4}, "heads of another width than d_model / n_heads"),
        ({"n_heads": 3, "d_k": 5, "d_v": 5}, "heads of another width than d_model / n_heads"),
        ({"tied": False}, "untied embeddings (model.tied is false)"),
    ],
)
def test_settings_that_marian_lacks_are_refused_before_anything_is_written(changes, reason, tmp_path):
    file = write_random(tmp_path / "m.safetensors", **changes)
    with pytest.raises(ExportError) as e:
        export(file, "huggingface", tmp_path / "out")
    assert str(e.value) == f"Hugging Face's Marian cannot express {reason}. Use --to onnx, which supports it."
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_an_exported_marian_folder_is_imported_bit_for_bit(plain, marian, tmp_path):
    proof = import_folder(marian, tmp_path / "back", TEXTS)
    assert proof.equal == len(TEXTS)
    assert json.loads((tmp_path / "back.parity.json").read_text())["equal"] == len(TEXTS)
    there, back = read_model(plain), read_model(tmp_path / "back.safetensors")
    assert back.settings.model == there.settings.model
    assert (back.tokenizer, back.source, back.target) == (there.tokenizer, "en", "de")
    assert back.tensors.keys() == there.tensors.keys()
    assert all(np.array_equal(back.tensors[name], there.tensors[name]) for name in there.tensors)
    assert back.provenance["imported_from"]["name"] == "marian"


# --- folders of other programs --------------------------------------------------------------------------------


def pieces_of(model: bytes) -> list[str]:
    pieces = spm.SentencePieceProcessor(model_proto=model)
    return [pieces.IdToPiece(i) for i in range(len(pieces)) if not pieces.IsControl(i) and not pieces.IsUnknown(i)]


GERMAN = ["das alte Haus", "ein neuer Baum", "der Vogel auf dem Baum", "die Häuser und Bäume sind größer"]
ENGLISH = [*WORDS, "birds trees houses quoted and at the same time"]


def write_foreign(folder: Path, source: bytes, target: bytes, *, seed: int, left_out: int = 0) -> Path:
    """Write a folder like OPUS-MT's: EOS first, padding last, which is also BOS and banned; swish, and biases."""
    names = sorted({*pieces_of(source)[left_out:], *pieces_of(target)}, key=lambda piece: piece[::-1])
    vocab = {piece: i for i, piece in enumerate(["</s>", "<unk>", *names, "<pad>"])}
    pad = len(vocab) - 1
    config = {
        "vocab_size": len(vocab),
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 128,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": pad,
        "eos_token_id": 0,
        "decoder_start_token_id": pad,
        "forced_eos_token_id": None,
    }
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(transformers.MarianConfig(**config))
    with torch.no_grad():
        last_gain = model.model.decoder.layers[-1].final_layer_norm.weight
        randomise(model.named_parameters(), model.model.shared.weight, last_gain, 0)
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, pad] = 30  # padding would always be predicted if it were not banned
    model.generation_config.bad_words_ids = [[pad]]
    model.generation_config.max_length = 128
    model.save_pretrained(folder)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "eng", "target_lang": "deu"}))
    return folder


@pytest.fixture(scope="module")
def two_languages(tmp_path_factory) -> Path:
    """A source.spm and a target.spm with different pieces, and a vocabulary without some of the source's."""
    source, target = learn_pieces(ENGLISH, 50), learn_pieces(GERMAN, 40)
    return write_foreign(tmp_path_factory.mktemp("foreign") / "two", source, target, seed=193, left_out=3)


def assert_imports(folder: Path, file: Path) -> None:
    proof = import_folder(folder, file, TEXTS)
    assert proof.differences == []
    assert proof.largest_logit_difference < LARGEST
    translator = Reference(read_model(file))
    assert are_different([translator.translate(text) for text in TEXTS]), "too alike to prove anything"


def test_an_imported_folder_with_two_tokenizers_translates_like_the_original(two_languages, tmp_path):
    assert_imports(two_languages, tmp_path / "m.safetensors")
    model = read_model(tmp_path / "m.safetensors")
    s = model.settings.model
    assert (s.activation, s.attention_bias, s.output_bias, s.max_length) == ("swish", True, True, 128)
    assert (model.source, model.target) == ("eng", "deu")


@pytest.mark.parametrize(("kind", "seed"), [("unigram", 141), ("bpe", 230)])
def test_an_imported_folder_with_a_shared_tokenizer_translates_like_the_original(kind, seed, tmp_path):
    shared = learn_pieces(ENGLISH + GERMAN, 60, kind)
    assert_imports(write_foreign(tmp_path / "one", shared, shared, seed=seed), tmp_path / "m.safetensors")


def test_an_imported_tokenizer_encodes_and_decodes_like_the_original(two_languages):
    imported = import_marian(two_languages)
    ours, theirs = Tokenizer(imported.stored.tokenizer), HuggingFace(two_languages).tokenizer
    known = {*pieces_of((two_languages / "source.spm").read_bytes())}
    compared = unknown = 0
    for text in (*ENGLISH, *GERMAN, *TEXTS, *SENTENCES, "a ä b"):
        if any(
            len(piece) > 1 and piece not in known and {*piece} & theirs.encoder.keys()
            for piece in theirs.tokenize(text)
        ):
            continue  # a run of unknown characters: see the next test
        ids = [imported.rows[i] for i in ours.encode(text)]
        assert [*ids, 0] == theirs(text)["input_ids"], text
        compared += 1
        unknown += theirs.unk_token_id in ids
    assert compared > 30
    assert unknown > 15
    our_id = {row: i for i, row in reversed(list(enumerate(imported.rows)))}
    for text in GERMAN:
        ids = theirs(text_target=text)["input_ids"]
        assert ours.decode([our_id[i] for i in ids]) == theirs.decode(ids, skip_special_tokens=True) == text


def test_runs_of_unknown_characters_are_tokenized_one_by_one(two_languages):
    """The original makes one unknown piece of such a run. This is the only difference."""
    imported = import_marian(two_languages)
    ours, theirs = Tokenizer(imported.stored.tokenizer), HuggingFace(two_languages).tokenizer
    assert [ours.tokens([i]) for i in ours.encode("öß")[-2:]] == [["ö"], ["ß"]]
    assert theirs("öß")["input_ids"][-2] == theirs.unk_token_id


def test_pieces_that_the_original_excludes_stay_excluded(two_languages):
    imported = import_marian(two_languages)
    bias = imported.stored.tensors["output_bias"]
    pieces = [piece for piece, _ in Tokenizer(imported.stored.tokenizer).vocabulary()]
    vocab = json.loads((two_languages / "vocab.json").read_text())
    silent = {pieces[i] for i in np.flatnonzero(bias < -1e8)}
    assert silent == {"<pad>", "<s>", *pieces_of((two_languages / "source.spm").read_bytes())[:3]} - vocab.keys() | {
        "<pad>"
    }


def test_float16_weights_and_stored_positions_are_imported(two_languages, tmp_path):
    folder = copied(two_languages, tmp_path)
    weights, model = exports_weights(folder), transformers.MarianMTModel.from_pretrained(folder)
    weights |= {f"model.{s}.embed_positions.weight": model.model.encoder.embed_positions.weight for s in ("encoder",)}
    save_weights(folder, {name: tensor.half() for name, tensor in weights.items()})
    found, full = (import_marian(f).stored.tensors["embedding.weight"] for f in (folder, two_languages))
    assert found.dtype == np.float32
    assert 0 < np.abs(found - full).max() < 1e-2


def test_optional_configuration_files_may_be_missing(two_languages, tmp_path):
    folder = copied(two_languages, tmp_path)
    for name in ("generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    stored = import_marian(folder).stored
    assert (stored.source, stored.target) == ("", "")
    assert stored.tensors["output_bias"][PAD] == 30, "nothing rules it out"


# --- imports that are refused ---------------------------------------------------------------------------------


def copied(folder: Path, to: Path) -> Path:
    (to / "copy").mkdir()
    for file in folder.iterdir():
        (to / "copy" / file.name).write_bytes(file.read_bytes())
    return to / "copy"


def exports_weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def save_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")


def change_json(folder: Path, name: str, **changes) -> None:
    found = {**json.loads((folder / name).read_text()), **changes}
    (folder / name).write_text(json.dumps({key: value for key, value in found.items() if value is not ...}))


def message(folder: Path) -> str:
    with pytest.raises(ExportError) as e:
        import_marian(folder)
    return str(e.value)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model_type": "bart"}, "holds a model of the type 'bart'. Give the Hugging Face folder of a Marian or BERT"),
        ({"model_type": ...}, "config.json names no model_type. Give the Hugging Face folder of a Marian or BERT"),
        ({"d_model": ...}, "config.json has no d_model."),
        ({"share_encoder_decoder_embeddings": False}, "separate vocabularies of the two languages"),
        ({"tie_word_embeddings": False}, "an output matrix apart from the embeddings"),
        ({"scale_embedding": False}, "embeddings that are not scaled by √d_model"),
        ({"decoder_attention_heads": 4}, "other heads in the decoder"),
        ({"decoder_ffn_dim": 25}, "another feed-forward width in the decoder"),
        ({"activation_function": "tanh"}, "the activation tanh"),
        ({"vocab_size": 7}, "does not name each of the 7 ids once"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "config.json is wrong: model.d_model 16"),
        (
            {"encoder_ffn_dim": 25, "decoder_ffn_dim": 25},
            "does not match config.json: see encoder.layers.0.feed_forward",
        ),
        ({"d_model": 18}, "has no embeddings that match config.json"),
        ({"encoder_layers": 3}, "has no tensor 'model.encoder.layers.2.self_attn.q_proj.weight'"),
    ],
)
def test_unsupported_configurations_are_refused(changes, what, two_languages, tmp_path):
    folder = copied(two_languages, tmp_path)
    change_json(folder, "config.json", **changes)
    assert what in message(folder)


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_in_pytorchs_older_format_give_the_same_model(zipped, two_languages, tmp_path):
    folder = copied(two_languages, tmp_path)
    weights = exports_weights(folder)
    weights["model.encoder.embed_tokens.weight"] = weights["model.shared.weight"]  # OPUS-MT's files name it twice
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (folder / "model.safetensors").unlink()
    found, expected = import_marian(folder).stored, import_marian(two_languages).stored
    assert all(np.array_equal(found.tensors[name], t) for name, t in expected.tensors.items())
    assert (
        found.provenance["imported_from"]["sha256"] == sha256((folder / "pytorch_model.bin").read_bytes()).hexdigest()
    )


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("was-run",)


def compressed(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    return out.getvalue()


def saved(content: object, **how) -> bytes:
    out = io.BytesIO()
    torch.save(content, out, **how)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            saved({"a": RunsCode()}),
            "or holds other objects than tensors, which could run code. No code was run.",
        ),
        (
            pickle.dumps(RunsCode()),
            "or holds other objects than tensors, which could run code. No code was run.",
        ),
        (saved({"a": torch.zeros(9)})[:300], "is cut off or damaged."),
        (b"", "is cut off or damaged."),
        (b"no pickle", "is damaged, or holds other objects than tensors"),
        (saved([torch.zeros(9)]), "is not a table of tensors."),
        (saved({"a": 1}), "is not a table of tensors."),
        (saved({"a": torch.zeros(1).expand(10**9)}), "is not a table of tensors."),
        (compressed(saved({"a": torch.zeros(10**6)})), "is compressed, but PyTorch's files are not."),
        (saved({"a": torch.zeros(2, 2).to_sparse()}), "is cut off or damaged."),
        (saved({"a": torch.zeros(2, 2)}), "has no embeddings that match config.json."),
    ],
)
def test_a_hostile_pickle_is_a_one_line_error_and_is_not_executed(data, what, two_languages, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = copied(two_languages, tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(data)
    found = message(folder)
    assert what in found
    assert "\n" not in found
    assert not Path("was-run").exists()


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("model.safetensors", b"\x08", "is cut off or damaged"),
        ("config.json", b"[]", "is not a JSON object"),
        ("vocab.json", b"{", "is not a JSON object"),
        ("source.spm", b"nothing", "source.spm is not a SentencePiece model"),
        ("source.spm", None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_damaged_folder_is_refused(name, content, what, two_languages, tmp_path):
    folder = copied(two_languages, tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    assert what in message(folder)


def test_a_vocabulary_that_cannot_be_joined_is_refused(two_languages, tmp_path):
    folder = copied(two_languages, tmp_path)
    vocab = json.loads((folder / "vocab.json").read_text())
    (folder / "source.spm").write_bytes(learn_pieces(ENGLISH, 50, "bpe"))
    assert message(folder).startswith("source.spm is not a unigram model and lacks pieces of the vocabulary")
    last = next(piece for piece, i in vocab.items() if i == 5)
    (folder / "vocab.json").write_text(json.dumps({(">>fr<<" if p == last else p): i for p, i in vocab.items()}))
    assert "several languages, chosen by a token such as >>fr<<." in message(folder)
    (folder / "vocab.json").write_text(json.dumps({("?" if p == "<unk>" else p): i for p, i in vocab.items()}))
    assert "has no token for unknown words" in message(folder)


def test_other_positions_and_banned_words_are_refused(two_languages, tmp_path):
    folder = copied(two_languages, tmp_path)
    weights = exports_weights(folder)
    save_weights(folder, weights | {"model.decoder.embed_positions.weight": torch.randn(128, 16)})
    assert message(folder).startswith("model.decoder.embed_positions.weight are not sinusoids.")
    save_weights(folder, weights)
    change_json(folder, "generation_config.json", bad_words_ids=[[3, 4]])
    assert "bans words of several tokens" in message(folder)


# --- ONNX -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "d_k": 3, "d_v": 5, "tied": False}])
def test_the_onnx_graphs_compute_the_models_logits(changes, tmp_path):
    stored = read_model(write_random(tmp_path / "m.safetensors", **changes))
    model = model_of(stored).eval()
    src, ids = padded([[5, 6, 7], [8]]), torch.randint(4, 300, (2, 4))
    s = stored.settings.model
    with torch.inference_mode():
        cross = EncoderGraph(model)(src)
        keys, values = torch.zeros(2, 2, s.n_heads, 0, s.key_width), torch.zeros(2, 2, s.n_heads, 0, s.value_width)
        for i in range(4):
            logits, keys, values = DecoderGraph(model)(ids[:, i : i + 1], src, keys, values, *cross)
            expected = model(Tokens.padded(src), Tokens.padded(ids[:, : i + 1]))[:, -1]
            torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    assert about(stored, model)["empty_cache"]["keys"] == [2, "batch", s.n_heads, 0, s.key_width]


# In a separate process, because the tests' shape checks do not accept the exporter's symbolic sizes.
EXPORT_TO_ONNX = "import sys; from pathlib import Path; from onehop.converters.convert import export; \
[export(m, 'onnx', Path(m).with_suffix('')) for m in sys.argv[1:]]"


@pytest.fixture(scope="module")
def graphs(tmp_path_factory) -> list[Path]:
    """ONNX graphs of the paper's model, and of one with all other options."""
    folder = tmp_path_factory.mktemp("onnx")
    everything = {"norm": "pre", "positions": "learned", "tied": False, "d_k": 3, "d_v": 5, "max_length": 128}
    everything |= {"activation": "gelu", "attention_bias": True, "output_bias": True}
    files = [
        write_random(folder / "paper.safetensors"),
        write_random(folder / "other.safetensors", seed=297, **everything),
    ]
    subprocess.run([sys.executable, "-W", "error", "-c", EXPORT_TO_ONNX, *map(str, files)], check=True)
    return files


@pytest.mark.slow
def test_exported_onnx_graphs_have_a_parity_report_without_differences(graphs):
    for file in graphs:
        folder = file.with_suffix("")
        proof = json.loads((folder / "parity.json").read_text())
        assert proof["equal"] == proof["sentences"] == len(SENTENCES) - proof["too_long"]
        assert proof["largest_logit_difference"] < LARGEST
        assert str(Path(convert.__file__).parent.parent).encode() not in (folder / "decoder.onnx").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 3])
def test_onnx_graphs_search_like_torch_for_any_batch_and_length(beam, graphs):
    options = SearchOptions(beam=beam)
    for file in graphs:
        stored = read_model(file)
        sources = [Tokenizer(stored.tokenizer).encode(text) for text in TEXTS]
        src, most = padded(sources), [len(ids) + 20 for ids in sources]
        with torch.inference_mode():
            ours = search(CachedStep(model_of(stored).eval(), src, max(most)), most, options)
        theirs = search(OnnxStep(Onnx(file.with_suffix("")), src.tolist()), most, options)
        assert [[h.ids for h in found] for found in ours] == [[h.ids for h in found] for found in theirs]
        assert len({found[0].ids for found in ours}) > 3, "too alike to prove anything"


# --- CTranslate2 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (18, {"norm": "pre"}),
        (192, {"activation": "swish", "attention_bias": True, "output_bias": True}),
        (192, {"activation": "gelu", "attention_bias": True, "tied": False, "output_bias": True}),
    ],
)
def test_an_exported_ctranslate2_folder_translates_equally(seed, changes, tmp_path):
    file = write_random(tmp_path / "m.safetensors", seed=seed, **changes)
    proof = export(file, "ctranslate2", tmp_path / "ct2", TEXTS)
    assert proof.differences == []
    assert proof.largest_logit_difference < LARGEST


def test_importing_a_ctranslate2_folder_is_refused(plain, tmp_path):
    export(plain, "ctranslate2", tmp_path / "ct2", TEXTS[:1])
    assert message(tmp_path / "ct2") == (
        f"{tmp_path / 'ct2'} holds a model converted for CTranslate2."
        " Give the Hugging Face folder of a Marian or BERT model: only these can be imported."
    )


def test_int8_rows_are_exported_to_ctranslate2_unchanged(plain, tmp_path):
    write_model(tmp_path / "int8", read_model(plain), store="int8")
    short = export(tmp_path / "int8", "ctranslate2", tmp_path / "ct2", TEXTS)
    full = export(plain, "ctranslate2", tmp_path / "full", TEXTS)
    assert "ctranslate2 computes in int8, onehop in float32" in short.lines()
    assert full.computes == "float32"
    assert len(full.lines()) == 2
    small, full = ((tmp_path / name / "model.bin").read_bytes() for name in ("ct2", "full"))
    assert len(small) < len(full)
    assert read_model(tmp_path / "int8").tensors["embedding.weight"].values.tobytes() in small


def test_settings_that_ctranslate2_lacks_are_refused(tmp_path):
    file = write_random(tmp_path / "m.safetensors", d_k=3)
    with pytest.raises(ExportError, match="CTranslate2 cannot express the model: d_k 3 and d_v 8 are not d_model"):
        export(file, "ctranslate2", tmp_path / "ct2")


# --- parity reports and the command line ----------------------------------------------------------------------


class AlmostEqual:
    """Translates like the reference except for one text, with slightly different logits."""

    libraries = ("torch",)
    positions = 60
    computes = "float32"

    def __init__(self, reference: Reference) -> None:
        self.reference = reference

    def translate(self, text: str) -> str:
        return "something else" if text == "x" else self.reference.translate(text)

    def logits(self, src, tgt):
        return self.reference.logits(src, tgt) + np.float32(0.25)


def test_the_parity_report_lists_differences(plain):
    stored = read_model(plain)
    almost_equal = AlmostEqual(Reference(stored))
    proof = compare(stored, "almost equal", almost_equal, [*TEXTS, "a" * 70])
    assert (proof.equal, proof.sentences) == (len(TEXTS) - 1, len(TEXTS))
    assert [d["source"] for d in proof.differences] == ["x"]
    assert proof.largest_logit_difference == pytest.approx(0.25, abs=1e-5)
    lines = proof.lines()
    assert lines[0] == (
        f"{len(TEXTS) - 1} of {len(TEXTS)} translations equal (greedy) (1 more too long to compare);"
        " largest logit difference 2.5e-01"
    )
    assert lines[2].startswith("differs: x → ")
    assert lines[2].endswith(" | something else")
    with pytest.raises(OnehopError, match="No sentence is short enough to compare"):
        compare(stored, "almost equal", almost_equal, ["a" * 70])


def test_sentences_are_read_from_a_file(tmp_path):
    (tmp_path / "lines").write_text("one\n\n two \n")
    assert read_sentences(tmp_path / "lines") == ["one", "two"]
    for content, what in ((b"\n", "has no sentence"), (b"\xff", "is not UTF-8"), (None, "cannot be read")):
        (tmp_path / "lines").unlink()
        if content is not None:
            (tmp_path / "lines").write_bytes(content)
        with pytest.raises(OnehopError, match=what):
            read_sentences(tmp_path / "lines")


def test_a_missing_library_is_named_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingPackageError) as e:
        export("no model at all", "onnx", tmp_path / "out")
    assert str(e.value) == 'This needs onnxscript. Install it with: pip install "onehop[export]"'
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(MissingPackageError, match=r'^This needs protobuf\. .*"onehop\[export\]"$'):
        import_folder(tmp_path, tmp_path / "out")


def test_an_import_without_transformers_reports_that_nothing_was_compared(marian, monkeypatch, tmp_path):
    monkeypatch.setattr(convert, "is_installed", lambda name: name != "transformers")
    done = onehop("import", marian, "-o", tmp_path / "back.safetensors")
    assert done.exit_code == 0
    assert 'not compared with the original: pip install "onehop[export]"' in done.output
    assert [p.name for p in tmp_path.iterdir()] == ["back.safetensors"]


def test_the_command_line_offers_every_target():
    target = get_type_hints(commands.export)["target"]
    assert set(get_args(target)) == set(convert.TARGETS)


def test_an_unknown_target_and_a_folder_in_use_are_refused(plain, tmp_path):
    with pytest.raises(ExportError, match=r"There is no export to 'huggingfce'. Did you mean huggingface\?"):
        export(plain, "huggingfce", tmp_path / "out")
    (tmp_path / "out").write_text("something")
    with pytest.raises(ExportError, match="out already exists"):
        export(plain, "huggingface", tmp_path / "out")
    with pytest.raises(ExportError, match="cannot be written: Not a directory"):
        export(plain, "huggingface", tmp_path / "out" / "below")
    assert (tmp_path / "out").read_text() == "something"


def test_the_command_exports_and_imports(plain, tmp_path):
    (tmp_path / "lines").write_text("the old house\nx\n")
    with_lines = ["--sentences", str(tmp_path / "lines")]
    there = onehop("export", plain, "--to", "huggingface", "-o", tmp_path / "hf", *with_lines)
    assert there.exit_code == 0, there.output
    assert "2 of 2 translations equal (greedy); largest logit difference" in there.output
    back = onehop("import", tmp_path / "hf", "-o", tmp_path / "back", *with_lines)
    assert back.exit_code == 0, back.output
    assert "2 of 2 translations equal (greedy)" in back.output
    again = onehop("export", plain, "--to", "onnx", "-o", tmp_path / "hf")
    assert again.exit_code == 2
    assert "already exists" in again.output


def test_an_imported_model_can_be_exported_again(two_languages, tmp_path):
    import_folder(two_languages, tmp_path / "m", TEXTS[:1])
    proof = export(tmp_path / "m", "huggingface", tmp_path / "again", TEXTS)
    assert proof.largest_logit_difference < LARGEST
    assert proof.equal == len(TEXTS)


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_an_imported_opus_mt_model_can_be_fine_tuned(weights, two_languages, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "measured_peak", lambda *_: 1e10)
    monkeypatch.setattr(prepare_module, "available_cores", lambda: 1)
    folder = copied(two_languages, tmp_path)
    if weights == "pytorch_model.bin":
        torch.save(exports_weights(folder), folder / weights)
        (folder / "model.safetensors").unlink()
    import_folder(folder, tmp_path / "m.safetensors", TEXTS[:1])
    (tmp_path / "mine.eng").write_text("".join(f"{' and '.join([WORDS[i % 4]] * (i // 4 + 1))}\n" for i in range(40)))
    (tmp_path / "mine.deu").write_text("".join(f"{' und '.join([GERMAN[i % 4]] * (i // 4 + 1))}\n" for i in range(40)))
    files = [str(tmp_path / name) for name in ("mine.eng", "mine.deu")]
    changes = ["train.steps=6", "data.ratio=100", "data.language=false"]
    words = ["finetune", str(tmp_path / "m.safetensors"), *files, "-o", str(tmp_path / "run"), "--bleu-on", "0"]
    made = onehop(*words, "--device", "cpu", *(word for c in changes for word in ("--set", c)))
    assert made.exit_code == 0, made.output
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    validations = [line["valid_nll"] for line in lines if "valid_nll" in line]
    assert validations[-1] < validations[0] < 20
    assert max(line["loss"] for line in lines if "loss" in line) < 20  # excluded pieces do not contribute
    done = onehop("translate", "-m", tmp_path / "run", "--", WORDS[0])
    assert (done.exit_code, bool(done.stdout.strip())) == (0, True), done.output
