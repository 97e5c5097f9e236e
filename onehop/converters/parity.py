"""The parity report of an export: the same sentences on both sides, compared and timed."""

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32

from onehop._version import __version__
from onehop.config import ModelSettings
from onehop.decoding.engine import MORE_THAN_SOURCE
from onehop.decoding.options import SearchOptions
from onehop.decoding.request import Step
from onehop.decoding.search import search
from onehop.decoding.torch_engine import CachedStep, with_source_end
from onehop.errors import TextError
from onehop.evaluation.report import read_lines
from onehop.model.loss import RULED_OUT
from onehop.model.transformer import Tokens
from onehop.pipelines.load import model_of
from onehop.storage.model_file import StoredModel
from onehop.text.tokenizer import BOS, Tokenizer

Logits = Float32[np.ndarray, "length vocab"]
_LEAST_POSITIONS = 512
# The other program has no loop guard. Greedy, because every program has its own beam search.
_GREEDY = SearchOptions(beam=1, loop_repeats=0)

SENTENCES = (
    "Hello world.",
    "Yes.",
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "How much does the ticket to Zürich cost?",
    "No one told them that the meeting had been moved to 3:30 p.m. on 12 March 2027.",
    "In 1998, sales rose by 4.7% to $1,234,567.89.",
    "“We'll see,” she said – and left…",
    "Please visit https://example.org/a?b=c&d=1 or write to info@example.org.",
    "The report, which had been written by a committee of experts over several years, was finally published last week,"
    " although some of its conclusions had already been leaked to the press.",
    "Stop!",
    "What if the two of them had never met?",
    "Mr. O'Neill's co-worker (a well-known author) won't come.",
    "dogs cats birds trees houses",
    "GOOD MORNING, LADIES AND GENTLEMEN!",
    "I like 🍎 and ☕.",
    "Die Katze saß auf der Matte, weil sie müde war.",
    "Москва – столица России.",
    "The committee meets again on Thursday to vote on the report.",
)


@runtime_checkable
class Port(Protocol):
    """A model in another program: greedy search, one sentence at a time, within its `positions`."""

    libraries: tuple[str, ...]
    positions: int
    computes: str

    def translate(self, text: str) -> str: ...

    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        """Logits after each token of `tgt`, in our ids. `src` is the model's input, and `tgt` starts with BOS.

        A program that can only follow its own path may stop where it leaves `tgt`.
        """


class Reference:
    """Our model on torch, the reference of the comparison."""

    def __init__(self, stored: StoredModel) -> None:
        self.model = model_of(stored).eval()
        self.tokenizer = Tokenizer(stored.tokenizer)
        self.positions = positions(stored.settings.model)

    def translate(self, text: str) -> str:
        return self.tokenizer.decode(self.ids(self.tokenizer.encode(text)))

    @torch.inference_mode()
    def ids(self, source: Sequence[int]) -> tuple[int, ...]:
        """Target ids of source ids, both without special tokens."""
        most = len(source) + MORE_THAN_SOURCE
        return greedy(CachedStep(self.model, torch.tensor([with_source_end(self.model, source)]), most), most)

    @torch.inference_mode()
    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        self.model.ensure_length(len(src), len(tgt))
        logits = self.model(Tokens.padded(torch.tensor([src])), Tokens.padded(torch.tensor([tgt])))
        return np.asarray(logits[0].numpy())


def positions(model: ModelSettings) -> int:
    """The size of the position table in an export: beyond the training lengths, if possible."""
    return int(min(model.most_positions, max(_LEAST_POSITIONS, model.max_length + MORE_THAN_SOURCE)))


def greedy(step: Step, most: int) -> tuple[int, ...]:
    """Greedy search up to EOS or the maximum length."""
    return search(step, [most], _GREEDY)[0][0].ids


