"""The picture of BLEU against speed."""

import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def plot_speed():
    pytest.importorskip("matplotlib")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("plot_speed")


@pytest.fixture
def raw(tmp_path):
    def written(name, file="news.en", sentences=100, **seconds):
        turns = [
            {
                s.replace("_", "-"): {"sentences": sentences, "cpu_seconds": t, "bleu": 20 + t}
                for s, t in seconds.items()
            }
        ]
        about = {"file": file, "model": "en-de", "small": "en-de-small", "turns": turns}
        (tmp_path / name).write_text(json.dumps(about))
        return tmp_path / name

    return written


def test_each_system_is_a_dot_of_speed_and_bleu(plot_speed, raw, tmp_path):
    files = [raw("a.json", onehop=4, marian=8), raw("b.json", onehop_small_greedy=1)]
    title, dots = plot_speed.read_all(files)
    assert title == "news.en, 100 sentences"
    assert dots == {
        "onehop, en-de": (25, 24),
        "Hugging Face Marian, float32": (12.5, 28),
        "onehop, en-de-small, greedy": (100, 21),
    }
    plot_speed.draw(title, dots).savefig(tmp_path / "speed.svg")
    assert len((tmp_path / "speed.svg").read_text().split("<path")) > len(dots)


def test_removed_systems_are_left_out(plot_speed, raw):
    _, dots = plot_speed.read_all([raw("a.json", onehop=4, onehop_shortlist=3)])
    assert dots == {"onehop, en-de": (25, 24)}


def test_figures_of_other_lines_are_not_drawn_together(plot_speed, raw):
    first = raw("a.json", onehop=4)
    for other in (raw("b.json", marian=8, sentences=99), raw("c.json", marian=8, file="other.en")):
        with pytest.raises(SystemExit, match=r"covers other lines than .*a\.json"):
            plot_speed.read_all([first, other])
