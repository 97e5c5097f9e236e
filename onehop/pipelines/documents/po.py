"""gettext's PO files: entries without a translation get one; every other line stays as it is."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onehop.errors import TextError
from onehop.pipelines.documents.flow import Source, decoded, flow_of, plain
from onehop.pipelines.html_markup import Flow, Piece

_LINE_END = re.compile(r"(\n|\t)")
# The translation of an entry: one string, or one for each plural form. An obsolete entry's lines begin with #~.
_TRANSLATION = re.compile(r'^[ \t]*msgstr\b.*(?:\n[ \t]*(?:msgstr\b|").*)*', re.MULTILINE)
WIDTH = 78  # where gettext breaks lines


@dataclass
class Message:
    """A text of an entry, in lines, and what takes its translation."""

    entry: Any
    pieces: list[Piece]
    numbers: Sequence[int] = ()  # of the plural forms; none where the entry has no plural

    def take(self, text: str) -> None:
        if self.numbers:
            self.entry.msgstr_plural.update(dict.fromkeys(self.numbers, text))
        else:
            self.entry.msgstr = text


@dataclass
class Catalog:
    """A PO file."""

    source: Source
    entries: Sequence[Any]
    places: Sequence[tuple[int, int]]  # where the entries' translations begin and end
    width: int  # where lines are broken; 0: nowhere
    messages: list[Message] = field(default_factory=list)

    @property
    def flows(self) -> list[Flow]:
        return [piece for message in self.messages for piece in message.pieces if isinstance(piece, Flow)]

    def written(self, texts: Sequence[str]) -> bytes:
        """The file with a text in the place of each flow."""
        each = iter(texts)
        for message in self.messages:
            message.take("".join(next(each) if isinstance(piece, Flow) else piece for piece in message.pieces))
        changed = {id(message.entry) for message in self.messages}
        text, at, parts = self.source.text, 0, []
        for entry, (begin, end) in zip(self.entries, self.places, strict=True):
            if id(entry) in changed:
                parts += [text[at:begin], _translation(entry, self.width)]
                at = end
        return self.source.encoded("".join([*parts, text[at:]]))


def read(data: bytes, name: str) -> Catalog:
    """A PO file or a template of one."""
    import polib

    source = decoded(data, name)
    try:
        # A line end makes it content and no path.
        file = polib.pofile(source.text + "\n", check_for_duplicates=False)
    except (OSError, ValueError) as e:
        reason = re.sub(r"^Syntax error in po file ?(?:\S* ?\(|\()?|\)?$", "", str(e)).strip()
        raise TextError(f"{name} is not a PO file: {reason}.", "Check it with msgfmt -c.") from None
    entries = [entry for entry in file if not entry.obsolete]
    places = [found.span() for found in _TRANSLATION.finditer(source.text)]
    places = places[len(places) - len(entries) :]  # the header has one too, which comes first
    if len(places) != len(entries):
        raise TextError(f"{name} is not a PO file: an entry has no msgstr.", "Check it with msgfmt -c.")
    strings = re.findall(r'^(?:msg|").*', source.text, re.MULTILINE)
    is_wrapped = max(map(len, strings), default=0) <= WIDTH + 2
    catalog = Catalog(source, entries, places, WIDTH if is_wrapped else 0)
    for entry in entries:
        if "fuzzy" not in entry.flags:
            catalog.messages += _messages(entry, _plural_forms(file))
    return catalog


def _translation(entry: Any, width: int) -> str:
    """The lines of an entry that have its translation."""
    made = _TRANSLATION.search(entry.__unicode__(width))
    assert made is not None
    return made[0]


def _messages(entry: Any, forms: int) -> Iterator[Message]:
    """What of an entry has no translation yet."""
    if not entry.msgid_plural:
        if not entry.msgstr:
            yield Message(entry, lines(entry.msgid))
    elif not any(entry.msgstr_plural.values()):
        yield Message(entry, lines(entry.msgid if forms > 1 else entry.msgid_plural), [0])
        if forms > 1:
            yield Message(entry, lines(entry.msgid_plural), range(1, forms))


def _plural_forms(entries: Any) -> int:
    """How many plural forms the header says that the language has; of most there are two."""
    found = re.search(r"nplurals\s*=\s*(\d+)", entries.metadata.get("Plural-Forms", ""))
    return int(found[1]) if found else 2


def lines(text: str) -> list[Piece]:
    """The lines of a message, parted at tabs."""
    return [part if _LINE_END.fullmatch(part) else flow_of(plain(part)) for part in _LINE_END.split(text)]
