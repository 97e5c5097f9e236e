"""The benchmark of training speed by shape, rehearsed with tiny models on the CPU."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers", reason="Transformers is not installed: one peer of each shape is from there")

from onehop.data.store import Pairs, id_type, side_from_lists
from onehop.model.transformer import parameter_count
from onehop.model.variants import model_for

FOLDER = Path(__file__).parents[2] / "benchmarks"
# nn.Transformer has no option that avoids this warning.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("gpu_shapes")


@pytest.fixture
def in_this_process(benchmark, monkeypatch):
    """Runs the benchmark's child processes in this process, and records the requested shapes and parts."""
    calls = []

    def run(command, **_):
        own = command[2:]
        calls.append((own[own.index("--shapes") + 1], own[own.index("--child") + 1]))
        benchmark.main(own)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


@pytest.mark.slow
def test_every_shape_runs_beside_two_peers(benchmark, in_this_process, tmp_path, capsys):
    out, shapes = tmp_path / "shapes.json", list(benchmark.SHAPES)
    benchmark.main(["--tiny", "-o", str(out)])
    assert in_this_process == [(shape, part) for shape in shapes for part in ("cold", "race")]
    found = json.loads(out.read_text())
    assert list(found["shapes"]) == shapes
    assert found["failed"] == {}
    for row in found["shapes"].values():
        assert row["failed peers"] == {}
        assert len(row["systems"]) == 3
        rates = {name: own["target tokens/s"] for name, own in row["systems"].items()}
        assert row["ratio"] == rates["onehop"] / max(rate for name, rate in rates.items() if name != "onehop")
        assert all(len(own["rounds"]) == 2 and own["share of peak"] > 0 for own in row["systems"].values())
        for times in row["start"].values():
            assert list(times.values()) == sorted(times.values())
            assert list(times) == ["imports", "step 1", "step 2", "step 3"]
    assert found["shapes"]["prenorm"]["model"]["norm"] == "pre"
    assert "start, warm caches" in capsys.readouterr().out


def test_a_shape_in_the_file_is_skipped_and_a_failed_one_tried_again(benchmark, in_this_process, tmp_path, monkeypatch):
    command = ["--tiny", "-o", str(tmp_path / "shapes.json"), "--shapes", "decoder"]
    benchmark.main(command)
    in_this_process.clear()

    def never_ends(*_, timeout, **__):
        raise subprocess.TimeoutExpired("", timeout)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", never_ends)
        benchmark.main([*command, "encoder", "--limit", "9"])
    assert json.loads((tmp_path / "shapes.json").read_text())["failed"] == {"encoder": "not done after 9 s"}
    benchmark.main([*command, "encoder"])
    assert in_this_process == [("encoder", "cold"), ("encoder", "race")]
    found = json.loads((tmp_path / "shapes.json").read_text())
    assert (list(found["shapes"]), found["failed"]) == (["decoder", "encoder"], {})
    with pytest.raises(SystemExit, match="other settings"):
        benchmark.main([*command, "--peer-mode", "max-autotune"])


def test_a_failed_peer_does_not_affect_other_figures(benchmark, in_this_process, tmp_path, monkeypatch):
    def broken(settings, vocabulary):
        raise RuntimeError("not here")

    monkeypatch.setattr(benchmark, "peers_of", lambda s: {"works": importlib.import_module("peers").GPT2, "b": broken})
    benchmark.main(["--tiny", "-o", str(tmp_path / "shapes.json"), "--shapes", "decoder", "--no-warm"])
    assert in_this_process == [("decoder", "race")]
    row = json.loads((tmp_path / "shapes.json").read_text())["shapes"]["decoder"]
    assert list(row["systems"]) == ["onehop", "works"]
    assert list(row["start"]) == ["cold"]
    assert row["failed peers"] == {"b": "RuntimeError('not here')"}


def test_lengths_come_from_a_store(benchmark, monkeypatch):
    """Models of one stack get texts without sources, none longer than the model's positions."""
    stored = Pairs(*(side_from_lists([[9] * n for n in side], id_type(16_000)) for side in ((3, 5, 300), (4, 6, 2))))
    opened = SimpleNamespace(pairs={"train": stored}.get)
    monkeypatch.setattr(benchmark, "Store", SimpleNamespace(open={Path("store"): opened}.get))
    asked = benchmark.parsed(["--store", "store", "-o", "x.json"])
    for shape, expected in (("student", [(3, 4), (5, 6), (255, 2)]), ("decoder", [(0, 2), (0, 4), (0, 6)])):
        settings = benchmark.settings_of(shape, asked)
        pairs = benchmark.pairs_of(settings, asked)
        assert sorted(zip(pairs.src_lengths.tolist(), pairs.tgt_lengths.tolist(), strict=True)) == expected
        assert max(pairs.target.ids) < settings.tokenizer.vocab_size


@pytest.mark.parametrize("shape", ["base", "big", "prenorm", "small", "decoder", "encoder", "student"])
def test_peers_have_the_shape(benchmark, shape):
    """Biases, and learned instead of computed positions, are less than 2% of the parameters."""
    settings = benchmark.settings_of(shape, benchmark.parsed(["-o", "x.json"]))
    vocabulary = settings.tokenizer.vocab_size
    with torch.device("meta"):
        own = parameter_count(model_for(settings.model, vocabulary))
        for name, make in benchmark.peers_of(settings.model).items():
            assert abs(parameter_count(make(settings.model, vocabulary)) / own - 1) < 0.02, name


@pytest.mark.slow
def test_each_part_has_a_process_of_its_own(tmp_path):
    out = tmp_path / "shapes.json"
    command = [sys.executable, str(FOLDER / "gpu_shapes.py"), "--tiny", "--shapes", "decoder", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    start = json.loads(out.read_text())["shapes"]["decoder"]["start"]
    assert 0 < start["cold"]["imports"] < start["cold"]["step 1"]
