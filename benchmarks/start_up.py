"""Measure the time from process start to a first translation: `onehop translate TEXT` beside a bare CTranslate2
script.

    python benchmarks/start_up.py [--model en-de] [--text "Hello world."] [--rounds 20] [-o results/start_up.json]

Both read the same converted model from the cache, with the same number of threads. Each run is a fresh process, and
the two take turns, so that a busy machine affects both alike. The results are medians of CPU seconds (user and
system), wall clock and peak resident memory. Bytecode is compiled beforehand, as in an installation.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# A child starts with its parent's peak memory, so this imports the libraries in a separate process.
PREPARE = """
import json
import sys
import ctranslate2
from onehop.decoding.ctranslate2_engine import Converted, cores
from onehop.decoding.options import ALPHA
from onehop.storage.registry import default_alpha, find_model
path = find_model(sys.argv[1])
alpha = default_alpha(path)
folder = str(Converted.of(path, "int8").folder)
about = {"threads": cores(), "alpha": ALPHA if alpha is None else alpha, "ctranslate2": ctranslate2.__version__}
print(json.dumps({"folder": folder, **about}))
"""
# A minimal script with the two libraries alone.
BARE = """
import sys
import ctranslate2
import sentencepiece
folder, threads, alpha, text = sys.argv[1:]
pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
translator = ctranslate2.Translator(folder, compute_type="int8", inter_threads=int(threads), intra_threads=1)
tokens = pieces.encode(text, out_type=str)
result = translator.translate_batch([tokens], beam_size=4, length_penalty=float(alpha))
print(pieces.decode(result[0].hypotheses[0]))
"""
ONEHOP = "from onehop.__main__ import main; main()"  # what the installed command runs
MEASURES = ("cpu_seconds", "seconds", "megabytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--text", default="Hello world.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ONEHOP_CACHE"] = folder
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        about = json.loads(run([sys.executable, "-c", PREPARE, arguments.model])[1])
        bare = [about.pop("folder"), str(about["threads"]), str(about["alpha"])]
        named = [] if arguments.model == "en-de" else ["--model", arguments.model]  # as users type it
        systems = {
            "ctranslate2": [sys.executable, "-c", BARE, *bare, arguments.text],
            "onehop": [sys.executable, "-c", ONEHOP, "translate", *named, arguments.text],
        }
        texts = {name: run(command)[1] for name, command in systems.items()}
        if len(set(texts.values())) > 1:
            sys.exit(f"The translations differ: {texts}")
        turns = [{name: run(command)[0] for name, command in systems.items()} for _ in range(arguments.rounds)]
    rows = {name: {m: statistics.median(turn[name][m] for turn in turns) for m in MEASURES} for name in systems}
    for name, row in rows.items():
        print(f"{name:12} " + "  ".join(f"{m} {value:.3f}" for m, value in row.items()))
    ratio = rows["onehop"]["cpu_seconds"] / rows["ctranslate2"]["cpu_seconds"]
    print(f"onehop takes {ratio:.2f} times the CPU time")
    found = {"text": arguments.text, "model": arguments.model, "rounds": arguments.rounds, "load": os.getloadavg()}
    found |= {**about, "python": sys.version.split()[0], "ratio": ratio}
    if arguments.out:
        arguments.out.write_text(json.dumps({**found, "rows": rows, "turns": turns}, indent=1) + "\n")


def run(command: list[str]) -> tuple[dict[str, Any], str]:
    """Return what one process took and wrote."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} has failed.")
    seconds = time.perf_counter() - began
    return dict(zip(MEASURES, (used.ru_utime + used.ru_stime, seconds, used.ru_maxrss / 1024), strict=True)), text


if __name__ == "__main__":
    main()
