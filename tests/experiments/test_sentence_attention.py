"""The attention over one sentence, and the words of its tokens."""

from dataclasses import replace

from onehop.experiments.sentence_attention import attention_weights, sentence_attention, token_indices, words


def test_pieces_are_joined_to_words():
    tokens = ["▁The", "▁ani", "mal", "▁slept", ".", "</s>"]
    assert [(w.text, w.indices) for w in words(tokens)] == [
        ("The", (0,)),
        ("animal", (1, 2)),
        ("slept.</s>", (3, 4, 5)),
    ]
    assert token_indices("animal", tokens) == [1, 2]
    assert token_indices("dog", tokens) == []
    assert token_indices("it", ["▁it", "."]) == [0]


def test_attention_weights_include_eos_and_bos(tracer):
    weights = attention_weights(tracer.model, [5, 6], [7])
    assert {role: tuple(w.shape) for role, w in weights.items()} == {
        "encoder": (1, 2, 3, 3),
        "decoder": (2, 2, 2, 2),
        "cross": (2, 2, 2, 3),
    }


def test_no_eos_is_added_for_models_that_read_sources_without_it(tracer, monkeypatch):
    monkeypatch.setattr(tracer.model, "settings", replace(tracer.model.settings, source_end=False))
    attention, ids = sentence_attention(tracer, "the old house"), tracer.translator.tokenizer.encode("the old house")
    assert attention.weights["encoder"].shape[-1] == len(attention.source_tokens) == len(ids)
