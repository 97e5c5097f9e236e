"""Table 1: time and memory of each kind of layer."""

import math

import pytest
import torch
from command_line import onehop
from torch import nn

from onehop.experiments import table1

PATHS = {"paths": {"rows": [{"distance": d, "attention": 1.0, "recurrent": 0.1, "lstm": 0.2} for d in (1, 4, 16, 64)]}}


def test_power_finds_the_exponent_of_a_power_law():
    assert table1.power([(n, 3 * n**1.7) for n in (64, 128, 512)]) == pytest.approx(1.7)
    assert table1.power([(64, 0.0), (128, 0.0)]) is None
    assert table1.power([(64, 1.0)]) is None


def test_a_crossing_is_the_last_point_where_the_ratio_passes_one():
    assert table1.crossing([(64, 0.25), (128, 0.5), (256, 2.0)]) == pytest.approx(math.sqrt(128 * 256))
    assert table1.crossing([(64, 0.1), (128, 0.9)]) is None
    assert table1.crossing([(64, 2.0), (128, 3.0)]) == 64
    assert table1.crossing([(64, 2.0), (128, 0.5), (256, 2.0)]) == pytest.approx(math.sqrt(128 * 256))


def test_only_the_spelled_out_attention_keeps_its_scores():
    x = torch.randn(1, 64, 32)
    layers = table1.layers_of(32)
    torch.testing.assert_close(layers["spelled_out"](x), layers["self_attention"](x), rtol=0, atol=1e-5)
    scores = table1.synthetic.HEADS * 64 * 64 * 4
    assert table1.kept_bytes(layers["spelled_out"], x) >= 2 * scores
    assert table1.kept_bytes(layers["self_attention"], x) < scores


def test_kept_bytes_excludes_input_and_weights():
    linear = nn.Linear(8, 8)
    assert table1.kept_bytes(linear, torch.randn(4, 8)) == 0
    assert table1.kept_bytes(lambda x: linear(x).relu().square(), torch.randn(4, 8)) == 4 * 8 * 4


def rows_with_the_papers_growth() -> list[dict]:
    found = []
    for d in (64, 128):
        for n in (64, 128, 256):
            costs = {name: float(n**p * d**q) for name, (_, _, p, q, _) in table1.PAPER.items()}
            found.append({"n": n, "d": d, "seconds": costs, "bytes": {k: int(v) for k, v in costs.items()}})
    return found


def test_growth_and_crossings_find_the_papers_exponents():
    rows = rows_with_the_papers_growth()
    for name, found in table1.growth(rows).items():
        _, _, p, q, _ = table1.PAPER[name]
        assert [found[key] for key in ("time_n", "time_d")] == pytest.approx([p, q])
    # n² d against n d²: the same at n = d.
    places = {c["d"]: c["n"] for c in table1.crossings(rows) if c["against"] == "lstm"}
    assert places == pytest.approx({64: 64, 128: 128})


def test_the_table_shows_exponents_crossings_and_paths():
    rows = rows_with_the_papers_growth()
    found = {"rows": rows, "n": [64, 128, 256], "d": [64, 128], "growth": table1.growth(rows)}
    found |= {"crossings": list(table1.crossings(rows)), **PATHS}
    text = table1.table_text(found)
    assert "| recurrent, LSTM | O(n·d²) | n^1.00 · d^2.00 | n^1.00 · d^2.00 | O(n) |" in text
    assert "| recurrent, GRU | 64 | 128 |" in text
    assert "| lstm | 2.0e-01 | 2.0e-01 | 2.0e-01 | 2.0e-01 |" in text
    assert len(table1.picture(found).axes) == 3


def test_a_small_table_1_has_positive_times_and_the_expected_memory_growth(monkeypatch):
    monkeypatch.setattr(table1.synthetic, "paths", lambda: PATHS["paths"])
    before = torch.get_num_threads()
    found = table1.table1((64, 128), (64, 128), repeats=1)
    assert len(found["rows"]) == 4
    assert all(cost > 0 for row in found["rows"] for cost in row["seconds"].values())
    assert found["growth"]["spelled_out"]["memory_n"] == pytest.approx(2.0, abs=0.1)
    assert found["growth"]["self_attention"]["memory_n"] == pytest.approx(1.0, abs=0.1)
    assert torch.get_num_threads() == before


def test_the_command_prints_the_table_and_writes_it_to_the_output_folder(tmp_path, monkeypatch):
    rows = rows_with_the_papers_growth()
    found = {"rows": rows, "n": [64, 128, 256], "d": [64, 128], "growth": table1.growth(rows)}
    found |= {"crossings": list(table1.crossings(rows)), **PATHS}
    monkeypatch.setattr(table1, "table1", lambda *_: found)
    monkeypatch.chdir(tmp_path)
    alone = onehop("paper", "table1")
    assert (alone.exit_code, alone.stderr) == (0, "")
    assert alone.stdout == table1.table_text(found) + "\n"
    assert list(tmp_path.iterdir()) == []
    kept = onehop("paper", "table1", "-o", "here")
    assert kept.stdout == alone.stdout + "here/table1.json\nhere/table1.md\nhere/table1.svg\n"
    assert (tmp_path / "here/table1.md").read_text(encoding="utf-8") == table1.table_text(found)
