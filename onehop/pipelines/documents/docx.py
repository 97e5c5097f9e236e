"""Word's .docx: paragraphs of XML. Runs, links, pictures and fields go with the words that translate theirs."""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from onehop.pipelines.documents.archive import Archive, read_archive
from onehop.pipelines.documents.flow import keep_placeholders, original, parse_xml, plain
from onehop.pipelines.html_markup import Flow, Kind, Mark, xml_character

_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'  # as Word writes it
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
# Elements that contain runs.
_CONTAINERS = {f"{_W}{name}" for name in ("hyperlink", "ins", "smartTag", "fldSimple")}
# Elements that end a flow, like a line break.
_BREAKS = {f"{_W}{name}" for name in ("tab", "br", "cr", "ptab")}
# Properties of a run that do not change its appearance.
_INVISIBLE = [f"{_W}{name}" for name in ("lang", "noProof", "webHidden")]
# A mark in a flow: an index into the paragraph's inline elements, between characters that XML does not allow.
_MARK = re.compile("\x01(/?\\d+)\x02")


@dataclass
class _Inline:
    """What a mark stands for: a run's formatting, a container, or elements that stay as they are."""

    kind: Kind
    elements: list[Any]
    run: Any = None  # the run around the elements, if there is one

    @property
    def is_shown(self) -> bool:
        """Whether it takes space between words, like a picture or a page number."""
        return self.run is not None or self.elements[0].tag == f"{_W}r"

    def append_to(self, parent: Any) -> None:
        """Append the elements, in a new run if they were inside one."""
        if self.run is not None:
            parent.append(_empty_copy(self.run))
            parent = parent[-1]
        parent.extend(self.elements)


@dataclass
class _Paragraph:
    """A paragraph as flows, and between them indices of its inline elements."""

    element: Any
    base: Any = None  # a run with the formatting of most of the text
    inline: list[_Inline] = field(default_factory=list)
    pieces: list[Flow | int] = field(default_factory=lambda: [Flow(escape=xml_character)])

    @property
    def flows(self) -> list[Flow]:
        return [piece for piece in self.pieces if isinstance(piece, Flow)]

    @property
    def flow(self) -> Flow:
        """The last flow, or a new one after a break."""
        last = self.pieces[-1]
        if not isinstance(last, Flow):
            last = Flow(escape=xml_character)
            self.pieces.append(last)
        return last

    def mark(self, inline: _Inline) -> int:
        """Add a mark at the end of the flow; returns its index, for `close`."""
        index = len(self.inline)
        self.inline.append(inline)
        name = "img" if inline.kind == "point" and inline.is_shown else str(index)
        self.flow.marks.append(Mark(len(self.flow.characters), f"\x01{index}\x02", inline.kind, name))
        return index

    def close(self, index: int) -> None:
        self.flow.marks.append(Mark(len(self.flow.characters), f"\x01/{index}\x02", "close", str(index)))


@dataclass
class _Part:
    """An XML file of the archive."""

    data: bytes
    root: Any
    paragraphs: list[_Paragraph]

    @property
    def flows(self) -> list[Flow]:
        return [flow for paragraph in self.paragraphs for flow in paragraph.flows]

    def written(self, texts: Sequence[str]) -> bytes:
        """The XML with each flow replaced by a text; the same bytes if no text has changed."""
        from lxml import etree

        remaining, changed = iter(texts), False
        for paragraph in self.paragraphs:
            new = [next(remaining) for _ in paragraph.flows]
            if new != list(map(original, paragraph.flows)):
                _rewrite(paragraph, new)
                changed = True
        if not changed:
            return self.data
        return _DECLARATION + bytes(etree.tostring(self.root, encoding="UTF-8", xml_declaration=False))


def read(data: bytes, name: str, *, max_unpacked: int) -> Archive:
    return read_archive(data, name, _part, max_unpacked)


def _part(name: str, data: bytes) -> _Part | None:
    """The text of a document, or of its headers, footers, notes and comments."""
    if not _PARTS.fullmatch(name):
        return None
    root = parse_xml(data, name, "Save the document again.")
    paragraphs = [_Paragraph(element, _base_run(element)) for element in root.iter(f"{_W}p")]
    for paragraph in paragraphs:
        _Walk(paragraph).children(paragraph.element)
        keep_placeholders(paragraph.flows)
    return _Part(data, root, [p for p in paragraphs if any(flow.characters for flow in p.flows)])


# --- reading --------------------------------------------------------------------------------------------------


def _formatting(run: Any) -> bytes:
    """A run's appearance, in a form that can be compared."""
    from lxml import etree

    properties = run.find(f"{_W}rPr")
    if properties is None:
        return b""
    visible = copy.deepcopy(properties)
    for name in _INVISIBLE:
        for element in visible.findall(name):
            visible.remove(element)
    return bytes(etree.tostring(visible, with_tail=False)) if len(visible) else b""


