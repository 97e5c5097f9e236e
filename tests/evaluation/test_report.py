"""A report has the scores of every convention, equal to sacreBLEU's, and prints them."""

import io
import json
import re
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from onehop.cli import app
from onehop.errors import MissingPackageError
from onehop.evaluation import report as module
from onehop.evaluation.metrics import bleu, chrf
from onehop.evaluation.report import evaluate, show

DOCS = Path(__file__).parents[2] / "docs"
SAMPLE = DOCS / "evaluate"
SRC, REF, FIRST, SECOND = (SAMPLE / name for name in ("sample.en", "sample.de", "first.de", "second.de"))
GIVEN = ["--src", SRC, "--ref", REF]


def onehop(*args):
    return CliRunner().invoke(app, ["evaluate", *map(str, args)])


def lines(file):
    return file.read_text(encoding="utf-8").splitlines()


def write(file, *sentences):
    file.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    return file


def sacrebleu(*args):
    """sacreBLEU's command line, in JSON with all digits."""
    command = [Path(sys.executable).with_name("sacrebleu"), REF, *args, "--format", "json", "-w", "12"]
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    return json.loads(found)


@pytest.fixture(scope="module")
def report():
    return evaluate(SRC, REF, hyp=FIRST)


@pytest.fixture(scope="module")
def paired_report():
    return evaluate(SRC, REF, hyp=FIRST, against=SECOND, trials=300, resamples=200)


# --- the numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "args"),
    [
        (["bleu_13a", "chrf", "ter"], ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2"]),
        (["bleu_intl"], ["-m", "bleu", "--tokenize", "intl"]),
    ],
)
def test_scores_equal_sacrebleus_command_line(report, names, args):
    expected = sacrebleu("-i", FIRST, "--confidence", *args)
    expected = expected if isinstance(expected, list) else [expected]
    assert len(expected) == len(names)
    for name, theirs in zip(names, expected, strict=True):
        found = report.scores[name].score
        assert found.value == pytest.approx(theirs["score"], abs=1e-11)
        assert found.signature == theirs["signature"]
        assert found.name == theirs["name"]
        assert found.interval.mean == pytest.approx(theirs["confidence_mean"], rel=1e-6)
        assert found.interval.plus_minus == pytest.approx(theirs["confidence_var"], rel=1e-6)


def test_the_comparison_equals_sacrebleus_command_line(paired_report):
    args = ["-i", FIRST, SECOND, "-m", "bleu", "ter", "--paired-ar", "--paired-ar-n", "300"]
    expected = sacrebleu(*args)
    for name, key in (("bleu_13a", "BLEU"), ("ter", "TER")):
        found = paired_report.scores[name]
        first, second = (system[key] for system in expected)
        assert found.score.value == pytest.approx(first["score"], abs=1e-11)
        assert found.against.value == pytest.approx(second["score"], abs=1e-11)
        assert found.p_value == pytest.approx(second["p_value"], abs=1e-11)
        assert found.difference == found.score.value - found.against.value


def test_a_report_has_every_convention(report):
    assert [row.title for row in report.scores.values()] == [
        "sacreBLEU 13a",
        "sacreBLEU intl",
        "tokenised BLEU",
        "compound-split BLEU",
        "chrF2++",
        "TER (less is better)",
    ]
    assert len({row.score.value for row in report.scores.values()}) == 6
    assert len({row.score.signature for row in report.scores.values()}) == 6
    assert all(row.against is row.p_value is row.missing is None for row in report.scores.values())
    assert (report.sentences, report.language, report.resamples, report.trials) == (20, "de", 1000, None)


def test_a_system_compared_with_itself_does_not_differ():
    found = evaluate(SRC, REF, hyp=FIRST, against=FIRST, trials=100, resamples=100)
    assert {(row.difference, row.p_value) for row in found.scores.values()} == {(0.0, 1.0)}


def test_missing_sacrebleu_is_named_before_translating(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingPackageError, match=r'^This needs sacreBLEU\. .*"onehop\[evaluate\]"$'):
        evaluate(SRC, REF, model="no such model")


