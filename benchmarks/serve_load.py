"""Measure a server under load on this machine: latency, cost, and correctness of every answer.

    python benchmarks/serve_load.py [--seconds 60] [--clients 64] [--engine torch] [--model FILE --texts FILE]

Clients in their own processes send 1 to 4 sentences over loopback, as fast as they are answered, and compare every
answer with the offline translation. A second load adds clients that hang up, send garbage and send slowly. Then
SIGTERM comes under load.

The offline translator runs the same sentences in batches of the server's mean size, measured in CPU seconds.
Without --model, the model has the paper's base shape with random weights, and sources and outputs of exactly 25
tokens. The dtype is float32, in which a translation does not depend on its batch; with int8 the differences are
counted too.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import re
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import httpx
from random_models import endless_base
from server_process import serving

from onehop.decoding import engine as engine_module
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import write_model
from onehop.storage.registry import find_model

MISBEHAVIOURS = ("hang up", "garbage", "slow", "giant")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2, help="processes of the clients")
    parser.add_argument("--threads", type=int, help="threads of the engine. Default: OMP_NUM_THREADS, here 1")
    parser.add_argument("--sentences", type=int, default=400, help="different ones")
    parser.add_argument("--model")
    parser.add_argument("--texts", type=Path, help="one sentence a line")
    parser.add_argument("--compute", choices=("float32", "int8"), default="float32")
    parser.add_argument("--engine", choices=("ctranslate2", "torch"), default="ctranslate2")
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("ONEHOP_CACHE", folder)
        if arguments.model:
            model = find_model(arguments.model)
        else:
            engine_module.MORE_THAN_SOURCE = 0  # here and in the server: outputs are as long as the sources
            model = write_model(Path(folder) / "model.safetensors", endless_base())
        result = measure(model, arguments)
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def sentences(model: Path, arguments: argparse.Namespace) -> list[str]:
    """Read sentences of a file, or build them from the vocabulary, with 25 tokens each."""
    if arguments.texts:
        lines = arguments.texts.read_text(encoding="utf-8").splitlines()
        return list(dict.fromkeys(line for line in lines if line.strip()))[: arguments.sentences]
    draw, found = random.Random(1), []
    tokenizer = SentenceTranslator.load(model, "cpu", threads=1).tokenizer
    words = [piece[1:] for piece, _ in tokenizer.vocabulary() if re.fullmatch("▁[a-z]{2,}", piece)]
    while len(found) < arguments.sentences:
        text = " ".join(draw.choices(words, k=25))
        found += [text] if len(tokenizer.encode(text)) == 25 else []
    return found


def measure(model: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the offline translator for the right answers, two loads, and the offline translator with the server's batch
    size.
    """
    texts = sentences(model, arguments)
    by = offline_translator(model, arguments)
    right = {text: found.text for text, found in zip(texts, by.translate(texts), strict=True)}
    loads = {}
    for name, misbehaving in (("good clients", 0), ("with bad clients", arguments.clients // 8)):
        loads[name] = load(model, right, arguments, misbehaving)
    size = max(1, round(loads["good clients"]["sentences a batch"]))
    offline = offline_cost(by, texts, size)
    for each in loads.values():
        each["times the offline cost"] = round(each["CPU ms a sentence"] / offline, 3)
    return {
        "offline CPU ms a sentence": round(offline, 2),
        "offline batch size": size,
        **loads,
        "stop": stop_under_load(model, right, arguments),
        "settings": {k: v.name if isinstance(v, Path) else str(v) for k, v in vars(arguments).items()},
        "cores": len(os.sched_getaffinity(0)),
    }


def offline_translator(model: Path, arguments: argparse.Namespace) -> ParagraphTranslator:
    engine, threads = arguments.engine, arguments.threads
    translator = SentenceTranslator.load(model, "cpu", compute=arguments.compute, engine=engine, threads=threads)
    return ParagraphTranslator(translator, max_length=max_length_of(model))


def offline_cost(by: ParagraphTranslator, texts: list[str], size: int) -> float:
    """Return CPU milliseconds per sentence in batches of this size, sorted by length as in the server."""
    ordered = sorted(texts, key=len)
    if by.translator.fast is not None:
        by.translator.fast.spread = 1
    began = time.process_time()
    for start in range(0, len(ordered), size):
        by.translate(ordered[start : start + size])
    return 1e3 * (time.process_time() - began) / len(texts)


# --- the server -----------------------------------------------------------------------------------------------


def served(model: Path, arguments: argparse.Namespace) -> contextlib.AbstractContextManager[tuple[Any, str]]:
    program = (
        "from onehop import cli; from onehop.decoding import engine; "
        f"engine.MORE_THAN_SOURCE = {engine_module.MORE_THAN_SOURCE}; cli.main()"
    )
    options = ["-m", str(model), "--compute", arguments.compute, "--engine", arguments.engine]
    options += ["--threads", str(arguments.threads)] if arguments.threads else []
    return serving(["-c", program], [*options, "--set", "read_seconds=2"])


def metrics(url: str) -> dict[str, float]:
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}


def load(model: Path, right: dict[str, str], arguments: argparse.Namespace, misbehaving: int) -> dict[str, Any]:
    """Run this many clients for this many seconds, after a tenth of that to warm up."""
    with served(model, arguments) as (_, url):
        drive(url, right, arguments, 0, arguments.seconds / 10)
        before, memory = metrics(url), []
        stop = multiprocessing.Event()
        watcher = multiprocessing.Process(target=watch_memory, args=(url, stop, queue := multiprocessing.Queue()))
        watcher.start()
        began = time.monotonic()
        answers = drive(url, right, arguments, misbehaving, arguments.seconds)
        elapsed = time.monotonic() - began  # the last answers come after the end
        stop.set()
        memory = queue.get()
        watcher.join()
        after = metrics(url)
    gone = {name: after[name] - before.get(name, 0) for name in after}
    seconds = sorted(answers["seconds"])
    if not seconds:
        raise SystemExit(f"No request was answered, and {answers['refused']} were refused: there is nothing to report.")
    done = gone["onehop_batch_sentences_sum"]
    together = "onehop_step_sentences" if arguments.engine == "torch" else "onehop_batch_sentences"
    return {
        "requests": len(seconds),
        "sentences": answers["sentences"],
        "wrong": answers["wrong"],
        "refused": answers["refused"],
        "misbehaved": answers["misbehaved"],
        "sentences a second": round(answers["sentences"] / elapsed, 1),
        "p50 ms": quantile(seconds, 0.5),
        "p95 ms": quantile(seconds, 0.95),
        "p99 ms": quantile(seconds, 0.99),
        "sentences a batch": round(gone[f"{together}_sum"] / gone[f"{together}_count"], 2),
        "CPU ms a sentence": round(1e3 * gone["process_cpu_seconds_total"] / done, 2),
        "memory MB, quarter by quarter": quarters(memory),
    }


def quantile(ordered: list[float], share: float) -> float:
    return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)


