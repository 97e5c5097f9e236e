"""What requests and answers hold. The models check the one, and both are what the OpenAPI description is made of."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onehop.decoding.options import SearchOptions
from onehop.pipelines.arguments import beam_for
from onehop.server.problems import Problem
from onehop.storage.registry import Quality
from onehop.text.formality import Formality

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
BOUNDARY = re.compile(r'boundary="?([^";,\s]{1,70})', re.IGNORECASE)
FIELD_NAME = re.compile(rb'^content-disposition:[^\r\n]*;\s*name="?([^";\r\n]*)', re.IGNORECASE | re.MULTILINE)
FILE_NAME = re.compile(rb'^content-disposition:[^\r\n]*;\s*filename="?([^"\r\n]*)', re.IGNORECASE | re.MULTILINE)
MOST_FIELDS = 2000

Format = Literal["text", "html"]
Language = Annotated[str, Field(max_length=64, description="A language that /languages lists.")]


class Body(BaseModel):
    """What a client sends: what is not known is refused, with its name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Languages(Body):
    """From what to what; of what is left out there must be no choice."""

    source: Language | None = Field(None, description="Otherwise, and if it is auto, identified or the only one.")
    target: Language | None = Field(None, description="Otherwise the only one; without both, that of the first model.")


class Wishes(Languages):
    """How to translate: the fields of onehop's SearchOptions, and terms."""

    quality: Quality | None = Field(
        None, description="fast: the small model and greedy search; otherwise the full one."
    )
    beam: int | None = Field(
        None, ge=1, description="Hypotheses followed at a time; 1: greedy. Otherwise 4, and 1 for the quality fast."
    )
    alpha: float | None = Field(
        None, ge=0, le=100, description="α of the length penalty; 0: none. Otherwise what suits the model."
    )
    penalty: Literal["power", "paper"] = Field("power", description="Divide by |Y|^α or by ((5+|Y|)/6)^α.")
    min_length: int = Field(0, ge=0, le=1000, description="Tokens before a translation may end.")
    sample: bool = Field(False, description="Draw tokens at random, with no beam.")
    temperature: float = Field(1.0, ge=0.01, le=100, description="Of the drawing: below 1 sharper, above 1 flatter.")
    top_k: int = Field(0, ge=0, le=1_000_000, description="Draw from the k most probable tokens; 0: from all.")
    top_p: float = Field(1.0, ge=0, le=1, description="Draw from the fewest tokens that reach this share.")
    seed: int = Field(1, ge=0, le=2**63, description="Of the drawing.")
    formality: Formality | None = Field(None, description="How German and French address the reader.")

    @property
    def width(self) -> int:
        """Of the beam."""
        return beam_for(self.quality, self.beam)

    def options(self, n_best: int = 1) -> SearchOptions:
        """For the search; what does not go together is refused there."""
        names = ("alpha", "penalty", "min_length", "sample", "temperature", "top_k", "top_p", "seed")
        return SearchOptions(
            beam=1 if self.sample else self.width, n_best=n_best, **{name: getattr(self, name) for name in names}
        )


class TranslateBody(Wishes):
    """A batch to translate."""

    texts: list[str] = Field(min_length=1, description="Each is translated on its own; it may hold many sentences.")
    format: Format = Field("text", description="html: markup stays, by alignment.")
    n_best: int = Field(1, ge=1, description="So many translations of each sentence.")
    alignments: bool = Field(False, description="Say which tokens come from which.")
    prefixes: list[str] | None = Field(None, description="For each text, what its translation must begin with.")
    glossary: dict[str, str] = Field({}, max_length=1000, description="Terms that translations should have.")
    keep: list[str] = Field([], max_length=1000, description="Words not to be translated.")


class StreamBody(Wishes):
    """A text to translate while one looks on."""

    text: str = Field(description="It may hold many sentences.")
    prefix: str = Field("", description="What the translation must begin with.")


class TraceBody(Languages):
    """A sentence to look into, with edits of the model's quantities."""

    text: str
    edits: list[str] = Field([], max_length=16, description="Such as scale=off: see docs/reference/trace-file.md.")


