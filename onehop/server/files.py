"""Files over HTTP, as LibreTranslate has them and on a path of our own.

Each file is read and written in a process of its own, because formats can be made to take hours. Its text goes through
the same lanes as every other request's, a small group of paragraphs at a time.
"""

import asyncio
import json
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from onehop.errors import is_installed
from onehop.pipelines.documents import FORMATS, Reading, format_of, process, readable_endings
from onehop.pipelines.result import Sentence
from onehop.server.answers import while_wanted
from onehop.server.file_store import FileStore, download_name
from onehop.server.problems import Problem, busy
from onehop.server.schemas import LibreFileBody, OwnFileBody, Upload, read_upload
from onehop.server.service import Translating, Wish
from onehop.text.sentences import Segment

if TYPE_CHECKING:
    from onehop.server.app import Application

# Characters of a file that are one request to the lanes: some batches, and little beside what may wait.
GROUP = 16_000
# What a file's process may take beyond what it has when it starts.
MOST_MEMORY = 1 << 30
# What a form has besides the file.
_FORM_BYTES = 1 << 16
_SWEEP_SECONDS, LONGEST_WAIT = 60.0, 5.0
_EVENTS = "text/event-stream"

Choose = Callable[[str], Awaitable[Translating | None]]


class Files:
    """The paths that take and give files, and what they share."""

    def __init__(self, application: "Application", folder: Path | None) -> None:
        """`folder`: where several processes keep translated files for each other."""
        self.application, self.settings = application, application.settings
        limits = self.settings
        self.store = FileStore(folder, most=limits.max_kept_files, seconds=limits.keep_seconds)
        self.running = 0

    def routes(self) -> list[Route]:
        return [
            Route("/translate_file", self.libre, methods=["POST"]),
            Route("/download_file/{name}", self.download),
            Route("/v1/translate_file", self.own, methods=["POST"]),
        ]

    def offer(self) -> dict[str, Any]:
        endings = [f".{ending}" for ending in readable_endings()] if self.settings.max_files else []
        return {
            "filesTranslation": bool(endings),
            "supportedFilesFormat": endings,
            "fileLimit": self.settings.max_file,
        }

    async def sweep(self) -> None:
        """For ever: remove files whose time is over."""
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self.settings.keep_seconds))
            await asyncio.to_thread(self.store.sweep)

    # --- paths ------------------------------------------------------------------------------------------------

    async def libre(self, request: Request) -> Response:
        """The address of the translated file."""
        upload = await self.read(request, LibreFileBody)
        body = upload.body

        async def choose(sample: str) -> Translating | None:
            return await self.libre_service(body.source or "auto", body.target, sample)

        if body.source not in (None, "", "auto"):
            await choose("")  # refused before any work
        data = await while_wanted(request, self.translated(request, upload, choose))
        if isinstance(data, Response):
            return data
        public = await asyncio.to_thread(
            self.store.save, download_name(upload.name, self.application.known(body.target)), data
        )
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{quote(public)}"})

    async def libre_service(self, source: str, target: str, sample: str) -> Translating | None:
        """What translates; nothing where the file is in the target language already."""
        app, target = self.application, self.application.known(target)
        if source == "auto":
            source = app.source_of(await asyncio.to_thread(app.identifier.guess, sample), target)
        source = app.known(source)
        given_back = source == target and any(target in pair for pair in app.services)
        return None if given_back else app.service(source, target)

    async def own(self, request: Request) -> Response:
        """The translated file itself, or with `Accept: text/event-stream` how far it is and at last its address."""
        upload = await self.read(request, OwnFileBody)
        body, target = upload.body, ""

        async def choose(sample: str) -> Translating | None:
            nonlocal target
            service = await self.application.service_for(body, [sample])
            target = service.target
            return service

        if body.source not in (None, "auto"):
            await choose("")
        if _EVENTS in request.headers.get("accept", ""):
            return StreamingResponse(self.events(request, upload, choose, lambda: target), media_type=_EVENTS)
        data = await while_wanted(request, self.translated(request, upload, choose))
        return data if isinstance(data, Response) else _attachment(download_name(upload.name, target), data)

    async def events(
        self, request: Request, upload: Upload, choose: Choose, target: Callable[[], str]
    ) -> AsyncIterator[str]:
        """Server-sent events: progress, and at last done or error."""
        heard = asyncio.Queue[dict[str, int] | None]()
        task = asyncio.create_task(self.translated(request, upload, choose, heard.put_nowait))
        task.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (progress := await heard.get()) is not None:
                yield _event("progress", progress)
            name = download_name(upload.name, target())
            public = await asyncio.to_thread(self.store.save, name, await task)
            yield _event("done", {"file": f"download_file/{quote(public)}", "name": name, "target": target()})
        except Problem as e:
            yield _event("error", {"error": e.sentence})
        finally:
            task.cancel()

    async def download(self, request: Request) -> Response:
        """A file that was translated not long ago; who has its name may have it."""
        found = await asyncio.to_thread(self.store.load, request.path_params["name"])
        if found is None:
            raise Problem(404, "There is no such file, or its time is over: translate it again.")
        return _attachment(*found)

    # --- in ---------------------------------------------------------------------------------------------------

    async def read(self, request: Request, kind: type[LibreFileBody] | type[OwnFileBody]) -> Upload:
        """A form with a file, from somebody who may send it."""
        app, limits = self.application, self.settings
        if not limits.max_files:
            raise Problem(403, "Files are not translated on this server.")
        with self.place():
            most = limits.max_file + _FORM_BYTES
            body = await app.read(request, most, limits.read_seconds * max(1, most >> 20))
        try:
            upload = read_upload(kind, body, request.headers.get("content-type", ""), request.url.query)
        except Problem:
            app.let_in(request)
            raise
        app.let_in(request, upload.body.api_key)
        if len(upload.data) > limits.max_file:
            raise Problem(413, f"The file is larger than {limits.max_file:,} bytes: part it into several.")
        _check_format(upload)
        return upload

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a file that is sent or translated, if there is room for it."""
        if self.running >= self.settings.max_files:
            raise busy(LONGEST_WAIT)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    # --- through ----------------------------------------------------------------------------------------------

    async def translated(
        self,
        request: Request,
        upload: Upload,
        choose: Choose,
        tell: Callable[[dict[str, int]], None] = lambda progress: None,
    ) -> bytes:
        """The file in the other language."""
        with self.place():
            try:
                async with asyncio.timeout(self.settings.file_seconds), _started(upload, self.settings) as child:
                    return await self.conversation(child, request, upload, choose, tell)
            except TimeoutError:
                what = f"The translation took longer than {self.settings.file_seconds:g} seconds: part the file."
                raise Problem(504, what) from None

    async def conversation(
        self,
        child: Process,
        request: Request,
        upload: Upload,
        choose: Choose,
        tell: Callable[[dict[str, int]], None],
    ) -> bytes:
        """Answer the questions of a file's process until it has the translation."""
        noted, done, flows = request.state.noted, 0, 0
        service: Translating | None = None
        sentences: list[Sentence] = []
        while True:
            kind, data = await message(child, upload)
            if kind == process.DONE:
                return data
            content = json.loads(data)
            if kind == process.FAILED:
                raise Problem(400, _in_words_of_fields(f"{content['what']} {content['remedy']}"))
            if kind == process.BEGUN:
                noted["characters"], noted["sentences"], flows = content["characters"], 0, content["flows"]
                service = await choose(content["sample"])
                if service is None:
                    return upload.data
            elif kind == process.ADVANCED:
                done += content
                tell({"done": done, "of": flows})
            elif kind == process.LINES and service is not None:
                parted, translated = await _lines_through(service, content, patient=done > 0)
                sentences = [sentence for each in translated for sentence in each]
                noted["sentences"] += len(sentences)
                await answer(child, (parted, translated))
            elif kind == process.ALIGN and service is not None:
                await answer(child, await service.alignments([sentences[i] for i in content]))


