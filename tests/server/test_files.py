"""Files over HTTP: results, errors, and protection against harmful files."""

import asyncio
import contextlib
import io
import json
import os
import time
import zipfile
from copy import copy
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from serving import MODEL_NAME, Server, refused

from onehop.pipelines.documents import read_document
from onehop.pipelines.documents.translate import Memory, translate_document
from onehop.pipelines.glossary import Terms
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.server import auth, files
from onehop.server.file_store import FileStore, download_name
from onehop.server.problems import busy
from onehop.server.schemas import OwnFileBody, Upload
from onehop.server.service import Service, groups

PAGE = b"# The old house\n\nA **new** tree and `code` and a bird.\n\n- the house\n"
LIBRE = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def translator(model_file):
    return SentenceTranslator.load(model_file, "cpu", compute="float32", threads=1)


@pytest.fixture(scope="module")
def server(translator):
    made = Server(translator)
    yield made
    made.app.files.store.close()


def send(server, data, name, path="/translate_file", form=LIBRE, **more):
    return server.ask("POST", path, files={"file": (name, data)}, data=form, **more)


def own(server, data, name, **more):
    return send(server, data, name, path="/v1/translate_file", **more)


def offline(pipeline, data, name):
    return translate_document(pipeline, read_document(data, name), Memory())


def paragraphs(translator):
    return ParagraphTranslator(translator, max_length=64, model=MODEL_NAME)


# --- what comes back ------------------------------------------------------------------------------------------


def test_the_libretranslate_url_serves_the_translated_file(server, translator):
    answer = send(server, PAGE, "My page.md")
    assert answer.status_code == 200
    address = httpx.URL(answer.json()["translatedFileUrl"])
    assert (address.scheme, address.host) == ("http", "test")
    assert address.path.endswith(".My page_de.md")
    found = server.get(address.raw_path.decode())
    assert found.content == offline(paragraphs(translator), PAGE, "x.md") != PAGE
    assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''My%20page_de.md"
    assert found.headers["content-type"] == "application/octet-stream"
    gone = "There is no such file, or it has expired: translate it again."
    token = address.path.rpartition("/")[2].partition(".")[0]
    for name in (f"{token}.other.md", f"{'0' * 32}.My page_de.md", token, "..%2f..%2fetc%2fpasswd", "x"):
        refused(server.get(f"/download_file/{name}"), 404, gone if "%2f" not in name else NO_PATH)


NO_PATH = "There is no such path: see /openapi.json."


def test_v1_translate_file_returns_the_file(server, translator):
    answer = own(server, PAGE, "page.md", form={"target": "de"})
    assert (answer.status_code, answer.content) == (200, offline(paragraphs(translator), PAGE, "x.md"))
    table = b"id,text\nthe house,the tree\n"
    chosen = own(server, table, "t.csv", form={"field": "text"}).content.decode()
    assert chosen.startswith("id,text\nthe house,")
    assert own(server, b"the house", "noname", form={"format": "text"}).status_code == 200
    # As in other forms, a field of the body replaces one of the query.
    assert own(server, PAGE, "page.md", form={"target": "de"}, params={"target": "xx"}).content == answer.content


def test_a_word_document_comes_back_as_one(server):
    data = Path(__file__).parents[1] / "pipelines" / "documents" / "files" / "letter.docx"
    found = own(server, data.read_bytes(), "letter.docx")
    with zipfile.ZipFile(io.BytesIO(found.content)) as archive, zipfile.ZipFile(data) as old:
        assert archive.namelist() == old.namelist()
        assert archive.read("word/document.xml") != old.read("word/document.xml")


def test_markup_survives_a_pivot_as_in_documents(translator):
    made = []
    for source, target in (("de", "en"), ("en", "fr")):
        other = copy(translator)
        other.source, other.target = source, target
        made.append(other)
    server = Server(*made)
    found = own(server, PAGE, "page.md", form={"source": "de", "target": "fr"})
    expected = PivotTranslator(*map(paragraphs, made), Terms())
    assert found.content == offline(expected, PAGE, "x.md")


def test_a_file_in_the_target_language_is_returned_unchanged(server):
    text = b"Dies ist gewiss ein deutscher Satz, und ein langer dazu.\n"
    address = send(server, text, "x.txt", form={"target": "de"}).json()["translatedFileUrl"]
    assert server.get(httpx.URL(address).raw_path.decode()).content == text


