"""Run folders: checkpoints are complete even after a kill; which settings may change between starts; errors."""

import errno
import json
import multiprocessing
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

from onehop.config import Settings, with_changes
from onehop.errors import RunError
from onehop.storage import checkpoint_arrays, run_folder
from onehop.storage.run_folder import Checkpoint, Progress, Run, average, read_metrics

METADATA = {"data": "d1", "tokenizer": "t1", "processes": 1}


def checkpoint(step: int) -> Checkpoint:
    weights = {"w": np.full((3, 2), step, np.float32), "b": np.arange(4, dtype=np.float32) * step}
    return Checkpoint(Progress(step=step, epoch=1, batch=step), weights, {"exp_avg.w": weights["w"] * 2})


def saved(folder: Path, *steps: int, keep: int = 5, every: int = 10) -> Run:
    run = Run(folder)
    run.begin(Settings(), METADATA)
    for step in steps:
        run.save(checkpoint(step), keep, every)
    run.release()
    return run


def with_optimizer(run: Run) -> list[int]:
    return [step for step in run.steps() if (run.folder(step) / "optimizer.safetensors").exists()]


def everything_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


# --- checkpoints ----------------------------------------------------------------------------------------------


def test_a_checkpoint_round_trips(tmp_path):
    run = saved(tmp_path)
    assert run.latest() is None
    given = replace(checkpoint(7), progress=Progress(step=7, epoch=2, batch=3, best=-1.5, since_best=2, exact=False))
    run.save(given, 5, 10)
    found = run.latest()
    assert found.progress == given.progress
    for old, new in ((given.weights, found.weights), (given.optimizer, found.optimizer)):
        assert old.keys() == new.keys()
        assert all(np.array_equal(old[name], new[name]) for name in old)


def test_a_checkpoint_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "any").touch()
    checkpoint_arrays.write_arrays({"a": np.ones(1)}, tmp_path / "arrays")
    assert (tmp_path / "arrays").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_old_checkpoints_and_optimizer_states_are_removed(tmp_path):
    run = saved(tmp_path, 10, 20, 30, 40, keep=3)
    assert run.steps() == [20, 30, 40]
    assert with_optimizer(run) == [30, 40]
    assert run.latest().progress.step == 40


def test_checkpoints_of_interruptions_are_removed_by_the_next_regular_one(tmp_path):
    run = saved(tmp_path, 10, 20, 25)
    assert run.steps() == [10, 20, 25]
    run.save(checkpoint(30), 5, 10)
    assert run.steps() == [10, 20, 30]
    run.save(checkpoint(37), 5, 10)
    assert run.steps() == [10, 20, 30, 37]


def test_untrained_weights_are_never_averaged(tmp_path):
    run = saved(tmp_path, 0)
    assert run.steps() == [0]  # a run stopped before its first step can resume
    for step in (10, 20):
        run.save(checkpoint(step), 5, 10)
    assert run.averaged(5)[1] == [10, 20]


def test_a_changed_save_interval_keeps_earlier_checkpoints(tmp_path):
    run = saved(tmp_path, 10, 20, 25, 30, 40)
    for step in (48, 60, 62):
        run.save(checkpoint(step), 5, 12)
    assert run.steps() == [30, 40, 48, 60, 62]


def test_a_damaged_old_checkpoint_does_not_prevent_saving(tmp_path):
    run = saved(tmp_path, 10, 20)
    (run.folder(10) / "state.json").write_text("{")
    run.save(checkpoint(30), 5, 10)
    assert run.steps() == [10, 20, 30]


def test_checkpoints_of_an_older_version_count_as_regular(tmp_path):
    run = saved(tmp_path, 10)
    state = run.folder(10) / "state.json"
    state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "regular"}))
    run.save(checkpoint(20), 5, 10)
    assert run.steps() == [10, 20]


def test_interruptions_do_not_change_which_checkpoints_are_averaged(tmp_path):
    whole = saved(tmp_path / "whole", 10, 20, 30, 40, 45, keep=3)
    stopped = saved(tmp_path / "stopped", 3, 10, 11, 20, 30, 34, 40, 44, 45, keep=3)
    assert whole.steps() == stopped.steps() == [30, 40, 45]