def _check_format(upload: Upload) -> None:
    """Refuse a file that cannot be read here."""
    name = upload.format or format_of(upload.name, None)
    if name is not None and name not in FORMATS:
        raise Problem(400, f"There is no format {name[:20]!r}: send one of {', '.join(FORMATS)}.")
    if name is None:
        known = ", ".join(f".{ending}" for ending in readable_endings())
        raise Problem(400, f"The ending of the file's name is of no known format: send one of {known}.")
    needed = FORMATS[name].needs
    if needed and not is_installed(needed):
        raise Problem(501, f"{name} is not read here: install onehop[formats] on the server.")


def _in_words_of_fields(text: str) -> str:
    """A sentence for the command line with the names that the form has."""
    return text.replace("--field", "field").replace("--format", "format").replace("--from", "source")


# --- a file's process -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _started(upload: Upload, limits: Any) -> AsyncIterator[Process]:
    """A process that has been given the file; it is ended when nobody needs it."""
    # Its libraries need no threads, each of which would reserve memory; and it finds modules where this one does.
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", process.__name__),
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, **threads, **paths},
    )
    how = Reading(
        format=upload.format, join_lines=upload.join_lines, fields=upload.fields, most_unpacked=limits.max_unpacked
    )
    job = {"data": upload.data, "name": upload.name, "how": how, "most_characters": limits.max_file_characters}
    try:
        await answer(child, {**job, "most_memory": MOST_MEMORY})
        yield child
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await asyncio.shield(child.wait())


