"""The command line: output, errors, pipes and terminals."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
import typer
from command_line import onehop

from onehop import __version__
from onehop.cli import _with_command, app
from onehop.config import TABLES, load_settings, settings_from_dict, settings_to_toml, with_changes
from onehop.decoding.options import SearchOptions
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model, write_model
from onehop.storage.registry import short_name

VERBS = ["config", "demo", "prepare", "train", "average", "curves", "verify-resume", "translate", "evaluate"]
VERBS += ["models", "cache", "doctor"]
ONEHOP = [sys.executable, "-m", "onehop"]


def process(*args, **more):
    """Run the command line in a separate process."""
    return subprocess.run([*ONEHOP, *map(str, args)], capture_output=True, text=True, check=False, **more)


def every_command(group=None, path=()):
    """Each command and group of commands, with the words that call it."""
    group = group or typer.main.get_command(app)
    yield list(path), group
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, (*path, name))


EVERY_PATH = [path for path, _ in every_command()]


def refused(result, message):
    """Assert that a run ended with this one line and exit status 2."""
    assert result.stderr == f"onehop: {message}\n"
    assert result.stdout == ""
    assert result.exit_code == 2


# --- help and version -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands(option):
    found = onehop(option)
    assert found.exit_code == 0
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", found.stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_a_help_text(verb):
    found = onehop(verb, "--help")
    assert found.exit_code == 0
    assert f"onehop {verb}" in found.stdout


@pytest.mark.parametrize("markup", [None, "rich"])
@pytest.mark.parametrize("path", EVERY_PATH, ids=" ".join)
def test_help_texts_are_plain_and_cover_every_option(path, markup, monkeypatch, capsys):
    """Flags show no type, bounded numbers a plain one, and every option has a sentence."""
    group = typer.main.get_command(app)
    commands = {tuple(path): command for path, command in every_command(group)}
    for command in commands.values():
        command.rich_markup_mode = markup
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    group.main([*path, "--help"], prog_name="onehop", standalone_mode=False)
    shown = capsys.readouterr().out
    assert "<bool>" not in shown
    assert re.findall(r"<[a-z]+ [a-z]+>|list\[|\\", shown) == []
    assert max(map(len, shown.splitlines())) <= 80
    assert [param.name for param in commands[tuple(path)].params if not param.help] == []


def test_the_help_of_translate_begins_with_examples_and_the_usual_options():
    shown = onehop("translate", "--help").stdout
    assert '\n onehop translate "Good morning!"' in shown
    options, rest = shown.partition("─ Options ─")[2].split("─ Documents ─")
    usual = ["--input", "--out", "--text", "--model", "--from", "--to", "--quality", "--json", "--help"]
    assert re.findall(r"^│ +(--[a-z]+)", options, re.MULTILINE) == usual
    assert re.findall(r"─ ([A-Z][a-z ]+) ─", rest) == [
        "Search and sampling",
        "Sentences and wording",
        "Engine and machine",
    ]


@pytest.mark.parametrize("path", EVERY_PATH, ids=" ".join)
def test_every_option_has_a_long_form(path):
    command = next(command for found, command in every_command() if found == path)
    options = [param.opts for param in command.params if param.param_type_name == "option"]
    assert [names for names in options if not any(name.startswith("--") for name in names)] == []


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["config", "base"], ["translate", "--help"]])
def test_heavy_libraries_are_imported_on_use(args):
    code = (
        "import sys; from onehop.cli import app\n"
        f"try: app({args})\n"
        "except SystemExit: pass\n"
        "print({'torch', 'numpy', 'sentencepiece', 'sacrebleu', 'matplotlib'} & set(sys.modules), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout
    assert found.stderr == "set()\n"


def test_every_command_that_uses_torch_has_the_option_threads():
    options = {" ".join(path): [o for p in command.params for o in p.opts] for path, command in every_command()}
    computing = {path for path, names in options.items() if "--device" in names} | {"evaluate", "export", "import"}
    assert [path for path in sorted(computing) if "--threads" not in options[path]] == []


def test_threads_reach_torch_and_other_processes(here, model_file, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    try:
        assert onehop("trace", "the old house", "-m", model_file, "-o", "t", "--threads", "3").exit_code == 0
        assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (3, "3")
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("given", "used"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")])
def test_omp_wait_policy_is_passive_unless_set(given, used):
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | given
    code = "import os; from onehop import cli; cli._with_command = lambda _: show; cli.main()"
    code = f"def show(**_): print(os.environ['OMP_WAIT_POLICY'])\n{code}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert found.stdout.strip() == used


EARLY = [
    ["train", "bas", "-o", "run"],
    ["train", "base", "-o", "run", "--set", "model.dmodel=8"],
    ["trace", "x", "-o", "t.json", "-m", "no"],
    ["trace", "x", "-o", "t.json", "--beam", "0"],
    ["trace", "x", "-o", "no/t.json"],
    ["explore", "-m", "no"],
    ["explore", "--export", "."],
    ["explore", "--site", "no/site"],
    ["explore", "--site", "."],
    ["generate", "-m", "no"],
    ["embed", "x", "-m", "no"],
    ["fill", "x", "-m", "no"],
    ["translate", "x", "-m", "no"],
    ["translate", "x", "--engine", "torch", "--compute", "int8"],
    ["paper", "heads", "--source", "no", "--reference", "no"],
    ["paper", "table3", "bas", "-o", "out"],
    ["curves", "no"],
    ["finetune", "en-de", "no.en", "no.de", "-o", "run"],
    ["finetune", "no", "no.en", "no.de", "-o", "run"],
    ["export", "en-de", "--to", "no", "-o", "out"],
    ["export", "no", "--to", "onnx", "-o", "out"],
    ["import", "no", "-o", "out.safetensors"],
]


def test_errors_are_reported_before_torch_is_imported(here):
    code = (
        "import sys; from typer.testing import CliRunner; from onehop.cli import app\n"
        f"for args in {EARLY}:\n"
        "    found = CliRunner().invoke(app, args)\n"
        "    print(found.exit_code, found.stderr.count(chr(10)), 'torch' in sys.modules, args, found.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line[:10] for line in found.stdout.splitlines() if line] == ["2 1 False "] * len(EARLY), found.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["trace", "x", "-o", "no/t.json"],
            "no/t.json cannot be written: No such file or directory. Give another file.",
        ),
        (["trace", "x", "-o", "folder.toml"], "folder.toml cannot be written: Is a directory. Give another file."),
        (["explore", "--export", "folder.toml"], "folder.toml cannot be written: Is a directory. Give another file."),
        (["explore", "--site", "bad.toml"], "bad.toml is a file. Give --site the name of a new folder."),
        (["explore", "--site", "."], "The folder . is not empty. Choose a new one, or empty it first."),
        (
            ["explore", "--site", "new", "--export", "x.html"],
            "--site and --export are both given. Write one at a time.",
        ),
        (
            ["explore", "--site", "new", "--edit", "mask=off"],
            "A site opens with the model as trained. Leave out --edit: the page has the switches.",
        ),
    ],
)
def test_unwritable_outputs_are_refused_before_the_work(here, args, message):
    refused(onehop(*args), message)


def test_only_the_called_command_is_imported():
    for words, built in (
        (["translate"], ["translate"]),
        (["import"], ["import"]),
        (["verify-resume"], ["verify-resume"]),
    ):
        assert list(typer.main.get_command(_with_command(words)).commands) == built
    for words in ([], ["models"], ["--debug"], ["transalte"]):  # groups, options and typos need all commands
        assert _with_command(words) is app
    refused = process("transalte")
    assert refused.stderr == "onehop: `onehop` has no command transalte. Did you mean translate?\n"


def test_a_model_is_compared_only_with_another_of_its_languages(here, model_file):
    name, other = short_name(model_file), here / "back.safetensors"
    write_model(other, replace(read_model(model_file), source="de", target="en"))
    refused(
        onehop("explore", "-m", model_file, "--compare", other),
        f"back translates de to en, and {name} en to de. "
        "Give --compare a model of the same languages; `onehop models list` shows them.",
    )
    refused(
        onehop("explore", "-m", model_file, "--compare", model_file),
        f"{name} and {name} are the same model. Give --compare another one.",
    )
    refused(
        onehop("explore", "-m", model_file, "--compare", other, "--export", "x.html"),
        "A file or site holds one model. Leave out --compare, or --site and --export.",
    )
    assert not Path("x.html").exists()


def test_version_is_printed():
    found = onehop("--version")
    assert (found.stdout, found.stderr, found.exit_code) == (f"onehop {__version__}\n", "", 0)


def test_a_call_without_command_shows_the_help():
    found = onehop()
    assert "verify-resume" in found.output


def test_shell_completion_works():
    command = [Path(sys.executable).with_name("onehop")]  # the output contains the name of the command
    shown = subprocess.run([*command, "--show-completion", "bash"], capture_output=True, text=True, check=True)
    assert "complete -o default -F _onehop_completion onehop" in shown.stdout
    asked = {"_ONEHOP_COMPLETE": "complete_bash", "COMP_WORDS": "onehop tra", "COMP_CWORD": "1"}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    assert sorted(answer.stdout.split()) == ["trace", "train", "translate"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("config b", ["base", "big"]),
        ("train sm", ["small"]),
        ("prepare --settings ti", ["tiny"]),
        ("translate --model ", ["de-en", "en-de"]),
        ("explore -m d", ["de-en"]),
        ("models show e", ["en-de"]),
        ("export no", []),
    ],
)
def test_models_and_presets_are_completed(install, words, offered, monkeypatch):
    install("de-en", "en-de")
    monkeypatch.setenv("_ONEHOP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"onehop {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    assert onehop().stdout.split() == offered


# --- config ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["tiny", "small", "base", "big"])
def test_config_prints_settings_that_read_back(preset):
    found = onehop("config", preset, "--set", "model.d_ff=1024", "--set", "data.source=fr")
    assert found.exit_code == 0
    changed = with_changes(load_settings(preset), ["model.d_ff=1024", "data.source=fr"])
    assert changed.model.d_ff == 1024
    assert settings_from_dict(tomllib.loads(found.stdout)) == changed


def test_config_explains_every_field():
    lines = onehop("config", "base").stdout.splitlines()
    for kind in TABLES.values():
        for field in fields(kind):
            explained = [line for line in lines if re.match(rf"(# )?{field.name}\b", line)]
            assert any(line.endswith(f"  # {field.metadata['doc']}") for line in explained), field.name


def test_config_reads_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text("[train]\nsteps = 7\n")
    assert "steps = 7 " in onehop("config", tmp_path / "mine.toml").stdout


# --- errors ---------------------------------------------------------------------------------------------------

REFUSED = [
    (["config", "bas"], "There is no preset 'bas'. Did you mean base?"),
    (["config", "x"], "There is no preset 'x'. There are: base, big, decoder, digits, encoder, small, tiny."),
    (
        ["config", "x" * 300],
        f"There is no preset '{'x' * 300}'. There are: base, big, decoder, digits, encoder, small, tiny.",
    ),
    (
        ["config", "no.toml"],
        "There is no settings file no.toml. "
        "Give a TOML file or a preset (tiny, small, base, big, decoder, encoder, digits).",
    ),
    (["config", "bad.toml"], "bad.toml is not valid TOML: Invalid value (at line 2, column 8). Correct that line."),
    (["config", "deep.toml"], "deep.toml is not valid TOML: "),
    (["config", "folder.toml"], "The settings file folder.toml cannot be read: "),
    (["config", "binary.toml"], "The settings file binary.toml cannot be read: 'utf-8' codec can't decode"),
    (["config", "base", "--set", "model.dmodel=8"], "There is no setting model.dmodel. Did you mean d_model?"),
    (["config", "base", "--set", "modle.d_ff=8"], "There is no table 'modle' in the settings. Did you mean model?"),
    (
        ["config", "base", "--set", "d_ff"],
        "--set d_ff is not of the form table.key=value. Write --set model.d_ff=1024.",
    ),
    (["config", "base", "--set", "a\nb"], "--set a b is not of the form table.key=value. Write --set model.d_ff=1024."),
    (
        ["config", "base", "--set", "model.d_ff=many"],
        "model.d_ff is 'many'. It must be a whole number: inner width of the feed-forward network.",
    ),
    (
        ["config", "base", "--set", "model.d_ff=1\nx=2"],
        "model.d_ff is '1\\nx=2'. It must be a whole number: inner width of the feed-forward network.",
    ),
    (["config", "base", "--set", f"model.d_ff={'9' * 5000}"], "model.d_ff is '999"),
    (["config", "base", "--set", f"data.train={'[' * 5000}"], "data.train is '[[["),
    (
        ["config", "base", "--set", "model.d_model=500"],
        "model.d_model 500 is not divisible by model.n_heads 8. Change one of them, or set model.d_k and model.d_v.",
    ),
    (
        ["config", "base", "--set", "model.dropout=-0.1"],
        "model.dropout is -0.1. It must be at least 0.0: dropout rate of each sub-layer and of embedding + position.",
    ),
    (["translate", "-m", "no", "hi"], "There is no model 'no'. Give a .safetensors file (onehop train makes one, "),
    (["translate", "-m", "x/no", "hi"], "There is no model file x/no. Give a .safetensors file or a run folder."),
    (["translate", "hi"], "No model is installed. Give a .safetensors file (onehop train makes one, "),
    (["models", "show", "no"], "There is no model 'no'. "),
    (
        ["translate", "-m", "corrupt", "hi"],
        "corrupt is cut off or damaged: its header is not complete. Download it or make it again.",
    ),
    (
        ["translate", "-m", "folder.toml", "hi"],
        "The folder folder.toml has no model.safetensors. Give a .safetensors file (",
    ),
    (["train", "tiny", "-o", "run", "--store", "no"], "There is no token store no. Make one with `onehop prepare`."),
    (
        ["train", "tiny", "-o", "run"],
        "There is nothing to train on. Give a store, or settings with files in their [data] table.",
    ),
    (["train", "tiny", "-o", "run", "--dry-run"], "There is nothing to train on. "),
    (["prepare", "-s", "tiny", "-o", "store"], "No training text is given. "),
    (["prepare", "no.tsv", "-s", "tiny", "-o", "store"], "no.tsv does not exist. "),
    (
        ["prepare", "-s", "tiny", "-o", "store", "--tokenizer", "no"],
        "no cannot be read: No such file or directory. Check the file and its permissions.",
    ),
    (["average", "no", "-o", "a"], "no is not a run folder. Give the folder that `onehop train -o` wrote."),
    (["curves", "no"], "There is no no. Give the folder that `onehop train -o` wrote."),
]


@pytest.fixture
def here(tmp_path, monkeypatch, model_file):
    """Change into a folder with files of several kinds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr("onehop.storage.registry.package_folder", lambda: tmp_path / "none")
    monkeypatch.setattr("onehop.storage.registry.model_packages", dict)
    Path("bad.toml").write_text("[model]\nd_ff = \n")
    Path("deep.toml").write_text(f"x = {'[' * 5000}\n")
    Path("binary.toml").write_bytes(b"\xff\n")
    Path("folder.toml").mkdir()
    Path("corrupt").write_bytes(model_file.read_bytes()[:500])
    return tmp_path


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda x: " ".join(x)[:50] if isinstance(x, list) else "")
def test_a_wrong_value_is_one_line_and_status_2(here, args, message):
    result = onehop(*args)
    assert result.stderr.startswith(f"onehop: {message}")
    assert result.stderr.endswith(".\n") or result.stderr.endswith("?\n")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert result.exit_code == 2
    assert not Path("run").exists()


