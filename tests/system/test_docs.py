"""The docs: their links, commands, code, symbols and figures are right, and the site builds."""

import ast
import doctest
import importlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Literal, get_args, get_origin

import pytest
import typer
from pymdownx.slugs import slugify
from rich.text import Text

from onehop.cli import app
from onehop.config import TABLES, Settings, load_settings, preset_names, settings_from_dict, toml_value
from onehop.evaluation.language_model import Likelihood
from onehop.evaluation.masked_language_model import MaskedTokens, Recall
from onehop.server.settings import ServerSettings
from onehop.storage.registry import SMALL

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOT_PAGES = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES = [*ROOT_PAGES, *sorted(DOCS.rglob("*.md"))]
CARDS = [*ROOT.glob("onehop/models/*/card.md"), *ROOT.glob("packages/*/*/card.md")]
ONEHOP = typer.main.get_command(app)
SHELL = ("", "bash", "console", "sh")
RUN = "<!-- run -->"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def module_from(file: Path):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def in_each_page(find):
    """The items that a function finds in each page, as parameters of a test."""
    return [
        pytest.param(found, id=f"{page.stem}-{number}") for page in PAGES for number, found in enumerate(find(page))
    ]


# --- code blocks ---


def code_blocks(page: Path) -> Iterator[tuple[str, str, bool]]:
    """Language, code, and whether it is marked to be run. Indented blocks have no language."""
    text = text_of(page)
    fence = re.compile(r"(?P<mark><!-- run -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```", re.M | re.S)
    for block in fence.finditer(text):
        yield block["language"], block["code"], block["mark"] is not None
    for indented in re.findall(r"(?:\A|(?<=\n))((?:(?: {4}[^\n]*)?\n)+)", fence.sub("", text)):
        if indented.strip():
            yield "", re.sub("^ {4}", "", indented, flags=re.M).strip("\n") + "\n", False


def test_code_blocks_are_extracted(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# a\n    b\n\n    c\n\nd\n\n```console\n$ e\n```\n\n{RUN}\n```python\nf\n```\n")
    assert list(code_blocks(page)) == [("console", "$ e\n", False), ("python", "f\n", True), ("", "b\n\nc\n", False)]


# --- commands ---


def commands(page: Path) -> list[list[str]]:
    """Every call of onehop in blocks and in running text, as words."""
    lines = (line for language, code, _ in code_blocks(page) if language in SHELL for line in joined(code))
    inline = re.findall(r"`(onehop [^`\n]+)`", text_of(page))
    return [call for line in itertools.chain(lines, inline) for call in calls(line)]


def joined(code: str) -> list[str]:
    """Lines of commands, with continued lines joined. If some have a prompt, the others are output."""
    lines = re.sub(r"\\\n\s*", " ", code).splitlines()
    prompted = [line for line in lines if line.startswith("$ ")]
    return prompted or lines


def calls(line: str) -> Iterator[list[str]]:
    """The words after `onehop` of each command of a line. Lines that are no shell have none."""
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        assert not line.startswith(("onehop ", "$ onehop ")), line
        return
    for is_end, command in itertools.groupby(words, lambda word: set(word) <= set("|&;")):
        part = list(command)
        names = [i for i, word in enumerate(part) if word.endswith("bin/onehop") or word == "onehop"]
        if not is_end and names and (names[0] == 0 or part[names[0] - 1] in ("-m", "time")):
            yield part[names[0] + 1 :]


def is_placeholder(word: str) -> bool:
    return "…" in word or word.isupper()


def is_value(before: str, command) -> bool:
    """Whether a word is the value of the option before it."""
    return any(before in option.opts and not option.is_flag for option in command.params)


def mistake(words: list[str]) -> str | None:
    """The error of a call: an unknown command, option or setting."""
    command, path = ONEHOP, []
    for place, word in enumerate(words):
        subcommands = getattr(command, "commands", {})
        if word.startswith("-") and len(word) > 1:
            known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
            if word.split("=")[0] not in known | {"--help", "-h"}:
                return f"{word} is no option of onehop {' '.join(path)}"
            if word == "--set" and not is_setting(words[place + 1], path):
                return f"{words[place + 1]} is no setting"
        elif subcommands and is_placeholder(word):
            return None
        elif subcommands and not is_value(words[place - 1] if place else "", command):
            if word not in subcommands:
                return f"{word} is no verb of onehop {' '.join(path)}"
            command, path = subcommands[word], [*path, word]
    return None


def is_setting(change: str, path: list[str]) -> bool:
    name = change.split("=")[0]
    if is_placeholder(name) or name == "table.key":
        return True
    if path == ["serve"]:
        return name in {field.name for field in fields(ServerSettings)}
    table, _, key = name.partition(".")
    tables = {field.name: field.type for field in fields(Settings)}
    return table in tables and key in {field.name for field in fields(tables[table])}


@pytest.mark.parametrize("words", in_each_page(commands))
def test_documented_commands_and_options_exist(words):
    assert mistake(words) is None


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("onehop trian small -o run", "trian is no verb of onehop "),
        ("onehop train small --outt run", "--outt is no option of onehop train"),
        ("echo a | onehop translate --bean 4", "--bean is no option of onehop translate"),
        ("torchrun --nproc-per-node 2 -m onehop train small --stor x", "--stor is no option of onehop train"),
        ("onehop models lst", "lst is no verb of onehop models"),
        ("onehop train small -o run --set train.step=5", "train.step=5 is no setting"),
        ("onehop serve --set max_bodies=5", "max_bodies=5 is no setting"),
        ("onehop --debug COMMAND …", None),
        ("onehop train small -o runs/a --set train.steps=5  # why", None),
    ],
)
def test_the_check_finds_wrong_commands(line, wrong):
    (words,) = calls(line)
    assert mistake(words) == wrong


