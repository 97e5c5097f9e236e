"""Send SIGKILL at random moments of a training and of prepare: both end with the same bits.

[FULL=1] python benchmarks/chaos/kills.py
"""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import of, report

from onehop.experiments.reverse import digit_strings, in_words, write_pairs
from onehop.experiments.verify_resume import verify_resume

SETTINGS = '[data]\ntrain = ["digits.tsv"]\nlanguage = false\nvalid_size = 50\n[tokenizer]\nvocab_size = 340\n'


def prepare_killed(work: Path, kills: int) -> tuple[int, bool]:
    """Count the killed runs, and compare each store with that of an undisturbed run."""
    draw, hit, same = random.Random(1), 0, True
    write_pairs(work / "digits.tsv", in_words(digit_strings(20_000)))
    (work / "settings.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "onehop", "prepare", "-s", str(work / "settings.toml"), "--data", str(work), "-o"]
    began = time.monotonic()
    subprocess.run([*command, str(work / "whole")], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    while hit < kills or not (work / "killed").exists():
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, str(work / "killed")], **quiet)
        try:
            process.wait(draw.uniform(0.2, 0.9) * seconds if hit < kills else None)
        except subprocess.TimeoutExpired:
            hit += 1
        process.kill()
        process.wait()
        if (work / "killed").exists():  # it ended before the kill, or was the last one: start the next one
            files = [{p.name: p.read_bytes() for p in (work / name).iterdir()} for name in ("whole", "killed")]
            same &= files[0] == files[1]
            if hit < kills:
                shutil.rmtree(work / "killed")
    return hit, same


def main() -> None:
    kills, failures = of(50), []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "prepare").mkdir()
        hit, same = prepare_killed(work / "prepare", kills)
        if not same:
            failures.append("prepare: the stores differ")
        if not verify_resume(work / "train", kills=kills, steps=12 * kills, seed=1, say=lambda text: None):
            failures.append("train: the bits differ")
    report("kills", {"training killed": kills, "prepare killed": hit}, failures)


if __name__ == "__main__":
    main()