def test_without_sacremoses_other_scores_are_shown_with_the_remedy(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    found = evaluate(SRC, REF, hyp=FIRST, resamples=100)
    without = {name for name, row in found.scores.items() if row.score is None}
    assert without == {"bleu_tokenised", "bleu_compounds"}
    remedy = 'This needs sacremoses. Install it with: pip install "onehop[evaluate]"'
    assert {found.scores[name].missing for name in without} == {remedy}
    show(found)
    shown = capsys.readouterr().out
    assert re.search(r"^tokenised BLEU +– +–$", shown, re.MULTILINE)
    assert shown.count(f"–: {remedy}\n") == 1


# --- by length, and the worst ---------------------------------------------------------------------------------


def test_scores_by_length_use_the_sentences_of_that_length(report):
    for found in report.lengths:
        among = range(found.shortest, found.longest + 1)
        places = [i for i, source in enumerate(lines(SRC)) if len(source.split()) in among]
        hypotheses, references = ([lines(file)[i] for i in places] for file in (FIRST, REF))
        assert found.sentences == len(places)
        assert found.bleu == bleu(hypotheses, references).value
        assert found.chrf == chrf(hypotheses, references).value
    assert [str(found) for found in report.lengths] == ["0–10", "11–20", "21–30"]
    assert sum(found.sentences for found in report.lengths) == 20


def test_lengths_at_bucket_limits_are_assigned_correctly(tmp_path):
    words = [0, 10, 11, 50, 51, 300]
    text = write(tmp_path / "a.de", *(" ".join(["ja"] * n) for n in words))
    found = evaluate(text, text, hyp=text, resamples=100).lengths
    assert [(str(bucket), bucket.sentences) for bucket in found] == [
        ("0–10", 2),
        ("11–20", 1),
        ("41–50", 1),
        ("51 and more", 2),
    ]


def test_the_worst_sentences_are_sorted_and_have_all_three_texts(tmp_path):
    src = write(tmp_path / "a.en", "one", "", "two and three", "four")
    ref = write(tmp_path / "a.de", "eins", "", "zwei und drei", "vier")
    hyp = write(tmp_path / "b.de", "eins", "", "zwei oder drei", "Unsinn")
    found = evaluate(src, ref, hyp=hyp, resamples=100).worst
    assert [(s.line, s.source, s.reference, s.hypothesis) for s in found] == [
        (4, "four", "vier", "Unsinn"),
        (3, "two and three", "zwei und drei", "zwei oder drei"),
    ]
    assert found[0].chrf < 20 < found[1].chrf < 100
    assert evaluate(src, ref, hyp=hyp, resamples=100, worst=1).worst == found[:1]


# --- the language, and notes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "language"),
    [("x.de", "de"), ("x.fr.gz", "fr"), ("x.txt", "en"), ("de", "en"), ("x.tlh", "en")],
)
def test_the_language_is_read_from_the_references_name(name, language):
    assert module.language_of(Path(name)) == language


def test_the_language_can_be_set(tmp_path):
    text = write(tmp_path / "a.de", "Am 3. Mai geht es los.")
    found = evaluate(text, text, hyp=text, language="fr", resamples=100)
    assert "tok:moses-fr-" in found.scores["bleu_tokenised"].score.signature
    assert found.notes == []


def test_a_language_unknown_to_moses_is_noted(tmp_path, capsys):
    text = write(tmp_path / "a.de", "bIjatlh 'e' yImev")
    found = evaluate(text, text, hyp=text, language="tlh", resamples=100)
    (note,) = found.notes
    assert note.startswith(
        "Moses has no abbreviations of “tlh”: it tokenises as if it were English. It knows as, bn, ca,"
    )
    assert " de, " in note
    show(found)
    shown = capsys.readouterr().out
    assert shown.startswith(f"{text}: 1 sentence, reference {text}\n")
    assert shown.endswith(f"\nNote: {note}\n")