def helps(command, path="onehop") -> Iterator[tuple[str, str]]:
    """The help texts of each command and its options."""
    yield path, command.help or ""
    for param in command.params:
        yield f"{path} {param.name}", getattr(param, "help", None) or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{path} {name}")


def test_bracketed_words_survive_in_help_texts():
    for where, text in helps(ONEHOP):
        text = text.replace("\b", "")  # keeps the lines of an example apart
        assert Text.from_markup(text).plain == text.replace("\\[", "["), where


def test_the_readme_begins_with_the_two_commands():
    first = text_of(ROOT / "README.md").splitlines()[:10]
    targets = re.findall(r"^([\w-]+):", text_of(ROOT / "Makefile"), re.M)
    for target in ("demo", "test"):
        assert any(line.startswith(f"    make {target} ") for line in first)
        assert target in targets


def test_the_readme_has_the_scores_of_the_reports():
    languages = {"English": "en", "German": "de", "French": "fr"}
    row = r"^\| (\w+) → (\w+)(, small: \d+ MB)? \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|"
    rows = re.findall(row, text_of(ROOT / "README.md"), re.M)
    models = {f"{languages[a]}-{languages[b]}{SMALL if small else ''}": scores for a, b, small, *scores in rows}
    assert set(models) == {"en-de", *(path.name.removeprefix("onehop-") for path in (ROOT / "packages").iterdir())}
    for model, scores in models.items():
        for name, shown in zip(("newstest2014", "newstest2013", "tatoeba-test"), scores, strict=True):
            report = json.loads(text_of(ROOT / "results" / model / f"{name}.json"))
            assert shown == f"{report['scores']['bleu_13a']['score']['value']:.1f}", (model, name)


def raw(name: str) -> str:
    return text_of(ROOT / "results" / name)


def test_the_readmes_figures_are_those_of_the_raw_files():
    readme = " ".join(text_of(ROOT / "README.md").split())
    sweep = json.loads(raw("which_head.json"))
    heads = sweep["without a head"]
    fall = f"*{sweep['word']}* falls from {sweep['p']:.0%} to {heads[0]['p']:.0%}"
    assert sweep["source"] in readme
    assert f"One head of {len(heads)} decides it: without this head, the probability of {fall}" in readme
    rates = {name: step["target tokens/s"] for name, step in json.loads(raw("gpu/train.json"))["steps"].items()}
    assert f"reads {round(rates['onehop'], -3):,.0f} target tokens a second on one H200" in readme
    assert f"{rates['onehop'] / rates['nn.Transformer, compiled']:.1f} times a compiled `nn.Transformer`" in readme
    decoding = json.loads(raw("en-de-small/decode_file.json"))
    fast, full = decoding["rows"]["onehop-small-greedy"], decoding["rows"]["ctranslate2-tuned"]
    seconds = [
        round(median(turn[name]["cpu_seconds"] for turn in decoding["turns"]))
        for name in ("onehop-small-greedy", "ctranslate2-tuned")
    ]
    assert f"`--quality fast` takes {seconds[0]} CPU seconds for {fast['sentences']:,} lines" in readme
    assert f"takes {seconds[1]} and scores {full['BLEU'] - fast['BLEU']:.1f} BLEU more" in readme
    hashes = re.findall(r"^(?:never stopped|killed 3 times) +(\w{64})$", raw("verify_resume_gpu.txt"), re.M)
    assert len(hashes) == 2
    assert len(set(hashes)) == 1
    inputs = [line.split("\t") for line in raw("en-de/everyday.tsv").splitlines()[1:]]
    serious = sum(row[5] == "serious" for row in inputs)
    assert f"Of {len(inputs)} everyday inputs the German model got {serious} seriously wrong" in readme