def test_saving_a_step_again_changes_nothing(tmp_path):
    run = saved(tmp_path, 10)
    before = run.folder(10).stat().st_mtime_ns
    run.save(replace(checkpoint(10), weights={}), 5, 10)
    assert run.folder(10).stat().st_mtime_ns == before
    assert run.latest().weights


WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from onehop.config import Settings
from onehop.storage.run_folder import Checkpoint, Progress, Run

path, kills = Path(sys.argv[1]), int(sys.argv[2])

def write():
    run = Run(path)
    run.begin(Settings(), {})
    found = run.latest()
    step = found.progress.step if found else 0
    while True:
        step += 1
        run.report({"step": step})
        arrays = {f"a{i}": np.full(20_000, step, np.float32) for i in range(3)}
        run.save(Checkpoint(Progress(step=step), arrays, arrays), 3, 2)

draw, steps = random.Random(0), []
for _ in range(kills):
    child = os.fork()
    if child == 0:
        write()
    time.sleep(draw.uniform(0.01, 0.12))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = Run(path).latest()
    step = found.progress.step if found else 0
    if found:
        for arrays in (found.weights, found.optimizer):
            assert sorted(arrays) == ["a0", "a1", "a2"] and all((a == step).all() for a in arrays.values()), step
    for old in Run(path).steps():
        assert all((a == old).all() for a in Run(path).weights(old).values())
    steps.append(step)
