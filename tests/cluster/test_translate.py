"""Translation on a cluster gives the output of one machine, even if a node dies."""

import gzip
import json

import pytest
from command_line import onehop

HEAVY = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder of lines in two files, one of them compressed, of records, and of a file that is not UTF-8."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("texts")
    lines = [f"line {i} says {'a b c d e f g'[: i % 13]}" for i in range(900)]
    (folder / "one.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "deep").mkdir()
    (folder / "deep" / "two.txt.gz").write_bytes(gzip.compress("".join(f"{x}\n" for x in lines[:300]).encode()))
    (folder / "a.tsv").write_text("id\ttext\n7\tone two\n", encoding="utf-8")
    (folder / "b.jsonl").write_text('{"id": 7, "text": "one two"}\n\n', encoding="utf-8")
    pq.write_table(pa.table({"text": ["one two", None], "id": [7, 8]}), folder / "c.parquet")
    (folder / "d.txt").write_bytes(b"good\n\xff\n")
    (folder / "e.txt").write_text("", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def job(_cluster, texts, tmp_path_factory, model_file):
    """A command during which a node was killed, its output folder and its result."""
    _cluster.fill()
    out = tmp_path_factory.mktemp("job") / "out"
    command = ["translate", "--model", model_file, "--beam", "1", "--threads", "1", texts, "-o", out, "--field", "text"]
    first = out / ".onehop" / "cluster" / "one.txt.json"
    killer = _cluster.kill_when(lambda: (out / "deep" / "two.txt").exists() or first.exists())
    done = onehop(*command, "--ray", _cluster.address)
    assert not killer.is_alive(), "the node was killed while it worked"
    return command, out, done


@pytest.mark.slow
@HEAVY
def test_no_line_is_lost_after_a_nodes_death(job, texts, tmp_path, model_file):
    _, out, _ = job
    for name in ("one.txt", "deep/two.txt.gz"):
        alone = tmp_path / "alone.txt"
        assert onehop("translate", "--model", model_file, "--beam", "1", "-i", texts / name, "-o", alone).exit_code == 0
        assert (out / name.removesuffix(".gz")).read_bytes() == alone.read_bytes()


@pytest.mark.slow
@HEAVY
def test_records_keep_other_fields_and_a_bad_file_stops_no_other(job, texts, three_nodes):
    import pyarrow.parquet as pq

    command, out, done = job
    assert done.exit_code == 2
    assert "Line 2 of" in done.output
    assert "1 of 7 files could not be translated." in done.output
    header, row = (line.split("\t") for line in (out / "a.tsv").read_text(encoding="utf-8").splitlines())
    assert header == ["id", "text"]
    assert row[0] == "7"
    translation = row[1]
    assert translation not in ("", "one two")
    record, empty = (out / "b.jsonl").read_text(encoding="utf-8").split("\n")[:2]
    assert json.loads(record) == {"id": 7, "text": translation}
    assert empty == ""
    assert pq.read_table(out / "c.parquet").to_pydict() == {"text": [translation, None], "id": [7, 8]}
    assert not (out / "d.txt").exists()
    assert (out / "e.txt").read_bytes() == b""
    (texts / "d.txt").write_bytes(b"good\n")
    done = onehop(*command, "--ray", three_nodes.address)
    assert done.exit_code == 0, done.output
    assert "6 of 7 files were already finished" in done.output
    assert (out / "d.txt").read_bytes().count(b"\n") == 1
    again = onehop(*command, "--ray", "nowhere:1")
    assert again.exit_code == 0, "finished files need no cluster"
    assert "7 of 7 files were already finished" in again.output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["x.txt"], "--ray writes one output for each input. Give a folder with -o."),
        (["-o", "out"], "--ray translates files. Name files, folders, patterns or URLs."),
        (["x.txt", "-o", "out", "--text"], "--text does not work with --ray. Leave one of them out."),
        (["missing.txt", "-o", "out"], "missing.txt cannot be read: No such file or directory. Check the path."),
        (["none*.txt", "-o", "out"], "No file matches none*.txt. Correct the pattern."),
        (["x.docx", "-o", "out"], "is a document, but --ray translates lines. Give documents without --ray"),
        (["far://x/y.txt", "-o", "out"], "far://x/y.txt cannot be read: Protocol not known: far. Check the path."),
        (["x.txt", "-o", "x.txt"], "x.txt is a file. Give a folder with -o."),
        (["x.txt", "-o", "memory://bucket/out"], "-o memory:// is not on this machine, and outputs are written here."),
        (["x.txt", "-o", "file:///dev/null"], "/dev/null cannot be written: Not a directory. Give another -o."),
        (["x.txt", "x.txt.gz", "-o", "out"], "would both become out/x.txt."),
    ],
)
def test_wrong_input_is_a_one_line_error_before_connecting(words, error, tmp_path, monkeypatch, model_file):
    monkeypatch.chdir(tmp_path)
    for name in ("x.txt", "x.docx", "x.txt.gz"):
        (tmp_path / name).write_bytes(b"a text\n")
    done = onehop("translate", "--model", model_file, "--ray", "nowhere:1", *words)
    assert done.exit_code == 2
    assert error in " ".join(done.output.split())
    assert len(done.output.strip().splitlines()) == 1


@HEAVY
def test_an_address_without_cluster_is_refused(tmp_path, model_file):
    (tmp_path / "x.txt").write_text("a text\n", encoding="utf-8")
    for address, error in (("127.0.0.1:1", "There is no Ray cluster at 127.0.0.1:1"), ("ray://x:1", "Ray's client")):
        words = ["--model", model_file, "--ray", address, tmp_path / "x.txt", "-o", tmp_path / "out"]
        done = onehop("translate", *words)
        assert done.exit_code == 2
        assert error in done.output
        assert "Traceback" not in done.output


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    from onehop import errors

    monkeypatch.setattr(errors, "is_installed", lambda module: module != "ray")
    done = onehop("translate", "--ray", "local", "x.txt", "-o", tmp_path)
    assert done.exit_code == 2
    assert 'needs Ray. Install it with: pip install "onehop[ray]"' in done.output
