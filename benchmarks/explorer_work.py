"""Measure what a slider step, a hover, the sweep over all heads and a text of 85 words cost the explorer's page.

    OMP_WAIT_POLICY=passive python benchmarks/explorer_work.py [-m en-de] [--steps 8] [-o results/explorer_work.json]

Each figure is scrolled into view in Chromium. Then each of its sliders is moved and some of its words are hovered,
`--steps` times. The cost is the main thread's CPU time from the event to the end of the next frame, by thread ticks of
`Performance.getMetrics`, less that of the same wait without an event. A busy machine hardly changes CPU time. It does
change wall times, so the load is written beside each result. The sweep and the long text have the server's CPU seconds
too. Each result is printed and written to -o at once. The same command with the same -o resumes a stopped run.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from browser import chromium, served

from onehop.atomic import write_json
from onehop.experiments.provenance import machine
from onehop.explorer.content import Explorer
from onehop.interpret.tracer import Tracer

SENTENCE = "The animal didn't cross the street because it was too tired, "
LONG = (SENTENCE + "and the dog that had followed it all day lay down beside it in the grass. ") * 4
LONG = " ".join(LONG.split()[:85])
SETTLE_MS = 200
KINDS = {
    "median_ms": "TaskDuration",
    "script_ms": "ScriptDuration",
    "style_ms": "RecalcStyleDuration",
    "layout_ms": "LayoutDuration",
}
FRAME = """const frame = () => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))));"""
SLIDE = """async ([id, which, step]) => {
  const slider = document.querySelectorAll(`#figure-${id} input[type=range]`)[which];
  const [least, most] = [Number(slider.min || 0), Number(slider.max || 100)];
  const width = Number(slider.step) || 1;
  const places = Math.max(1, Math.round((most - least) / width));
  slider.value = least + width * ((step * 7 + 1) % (places + 1));
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  await frame();
}"""
HOVER = """async ([id, which]) => {
  const words = document.querySelectorAll(`${id} [role=radio][data-index]`);
  words[which % words.length].dispatchEvent(new MouseEvent("mouseenter"));
  await frame();
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="en-de")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--figures", nargs="*", help="figures by name, and answer for the top. Default: all")
    parser.add_argument("-o", "--out", type=Path)
    asked = parser.parse_args()
    results = Results.open(asked.out, {"model": asked.model, "steps": asked.steps})
    explorer = Explorer(Tracer.load(asked.model, "cpu"))
    with served(explorer) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(address)
        page.wait_for_selector("#page[data-ready]")
        measure(page, results, asked)


def measure(page, results: "Results", asked: argparse.Namespace) -> None:
    """Measure what is still missing."""
    work = Work(page, asked.steps)
    names = page.eval_on_selector_all("figure[data-figure]", "all => all.map(f => f.dataset.figure)")
    for name in asked.figures or ["answer", *names]:
        results.add(name, lambda name=name: work.of_figure(name))
    if not asked.figures:
        results.add("sweep", lambda: sweep(page))
        results.add("long_text", lambda: long_text(page))


class Results:
    """Results by name, kept in a file from the first one on."""

    def __init__(self, file: Path | None, found: dict) -> None:
        self.file, self.found = file, found

    @classmethod
    def open(cls, file: Path | None, asked: dict) -> "Results":
        """Read the file's results, if its settings and machine are the same."""
        fresh = {**asked, "machine": machine(), "results": {}}
        if file is None or not file.is_file():
            return cls(file, fresh)
        found = json.loads(file.read_text(encoding="utf-8"))
        if any(found.get(key) != fresh[key] for key in (*asked, "machine")):
            raise SystemExit(f"{file} has other settings or another machine. Give -o another file, or remove it.")
        return cls(file, found)

    def add(self, name: str, measured: Callable[[], dict]) -> None:
        """Measure, print and write a result, unless it exists."""
        if name in self.found["results"]:
            return
        result = {**measured(), "load": round(os.getloadavg()[0], 1)}
        self.found["results"][name] = result
        print(name, json.dumps(result), flush=True)
        if self.file:
            write_json(self.file, self.found)