def _base_run(element: Any) -> Any:
    """A run with the formatting that most characters have, not counting those in links."""
    lengths: dict[bytes, int] = {}
    runs: dict[bytes, Any] = {}
    for run in element.findall(f"{_W}r"):
        key = _formatting(run)
        lengths[key] = lengths.get(key, 0) + sum(len(t.text or "") for t in run.findall(f"{_W}t"))
        runs.setdefault(key, run)
    return runs[max(lengths, key=lambda key: lengths[key])] if runs else None


class _Walk:
    """Walks through a paragraph's elements. A field stays as it is from its beginning to its end."""

    def __init__(self, paragraph: _Paragraph) -> None:
        self.paragraph = paragraph
        self.base = b"" if paragraph.base is None else _formatting(paragraph.base)
        self.field: list[Any] = []
        self.depth = 0
        self.open: tuple[bytes, int] | None = None  # formatting other than the base's, and the index of its mark

    def children(self, element: Any) -> None:
        for child in element:
            if self.depth or child.find(f".//{_W}fldChar") is not None:
                self.part_of_field(child)
            elif child.tag == f"{_W}r":
                self.run(child)
            elif child.tag in _CONTAINERS:
                self.end_formatting()
                index = self.paragraph.mark(_Inline("open", [child]))
                self.children(child)
                self.paragraph.close(index)
            elif child.tag != f"{_W}pPr":
                self.paragraph.mark(_Inline("point", [child]))
        self.end_formatting()

    def part_of_field(self, child: Any) -> None:
        self.field.append(child)
        for mark in child.iter(f"{_W}fldChar"):
            self.depth += {"begin": 1, "end": -1}.get(mark.get(f"{_W}fldCharType"), 0)
        if self.depth <= 0:
            self.depth = 0
            self.paragraph.mark(_Inline("point", self.field))
            self.field = []

    def run(self, run: Any) -> None:
        for child in run:
            if child.tag == f"{_W}t":
                self.set_formatting(run)
                self.paragraph.flow.extend(plain(child.text or ""))
            elif child.tag in _BREAKS:
                self.end_formatting()
                self.paragraph.inline.append(_Inline("point", [child], run))
                self.paragraph.pieces.append(len(self.paragraph.inline) - 1)
            elif child.tag not in (f"{_W}rPr", f"{_W}lastRenderedPageBreak"):
                self.end_formatting()
                self.paragraph.mark(_Inline("point", [child], run))

    def set_formatting(self, run: Any) -> None:
        """Format the text that follows like this run."""
        key = _formatting(run)
        if self.open and self.open[0] == key:
            return
        self.end_formatting()
        if key != self.base:
            self.open = key, self.paragraph.mark(_Inline("open", [run]))

    def end_formatting(self) -> None:
        if self.open:
            self.paragraph.close(self.open[1])
            self.open = None


def _empty_copy(run: Any) -> Any:
    """A run without content and with the same formatting."""
    empty = run.makeelement(f"{_W}r", nsmap=run.nsmap)
    properties = run.find(f"{_W}rPr")
    if properties is not None:
        empty.append(copy.deepcopy(properties))
    return empty


# --- writing --------------------------------------------------------------------------------------------------


def _rewrite(paragraph: _Paragraph, texts: Sequence[str]) -> None:
    """Replace a paragraph's content by new runs with these texts."""
    element, remaining = paragraph.element, iter(texts)
    content = "".join(next(remaining) if isinstance(p, Flow) else f"\x01{p}\x02" for p in paragraph.pieces)
    # Made before any element is removed, which would lose the namespaces of its ancestors.
    opened = {i: inline.elements[0] for i, inline in enumerate(paragraph.inline) if inline.kind == "open"}
    containers = {i: e.makeelement(e.tag, e.attrib, e.nsmap) for i, e in opened.items()}
    for child in list(element):
        if child.tag != f"{_W}pPr":
            element.remove(child)
    parents, run = [element], paragraph.base
    for i, token in enumerate(_MARK.split(content)):
        if not i % 2:  # text between two marks
            if token:
                parents[-1].append(_text_run(element if run is None else run, token))
            continue
        closes, index = token[0] == "/", int(token.strip("/"))
        inline = paragraph.inline[index]
        if inline.kind == "point":
            inline.append_to(parents[-1])
        elif inline.elements[0].tag == f"{_W}r":
            run = paragraph.base if closes else inline.elements[0]
        elif closes:
            parents.pop()
        else:
            parents[-1].append(containers[index])
            parents.append(containers[index])


def _text_run(template: Any, text: str) -> Any:
    run = _empty_copy(template)
    element = run.makeelement(f"{_W}t", {_SPACE: "preserve"}, template.nsmap)
    element.text = text
    run.append(element)
    return run