# --- comparing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parity:
    target: str
    model: str
    sentences: int
    too_long: int
    equal: int
    largest_logit_difference: float
    median_ms: Mapping[str, float]
    threads: int
    search: str
    computes: str
    differences: Sequence[Mapping[str, str]]
    versions: Mapping[str, str]
    machine: str

    def write(self, file: Path) -> None:
        write_json(file, asdict(self))

    def lines(self) -> list[str]:
        ours, theirs = self.median_ms["onehop"], self.median_ms[self.target]
        left_out = f" ({self.too_long} more too long to compare)" if self.too_long else ""
        lines = [
            f"{self.equal} of {self.sentences} translations equal (greedy){left_out};"
            f" largest logit difference {self.largest_logit_difference:.1e}",
            f"median of a sentence: onehop on torch {ours:.1f} ms, {self.target} {theirs:.1f} ms"
            f" ({self.threads} thread{'s' if self.threads > 1 else ''})",
        ]
        if self.computes != "float32":
            lines.append(f"{self.target} computes in {self.computes}, onehop in float32")
        return lines + [f"differs: {d['source']} → {d['onehop']} | {d[self.target]}" for d in self.differences[:3]]


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def compare(stored: StoredModel, target: str, port: Port, sentences: Sequence[str]) -> Parity:
    """Translate the sentences on both sides."""
    reference = Reference(stored)
    short = _short_enough(sentences, reference, port)
    outputs: dict[str, tuple[int, ...]] = {}

    def translate(text: str) -> str:
        outputs[text] = reference.ids(reference.tokenizer.encode(text))
        return reference.tokenizer.decode(outputs[text])

    ours, our_ms = _timed(translate, short)
    theirs, their_ms = _timed(port.translate, short)
    results = list(zip(short, ours, theirs, strict=True))
    return Parity(
        target=target,
        model=stored.hash,
        sentences=len(short),
        too_long=len(sentences) - len(short),
        equal=sum(a == b for _, a, b in results),
        largest_logit_difference=max(_logit_difference(reference, port, s, outputs[s]) for s in short),
        median_ms={"onehop": our_ms, target: their_ms},
        threads=torch.get_num_threads(),
        search="greedy, one sentence at a time, text to text",
        computes=port.computes,
        differences=[{"source": s, "onehop": a, target: b} for s, a, b in results if a != b],
        versions={
            "onehop": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in dict.fromkeys(("torch", *port.libraries))},
        },
        machine=f"{platform.machine()}, {platform.platform()}",
    )


def _short_enough(sentences: Sequence[str], reference: Reference, port: Port) -> list[str]:
    """The sentences for which both sides have enough positions, whatever the translation is."""
    most = min(reference.positions, port.positions) - MORE_THAN_SOURCE
    short = [s for s in sentences if len(reference.tokenizer.encode(s)) < most]
    if not short:
        raise TextError("No sentence is short enough to compare.", "Give shorter ones with --sentences.")
    return short


def _timed(translate: Callable[[str], str], sentences: Sequence[str]) -> tuple[list[str], float]:
    """Translations, and the median milliseconds of one."""
    translate(sentences[0])  # warm-up, which is not counted
    translations, milliseconds = [], []
    for sentence in sentences:
        start = time.perf_counter()
        translations.append(translate(sentence))
        milliseconds.append(1000 * (time.perf_counter() - start))
    return translations, statistics.median(milliseconds)


def _logit_difference(reference: Reference, port: Port, sentence: str, output: Sequence[int]) -> float:
    """The largest over our translation and the whole vocabulary, except for tokens that either side rules out."""
    src, tgt = with_source_end(reference.model, reference.tokenizer.encode(sentence)), [BOS, *output]
    theirs = port.logits(src, tgt)
    ours = reference.logits(src, tgt)[: len(theirs)]
    return float(np.abs(ours - theirs)[ours > RULED_OUT].max())


def read_sentences(file: Path | None) -> Sequence[str]:
    """The sentences of a file, one per line, or the built-in ones; empty lines are skipped."""
    if file is None:
        return SENTENCES
    sentences = [line.strip() for line in read_lines(file) if line.strip()]
    if not sentences:
        raise TextError(f"{file} has no sentence.", "Give one sentence per line.")
    return sentences
