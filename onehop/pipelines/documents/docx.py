"""Word's .docx: the paragraphs of its XML; runs, links, pictures and fields go with the words that come from theirs."""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onehop.errors import TextError
from onehop.pipelines.documents.archive import Archive, read_archive
from onehop.pipelines.documents.flow import add, as_stood, keep_placeholders, plain
from onehop.pipelines.html_markup import Flow, Kind, Mark, xml_character

PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'  # as Word writes it
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
# What holds runs, and goes with them.
_CONTAINERS = {f"{_W}{name}" for name in ("hyperlink", "ins", "smartTag", "fldSimple")}
# What parts a text, as the end of a line does.
_BREAKS = {f"{_W}{name}" for name in ("tab", "br", "cr", "ptab")}
# How a run looks does not depend on these.
_NO_LOOK = [f"{_W}{name}" for name in ("lang", "noProof", "webHidden")]
# A mark in a flow: the number of a thing of the paragraph, between characters that XML does not have.
_MARK = re.compile("\x01(/?)(\\d+)\x02")


@dataclass
class Thing:
    """What a mark stands for: a look (a run), a container, or elements that stay as they are."""

    kind: Kind
    elements: list[Any]
    run: Any = None  # the run that the elements stand in, if they do

    @property
    def is_shown(self) -> bool:
        """Whether it takes room between words, as a picture or the number of a page does."""
        return self.run is not None or self.elements[0].tag == f"{_W}r"

    def put(self, parent: Any) -> None:
        """Append the elements, in a run of their own if they stood in one."""
        if self.run is not None:
            parent.append(_like(self.run))
            parent = parent[-1]
        parent.extend(self.elements)


@dataclass
class Paragraph:
    """A paragraph: its flows, and what stands between them as numbers of things."""

    element: Any
    base: Any = None  # a run that looks as most of the text does
    things: list[Thing] = field(default_factory=list)
    pieces: list[Flow | int] = field(default_factory=lambda: [Flow(escape=xml_character)])

    @property
    def flows(self) -> list[Flow]:
        return [piece for piece in self.pieces if isinstance(piece, Flow)]

    @property
    def flow(self) -> Flow:
        last = self.pieces[-1]
        if not isinstance(last, Flow):
            last = Flow(escape=xml_character)
            self.pieces.append(last)
        return last

    def mark(self, thing: Thing, *, close: int | None = None) -> int:
        """A mark at the end of the flow; `close` is the number of the thing that ends here."""
        number = len(self.things) if close is None else close
        if close is None:
            self.things.append(thing)
        kind: Kind = thing.kind if close is None else "close"
        markup = f"\x01{'/' * (close is not None)}{number}\x02"
        name = "img" if kind == "point" and thing.is_shown else str(number)
        self.flow.marks.append(Mark(len(self.flow.characters), markup, kind, name))
        return number


@dataclass
class Part:
    """A file of the archive."""

    data: bytes
    root: Any
    paragraphs: list[Paragraph]

    @property
    def flows(self) -> list[Flow]:
        return [flow for paragraph in self.paragraphs for flow in paragraph.flows]

    def written(self, texts: Sequence[str]) -> bytes:
        """The XML with a text in the place of each flow; as it was where no text has changed."""
        from lxml import etree

        each, changed = iter(texts), False
        for paragraph in self.paragraphs:
            new = [next(each) for _ in paragraph.flows]
            if new != list(map(as_stood, paragraph.flows)):
                _rewrite(paragraph, new)
                changed = True
        if not changed:
            return self.data
        return _DECLARATION + bytes(etree.tostring(self.root, encoding="UTF-8", xml_declaration=False))


def read(data: bytes, name: str, *, most_unpacked: int) -> Archive:
    return read_archive(data, name, part, most_unpacked)


def part(name: str, data: bytes) -> Part | None:
    """The text of a document, or of its headers, footers, notes and comments."""
    from lxml import etree

    if not PARTS.fullmatch(name):
        return None
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as e:
        raise TextError(f"{name} is not XML: {e}.", "Save the document again.") from None
    found = [paragraph(element) for element in root.iter(f"{_W}p")]
    return Part(data, root, [each for each in found if any(flow.characters for flow in each.flows)])


# --- reading --------------------------------------------------------------------------------------------------


def paragraph(element: Any) -> Paragraph:
    """A paragraph with its runs as marks."""
    found = Paragraph(element, _base_run(element))
    _Walk(found).children(element)
    keep_placeholders(found.flows)
    return found


def look(run: Any) -> bytes:
    """How a run looks, as something that can be compared."""
    from lxml import etree

    properties = run.find(f"{_W}rPr")
    if properties is None:
        return b""
    plain_look = copy.deepcopy(properties)
    for name in _NO_LOOK:
        for each in plain_look.findall(name):
            plain_look.remove(each)
    return bytes(etree.tostring(plain_look, with_tail=False)) if len(plain_look) else b""


