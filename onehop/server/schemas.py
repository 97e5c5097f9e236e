"""The models of requests and responses. They validate requests, and the OpenAPI description is generated from them."""

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
_BOUNDARY = re.compile(r'boundary="?([^";,\s]{1,70})', re.IGNORECASE)
_FIELD_NAME = re.compile(rb'^content-disposition:[^\r\n]*;\s*name="?([^";\r\n]*)', re.IGNORECASE | re.MULTILINE)
_FILE_NAME = re.compile(rb'^content-disposition:[^\r\n]*;\s*filename="?([^"\r\n]*)', re.IGNORECASE | re.MULTILINE)
_MOST_FIELDS = 2000

Format = Literal["text", "html"]
Language = Annotated[str, Field(max_length=64, description="A language that /languages lists.")]


class _Body(BaseModel):
    """A request's body; unknown fields are refused by name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Languages(_Body):
    """The language pair. A language may be omitted if there is only one choice."""

    source: Language | None = Field(None, description="By default, and for auto, it is identified, or the only one.")
    target: Language | None = Field(None, description="By default the only one; without both, the first model's.")


class _SearchFields(Languages):
    """How to translate: the fields of onehop's SearchOptions, and terms."""

    quality: Quality | None = Field(
        None, description="fast: the small model and greedy search; by default the full model."
    )
    beam: int | None = Field(
        None, ge=1, description="Beam size; 1 is greedy. The default is 4, and 1 for the quality fast."
    )
    alpha: float | None = Field(
        None, ge=0, le=100, description="α of the length penalty; 0: none. The default depends on the model."
    )
    penalty: Literal["power", "paper"] = Field("power", description="Divide by |Y|^α or by ((5+|Y|)/6)^α.")
    min_length: int = Field(0, ge=0, le=1000, description="Minimum tokens of a translation.")
    sample: bool = Field(False, description="Sample tokens at random, without a beam.")
    temperature: float = Field(1.0, ge=0.01, le=100, description="Of the sampling: below 1 sharper, above 1 flatter.")
    top_k: int = Field(0, ge=0, le=1_000_000, description="Sample from the k most probable tokens; 0: from all.")
    top_p: float = Field(1.0, ge=0, le=1, description="Sample from the fewest tokens that reach this probability.")
    seed: int = Field(1, ge=0, le=2**63, description="Of the sampling.")
    formality: Formality | None = Field(None, description="How German and French address the reader.")

    @property
    def width(self) -> int:
        return beam_for(self.quality, self.beam)

    def options(self, n_best: int = 1) -> SearchOptions:
        """The search options; contradictory ones are refused."""
        names = ("alpha", "penalty", "min_length", "sample", "temperature", "top_k", "top_p", "seed")
        return SearchOptions(
            beam=1 if self.sample else self.width, n_best=n_best, **{name: getattr(self, name) for name in names}
        )


class TranslateBody(_SearchFields):
    """A batch to translate."""

    texts: list[str] = Field(min_length=1, description="Each is translated on its own; it may have many sentences.")
    format: Format = Field("text", description="html: the markup is kept, placed by alignment.")
    n_best: int = Field(1, ge=1, description="Number of translations of each sentence.")
    alignments: bool = Field(False, description="Return the alignments of tokens.")
    prefixes: list[str] | None = Field(None, description="For each text, the prefix of its translation.")
    glossary: dict[str, str] = Field({}, max_length=1000, description="Terms that translations should have.")
    keep: list[str] = Field([], max_length=1000, description="Words not to be translated.")


class StreamBody(_SearchFields):
    """A text to translate as a stream."""

    text: str = Field(description="It may have many sentences.")
    prefix: str = Field("", description="The prefix of the translation.")


class TraceBody(Languages):
    """A sentence to trace, with edits of the model."""

    text: str
    edits: list[str] = Field([], max_length=16, description="Such as scale=off: see docs/reference/trace-file.md.")


class LibreBody(BaseModel):
    """LibreTranslate's request. Unknown fields are ignored, as there. null and an empty string mean the default."""

    q: str | Annotated[list[str], Field(min_length=1)] = Field(description="A text, or several.")
    source: Language | None = Field("auto", description="A language, or auto.")
    target: Language
    format: Format | Literal[""] | None = "text"
    alternatives: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern="^[0-9]{0,4}$")] | None = Field(
        0, description="Number of alternative translations."
    )
    doubtful: bool = Field(False, description="An extension of onehop: return the sentences with a low confidence.")
    api_key: str | None = None

    @property
    def n_best(self) -> int:
        """The number of translations, with the alternatives."""
        return 1 + int(self.alternatives or 0)


class DetectBody(BaseModel):
    """LibreTranslate's request to detect a language."""

    q: str
    api_key: str | None = None


class LibreFileBody(BaseModel):
    """LibreTranslate's form with a file."""

    file: bytes = Field(description="The extension of its name is the format: /frontend/settings lists them.")
    source: Language | None = Field("auto", description="A language, or auto.")
    target: Language
    api_key: str | None = None


class OwnFileBody(Languages):
    """Our form with a file."""

    file: bytes = Field(description="The extension of its name is the format, unless `format` is given.")
    format: str | None = Field(None, description="A format of docs/guide/translate.md#documents.")
    join_lines: bool = Field(False, description="Join the hard-wrapped lines of a plain text's paragraphs.")
    field: str | list[str] = Field([], description="The keys or columns to translate, for formats that have them.")
    api_key: str | None = None


