"""gettext's PO files: entries without a translation get one; all other lines stay."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onehop.errors import TextError
from onehop.pipelines.documents.flow import Source, decoded, flow_of, plain
from onehop.pipelines.html_markup import Flow, Piece

_SEPARATOR = re.compile(r"(\n|\t)")
# An entry's translation: one string, or one per plural form. The lines of obsolete entries begin with #~.
_TRANSLATION = re.compile(r'^[ \t]*msgstr\b.*(?:\n[ \t]*(?:msgstr\b|").*)*', re.MULTILINE)
_WIDTH = 78  # gettext's line width


@dataclass
class _Message:
    """A text of an entry that needs a translation, in lines."""

    entry: Any
    text: str
    plural_forms: Sequence[int] = ()  # which forms it translates; empty if the entry has no plural

    def __post_init__(self) -> None:
        parts = _SEPARATOR.split(self.text)
        self.pieces: list[Piece] = [p if _SEPARATOR.fullmatch(p) else flow_of(plain(p)) for p in parts]


@dataclass
class _Catalog:
    """A PO file."""

    source: Source
    entries: Sequence[Any]
    spans: Sequence[tuple[int, int]]  # of the entries' translations in the source
    width: int  # of lines; 0: lines are not broken
    messages: list[_Message] = field(default_factory=list)

    @property
    def flows(self) -> list[Flow]:
        return [piece for message in self.messages for piece in message.pieces if isinstance(piece, Flow)]

    def written(self, texts: Sequence[str]) -> bytes:
        remaining = iter(texts)
        for message in self.messages:
            translation = "".join(next(remaining) if isinstance(p, Flow) else p for p in message.pieces)
            if message.plural_forms:
                message.entry.msgstr_plural.update(dict.fromkeys(message.plural_forms, translation))
            else:
                message.entry.msgstr = translation
        changed = {id(message.entry) for message in self.messages}
        text, at, parts = self.source.text, 0, []
        for entry, (begin, end) in zip(self.entries, self.spans, strict=True):
            if id(entry) in changed:
                lines = _TRANSLATION.search(entry.__unicode__(self.width))
                assert lines is not None
                parts += [text[at:begin], lines[0]]
                at = end
        return self.source.encoded("".join([*parts, text[at:]]))


def read(data: bytes, name: str) -> _Catalog:
    import polib

    source = decoded(data, name)
    try:
        # The line end tells polib that this is content, not a path.
        file = polib.pofile(source.text + "\n", check_for_duplicates=False)
    except (OSError, ValueError) as e:
        reason = re.sub(r"^Syntax error in po file ?(?:\S* ?\(|\()?|\)?$", "", str(e)).strip()
        raise TextError(f"{name} is not a PO file: {reason}.", "Check it with msgfmt -c.") from None
    entries = [entry for entry in file if not entry.obsolete]
    spans = [match.span() for match in _TRANSLATION.finditer(source.text)]
    spans = spans[len(spans) - len(entries) :]  # the header comes first and has one as well
    if len(spans) != len(entries):
        raise TextError(f"{name} is not a PO file: an entry has no msgstr.", "Check it with msgfmt -c.")
    strings = re.findall(r'^(?:msg|").*', source.text, re.MULTILINE)
    is_wrapped = max(map(len, strings), default=0) <= _WIDTH + 2
    catalog = _Catalog(source, entries, spans, _WIDTH if is_wrapped else 0)
    plural_forms = re.search(r"nplurals\s*=\s*(\d+)", file.metadata.get("Plural-Forms", ""))
    for entry in entries:
        if "fuzzy" not in entry.flags:
            catalog.messages += _missing(entry, int(plural_forms[1]) if plural_forms else 2)
    return catalog


def _missing(entry: Any, plural_forms: int) -> Iterator[_Message]:
    """The texts of an entry without a translation."""
    if not entry.msgid_plural:
        if not entry.msgstr:
            yield _Message(entry, entry.msgid)
    elif not any(entry.msgstr_plural.values()):
        yield _Message(entry, entry.msgid if plural_forms > 1 else entry.msgid_plural, [0])
        if plural_forms > 1:
            yield _Message(entry, entry.msgid_plural, range(1, plural_forms))
