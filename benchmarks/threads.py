"""How long torch takes for two short sentences with so many threads: each of five turns, in seconds.

    python benchmarks/threads.py 1
    python benchmarks/threads.py 2
    OMP_WAIT_POLICY=passive python benchmarks/threads.py 2

OpenMP reads the variable when torch is imported, so each way is a process of its own. Run them in turns, alone and
beside other work: what differs is how long threads wait for one another.
"""

import argparse
import os
import time

import torch

from onehop.pipelines.sentence_translator import SentenceTranslator

SENTENCES = ["The cat sat because it was sleepy.", "Where is the station?"]
TURNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("threads", type=int)
    threads = parser.parse_args().threads
    translator = SentenceTranslator.load("en-de", "cpu", engine="torch")
    torch.set_num_threads(threads)
    translator.translate(SENTENCES)
    seconds = []
    for _ in range(TURNS):
        began = time.monotonic()
        translator.translate(SENTENCES)
        seconds.append(round(time.monotonic() - began, 2))
    print(threads, os.environ.get("OMP_WAIT_POLICY", "active"), *seconds, f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
