"""Translate a document window by window. Finished translations are stored, so that a stopped job resumes."""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onehop.errors import CHECK_FOLDER, write_errors
from onehop.pipelines.alignment import Aligned
from onehop.pipelines.documents.flow import Document, original
from onehop.pipelines.html import align_flows, kept_spans, model_text, render_flow, segment_spans
from onehop.pipelines.html_markup import Flow
from onehop.pipelines.html_tags import Span, TooMuchMarkup, overlapping
from onehop.pipelines.plan import Plan, Translated, run
from onehop.pipelines.result import Sentence
from onehop.text.sentences import Segment
from onehop.text.tokenizer import normalise


@runtime_checkable
class _DocumentPipeline(Protocol):
    """Plans for translating lines and for aligning the sentences that were translated."""

    def plan(self, lines: Sequence[str]) -> Plan[Translated]:
        """The segments of each line, and their translations."""

    def alignment_plan(self, sentences: Sequence[Sentence]) -> Plan[list[Aligned]]:
        """Word alignments of translated sentences."""


# The first windows are small, so that a job that is stopped early loses little; later ones fill the batches.
FIRST_WINDOW, LAST_WINDOW = 64, 1024


@dataclass(frozen=True)
class _TranslatedFlow:
    """A flow's translation as its document writes it, with warnings for the reader."""

    text: str
    warnings: tuple[str, ...] = ()


class Memory:
    """Translations so far, by source text. With a path they are stored, and those of a stopped job are loaded.

    `identity` is everything that a translation depends on. A stored memory with another identity is discarded.
    """

    def __init__(self, path: Path | None = None, identity: Mapping[str, Any] | None = None) -> None:
        self.path, self.done = path, dict[str, _TranslatedFlow]()
        self.files = dict[str, str]()  # hashes of finished files
        self._header = json.dumps({"onehop": dict(identity or {})}, sort_keys=True)
        if path is not None:
            self._read(path)

    def _read(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            header, *lines = path.read_bytes().decode("utf-8", "replace").split("\n")
            for line in lines if header == self._header else []:
                with contextlib.suppress(ValueError):  # a killed job leaves an incomplete line
                    entry = json.loads(line)
                    if "file" in entry:
                        self.files[entry["file"]] = entry["hash"]
                    else:
                        self.done[entry["source"]] = _TranslatedFlow(entry["text"], tuple(entry["warnings"]))
        if not self.done and not self.files:
            with write_errors(path, CHECK_FOLDER):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._header + "\n", encoding="utf-8")

    def _write(self, entries: Sequence[dict[str, Any]]) -> None:
        if self.path is not None and entries:
            with open(self.path, "a", encoding="utf-8", errors="surrogatepass") as file:
                # The leading line end separates the entries from a killed job's incomplete line.
                file.write("".join(f"\n{json.dumps(entry)}" for entry in entries) + "\n")

    def add(self, done: Mapping[str, _TranslatedFlow]) -> None:
        self.done.update(done)
        self._write([{"source": s, "text": d.text, "warnings": d.warnings} for s, d in done.items()])

    def discard_if_empty(self) -> None:
        """Delete the state file of a job that failed before its first translation."""
        if self.path is not None and not self.done and not self.files:
            self.path.unlink(missing_ok=True)

    def is_finished(self, name: str, data: bytes) -> bool:
        """Whether the file was translated and has not changed since."""
        return self.files.get(name) == hashlib.sha256(data).hexdigest()

    def finish(self, name: str, data: bytes) -> None:
        """Record that a file is written."""
        self.files[name] = hashlib.sha256(data).hexdigest()
        self._write([{"file": name, "hash": self.files[name]}])


def translate_document(
    pipeline: _DocumentPipeline,
    document: Document,
    memory: Memory,
    *,
    kind: str = "",
    advance: Callable[[int], None] = lambda flows: None,
    warn: Callable[[str, Sequence[str]], None] = lambda source, warnings: None,
) -> bytes:
    """Translate a document into bytes of the same format.

    Translations are shared among documents of one `kind`, since other kinds write text differently. `advance` gets
    the number of flows that are done, and `warn` a source text with its warnings.
    """
    flows = document.flows
    keys = [f"{kind}:{original(flow)}" for flow in flows]
    new = {key: flow for key, flow in zip(keys, flows, strict=True) if key not in memory.done}
    advance(sum(key in memory.done for key in keys))
    for window in windows(list(new)):
        translated = _translate_flows(pipeline, [new[key] for key in window])
        memory.add(dict(zip(window, translated, strict=True)))
        done = set(window)
        advance(sum(key in done for key in keys))
    for key in dict.fromkeys(keys):
        warn(key.removeprefix(f"{kind}:"), memory.done[key].warnings)
    return document.written([flow.finish(memory.done[key].text) for key, flow in zip(keys, flows, strict=True)])


def windows(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Slices of a list, each twice as long as the one before up to a limit."""
    begin, size = 0, FIRST_WINDOW
    while begin < len(keys):
        yield keys[begin : begin + size]
        begin, size = begin + size, min(2 * size, LAST_WINDOW)


def _translate_flows(pipeline: _DocumentPipeline, flows: Sequence[Flow]) -> list[_TranslatedFlow]:
    segments, translated = run(pipeline.plan([model_text(flow) for flow in flows]))
    translated = [
        # An unchanged sentence counts as copied, so that its spaces and marks stay as well.
        [replace(s, n_best=()) if s.text == normalise(part.source) else s for s, part in zip(*pair, strict=True)]
        for pair in zip(translated, segments, strict=True)
    ]
    aligned = run(align_flows(pipeline.alignment_plan, flows, segments, translated))
    return list(map(_assemble, flows, segments, aligned))


def _assemble(flow: Flow, segments: Sequence[Segment], sentences: Sequence[Aligned]) -> _TranslatedFlow:
    """Put a flow's sentences and marks together. A flow with too much markup is left untranslated."""
    warnings = tuple(dict.fromkeys(w for aligned in sentences for w in aligned.sentence.warnings()))
    sentences = [align_copies(flow, *pair) for pair in zip(segment_spans(segments), sentences, strict=True)]
    try:
        return _TranslatedFlow(render_flow(flow, segments, sentences), warnings)
    except TooMuchMarkup:
        return _TranslatedFlow(original(flow), ("a sentence has hundreds of tags, and was left as it is",))


def align_copies(flow: Flow, span: Span, aligned: Aligned) -> Aligned:
    """Set the attention of kept text that the model has copied to 1: the copy is more certain than its attention."""
    if aligned.attention is None or aligned.sentence.restored:
        return aligned
    attention = aligned.attention.copy()
    begin, end = span
    kept = {
        normalise("".join(flow.characters[a:b])) for a, b in kept_spans(flow.marks).values() if begin <= a < b <= end
    }
    for text in kept - {""}:
        sources = _spans_of(text, normalise(aligned.sentence.model_input))
        targets = _spans_of(text, aligned.sentence.text)
        if len(sources) == len(targets):
            for source, target in zip(sources, targets, strict=True):
                rows = overlapping(aligned.target_tokens, target)
                columns = overlapping(aligned.source_tokens, source)
                attention[rows], attention[:, columns] = 0, 0
                attention[np.ix_(rows, columns)] = 1
    return replace(aligned, attention=attention)


def _spans_of(part: str, text: str) -> list[Span]:
    return [match.span() for match in re.finditer(re.escape(part), text)]
