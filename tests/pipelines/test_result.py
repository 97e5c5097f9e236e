"""Results and sentences without a model."""

import pickle
from dataclasses import replace

import pytest

from onehop.errors import OnehopError
from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import Translation


def sentence(text: str, score: float = -0.5, *, finished: bool = True, looped: bool = False) -> Sentence:
    tokens = tuple(f"▁{word}" for word in text.split())
    found = Translation(text, tokens, score, 2 * score, finished=finished, looped=looped)
    return Sentence(source=text.upper(), text=text, n_best=(found,))


def test_a_result_prints_its_text_and_sums_sentence_scores():
    result = Result(source="A B. C.", text="a b. c.", sentences=(sentence("a b."), sentence("c.", -1.0)))
    assert str(result) == f"{result}" == "a b. c."
    assert (result.score, result.scores) == (-1.5, (-0.5, -1.0))
    assert result.sentences[0].tokens == ("▁a", "▁b.")
    assert repr(result) == "Result('a b. c.', score=-1.50)"
    assert repr(result.sentences[0]) == "Sentence('A B.' -> 'a b.', score=-0.50)"
    assert pickle.loads(pickle.dumps(result)) == result


def test_the_repr_shortens_long_texts_and_shows_warnings():
    result = Result(source="", text="x" * 81, sentences=(sentence("x", finished=False),))
    expected = "['a translation reached the maximum length without ending']"
    assert repr(result) == f"Result('{'x' * 79}…', score=-0.50, warnings={expected})"
    looped = Result(source="", text="x", sentences=(sentence("x", finished=False, looped=True),))
    assert looped.warnings == ["a translation repeated itself over and over, and was stopped"]


def test_only_an_empty_translation_of_a_nonempty_source_is_reported():
    assert list(replace(sentence("a b."), text=" ").warnings()) == ["a translation is empty"]
    assert list(Sentence(source="", text="").warnings()) == []


def test_copied_sentences_have_no_score_and_need_no_model():
    copied = Sentence(source="42", text="42")
    assert (copied.score, copied.tokens, copied.token_scores, copied.alignment) == (0.0, (), (), None)


def test_a_sentence_without_its_model_cannot_be_scored():
    with pytest.raises(OnehopError, match=r"^This sentence does not know its model\. "):
        _ = sentence("a").token_scores
