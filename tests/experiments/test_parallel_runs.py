"""Parallel trainings in separate processes: signals, deaths and logs."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from onehop.errors import RunError
from onehop.experiments import parallel_runs


def a_task_that_waits(folder: Path) -> None:
    (folder / "began").touch()
    signal.signal(signal.SIGTERM, lambda *_: ((folder / "saved").touch(), sys.exit(0)))
    (folder / "facts").write_text(f"{os.getpid()} {os.getpgid(0)} {os.environ['TORCHINDUCTOR_COMPILE_THREADS']}")
    (folder / "ready").touch()
    time.sleep(600)


def a_task_that_is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def a_task_that_says_nothing() -> None:
    sys.exit(1)


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (a_task_that_is_killed, "A training was killed. If memory ran out, train fewer at once. Its log: {log}."),
        (a_task_that_says_nothing, "A training ended without a message. Its log: {log}."),
    ],
)
def test_a_process_that_dies_is_an_error_that_names_its_log(tmp_path, work, says):
    with pytest.raises(RunError) as error:
        parallel_runs.run_parallel([parallel_runs.ParallelTask(work, (), tmp_path / "log")], 2)
    assert str(error.value) == says.format(log=tmp_path / "log")


def test_a_process_without_a_log_is_an_error_that_names_it(tmp_path):
    said = f"A training ended without a message. Its log: {tmp_path / 'log'}."
    assert str(parallel_runs.task_error(1, tmp_path / "log")) == said


def wait_for(file: Path, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return file.exists()


def test_trainings_stop_when_their_parent_is_killed(tmp_path):
    program = "from tests.experiments.test_parallel_runs import *; p = Path(sys.argv[1]); "
    program += "parallel_runs.run_parallel([parallel_runs.ParallelTask(a_task_that_waits, (p,), p / 'log')], 1)"
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parents[2])
    assert wait_for(tmp_path / "ready")
    parent.kill()
    parent.wait()
    assert wait_for(tmp_path / "saved")


def test_sigterm_stops_running_tasks_and_starts_no_others(tmp_path):
    one, never = tmp_path / "one", tmp_path / "never"
    one.mkdir(), never.mkdir()
    tasks = [parallel_runs.ParallelTask(a_task_that_waits, (folder,), tmp_path / "log") for folder in (one, never)]

    def stop() -> None:
        if wait_for(one / "ready"):
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    assert not parallel_runs.run_parallel(tasks, 1)
    assert (one / "saved").exists()
    assert not (never / "began").exists()
    child, group, compilers = map(int, (one / "facts").read_text().split())
    assert child == group != os.getpgid(0)  # the terminal's Ctrl-C reaches the parent alone
    assert compilers >= 1


def test_a_signal_while_a_task_starts_stops_it(tmp_path, monkeypatch):
    start = SpawnProcess.start

    def start_and_be_told(process: SpawnProcess) -> None:
        start(process)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(SpawnProcess, "start", start_and_be_told)
    assert not parallel_runs.run_parallel(
        [parallel_runs.ParallelTask(a_task_that_waits, (tmp_path,), tmp_path / "log")], 1
    )
    assert not multiprocessing.active_children()
