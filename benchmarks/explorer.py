"""Measure the explorer: a trace of a 12-word sentence, the page's file, and the first picture in the browser.

    python benchmarks/explorer.py [-m MODEL] [--threads N] [--rounds 9] [--page] [-o results/explorer.json]

Without -m, the model has the paper's base shape with 16,000 tokens and random weights. Source and output have 16
tokens, about what 12 English words and their German translation need. The results are medians of wall and CPU
seconds; the first trace of a process, which includes one-time work, is listed separately. --page opens the page in
Chromium, served and as a file. The browser's clock times the first picture, from the start of the navigation to the
frame that shows a figure. An outside driver would see that frame later, once the page is idle.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from random_models import endless_base, random_words

from onehop.decoding import engine
from onehop.experiments.provenance import machine
from onehop.explorer.content import Explorer
from onehop.interpret.tracer import Tracer
from onehop.storage.model_io import write_model
from onehop.text.tokenizer import Tokenizer

SENTENCE = "The animal didn't cross the street because it was much too tired."
TOKENS = 15  # and EOS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", help="a model file or an installed model")
    parser.add_argument("--threads", type=int, help="torch's threads. Default: torch's choice")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--page", action="store_true", help="also open the page in Chromium")
    parser.add_argument("-o", "--out", type=Path)
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("ONEHOP_CACHE", folder)
        tracer, text = (Tracer.load(asked.model), SENTENCE) if asked.model else random_tracer(Path(folder))
        found = {"trace": trace_times(tracer, text, asked.rounds)}
        if asked.page:
            found["page"] = page_times(Explorer(tracer, text), text, Path(folder), asked.rounds)
    for name, times in found.items():
        for what, value in times.items():
            print(
                f"{name:<6} {what:<24} {value:,.3f}" if isinstance(value, float) else f"{name:<6} {what:<24} {value:,}"
            )
    if asked.out:
        made = {"machine": machine(), "threads": torch.get_num_threads(), "rounds": asked.rounds, "model": tracer.name}
        asked.out.write_text(json.dumps({**made, **found}, indent=1) + "\n")


def random_tracer(folder: Path) -> tuple[Tracer, str]:
    """Return an endless model of the base shape, and a text of this many tokens."""
    engine.MORE_THAN_SOURCE = 1
    stored = endless_base()
    write_model(folder / "base.safetensors", stored)
    return Tracer.load(folder / "base.safetensors", "cpu"), text_of(Tokenizer(stored.tokenizer), random_words())


def text_of(tokenizer: Tokenizer, words: list[str]) -> str:
    """Return the first words that make exactly this many tokens."""
    texts = (" ".join(words[i : i + n]) for i in range(0, len(words), 12) for n in range(1, 12))
    return next(text for text in texts if len(tokenizer.encode(text)) == TOKENS)


def trace_times(tracer: Tracer, text: str, rounds: int) -> dict[str, float | int]:
    began = time.perf_counter()
    first = tracer.trace(text)
    times = {"first trace, s": time.perf_counter() - began}
    totals, searches, packing, cpu = [], [], [], []
    for _ in range(rounds):
        began = time.process_time()
        trace = tracer.trace(text)
        cpu.append(time.process_time() - began)
        totals.append(trace.header["seconds"]["total"])
        searches.append(trace.header["seconds"]["search"])
        began = time.perf_counter()
        size = len(trace.to_json())
        packing.append(time.perf_counter() - began)
    medians = {"trace, s": totals, "trace, CPU s": cpu, "  of it the search, s": searches, "as JSON, s": packing}
    counted = {"source tokens": len(first.header["source"]["ids"]), "steps": len(first.header["steps"]), "bytes": size}
    return times | {name: statistics.median(found) for name, found in medians.items()} | counted


def page_times(explorer: Explorer, text: str, folder: Path, rounds: int) -> dict[str, float | int]:
    """Return the page's size and the seconds to its first figure."""
    from browser import chromium, served

    began = time.perf_counter()
    html = explorer.alone(text)
    times: dict[str, float | int] = {"made with 12 edits, s": time.perf_counter() - began, "bytes": len(html.encode())}
    (folder / "page.html").write_text(html, encoding="utf-8")
    with served(explorer) as served_at, chromium() as browser:
        for home, address in {"served": served_at, "from a file": f"file://{folder}/page.html"}.items():
            found = [first_picture(browser, address) for _ in range(rounds)]
            times[f"first picture {home}, s"] = statistics.median(found)
    return times


# Runs before the page: waits for a figure with a picture in it, then for the end of the frame that shows it.
WATCH = """new MutationObserver((_, observer) => {
    if (!document.querySelector("figure svg *")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => (document.documentElement.dataset.firstPicture = performance.now())));
}).observe(document, { childList: true, subtree: true });"""


def first_picture(browser: object, address: str) -> float:
    """Time the first picture of a new page."""
    page = browser.new_page()
    page.add_init_script(WATCH)
    page.goto(address, wait_until="commit")
    shown = page.wait_for_selector("html[data-first-picture]", state="attached")
    milliseconds = float(shown.get_attribute("data-first-picture"))
    page.close()
    return milliseconds / 1000


if __name__ == "__main__":
    main()
