"""A document through a translator, window by window; what is done is remembered, so that a stopped job goes on."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onehop.errors import TextError
from onehop.pipelines.alignment import Aligned
from onehop.pipelines.documents.flow import Document, as_stood
from onehop.pipelines.html import align_flows, kept_spans, places, put_together, reading
from onehop.pipelines.html_markup import Flow
from onehop.pipelines.html_tags import Span, TooMuchMarkup
from onehop.pipelines.plan import Plan, run
from onehop.pipelines.result import Sentence
from onehop.text.sentences import Segment
from onehop.text.tokenizer import normalise


@runtime_checkable
class DocumentPipeline(Protocol):
    """What translates lines and tells which words come from which, as plans."""

    def plan(self, lines: Sequence[str]) -> Plan[tuple[list[list[Segment]], list[list[Sentence]]]]:
        """The segments of each line, and their translations."""

    def aligning(self, sentences: Sequence[Sentence]) -> Plan[list[Aligned]]:
        """Which words of sentences that it has translated come from which."""


# The first windows are small, so that little is lost when a job is stopped early; later ones fill the batches.
FIRST_WINDOW, LAST_WINDOW = 64, 1024


@dataclass(frozen=True)
class Done:
    """A flow's translation as its document holds it, and what a reader should know."""

    text: str
    warnings: tuple[str, ...] = ()


# --- what was translated before -------------------------------------------------------------------------------


class Memory:
    """Translations that were made before, by what stood in the document; with a path, also by a job that was stopped.

    `identity` is everything that a translation depends on: a file that was made with another one is not used.
    """

    def __init__(self, path: Path | None = None, identity: Mapping[str, Any] | None = None) -> None:
        self.path, self.done = path, dict[str, Done]()
        self.files = dict[str, str]()  # the hash of each file that is finished
        self._header = json.dumps({"onehop": dict(identity or {})}, sort_keys=True)
        if path is not None:
            self._read(path)

    def _read(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            header, *lines = path.read_bytes().decode("utf-8", "replace").split("\n")
            for line in lines if header == self._header else []:
                with contextlib.suppress(ValueError):  # the last line of a job that was killed
                    self._take(json.loads(line))
        if not self.done and not self.files:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._header + "\n", encoding="utf-8")
            except OSError as e:
                remedy = "Check the folder and its free space."
                raise TextError(f"{path} cannot be written: {e.strerror}.", remedy) from None

    def _take(self, entry: dict[str, Any]) -> None:
        if "file" in entry:
            self.files[entry["file"]] = entry["hash"]
        else:
            self.done[entry["source"]] = Done(entry["text"], tuple(entry["warnings"]))

    def _write(self, entries: Sequence[dict[str, Any]]) -> None:
        if self.path is not None and entries:
            with open(self.path, "a", encoding="utf-8", errors="surrogatepass") as file:
                # It begins with a line end: what a killed job left of a line is none of these.
                file.write("".join(f"\n{json.dumps(entry)}" for entry in entries) + "\n")

    def add(self, done: Mapping[str, Done]) -> None:
        self.done.update(done)
        self._write([{"source": s, "text": d.text, "warnings": d.warnings} for s, d in done.items()])

    def discard_if_empty(self) -> None:
        """Delete the state file of a job that failed before its first translation."""
        if self.path is not None and not self.done and not self.files:
            self.path.unlink(missing_ok=True)

    def is_finished(self, name: str, data: bytes) -> bool:
        """Whether the file of this name was translated, and is still the same."""
        return self.files.get(name) == hashlib.sha256(data).hexdigest()

    def finish(self, name: str, data: bytes) -> None:
        """Remember that a file is written."""
        self.files[name] = hashlib.sha256(data).hexdigest()
        self._write([{"file": name, "hash": self.files[name]}])


# --- a document -----------------------------------------------------------------------------------------------