def test_text_that_looks_tokenised_is_noted(tmp_path):
    plain = write(tmp_path / "a.de", "Es regnet.", "Es schneit.", "Es ist warm.", "Es ist kalt.")
    tokenised = write(tmp_path / "b.de", "Es regnet .", "Es schneit .", "Es ist warm .", "Es ist kalt.")
    once = write(tmp_path / "c.de", "Es regnet .", "Es schneit.", "Es ist warm.", "Es ist kalt.")
    (note,) = evaluate(plain, plain, hyp=tokenised, resamples=100).notes
    assert note == (
        "The hypothesis looks tokenised: 3 of 4 lines end in a full stop that stands alone. "
        "All scores expect plain text: detokenise it."
    )
    assert evaluate(plain, plain, hyp=once, resamples=100).notes == []
    other = evaluate(plain, tokenised, hyp=plain, against=tokenised, resamples=100, trials=10)
    assert [note.split(" looks")[0] for note in other.notes] == ["The reference", "The other system"]


# --- with a model ---------------------------------------------------------------------------------------------


def test_a_models_translations_are_scored(model_file, tmp_path, capsys):
    from onehop.pipelines.paragraphs import ParagraphTranslator
    from onehop.pipelines.sentence_translator import SentenceTranslator

    src = write(tmp_path / "a.en", "the old house", "", "A NEW TREE")
    ref = write(tmp_path / "a.txt", "das alte Haus", "", "ein neuer Baum")
    translator = ParagraphTranslator(SentenceTranslator.load(model_file), max_length=64, whole_lines=True)
    texts = [found.text for found in translator.translate(lines(src))]
    found = evaluate(src, ref, model=str(model_file), resamples=100)
    assert capsys.readouterr() == ("", f"{model_file}: translating 3 sentences\n")
    assert found.hypothesis == str(model_file)
    assert found.language == "de"
    assert found.scores["chrf"].score.value == chrf(texts, lines(ref)).value
    assert {s.line: s.hypothesis for s in found.worst} == {1: texts[0], 3: texts[2]}


def test_a_file_is_scored_without_torch(tmp_path):
    code = (
        "import sys; from onehop.cli import app\n"
        f"try: app({['evaluate', *map(str, GIVEN), '--hyp', str(FIRST), '--resamples', '100']})\n"
        "except SystemExit: pass\n"
        "print({'torch', 'onehop.pipelines.sentence_translator'} & set(sys.modules), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "compound-split BLEU" in found.stdout
    assert found.stderr == "set()\n"


# --- output ---------------------------------------------------------------------------------------------------


def without_versions(text):
    """Signatures name the versions of sacreBLEU and sacremoses."""
    return re.sub(r"(version:|sacremoses-)[\d.]+", r"\1…", text)


@pytest.mark.parametrize(
    "command", re.findall(r"^    \$ (onehop evaluate .*)$", (DOCS / "guide" / "evaluate.md").read_text(), re.M)
)
def test_the_docs_show_the_printed_reports(command, monkeypatch):
    monkeypatch.chdir(SAMPLE)
    found = onehop(*command.split()[2:])
    assert found.exit_code == 0
    shown = "".join(f"    {line.rstrip()}".rstrip() + "\n" for line in found.stdout.splitlines())
    text = (DOCS / "guide" / "evaluate.md").read_text(encoding="utf-8")
    assert f"    $ {command}\n\n{without_versions(shown)}" in without_versions(text)


def test_the_docs_have_two_examples():
    assert (DOCS / "guide" / "evaluate.md").read_text(encoding="utf-8").count("    $ onehop evaluate ") == 2


def test_tables_have_lines_on_a_terminal(paired_report, monkeypatch):
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=100, highlight=False, markup=False, soft_wrap=True)
    monkeypatch.setattr(module, "console", lambda **_: terminal)
    show(paired_report)
    shown = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert re.search(r"convention +score +95% +against +95% +difference +p", shown)
    assert "────" in shown
    assert "\x1b[1m" in out.getvalue()
    assert paired_report.scores["bleu_compounds"].score.signature in shown