def test_the_page_of_commands_has_every_command_and_no_other():
    listed = re.findall(r"^\| `([\w-]+)` \|", text_of(DOCS / "reference/cli.md"), re.M)
    assert sorted(listed) == sorted(ONEHOP.commands)


def verb_pages() -> dict[str, tuple[str, str]]:
    """For each command on the command line's page, the file and the heading that it links to."""
    rows = re.findall(
        r"^\| `([\w-]+)` \|.*\]\(([\w/.-]+\.md)(?:#([\w-]+))?\) \|$", text_of(DOCS / "reference/cli.md"), re.M
    )
    return {verb: (f"reference/{file}", anchor) for verb, file, anchor in rows}


@pytest.mark.parametrize("verb", sorted(ONEHOP.commands))
def test_every_command_has_a_page_or_section_with_an_example(verb):
    file, anchor = verb_pages()[verb]
    if anchor:
        assert verb in anchor
    else:
        assert re.match(rf"# ([\w-]+, )*{verb}(, [\w-]+)*: ", text_of(DOCS / file))
    assert any(words[:1] == [verb] for words in commands(DOCS / file))


def test_the_page_of_the_installation_has_every_extra_and_no_other():
    listed = re.findall(r"^\| `(\w+)` \|", text_of(DOCS / "install.md"), re.M)
    extras = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    assert sorted(listed) == sorted(extras.keys() - {"dev"})


# --- settings ---


def toml_blocks(page: Path) -> list[str]:
    return [code for language, code, _ in code_blocks(page) if language == "toml"]


@pytest.mark.parametrize("code", in_each_page(toml_blocks))
def test_toml_blocks_are_valid_settings(code):
    settings_from_dict(tomllib.loads(code))


def presets_row(name: str) -> str:
    """The beginning of a preset's row on the page of settings."""
    settings = load_settings(name)
    model, train = settings.model, settings.train
    stacks = {None: (model.n_encoder_layers, model.n_decoder_layers), "decoder": (model.n_decoder_layers,)}
    layers = "+".join(map(str, stacks.get(model.kind, (model.n_encoder_layers,))))
    pieces = "–" if model.kind == "vision" else f"{settings.tokenizer.vocab_size:,}"
    numbers = [f"{model.d_model:,}", f"{model.d_ff:,}", model.n_heads, pieces, f"{train.steps:,}"]
    return f"| `{name}` | {layers} | {' | '.join(map(str, numbers))} | "


def test_the_page_of_settings_has_every_preset():
    page = text_of(DOCS / "reference/config.md")
    rows = [line for line in page.split("## A file of your own")[0].splitlines() if line.startswith("| `")]
    assert len(rows) == len(preset_names())
    for row, name in zip(rows, preset_names(), strict=True):
        assert row.startswith(presets_row(name))


def may_be(field) -> str:
    """The allowed values of a setting, as the page writes them."""
    choices = [
        choice
        for part in (field.type, *get_args(field.type))
        if get_origin(part) is Literal
        for choice in get_args(part)
    ]
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    least, most, below = (field.metadata[key] for key in ("least", "most", "below"))
    if least is None:
        return {bool: "`true`, `false`", bool | None: "`true`, `false`"}.get(field.type, "")
    return (
        f"{least} to {most}"
        if most is not None
        else f"{least} to below {below}"
        if below is not None
        else f"{least} or more"
    )


def setting_row(field, default) -> str:
    value = "unset" if default is None else f"`{toml_value(default)}`"
    return f"| `{field.name}` | {value} | {may_be(field)} | {field.metadata['doc']} |"


@pytest.mark.parametrize("table", TABLES)
def test_the_page_of_settings_has_every_setting_with_its_default(table):
    shown = text_of(DOCS / "reference/config.md").split(f"### [{table}]\n")[1].split("\n###")[0]
    defaults = getattr(load_settings("base"), table)
    assert [line for line in shown.splitlines() if line.startswith("| `")] == [
        setting_row(field, getattr(defaults, field.name)) for field in fields(TABLES[table])
    ]


def test_the_tutorial_shows_the_settings_that_were_run():
    (shown,) = toml_blocks(DOCS / "tutorial.md")
    assert tomllib.loads(shown) == tomllib.loads(text_of(ROOT / "results" / "tutorial" / "mine.toml"))