def test_an_error_of_the_installed_command_is_one_line():
    found = process("config", "bas")
    assert found.stderr == "onehop: There is no preset 'bas'. Did you mean base?\n"
    assert (found.stdout, found.returncode) == ("", 2)


def test_debug_shows_the_traceback():
    found = onehop("--debug", "config", "bas")
    assert found.stderr.startswith("Traceback (most recent call last):")
    assert found.stderr.endswith("SettingsError: There is no preset 'bas'. Did you mean base?\n")
    assert found.exit_code == 2


def test_debug_as_an_argument_is_text():
    refused(
        onehop("config", "--", "--debug"),
        "There is no preset '--debug'. There are: base, big, decoder, digits, encoder, small, tiny.",
    )


WRONG_CALLS = [
    (["cinfig"], "`onehop` has no command cinfig. Did you mean config?"),
    (["xyzzy", "-x"], "`onehop` has no command xyzzy. See `onehop --help`."),
    (["paper", "tabel1"], "`onehop paper` has no command tabel1. Did you mean table1?"),
    (["--bogus"], "`onehop` has no option --bogus. See `onehop --help`."),
    (["paper", "--bogus"], "`onehop paper` has no option --bogus. See `onehop paper --help`."),
    (["translate", "hi", "--baem", "3"], "`onehop translate` has no option --baem. Did you mean --beam?"),
    (["translate", "hi", "--fast"], "`onehop translate` has no option --fast. Use --quality fast."),
    (["translate", "hi", "-q"], "`onehop translate` has no option -q. See `onehop translate --help`."),
    (["config"], "Missing argument 'SETTINGS'. See `onehop config --help`."),
    (["average", "run"], "Missing option '-o' / '--out'. See `onehop average --help`."),
    (["models", "show"], "Missing argument 'NAME_OR_FILE'. See `onehop models show --help`."),
    (["translate", "hi", "--beam"], "Option '--beam' requires an argument. See `onehop translate --help`."),
    (
        ["paper", "table1", "--longest"],
        "Option '--longest' requires an argument. See `onehop paper table1 --help`.",
    ),
    (["demo", "-o"], "Option '-o' requires an argument. See `onehop demo --help`."),
    (["translate", "hi", "--json=3"], "Option '--json' does not take a value. See `onehop translate --help`."),
    (
        ["translate", "hi", "--compute", "int4"],
        "Invalid value for '--compute': 'int4' is not one of 'int8', 'float32', 'bfloat16', 'float16'. "
        "See `onehop translate --help`.",
    ),
    (
        ["average", "run", "-o", "a", "--last", "0"],
        "Invalid value for '--last': 0 is not in the range x>=1. See `onehop average --help`.",
    ),
    (
        ["translate", "hi", "--beam", "wide"],
        "Invalid value for '--beam': 'wide' is not a valid int. See `onehop translate --help`.",
    ),
    (["cache", "clear", "all"], "Got unexpected extra argument(s) (all). See `onehop cache clear --help`."),
]


