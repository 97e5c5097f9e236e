"""A full disk is a one-line error with a remedy, and the same command resumes.

This process stands in for the nodes.
"""

import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace

import pytest
from command_line import onehop
from local_runner import LocalRunner

from onehop.cluster import prepare, translate
from onehop.cluster.connection import ClusterError
from onehop.cluster.inputs import pieces
from onehop.errors import StoreError


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of this size in KiB, or resizes it when called again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = False

    def sized(kib):
        nonlocal mounted
        how = f"remount,size={kib}k" if mounted else f"size={kib}k"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", how, "none", str(disk)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("no file system may be mounted here: it needs root")
        mounted = True
        return disk

    if shutil.which("mount") is None:
        pytest.skip("there is no mount command here")
    yield sized
    if mounted:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def upper_case(self, pool):
    """The results of a cluster whose workers translate into capitals."""
    for number, (given, output) in enumerate(zip(self.inputs, self.outputs, strict=True)):
        for piece in pieces(number, given, output.windows):
            lines = piece.window.lines if piece.window else []
            done = translate._Done(piece, len(lines), "".join(f"{line.upper()}\n" for line in lines).encode())
            yield replace(done, worker="here")


def test_a_translation_resumes_after_a_full_disk(small_disk, tmp_path, monkeypatch, model_file):
    monkeypatch.setattr(translate, "joined", lambda _: nullcontext())
    monkeypatch.setattr(translate, "_pool_of", lambda *_: translate._Pool(1, 1, 0.0))
    monkeypatch.setattr(translate._Translation, "_results", upper_case)
    texts = tmp_path / "texts"
    texts.mkdir()
    for name, count in (("a.txt", 10), ("b.txt", 9000)):
        (texts / name).write_text("".join(f"line {i} of a text\n" for i in range(count)), encoding="utf-8")
    disk = small_disk(100)
    command = ["translate", "--model", model_file, "--ray", "local", texts, "-o", f"file://{disk}/out"]
    stopped = onehop(*command)
    assert stopped.exit_code == 2, stopped.output
    assert "cannot be written: No space left on device. Free space. Run the same command again" in stopped.output
    assert "Traceback" not in stopped.output
    assert [file.name for file in (disk / "out").glob("*.txt")] == ["a.txt"]
    begun = (disk / "out" / ".onehop" / "cluster" / "b.txt.partial").read_bytes()
    assert begun, "the first windows are kept"
    small_disk(1000)
    again = onehop(*command)
    assert again.exit_code == 0, again.output
    assert "1 of 2 files were already finished" in again.output
    for name in ("a.txt", "b.txt"):
        assert (disk / "out" / name).read_text() == (texts / name).read_text().upper()


class OneNode(LocalRunner):
    """Runs the tasks of a store in this process."""

    def __init__(self, cores):
        self.cores = cores

    def map(self, task, items):
        return (prepare._run_task(task, *item) for item in items)


def test_preparing_resumes_after_a_full_disk(small_disk, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "joined", lambda _: nullcontext())
    monkeypatch.setattr(prepare, "alive_nodes", lambda: [{"CPU": 2.0}])
    monkeypatch.setattr(prepare, "_ClusterRunner", OneNode)
    disk = small_disk(512)
    with pytest.raises(StoreError, match="No space left on device") as error:
        prepare.prepare_on_cluster(pairs, disk / "store", address="local", root=tmp_path, part_chunks=1)
    assert "\n" not in str(error.value)
    small_disk(64 << 10)
    store = prepare.prepare_on_cluster(pairs, disk / "store", address="local", root=tmp_path, part_chunks=1)
    assert len(store.description["shards"]) == 12


def test_a_node_without_space_for_the_model_names_its_folder(small_disk, tmp_path, monkeypatch):
    import ray

    disk = small_disk(64)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(disk))
    monkeypatch.setattr(ray, "get", lambda content: content)
    shipped = translate._ShippedModel(
        tmp_path / "missing.safetensors", "abc", {"missing.safetensors": b"x" * (1 << 20)}
    )
    with pytest.raises(ClusterError, match=r"cannot keep the model in .*: No space left on device\. Free space there"):
        shipped.here()
