"""Run 64 good clients beside giants, hang-ups, slow senders and garbage: every accepted answer is right.

[FULL=1] python benchmarks/chaos/crowd.py
"""

import argparse
import os
import sys
import tempfile

from common import FULL, ROOT, report

sys.path.insert(0, str(ROOT / "benchmarks"))
import serve_load

from onehop.machine import available_cores
from onehop.storage.registry import find_model


def main() -> None:
    options = argparse.Namespace(
        seconds=600.0 if FULL else 60.0,
        clients=64,
        processes=1,
        threads=available_cores(),  # OMP_NUM_THREADS, which limits torch elsewhere, would leave the server one
        sentences=200,
        model="en-de",
        texts=ROOT / "tests" / "data" / "tatoeba-1000.en",
        compute="float32",
        engine="ctranslate2",
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("ONEHOP_CACHE", folder)
        model = find_model("en-de")
        by = serve_load.offline_translator(model, options)
        texts = serve_load.sentences(model, options)
        right = {text: found.text for text, found in zip(texts, by.translate(texts), strict=True)}
        found = serve_load.load(model, right, options, misbehaving=8)
    failures = [f"{found['wrong']} answers are wrong"] if found["wrong"] else []
    report("crowd", found, failures)


if __name__ == "__main__":
    main()
