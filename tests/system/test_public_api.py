"""The public API: it is lazy and documented, and its examples are correct."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import onehop
from onehop.storage.registry import installed

PUBLIC = [name for name in onehop.__all__ if name != "__version__"]


def test_public_names_are_listed():
    expected = ["Transformer", "Translator", "explore", "finetune", "load_settings", "trace", "train", "translate"]
    assert sorted(PUBLIC) == expected
    assert dir(onehop) == sorted(onehop.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'translator'"):
        _ = onehop.translator


def test_the_docs_run_the_example_of_explore():
    """The example is slow, so only test_docs.py runs it, as part of this page."""
    page = (Path(__file__).parents[2] / "docs/reference/python.md").read_text(encoding="utf-8")
    first, made, saved = (example.source for example in doctest.DocTestParser().get_examples(onehop.explore.__doc__))
    assert first == "from onehop import explore\n"
    assert made.removeprefix("page = ").rstrip() + saved.partition("#")[0].strip().removeprefix("page") in page


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "explore"])
def test_docstring_examples_are_correct(name, tmp_path, monkeypatch):
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
def test_translate_chooses_the_model_by_the_target_language():
    result = onehop.translate("Guten Morgen!", to="en")
    assert (str(result), result.models) == ("Good morning!", ("de-en",))


# In a separate process, because the tests' own type check would refuse these calls first.
WRONG_TYPES = """
from onehop import Translator, explore, trace, translate
from onehop.errors import OnehopError

def said(call, *args, **options):
    try:
        call(*args, **options)
    except OnehopError as e:
        print(e)

translator = Translator("en-de", threads=1)
for glossary in (["a"], {"Hello": 3}):
    said(translator.translate, "Hello.", glossary=glossary)
for keep in (None, [5]):
    said(translator.translate, "Hello.", keep=keep)
said(translator.translate, "Hello.", options={"beam": 2})
said(translate, "Hello.", to=5)
said(translate, b"Hello.")
said(Translator, threads="2")
said(trace, ["Hello."])
said(explore, None)
said(trace, "Hello.", edits="mask=off")
said(trace, "Hello.", beam=0)
"""
REFUSALS = """\
`glossary` maps no strings to strings. Give a dict of terms, or a TSV file.
`glossary` maps no strings to strings. Give a dict of terms, or a TSV file.
`keep` is no list of strings. Give a list of words.
`keep` is no list of strings. Give a list of words.
`options` is no SearchOptions. Give onehop.decoding.options.SearchOptions(…).
5 is no language. Give a code or a name, such as de or German.
A text is of the type bytes. Give a string, or a list of strings.
'2' threads cannot translate. Give 1 or more.
The text is of the type list. Give one sentence, a string.
The text is of the type NoneType. Give one sentence, a string.
`edits` is one string. Give a list of edits.
beam is 0. It must be at least 1: hypotheses followed at a time; 1: greedy.
"""


def test_wrong_types_are_refused_in_one_line():
    done = subprocess.run([sys.executable, "-c", WRONG_TYPES], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (REFUSALS, 0), done.stderr


ASKED = """
import sys
import onehop
assert not {"numpy", "torch", "ctranslate2", "typer"} & set(sys.modules), sys.modules.keys()
result = onehop.translate("Good morning!", to="de")
assert str(result) == "Guten Morgen!"
assert result.sentences[0].token_scores
assert "torch" not in sys.modules
"""


def test_importing_loads_nothing_and_translating_no_torch():
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