def test_events_report_progress_and_the_files_path(server, translator):
    answer = own(server, PAGE, "page.md", headers={"Accept": "text/event-stream"})
    events = [
        (block.split("\n")[0].removeprefix("event: "), json.loads(block.split("data: ")[1]))
        for block in answer.text.strip().split("\n\n")
    ]
    assert [name for name, _ in events] == ["progress"] * (len(events) - 1) + ["done"]
    assert events[-2][1] == {"done": 3, "of": 3}
    assert events[-1][1]["name"] == "page_de.md"
    assert server.get("/" + events[-1][1]["file"]).content == offline(paragraphs(translator), PAGE, "x.md")
    failed = own(server, b"{", "x.json", headers={"Accept": "text/event-stream"})
    assert failed.text.startswith('event: error\ndata: {"error": "x.json is not JSON')
    assert server.app.files.running == 0


def test_settings_list_formats_and_limits(server, translator):
    told = server.get("/frontend/settings").json()
    assert told["filesTranslation"]
    assert {".txt", ".docx", ".srt", ".epub"} <= set(told["supportedFilesFormat"])
    off = Server(translator, max_files=0)
    told = off.get("/frontend/settings").json()
    assert (told["filesTranslation"], told["supportedFilesFormat"]) == (False, [])
    refused(send(off, b"a", "a.txt"), 403, "This server does not translate files.")


# --- what is refused ------------------------------------------------------------------------------------------


def packed(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in members.items():
            made.writestr(name.replace("__", "/").replace("_", "."), text)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "form", "status", "what"),
    [
        ("x.exe", b"a", LIBRE, 400, "The extension of the file's name is not a known format: send one of .txt"),
        ("", b"a", LIBRE, 400, "The file has no name: send it with a filename"),
        ("x.txt", b"a", {"source": "en"}, 400, "target is missing: see /openapi.json."),
        ("x.txt", b"a", {"source": "en", "target": "fr"}, 400, "This server does not translate en to fr, but en to de"),
        ("x.txt", b"a\xff", LIBRE, 400, "Line 1 of x.txt is not UTF-8."),
        ("x.docx", b"PK no", LIBRE, 400, "x.docx is damaged, or of another format: File is not a zip file."),
        ("x.json", b"{", LIBRE, 400, "x.json is not JSON: "),
        ("../../x.json", b"[" * 9999, LIBRE, 400, "../../x.json is nested too deeply."),
    ],
)
def test_bad_input_is_one_line(server, name, data, form, status, what):
    answer = send(server, data, name, form=form)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(what)
    assert server.app.files.running == 0


def test_invalid_multipart_forms_are_refused(server):
    refused(server.ask("POST", "/translate_file", data=LIBRE), 400, "file is missing: send multipart/form-data.")
    refused(server.ask("POST", "/translate_file"), 400, "file is missing: send multipart/form-data.")
    what = "The body is application/json: send multipart/form-data with the file."
    refused(server.post("/v1/translate_file", {"file": "x"}), 415, what)
    only_text = {"target": (None, "de")}
    refused(server.ask("POST", "/translate_file", files=only_text), 400, "file is missing: see /openapi.json.")
    two = [("file", ("a.txt", b"a")), ("file", ("b.txt", b"b"))]
    assert server.ask("POST", "/translate_file", files=two, data=LIBRE).status_code == 400
    refused(own(server, b"a", "a.txt", form={"formt": "text"}), 400, "formt is not a known field: see /openapi.json.")
    refused(
        own(server, b"a", "a.txt", form={"format": "pdf"}),
        400,
        "There is no format 'pdf': send one of text, markdown, html, srt, vtt, po, json, yaml, csv, tsv, xliff, docx, "
        "odt, epub.",
    )


