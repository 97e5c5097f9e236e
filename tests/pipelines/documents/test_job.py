"""Jobs over files and folders: outputs, refused arguments, and resuming."""

from pathlib import Path

import pytest

from onehop.errors import OnehopError, SettingsError, TextError
from onehop.pipelines.documents import ReadOptions, translate
from onehop.pipelines.documents.job import CollectedMessages, job_of


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(translate, "FIRST_WINDOW", 2)
    monkeypatch.setattr(translate, "LAST_WINDOW", 2)
    for name, text in {
        "in/a.txt": "one\ntwo\nthree\n",
        "in/deep/b.md": "# two\n\nfour\n",
        "in/deep/.hidden.md": "five",
        "in/picture.png": "six",
        "in/.git/x.txt": "seven",
        "note.txt": "one\n",
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return tmp_path


def run(pipeline, paths, out, identity="x", **how):
    """Run a job; return the translated texts and the messages."""
    listener = CollectedMessages()
    work = job_of([Path(path) for path in paths], None if out is None else Path(out), ReadOptions(**how))
    work.run(pipeline, {"identity": identity}, listener)
    return pipeline.translator.asked, listener.messages


def written(folder):
    return {str(f.relative_to(folder)): f.read_text() for f in sorted(Path(folder).rglob("*")) if f.is_file()}


def test_a_folder_becomes_a_folder(here, pipeline):
    asked, listener = run(pipeline(), ["in"], "in/out")
    found = written("in/out")
    assert found.pop(".onehop/segments.jsonl")
    assert found == {"a.txt": "ONE\nTWO\nTHREE\n", "deep/b.md": "# TWO\n\nFOUR\n"}
    assert listener == []
    assert asked == ["one", "two", "three", "two", "four"]  # segments are shared only within a format


def test_repeated_segments_are_translated_once(here, pipeline):
    Path("in/c.txt").write_text("one\none\n\ntwo\nsix\n")
    asked, _ = run(pipeline(), ["in/a.txt", "in/c.txt"], "out")
    assert asked == ["one", "two", "three", "six"]
    assert Path("out/c.txt").read_text() == "ONE\nONE\n\nTWO\nSIX\n"


def test_one_file_becomes_a_file(here, pipeline, capsysbinary):
    run(pipeline(), ["note.txt"], "new/note.de.txt")
    assert written("new") == {"note.de.txt": "ONE\n"}
    run(pipeline(), ["note.txt"], None)
    assert capsysbinary.readouterr().out == b"ONE\n"


class KilledError(Exception):
    """Stands in for a machine that is switched off."""


def stopped(pipeline, after):
    """A pipeline that fails after so many calls."""
    made, calls = pipeline(), []
    plan = made.plan

    def limited(lines):
        calls.append(lines)
        if len(calls) > after:
            raise KilledError
        return plan(lines)

    made.plan = limited
    return made


@pytest.mark.parametrize(("out", "asked"), [("out", ["three", "two", "four"]), ("one", ["three"])])
def test_a_stopped_job_resumes(here, pipeline, out, asked):
    paths = ["in"] if out == "out" else ["in/a.txt"]
    with pytest.raises(KilledError):
        run(stopped(pipeline, 1), paths, out)
    state = Path("out/.onehop/segments.jsonl" if out == "out" else "one.partial")
    with state.open("a") as file:
        file.write('{"source": "tex')  # half a line of a killed process
    assert run(pipeline(), paths, out)[0] == asked
    assert state.exists() is (out == "out")
    assert Path("out/a.txt" if out == "out" else "one").read_text() == "ONE\nTWO\nTHREE\n"


def test_finished_files_are_skipped(here, pipeline):
    run(pipeline(), ["in"], "out")
    Path("out/a.txt").write_text("corrected by hand\n")
    Path("in/deep/b.md").write_text("# two\n\nfive\n")
    assert run(pipeline(), ["in"], "out")[0] == ["five"]
    assert Path("out/a.txt").read_text() == "corrected by hand\n"
    assert Path("out/deep/b.md").read_text() == "# TWO\n\nFIVE\n"


def test_another_identity_discards_the_state(here, pipeline):
    run(pipeline(), ["in"], "out")
    assert len(run(pipeline(), ["in"], "out", identity="y")[0]) == 5


def test_a_bad_file_does_not_stop_the_others(here, pipeline):
    Path("in/a.txt").write_bytes(b"\xff\n")
    listener = CollectedMessages()
    with pytest.raises(TextError, match="1 of 2 files could not be translated"):
        job_of([Path("in")], Path("out"), ReadOptions()).run(pipeline(), {}, listener)
    assert listener.messages == ["Line 1 of in/a.txt is not UTF-8. Convert it, e.g. with `iconv -f latin1 -t utf-8`."]
    assert Path("out/deep/b.md").read_text() == "# TWO\n\nFOUR\n"


@pytest.mark.parametrize(
    ("paths", "out", "how", "message"),
    [
        (["in"], None, {}, "The files of in cannot be written to standard output. Give a folder with -o."),
        (["in", "note.txt"], "note.txt", {}, "note.txt is a file. Give a folder with -o: there are several"),
        (["note.txt"], "note.txt", {}, "note.txt is also an input. Give another -o."),
        (["in"], "in", {}, "in/a.txt is also an input. Give another -o."),
        (["in/a.txt", "other/a.txt"], "out", {}, "in/a.txt and other/a.txt would both become out/a.txt."),
        (["empty"], "out", {}, "empty has no file that can be translated. Formats: text, "),
        (["note.txt"], "a.docx", {}, "a.docx would be text, not docx. A document keeps its format. Give -o a name"),
        (["a.odt"], "b.txt", {}, "b.txt would be odt, not text. A document keeps its format. Give -o a name"),
        (["x.gz"], "out", {}, "x.gz is compressed. Give it with --input, or unpack it."),
        (["note.txt"], "out", {"fields": ("a",)}, "--field does not work with the format text. It is for: json"),
    ],
)
def test_invalid_jobs_are_refused(here, paths, out, how, message):
    Path("empty").mkdir()
    Path("other").mkdir()
    Path("other/a.txt").write_text("one")
    Path("x.gz").write_bytes(b"x")
    Path("a.odt").write_bytes(b"x")
    with pytest.raises(OnehopError) as refused:
        job_of([Path(path) for path in paths], None if out is None else Path(out), ReadOptions(**how))
    assert str(refused.value).startswith(message)


def test_an_unknown_format_is_refused():
    with pytest.raises(SettingsError, match=r"There is no format 'pdf'\. There are: text, markdown, "):
        ReadOptions(format="pdf")
