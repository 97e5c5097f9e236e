"""Translation of files over HTTP, on LibreTranslate's paths and one of our own.

Each file is read and written in its own process, because a hostile file can take hours. Its text goes through the
same lanes as other requests, a small group of paragraphs at a time.
"""

import asyncio
import json
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from onehop.errors import is_installed
from onehop.pipelines.documents import FORMATS, ReadOptions, format_of, process, readable_endings
from onehop.pipelines.plan import Translated
from onehop.pipelines.result import Sentence
from onehop.server.answers import cancelled_on_disconnect, event
from onehop.server.file_store import FileStore, download_name
from onehop.server.problems import Problem, busy
from onehop.server.schemas import LibreFileBody, OwnFileBody, Upload, read_upload
from onehop.server.service import Translating, groups
from onehop.text.sentences import Segment

if TYPE_CHECKING:
    from onehop.server.app import Application

# Characters of a file per request to the lanes: a few batches, and little compared with the queue.
GROUP = 16_000
# Memory that a file's process may use beyond its size at the start.
MOST_MEMORY = 1 << 30
# Size of a form's fields other than the file.
_FORM_BYTES = 1 << 16
_SWEEP_SECONDS, LONGEST_WAIT = 60.0, 5.0
_EVENTS = "text/event-stream"

_Choose = Callable[[str], Awaitable[Translating | None]]


class Files:
    """The routes for files, and their shared state."""

    def __init__(self, application: "Application", folder: Path | None) -> None:
        """`folder` is where several processes share translated files."""
        self.application = application
        self.settings = limits = application.settings
        self.store = FileStore(folder, most=limits.max_kept_files, seconds=limits.keep_seconds)
        self.running = 0

    def routes(self) -> list[Route]:
        return [
            Route("/translate_file", self.libre, methods=["POST"]),
            Route("/download_file/{name}", self.download),
            Route("/v1/translate_file", self.own, methods=["POST"]),
        ]

    def frontend_settings(self) -> dict[str, Any]:
        endings = [f".{ending}" for ending in readable_endings()] if self.settings.max_files else []
        return {
            "filesTranslation": bool(endings),
            "supportedFilesFormat": endings,
            "fileLimit": self.settings.max_file,
        }

    async def sweep(self) -> None:
        """Remove expired files, forever."""
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self.settings.keep_seconds))
            await asyncio.to_thread(self.store.sweep)

    # --- paths ------------------------------------------------------------------------------------------------

    async def libre(self, request: Request) -> Response:
        """Translate a file and return its URL."""
        upload = await self.read(request, LibreFileBody)
        body = upload.body

        app, source, target = self.application, body.source or "auto", self.application.known(body.target)

        async def choose(sample: str) -> Translating | None:
            code = source
            if code == "auto":
                code = app.source_of(await asyncio.to_thread(app.identifier.guess, sample), target)
            code = app.known(code)
            is_target = code == target and any(target in pair for pair in app.services)
            return None if is_target else app.service(code, target)

        if source != "auto":
            await choose("")  # refuse wrong languages before any work
        data = await cancelled_on_disconnect(request, self.translate(request, upload, choose))
        if isinstance(data, Response):
            return data
        public = await asyncio.to_thread(self.store.save, download_name(upload.name, target), data)
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{quote(public)}"})

    async def own(self, request: Request) -> Response:
        """The translated file or, with `Accept: text/event-stream`, its progress and finally its URL."""
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
        data = await cancelled_on_disconnect(request, self.translate(request, upload, choose))
        return data if isinstance(data, Response) else _attachment(download_name(upload.name, target), data)

    async def events(
        self, request: Request, upload: Upload, choose: _Choose, target: Callable[[], str]
    ) -> AsyncIterator[str]:
        """Server-sent events: progress, and finally done or error."""
        queue = asyncio.Queue[dict[str, int] | None]()
        task = asyncio.create_task(self.translate(request, upload, choose, queue.put_nowait))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield event("progress", progress)
            name = download_name(upload.name, target())
            public = await asyncio.to_thread(self.store.save, name, await task)
            yield event("done", {"file": f"download_file/{quote(public)}", "name": name, "target": target()})
        except Problem as e:
            yield event("error", {"error": e.sentence})
        finally:
            task.cancel()

    async def download(self, request: Request) -> Response:
        """Send a translated file; its unguessable name is the permission."""
        file = await asyncio.to_thread(self.store.load, request.path_params["name"])
        if file is None:
            raise Problem(404, "There is no such file, or it has expired: translate it again.")
        return _attachment(*file)

    # --- reading ----------------------------------------------------------------------------------------------

    async def read(self, request: Request, kind: type[LibreFileBody] | type[OwnFileBody]) -> Upload:
        """Authenticate, and read a form with a file."""
        app, limits = self.application, self.settings
        if not limits.max_files:
            raise Problem(403, "This server does not translate files.")
        with self.slot():
            most = limits.max_file + _FORM_BYTES
            body = await app.read(request, most, limits.read_seconds * max(1, most >> 20))
        try:
            upload = read_upload(kind, body, request.headers.get("content-type", ""), request.url.query)
        except Problem:
            app.authenticate(request)
            raise
        app.authenticate(request, upload.body.api_key)
        if len(upload.data) > limits.max_file:
            raise Problem(413, f"The file is larger than {limits.max_file:,} bytes: split it.")
        _check_format(upload)
        return upload

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count a file while it is uploaded or translated; refuse it above the limit."""
        if self.running >= self.settings.max_files:
            raise busy(LONGEST_WAIT)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    # --- translating ------------------------------------------------------------------------------------------

    async def translate(
        self,
        request: Request,
        upload: Upload,
        choose: _Choose,
        on_progress: Callable[[dict[str, int]], None] = lambda progress: None,
    ) -> bytes:
        """The translated file. `choose` takes a sample of its text; None means that it is returned unchanged."""
        with self.slot():
            try:
                async with asyncio.timeout(self.settings.file_seconds), _started(upload, self.settings) as child:
                    return await self.conversation(child, request, upload, choose, on_progress)
            except TimeoutError:
                what = f"The translation took longer than {self.settings.file_seconds:g} seconds: split the file."
                raise Problem(504, what) from None

    async def conversation(
        self,
        child: Process,
        request: Request,
        upload: Upload,
        choose: _Choose,
        on_progress: Callable[[dict[str, int]], None],
    ) -> bytes:
        """Answer the requests of a file's process until it returns the translation."""
        log_fields, done, flows = request.state.log_fields, 0, 0
        service: Translating | None = None
        sentences: list[Sentence] = []
        while True:
            kind, data = await _receive(child)
            if kind == process.DONE:
                return data
            content = json.loads(data)
            if kind == process.FAILED:
                # The command line's options are fields of the form here.
                what = f"{content['what']} {content['remedy']}".replace("--from", "source")
                raise Problem(400, what.replace("--field", "field").replace("--format", "format"))
            if kind == process.BEGUN:
                log_fields["characters"], log_fields["sentences"], flows = content["characters"], 0, content["flows"]
                service = await choose(content["sample"])
                if service is None:
                    return upload.data
            elif kind == process.ADVANCED:
                done += content
                on_progress({"done": done, "of": flows})
            elif kind == process.LINES and service is not None:
                segments, translated = await _translate_lines(service, content, patient=done > 0)
                sentences = list(chain(*translated))
                log_fields["sentences"] += len(sentences)
                await _send(child, (segments, translated))
            elif kind == process.ALIGN and service is not None:
                await _send(child, await service.alignments([sentences[i] for i in content]))


