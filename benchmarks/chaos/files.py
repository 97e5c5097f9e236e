"""Read mutants of model files, stores and checkpoints: each is refused in one line, or is unchanged.

    [FULL=1] python benchmarks/chaos/files.py

Half of the model files get other settings, names or shapes and a new hash: those that are accepted must translate, and
twice the same. Each process reads 500 mutants, so that a crash is counted and does not end the run.
"""

import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
from common import of, report, small_model

from onehop.config import with_changes
from onehop.data.prepare import prepare
from onehop.data.store import Store
from onehop.errors import OnehopError
from onehop.experiments.reverse import digit_strings, in_words, reverse_settings, write_pairs
from onehop.storage.model_file import content_hash
from onehop.storage.model_io import read_model
from onehop.storage.model_label import CONTENT
from onehop.storage.number_formats import DTYPES
from onehop.storage.run_folder import Run
from onehop.training.workflow import train

SECONDS = 30  # for one mutant, on a busy machine
MEMORY = 1 << 30  # address space beyond what the process has at its start
OBJECTS = 1 << 20  # bytes that Python's objects may take beside twice the file
PART = 500
VALUES = (0, 1, -1, 2, 3, 15, 17, 64, 1 << 20, 1 << 31, 1 << 62, 1.5, 1e308, "", "x", None, True, [], {}, "\ud800")


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Flip bits, or cut, double or overwrite parts; a third of them near the beginning, where the header is."""
    found, last = bytearray(data), len(data) if draw.random() < 0.67 else min(len(data), 4096)
    a, b = sorted(draw.randrange(last + 1) for _ in range(2))
    kind = draw.randrange(6)
    if kind < 3:
        for _ in range(draw.choice((1, 1, 2, 16))):
            found[draw.randrange(last)] ^= 1 << draw.randrange(8)
    elif kind == 3:
        del found[a:b]
    elif kind == 4:
        found[a:a] = found[a:b][:65536]
    else:
        found[a : a + 8] = draw.choice((b"\xff" * 8, bytes(8), (1 << 40).to_bytes(8, "little"), b"[" * 8))
    return bytes(found)


def signed(data: bytes, draw: random.Random) -> bytes:
    """Change one value of the settings or one entry of a tensor, and recompute the hash where possible."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    described = json.loads(header["__metadata__"]["onehop"])
    name = draw.choice([name for name in header if name != "__metadata__"])
    if draw.random() < 0.5:
        table = described["settings"][draw.choice(list(described["settings"]))]
        if isinstance(table, dict) and table:
            table[draw.choice(list(table))] = draw.choice(VALUES)
    elif draw.random() < 0.5:
        entry = header[name]
        entry["shape"] = draw.choice(([1], [], entry["shape"][::-1], [*entry["shape"], 1], [-1], [1 << 40]))
        entry["dtype"] = draw.choice((entry["dtype"], "F16", "I8", "U8", "F64"))
    else:
        header[draw.choice((name + "x", "decoder.layers.99.norm", "\u202e"))] = header.pop(name)
    try:
        arrays = {}
        for each, entry in header.items():
            if each != "__metadata__":
                begin, end = entry["data_offsets"]
                arrays[each] = np.frombuffer(body[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
        described["hash"] = content_hash({key: described[key] for key in CONTENT}, arrays)
    except (KeyError, TypeError, ValueError, UnicodeEncodeError):
        pass  # an inconsistent file is a mutant too
    header["__metadata__"]["onehop"] = json.dumps(described)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def try_model(folder: Path, seed: int) -> str:
    from onehop.pipelines.sentence_translator import SentenceTranslator

    file, draw = folder / "mutant.safetensors", random.Random(seed)
    original = (folder / "small.safetensors").read_bytes()
    with_hash = seed % 2 == 0
    data = (signed if with_hash else mutated)(original, draw)
    file.write_bytes(data)
    tracemalloc.start()
    try:
        found = read_model(file)
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if most > 2 * len(data) + OBJECTS:
            raise MemoryError(f"{most:,} bytes for a file of {len(data):,}")
    if not with_hash:
        return "unchanged" if found.hash == read_model(folder / "small.safetensors").hash else "CHANGED SILENTLY"
    texts = []
    for _ in range(2):
        translator = SentenceTranslator.load(file, "cpu", compute="float32", threads=1)
        texts.append(translator.translate(["the old house"])[0].text)
    return "translates" if texts[0] == texts[1] else "TRANSLATES DIFFERENTLY"


def try_folder(folder: Path, seed: int) -> str:
    """Read a store and the checkpoint of a run in turn."""
    draw = random.Random(seed)
    where = folder / "store" if seed % 2 else sorted((folder / "run" / "checkpoints").iterdir())[-1]
    file = draw.choice(sorted(path for path in where.iterdir() if path.is_file()))
    original = file.read_bytes()
    whole = content(folder, seed)
    file.write_bytes(mutated(original, draw))
    try:
        return "unchanged" if content(folder, seed) == whole else "CHANGED SILENTLY"
    finally:
        file.write_bytes(original)


def content(folder: Path, seed: int) -> object:
    if seed % 2:
        store = Store.open(folder / "store")
        store.verify()
        pairs = store.pairs("train")
        return [pairs.src(i).tobytes() + pairs.tgt(i).tobytes() for i in range(len(pairs))], store.tokenizer
    last = Run(folder / "run").latest()
    assert last is not None
    return last.progress, *({n: a.tobytes() for n, a in each.items()} for each in (last.weights, last.optimizer))


def part(kind: str, folder: Path, seeds: range, out: "multiprocessing.Queue[tuple[int, str]]") -> None:
    """Try each seed under limits of time and memory, in a process."""
    os.environ["ONEHOP_CACHE"] = str(folder / "cache")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("it hangs")))
    for seed in seeds:
        out.put((seed, "begun"))
        signal.alarm(SECONDS)
        try:
            outcome = (try_model if kind == "model" else try_folder)(folder, seed)
        except OnehopError as e:
            outcome = "refused" if "\n" not in str(e) else f"MANY LINES {str(e)[:200]!r}"
        except BaseException as e:
            outcome = f"FAILED {type(e).__name__}: {str(e)[:200]}"
        signal.alarm(0)
        out.put((seed, outcome))


