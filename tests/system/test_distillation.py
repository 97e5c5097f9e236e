"""All commands of the guide to distillation run with a tiny teacher and a tiny text."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import onehop

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "prepare.md"
# Options that make a command quick, or replace the guide's GPU.
TINY = ["n_encoder_layers=1", "n_decoder_layers=1", "d_model=16", "d_ff=32", "n_heads=2", "max_length=64"]
TRAIN = ["steps=4", "batch_tokens=256", "warmup=2", "save_every=4", "validate_every=4"]
CHANGES = [f"model.{each}" for each in TINY] + [f"train.{each}" for each in TRAIN]
QUICK = {"train": [word for each in CHANGES for word in ("--set", each)] + ["--bleu-on", "0", "--device", "cpu"]}
QUICK["prepare"] = ["--processes", "1", "--set", "data.language=false", "--set", "model.max_length=64"]
QUICK["evaluate"] = ["--resamples", "100"]
ON_A_GPU = re.compile(r"--device \w+|--compute \w+|--workers \d+")


def commands() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split("\n## Distillation\n")[1].split("\n## ")[0]
    return re.findall(r"^ {4}((?:onehop|cp) .*)$", section, re.M)


@pytest.mark.slow
def test_every_command_of_the_distillation_guide_runs(tmp_path, monkeypatch, install, model_file):
    install("en-de")
    monkeypatch.chdir(tmp_path)
    words = ("old", "new", "house", "tree", "bird")
    texts = [f"the {a} {b} and a {c} {d}" for a in words for b in words for c in words for d in words[:2]]
    for name, part in (("train", texts[:200]), ("valid", texts[200:220]), ("test", texts[220:240])):
        Path(f"{name}.en").write_text("".join(f"{line}\n" for line in part))
        Path(f"{name}.de").write_text("".join(f"das {line} dort\n" for line in part))
    assert len(commands()) == 13
    for line in commands():
        verb, *words = shlex.split(ON_A_GPU.sub("", line))
        if verb == "cp":
            shutil.copy(*words)
            continue
        done = onehop(*words, *QUICK.get(words[0], []))
        assert done.exit_code == 0, f"{line}\n{done.output}"