def _check_format(upload: Upload) -> None:
    """Refuse a file whose format cannot be read."""
    name = upload.format or format_of(upload.name, None)
    if name is not None and name not in FORMATS:
        raise Problem(400, f"There is no format {name[:20]!r}: send one of {', '.join(FORMATS)}.")
    if name is None:
        known = ", ".join(f".{ending}" for ending in readable_endings())
        raise Problem(400, f"The extension of the file's name is not a known format: send one of {known}.")
    needed = FORMATS[name].needs
    if needed and not is_installed(needed):
        raise Problem(501, f"{name} cannot be read here: install onehop[formats] on the server.")


@asynccontextmanager
async def _started(upload: Upload, limits: Any) -> AsyncIterator[Process]:
    """Start a process and send it the file; the process is killed on exit."""
    # Its libraries need no threads, which would reserve memory. It finds modules where this process does.
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", process.__name__),
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, **threads, **paths},
    )
    options = ReadOptions(
        format=upload.format, join_lines=upload.join_lines, fields=upload.fields, max_unpacked=limits.max_unpacked
    )
    job = {"data": upload.data, "name": upload.name, "options": options, "max_characters": limits.max_file_characters}
    try:
        await _send(child, {**job, "max_memory": MOST_MEMORY})
        yield child
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await asyncio.shield(child.wait())


async def _send(child: Process, content: Any) -> None:
    """Send a message to a file's process. If it has died, the next read reports it."""
    assert child.stdin is not None
    data = await asyncio.to_thread(pickle.dumps, content)
    with suppress(ConnectionError):
        child.stdin.write(process.HEAD.pack(b" ", len(data)) + data)
        await child.stdin.drain()


async def _receive(child: Process) -> tuple[bytes, bytes]:
    assert child.stdout is not None
    try:
        kind, length = process.HEAD.unpack(await child.stdout.readexactly(process.HEAD.size))
        return kind, await child.stdout.readexactly(length)
    except asyncio.IncompleteReadError:
        if await child.wait() < 0:  # killed by a signal, for instance if memory ran out
            raise Problem(400, "The file cannot be read: save it again, or split it.") from None
        raise Problem(500, "The server has an internal error: see its log.") from None


async def _translate_lines(service: Translating, lines: Sequence[str], *, patient: bool) -> Translated:
    """The segments of lines and their translations, in small groups. With `patient` it waits if the queue is full."""
    segments: list[list[Segment]] = []
    translated: list[list[Sentence]] = []
    waiting = deque(groups(lines, GROUP, len))
    while waiting:
        try:
            more_segments, more_translated = await service.translate_segments(waiting[0])
        except Problem as e:
            if e.status == 413:
                raise Problem(413, "A paragraph of the file is too long: split it.") from None
            if e.status != 503 or not (patient or segments):
                raise
            await asyncio.sleep(min(LONGEST_WAIT, float(e.headers.get("Retry-After", 1))))
            continue
        waiting.popleft()
        segments += more_segments
        translated += more_translated
    return segments, translated


def _attachment(name: str, data: bytes) -> Response:
    """A file as an attachment. A browser must not display it, since a client could have uploaded scripts."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(data, media_type="application/octet-stream", headers=headers)
