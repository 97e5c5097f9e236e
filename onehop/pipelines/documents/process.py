"""A document in a process of its own: `python -m onehop.pipelines.documents.process`, for servers.

Whoever starts it sends a file and translates what this process asks for. So no file, however it is made, can block or
crash the other process: it stops this one when time is up, and this one refuses to take more memory than it may.

Each message is a letter, a length and that many bytes. What goes in is pickled; what comes out is JSON or the file.
"""

import json
import os
import pickle
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from onehop.errors import OnehopError, TextError
from onehop.pipelines.alignment import Aligned
from onehop.pipelines.documents import Reading, format_of, read_document
from onehop.pipelines.documents.translate import Memory, translate_document
from onehop.pipelines.html import reading
from onehop.pipelines.plan import Plan
from onehop.pipelines.result import Sentence
from onehop.text.sentences import Segment

HEAD = struct.Struct(">cI")
# What comes out: how much text there is, lines to translate, sentences to align, progress, the file, an error.
BEGUN, LINES, ALIGN, ADVANCED, DONE, FAILED = b"b", b"l", b"a", b"p", b"d", b"e"
_SAMPLE = 20  # flows whose language may be identified


class RemotePipeline:
    """A pipeline whose sentences are translated by the process at the other end."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.places: dict[int, int] = {}

    def plan(self, lines: Sequence[str]) -> Plan[tuple[list[list[Segment]], list[list[Sentence]]]]:
        """The segments of each line, and their translations."""
        [(parted, translated)] = yield [_Question(self, LINES, list(lines))]
        self.places = {id(s): i for i, s in enumerate(s for sentences in translated for s in sentences)}
        return parted, translated

    def aligning(self, sentences: Sequence[Sentence]) -> Plan[list[Aligned]]:
        """Which words come from which; of a sentence that was changed here, which counts as copied, nothing."""
        wanted = [self.places[id(s)] for s in sentences if id(s) in self.places]
        [answer] = (yield [_Question(self, ALIGN, wanted)]) if wanted else [[]]
        found = iter(answer)
        return [next(found) if id(s) in self.places else Aligned(s) for s in sentences]

    def say(self, kind: bytes, content: Any) -> None:
        """Send a message that has no answer."""
        _send(self.outgoing, kind, content if isinstance(content, bytes) else json.dumps(content).encode())


@dataclass(frozen=True)
class _Question:
    """A request that the process at the other end answers."""

    pipeline: RemotePipeline
    kind: bytes
    content: Any

    def answer(self) -> Any:
        self.pipeline.say(self.kind, self.content)
        return _receive(self.pipeline.incoming)


def _send(stream: BinaryIO, kind: bytes, data: bytes) -> None:
    stream.write(HEAD.pack(kind, len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: BinaryIO) -> Any:
    """The next message; where there is none, the other process is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        raise EOFError
    return pickle.loads(stream.read(HEAD.unpack(head)[1]))


def _limit_memory(most: int) -> None:
    """Let this process take so many bytes more than it has, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    pages = 0
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
    room = pages * resource.getpagesize() + most
    resource.setrlimit(resource.RLIMIT_AS, (room, room))


def translate(pipeline: RemotePipeline, data: bytes, name: str, how: Reading, most_characters: int) -> bytes:
    """The file in the other language."""
    document = read_document(data, name, how)
    lines = [reading(flow) for flow in document.flows]
    if (characters := sum(map(len, lines))) > most_characters:
        what = f"{name} has {characters:,} characters of text, and {most_characters:,} are allowed."
        raise TextError(what, "Part it into several files.")
    pipeline.say(BEGUN, {"flows": len(lines), "characters": characters, "sample": "\n".join(lines[:_SAMPLE])})
    return translate_document(
        pipeline,
        document,
        Memory(),
        kind=how.format or str(format_of(name)),
        advance=lambda flows: pipeline.say(ADVANCED, flows),
    )


def main() -> None:
    """Translate the file that standard input holds."""
    pipeline = RemotePipeline(sys.stdin.buffer, sys.stdout.buffer)
    sys.stdout = sys.stderr  # what a library prints is no message
    job = _receive(pipeline.incoming)
    _limit_memory(job.pop("most_memory"))
    name = job["name"]
    try:
        pipeline.say(DONE, translate(pipeline, **job))
    except (OnehopError, EOFError, MemoryError) as e:
        if isinstance(e, MemoryError):
            e = TextError(f"{name} takes too much memory.", "Part it into several files.")
        if isinstance(e, OnehopError):
            pipeline.say(FAILED, {"what": e.what, "remedy": e.remedy})


if __name__ == "__main__":
    main()