async def answer(child: Process, content: Any) -> None:
    """Send something to a file's process; that it is gone is seen when it is listened to."""
    assert child.stdin is not None
    data = await asyncio.to_thread(pickle.dumps, content)
    with suppress(ConnectionError):
        child.stdin.write(process.HEAD.pack(b" ", len(data)) + data)
        await child.stdin.drain()


async def message(child: Process, upload: Upload) -> tuple[bytes, bytes]:
    """What a file's process says next."""
    assert child.stdout is not None
    try:
        kind, length = process.HEAD.unpack(await child.stdout.readexactly(process.HEAD.size))
        return kind, await child.stdout.readexactly(length)
    except asyncio.IncompleteReadError:
        if await child.wait() < 0:  # a library was stopped by the system, as where memory ends
            raise Problem(400, "The file cannot be read: save it again, or part it into several.") from None
        raise Problem(500, "The server has a fault; its log tells which.") from None


async def _lines_through(
    service: Translating, lines: Sequence[str], *, patient: bool
) -> tuple[list[list[Segment]], list[list[Sentence]]]:
    """The segments of lines and their translations, in small groups. `patient`: wait where the queue is full."""
    parted: list[list[Segment]] = []
    translated: list[list[Sentence]] = []
    for group in groups(lines):
        segments, sentences = await _group_through(service, group, patient=patient or bool(parted))
        parted += segments
        translated += sentences
    return parted, translated


async def _group_through(
    service: Translating, group: Sequence[str], *, patient: bool
) -> tuple[list[list[Segment]], list[list[Sentence]]]:
    while True:
        try:
            return await service.parted(group, Wish())
        except Problem as e:
            if e.status == 413:
                raise Problem(413, "A paragraph of the file is too long: break it into several.") from None
            if e.status != 503 or not patient:
                raise
            await asyncio.sleep(min(LONGEST_WAIT, float(e.headers.get("Retry-After", 1))))


def groups(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Lines of so many characters together; a longer one is alone."""
    begin = size = 0
    for i, line in enumerate(lines):
        if i > begin and size + len(line) > GROUP:
            yield lines[begin:i]
            begin, size = i, 0
        size += len(line)
    if begin < len(lines):
        yield lines[begin:]


# --- out ------------------------------------------------------------------------------------------------------


def _attachment(name: str, data: bytes) -> Response:
    """A file to be saved; a browser shall show none, because a client could have written a page of scripts."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _event(name: str, content: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"