class LibreBody(BaseModel):
    """LibreTranslate's request; what it has besides is passed over, as there. Null and nothing mean the default."""

    model_config = ConfigDict(extra="ignore")

    q: str | Annotated[list[str], Field(min_length=1)] = Field(description="A text, or several.")
    source: Language | None = Field("auto", description="A language, or auto.")
    target: Language
    format: Format | Literal[""] | None = "text"
    alternatives: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern="^[0-9]{0,4}$")] | None = Field(
        0, description="So many other translations."
    )
    doubtful: bool = Field(False, description="onehop's own: say which sentences have a low confidence.")
    api_key: str | None = None

    @property
    def n_best(self) -> int:
        """The translation and its alternatives."""
        return 1 + int(self.alternatives or 0)


class DetectBody(BaseModel):
    """LibreTranslate's request for the language of a text."""

    model_config = ConfigDict(extra="ignore")

    q: str
    api_key: str | None = None


class LibreFileBody(BaseModel):
    """LibreTranslate's form with a file."""

    model_config = ConfigDict(extra="ignore")

    file: bytes = Field(description="Its name's ending says the format: /frontend/settings lists them.")
    source: Language | None = Field("auto", description="A language, or auto.")
    target: Language
    api_key: str | None = None


class OwnFileBody(Languages):
    """Our form with a file."""

    file: bytes = Field(description="Its name's ending says the format, unless `format` does.")
    format: str | None = Field(None, description="A format of docs/guide/translate.md#documents.")
    join_lines: bool = Field(False, description="Lines of a plain text that belong to one paragraph go together.")
    field: str | list[str] = Field([], description="Only these keys or columns are translated, where there are such.")
    api_key: str | None = None


@dataclass(frozen=True)
class Upload:
    """A form with a file, read."""

    body: Any
    name: str

    @property
    def data(self) -> bytes:
        """The file's content."""
        return bytes(self.body.file)

    @property
    def format(self) -> str | None:
        """The format, where the name does not say it."""
        return getattr(self.body, "format", None) or None

    @property
    def join_lines(self) -> bool:
        """Whether hard-wrapped lines are joined."""
        return getattr(self.body, "join_lines", False)

    @property
    def fields(self) -> tuple[str, ...]:
        """The keys or columns to translate."""
        given = getattr(self.body, "field", [])
        return (given,) if isinstance(given, str) else tuple(given)


# --- answers --------------------------------------------------------------------------------------------------


class ErrorAnswer(BaseModel):
    """What went wrong, and what to do about it."""

    error: str


class Guess(BaseModel):
    """A language and how sure the identifier is, in percent."""

    language: str
    confidence: float


class LibreAnswer(BaseModel):
    """A translation, or one for each text."""

    model_config = ConfigDict(extra="forbid")

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Guess | list[Guess] | None = None  # noqa: N815
    doubtful: list[str] | list[list[str]] | None = Field(None, description="Sentences with a low confidence, if asked.")


class LanguageAnswer(BaseModel):
    """A language that texts may be in, and those that they can be translated into."""

    code: str
    name: str
    targets: list[str]


class AlignmentAnswer(BaseModel):
    """Of a sentence's translation: its tokens, and how much each of them looked at each source token."""

    source_tokens: list[str]
    target_tokens: list[str]
    attention: list[list[float]]
    pairs: list[tuple[int, int]] = Field(description="Source and target token, for each target token its strongest.")


