"""The recipe that learns which names two languages spell alike, on a few sentence pairs."""

import lzma
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[2] / "recipes" / "copied_names.py"
PAIRS = [
    *[("Yesterday we met Dunbar there.", "Gestern trafen wir dort Dunbar.")] * 3,
    *[("Then they flew to Munich again.", "Dann flogen sie wieder nach München.")] * 3,
    *[("We saw a castle and the Castle.", "Wir sahen ein Schloss und das Schloss.")] * 3,
    *[("Once more we wrote to Fox about it.", "Wir schrieben Fox noch einmal darüber.")] * 4,
    *[("There was a fox and a fox.", "Da war ein Fuchs und noch ein Fuchs.")] * 9,
    *[("They wrote to Welt about it.", "Sie schrieben der Welt darüber.")] * 3,
    *[("The earth is round.", "Die Welt ist rund.")] * 9,  # in German it is an ordinary noun
    ("Nobody knew Only Once.", "Niemand kannte es."),
    ("He asked Tilbury.", "Er fragte Tilbury."),  # once is not enough
]
EVERYDAY = [("I saw Dunbar today.", "Ich sah heute Maria.")] * 2


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """The names that the recipe writes."""
    root = tmp_path_factory.mktemp("names")
    train = root / "en-de" / "train"
    train.mkdir(parents=True)
    for name, pairs in (("news-clean", PAIRS), ("tatoeba", EVERYDAY)):
        with lzma.open(train / f"{name}.tsv.xz", "wt", encoding="utf-8") as out:
            out.writelines(f"{english}\t{german}\n" for english, german in pairs)
    command = [sys.executable, str(RECIPE), str(root / "en-de"), "de", "-o", str(root / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("words") == 2
    return {file.name: file.read_text(encoding="utf-8").split() for file in (root / "out").iterdir()}


def test_copied_names_are_kept_and_exonyms_are_not(lists):
    assert lists["en-de.txt"] == ["Dunbar"]


def test_single_words_that_are_translated_are_listed(lists):
    assert lists["en-de.translated.txt"] == ["Munich"]
