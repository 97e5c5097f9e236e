"""Measure how long short requests wait beside one endless sentence, by the scheduler alone.

    python benchmarks/serve_policy.py [--seconds 20] [--every 0.25] [--cells 1500] [-o results/serve_policy.json]

The engine sleeps for as long as CTranslate2 would take, so other programs on the machine matter little. `--cells`
is its pace. A batch takes (tokens of its longest sentence) · (5 + number of sentences) / pace seconds, times 0.9 to
1.4. Results are added to the file, so that two versions can be compared.
"""

import argparse
import asyncio
import json
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onehop.decoding.options import SearchOptions
from onehop.experiments.provenance import origin
from onehop.pipelines.sentence_translator import Translation
from onehop.server.metrics import Metrics
from onehop.server.scheduler import Lane
from onehop.server.settings import ServerSettings

PARTS = 134  # of 48,000 characters without a full stop
LENGTHS = (38, 64, 72, 77, 82, 92, 93, 100, 105, 111, 125)  # tenths of the lengths of these parts
AGAIN = 0.15  # share of the short requests that are searched again, for a name or a term
OPTIONS = SearchOptions(loop_repeats=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--every", type=float, default=0.25, help="seconds between two short requests")
    parser.add_argument("--cells", type=float, default=1500, help="cells per second of the engine")
    parser.add_argument("--label", default="now", help="name of the version in the file")
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments.seconds, arguments.every, arguments.cells))
    options = {"cells a second": arguments.cells, "seconds between requests": arguments.every}
    run = {"version": arguments.label, **options, **result}
    print(json.dumps(run))
    if arguments.out:
        before = json.loads(arguments.out.read_text())["runs"] if arguments.out.exists() else []
        result = {**origin("benchmarks/serve_policy.py"), "runs": [*before, run]}
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


class SleepingEngine:
    """An engine that sleeps for as long as CTranslate2 would take, and returns placeholders."""

    def __init__(self, cells: float) -> None:
        self.cells, self.draw, self.lock = cells, random.Random(1), threading.Lock()

    def __call__(
        self, sources: Sequence[list[int]], options: SearchOptions, indices: Sequence[int]
    ) -> list[list[Translation]]:
        with self.lock:
            luck = self.draw.uniform(0.9, 1.4)
        time.sleep(max(map(len, sources)) * (5 + len(sources)) / self.cells * luck)
        return [[Translation("x", ("x",), 0.0, 0.0, finished=True, looped=False)] for _ in sources]


async def measure(seconds: float, every: float, cells: float) -> dict[str, Any]:
    lane = Lane(SleepingEngine(cells), ServerSettings(), Metrics(), threads=2)
    lane.pace = 0.9 * cells  # as learnt from earlier requests
    draw, waits = random.Random(2), list[float]()

    async def short() -> None:
        began = time.monotonic()
        await lane.translate([[1] * draw.randint(4, 16)], OPTIONS)
        if draw.random() < AGAIN:
            await lane.translate([[1] * draw.randint(8, 20)], OPTIONS)
        waits.append(time.monotonic() - began)

    parts = [[1] * draw.choice(LENGTHS) for _ in range(PARTS)]
    answered = 0

    async def giants() -> None:
        nonlocal answered
        while True:
            await lane.translate(parts, OPTIONS)
            answered += 1

    giant = asyncio.create_task(giants())
    await asyncio.sleep(every)
    async with asyncio.TaskGroup() as group:
        for _ in range(int(seconds / every)):
            group.create_task(short())
            await asyncio.sleep(every)
    done = PARTS * (answered + 1) - len(lane.waiting)
    giant.cancel()
    lane.close()
    waits.sort()
    shares = {f"p{share}": round(waits[share * len(waits) // 100], 3) for share in (50, 95)}
    return {"requests": len(waits), **shares, "worst": round(waits[-1], 3), "parts of the giant begun": done}


if __name__ == "__main__":
    main()