class HypothesisAnswer(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float | None
    log_prob: float | None
    tokens: list[str]
    finished: bool
    looped: bool
    engine: str | None


class SentenceAnswer(BaseModel):
    """A sentence of a text."""

    source: str
    text: str
    split: bool
    copied: bool
    restored: bool
    capitals: bool
    n_best: list[HypothesisAnswer]
    confidence: float | None = Field(description="How likely the translation is good; null: not known.")
    warnings: list[str]
    alignment: AlignmentAnswer | None = None


class TermAnswer(BaseModel):
    """A term that is not in the translation."""

    source: str
    target: str


class TranslationAnswer(BaseModel):
    """The translation of a text, as `onehop translate --json` has it."""

    source: str
    text: str
    models: list[str] = Field(description="One, or two of which the first translates into `via`.")
    via: str | None
    score: float | None
    confidence: float | None = Field(description="The lowest of its sentences.")
    tokens: list[str]
    engine: str | None
    compute: str | None
    finished: bool
    looped: bool
    split: bool
    capitals: bool
    unmet: list[TermAnswer]
    missing_numbers: list[str]
    missing_names: list[str]
    warnings: list[str]
    sentences: list[SentenceAnswer]


class TranslateAnswer(BaseModel):
    """A translation for each text."""

    source: str
    target: str
    translations: list[TranslationAnswer]


class FileAnswer(BaseModel):
    """Where a translated file can be downloaded for a while."""

    translatedFileUrl: str  # noqa: N815


class HealthAnswer(BaseModel):
    """ok when a translation has worked."""

    status: Literal["ok", "starting", "failing"]


# --- reading --------------------------------------------------------------------------------------------------


def read_json(kind: type[BaseModel], body: bytes) -> Any:
    """A JSON body; types are taken at their word."""
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as e:
        raise Problem(400, in_words(e)) from None


def read_form(kind: type[BaseModel], body: bytes, content_type: str, query: str) -> Any:
    """A form of either kind, where numbers are written out; fields of the query count, as in LibreTranslate.

    A field that stands there twice is a list.
    """
    try:
        fields = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
        fields |= multipart(body, content_type) if content_type.lower().startswith(MULTIPART) else urlencoded(body)
    except (UnicodeDecodeError, ValueError):
        raise Problem(400, "The form is not UTF-8, or has too many fields: encode it as a browser does.") from None
    try:
        return kind.model_validate({k: v[0] if len(v) == 1 else v for k, v in fields.items()})
    except ValidationError as e:
        raise Problem(400, in_words(e)) from None


def urlencoded(body: bytes) -> dict[str, list[str]]:
    """The fields of a plain form."""
    return parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)


def multipart(body: bytes, content_type: str) -> dict[str, list[str]]:
    """The fields of a form in parts (RFC 7578). The standard library's parser takes seconds for a hostile megabyte."""
    fields: dict[str, list[str]] = {}
    for name, _, value in parts_of(body, content_type):
        fields.setdefault(name, []).append(value.decode("utf-8"))
    return fields


def parts_of(body: bytes, content_type: str) -> Iterator[tuple[str, bytes, bytes]]:
    """The name, the head and the content of each part that has a name."""
    boundary = BOUNDARY.search(content_type)
    if boundary is None:
        raise ValueError("no boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode("latin-1"))[1:-1]
    if len(parts) > MOST_FIELDS:
        raise ValueError("too many fields")
    for part in parts:
        head, _, value = part.partition(b"\r\n\r\n")
        if name := FIELD_NAME.search(head):
            yield name[1].decode("utf-8"), head, value


def read_upload(kind: type[BaseModel], body: bytes, content_type: str, query: str) -> Upload:
    """A form with a file; fields of the query count, as in LibreTranslate."""
    if not content_type.lower().startswith(MULTIPART):
        sent = content_type.partition(";")[0].strip().lower()
        if sent in ("", FORM):
            raise Problem(400, f"file is missing: send {MULTIPART}.")
        raise Problem(415, f"The body is {sent[:100]}: send {MULTIPART}, with the file in it.")
    values: dict[str, list[Any]] = {}
    name = ""
    try:
        values |= parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
        for field, head, content in parts_of(body, content_type):
            if field == "file":
                given = FILE_NAME.search(head)
                name = given[1].decode("utf-8") if given else ""
            values.setdefault(field, []).append(content if field == "file" else content.decode("utf-8"))
    except (UnicodeDecodeError, ValueError):
        raise Problem(400, "The form is not UTF-8, or has too many fields: encode it as a browser does.") from None
    try:
        found = kind.model_validate({k: v[0] if len(v) == 1 else v for k, v in values.items()})
    except ValidationError as e:
        raise Problem(400, in_words(e)) from None
    if not name:
        raise Problem(400, "The file has no name: send it with its filename, whose ending says the format.")
    return Upload(found, name)


def in_words(error: ValidationError) -> str:
    """The first thing that is wrong, in one sentence."""
    first = error.errors(include_url=False, include_input=False)[0]
    message = first["msg"].rstrip(".")
    if first["type"] == "json_invalid":
        return f"The body is not JSON: {message.removeprefix('Invalid JSON: ')}."
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("list[", "constrained-", "str")))
    what = {"missing": "is missing", "extra_forbidden": "is not known here"}.get(first["type"])
    if what:
        return f"{where} {what}: see /openapi.json."
    return f"{where or 'The body'}: {message[:1].lower()}{message[1:]}."
