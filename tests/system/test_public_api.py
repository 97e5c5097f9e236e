"""What `import onehop` gives: it is lazy, documented, and its examples are true."""

import doctest
import inspect
import subprocess
import sys

import pytest

import onehop
from onehop.storage.registry import installed

PUBLIC = [name for name in onehop.__all__ if name != "__version__"]


def test_these_names_are_public():
    expected = ["Transformer", "Translator", "explore", "load_settings", "trace", "train", "translate"]
    assert sorted(PUBLIC) == expected
    assert dir(onehop) == sorted(onehop.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'translator'"):
        _ = onehop.translator


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_are_true(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    public = {each: getattr(onehop, each) for each in PUBLIC}
    tests = doctest.DocTestFinder().find(public[name], name, module=False, globs=public)
    assert any(test.name == name and test.examples for test in tests)
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_signatures_are_explicit(name):
    kinds = {parameter.kind for parameter in inspect.signature(getattr(onehop, name)).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


@pytest.mark.skipif("de-en" not in installed(), reason="the model package onehop-de-en is not installed")
def test_german_becomes_english():
    result = onehop.translate("Guten Morgen!", to="en")
    assert (str(result), result.models) == ("Good morning!", ("de-en",))


ASKED = """
import sys
import onehop
assert not {"numpy", "torch", "ctranslate2", "typer"} & set(sys.modules), sys.modules.keys()
result = onehop.translate("Good morning!", to="de")
assert str(result) == "Guten Morgen!"
assert result.sentences[0].token_scores
assert "torch" not in sys.modules
"""


def test_importing_it_loads_nothing_and_translating_no_torch():
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