assert steps == sorted(steps), steps
last = Run(path)
last.begin(Settings(), {})
print(steps[-1], [p.name for p in (path / "checkpoints").iterdir() if p.name.startswith(".")])
"""


def test_a_writer_killed_at_any_moment_leaves_whole_checkpoints(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run"), "40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    last, litter = done.stdout.split(maxsplit=1)
    assert int(last) > 0  # the number of steps depends on the load of the machine
    assert litter.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (SafetensorError("No space left on device (os error 28)"), "No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_a_one_line_error_and_keeps_the_last_checkpoint(tmp_path, monkeypatch, error, said):
    run = saved(tmp_path, 10)
    before = everything_in(tmp_path)
    whole = checkpoint_arrays.save_file

    def full(arrays, file, metadata):
        if "optimizer" in str(file):  # the disk is full in the middle of the second file
            file.write_bytes(b"half")
            raise error
        whole(arrays, file, metadata)

    monkeypatch.setattr(checkpoint_arrays, "save_file", full)
    with pytest.raises(RunError) as e:
        run.save(checkpoint(20), 5, 10)
    assert str(e.value) == (
        f"{tmp_path} cannot be written: {said}. "
        "Free some space and start again: training resumes from the last checkpoint."
    )
    assert everything_in(tmp_path) == before
    assert run.latest().progress.step == 10


def test_an_unwritable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file is a file\. Choose a new folder\.$"):
        Run(tmp_path / "file").begin(Settings(), METADATA)
    with pytest.raises(RunError, match=r"cannot be written: Not a directory\. Check the folder\.$"):
        Run(tmp_path / "file" / "below").begin(Settings(), METADATA)


def test_a_store_folder_is_refused(tmp_path):
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(RunError, match=r"is a store\. Choose a new folder\.$"):
        Run(tmp_path).begin(Settings(), METADATA)
    assert everything_in(tmp_path) == ["store.json"]


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_checkpoint_is_named_with_a_remedy(tmp_path, file, damage):
    run = saved(tmp_path, 10, 20)
    path = run.folder(20) / file
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:20])
    else:
        path.unlink()
    with pytest.raises(RunError, match=r"^The checkpoint .*step-00000020.* cannot be read: .*\. Delete its folder"):
        run.latest()
    for part in run.folder(20).iterdir():
        part.unlink()
    run.folder(20).rmdir()
    assert run.latest().progress.step == 10


@pytest.mark.parametrize(("name", "value"), [("batch", -1), ("epoch", -1), ("since_best", -1), ("step", 30)])
def test_an_out_of_range_position_is_a_one_line_error(tmp_path, name, value):
    run = saved(tmp_path, 20)
    file = run.folder(20) / "state.json"
    state = {**json.loads(file.read_bytes()), name: value}
    del state["crc32"]
    file.write_text(json.dumps({**state, "crc32": checkpoint_arrays.state_checksum(state)}))
    with pytest.raises(
        RunError, match=r"state\.json cannot be read: its step, epoch or batch is out of range\. Delete"
    ):
        run.latest()


def test_a_flipped_bit_of_a_checkpoint_is_detected_or_harmless(tmp_path):
    run = saved(tmp_path, 10)
    whole = run.latest()
    refusals = []
    for file in sorted(run.folder(10).iterdir()):
        data = file.read_bytes()
        for place in range(len(data)):
            flipped = bytearray(data)
            flipped[place] ^= 1 << place % 8
            file.write_bytes(flipped)
            try:
                found = run.latest()
            except RunError as e:
                refusals.append(str(e))
                continue
            # Harmless: the bit is in the name of the checksum's key or in white space.
            assert found.progress == whole.progress
            for old, new in ((whole.weights, found.weights), (whole.optimizer, found.optimizer)):
                assert {n: a.tobytes() for n, a in old.items()} == {n: a.tobytes() for n, a in new.items()}
        file.write_bytes(data)
    assert len(refusals) > 300
    assert all(re.fullmatch(r"The checkpoint .* cannot be read: .*\. Delete its folder .*", line) for line in refusals)


def test_flipped_bits_of_averaged_and_best_weights_are_detected(tmp_path):
    run = saved(tmp_path, 10, 20)
    run.save_best(checkpoint(20).weights, 20)
    assert run.best()[1] == [20]
    for file, read in (
        (run.folder(10) / "weights.safetensors", lambda: run.averaged(2)),
        (tmp_path / "best.safetensors", run.best),
    ):
        data = bytearray(file.read_bytes())
        data[-3] ^= 4
        file.write_bytes(data)
        with pytest.raises(RunError, match="cannot be read: its checksum does not match"):
            read()


def test_checkpoints_without_checksum_are_read(tmp_path):
    run = saved(tmp_path, 10)
    save_file(checkpoint(10).weights, run.folder(10) / "weights.safetensors")
    state = json.loads((run.folder(10) / "state.json").read_text())
    del state["crc32"]
    (run.folder(10) / "state.json").write_text(json.dumps(state))
    assert run.latest().progress.step == 10


# --- averaging ------------------------------------------------------------------------------------------------


def test_the_average_equals_numpys_mean():
    rng = np.random.default_rng(0)
    sets = [{"w": rng.normal(size=(5, 3)).astype(np.float32)} for _ in range(7)]
    found = average(iter(sets))["w"]
    assert found.dtype == np.float32
    assert np.array_equal(found, np.mean([s["w"] for s in sets], axis=0, dtype=np.float64).astype(np.float32))


def test_the_last_checkpoints_are_averaged(tmp_path):
    run = saved(tmp_path, 10, 20, 40, 60)
    weights, steps = run.averaged(3)
    assert steps == [20, 40, 60]
    assert np.array_equal(weights["w"], np.full((3, 2), 40, np.float32))
    assert run.averaged(99)[1] == [10, 20, 40, 60]
    assert np.array_equal(run.averaged(1)[0]["b"], checkpoint(60).weights["b"])


def test_averaging_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(RunError) as e:
        saved(tmp_path).averaged(5)
    assert str(e.value) == f"There is no checkpoint in {tmp_path}. Train first."


# --- starting again -------------------------------------------------------------------------------------------


def start_again(folder: Path, *changes: str, **metadata: object) -> Run:
    run = Run(folder)
    try:
        run.begin(with_changes(Settings(), changes), {**METADATA, **metadata})
    finally:
        run.release()
    return run


def test_a_changed_setting_is_refused_by_name(tmp_path):
    saved(tmp_path, 10)
    before = (tmp_path / "settings.toml").read_bytes()
    for change, old, new in (
        ("model.d_ff=1024", 2048, 1024),
        ("train.batch_tokens=100", 25000, 100),
        ("model.d_k=32", "unset", 32),
    ):
        with pytest.raises(RunError) as e:
            start_again(tmp_path, change)
        assert str(e.value) == (
            f"{tmp_path} was started with {change.split('=')[0]} = {old}, but now it is {new}. "
            "Train in another folder, or set it back to resume this run."
        )
    assert (tmp_path / "settings.toml").read_bytes() == before


def test_settings_that_may_change_are_updated(tmp_path):
    saved(tmp_path, 10)
    run = start_again(tmp_path, "train.steps=50", "train.keep=9", "train.shard=true", processes=4)
    assert run.metadata()["processes"] == 1  # metadata of the first start are kept
    assert "steps = 50" in (tmp_path / "settings.toml").read_text()
    assert {f"train.{name}" for name in vars(Settings().train)} >= run_folder.FREE_TO_CHANGE


def test_steps_cannot_change_with_cosine_decay(tmp_path):
    start_again(tmp_path, "train.decay=cosine")
    with pytest.raises(RunError, match=r"was started with train\.steps = 100000, but now it is 5\."):
        start_again(tmp_path, "train.decay=cosine", "train.steps=5")


@pytest.mark.parametrize("name", ["settings.toml", "model.safetensors"])
def test_files_that_no_run_wrote_are_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunError) as error:
        Run(tmp_path).begin(Settings(), METADATA)
    assert str(error.value) == (
        f"{tmp_path / name} does not belong to a run, and a run would overwrite it. Choose a new folder."
    )
    assert everything_in(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_run_killed_while_starting_can_start_again(tmp_path):
    saved(tmp_path)
    (tmp_path / "run.json").unlink()
    saved(tmp_path)
    assert (tmp_path / "run.json").exists()


@pytest.mark.parametrize("name", ["tokenizer", "data"])
def test_another_store_is_refused(tmp_path, name):
    saved(tmp_path, 10)
    with pytest.raises(RunError) as e:
        start_again(tmp_path, **{name: "other"})
    assert str(e.value) == (
        f"{tmp_path} was started with another {name} than the store has. "
        "Give the store of the run, or train in another folder."
    )
    assert Run(tmp_path).metadata() == METADATA


def test_noted_facts_survive_a_restart(tmp_path):
    run = saved(tmp_path)
    run.note(batch_tokens=640)
    assert start_again(tmp_path).metadata() == {**METADATA, "batch_tokens": 640}


def test_damaged_facts_are_refused(tmp_path):
    saved(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json cannot be read: .*\. Restore it or train in another folder\.$"):
        start_again(tmp_path)


def hold_run(folder: Path, ready: object, done: object) -> None:
    run = Run(folder)
    run.begin(Settings(), METADATA)
    ready.set()  # type: ignore[attr-defined]
    done.wait()  # type: ignore[attr-defined]


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=hold_run, args=(tmp_path, ready, done))
    other.start()
    try:
        assert ready.wait(30)
        with pytest.raises(RunError) as e:
            start_again(tmp_path)
        assert str(e.value) == f"Another process is training in {tmp_path}. Wait for it, or choose another folder."
    finally:
        other.kill()  # the lock ends with its process
        other.join()
    start_again(tmp_path)


def test_ingredients_need_the_tokenizer(tmp_path):
    run = saved(tmp_path)
    with pytest.raises(RunError, match=r"has no tokenizer\.model\. Give the folder of a training run\.$"):
        run.ingredients()
    run.keep_tokenizer(b"pieces")
    assert run.ingredients() == (Settings(), b"pieces", "en", "de")


# --- metrics --------------------------------------------------------------------------------------------------


def test_metrics_are_rewound_and_a_partial_line_is_removed(tmp_path):
    run = saved(tmp_path)
    run.rewind_metrics(0)  # without a file
    for step in range(1, 6):
        run.report({"step": step, "loss": 1 / step})
    run.report({"step": 5, "valid_nll": 2.0})
    file = tmp_path / "metrics.jsonl"
    whole = file.read_text()
    file.write_text(whole + '{"step": 6, "lo')
    run.rewind_metrics(5)
    assert file.read_text() == whole
    run.rewind_metrics(3)
    assert [line["step"] for line in read_metrics(file)] == [1, 2, 3]
    run.report({"step": 4})
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3, 4]
