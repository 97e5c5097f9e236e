"""A stopped translation job resumes and gives the same file as an uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from onehop.cli.resume import ResumableFile
from onehop.errors import TextError
from onehop.pipelines.bulk import TranslatedWindow, Window

WINDOWS = [Window("x", 1, ["a", "b"]), Window("x", 3, ["c", "d"], 2), Window("x", 5, ["e"], 4)]


def done(window):
    return TranslatedWindow(window, "".join(f"{line.upper()}\n" for line in window.lines).encode(), [])


def write(path, windows, *, stop=99, error=KeyboardInterrupt, identity=None):
    """Translate windows into capitals until an error; return the finished lines of an earlier job."""
    skipped = []
    with ResumableFile(path, identity or {"beam": 4}) as file:
        for count, window in enumerate(file.skip_done(windows, skipped.append)):
            if count == stop:
                raise error
            file.write(done(window))
    return skipped


@pytest.fixture
def stopped(tmp_path):
    """The output of a job that was killed while it wrote the third window."""
    path = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        write(path, WINDOWS, stop=2)
    with open(tmp_path / "out.partial", "ab") as file:
        file.write(b"hal")
    return path


def test_a_stopped_job_resumes(stopped, capsys):
    assert not stopped.exists()
    assert write(stopped, WINDOWS) == [4]
    assert stopped.read_text() == "A\nB\nC\nD\nE\n"
    assert os.listdir(stopped.parent) == ["out"]
    assert write(stopped, WINDOWS) == []  # a complete output starts a new job


def test_a_partial_file_of_another_job_is_refused_and_kept(stopped):
    left = (stopped.parent / "out.partial").read_bytes()
    with pytest.raises(TextError, match=r"out\.partial was started with another model or other options\. Remove"):
        write(stopped, WINDOWS, identity={"beam": 1})
    changed = [Window("x", 1, ["a", "other"]), *WINDOWS[1:]]
    for windows in (changed, WINDOWS[:1]):
        with pytest.raises(
            TextError, match=r"out\.partial was started with another text\. Remove .*, or give another -o\.$"
        ):
            write(stopped, windows)
    assert (stopped.parent / "out.partial").read_bytes() == left.removesuffix(b"hal")
    write(stopped, WINDOWS)
    assert stopped.read_text() == "A\nB\nC\nD\nE\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("out.progress", b"{", r"out\.progress is damaged\. Remove"),
        ("out.partial", b"A", r"out\.partial is shorter than .*out\.progress says\. Remove"),
    ],
)
def test_a_damaged_state_is_refused(stopped, name, data, message):
    (stopped.parent / name).write_bytes(data)
    with pytest.raises(TextError, match=message):
        write(stopped, WINDOWS)


def test_lines_before_an_unreadable_one_are_kept_but_repeated(tmp_path):
    path = tmp_path / "out"
    cut = Window("x", 3, ["c"], 2, cut=True)

    def broken():
        yield from (WINDOWS[0], cut)
        raise TextError("Line 4 is wrong.", "Correct it.")

    with pytest.raises(TextError, match=r"^Line 4 is wrong\. Correct it\. What .* is in .*; the same command resumes"):
        write(path, broken())
    assert (tmp_path / "out.partial").read_text() == "A\nB\nC\n"
    assert write(path, WINDOWS) == [2]
    assert path.read_text() == "A\nB\nC\nD\nE\n"


def test_unseekable_input_has_no_resume_state(tmp_path):
    def work():
        with ResumableFile(tmp_path / "out", None) as file:
            file.write(done(WINDOWS[0]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert os.listdir(tmp_path) == ["out.partial"]


def test_a_missing_folder_is_a_one_line_error(tmp_path):
    with pytest.raises(TextError, match=r"no/out cannot be written: No such file or directory\. Check the folder"):
        write(tmp_path / "no" / "out", WINDOWS)


@pytest.mark.slow
def test_a_killed_job_ends_its_workers_and_resumes(tmp_path, model_file):
    lines = [f"the {'old ' * (i % 7)}house {'bird ' * (i % 5)}" for i in range(1400)]
    (tmp_path / "in").write_text("\n".join(lines))
    base = [sys.executable, "-m", "onehop", "translate", "-m", str(model_file), "--engine", "ctranslate2"]
    base += ["--compute", "float32", "--beam", "2", "-i", str(tmp_path / "in"), "-o"]
    subprocess.run([*base, str(tmp_path / "whole")], check=True, capture_output=True)
    command = [*base, str(tmp_path / "out"), "--workers", "2"]
    job = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    progress = tmp_path / "out.progress"
    while not progress.exists():
        assert job.poll() is None
        time.sleep(0.01)
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert json.loads(progress.read_text())["lines"] < len(lines)
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["in", "out", "whole"]