def test_keys_and_the_rate_limit_hold_for_files(translator, tmp_path):
    key, line = auth.make("anna")
    (tmp_path / "keys").write_text(line)
    server = Server(translator, keys_file=str(tmp_path / "keys"), per_minute=3)
    assert send(server, b"{", "x.json").status_code == 401
    assert send(server, b"{", "x.json", form={**LIBRE, "api_key": "wrong"}).status_code == 403
    assert send(server, b"{", "x.json", form={**LIBRE, "api_key": key}).status_code == 400  # the key is accepted
    assert own(server, b"{", "x.json", headers={"Authorization": f"Bearer {key}"}).status_code == 400
    assert server.ask("POST", "/translate_file", params={"api_key": key}).status_code == 400
    assert send(server, b"{", "x.json", form={**LIBRE, "api_key": key}).status_code == 429
    assert server.log[2].count('"key": "anna"') == 1


def test_file_sizes_are_limited(translator):
    limits = {"max_file": 1000, "max_unpacked": 2000, "max_file_characters": 500}
    server = Server(translator, **limits)
    refused(send(server, b"a" * 1001, "x.txt"), 413, "The file is larger than 1,000 bytes: split it.")
    assert send(server, b"a" * 100_000, "x.txt").status_code == 413
    bomb = packed(content_xml="<x>" + "a" * 3000)
    assert len(bomb) < 1000
    refused(send(server, bomb, "x.odt"), 400, "x.odt has more than 0 MB in it. Split it into several files.")
    what = "x.txt has 600 characters of text, and 500 are allowed. Split it into several files."
    refused(send(server, b"a" * 600, "x.txt"), 400, what)


def test_too_many_files_at_once_get_503(server, monkeypatch):
    monkeypatch.setattr(server.app.files, "running", server.settings.max_files)
    answer = send(server, b"a", "x.txt")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


# --- files that would do harm ---------------------------------------------------------------------------------

LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + '<!ENTITY file SYSTEM "file:///etc/passwd">]>'
)
WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
WORD = f'<w:document xmlns:w="{WORDS}"><w:p><w:r><w:t>the house &j; &file;</w:t></w:r></w:p></w:document>'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.docx", packed(word__document_xml=LAUGHS + WORD)),
        ("x.odt", packed(content_xml=f"{LAUGHS}<text:p>the house &j; &file;</text:p>")),
        ("x.epub", packed(c_xhtml=f"{LAUGHS}<p>the house &j; &file;</p>")),
        ("x.xliff", f"{LAUGHS}<xliff><source>the house &j; &file;</source></xliff>".encode()),
    ],
)
def test_entities_are_neither_expanded_nor_fetched(server, name, data):
    answer = own(server, data, name)
    assert answer.status_code in (200, 400)
    assert len(answer.content) < 10_000
    assert b"root:" not in answer.content
    if answer.status_code == 200 and name != "x.xliff":
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert all(b"root:" not in archive.read(member) for member in archive.namelist())


SLOW = b'"' + b"<!--" * 200_000 + b'"'  # each comment's end is searched for to the end of the text


def test_a_file_that_never_ends_times_out_and_blocks_nothing(translator, monkeypatch):
    children = watched(monkeypatch)
    server = Server(translator, file_seconds=3)

    async def both(client):
        slow = asyncio.create_task(client.post("/v1/translate_file", files={"file": ("x.json", SLOW)}, data=LIBRE))
        while not children:
            await asyncio.sleep(0.01)
        quick = await client.post("/translate", json={"q": "the house", **LIBRE})
        assert not slow.done()
        return await slow, quick

    slow, quick = asyncio.run(asked(server, both))
    refused(slow, 504, "The translation took longer than 3 seconds: split the file.")
    assert quick.status_code == 200
    assert [child.returncode for child in children] == [-9]
    assert server.app.files.running == 0


