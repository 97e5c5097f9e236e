"""Alignments: both engines give the same attention, of the second to last decoder layer."""

import numpy as np
import pytest
import torch

from onehop.decoding.torch_engine import padded
from onehop.model.taps import Recorder, watch
from onehop.model.transformer import Tokens
from onehop.pipelines.alignment import Aligned, align, align_sentences
from onehop.pipelines.result import Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.storage.ctranslate2_format import alignment_layer
from onehop.text.tokenizer import BOS, PAD

PAIRS = [("the old house", "a new bird"), ("a tree", "the old old tree"), ("", "a"), ("bird", "")]


@pytest.fixture(scope="module")
def ids(model_file):
    tokenizer = SentenceTranslator.load(model_file, engine="torch").tokenizer
    return [list(map(tokenizer.encode, side)) for side in zip(*PAIRS, strict=True)]


def test_both_engines_give_the_same_attention(model_file, ids):
    both = [
        align(SentenceTranslator.load(model_file, engine=engine, compute="float32"), *ids)
        for engine in ("torch", "ctranslate2")
    ]
    for (source, target), ours, theirs in zip(zip(*ids, strict=True), *both, strict=True):
        assert ours.shape == theirs.shape == (len(target), len(source))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_alignment_is_the_head_mean_of_the_second_to_last_layer(model_file, ids):
    translator, recorder = SentenceTranslator.load(model_file, engine="torch"), Recorder()
    (source, *_), (target, *_) = ids
    tgt = torch.tensor([[BOS, *target]])
    watch(translator.model, recorder)(Tokens.padded(padded([source]), PAD), Tokens.padded(tgt, PAD))
    assert alignment_layer(translator.model.settings) == translator.model.settings.n_decoder_layers - 2
    weights = recorder["decoder.layers.0.cross_attention.weights"].value[0].mean(0)[: len(target), : len(source)]
    np.testing.assert_allclose(align(translator, [source], [target])[0], weights.detach().numpy(), atol=1e-6)


def test_translations_are_aligned_with_their_texts(model_file):
    translator = SentenceTranslator.load(model_file, engine="ctranslate2", compute="float32")
    texts = ["the old house", "", "a bird"]
    translations = translator.translate(texts)
    sentences = [Sentence(source=s, text=t.text, n_best=(t,)) for s, t in zip(texts, translations, strict=True)]
    matrices = [aligned.attention for aligned in align_sentences(translator, sentences)]
    encoded = [
        list(map(translator.tokenizer.encode, texts)),
        [translator.tokenizer.ids(t.tokens) for t in translations],
    ]
    for ours, expected in zip(matrices, align(translator, *encoded), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-6)
    assert [len(matrix) for matrix in matrices] == [len(t.tokens) for t in translations]


def test_details_pair_each_target_token_with_its_strongest_source_token(model_file):
    tokenizer = SentenceTranslator.load(model_file, engine="torch").tokenizer
    source = tokenizer.tokens(tokenizer.encode("a bird"))
    matrix = np.zeros((2, len(source)), dtype=np.float32)
    matrix[0, 1], matrix[1, 0] = 0.75, 0.123456
    translation = Translation("x y", ("x", "y"), 0.0, 0.0, finished=True, looped=False)
    sentence = Sentence(source="a bird", text="x y", n_best=(translation,))
    shown = Aligned(sentence, attention=matrix).details(tokenizer)
    assert shown["pairs"] == [[1, 0], [0, 1]]
    assert (shown["source_tokens"], shown["target_tokens"]) == (source, ["x", "y"])
    assert shown["attention"][1][0] == 0.1235
    assert Aligned(Sentence(source="", text=""), attention=matrix[:0, :0]).details(tokenizer)["pairs"] == []


def test_token_spans_match_the_text(model_file):
    tokenizer = SentenceTranslator.load(model_file, engine="torch").tokenizer
    text = "the öld house, 😀!"
    ids = tokenizer.encode(text)
    spans = tokenizer.spans(ids)
    assert "".join(text[begin:end] for begin, end in spans) == text
    assert tokenizer.ids(tokenizer.tokens(ids)) == ids
    assert tokenizer.spans([]) == []