def test_the_tutorial_shows_the_recorded_scores():
    scores = re.findall(r"^\S.*± [\d.]+$", text_of(ROOT / "results" / "tutorial" / "evaluate.txt"), re.M)
    assert len(scores) == 6
    for line in scores:
        assert f"    {line}\n" in text_of(DOCS / "tutorial.md")


def family_figures(name: str) -> dict:
    return json.loads(text_of(ROOT / "results" / "family" / f"{name}.evaluate.json"))


def test_the_page_of_generate_shows_the_recorded_perplexity():
    figures = family_figures("decoder")
    found = Likelihood(**{field.name: figures[field.name] for field in fields(Likelihood)})
    shown = "".join(f"    {line}\n" for line in found.lines())
    assert shown in text_of(DOCS / "guide/language-models.md")


def test_the_page_of_fill_shows_the_recorded_accuracy():
    figures = family_figures("encoder")
    pieces, words = (MaskedTokens(**figures[name]) for name in ("pieces", "words"))
    found = Recall(texts=figures["texts"], pieces=pieces, words=words, nll=figures["nll"])
    shown = "".join(f"    {line}\n" for line in found.lines())
    assert shown in text_of(DOCS / "guide/language-models.md")


@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_the_settings_of_the_language_model_runs_are_valid(name):
    assert load_settings(str(ROOT / "results" / "family" / f"{name}.toml")).model.kind == name


# --- Python ---


def python_blocks(page: Path) -> list[str]:
    return [plain(code) for language, code, _ in code_blocks(page) if language == "python" or is_indented_python(code)]


def is_indented_python(code: str) -> bool:
    return code.startswith(("from onehop", "import onehop"))


def plain(code: str) -> str:
    """The code of a dialogue without prompts and answers."""
    examples = doctest.DocTestParser().get_examples(code)
    return "".join(example.source for example in examples) or code


@pytest.mark.parametrize("code", in_each_page(python_blocks))
def test_python_blocks_compile_and_import_existing_names(code):
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "onehop":
            module = importlib.import_module(node.module)
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing, f"{node.module} has no {missing}"


def runnable(page: Path) -> list[str]:
    return [code for language, code, marked in code_blocks(page) if marked and language == "python"]


@pytest.mark.slow
@pytest.mark.parametrize("code", in_each_page(runnable))
def test_marked_python_blocks_run(code, tmp_path):
    (tmp_path / "example.py").write_text(code, encoding="utf-8")  # a script, which processes that it spawns import
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr  # trainings print their progress there


def test_at_least_one_python_block_runs():
    assert any(map(runnable, PAGES))


# --- links, symbols, figures ---