async def asked(server, questions):
    transport = httpx.ASGITransport(server.app.asgi, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
        return await questions(client)


def watched(monkeypatch):
    """A list that collects the processes started from now on."""
    children = []
    real = asyncio.create_subprocess_exec

    async def start(*args, **more):
        children.append(await real(*args, **more))
        return children[-1]

    monkeypatch.setattr(files.asyncio, "create_subprocess_exec", start)
    return children


def upload(data, name):
    body = OwnFileBody(file=data, source="en", target="de")
    return Upload(body, name, data, format=None, join_lines=False, fields=())


def test_work_stops_when_the_client_disconnects(server, monkeypatch):
    children = watched(monkeypatch)
    request = SimpleNamespace(state=SimpleNamespace(log_fields={}))

    async def leave():
        work = server.app.files.translate(request, upload(SLOW, "x.json"), lambda sample: None)
        task = asyncio.create_task(work)
        while not children:
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert [child.returncode for child in children] == [-9]
    assert server.app.files.running == 0


def test_a_file_that_takes_too_much_memory_is_refused(server, monkeypatch):
    monkeypatch.setattr(files, "MOST_MEMORY", 40_000_000)
    data = b"the house\n" * 90_000
    refused(own(server, data, "x.txt"), 400, "x.txt takes too much memory. Split it into several files.")


def test_a_file_process_that_fails_is_an_internal_error(server, monkeypatch):
    monkeypatch.setattr(files.process, "__name__", "onehop.no_such_module")
    refused(own(server, PAGE, "x.md"), 500, "The server has an internal error: see its log.")


# --- large files among other requests -------------------------------------------------------------------------


def test_a_large_file_is_queued_in_small_parts(server, translator, monkeypatch):
    """A file that has been begun waits for a full queue. Before that it is refused."""
    sizes, real = [], Service.translate_segments

    async def translate_segments(self, lines):
        sizes.append(sum(map(len, lines)))
        if len(sizes) in busy_at:
            raise busy(0)
        return await real(self, lines)

    monkeypatch.setattr(Service, "translate_segments", translate_segments)
    monkeypatch.setattr(files, "GROUP", 60)
    monkeypatch.setattr(files, "LONGEST_WAIT", 0.01)
    data = "".join(f"the house {i}\n" for i in range(40)).encode()
    busy_at = {3, 5}
    assert own(server, data, "x.txt").content == offline(paragraphs(translator), data, "x.txt")
    assert max(sizes) <= 60
    assert len(sizes) == 10
    sizes.clear()
    busy_at = {1}
    assert own(server, data, "x.txt").status_code == 503
    assert len(sizes) == 1


def test_an_oversized_paragraph_is_reported_for_the_file(translator):
    server = Server(translator, max_sentences=3)
    what = "A paragraph of the file is too long: split it."
    refused(own(server, b"One house. Two. Three. Four. Five.\n", "x.txt"), 413, what)


def test_parts_of_a_file_have_all_lines_in_order():
    lines = ["a" * 10, "b" * 50, "c" * 70, "d", "e" * 59, "f"]
    assert list(groups(lines, 60, len)) == [lines[:2], [lines[2]], lines[3:5], [lines[5]]]
    assert list(groups([], 60, len)) == []


# --- files that are kept --------------------------------------------------------------------------------------


def test_kept_files_are_limited_in_time_and_number(tmp_path):
    store = FileStore(tmp_path, most=3, seconds=60)
    names = [store.save(f"{i}.txt", str(i).encode()) for i in range(4)]
    assert len(list(tmp_path.iterdir())) == 3
    assert store.load(names[3]) == ("3.txt", b"3")
    old = store.path(*names[3].split(".", 1))
    past = time.time() - 61
    os.utime(old, (past, past))
    assert store.load(names[3]) is None
    store.sweep()
    assert not old.exists()


def test_client_file_names_are_never_paths(tmp_path):
    store = FileStore(tmp_path / "files", most=3, seconds=60)
    (tmp_path / "files").mkdir()
    public = store.save("../../evil.txt", b"x")
    assert [path.parent for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "files"]
    assert store.load(public) == ("../../evil.txt", b"x")
    assert all(path.stat().st_mode & 0o77 == 0 for path in (tmp_path / "files").iterdir())


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("report.docx", "report_de.docx"),
        ("../../etc/pass wd.TXT", "pass wd_de.txt"),
        ("C:\\Users\\x\\a.b.md", "a.b_de.md"),
        ('x"\r\nSet-Cookie: a\u202e.txt', "x___Set-Cookie_ a__de.txt"),
        ("...txt", "file_de.txt"),
        ("a" * 500 + ".srt", "a" * 100 + "_de.srt"),
    ],
)
def test_download_names_are_sanitised(given, made):
    assert download_name(given, "de") == made


def test_the_servers_file_folder_is_removed_at_exit():
    store = FileStore(None, most=3, seconds=60)
    store.save("a.txt", b"a")
    folder = store.folder
    assert folder.stat().st_mode & 0o77 == 0
    store.close()
    assert not folder.exists()