class Work:
    """The main thread's CPU time of single events."""

    def __init__(self, page, steps: int) -> None:
        self.page, self.steps = page, steps
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.evaluate(f"() => {{ {FRAME} window.frame = frame; }}")

    def metrics(self) -> dict[str, float]:
        return {m["name"]: m["value"] for m in self.session.send("Performance.getMetrics")["metrics"]}

    def spent(self, script: str, argument: list | None = None) -> dict[str, float]:
        """Return the milliseconds of a script and the frame after it, in all and by kind of work."""
        before = self.metrics()
        self.page.evaluate(script, argument)
        after = self.metrics()
        self.settle()
        return {kind: 1000 * (after[metric] - before[metric]) for kind, metric in KINDS.items()}

    def settle(self) -> None:
        """Wait until nothing is left to draw: figures out of view are drawn after a pause."""
        self.page.wait_for_timeout(SETTLE_MS)
        self.page.wait_for_selector("#page[data-ready]")

    def summary(self, script: str, arguments: list[list]) -> dict:
        """Return main-thread milliseconds per event, less the cost of waiting."""
        waits = [self.spent("async () => await frame()") for _ in range(3)]
        waited = {kind: statistics.median(wait[kind] for wait in waits) for kind in KINDS}
        costs = [
            {kind: max(0.0, ms - waited[kind]) for kind, ms in self.spent(script, argument).items()}
            for argument in arguments
        ]
        medians = {kind: round(statistics.median(cost[kind] for cost in costs), 2) for kind in KINDS}
        worst = round(max(cost["median_ms"] for cost in costs), 2)
        return {**medians, "worst_ms": worst, "steps": len(costs)}

    def of_figure(self, name: str) -> dict:
        """Measure a figure's sliders and a hover over its words while it is in view."""
        place = name if name == "answer" else f"figure-{name}"
        element = self.page.locator(f"#{place}")
        element.evaluate("e => e.scrollIntoView({ behavior: 'instant' })")
        self.settle()
        found: dict = {}
        for which in range(element.locator("input[type=range]").count()):
            moves = [[name, which, step] for step in range(self.steps)]
            found[f"slider_{which + 1}"] = self.summary(SLIDE, moves)
        if element.locator("[role=radio][data-index]").count():
            found["hover"] = self.summary(HOVER, [[f"#{place}", step] for step in range(self.steps)])
            self.page.keyboard.press("Escape")
        return found


def sweep(page) -> dict:
    """Every head off in turn for the opening sentence, from the click to the verdict."""
    cpu, began = time.process_time(), time.perf_counter()
    page.evaluate("window.onehop.view().startSweep()")
    page.wait_for_function("window.onehop.view().sweep.state === 'done'")
    seconds = {"wall_s": round(time.perf_counter() - began, 2), "server_cpu_s": round(time.process_time() - cpu, 2)}
    trace = "window.onehop.view().trace"
    lengths = page.evaluate(f"[{trace}.source.tokens.length, {trace}.steps.length]")
    return {"source_tokens": lengths[0], "target_tokens": lengths[1], **seconds}


def long_text(page) -> dict:
    """Seconds from the click until the translation is there and until all figures are drawn; and CPU seconds here."""
    page.evaluate("window.scrollTo(0, 0)")
    page.fill("input[name=sentence]", LONG)
    cpu, began = time.process_time(), time.perf_counter()
    page.click("form.ask button")
    page.wait_for_function("text => document.querySelector('.answer').dataset.sentence === text", arg=LONG)
    first = time.perf_counter() - began
    cpu = time.process_time() - cpu
    page.wait_for_selector("#page[data-ready]")
    counted = {"words": len(LONG.split()), "tokens": page.evaluate("window.onehop.view().trace.source.tokens.length")}
    return {
        **counted,
        "first_figures_s": round(first, 2),
        "server_cpu_s": round(cpu, 2),
        "all_figures_s": round(time.perf_counter() - began, 2),
    }


if __name__ == "__main__":
    main()
