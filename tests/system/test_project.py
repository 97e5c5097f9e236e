"""The set-up of the tests, workflows, hooks, templates, and the files at the root."""

import ast
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from onehop._version import __version__

ROOT = Path(__file__).parents[2]


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# --- the tests' own set-up ------------------------------------------------------------------------------------


def run_pytest(*words: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Pytest in a separate process that first runs `before`."""
    code = f"import sys; {before}\nimport pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_without_beartype_tests_run_unchecked_and_say_so():
    done = run_pytest("tests/text/test_casing.py", before="sys.modules['beartype'] = None")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOTE: types and shapes were not checked. Install beartype" in done.stdout


def test_gpu_tests_without_a_gpu_name_their_requirements():
    done = run_pytest("-m", "gpu", "tests/training/test_step.py", TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "sees no GPU. These tests need an NVIDIA GPU" in done.stderr


def test_every_test_that_needs_a_gpu_is_marked():
    needing = re.compile(r"((?:@pytest\.mark\..+\n)*)@pytest\.mark\.skipif\(not torch\.cuda\.is_available\(\)")
    found = [marks for file in ROOT.glob("tests/**/test_*.py") for marks in needing.findall(text_of(file))]
    assert len(found) >= 3
    assert all("@pytest.mark.gpu\n" in marks for marks in found)


# --- workflows ------------------------------------------------------------------------------------------------

WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", text_of(ROOT / "Makefile"), re.M))


def parsed(file: Path) -> dict[str, Any]:
    return yaml.safe_load(text_of(file))


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [job])]


def test_the_workflows_are_those_of_tests_docs_and_releases():
    assert [file.stem for file in WORKFLOWS] == ["docs", "release", "tests"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_call_existing_targets_and_files(file):
    workflow = parsed(file)
    assert workflow["permissions"] == {"contents": "read"}
    made = set()
    for step in steps_of(workflow):
        made |= set(re.findall(r"\bmake ([\w-]+)", step.get("run", "")))
        used = step.get("uses", "")
        assert not used.startswith("./") or (ROOT / used).is_file(), used
        assert not used or used.startswith("./") or re.search(r"@(v\d+|release/v\d+)$", used), used
        listed = step.get("with", {}).get("cache-dependency-path")
        assert listed is None or (ROOT / listed).is_file(), listed
    assert made
    assert made <= TARGETS


def test_ci_tests_every_supported_python():
    versions = parsed(ROOT / ".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert project["requires-python"] == f">={versions[0]}"
    assert versions == [f"3.{minor}" for minor in range(11, 15)]


def test_only_tags_are_published_after_the_tests():
    jobs = parsed(ROOT / ".github/workflows/release.yml")["jobs"]
    (publishing,) = [job for job in jobs.values() if "id-token" in job.get("permissions", {})]
    assert publishing["environment"] == "pypi"
    assert publishing["if"] == "github.ref_type == 'tag'"
    assert publishing["needs"] == ["test", "build"]
    assert jobs["test"]["uses"] == "./.github/workflows/tests.yml"


@pytest.mark.parametrize("package", sorted(ROOT.glob("packages/*")), ids=lambda package: package.name)
def test_a_model_package_has_a_description_for_the_index(package):
    """`twine check --strict` refuses one without."""
    project = tomllib.loads(text_of(package / "pyproject.toml"))["project"]
    assert (package / project["readme"]).is_file()


# --- hooks ----------------------------------------------------------------------------------------------------


def test_the_hooks_are_the_checks_of_make_and_fetch_nothing():
    (repository,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    *hooks, script = [hook["entry"].removeprefix(".venv/bin/") for hook in repository["hooks"]]
    assert script == "make check-js"
    recipe = re.search(r"^check-python:.*\n((?:\t.*\n)+)", text_of(ROOT / "Makefile"), re.M)[1]
    checks = re.findall(r"\$\(BIN\)/(.+)", recipe)
    assert hooks == [check.removesuffix(" .").replace(" --check", "") for check in checks]


# --- JavaScript -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ci", ["", "true"])
def test_without_node_the_javascript_check_is_skipped_and_fails_in_ci(ci, tmp_path):
    command = [shutil.which("make"), "check-js"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": str(tmp_path), "CI": ci}
    )
    assert done.returncode == (2 if ci else 0)
    assert ("cannot be checked: install node" if ci else "SKIPPED: the pages' JavaScript is not") in done.stdout


@pytest.mark.skipif(
    not (ROOT / "node_modules").exists() and not os.environ.get("CI"), reason="needs node: make check-js"
)
def test_tsc_finds_undeclared_names_wrong_imports_and_extra_arguments(tmp_path):
    (tmp_path / "wrong.js").write_text(
        'import { absent } from "onehop/maths.js";\nimport { number } from "onehop/format.js";\n'
        "export const x = [undeclared, absent, number(1, 2, 3)];\n"
    )
    changed = {"extends": f"{ROOT}/jsconfig.json", "include": ["wrong.js"]}
    (tmp_path / "jsconfig.json").write_text(json.dumps(changed))
    command = [ROOT / "node_modules/.bin/tsc", "-p", "jsconfig.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.findall(r"^wrong.js.*?error (TS\d+)", done.stdout, re.M) == [
        "TS2305",  # no exported member
        "TS2304",  # cannot find name
        "TS2554",  # expected arguments
    ]


# --- templates, citation, changelog ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bug", "idea", "wrong_translation"])
def test_issue_forms_have_fields(name):
    form = parsed(ROOT / f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form["name"]
    assert form["description"]
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    assert any(part.get("validations", {}).get("required") for part in form["body"])
    assert all(part["attributes"].get("label") for part in form["body"] if part["type"] != "markdown")


def versions() -> list[tuple[str, str]]:
    """The headings of the changelog, newest first, each with its date or nothing."""
    return re.findall(r"^## (\d+\.\d+\.\d+)(?: \((.+)\))?$", text_of(ROOT / "CHANGELOG.md"), re.M)


def test_the_changelog_has_one_section_a_version_newest_first():
    numbers = [tuple(map(int, version.split("."))) for version, _ in versions()]
    assert numbers == sorted(set(numbers), reverse=True)
    assert versions()[0][0] == __version__


def test_the_citation_is_complete_and_has_this_version():
    cited = parsed(ROOT / "CITATION.cff")
    assert cited["cff-version"] == "1.2.0"
    assert cited["title"]
    assert cited["message"]
    assert cited["authors"] == [{"name": "onehop contributors"}]
    version, date = versions()[0]
    assert cited["version"] == version
    assert cited["date-released"] == datetime.strptime(date, "%d %B %Y").date()
    (paper,) = cited["references"]
    assert (paper["type"], paper["title"], paper["year"]) == ("conference-paper", "Attention Is All You Need", 2017)
    assert [author["family-names"] for author in paper["authors"]][::7] == ["Vaswani", "Polosukhin"]
    assert all(author.keys() == {"family-names", "given-names"} for author in paper["authors"])


# --- CONTRIBUTING.md ------------------------------------------------------------------------------------------

GUIDE = text_of(ROOT / "CONTRIBUTING.md")


def test_every_path_in_contributing_exists():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    words = set(re.findall(r"(?<![\w/])[\w.-]+(?:/[\w.-]+)*/?", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))
    words |= set(re.findall(r"\b(?:tests|benchmarks)/[\w/.-]+", GUIDE))
    named = {word for word in words if word.split("/")[0] in folders and "/" in word}
    named |= {word for word in words if re.fullmatch(r"[\w.]+\.(?:toml|txt|yml|md|cff)", word)}
    named -= {"model.search.toml", "card.md"} | {word for word in named if word.endswith("test_")}  # tests/<package>/…
    assert len(named) > 40
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


def test_every_make_target_in_contributing_exists():
    named = set(re.findall(r"\bmake ([a-z][\w-]*)`", GUIDE)) | set(re.findall(r"^    make ([\w-]+)", GUIDE, re.M))
    assert {"check", "test", "test-fast", "test-gpu", "docs"} <= named
    assert named <= TARGETS


def test_every_name_in_contributings_recipes_exists():
    for recipe in re.split(r"^### ", GUIDE.split("## Recipes")[1].split("## Releases")[0], flags=re.M)[1:]:
        files = [ROOT / name for name in re.findall(r"`([\w/.-]+\.(?:py|js|toml))`", recipe) if "/" in name]
        code = "\n".join(text_of(file) for file in files)
        names = re.findall(r"`([A-Z]\w+)(?:\.\w+)?`", recipe)
        assert not [name for name in names if not re.search(rf"\b{name}\b", code)], recipe


def test_contributing_lists_the_files_with_gpu_tests():
    marked = {
        file.relative_to(ROOT).as_posix()
        for file in ROOT.glob("tests/**/test_*.py")
        if re.search(r"^(?:@|pytestmark = )pytest\.mark\.gpu$", text_of(file), re.M)
    }
    command = GUIDE.split("python3 -m pytest -m gpu")[1].split("\n\n")[0]
    assert set(re.findall(r"tests/\S+\.py", command)) == marked


def test_the_pull_request_template_asks_for_every_proof():
    template = text_of(ROOT / ".github/pull_request_template.md")
    assert "Proof of value" in template
    assert "benchmarks/fingerprint.py" in template
    assert len(re.findall(r"^- \[ \] \*\*", template, re.M)) == len(
        re.findall(r"^\| (?!change|-)", GUIDE.split("## Proof of value")[1].split("\n## ")[0], re.M)
    )


def test_imports_of_scripts_exist():
    """Scripts of benchmarks and recipes run seldom, so a moved name would be noticed late."""
    missing = []
    for script in sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "recipes").glob("*.py")]):
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "onehop":
                module = importlib.import_module(node.module)
                names = [alias.name for alias in node.names]
                missing += [f"{script.name}: {node.module}.{n}" for n in names if not there(module, n)]
    assert missing == []


def there(module, name):
    return hasattr(module, name) or importlib.util.find_spec(f"{module.__name__}.{name}") is not None


def test_no_two_public_classes_have_the_same_name():
    files = sorted((ROOT / "onehop").rglob("*.py"))
    nodes = [node for file in files for node in ast.parse(text_of(file)).body if isinstance(node, ast.ClassDef)]
    names = Counter(node.name for node in nodes if not node.name.startswith("_"))
    assert len(names) > 200
    assert [name for name, count in names.items() if count > 1] == []
