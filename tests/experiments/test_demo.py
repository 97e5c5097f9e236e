"""`onehop demo`: its sentences, the pronoun's attention in a trace, and the printed verdict."""

import re
import subprocess
import sys

import numpy as np
import pytest
from command_line import onehop

from onehop.experiments.demo import BAR, EXAMPLES, PronounAttention, lines, pronoun_attention, words_of
from onehop.interpret.trace_file import Named, Trace

SOURCE = ["▁The", "▁cat", "▁sat", "▁because", "▁it", "▁was", "▁sleep", "y", ".", "</s>"]
WRITTEN = ["▁Die", "▁Katze", "▁sa", "ß", ",", "▁weil", "▁sie", "▁müde", "▁war", ".", "</s>"]
KATZE = "Die Katze saß, weil sie müde war."


@pytest.fixture
def trace():
    """Two layers of two heads; while "sie" is written, layer 2 looks at "it" and at both pieces of "sleepy"."""
    weights = np.zeros((2, 2, len(WRITTEN), len(SOURCE)), np.float32)
    weights[..., 0] = 1.0
    weights[1, :, 6] = 0.0
    weights[1, 0, 6, [4, 6, 7]] = 0.6, 0.3, 0.1
    weights[1, 1, 6, [4, 6, 7]] = 0.2, 0.5, 0.3
    names = [f"decoder.layers.{i}.cross_attention.weights" for i in range(2)]
    top = [{"token": "▁sie", "p": 0.52}, {"token": "▁es", "p": 0.36}, {"token": "▁die", "p": 0.01}]
    header = {
        "model": {"settings": {"n_decoder_layers": 2}},
        "source": {"tokens": SOURCE},
        "target": {"output_tokens": WRITTEN, "text": KATZE},
        "steps": [{"top": top if i == 6 else []} for i in range(len(WRITTEN))],
    }
    return Trace(header, {name: Named(("head", "query", "key"), w) for name, w in zip(names, weights, strict=True)})


def test_the_example_sentences_are_those_of_the_docs():
    assert [example.source for example in EXAMPLES] == [
        "The animal didn't cross the street because it was too tired.",
        "The animal didn't cross the street because it was too wide.",
        "The cat sat because it was sleepy.",
    ]
    assert [(example.noun, example.german, example.pronoun) for example in EXAMPLES] == [
        ("animal", "Tier", "es"),
        ("street", "Straße", "sie"),
        ("cat", "Katze", "sie"),
    ]


def test_pieces_are_joined_to_words_and_punctuation_stands_alone():
    assert words_of(SOURCE)[6:] == [("sleepy", [6, 7]), (".", [8]), ("(end)", [9])]
    assert [word for word, _ in words_of(["▁didn", "'", "t", "▁it"])] == ["didn", "'t", "it"]


def test_pronoun_attention_is_the_row_that_wrote_the_pronoun(trace):
    found = pronoun_attention(trace, 1)
    assert (found.pronoun, found.layer, found.layer_heads, found.heads, found.heads_on_it) == ("sie", 1, 2, 4, 1)
    weights = dict(zip(found.words, found.weights, strict=True))
    assert {word: round(w, 6) for word, w in weights.items() if w} == {"it": 0.4, "sleepy": 0.6}
    assert found.probability == {"sie": 0.52, "es": 0.36}


def test_a_translation_without_pronoun_has_no_pronoun_attention(trace):
    trace.header["target"]["output_tokens"][6] = "▁diese"
    assert pronoun_attention(trace, 1) is None
    assert [str(line) for line in lines(EXAMPLES[2], "", None)] == ["  It wrote no er, sie or es."]


def shown(example, translation, pronoun="sie"):
    found = PronounAttention(pronoun, ["cat", "it", "sleepy"], [0.01, 0.5, 0.49], 1, 2, 4, 1, {"sie": 0.52, "es": 0.36})
    return [str(line) for line in lines(example, translation, found)]


def test_a_right_pronoun_is_called_right():
    assert shown(EXAMPLES[2], KATZE) == [
        "  While it wrote “sie”, decoder layer 2 looked (mean of its 2 heads) at:",
        f"              it {'█' * round(BAR / 2)} 50%",
        f"          sleepy {'█' * round(BAR * 0.49)} 49%",
        "        1 others 1% together",
        "  1 of 4 heads look at “it” more than at any other token.",
        "  Right: “it” is the cat, die Katze.",
    ]


def test_a_wrong_pronoun_is_called_wrong():
    text = "Das Tier überquerte die Straße nicht, weil sie zu müde war."
    assert shown(EXAMPLES[0], text)[-1] == "  Wrong: “it” is the animal, das Tier, so “es”, which had 36% against 52%."


def test_a_noun_with_another_translation_is_not_judged():
    assert shown(EXAMPLES[1], "Das Tier ging nicht über den Weg.")[-1] == (
        "  “it” is the street, and “Straße” is not in the translation: not judged."
    )


def test_an_unwritable_page_is_refused_first(tmp_path):
    (tmp_path / "file").write_text("mine")
    found = onehop("demo", "-o", tmp_path / "file" / "page.html")
    assert found.exit_code == 2
    assert found.stderr == f"onehop: {tmp_path / 'file'} cannot be written: File exists. Give another -o.\n"


def test_a_folder_as_page_is_refused_first(tmp_path):
    found = onehop("demo", "-o", tmp_path)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr == f"onehop: {tmp_path} is a folder. Give -o an HTML file.\n"


@pytest.mark.parametrize(("option", "name"), [("-o", "out"), ("--device", "device")])
def test_options_before_a_demos_name_are_refused(option, name):
    found = onehop("demo", option, "cpu", "reverse")
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr == f"onehop: --{name} stands before reverse. Give options after `onehop demo reverse`.\n"


@pytest.mark.slow
def test_the_demo_with_the_shipped_model_prints_80_plain_columns(tmp_path):
    page = tmp_path / "new" / "page.html"
    # The real page is tested by an example of docs/reference/python.md.
    code = "from onehop.explorer.content import Explorer; Explorer.alone = lambda *_: '<!doctype html>'; "
    code += "from onehop.cli import main; main()"
    command = [sys.executable, "-c", code, "demo", "-o", str(page), "--device", "cpu"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\x1b" not in found.stdout
    *said, where = found.stdout.splitlines()
    assert where == str(page)
    assert page.read_text(encoding="utf-8") == "<!doctype html>"
    assert max(map(len, said)) <= 80
    assert [line for line in said if line in [example.source for example in EXAMPLES]] == [
        example.source for example in EXAMPLES
    ]
    assert len(re.findall(r"^  (?:Right|Wrong): “it” is the", found.stdout, re.MULTILINE)) == 3
    assert len(re.findall(r"^ +it █+ \d+%$", found.stdout, re.MULTILINE)) == 3
