"""Text ↔ ids: joint BPE of both languages, learned from raw text.

`decode(encode(text))` equals `normalise(text)` for any string: unknown characters fall back to UTF-8 bytes.

The module also has the other vocabularies of a model file: word pieces of an imported model, and class names.
`vocabulary_of` tells the three apart.
"""

import io
import json
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import Any

import sentencepiece as spm

from onehop.config import TokenizerSettings
from onehop.errors import ModelFileError, TextError, require

PAD, UNK, BOS, EOS = 0, 1, 2, 3

# SentencePiece marks the beginning of a word with this character, so in text it can only mean a space.
WORD_MARK = "\u2581"
_DAMAGED = "The file is damaged: make it again."
_TAG = re.compile(rf"{WORD_MARK}</?\w+>")  # a token that `Tokenizer.learn` reserved for a tag


def normalise(text: str) -> str:
    """The text as the model sees it: Unicode NFC, runs of white space as one space, none at the ends.

    The word mark U+2581 counts as white space, and a lone surrogate, which UTF-8 cannot encode, becomes U+FFFD.
    """
    if text.isascii():
        return " ".join(text.split())
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(unicodedata.normalize("NFC", text).replace(WORD_MARK, " ").split())


# An imported model may have another SentencePiece model for its target language. It is stored after the source's model,
# in a field that SentencePiece ignores: the target's model, the number of its known ids, its length, and this mark.
_TARGET_FIELD, _TARGET_MARK, _TARGET_TAIL = bytes([0xC2, 0x0C]), b"onehop target", struct.Struct("<QQ")


def with_target(source: bytes, target: bytes, known: int) -> bytes:
    """The source's model with the target's appended. Target ids from `known` on are unknown."""
    payload = target + _TARGET_TAIL.pack(known, len(target)) + _TARGET_MARK
    length, head = len(payload), b""
    while length > 127:
        head, length = head + bytes([length & 127 | 128]), length >> 7
    return source + _TARGET_FIELD + head + bytes([length]) + payload


class Tokenizer:
    """A SentencePiece BPE model with fixed ids for padding, unknown, beginning and end."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._pieces = spm.SentencePieceProcessor()
        try:
            self._pieces.LoadFromSerializedProto(model)
        except (RuntimeError, UnicodeDecodeError):  # the latter if the message quotes a broken token
            raise ModelFileError("The tokenizer is not a SentencePiece model.", _DAMAGED) from None
        p = self._pieces
        if (p.pad_id(), p.unk_id(), p.bos_id(), p.eos_id()) != (PAD, UNK, BOS, EOS):
            raise ModelFileError(
                "The tokenizer gives pad, unk, bos and eos other ids than 0, 1, 2 and 3.",
                "It was made by another program: let `onehop prepare` learn one.",
            )

    @classmethod
    def learn(cls, sentences: Iterable[str], settings: TokenizerSettings, tags: Sequence[str] = ()) -> "Tokenizer":
        """Learn a joint vocabulary from sentences of both languages. A tag as a word of its own is one token."""
        out = io.BytesIO()
        failures: list[BaseException] = []
        try:
            spm.SentencePieceTrainer.Train(
                sentence_iterator=_recording(
                    failures, islice(filter(None, map(normalise, sentences)), settings.sample)
                ),
                model_writer=out,
                model_type="bpe",
                vocab_size=settings.vocab_size,
                character_coverage=0.9999,
                byte_fallback=True,
                normalization_rule_name="identity",
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                user_defined_symbols=[WORD_MARK + tag for tag in tags],
                split_digits=True,
                max_sentence_length=16384,
                hard_vocab_limit=False,
                num_threads=1,  # more threads change the result
                minloglevel=2,
            )
        except RuntimeError as e:
            if failures:
                raise failures[0] from None
            raise _learning_error(str(e), settings) from None
        return cls(out.getvalue())

    @property
    def vocab_size(self) -> int:
        return int(self._pieces.GetPieceSize())

    def encode(self, text: str, *, tags: bool = False) -> list[int]:
        """Ids of a text, without BOS or EOS. Without `tags`, a tag is encoded as ordinary text."""
        ids = list(self._pieces.EncodeAsIds(normalise(text)))
        return ids if tags else self._spelled_out(ids)

    def encode_batch(self, texts: Sequence[str], threads: int = -1, *, tags: bool = False) -> list[list[int]]:
        """Ids of many texts, with this many threads; -1: one per core."""
        if not texts:
            return []
        batch = list(self._pieces.EncodeAsIds([normalise(t) for t in texts], num_threads=threads))
        return batch if tags or not self._tags else list(map(self._spelled_out, batch))

    @cached_property
    def _tags(self) -> dict[int, list[int]]:
        """Each tag's id, and the ids of its characters as ordinary text. Tags follow the special tokens."""
        tags: dict[int, list[int]] = {}
        for id in range(EOS + 1, self.vocab_size):
            piece = self._pieces.IdToPiece(id)
            if not _TAG.fullmatch(piece):
                break
            tags[id] = [character_id for character in piece for character_id in self._ids_of_character(character)]
        return tags

    def knows_tag(self, tag: str) -> bool:
        """Whether the vocabulary has a token for a tag such as <formal>."""
        return self.ids([WORD_MARK + tag])[0] in self._tags

    def _ids_of_character(self, character: str) -> list[int]:
        id = self._pieces.PieceToId(character)
        return [id] if id != UNK else [self._pieces.PieceToId(f"<0x{byte:02X}>") for byte in character.encode()]

    def _spelled_out(self, ids: list[int]) -> list[int]:
        if not any(id in self._tags for id in ids):
            return ids
        return [spelled for id in ids for spelled in self._tags.get(id, [id])]

    @cached_property
    def target(self) -> "Tokenizer":
        """The tokenizer of the target language with the same ids; usually this one."""
        if not self.model.endswith(_TARGET_MARK):
            return self
        end = len(self.model) - len(_TARGET_MARK) - _TARGET_TAIL.size
        known, length = _TARGET_TAIL.unpack(self.model[end : -len(_TARGET_MARK)])
        return _TargetTokenizer(self.model[max(0, end - length) : end], min(known, self.vocab_size))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens and padding."""
        return str(self._pieces.DecodeIds([i for i in map(int, ids) if i not in (PAD, BOS, EOS)]))

    def decode_complete(self, ids: Sequence[int]) -> str:
        """The text of a prefix that no further id can change: without the bytes of an unfinished character."""
        return self.decode(ids).rstrip("\ufffd")

    def decode_batch(self, batch: Sequence[list[int]]) -> list[str]:
        """The texts of lists of ids without special tokens and padding."""
        return [str(text) for text in self._pieces.DecodeIds(list(batch), num_threads=1)] if batch else []

    def vocabulary(self) -> list[tuple[str, float]]:
        """Each token and its score, in the order of the ids. The merge with the higher score comes first."""
        return [(self._pieces.IdToPiece(i), self._pieces.GetScore(i)) for i in range(self.vocab_size)]

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """The span of each id in the decoded text. The last byte of a character has its whole span."""
        if not ids:
            return []
        decoded = self._pieces.Decode([int(i) for i in ids], return_type="offset_mapping")
        return [(int(begin), int(end)) for begin, end in decoded["offsets"]]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens as strings, with U+2581 where a word begins."""
        return list(map(self._token_of, ids))

    @cached_property
    def _token_of(self) -> Callable[[int], str]:
        return cache(lambda id: str(self._pieces.IdToPiece(int(id))))

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """The inverse of `tokens`."""
        return list(map(self._id_of, tokens))

    @cached_property
    def _id_of(self) -> Callable[[str], int]:
        return cache(lambda token: int(self._pieces.PieceToId(token)))