def quarters(memory: list[float]) -> list[float]:
    """Return the mean of each quarter of the run: a leak shows as a rise."""
    step = max(1, len(memory) // 4)
    return [round(statistics.mean(memory[i : i + step]) / 1e6, 1) for i in range(0, 4 * step, step) if memory[i:]]


def watch_memory(url: str, stop: Any, out: Any) -> None:
    seen = []
    while not stop.wait(0.25):
        seen.append(metrics(url)["process_resident_memory_bytes"])
    out.put(seen)


# --- the clients ----------------------------------------------------------------------------------------------


def drive(url: str, right: dict[str, str], arguments: argparse.Namespace, bad: int, seconds: float) -> dict[str, Any]:
    """Run all clients in several processes, and merge what they saw."""
    processes = arguments.processes
    shares = [(arguments.clients // processes, bad // processes, n) for n in range(processes)]
    with multiprocessing.Pool(processes) as pool:
        parts = pool.starmap(clients, [(url, right, *share, seconds) for share in shares])
    together = {"seconds": [s for part in parts for s in part["seconds"]]}
    return together | {k: sum(part[k] for part in parts) for k in ("sentences", "wrong", "refused", "misbehaved")}


def clients(url: str, right: dict[str, str], good: int, bad: int, seed: int, seconds: float) -> dict[str, Any]:
    seen: dict[str, Any] = {"seconds": [], "sentences": 0, "wrong": 0, "refused": 0, "misbehaved": 0}

    async def every() -> None:
        end = time.monotonic() + seconds
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
            behaving = [asks(client, right, random.Random(1000 * seed + i), end, seen) for i in range(good)]
            await asyncio.gather(*behaving, *(misbehaves(url, i, end, seen) for i in range(bad)))

    asyncio.run(every())
    return seen


async def asks(client: httpx.AsyncClient, right: dict[str, str], draw: random.Random, end: float, seen: Any) -> None:
    texts = list(right)
    while time.monotonic() < end:
        mine = draw.choices(texts, k=draw.randint(1, 4))
        began = time.monotonic()
        answer = await client.post("/v1/translate", json={"texts": mine})
        if answer.status_code != 200:
            seen["refused"] += 1
            continue
        seen["seconds"].append(time.monotonic() - began)
        seen["sentences"] += len(mine)
        found = [t["text"] for t in answer.json()["translations"]]
        seen["wrong"] += sum(f != right[m] for f, m in zip(found, mine, strict=True))


async def misbehaves(url: str, number: int, end: float, seen: Any) -> None:
    """Hang up, send garbage, send slowly, or send as much as is allowed, repeatedly."""
    host, port = url.removeprefix("http://").split(":")
    kind = MISBEHAVIOURS[number % len(MISBEHAVIOURS)]
    times = 1500 if kind == "giant" else 8
    body = json.dumps({"texts": [" ".join(["some words that nobody waits for."] * times)[:48_000]]}).encode()
    lines = ["POST /v1/translate HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Connection: close"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection(host, int(port))
        if kind == "hang up":
            writer.write(head + body)
            await asyncio.sleep(0.05)
        elif kind == "garbage":
            writer.write(random.randbytes(300) + b"\r\n\r\n")
            await asyncio.wait_for(reader.read(100), 10)
            await asyncio.sleep(0.05)
        elif kind == "giant":
            writer.write(head + body)
            with contextlib.suppress(TimeoutError):  # give it up and send the next one
                await asyncio.wait_for(reader.read(), max(1.0, end - time.monotonic()))
        else:
            for byte in head[:40]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
        writer.close()
        seen["misbehaved"] += 1
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# --- the end --------------------------------------------------------------------------------------------------


def stop_under_load(model: Path, right: dict[str, str], arguments: argparse.Namespace) -> dict[str, int]:
    """Send SIGTERM while requests run: each of them gets the right answer."""
    texts = list(right)

    async def ask(client: httpx.AsyncClient, mine: list[str]) -> str:
        try:
            answer = await client.post("/v1/translate", json={"texts": mine})
        except httpx.ConnectError:
            return "not accepted"
        except httpx.TransportError:
            return "accepted and not answered"
        same = [t["text"] for t in answer.json()["translations"]] == [right[m] for m in mine]
        return "answered rightly" if same else "answered wrongly"

    async def every(process: Any, url: str) -> list[str]:
        async with httpx.AsyncClient(base_url=url, timeout=300, limits=httpx.Limits(max_connections=None)) as client:
            batches = [[texts[(i + k) % len(texts)] for k in range(4)] for i in range(arguments.clients)]
            running = [asyncio.create_task(ask(client, batch)) for batch in batches]
            await asyncio.sleep(1)
            process.send_signal(signal.SIGTERM)
            return list(await asyncio.gather(*running))

    with served(model, arguments) as (process, url):
        outcomes = asyncio.run(every(process, url))
    return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}


if __name__ == "__main__":
    main()