def test_lines_are_not_wrapped_in_a_pipe(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    long = "sehr " * 200 + "lang"
    text = write(tmp_path / "a.de", long)
    other = write(tmp_path / "b.de", "kurz [bold] :smile:")
    shown = onehop("--src", text, "--ref", text, "--hyp", other, "--resamples", 100).stdout
    assert f"  reference   {long}\n  hypothesis  kurz [bold] :smile:\n" in shown
    assert "\nsource words  sentences  BLEU 13a  chrF2++\n" in shown
    assert "\x1b" not in shown
    assert "─" not in shown


def test_json_contains_the_whole_report():
    found = onehop(*GIVEN, "--hyp", FIRST, "--json", "--worst", 3, "--resamples", 200, "-l", "de")
    assert found.exit_code == 0
    expected = evaluate(SRC, REF, hyp=FIRST, worst=3, resamples=200)
    assert json.loads(found.stdout) == asdict(expected)
    assert len(expected.worst) == 3
    assert "ü" in found.stdout


def test_json_contains_the_comparison_of_two_systems(paired_report, monkeypatch):
    monkeypatch.setattr(module, "evaluate", partial(evaluate, trials=200))
    found = json.loads(onehop(*GIVEN, "--hyp", FIRST, "--against", SECOND, "--json").stdout)
    assert (found["against"], found["trials"]) == (str(SECOND), 200)
    row = found["scores"]["bleu_compounds"]
    assert row["difference"] == paired_report.scores["bleu_compounds"].difference
    assert 0 < row["p_value"] < 0.05
    assert row["against"]["interval"]["resamples"] == 1000


# --- errors ---------------------------------------------------------------------------------------------------


UNEQUAL = "They must be aligned line by line. Check line"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "There is nothing to evaluate. Give --hyp FILE with translations, or --model MODEL that makes them."),
        (
            "--hyp two --model m",
            "Both --hyp and --model are given. Give --hyp FILE with translations, or --model MODEL that makes them.",
        ),
        ("--hyp three", f"two has 2 lines and three has 3. {UNEQUAL} 3, where sentence lengths stop matching."),
        ("--ref three --hyp two", f"two has 2 lines and three has 3. {UNEQUAL} 3, where"),
        ("--hyp two --against three", f"two has 2 lines and three has 3. {UNEQUAL} 3, where"),
        ("--hyp nowhere", "nowhere cannot be read: No such file or directory. Check the file and its permissions."),
        ("--src . --hyp two", ". cannot be read: Is a directory. Check the file and its permissions."),
        ("--hyp bad", "Line 2 of bad is not UTF-8. Convert it, e.g. with `iconv -f latin1 -t utf-8`."),
        ("--hyp utf16", "utf16 is UTF-16 (line 1), not UTF-8. Convert it with `iconv -f UTF-16 -t UTF-8 utf16`."),
        ("--src empty --ref empty --hyp empty", "empty is empty. Give a file with one sentence a line."),
        ("--hyp empty", "empty is empty. Give a file with one sentence a line."),
        ("--model nowhere", "There is no model 'nowhere'."),
    ],
)
def test_wrong_input_is_a_one_line_error(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("two"), "ja", "zweiundzwanzig")
    write(Path("three"), "ja", "zweiundzwanzig", "nie")
    Path("empty").write_bytes(b"")
    Path("bad").write_bytes(b"gut\nschl\xe9cht\n")
    Path("utf16").write_bytes("gut\nschlecht\n".encode("utf-16"))
    given = args.split()
    defaults = [word for option in ("--src", "--ref") if option not in given for word in (option, "two")]
    found = onehop(*defaults, *given)
    assert found.stderr.startswith(f"onehop: {message}")
    assert found.stderr.count("\n") == 1
    assert (found.stdout, found.exit_code) == ("", 2)


@pytest.mark.parametrize("option", ["--src", "--ref"])
def test_missing_source_or_reference_is_refused(option):
    args = ["--src", SRC] if option == "--ref" else ["--ref", REF]
    found = onehop(*args, "--hyp", FIRST)
    said = f"Evaluation needs {option}. Give --src and --ref, or --text for a decoder or an encoder."
    assert found.stderr == f"onehop: {said}\n"
    assert found.exit_code == 2
