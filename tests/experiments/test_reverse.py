"""The demo that learns to reverse strings of digits."""

from xml.etree import ElementTree

import pytest
from long_tests import long_only

from onehop.config import load_settings, with_changes
from onehop.console import RESUMES, TrainDisplay
from onehop.data.store import Store
from onehop.errors import RunError
from onehop.experiments import reverse as module
from onehop.experiments.reverse import ReverseOutcome, check, digit_strings, run, show, write_pairs
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.storage.model_io import read_model


def test_digit_strings_are_distinct_and_deterministic():
    strings = digit_strings(500)
    assert strings == digit_strings(700)[:500]
    assert len(set(strings)) == 500
    assert all(3 <= len(s) <= module.LONGEST and set(s) <= set("0123456789") for s in strings)


def test_pairs_are_written_with_their_reverse(tmp_path):
    write_pairs(tmp_path / "pairs.tsv", ["1 2 3", "4 5"])
    assert (tmp_path / "pairs.tsv").read_text() == "1 2 3\t3 2 1\n4 5\t5 4\n"


def test_check_counts_correct_held_out_strings(monkeypatch, tmp_path):
    class Sloppy:
        def translate(self, texts, options):
            assert options.beam == 1
            said = [text[::-1] if "7" not in text else "7" for text in texts]
            return [Translation(text, (), 0.0, 0.0, finished=True, looped=False) for text in said]

    monkeypatch.setattr(SentenceTranslator, "load", lambda path, device, engine: Sloppy())
    found = check(tmp_path, ["1 2", "7 1", "3 4", "5 6", "1 1", "2 2"])
    assert (found.right, found.of) == (5, 6)
    assert found.examples == [("1 2", "2 1"), ("7 1", "7"), ("3 4", "4 3"), ("5 6", "6 5"), ("1 1", "1 1")]


def test_the_outcome_is_printed_without_interpreting_markup(capsys, tmp_path):
    show(ReverseOutcome(1, 2, [("1 2", "2 1"), ("3 4", "[/red] 3")], tmp_path))
    lines = [line.rstrip() for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "",
        "Strings it has never seen:",
        "  1 2  →  2 1  ✓",
        "  3 4  →  [/red] 3  ✗",
        "1 of 2 right.",
    ]


@pytest.fixture
def two_steps(monkeypatch):
    """The demo with a training of two steps."""
    monkeypatch.setattr(module, "PAIRS", 600)
    short = with_changes(load_settings("tiny"), ["train.steps=2", "train.batch_tokens=64", "train.save_every=1"])
    monkeypatch.setattr(module, "load_settings", lambda name: short)


def test_a_demo_with_output_keeps_its_files_and_resumes(two_steps, tmp_path):
    found = run(tmp_path / "kept")
    assert found.of == module.HELD_OUT
    assert found.model == tmp_path / "kept" / "run" / "model.safetensors"
    trained_on = {line.split("\t")[0] for line in (tmp_path / "kept" / "digits.tsv").read_text().splitlines()}
    assert len(trained_on) == 600
    report = Store.open(tmp_path / "kept" / "store").report
    assert report.train + report.valid == 600  # no filter for prose dropped a pair
    assert not trained_on & set(digit_strings(module.HELD_OUT))
    assert all(source in digit_strings(module.HELD_OUT) for source, _ in found.examples)
    assert run(tmp_path / "kept") == found  # the finished run resumes


def test_a_stopped_demo_raises_keyboard_interrupt(two_steps, monkeypatch):
    monkeypatch.setattr(module, "train", lambda *args, **more: None)
    with pytest.raises(KeyboardInterrupt):
        run()


@pytest.mark.parametrize(("kept", "said"), [(True, RESUMES), (False, "nothing is kept without -o.")])
def test_the_message_of_a_stopped_run_says_whether_files_are_kept(capsys, kept, said):
    TrainDisplay(kept=kept).said(f"Stopped at step 3; {RESUMES}")
    assert capsys.readouterr().err == f"Stopped at step 3; {said}\n"


@pytest.fixture
def short_strings(monkeypatch):
    """The demo with strings of at most six digits, which it learns in fewer steps."""
    monkeypatch.setattr(module, "LONGEST", 6)
    monkeypatch.setattr(module, "PAIRS", 4000)
    short = with_changes(load_settings("tiny"), ["train.steps=200", "train.batch_tokens=512", "train.warmup=30"])
    monkeypatch.setattr(module, "load_settings", lambda name: short)


def more_strings(count):
    """Strings that were neither trained on nor held out."""
    return digit_strings(module.HELD_OUT + module.PAIRS + count)[module.HELD_OUT + module.PAIRS :]


@pytest.mark.slow
def test_the_demo_learns_short_strings(short_strings, tmp_path):
    """A broken training learns hardly any string. A correct one may miss a few, depending on the processor."""
    found = run(tmp_path)
    assert found.of == module.HELD_OUT
    assert found.right >= 0.95 * found.of
    assert check(found.model, more_strings(300)).right >= 0.95 * 300


@long_only
def test_the_demo_learns_every_held_out_string(tmp_path):
    found = run(tmp_path)
    assert (found.right, found.of) == (module.HELD_OUT, module.HELD_OUT)
    assert check(found.model, more_strings(1000)).right >= 995  # the 200 held-out strings could be luck


def test_the_picture_shows_all_attention_weights(tmp_path, model_file):
    svg = ElementTree.fromstring(module.attention_picture(model_file, "12", "21"))
    cells = [float(c.find("{*}title").text) for c in svg.iter("{http://www.w3.org/2000/svg}rect") if len(c)]
    heads = read_model(model_file).settings.model.n_heads
    assert sum(cells) == pytest.approx(heads * 4, abs=0.05)  # four rows a head (mark, two digits, end), each sums to 1


def test_an_unwritable_output_is_a_one_line_error(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError) as error:
        run(tmp_path / "file")
    assert str(error.value) == f"{tmp_path / 'file'} cannot be written: File exists. Give another -o."
