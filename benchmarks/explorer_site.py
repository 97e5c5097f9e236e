"""Compare the static site with the torch engine: translations, tensors, and how long a visitor waits.

    python benchmarks/explorer_site.py [-m en-de] [--sentences 50] [-o results/explorer_site.json]

Sentences are spread evenly over everyday.tsv. The site's JavaScript in Chromium, with the network cut, and the
torch engine translate each. All tensors of the first five are compared. An error is relative to the tensor's
largest magnitude if that is above 1. The browser's clock gives the times, from the start of the navigation, with a
static server on the same machine. There is a first visit, and one with the model in the browser's cache.
`translation` and `figures` are those of the stored example; `own_translation` is a sentence that the model
translates.
"""

import argparse
import functools
import http.server
import json
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
from browser import chromium

from onehop.experiments.provenance import machine
from onehop.explorer.content import Explorer
from onehop.explorer.site import write_site
from onehop.interpret import tracer as tracing
from onehop.interpret.trace_file import unpack
from onehop.interpret.tracer import Tracer
from onehop.storage.registry import find_model

COMPARED = 5
LONG = " ".join(["The animal didn't cross the wide street because it was much too tired to walk any further."] * 5)
SWEPT = "The animal didn't cross the street because it was too tired."
CLOCK = """
const times = (window.times = {});
new MutationObserver(() => {
  if (document.documentElement.dataset.model === "ready") times.model ??= performance.now() / 1000;
  if (document.querySelector(".answer[data-sentence]")) times.translation ??= performance.now() / 1000;
  if (document.querySelector("#page[data-ready]")) times.figures ??= performance.now() / 1000;
}).observe(document, { attributes: true, childList: true, subtree: true });
"""
ASK = """async ([text, tensors]) => {
  const { blob, seconds, target, ...rest } = await window.onehop.view().backend.trace(text, []);
  return { seconds, target, tensors: rest.tensors, blob: tensors ? blob.toBase64() : null };
}"""
FIRST = """async (text) => {
  await window.onehop.view().backend.trace(text, []);
  return performance.now() / 1000;
}"""
SWEEP = """async (text) => {
  const { backend } = window.onehop.view();
  await backend.trace(text, []);
  const began = performance.now();
  await backend.heads(text, [], { onPart: () => {} });
  return (performance.now() - began) / 1000;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """`python -m http.server` without a log."""

    def log_message(self, *_) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="en-de")
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("-o", "--out", type=Path)
    asked = parser.parse_args()
    lines = Path(__file__).with_name("everyday.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = [line.split("\t")[1] for line in lines[:: len(lines) // asked.sentences]][: asked.sentences]
    tracing.compact = lambda name, values: values  # float32, as the browser has them
    path = find_model(asked.model)
    tracer = Tracer.load(path, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        size = write_site(Explorer(tracer), path, Path(folder) / "site")
        visited = visit(Path(folder) / "site", texts)
    result = {
        "model": {"name": asked.model, "hash": tracer.hash},
        "machine": machine(),
        "load": os.getloadavg(),
        "site_bytes": size,
        **visited["times"],
        "translations": compared(tracer, texts, visited["found"]),
        "tensors": errors(tracer, texts[:COMPARED], visited["found"]),
    }
    for name, value in result.items():
        print(name, value if name != "translations" else {k: v for k, v in value.items() if k != "sentences"})
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def visit(site: Path, texts: list[str]) -> dict:
    """Measure two visits, and trace every sentence with the network cut."""
    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_init_script(CLOCK)
        page = context.new_page()
        page.set_default_timeout(300_000)
        times = {}
        for name in ("first_visit", "second_visit"):
            page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
            page.wait_for_selector("#page[data-ready]")
            own = page.evaluate(FIRST, texts[0])
            times[name] = {**page.evaluate("window.times"), "own_translation": own}
        context.set_offline(True)
        found = [page.evaluate(ASK, [text, i < COMPARED]) for i, text in enumerate(texts)]
        times["heads_seconds"] = page.evaluate(SWEEP, SWEPT + " ")  # the space avoids the stored example
        times["words_85_seconds"] = page.evaluate(ASK, [LONG, False])["seconds"]
        server.shutdown()
    return {"times": times, "found": found}


def compared(tracer: Tracer, texts: list[str], found: list[dict]) -> dict:
    """Count translations equal to the torch engine's, and compare their scores."""
    translator = tracer.translator
    ids = [translator.tokenizer.encode(text) for text in texts]
    options, engine = translator.with_defaults(None), translator.reference
    best = [engine.translate([own], options, [0])[0][0] for own in ids]
    rows = [
        {
            "source": text,
            "browser": here["target"]["text"],
            "torch": translator.tokenizer.decode(there.ids),
            "same": tuple(here["target"]["ids"]) == there.ids,
            "score_difference": abs(here["target"]["score"] - there.score),
            "seconds": here["seconds"],
        }
        for text, here, there in zip(texts, found, best, strict=True)
    ]
    seconds = sorted(row["seconds"]["search"] for row in rows)
    return {
        "of": len(rows),
        "same": sum(row["same"] for row in rows),
        "largest_score_difference": max(row["score_difference"] for row in rows),
        "median_search_seconds": seconds[len(seconds) // 2],
        "median_total_seconds": sorted(row["seconds"]["total"] for row in rows)[len(rows) // 2],
        "sentences": rows,
    }


def errors(tracer: Tracer, texts: list[str], found: list[dict]) -> dict:
    """Return the largest relative error of a tensor and the number of tensors."""
    worst, name_of_worst, count = 0.0, "", 0
    for text, here in zip(texts, found, strict=False):
        trace = tracer.trace(text)
        tensors = unpack(here)
        assert tensors.keys() == set(trace)
        for name, tensor in tensors.items():
            expected = trace[name].astype(float)
            there = np.isfinite(expected)
            assert np.array_equal(there, np.isfinite(tensor.values)), name
            error = np.abs(tensor.values[there] - expected[there]).max() / max(1.0, np.abs(expected[there]).max())
            count += 1
            if error > worst:
                worst, name_of_worst = float(error), name
    return {"compared": count, "largest_error": worst, "in": name_of_worst}


if __name__ == "__main__":
    main()