@pytest.mark.parametrize(("args", "message"), WRONG_CALLS, ids=lambda value: " ".join(value)[:30])
def test_a_wrong_call_is_one_line_with_the_remedy(args, message):
    refused(onehop(*args), message)


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("path", EVERY_PATH, ids=" ".join)
def test_every_command_refuses_a_wrong_option_in_one_line(path, debug):
    where = " ".join(["onehop", *path])
    refused(onehop(*debug, *path, "--bogus"), f"`{where}` has no option --bogus. See `{where} --help`.")


def test_a_wrong_call_through_python_m_names_the_command():
    found = process("config")
    assert (found.stdout, found.returncode) == ("", 2)
    assert found.stderr == "onehop: Missing argument 'SETTINGS'. See `onehop config --help`.\n"


# --- translate ------------------------------------------------------------------------------------------------

LINES = ["the old house", "", "a bird", "Grüße 😀", "  ", "the new tree and the old bird"]


@pytest.fixture(scope="module")
def translated(model_file):
    """The text of each line without surrounding spaces and emoji, which are not translated."""
    sources = [line.strip(" 😀") for line in LINES]
    found = [t.text for t in SentenceTranslator.load(model_file, "cpu").translate(sources, SearchOptions(beam=2))]
    assert len(set(found)) == len(LINES) - 1
    return [
        line.replace(source, text) if source else line for line, source, text in zip(LINES, sources, found, strict=True)
    ]