def translate_document(
    pipeline: DocumentPipeline,
    document: Document,
    memory: Memory,
    *,
    kind: str = "",
    advance: Callable[[int], None] = lambda flows: None,
    warn: Callable[[str, Sequence[str]], None] = lambda source, warnings: None,
) -> bytes:
    """The document in the other language.

    What is remembered of one `kind` of documents is not used for another, which writes text otherwise. `advance` is
    told how many flows are done, and `warn` what a reader of a flow should know.
    """
    flows = document.flows
    keys = [f"{kind}:{as_stood(flow)}" for flow in flows]
    new = {key: flow for key, flow in zip(keys, flows, strict=True) if key not in memory.done}
    advance(sum(key in memory.done for key in keys))
    for window in windows(list(new)):
        found = _translate_flows(pipeline, [new[key] for key in window])
        memory.add(dict(zip(window, found, strict=True)))
        done = set(window)
        advance(sum(key in done for key in keys))
    for key in dict.fromkeys(keys):
        warn(key.removeprefix(f"{kind}:"), memory.done[key].warnings)
    return document.written([flow.finish(memory.done[key].text) for key, flow in zip(keys, flows, strict=True)])


def windows(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Parts of a list, each twice as long as the one before."""
    begin, size = 0, FIRST_WINDOW
    while begin < len(keys):
        yield keys[begin : begin + size]
        begin, size = begin + size, min(2 * size, LAST_WINDOW)


def _translate_flows(pipeline: DocumentPipeline, flows: Sequence[Flow]) -> list[Done]:
    """Flows with their marks, worked on together."""
    parted, translated = run(pipeline.plan([reading(flow) for flow in flows]))
    translated = [
        [_as_it_stood(s, piece) for s, piece in zip(sentences, segments, strict=True)]
        for sentences, segments in zip(translated, parted, strict=True)
    ]
    each = run(align_flows(pipeline.aligning, flows, parted, translated))
    return [done(*one) for one in zip(flows, parted, each, strict=True)]


def _as_it_stood(sentence: Sentence, piece: Segment) -> Sentence:
    """A sentence that is the same in the other language counts as copied, so that its spaces and marks stay too."""
    return replace(sentence, found=()) if sentence.text == normalise(piece.source) else sentence


def done(flow: Flow, segments: Sequence[Segment], translated: Sequence[Aligned]) -> Done:
    """A flow put together, or left as it is where it has more markup than anybody writes."""
    warnings = tuple(dict.fromkeys(w for each in translated for w in each.sentence.warnings()))
    sure = [sharpened(flow, span, each) for span, each in zip(places(segments), translated, strict=True)]
    try:
        return Done(put_together(flow, segments, sure), warnings)
    except TooMuchMarkup:
        return Done(as_stood(flow), ("a sentence has hundreds of tags, and was left as it is",))


def sharpened(flow: Flow, span: Span, found: Aligned) -> Aligned:
    """Where the model has copied what is kept, attention that says so: it is surer than where the model looked."""
    if found.attention is None or found.sentence.restored:
        return found
    attention = found.attention.copy()
    begin, end = span
    kept = {
        normalise("".join(flow.characters[a:b])) for a, b in kept_spans(flow.marks).values() if begin <= a < b <= end
    }
    for text in kept - {""}:
        sources = _spans_of(text, normalise(found.sentence.read))
        targets = _spans_of(text, found.sentence.text)
        if len(sources) == len(targets):
            for source, target in zip(sources, targets, strict=True):
                rows, columns = _overlapping(found.target_tokens, target), _overlapping(found.source_tokens, source)
                attention[rows], attention[:, columns] = 0, 0
                attention[np.ix_(rows, columns)] = 1
    return replace(found, attention=attention)


def _spans_of(part: str, text: str) -> list[Span]:
    """Where a part stands in a text."""
    spans, at = [], text.find(part)
    while at >= 0:
        spans.append((at, at + len(part)))
        at = text.find(part, at + len(part))
    return spans


def _overlapping(tokens: Sequence[Span], span: Span) -> list[int]:
    """The tokens that have a part of a span."""
    return [i for i, (a, b) in enumerate(tokens) if a < span[1] and max(b, a + 1) > span[0]]