def anchors(page: Path) -> set[str]:
    slug = slugify(case="lower")
    outside_code = re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", outside_code, re.M)
    return {slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", ""), "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_and_picture_leads_to_a_file_and_to_a_heading_in_it(page):
    for target, _, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(#([^)\s]+))?\)", text_of(page)):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


CODE = (".py", ".toml", ".js", ".sh", ".yml", "Makefile")


def test_pages_named_in_code_exist():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    named = 0
    for file in tracked:
        if file.endswith(CODE) and not file.startswith(("results/", "tests/pipelines/")):
            for target, _, anchor in re.findall(r"\b(docs/[\w/-]+\.md)(#([\w-]+))?", text_of(ROOT / file)):
                named += 1
                assert (ROOT / target).exists(), f"{file}: {target}"
                assert not anchor or anchor in anchors(ROOT / target), f"{file}: {target}#{anchor}"
    assert named > 30


def symbols() -> list[tuple[str, str]]:
    return re.findall(r"`(onehop/[\w/.]+\.(?:py|toml))(?::([\w.]+))?`", text_of(DOCS / "internals/paper-map.md"))


@pytest.mark.parametrize(("file", "symbol"), symbols())
def test_the_paper_map_names_existing_symbols(file, symbol):
    assert (ROOT / file).exists()
    found = importlib.import_module(file.removesuffix(".py").replace("/", ".")) if symbol else None
    for name in filter(None, symbol.split(".")):
        assert hasattr(found, name), f"{file} has no {symbol}"
        found = getattr(found, name)
        assert getattr(found, "__module__", "onehop").startswith("onehop")


def test_the_paper_map_has_the_files_of_variants_and_tables():
    experiments = ROOT / "onehop/experiments"
    files = {ROOT / "onehop/model/variants.py", *experiments.glob("table*.py"), experiments / "family_figure.py"}
    assert files <= {ROOT / file for file, _ in symbols()}


def test_the_paper_maps_settings_exist():
    tables = {field.type.__name__: {key.name for key in fields(field.type)} for field in fields(Settings)}
    named = re.findall(r"config\.py:(\w+)` \(([^)]+)\)", text_of(DOCS / "internals/paper-map.md"))
    assert named
    for table, keys in named:
        assert set(re.findall(r"`(\w+)`", keys)) <= tables[table]


def test_the_scaling_tables_equal_the_benchmarks_output():
    scaling = module_from(ROOT / "benchmarks" / "scaling.py")
    page = text_of(DOCS / "results/training-speed.md")
    for row in [*scaling.byte_rows(), *scaling.rate_rows()]:
        assert row in page


# --- prose ---

LONGEST_SENTENCE = 25  # words
LONGEST_PAGE = 2_500  # words of prose: ten minutes at 250 words a minute
ENDLESS = {"journal.md"}  # a log that grows with every experiment


def paragraphs(page: Path) -> list[str]:
    """The running text of a page: without code, tables, headings, pictures and tags; inline code counts as a word."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S)
    text = re.sub(r"^( {4}(?! *- )|\||#|<).*$", "", text, flags=re.M)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]+`", "code", text)
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    return [re.sub(r"[*\s]+", " ", re.sub(r"^\s*(?:[-*]|\d+\.) ", "", part)).strip() for part in parts if part.strip()]


def sentences(page: Path) -> list[str]:
    """Parts that end in a full stop, or in a colon before a sentence. The stop of "et al." ends none."""
    end = re.compile(r"(?<!\bal\.)(?<=[.!?])[”\")]? |: (?=[A-Z“])")
    return [sentence for paragraph in paragraphs(page) for sentence in end.split(paragraph)]


def words_of(text: str) -> list[str]:
    return [word for word in text.split() if re.search(r"\w", word)]


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "THIRD_PARTY.md", *CARDS], ids=lambda page: page.parent.name + page.stem
)
def test_no_sentence_is_longer_than_25_words(page):
    assert [found for found in sentences(page) if len(words_of(found)) > LONGEST_SENTENCE] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_pages_have_a_maximum_length(page):
    prose = [word for paragraph in paragraphs(page) for word in words_of(paragraph)]
    assert page.name in ENDLESS or len(prose) <= LONGEST_PAGE


def test_sentence_lengths_are_counted(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# a b\n\nOne two [three](x.md). `onehop four` is five: Six (Kim et al. 2016).\n- seven\n- eight nine\n"
        "\n    code code\n\n| a | b |\n\n```text\nc\n```\n\n1. ten\n"
    )
    found = [len(words_of(sentence)) for sentence in sentences(page)]
    assert found == [3, 3, 5, 1, 2, 1]


# --- the site ---


def test_every_page_has_its_place_in_the_menu_once():
    in_menu = re.findall(r": ([\w/-]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.M)
    assert sorted(in_menu) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_site_renders_github_lists_and_links():
    github = module_from(DOCS / "github_markdown.py")
    written = "a:\n- b\n- c\n\n```text\nd\n- e\n```\n\nf\n| g |\n|---|\n1. h"
    read = "a:\n\n- b\n- c\n\n```text\nd\n- e\n```\n\nf\n\n| g |\n|---|\n1. h"
    assert github.on_page_markdown(written) == read
    links = (
        "[licence](../LICENSE) [LICENSE](../LICENSE) [docs/evaluate](evaluate) [a](index.md#b) [c](https://d) ![e](f)"
    )
    expected = "licence (`LICENSE`) `LICENSE` `docs/evaluate` [a](index.md#b) [c](https://d) ![e](f)"
    assert github.on_page_markdown(links) == expected
    assert github.on_page_markdown(r"| `a\|b` \|c\| |") == r"| `a|b` \|c\| |"
    assert github.on_page_markdown("<details><summary>a</summary>") == '<details markdown="1"><summary>a</summary>'
    with pytest.raises(FileNotFoundError, match="leads nowhere"):
        github.on_page_markdown("[a](../not-there)")


@pytest.mark.slow
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert {page.stem for page in DOCS.rglob("*.md")} <= {page.stem for page in pages}
    for page in pages:
        html = text_of(page)
        assert not re.findall(r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//[^"'> ]+""", html)
        assert not re.findall(r"""<link[^>]*\bhref=["']?(?:https?:)?//[^"'> ]+""", html)
    python = text_of(tmp_path / "site" / "reference/python.html")
    assert 'id="onehop.pipelines.translator.Translator.translate"' in python