def test_translate_takes_a_text(model_file, translated):
    found = onehop("translate", "-m", model_file, "--beam", "2", "--device", "cpu", LINES[0])
    assert (found.stdout, found.exit_code) == (translated[0] + "\n", 0)


@pytest.mark.parametrize(("end", "last"), [("\n", True), ("\r\n", False)])
def test_translate_works_line_by_line(model_file, translated, end, last):
    stdin = end.join(LINES) + (end if last else "")
    found = onehop("translate", "-m", model_file, "--beam", "2", "--device", "cpu", stdin=stdin.encode())
    assert found.stdout.split("\n") == [*translated, ""]


def test_translate_accepts_empty_input(model_file):
    found = onehop("translate", "-m", model_file, stdin=b"")
    assert (found.stdout, found.exit_code) == ("", 0)


def test_translate_works_as_a_process(model_file, translated):
    found = process("translate", "-m", model_file, "--beam", "2", "--device", "cpu", input="\n".join(LINES))
    assert found.stdout.split("\n") == [*translated, ""]
    # Models with random weights repeat themselves, and write bytes that are no letters.
    repeats = "a translation repeated itself over and over, and was stopped"
    broken = "a character that the model does not know came out garbled"
    told = [(1, repeats), (3, repeats), (4, repeats), (4, broken), (6, repeats)]
    assert found.stderr == "".join(f"onehop: line {n} of standard input: {what}\n" for n, what in told)