def attack(kind: str, folder: Path, seeds: range) -> tuple[Counter[str], list[str]]:
    outcomes: dict[int, str] = {}
    bad = []
    for begin in range(seeds.start, seeds.stop, PART):
        queue: multiprocessing.Queue[tuple[int, str]] = multiprocessing.Queue()
        share = range(begin, min(begin + PART, seeds.stop))
        process = multiprocessing.Process(target=part, args=(kind, folder, share, queue))
        process.start()
        while process.is_alive() or not queue.empty():
            try:
                seed, outcome = queue.get(timeout=1)
                outcomes[seed] = outcome
            except Exception:  # nothing new
                continue
        process.join()
        if process.exitcode or not set(share) <= outcomes.keys():
            bad.append(f"{kind} {share}: status {process.exitcode}, {len(outcomes.keys() & set(share))} tried")
    outcomes = {seed: "CRASHED" if outcome == "begun" else outcome for seed, outcome in outcomes.items()}
    bad += [f"{kind} {seed}: {outcome}" for seed, outcome in outcomes.items() if outcome.split()[0].isupper()]
    return Counter(outcome.split(":")[0] for outcome in outcomes.values()), bad


def main() -> None:
    multiprocessing.set_start_method("fork")
    only = sys.argv[1:] or ["model", "folder"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_model(folder)
        write_pairs(folder / "digits.tsv", in_words(digit_strings(300)))
        changes = ["train.steps=4", "train.save_every=2", "model.d_model=16", "model.d_ff=32", "model.n_heads=2"]
        settings = with_changes(reverse_settings(), [*changes, "tokenizer.vocab_size=340", "data.valid_size=20"])
        prepare(settings, folder / "store", root=folder, processes=1)
        train(settings, folder / "run", store=folder / "store", device="cpu", bleu_on=0)
        counts, failures = {}, []
        for kind, number in (("model", of(20_000)), ("folder", of(5_000))):
            if kind in only:
                found, bad = attack(kind, folder, range(number))
                counts[kind] = {"mutants": number, **found}
                failures += bad
    report("files", counts, failures)


if __name__ == "__main__":
    main()