@dataclass(frozen=True)
class Upload:
    """A parsed form with a file, and how to read the file; without a format, by its name."""

    body: Any
    name: str
    data: bytes
    format: str | None
    join_lines: bool
    fields: tuple[str, ...]


# --- answers --------------------------------------------------------------------------------------------------


class ErrorAnswer(BaseModel):
    """What went wrong, and the remedy."""

    error: str


class Guess(BaseModel):
    """A language and the identifier's confidence in percent."""

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
    """A source language and its targets."""

    code: str
    name: str
    targets: list[str]


class AlignmentAnswer(BaseModel):
    """The tokens of a sentence's translation, and their attention weights over the source tokens."""

    source_tokens: list[str]
    target_tokens: list[str]
    attention: list[list[float]]
    pairs: list[tuple[int, int]] = Field(description="Source and target token; the strongest source of each target.")


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
    confidence: float | None = Field(description="Probability that the translation is good; null: unknown.")
    warnings: list[str]
    alignment: AlignmentAnswer | None = None


class TermAnswer(BaseModel):
    """A term missing from the translation."""

    source: str
    target: str


class TranslationAnswer(BaseModel):
    """The translation of a text, as `onehop translate --json` has it."""

    source: str
    text: str
    models: list[str] = Field(description="One model, or two; the first of two translates into `via`.")
    via: str | None
    score: float | None
    confidence: float | None = Field(description="The lowest confidence of its sentences.")
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
    """The URL of a translated file, which expires."""

    translatedFileUrl: str  # noqa: N815


class HealthAnswer(BaseModel):
    """The status is ok if translations succeed."""

    status: Literal["ok", "starting", "failing"]


# --- reading --------------------------------------------------------------------------------------------------


def read_json(kind: type[BaseModel], body: bytes) -> Any:
    """Parse a JSON body; types are not converted."""
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as e:
        raise Problem(400, _message(e)) from None


def read_upload(kind: type[BaseModel], body: bytes, content_type: str, query: str) -> Upload:
    """Parse a multipart form with a file."""
    if not content_type.lower().startswith(MULTIPART):
        sent = content_type.partition(";")[0].strip().lower()
        if sent in ("", FORM):
            raise Problem(400, f"file is missing: send {MULTIPART}.")
        raise Problem(415, f"The body is {sent[:100]}: send {MULTIPART} with the file.")
    form, file_name = read_form(kind, body, content_type, query)
    if not file_name:
        raise Problem(400, "The file has no name: send it with a filename that has an extension.")
    field = getattr(form, "field", [])  # only our own form has this and the format
    return Upload(
        body=form,
        name=file_name,
        data=form.file,
        format=getattr(form, "format", None) or None,
        join_lines=getattr(form, "join_lines", False),
        fields=(field,) if isinstance(field, str) else tuple(field),
    )


def read_form(kind: type[BaseModel], body: bytes, content_type: str, query: str) -> tuple[Any, str]:
    """Parse a form, urlencoded or multipart, and the name of its file. Numbers are strings; a repeated field is a list.

    Fields of the query count, as in LibreTranslate; a field of the body replaces one of the query.
    """
    sent: dict[str, list[Any]] = {}
    file_name = ""
    try:
        fields = _parse_query(query)
        if content_type.lower().startswith(MULTIPART):
            for name, header, content in _multipart(body, content_type):
                is_file = name == "file" and "file" in kind.model_fields
                if is_file and (match := _FILE_NAME.search(header)):
                    file_name = match[1].decode("utf-8")
                sent.setdefault(name, []).append(content if is_file else content.decode("utf-8"))
        else:
            sent |= _parse_query(body.decode("utf-8"))
    except ValueError:
        raise Problem(400, "The form is not UTF-8, or has too many fields: encode it as a browser does.") from None
    try:
        return kind.model_validate({k: v[0] if len(v) == 1 else v for k, v in (fields | sent).items()}), file_name
    except ValidationError as e:
        raise Problem(400, _message(e)) from None


def _parse_query(text: str) -> dict[str, list[Any]]:
    return dict(parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))


def _multipart(body: bytes, content_type: str) -> Iterator[tuple[str, bytes, bytes]]:
    """The name, the header and the content of each named part of a multipart form (RFC 7578).

    The standard library's parser takes seconds for a hostile megabyte.
    """
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise ValueError("no boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode("latin-1"))[1:-1]
    if len(parts) > _MOST_FIELDS:
        raise ValueError("too many fields")
    for part in parts:
        header, _, content = part.partition(b"\r\n\r\n")
        if name := _FIELD_NAME.search(header):
            yield name[1].decode("utf-8"), header, content


def _message(error: ValidationError) -> str:
    """The first validation error as one sentence."""
    first = error.errors(include_url=False, include_input=False)[0]
    message = first["msg"].rstrip(".")
    if first["type"] == "json_invalid":
        return f"The body is not JSON: {message.removeprefix('Invalid JSON: ')}."
    field = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("list[", "constrained-", "str")))
    reason = {"missing": "is missing", "extra_forbidden": "is not a known field"}.get(first["type"])
    if reason:
        return f"{field} {reason}: see /openapi.json."
    return f"{field or 'The body'}: {message[:1].lower()}{message[1:]}."
