"""A run's metrics as a picture."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onehop.console import TrainDisplay
from onehop.errors import OnehopError
from onehop.evaluation import curves
from onehop.evaluation.curves import draw

TRAINING = [
    {"step": s, "loss": 5.5 / s, "nll": 5 / s, "learning_rate": s * 1e-4, "tokens_per_second": 1e4} for s in range(1, 9)
]
VALIDATION = [{"step": s, "valid_nll": 6 / s, "bleu": 3.0 * s, "chrf": 5.0 * s} for s in (4, 8)]


def write(folder, lines):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "run", [*TRAINING, *VALIDATION])


def test_paths_may_be_strings(run, tmp_path):
    draw(str(run), str(tmp_path / "c.svg"))
    assert (tmp_path / "c.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.fixture
def figures(monkeypatch):
    """Collects the figures and axes that are drawn."""
    collected = []
    made = curves.new_figure

    def keep(*size, **options):
        collected.append(made(*size, **options))
        return collected[-1]

    monkeypatch.setattr(curves, "new_figure", keep)
    return collected


def test_a_run_folder_is_drawn_as_png(run, tmp_path):
    draw(run, tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_a_metrics_file_is_drawn_as_svg(run, tmp_path):
    draw(run / "metrics.jsonl", tmp_path / "a.svg")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 20


def test_every_curve_has_its_points_and_label(run, tmp_path, figures):
    draw(run, tmp_path / "a.svg")
    (_, axes), *_ = figures
    found = {axis.get_title("left"): {line.get_label(): line for line in axis.lines} for axis in axes}
    assert {title: list(lines) for title, lines in found.items()} == {
        "loss a target token": ["objective, training", "nll, training", "nll, validation"],
        "validation scores": ["BLEU", "chrF2++"],
        "learning rate": ["learning rate"],
        "target tokens/s": ["target tokens/s"],
    }
    assert found["loss a target token"]["nll, training"].get_xydata().tolist() == [[s, 5 / s] for s in range(1, 9)]
    assert found["validation scores"]["BLEU"].get_xydata().tolist() == [[4, 12], [8, 24]]
    assert [axis.get_legend() is not None for axis in axes] == [True, True, False, False]


class RecordingReport(dict):
    """A report that records which metrics are read."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)


def test_every_metric_of_the_console_is_drawn(capsys):
    step = RecordingReport(TRAINING[-1], seconds=0.5, share_of_peak=0.25)
    validation = RecordingReport(VALIDATION[-1], valid_perplexity=2.1)
    with TrainDisplay(every=1) as console:
        console.last = 8
        console.stepped(step)
        console.validated(validation)
    shown = capsys.readouterr().err
    assert "objective 0.688  nll 0.625" in shown
    assert "validation: nll 0.750" in shown
    drawn = {name for _, panel in curves._PANELS for name in panel}
    # The share of the peak follows from the speed, and the perplexity from the nll.
    assert (step.names | validation.names) - {"step", "seconds", "share_of_peak", "valid_perplexity"} <= drawn


@pytest.mark.parametrize(
    ("value", "written"), [(1_200_000, "1,200,000"), (0.1 + 0.2, "0.3"), (0.0008, "0.0008"), (0, "0")]
)
def test_axis_labels_have_no_exponent(run, tmp_path, figures, value, written):
    draw(run, tmp_path / "a.svg")
    for axis in figures[0][1]:
        assert axis.yaxis.get_major_formatter()(value, 0) == written


def test_a_curve_of_one_point_has_a_marker(tmp_path, figures):
    draw(write(tmp_path / "run", [*TRAINING * 10, VALIDATION[0]]), tmp_path / "a.svg")
    objective, nll, validation = figures[0][1][0].lines
    assert [line.get_marker() for line in (objective, nll, validation)] == ["", "", "."]


def test_missing_metrics_get_no_panel(tmp_path, figures):
    draw(write(tmp_path / "run", TRAINING), tmp_path / "a.png")
    figure, axes = figures[0]
    assert [axis.get_title("left") for axis in axes] == ["loss a target token", "learning rate", "target tokens/s"]
    assert len(figure.axes) == 3


def test_invalid_lines_are_skipped(run, tmp_path, figures):
    with (run / "metrics.jsonl").open("a") as out:
        out.write('5\n{"nll": 1}\n{"step": 9, "nl')
    draw(run, tmp_path / "a.svg")
    assert len(figures[0][1][0].lines[0].get_xydata()) == 8


@pytest.mark.parametrize(
    ("where", "out", "message"),
    [
        ("nowhere", "a.png", "There is no nowhere. Give the folder that `onehop train -o` wrote."),
        ("empty", "a.png", "There is no empty/metrics.jsonl. Give the folder that `onehop train -o` wrote."),
        ("run", "a.gif", "a.gif is neither .png nor .svg. Name the picture one of the two."),
        ("run", "no/a.png", "no/a.png cannot be written: No such file or directory. Give another -o."),
        ("text", "a.png", "text has no report of a training. Wait for the first one, or give another file."),
        ("binary", "a.png", "binary cannot be read: 'utf-8' codec can't decode"),
    ],
)
def test_wrong_files_are_refused(run, tmp_path, monkeypatch, where, out, message):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("text").write_text("hello\n")
    Path("binary").write_bytes(b"\xff\xfe")
    with pytest.raises(OnehopError) as caught:
        draw(Path(where), Path(out))
    assert str(caught.value).startswith(message)


def test_missing_matplotlib_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OnehopError, match=r"^This needs matplotlib\. Install it with: .* \"onehop\[plots\]\"$"):
        draw(run, tmp_path / "a.png")
