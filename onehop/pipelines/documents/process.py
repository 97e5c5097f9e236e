"""Read and write one document in a process of its own, for servers: `python -m onehop.pipelines.documents.process`.

The server sends the file and translates the text that this process requests. So a malicious file cannot block or crash
the server: it kills this process at a timeout, and this process limits its memory.

A message is a letter, a length and that many bytes: pickle on the way in, JSON or the file on the way out.
"""

import json
import pickle
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from onehop.errors import OnehopError, TextError
from onehop.pipelines.alignment import Aligned
from onehop.pipelines.documents import ReadOptions, format_of, read_document
from onehop.pipelines.documents.translate import Memory, translate_document
from onehop.pipelines.html import model_text
from onehop.pipelines.plan import Plan, Translated
from onehop.pipelines.result import Sentence

HEAD = struct.Struct(">cI")
# Outgoing: the amount of text, lines to translate, sentences to align, progress, the file, an error.
BEGUN, LINES, ALIGN, ADVANCED, DONE, FAILED = b"b", b"l", b"a", b"p", b"d", b"e"
_SAMPLE = 20  # flows for language identification


class _RemotePipeline:
    """A pipeline whose sentences the parent process translates."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.indices: dict[int, int] = {}

    def plan(self, lines: Sequence[str]) -> Plan[Translated]:
        [(segments, translated)] = yield [_Question(self, LINES, list(lines))]
        self.indices = {id(s): i for i, s in enumerate(s for sentences in translated for s in sentences)}
        return segments, translated

    def alignment_plan(self, sentences: Sequence[Sentence]) -> Plan[list[Aligned]]:
        """Word alignments. A sentence that was replaced here counts as copied and has none."""
        indices = [self.indices[id(s)] for s in sentences if id(s) in self.indices]
        [answer] = (yield [_Question(self, ALIGN, indices)]) if indices else [[]]
        aligned = iter(answer)
        return [next(aligned) if id(s) in self.indices else Aligned(s) for s in sentences]

    def say(self, kind: bytes, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.outgoing.write(HEAD.pack(kind, len(data)) + data)
        self.outgoing.flush()


@dataclass(frozen=True)
class _Question:
    pipeline: _RemotePipeline
    kind: bytes
    content: Any

    def answer(self) -> Any:
        self.pipeline.say(self.kind, self.content)
        return _receive(self.pipeline.incoming)


def _receive(stream: BinaryIO) -> Any:
    """The next message; EOFError if the parent process is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        raise EOFError
    return pickle.loads(stream.read(HEAD.unpack(head)[1]))


def _limit_memory(most: int) -> None:
    """Limit the bytes that this process allocates from now on, where the system supports it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    statistics = Path("/proc/self/statm")
    pages = int(statistics.read_text(encoding="ascii").split()[0]) if statistics.exists() else 0
    room = pages * resource.getpagesize() + most
    resource.setrlimit(resource.RLIMIT_AS, (room, room))


def _translate(pipeline: _RemotePipeline, data: bytes, name: str, options: ReadOptions, max_characters: int) -> bytes:
    document = read_document(data, name, options)
    lines = [model_text(flow) for flow in document.flows]
    if (characters := sum(map(len, lines))) > max_characters:
        what = f"{name} has {characters:,} characters of text, and {max_characters:,} are allowed."
        raise TextError(what, "Split it into several files.")
    pipeline.say(BEGUN, {"flows": len(lines), "characters": characters, "sample": "\n".join(lines[:_SAMPLE])})
    return translate_document(
        pipeline,
        document,
        Memory(),
        kind=options.format or str(format_of(name)),
        advance=lambda flows: pipeline.say(ADVANCED, flows),
    )


def main() -> None:
    """Translate the file that comes on standard input."""
    pipeline = _RemotePipeline(sys.stdin.buffer, sys.stdout.buffer)
    sys.stdout = sys.stderr  # output of libraries must not mix with messages
    job = _receive(pipeline.incoming)
    _limit_memory(job.pop("max_memory"))
    try:
        pipeline.say(DONE, _translate(pipeline, **job))
    except (OnehopError, EOFError, MemoryError) as e:
        if isinstance(e, MemoryError):
            e = TextError(f"{job['name']} takes too much memory.", "Split it into several files.")
        if isinstance(e, OnehopError):
            pipeline.say(FAILED, {"what": e.what, "remedy": e.remedy})


if __name__ == "__main__":
    main()
