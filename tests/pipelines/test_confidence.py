import pytest

from onehop.pipelines.confidence import DOUBTFUL, SURE, WEIGHTS, confidence, features
from onehop.pipelines.translator import Translator


def test_a_higher_log_probability_gives_a_higher_confidence():
    sure = confidence("en-de", -1.0, 12, finished=True)
    doubtful = confidence("en-de", -18.0, 12, finished=True)
    assert doubtful < DOUBTFUL < SURE < sure < 1


def test_unfinished_translations_have_confidence_zero_and_unknown_models_none():
    assert confidence("en-de", -1.0, 12, finished=False) == 0.0
    assert confidence("mine.safetensors", -1.0, 12, finished=True) is None
    assert confidence(None, -1.0, 12, finished=True) is None
    assert confidence("en-de", -1e9, 1, finished=True) == pytest.approx(0, abs=0.01)
    assert features(0.0, 0) == (0.0, 0.0)


@pytest.mark.parametrize("model", WEIGHTS)
def test_weights_equal_those_in_the_results_folder(model, pytestconfig):
    import json

    report = json.loads((pytestconfig.rootpath / "results" / "confidence" / f"{model}.json").read_text())
    assert list(WEIGHTS[model]) == report["weights"]


def test_sentences_and_results_have_a_confidence():
    result = Translator("en-de", engine="ctranslate2", threads=1).translate("Good morning! Glorp the snizzle wug flab.")
    easy, hard = result.sentences
    assert easy.confidence > SURE
    assert hard.confidence < easy.confidence
    assert result.confidence == hard.confidence == result.details()["confidence"]
    assert [s["confidence"] for s in result.details()["sentences"]] == [easy.confidence, hard.confidence]
    assert result.doubtful == [hard]
