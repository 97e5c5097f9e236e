"""Measure how long short requests wait beside giants: one client sends giants, another short sentences.

    python benchmarks/serve_giants.py [--seconds 15] [--every 0.25] [--only KIND ...] [-o results/serve_giants.json]

For each kind of giant, rounds without and with giants take turns, so that other work on the machine affects both
alike. An answered giant is sent again at once. Short requests come at a fixed rate, independently of earlier
answers. The file keeps results of other kinds with the same settings.
"""

import argparse
import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import httpx
from server_process import serving

from onehop.experiments.provenance import origin

SENTENCES = Path(__file__).parent.parent / "tests/data/tatoeba-1000.en"
CHARACTERS = 48_000


def giants(lines: list[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return requests as large as the limits allow, one for each way through the server."""
    prose = " ".join(lines * 2)[:CHARACTERS]
    unbroken = prose.replace(".", "").replace("!", "").replace("?", "")
    draw = random.Random(1)
    digits = "".join(draw.choices("0123456789", k=CHARACTERS))
    markup = " ".join(f"<b>{word}</b>" if i % 4 == 0 else word for i, word in enumerate(prose.split()))[:CHARACTERS]
    words = sorted({word for word in unbroken.split() if word.isalpha()})[:1000]
    own = "/v1/translate"
    return {
        "sentences": (own, {"texts": [prose]}),
        "short texts": (own, {"texts": [line[:48] for line in lines]}),
        "one sentence": (own, {"texts": [unbroken]}),
        "digits": (own, {"texts": [digits]}),
        "capitals": (own, {"texts": [prose.upper()]}),
        "a beam of 16": (own, {"texts": [prose], "beam": 16, "n_best": 16}),
        "alignments": (own, {"texts": [prose], "alignments": True}),
        "a glossary": (own, {"texts": [prose], "glossary": {w: w[::-1] for w in words}}),
        "HTML": (own, {"texts": [markup], "format": "html"}),
        "sampling, on torch": (own, {"texts": [prose], "sample": True}),
        "the paper's penalty, on torch": (own, {"texts": [prose], "penalty": "paper"}),
        "a stream": ("/v1/stream", {"text": prose, "beam": 1}),
    }


def main() -> None:
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    kinds = giants(lines)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=15, help="seconds with giants of each kind, and as long without"
    )
    parser.add_argument("--every", type=float, default=0.25, help="seconds between two short requests")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that share these seconds")
    parser.add_argument("--only", nargs="+", choices=list(kinds), default=list(kinds), metavar="KIND")
    parser.add_argument("--giants", type=int, default=1, help="at a time")
    parser.add_argument("--model", default="en-de")
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    kinds_measured = {}
    with serving(["-m", "onehop"], ["-m", arguments.model]) as (_, url):
        if any("torch" in kind for kind in arguments.only):
            warm_up_torch(url)
        for kind in arguments.only:
            path, body = kinds[kind]
            body = {"source": "en", "target": "de", **body}
            kinds_measured[kind] = asyncio.run(measure(url, lines, (path, body), arguments))
            print(f"{kind}: {json.dumps(kinds_measured[kind])}", flush=True)
    if arguments.out:
        options = {k: v for k, v in vars(arguments).items() if k not in ("out", "only")}
        before = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        others = before["kinds"] if before.get("settings") == options else {}
        result = {**origin("benchmarks/serve_giants.py"), "settings": options, "kinds": {**others, **kinds_measured}}
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def warm_up_torch(url: str) -> None:
    """Import torch in the server by a first request, which is not measured."""
    while httpx.post(f"{url}/v1/translate", json={"texts": ["Hello."], "sample": True}, timeout=90).is_error:
        pass


async def measure(
    url: str, lines: list[str], giant: tuple[str, dict[str, Any]], arguments: argparse.Namespace
) -> dict[str, Any]:
    seconds = arguments.seconds / arguments.rounds
    alone, beside, answers = [], [], []
    # A connection each: the server may close an idle one at the moment of its next use.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    draw = random.Random(2)
    async with httpx.AsyncClient(base_url=url, timeout=180, limits=limits) as client:
        for _ in range(arguments.rounds):
            alone += await shorts(client, lines, draw, seconds, arguments.every)
            sending = [asyncio.create_task(sends(client, giant, answers)) for _ in range(arguments.giants)]
            await asyncio.sleep(0.2)
            beside += await shorts(client, lines, draw, seconds, arguments.every)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            await settled(client)
    statuses = [answer.partition(" ")[0] for answer in answers]
    return {
        "alone": summary(alone),
        "beside giants": summary(beside),
        "giants answered": {status: statuses.count(status) for status in sorted(set(statuses))},
        "refusals": sorted({answer for answer in answers if answer != "200"})[:1],
        "load of the machine": round(os.getloadavg()[0], 1),
    }


async def settled(client: httpx.AsyncClient) -> None:
    """Wait until the server has finished the giants' work."""
    while True:
        text = (await client.get("/metrics")).text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        if float(values["onehop_queue_sentences"]) == 0 and float(values["onehop_requests_running"]) == 1:
            return
        await asyncio.sleep(0.1)


async def shorts(
    client: httpx.AsyncClient, lines: list[str], draw: random.Random, seconds: float, every: float
) -> list[Any]:
    """Return the seconds of each request, or its status if it was refused."""

    async def ask() -> float | int:
        began = time.monotonic()
        body = {"texts": [draw.choice(lines)], "source": "en", "target": "de"}
        answer = await client.post("/v1/translate", json=body)
        return time.monotonic() - began if answer.status_code == 200 else answer.status_code

    tasks = []
    for _ in range(int(seconds / every)):
        tasks.append(asyncio.create_task(ask()))
        await asyncio.sleep(every)
    return list(await asyncio.gather(*tasks))


async def sends(client: httpx.AsyncClient, giant: tuple[str, dict[str, Any]], answers: list[str]) -> None:
    path, body = giant
    while True:
        answer = await client.post(path, json=body)
        answers.append(f"{answer.status_code} {answer.json()['error'] if answer.is_error else ''}".strip())
        if answer.is_error:
            await asyncio.sleep(0.2)


def summary(answers: list[Any]) -> dict[str, Any]:
    seconds = sorted(s for s in answers if isinstance(s, float))
    return {
        "requests": len(answers),
        "refused": len(answers) - len(seconds),
        **{f"p{share}": round(seconds[min(len(seconds) - 1, share * len(seconds) // 100)], 3) for share in (50, 95)},
        "worst": round(seconds[-1], 3),
    }


if __name__ == "__main__":
    main()