def test_bad_utf8_is_refused_with_its_line(model_file):
    found = onehop("translate", "-m", model_file, stdin=b"fine\nGr\xfc\xdfe\n")
    assert found.stderr.endswith(
        "\nonehop: Line 2 of standard input is not UTF-8. Convert it, e.g. with `iconv -f latin1 -t utf-8`.\n"
    )
    assert found.stdout.count("\n") == 1  # earlier lines are written
    assert found.exit_code == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--device", "tpu"], "There is no device 'tpu'. Choose cpu, cuda or cuda:N."),
        (["--device", "cuda"], "There is no device cuda:0: torch sees no GPU here. Choose another, or cpu."),
        (["--beam", "0"], "--beam is 0. It must be at least 1: hypotheses followed at a time; 1: greedy."),
    ],
)
def test_unusable_options_are_refused(model_file, monkeypatch, option, message):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    refused(onehop("translate", "-m", model_file, *option, "hi"), message)


def test_training_on_a_missing_device_is_refused(digits, tmp_path):
    _, store = digits
    found = onehop("train", "tiny", "--store", store.path, "-o", tmp_path / "run", "--device", "tpu")
    refused(found, "There is no device 'tpu'. Choose cpu, cuda or cuda:N.")


# --- pipes, signals, terminals --------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["config", "base"], ["--help"]])
def test_a_closed_pipe_leaves_no_traceback(args):
    running = subprocess.Popen([*ONEHOP, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()  # long before the command writes
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait() == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_leave_no_traceback(tmp_path, number, status):
    (tmp_path / "stdin.toml").write_text('[data]\ntrain = ["-"]\n')
    command = [*ONEHOP, "prepare", "-s", str(tmp_path / "stdin.toml"), "-o", str(tmp_path / "store")]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (tmp_path / "store.partial" / "stdin.tsv").exists():  # it reads standard input from here on
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(number)
    with running:
        assert running.wait(timeout=60) == status
        assert running.stderr.read().strip() == b""


def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(tmp_path):
    (tmp_path / "typer.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    command = [*ONEHOP, "config", "base"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as running:
        assert running.stdout.readline() == b"importing\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == -signal.SIGINT
        assert running.stderr.read() == b""


def test_sigterm_keeps_translated_lines(model_file, tmp_path):
    out = tmp_path / "out.de"
    command = [*ONEHOP, "translate", "-m", str(model_file), "-i", "-", "-o", str(out)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdin.write(b"the old house\n")
    running.stdin.flush()
    partial = out.with_name("out.de.partial")
    while not (partial.exists() and partial.stat().st_size):  # it waits for the next line from here on
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    with running:
        assert running.wait(timeout=60) == 143
        said = running.stderr.read().decode().strip()
    assert said.splitlines()[-1] == f"onehop: Stopped. What was translated before is in {out}.partial."
    assert not out.exists()


def on_terminal(args, **environment):
    """The output of a command on a pseudo-terminal."""
    outside, inside = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm", **environment}
    with subprocess.Popen([*ONEHOP, *args], stdin=inside, stdout=inside, stderr=inside, env=env):
        os.close(inside)
        shown = b""
        while chunk := read(outside):
            shown += chunk
    os.close(outside)
    return shown.decode()


def read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux the end of the output
        return b""


def test_a_terminal_gets_a_hint_that_input_is_read(model_file):
    outside, inside = pty.openpty()
    command = [*ONEHOP, "translate", "-m", model_file]
    with subprocess.Popen(command, stdin=inside, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr.readline() == "onehop: Waiting for lines on standard input; Ctrl-D ends them.\n"
        os.write(outside, b"\x04")
    os.close(inside)
    os.close(outside)
    assert run.returncode == 0
    assert process("translate", "-m", model_file, stdin=subprocess.DEVNULL).stderr == ""


@pytest.mark.parametrize("args", [["--help"], ["config", "--help"]])
def test_no_color_disables_colours(args):
    assert "\x1b[" in on_terminal(args)
    shown = on_terminal(args, NO_COLOR="1")
    assert "Usage: " in shown
    assert "\x1b" not in shown


# --- from raw text to a translation ---------------------------------------------------------------------------


def test_prepare_train_average_translate_and_curves_work_together(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings, store = digits
    Path("settings.toml").write_text(settings_to_toml(settings), encoding="utf-8")
    made = onehop("prepare", "-s", "settings.toml", "--data", store.path.parent, "-o", "store", "--processes", "1")
    assert made.exit_code == 0, made.stderr
    assert made.stdout.endswith("store: 360 pairs to train on, 40 to validate on\n")
    dry = onehop("train", "settings.toml", "--store", "store", "-o", "run", "--dry-run")
    assert " parameters\n" in dry.stdout
    assert not Path("run").exists()
    train = ["train", "settings.toml", "--store", "store", "-o", "run", "--bleu-on", "5", "--device", "cpu"]
    trained = onehop(*train)
    assert trained.stdout == "run/model.safetensors\n", trained.stderr
    assert "validation: nll" in trained.stderr
    averaged = onehop("average", "run", "-o", "mean.safetensors", "--last", "2")
    assert averaged.stdout == "mean.safetensors: the mean of the weights after steps 10, 20\n"
    assert onehop("translate", "-m", "mean.safetensors", "1 2 3").exit_code == 0
    assert onehop("curves", "run", "-o", "run.svg").stdout == "run.svg\n"
    assert Path("run.svg").stat().st_size > 10_000


def test_demo_reverse_shows_its_outcome(monkeypatch, tmp_path):
    from onehop.experiments import reverse

    outcome = reverse.ReverseOutcome(1, 2, [("1 2", "2 1")], tmp_path)
    monkeypatch.setattr(reverse, "run", lambda folder: outcome if folder == tmp_path else None)
    found = onehop("demo", "reverse", "-o", tmp_path)
    assert "1 of 2 right." in found.stderr
    assert found.exit_code == 0


@pytest.mark.parametrize(("same", "status"), [(True, 0), (False, 1)])
def test_verify_resume_reports_equality_by_its_exit_status(monkeypatch, same, status):
    def verify(folder, *, kills, steps, seed, say, device):
        assert (folder, kills, steps, seed, device) == (None, 2, 40, 3, "cuda:1")
        say("hello")
        return same

    monkeypatch.setattr("onehop.experiments.verify_resume.verify_resume", verify)
    found = onehop("verify-resume", "--kills", "2", "--steps", "40", "--seed", "3", "--device", "cuda:1")
    assert (found.stdout, found.exit_code) == ("hello\n", status)


def test_prepare_can_use_a_models_tokenizer(model_file, tmp_path):
    from onehop.cli.train import tokenizer_of
    from onehop.errors import TextError
    from onehop.storage.model_io import read_model

    own = read_model(model_file).tokenizer
    (tmp_path / "tokenizer.model").write_bytes(own)
    assert tokenizer_of(str(model_file)) == tokenizer_of(str(tmp_path / "tokenizer.model")) == own
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(model_file.read_bytes())
    assert tokenizer_of(str(tmp_path / "run")) == own
    with pytest.raises(TextError, match="cannot be read"):
        tokenizer_of(str(tmp_path / "missing.model"))


def test_models_without_a_command_lists_them():
    listed = onehop("models", "list")
    assert "en-de" in listed.stdout
    assert onehop("models").stdout == listed.stdout