class _TargetTokenizer(Tokenizer):
    """Segments text of a target language; tokens outside the vocabulary are unknown."""

    def __init__(self, model: bytes, known: int) -> None:
        super().__init__(model)
        self.known = known

    @property
    def vocab_size(self) -> int:
        return self.known

    def encode(self, text: str, *, tags: bool = False) -> list[int]:
        return [id if id < self.known else UNK for id in super().encode(text, tags=tags)]

    def encode_batch(self, texts: Sequence[str], threads: int = -1, *, tags: bool = False) -> list[list[int]]:
        batch = super().encode_batch(texts, threads, tags=tags)
        return [[id if id < self.known else UNK for id in ids] for ids in batch]


def _recording(failures: list[BaseException], sentences: Iterable[str]) -> Iterator[str]:
    """The sentences. An exception while reading is recorded, because SentencePiece replaces it by its own."""
    try:
        yield from sentences
    except BaseException as e:
        failures.append(e)
        raise


def _learning_error(reason: str, settings: TokenizerSettings) -> TextError:
    """A readable error for a failed training of SentencePiece, whose own message names its source lines."""
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason):
        required = int(match[1])
        return TextError(
            f"A vocabulary of {settings.vocab_size} pieces is too small for the characters of this text.",
            f"It needs at least {required}. Give for example --set tokenizer.vocab_size={max(1000, 2 * required)}.",
        )
    return TextError("There is no text to learn a vocabulary from.", "Give sentences, one per line.")


class WordPieces:
    """The tokenizer of a model made elsewhere, as the library `tokenizers` describes it in JSON."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        content = json.loads(model)
        added = [token["id"] for token in content.get("added_tokens", [])]
        self.vocab_size = 1 + max([*content["model"]["vocab"].values(), *added])

    @cached_property
    def _tokenizer(self) -> Any:
        require("tokenizers")
        from tokenizers import Tokenizer as Library

        try:
            tokenizer = Library.from_str(self.model.decode())
        except Exception as e:  # the library raises plain Exception
            raise ModelFileError(f"The word pieces cannot be read ({str(e)[:100]}).", _DAMAGED) from None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts, with the model's special tokens."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]


class Classes:
    """Names of classes, one per id. Id 0 stays free: everywhere it means no label."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    @property
    def vocab_size(self) -> int:
        return 1 + len(self.names)

    @property
    def model(self) -> bytes:
        """The bytes for a model file."""
        return json.dumps(self.names).encode()

    def name(self, i: int) -> str:
        return "" if i == PAD else self.names[i - 1]


def vocabulary_of(model: bytes) -> Tokenizer | WordPieces | Classes:
    """The vocabulary of a model file or a store."""
    try:
        if model[:1] not in (b"{", b"["):
            tokenizer = Tokenizer(model)
            tokenizer.tokens(range(tokenizer.vocab_size))  # SentencePiece accepts tokens that are not UTF-8
            return tokenizer
        return WordPieces(model) if model[:1] == b"{" else Classes([str(name) for name in json.loads(model)])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ModelFileError("The vocabulary is not one that onehop has written.", _DAMAGED) from None
