"""The tables of docs/results/ equal the raw files in results/."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pymdownx.slugs import slugify

from onehop.storage.registry import SMALL

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "results"
MODELS = ["en-de", f"en-de{SMALL}", "de-en", "en-fr", "fr-en"]
SETS = {
    "newstest2014": "newstest2014, news",
    "newstest2013": "newstest2013, news (validation)",
    "tatoeba-test": "Tatoeba test, everyday sentences",
    "europarl-test": "Europarl test, parliament",
    "multi30k-test2016": "Multi30k test2016, captions (zero-shot)",
}


def raw(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def rounded(shown: str, value: float) -> bool:
    """Whether a cell is the value rounded to its last digit. A rounded raw value may lie exactly between two."""
    digits = len(shown.partition(".")[2])
    return abs(float(shown) - value) <= 0.5 * 10**-digits + 1e-9


def missing(rows: Iterator[str], text: str) -> list[str]:
    """Rows that are missing on a page. Bold type is ignored."""
    expected = list(rows)
    assert expected
    return [line for line in expected if line not in text.replace("**", "")]


def test_the_overviews_figures_stand_in_the_sections_that_it_links():
    link = r"^\| ([^|]+) \| ([^|]*\d[^|]*) \| \[[^]]+\]\(([\w./-]+)#([\w-]+)\) \|$"
    claims = re.findall(link, page("index"), re.M)
    assert len(claims) >= 15
    slug = slugify(case="lower")
    for claim, figures, file, anchor in claims:
        sections = re.split(r"^(?=#{2,3} )", (PAGES / file).read_text(encoding="utf-8"), flags=re.M)
        (found,) = [part for part in sections if slug(part.splitlines()[0].lstrip("# "), "-") == anchor]
        numbers = re.findall(r"\d[\d,.]*\d|\d", figures)
        assert [number for number in numbers if number not in found] == [], claim


# --- translation quality ---


def section(model: str) -> str:
    return re.split(r"^## ", page("translation-quality"), flags=re.M)[1:][MODELS.index(model)]


def with_interval(score: dict[str, Any]) -> str:
    return f"{score['score']['value']:.1f} ± {score['score']['interval']['plus_minus']:.1f}"


@pytest.mark.parametrize("model", MODELS)
def test_the_scores_equal_the_reports(model):
    lines = section(model).splitlines()
    for name, label in SETS.items():
        report = raw(f"{model}/{name}.json")
        (shown,) = [line.strip("| ").split(" | ") for line in lines if line.startswith(f"| {label} |")]
        assert shown[1] == f"all {report['sentences']:,}"
        assert shown[2] == with_interval(report["scores"]["bleu_13a"])
        assert shown[-1] == with_interval(report["scores"]["chrf"])
        if model == "en-de":
            assert shown[4] == with_interval(report["scores"]["bleu_compounds"])
        if model.endswith(SMALL):
            scores = [raw(f"{m}/{name}.json")["scores"]["bleu_13a"]["score"]["value"] for m in ("en-de", model)]
            assert shown[3:5] == [f"{scores[0]:.1f}", f"{scores[0] - scores[1]:.2f}"]


@pytest.mark.parametrize("model", [model for model in MODELS if not model.endswith(SMALL)])
def test_the_choice_of_alpha_equals_the_raw_file(model):
    table: dict[tuple[int, float], list[float]] = {}
    for line in (ROOT / "results" / model / "alpha.jsonl").read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        table.setdefault((found["beam"], found["alpha"]), []).append(found["bleu"])
    searches = {1: ", greedy", 4: "", 8: ", beam 8"}
    lines = [line.replace("**", "").strip("| ").split(" | ") for line in section(model).splitlines()]
    shown = {name: cells for name, *cells in lines if name.startswith("α = ") and len(cells) == 3}
    assert len(shown) >= 5
    for (beam, alpha), scores in table.items():
        if cells := shown.pop(f"α = {alpha or 0}{searches[beam]}", None):
            assert all(map(rounded, cells, scores)), cells
    assert shown == {}


@pytest.mark.parametrize(("model", "column"), [("en-de", "this model"), ("de-en", ""), ("en-fr", ""), ("fr-en", "")])
def test_the_ratings_of_everyday_inputs_equal_the_raw_file(model, column):
    header, *lines = [
        line.split("\t") for line in (ROOT / f"results/{model}/everyday.tsv").read_text(encoding="utf-8").splitlines()
    ]
    place = header.index(column) + 1 if column else header.index("rating")
    ratings = [line[place] for line in lines]
    assert len(ratings) == 200
    counts = [ratings.count(name) for name in ("adequate", "minor", "serious")]
    assert sum(counts) == 200
    numbers = [int(number) for number in re.findall(r"\b\d+\b", section(model).split("Everyday inputs")[1])]
    assert any(numbers[i : i + 3] == counts for i in range(len(numbers))), counts


def test_the_alignment_table_equals_the_raw_file():
    news, europarl = raw("alignments.json").values()
    layers = [f"written, layer {layer}, mean" for layer in range(6)]
    rows = (
        row(f"{i + 1}, the default" if i == 4 else i + 1, *(f"{100 * found[key]:.1f}" for found in (news, europarl)))
        for i, key in enumerate(layers)
    )
    assert missing(rows, page("translation-quality")) == []


@pytest.mark.parametrize("pair", ["en-de", "de-en", "en-fr", "fr-en"])
def test_the_table_of_missing_numbers_equals_the_raw_file(pair):
    news13, news14, tatoeba = raw(f"numbers/{pair}.json").values()
    caught, changed = (sum(found[key] for found in (news13, news14, tatoeba)) for key in ("caught", "changed"))
    warned = [news13["warned"], news14["warned"], f"{tatoeba['warned']} of {tatoeba['sentences']:,}"]
    expected = row(pair.replace("-", " → "), *warned, f"{caught} of {changed}")
    assert missing([expected], page("translation-quality")) == []


def test_the_table_of_confidence_equals_the_raw_files():
    rows = []
    for model in ("en-de", "de-en", "en-fr", "fr-en"):
        report = raw(f"confidence/{model}.json")
        for name, label in (("newstest2014", "newstest2014"), ("tatoeba-test", "Tatoeba")):
            found = report[f"{model}-{name}"]
            shares = [f"{100 * found[key]:.1f}%" for key in ("right", "right_of_sure", "right_of_others")]
            fits = [f"{found[key]:.3f}" for key in ("area_under_roc", "area_of_least_token", "calibration_error")]
            rows.append(
                row(f"`{model}`, {label}", f"{found['sentences']:,}", shares[0], found["sure"], *shares[1:], *fits)
            )
    assert missing(rows, page("translation-quality")) == []


def test_the_table_of_terms_and_names_equals_the_raw_file():
    found = raw("faithful/en-de.json")
    terms, heldout, names, others = (found[key] for key in ("terms", "heldout", "names", "names_heldout"))
    shown = page("translation-quality").split("## Terms, names and formality")[1].split("<details>")[0]
    ends = [
        row(f"{terms['before']} (best of the beam)", f"{terms['met']}, and none loops"),
        row(f"{heldout['before']} (best of the beam)", f"{heldout['met']}, and none loops"),
        row(names["kept_before"], names["kept"]),
        row(others["kept_before"], others["kept"]),
        row("", found["short"]["right"]).replace("|  |", "| |"),
    ]
    assert missing((end[1:] for end in ends), shown) == []
    assert terms["looped"] == heldout["looped"] == 0


@pytest.mark.parametrize("model", ["de-en", "en-fr", "fr-en"])
def test_the_terms_and_names_of_other_directions_equal_the_raw_files(model):
    terms, names = (raw(f"faithful/{model}.json")[key] for key in ("terms", "names_sample"))
    assert terms["sentences"] == 100
    assert names["names"] == 167
    expected = row(f"`{model}`", f"{terms['before']}, {terms['met']}", f"{names['kept_before']}, {names['kept']}")
    assert missing([expected], page("translation-quality")) == []


def test_the_multi30k_scores_equal_the_raw_file():
    summary = raw("multi30k/results.json")["summary"]
    keys = ["BLEU 13a", "BLEU 13a lowercased", "BLEU tokenised", "BLEU tokenised lowercased", "chrF2++"]
    scores = [summary[f"test2016 {key}"] for key in keys]
    assert (
        missing([row("mean ± standard deviation", *scores, summary["val BLEU 13a"])], page("translation-quality")) == []
    )


# --- translation speed ---


def test_the_speed_of_a_file_equals_the_raw_file():
    names = {
        "onehop": "`onehop translate --whole-lines -i FILE -o OUT`",
        "ctranslate2-readme": "CTranslate2 as its README has it",
        "ctranslate2-tuned": "CTranslate2 tuned by hand",
    }
    rows = (
        row(
            names[name],
            f"{found['tokens/s']:,.0f}",
            f"{found['tokens/CPU s']:.0f}",
            f"{found['MB']:.0f}",
            f"{found['BLEU']:.2f}",
        )
        for name, found in raw("decode_file.json")["rows"].items()
    )
    assert missing(rows, page("translation-speed")) == []


def test_the_speed_of_a_sample_in_float32_equals_the_raw_file():
    (turn,) = raw("decode_sample.json")["turns"]
    shown = page("translation-speed").split("on every fiftieth line")[1].split("</details>")[0]
    rows = re.findall(r"^\| \D.+ \| ([\d.]+) \| ?([\d.]*) ?\| ([\d,]+) \| ([\d.]+) \|$", shown, re.M)
    assert len(rows) == len(turn)
    for (seconds, times, megabytes, bleu), run in zip(rows, turn.values(), strict=True):
        assert rounded(seconds, run["cpu_seconds"])
        assert not times or rounded(times, run["cpu_seconds"] / turn["onehop"]["cpu_seconds"])
        assert rounded(megabytes.replace(",", ""), run["megabytes"])
        assert rounded(bleu, run["bleu"])


def test_bleu_against_speed_equals_the_raw_file():
    found = raw(f"en-de{SMALL}/decode_file.json")
    seconds = {name: median(turn[name]["cpu_seconds"] for turn in found["turns"]) for name in found["rows"]}
    tuned = seconds["ctranslate2-tuned"]
    shown = page("translation-speed")
    ends = (
        row(
            f"{seconds[name]:.1f}",
            "" if name == "ctranslate2-tuned" else f"{tuned / seconds[name]:.2f}",
            f"{run['MB']:.0f}",
            f"{run['BLEU']:.2f}",
        ).replace("|  |", "| |")
        for name, run in found["rows"].items()
    )
    assert missing(ends, shown) == []
    assert f"translates a file {tuned / seconds['onehop-small-greedy']:.1f} times as fast as CTranslate2" in shown
    beam, greedy = (
        ", ".join(f"{turn[full]['cpu_seconds'] / turn[small]['cpu_seconds']:.1f}" for turn in found["turns"])
        for full, small in (("onehop", "onehop-small"), ("onehop-greedy", "onehop-small-greedy"))
    )
    assert f"gave {beam} with beam 4 and {greedy} greedily" in " ".join(shown.split())


def test_the_speed_of_fixed_lengths_equals_the_raw_file():
    columns = ["onehop int8", "CTranslate2 int8", "onehop float32", "CTranslate2 float32", "onehop torch"]
    rows = (
        row(
            name.replace("beam 1", "greedy"),
            *(f"{1000 * median(found[column]):,.0f}" for column in [*columns, "Hugging Face float32"]),
        )
        for name, found in raw("decode_speed.json")["cpu_seconds"].items()
    )
    assert missing(rows, page("translation-speed")) == []


def test_the_speed_on_a_gpu_equals_the_raw_file():
    table = page("translation-speed").replace("**", "").split("## On a GPU")[1].split("    python benchmarks")[0]
    for name, found in raw("gpu/decode.json")["rows"].items():
        ms, times, spread = found["median_milliseconds"], found["times_as_fast"], found["spread"]
        (line,) = [line for line in table.splitlines() if line.startswith(f"| {name.replace('beam 1', 'greedy')} |")]
        _, half, share, peer_half, faster_half, full, peer_full, faster_full = line.strip("| ").split(" | ")
        assert share == f"{spread['onehop bfloat16']:.0%}"
        for dtype, ours, peer, faster in (
            ("bfloat16", half, peer_half, faster_half),
            ("float32", full, peer_full, faster_full),
        ):
            assert rounded(ours, ms[f"onehop {dtype}"])
            assert rounded(peer, ms[f"Hugging Face {dtype}"])
            assert rounded(faster, times[f"onehop {dtype}"])


def test_the_start_equals_the_raw_files():
    rows = []
    for file, model in (
        ("start_up.json", "`en-de`"),
        (f"en-de{SMALL}/start_up.json", f"`en-de{SMALL}`"),
    ):
        found = raw(file)
        bare, ours = found["rows"]["ctranslate2"], found["rows"]["onehop"]
        rows.append(row(f"the bare script, {model}", f"{bare['cpu_seconds']:.3f}", "", f"{bare['megabytes']:.0f}"))
        rows.append(
            row(
                f"`onehop translate`, {model}",
                f"{ours['cpu_seconds']:.3f}",
                f"{found['ratio']:.2f}",
                f"{ours['megabytes']:.0f}",
            )
        )
    assert missing((line.replace("|  |", "| |") for line in rows), page("translation-speed")) == []


def test_the_cost_of_ray_equals_the_raw_file():
    found = raw("ray_overhead.json")
    rows = [
        row(f"`onehop translate{option}`", f"{part['cpu_seconds']:.1f}", f"{part['start_seconds']:.1f}")
        for option, part in (("", found["plain"]), (" --ray local", found["ray"]))
    ]
    assert missing(rows, page("translation-speed")) == []
    assert f"takes {100 * found['overhead']['cpu_seconds']:.1f}% more CPU seconds" in page("translation-speed")


def test_the_load_of_a_server_equals_the_raw_file():
    good, bad = (raw("serve_load.json")[key] for key in ("good clients", "with bad clients"))
    both = [
        [f"{run['times the offline cost']:.2f}" for run in (good, bad)],
        [f"{run['wrong']}, {run['refused']}" for run in (good, bad)],
        [f"{run['sentences a second']:.1f}" for run in (good, bad)],
        [", ".join(f"{run[key] / 1000:.1f}" for key in ("p50 ms", "p95 ms", "p99 ms")) + " s" for run in (good, bad)],
        [f"{run['sentences a batch']:.0f}" for run in (good, bad)],
    ]
    assert missing((row("", *cells).removeprefix("| ") for cells in both), page("translation-speed")) == []


def test_the_times_of_threads_equal_the_raw_file():
    run = raw("threads.json")["runs"][0]
    shown = page("translation-speed")
    for name, label in (("one thread", "1"), ("two threads, spinning", "2"), ("two threads, passive", "2, passive")):
        (cells,) = re.findall(rf"^\| {label} \| ([\d.]+) \| ?([\d.]*) ?\|$", shown, re.M)
        assert rounded(cells[0], run["median"][name])
        assert not cells[1] or rounded(cells[1], run["ratio to one thread"][name])


# --- training speed ---


def test_the_training_speed_equals_the_raw_files():
    found = raw("gpu/train.json")
    peak = found["ceilings"]["tflops"]
    rows = []
    for name, step in found["steps"].items():
        rate = round(step["target tokens/s"], -3)
        ratio = (
            f"{found['steps']['onehop']['target tokens/s'] / step['target tokens/s']:.2f}" if name != "onehop" else ""
        )
        rows.append(row(name, f"{rate:,.0f}", f"{step['ms a step']:.1f}", f"{step['tflops'] / peak:.2f}", ratio))
    assert missing((line.replace("|  |", "| |") for line in rows), page("training-speed")) == []
    rates = raw("train_speed.json")["median"]
    ours = {name: "onehop" + ", bfloat16" * name.endswith("bfloat16") for name in rates}
    ends = (
        f"| {rate:,.0f} | " + (f"{rates[ours[name]] / rate:.2f} |" if name != ours[name] else "|")
        for name, rate in rates.items()
    )
    assert missing(ends, page("training-speed")) == []
    assert f"{rates['onehop, bfloat16'] / rates['onehop']:.1f} times as fast as in float32" in page("training-speed")


# --- exactness and robustness ---


def test_the_table_of_giants_equals_the_raw_file():
    text = page("exactness").split("## Short requests beside giants")[1].split("<details>")[0]
    kinds = raw("serve_giants.json")["kinds"]
    shown = re.findall(r"^\| ([^|]+) \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \|$", text, re.M)
    assert len(shown) == len(kinds)
    for label, *cells in shown:
        found = max((kind for kind in kinds if kind in label), key=len)
        beside = [kinds[found]["beside giants"][key] for key in ("p50", "p95", "worst")]
        assert all(map(rounded, cells, [*beside, kinds[found]["alone"]["p95"]])), label


def test_the_attacks_equal_the_raw_files():
    shown = page("exactness")
    files, fuzz, crowd = (raw(f"chaos/{name}.json") for name in ("files", "http_fuzz", "crowd"))
    for text in (
        f"{files['model']['mutants']:,} | {files['model']['refused']:,} refused in one line",
        f"{files['model']['unchanged']} unchanged, {files['model']['translates']} other settings",
        f"{files['folder']['refused']:,} refused in one line, {files['folder']['unchanged']} unchanged",
        f"in full: {fuzz['requests']:,} | no 500",
        f"{crowd['requests']:,} requests with {crowd['sentences']:,} sentences answered",
        f"{crowd['misbehaved']:,} times",
    ):
        assert text in shown
    assert "500" not in fuzz["statuses"]
    assert crowd["wrong"] == crowd["refused"] == 0


def test_the_table_of_batches_equals_the_raw_file():
    found = raw("agreement_ctranslate2.json")
    columns = [
        [found[search][f"ctranslate2 {dtype}, {batch}"] for batch in ("by 7", "by 64", "by 64, shuffled")]
        for dtype, search in (("int8", "beam 4"), ("int8", "greedy"), ("float32", "beam 4"))
    ]
    differ = [", ".join(str(run["differ"]) for run in column) for column in columns]
    largest = [max(run["score"] for run in column) for column in columns]
    rows = [
        row("translations that differ: calls of 7, of 64, of 64 shuffled", *differ),
        row(
            "largest difference of a score", *(f"{score:.1e}".replace("e-0", "e-") if score else 0 for score in largest)
        ),
    ]
    assert missing(rows, page("exactness")) == []


# --- the paper's tables ---


@pytest.mark.parametrize("name", ["paper/table1", "paper/heads", "table3/table3"])
def test_the_papers_tables_equal_the_generated_ones(name):
    table = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert missing(rows, page("paper-tables")) == []