def _base_run(element: Any) -> Any:
    """The run whose look most characters have; those in links do not count."""
    lengths: dict[bytes, int] = {}
    runs: dict[bytes, Any] = {}
    for run in element.findall(f"{_W}r"):
        key = look(run)
        lengths[key] = lengths.get(key, 0) + sum(len(t.text or "") for t in run.findall(f"{_W}t"))
        runs.setdefault(key, run)
    return runs[max(lengths, key=lambda key: lengths[key])] if runs else None


class _Walk:
    """Goes through a paragraph's elements; a field from its beginning to its end stays as it is."""

    def __init__(self, found: Paragraph) -> None:
        self.found = found
        self.base = b"" if found.base is None else look(found.base)
        self.field: list[Any] = []
        self.depth = 0
        self.open: tuple[bytes, int] | None = None  # the look that is not the base's, and its number

    def children(self, element: Any) -> None:
        for child in element:
            if self.depth or child.find(f".//{_W}fldChar") is not None:
                self.part_of_field(child)
            elif child.tag == f"{_W}r":
                self.run(child)
            elif child.tag in _CONTAINERS:
                self.close_look()
                number = self.found.mark(Thing("open", [child]))
                self.children(child)
                self.close_look()
                self.found.mark(self.found.things[number], close=number)
            elif child.tag != f"{_W}pPr":
                self.point([child])
        self.close_look()

    def part_of_field(self, child: Any) -> None:
        """Something between the beginning and the end of a field."""
        self.field.append(child)
        for mark in child.iter(f"{_W}fldChar"):
            self.depth += {"begin": 1, "end": -1}.get(mark.get(f"{_W}fldCharType"), 0)
        if self.depth <= 0:
            self.depth = 0
            self.point(self.field)
            self.field = []

    def point(self, elements: list[Any], run: Any = None) -> None:
        self.found.mark(Thing("point", elements, run))

    def run(self, run: Any) -> None:
        """Text of one look, and what stands in it."""
        for child in run:
            if child.tag == f"{_W}t":
                self.change_look(run)
                add(self.found.flow, plain(child.text or ""))
            elif child.tag in _BREAKS:
                self.close_look()
                self.found.things.append(Thing("point", [child], run))
                self.found.pieces.append(len(self.found.things) - 1)
            elif child.tag not in (f"{_W}rPr", f"{_W}lastRenderedPageBreak"):
                self.close_look()
                self.point([child], run)

    def change_look(self, run: Any) -> None:
        """Text follows that looks as this run does."""
        key = look(run)
        if self.open and self.open[0] == key:
            return
        self.close_look()
        if key != self.base:
            self.open = key, self.found.mark(Thing("open", [run]))

    def close_look(self) -> None:
        """The end of what does not look as most."""
        if self.open:
            self.found.mark(self.found.things[self.open[1]], close=self.open[1])
            self.open = None


def _like(run: Any) -> Any:
    """An empty run that looks as another."""
    made = run.makeelement(f"{_W}r", nsmap=run.nsmap)
    properties = run.find(f"{_W}rPr")
    if properties is not None:
        made.append(copy.deepcopy(properties))
    return made


# --- writing --------------------------------------------------------------------------------------------------


def _rewrite(paragraph: Paragraph, texts: Sequence[str]) -> None:
    """Give a paragraph other texts: its runs are made anew."""
    element, each = paragraph.element, iter(texts)
    content = "".join(next(each) if isinstance(p, Flow) else f"\x01{p}\x02" for p in paragraph.pieces)
    containers = {id(thing): thing.elements[0] for thing in paragraph.things}
    emptied = {key: c.makeelement(c.tag, c.attrib, c.nsmap) for key, c in containers.items()}
    for child in list(element):
        if child.tag != f"{_W}pPr":
            element.remove(child)
    into, looks = [element], [paragraph.base]
    for is_mark, value in tokens(content):
        if not is_mark:
            into[-1].append(_text_run(looks[-1] if looks[-1] is not None else element, value))
            continue
        closes, thing = value[0] == "/", paragraph.things[int(value.strip("/"))]
        if thing.kind == "point":
            thing.put(into[-1])
        elif thing.elements[0].tag == f"{_W}r":
            looks[1:] = [] if closes else [thing.elements[0]]
        elif closes:
            into.pop()
        else:
            into[-1].append(emptied[id(thing)])
            into.append(emptied[id(thing)])


def tokens(content: str) -> Iterator[tuple[bool, str]]:
    """Marks as numbers, with a slash where they close, and texts."""
    at = 0
    for mark in _MARK.finditer(content):
        if mark.start() > at:
            yield False, content[at : mark.start()]
        yield True, mark[1] + mark[2]
        at = mark.end()
    if at < len(content):
        yield False, content[at:]


def _text_run(template: Any, text: str) -> Any:
    made = _like(template)
    element = made.makeelement(f"{_W}t", {_SPACE: "preserve"}, template.nsmap)
    element.text = text
    made.append(element)
    return made
