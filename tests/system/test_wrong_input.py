"""Every command with missing, empty or binary inputs, folders as files, and unwritable outputs."""

import os
import shutil
from pathlib import Path

import pytest
from command_line import onehop

from onehop.data import prepare as prepare_module

KINDS = ("missing", "folder", "empty", "binary")

# Commands that read a file, {}, and the kinds of file that are valid input.
READ = {
    "translate -m {} hi": (),
    "translate -m MODEL -i {}": ("empty",),
    "translate -m MODEL --glossary {} hi": ("empty",),
    "serve -m {}": (),
    "serve -m MODEL --keys {}": (),
    "evaluate --src {} --ref a.de -m MODEL": (),
    "evaluate --src a.en --ref {} -m MODEL": (),
    "evaluate --src a.en --ref a.de --hyp {}": (),
    "evaluate --src a.en --ref a.de --hyp a.de --against {}": (),
    "evaluate --src a.en --ref a.de -m {}": (),
    "export {} --to ctranslate2 -o out": (),
    "export MODEL --to ctranslate2 -o out --sentences {}": (),
    "import {} -o out": (),
    "trace hi -o out -m {}": (),
    "explore hi --export out.html -m {}": (),
    "explore hi --export out.html -m MODEL --patches {}": (),
    "config {}.toml": ("empty",),
    "prepare {}.tsv -s tiny -o out": (),
    "prepare {}.parquet -s tiny -o out": (),
    "prepare {}.tmx -s tiny -o out": (),
    "prepare {}.jsonl -s tiny -o out": (),
    "prepare {}.en a.de -s tiny -o out": (),
    "prepare a.en a.de -s tiny -o out --tokenizer {}": (),
    "train {}.toml -o out": (),
    "train tiny -o out --store {}": (),
    "finetune {} a.en a.de -o out": (),
    "finetune MODEL {}.tsv -o out": (),
    "finetune MODEL a.en a.de -o out -s {}.toml": ("empty",),
    "finetune MODEL a.en a.de -o out --valid {}.tsv": (),
    "finetune MODEL a.en a.de -o out --mix {}.tsv": (),
    "average {} -o out": (),
    "curves {}": (),
    "generate -m {} hi": (),
    "embed -m {} hi": (),
    "fill ___ -m {}": (),
    "models show {}": (),
    "models write {} -o out": (),
    "paper heads --source {} --reference a.de -m MODEL": (),
    "paper heads --source a.en --reference {} -m MODEL": (),
    "paper heads --source a.en --reference a.de -m {}": (),
    "paper table3 {}.toml -o out": (),
    "paper table3 tiny -o out --store {}": (),
}

# Commands that write a file or a folder, {}.
WRITTEN = [
    "translate -m MODEL -i a.en -o {}",
    "translate -m MODEL a.html -o {}",
    "export MODEL --to ctranslate2 -o {}",
    "trace hi -o {} -m MODEL",
    "explore hi --export {} -m MODEL",
    "prepare a.en a.de -s tiny -o {}",
    "finetune MODEL a.en a.de -o {}",
    "verify-resume -o {}",
    "demo -o {}",
    "demo reverse -o {}",
    "demo captions -o {}",
    "demo digits -o {}",
    "models write MODEL -o {}",
    "paper heads --source a.en --reference a.de -m MODEL -o {}",
    "paper table1 -o {}",
    "paper table3 tiny -o {}",
    "paper family -o {}",
]

NO_DEVICE = [
    "translate -m MODEL --device tpu hi",
    "serve -m MODEL --device tpu",
    "evaluate --src a.en --ref a.de -m MODEL --device tpu",
    "trace hi -o out -m MODEL --device tpu",
    "finetune MODEL a.en a.de -o out --device tpu",
    "demo --device tpu",
    "demo digits --device tpu",
    "verify-resume --device tpu",
]


@pytest.fixture(scope="module")
def here(tmp_path_factory, model_file):
    """Change into a folder with files of every kind."""
    folder = tmp_path_factory.mktemp("wrong")
    for ending in ("", ".toml", ".tsv", ".parquet", ".tmx", ".jsonl", ".en"):
        (folder / f"folder{ending}").mkdir()
        (folder / f"empty{ending}").write_bytes(b"")
        (folder / f"binary{ending}").write_bytes(bytes(range(256)) * 40)
    (folder / "a.en").write_text("".join(f"the old house of {i} trees\n" for i in range(40)))
    (folder / "a.de").write_text("".join(f"das alte Haus der {i} Bäume\n" for i in range(40)))
    (folder / "a.html").write_text("<p>the old house</p>")
    (folder / "MODEL").write_bytes(model_file.read_bytes())
    return folder


def refused(here: Path, words: str) -> None:
    """One line with a remedy, status 2, and unchanged files; prepare may leave files for resuming."""
    before = content(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setattr(prepare_module, "available_cores", lambda: 1)  # starting processes would take most of the time
        found = onehop(*words.split(), stdin="")
    after, finished = content(here), (here / "out" / "model.safetensors").exists()
    for left in here.glob("out*"):
        shutil.rmtree(left)
    assert isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code == 2, found.output
    *stages, error = found.stderr.splitlines()
    assert set(stages) <= {"reading and filtering", "encoding"} or "pairs read from" in found.stderr, found.stderr
    assert error.startswith("onehop"), error
    assert ". " in error, error  # what happened, and the remedy
    assert {name: data for name, data in after.items() if not name.startswith("out")} == before
    assert not finished


def content(folder: Path) -> dict[str, bytes | None]:
    found = ((path, path.relative_to(folder)) for path in folder.rglob("*"))
    return {str(name): path.read_bytes() if path.is_file() else None for path, name in found}


@pytest.mark.parametrize(
    "words", [words.replace("{}", kind) for words, fine in READ.items() for kind in KINDS if kind not in fine]
)
def test_unreadable_files_are_one_line_errors(here, words):
    refused(here, words)


@pytest.mark.parametrize("words", WRITTEN)
def test_unwritable_outputs_are_one_line_errors(here, words):
    refused(here, words.replace("{}", os.path.join("a.en", "below")))


@pytest.mark.parametrize("words", NO_DEVICE)
def test_missing_devices_are_one_line_errors(here, words):
    refused(here, words)


@pytest.mark.parametrize("origin", ["nonsense", "https://a.example/", "https://a.example/page", ""])
def test_invalid_origins_are_refused(here, origin):
    refused(here, f"serve -m MODEL --cors={origin}")
