"""CTranslate2, the fast engine for a CPU: its own search, int8 or float32, and never torch.

This module adds what its search lacks: a maximum length per sentence instead of per call, and the loop guard.
"""

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import ctranslate2

from onehop.decoding.engine import EngineName, SearchCancelled, Settled, batches_by_length, max_output_lengths
from onehop.decoding.options import LONGEST_LOOP, Hypothesis, Ids, SearchOptions, for_one_best, loop_span
from onehop.errors import SettingsError
from onehop.machine import available_cores, keep_freed_memory, omp_threads
from onehop.storage import cache, ctranslate2_format
from onehop.storage.ctranslate2_format import METADATA_FILE, TOKENIZER_FILE, Compute
from onehop.storage.model_label import describe
from onehop.text.tokenizer import EOS, Tokenizer

# Source tokens per batch: larger batches exceed the CPU's caches, smaller ones wait for weights. A model narrower than
# the base model has fewer weights to wait for: with d_model 384, half is 3 to 5% faster.
BATCH_TOKENS = 1024
_BASE_WIDTH = 512
# Matrix products with fewer than 16 rows, EOS included, are summed in another order. In int8 that can change a
# translation, so no sentence is padded from below this length to above it.
SHORT = 15
# After Ctrl-C, CTranslate2 translates everything in its queue before the program can end. So the queue is short, and
# still long enough that a worker finds its next batch.
QUEUED_PER_WORKER = 2
# With α = 0 CTranslate2 stops its search by another rule. With this α it does not, and |Y|^α is 1.
_NO_PENALTY = 1e-9


class UnsupportedError(SettingsError):
    """CTranslate2 cannot run this model, but torch can."""


@dataclass(frozen=True)
class Converted:
    """A converted model: in a folder, or in memory if no folder can be written."""

    folder: Path | None
    files: Mapping[str, bytes]
    tokenizer: Tokenizer
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, path: str | Path, compute: Compute) -> "Converted":
        """The cached conversion, else a new one. With the cache, the weights are not read."""
        name = f"ctranslate2/{describe(path).hash[:32]}-{compute}-{ctranslate2_format.CONVERTER}"
        folder = cache.find(name)
        if folder is None:
            from onehop.storage.ctranslate2_conversion import cached_files  # NumPy takes long to import
            from onehop.storage.model_io import read_model

            stored = read_model(path)
            if reason := ctranslate2_format.inexpressible(stored.settings.model):
                raise UnsupportedError(f"CTranslate2 has no such model: {reason}.", "Use the engine torch.")
            files = cached_files(stored, compute)
            try:
                folder = cache.put(name, files)
            except OSError:  # the disk is full or read-only: it is converted at each start
                memory = {file: b"".join(pieces) for file, pieces in files.items()}
                return cls(None, memory, Tokenizer(memory[TOKENIZER_FILE]), json.loads(memory[METADATA_FILE]))
        tokenizer, metadata = ((folder / file).read_bytes() for file in (TOKENIZER_FILE, METADATA_FILE))
        return cls(folder, {}, Tokenizer(tokenizer), json.loads(metadata))

    def open(self, compute: Compute, workers: int) -> Any:
        """CTranslate2's translator. Each worker has one thread: threads that share a sentence wait too much."""
        keep_freed_memory()
        return ctranslate2.Translator(
            str(self.folder or "onehop"),
            device="cpu",
            compute_type=compute,
            inter_threads=workers,
            intra_threads=1,
            max_queued_batches=-1,
            files=dict(self.files) or None,
        )


class Ct2Engine:
    name: EngineName = "ctranslate2"

    def __init__(self, converted: Converted, compute: Compute, threads: int | None) -> None:
        self.compute = compute
        self.workers = threads or cores()
        self.spread = self.workers  # number of batches per call; a caller with many threads sets 1
        self.translator = converted.open(compute, self.workers)
        self.tokenizer = converted.tokenizer
        self.positions: int = converted.metadata["positions"]
        self.learned: bool = converted.metadata["learned"]
        self.most_positions = self.positions if self.learned else math.inf
        self.batch_tokens = BATCH_TOKENS if converted.metadata["d_model"] >= _BASE_WIDTH else BATCH_TOKENS // 2

    def reaches(self, source: Ids) -> bool:
        """Whether the position table is long enough. A learned one has the same limit in every engine."""
        return self.learned or max(max_output_lengths([source], math.inf)) <= self.positions

    def translate(
        self, sources: Sequence[Ids], options: SearchOptions, indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Translate in batches of similar length, the longest sentences first."""
        max_lengths = max_output_lengths(sources, self.most_positions)
        beams: list[list[Hypothesis]] = [[] for _ in sources]
        batches = list(batches_by_length(sources, self.batch_tokens, self.spread, SHORT))
        again: list[int] = []
        for i, limit, hypotheses in self.search(batches, sources, max_lengths, options):
            beams[i] = hypotheses
            if limit > max_lengths[i] <= max(_length(h) for h in hypotheses):
                again.append(i)
        # A call has one maximum length. A sentence that reached its own limit under a larger one is searched again
        # under its own, since a beam may rank differently; greedy output is only cut.
        if options.beam > 1:
            limits = {max_lengths[i] for i in again}
            batches = [[i for i in again if max_lengths[i] == limit] for limit in limits]
            for i, _, hypotheses in self.search(batches, sources, max_lengths, options):
                beams[i] = hypotheses
        return [
            options.ranked([self.cut(source, h, max_length, options) for h in beam])
            for source, beam, max_length in zip(sources, beams, max_lengths, strict=True)
        ]

    def search(
        self, batches: Sequence[Ids], sources: Sequence[Ids], max_lengths: Sequence[int], options: SearchOptions
    ) -> Iterator[tuple[int, int, list[Hypothesis]]]:
        """For each sentence of the batches: its index, the maximum length of its call, its results."""
        queued: deque[tuple[Sequence[int], int, list[Any]]] = deque()
        waiting = iter(batches)
        while True:
            for batch in islice(waiting, QUEUED_PER_WORKER * self.workers - len(queued)):
                limit = max(max_lengths[i] for i in batch)
                queued.append((batch, limit, self.queue([sources[i] for i in batch], limit, options)))
            if not queued:
                return
            batch, limit, results = queued.popleft()
            for i, result in zip(batch, results, strict=True):
                yield i, limit, self.hypotheses(result.result(), options)

    def queue(self, sources: Sequence[Ids], limit: int, options: SearchOptions) -> list[Any]:
        """Queue one batch. The whole beam is returned: its lengths tell when the search ended."""
        return self.translate_batch(
            sources, limit, options, num_hypotheses=options.beam, return_scores=True, asynchronous=True
        )

    def translate_batch(
        self, sources: Sequence[Ids], limit: int, options: SearchOptions, **arguments: Any
    ) -> list[Any]:
        """CTranslate2's search, with EOS in its results and no limits of its own."""
        results: list[Any] = self.translator.translate_batch(
            [self.tokenizer.tokens(ids) for ids in sources],
            beam_size=options.beam,
            length_penalty=options.exponent or _NO_PENALTY,
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,
            return_end_token=True,
            **arguments,
        )
        return results

    def hypotheses(self, result: Any, options: SearchOptions) -> list[Hypothesis]:
        """CTranslate2's results as hypotheses. Its score is the log-probability over |Y|^α, EOS included."""
        hypotheses = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            log_prob = score * len(pieces) ** options.exponent
            ids = tuple(self.tokenizer.ids(pieces))
            finished = ids[-1:] == (EOS,)
            ids = ids[:-1] if finished else ids
            hypotheses.append(Hypothesis(ids, log_prob, options.score(log_prob, len(pieces)), finished))
        return hypotheses

    def cut(self, source: Ids, hypothesis: Hypothesis, max_length: int, options: SearchOptions) -> Hypothesis:
        """The hypothesis, cut where the maximum length or the loop guard stops it."""
        loop = end_of_loop(hypothesis.ids[:max_length], options.loop_repeats)
        if loop is None and _length(hypothesis) <= max_length:
            return hypothesis
        ids = hypothesis.ids[: loop or max_length]
        log_prob = sum(self.score([source], [ids])[0][: len(ids)])  # without EOS
        score = float(options.score(log_prob, len(ids)))
        return Hypothesis(ids, log_prob, score, finished=False, looped=loop is not None)

    def complete(self, source: Ids, prefixes: Sequence[Ids], options: SearchOptions) -> list[Hypothesis]:
        """Complete all prefixes in one call. Its scores exclude the prefix, so each translation is scored again."""
        options = for_one_best(options)
        (max_length,) = max_output_lengths([source], self.most_positions)
        sources = [source] * len(prefixes)
        target_prefix = [self.tokenizer.tokens(prefix) for prefix in prefixes]
        results = self.translate_batch(sources, max_length, options, target_prefix=target_prefix)
        with_end = [self.tokenizer.ids(result.hypotheses[0]) for result in results]
        outputs = [ids[:-1] if ids[-1:] == [EOS] else ids for ids in with_end]
        completions = []
        for ids, scored, log_probs in zip(outputs, with_end, self.score(sources, outputs), strict=True):
            log_prob = sum(log_probs[: len(scored)])
            score = float(options.score(log_prob, len(scored)))
            hypothesis = Hypothesis(tuple(ids), log_prob, score, finished=len(scored) > len(ids))
            completions.append(self.cut(source, hypothesis, max_length, options))
        return completions

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """Log-probabilities of each target's tokens and, last, of the EOS that CTranslate2 adds."""
        results = self.translator.score_batch(
            list(map(self.tokenizer.tokens, sources)),
            list(map(self.tokenizer.tokens, targets)),
            max_batch_size=self.batch_tokens,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(map(float, result.log_probs)) for result in results]

    def align(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Any]:
        """Forced decoding of the target; the alignment layer is named in the converted files."""
        import numpy as np  # most translations need no alignment

        results = self.translator.translate_batch(
            [self.tokenizer.tokens(ids) for ids in sources],
            target_prefix=[self.tokenizer.tokens(ids) for ids in targets],
            beam_size=1,
            max_batch_size=32,
            max_decoding_length=max(map(len, targets)),
            max_input_length=0,
            min_decoding_length=0,
            return_attention=True,
        )
        pairs = zip(results, targets, strict=True)
        return [np.array(result.attention[0][: len(ids)], dtype=np.float32) for result, ids in pairs]

    def stream(
        self, source: Ids, options: SearchOptions, settled: Settled, *, prefix: Ids = (), index: int = 0
    ) -> list[Hypothesis]:
        """Stream a greedy search. A callback stops the search, because it cannot raise through the library."""
        assert not prefix, "only torch continues a prefix"
        assert options.beam == 1, "CTranslate2 streams greedy search alone"
        (max_length,) = max_output_lengths([source], self.most_positions)
        ids: list[int] = []
        cancelled: list[SearchCancelled] = []

        def on_step(step: Any) -> bool:
            if step.token_id == EOS:
                return False
            ids.append(step.token_id)
            try:
                settled(ids)
            except SearchCancelled as e:
                cancelled.append(e)
            return bool(cancelled) or end_of_loop(ids, options.loop_repeats) is not None

        (result,) = self.translate_batch([source], max_length, options, return_scores=True, callback=on_step)
        if cancelled:
            raise cancelled[0]
        (hypothesis,) = self.hypotheses(result, options)
        return [self.cut(source, hypothesis, max_length, options)]


def _length(hypothesis: Hypothesis) -> int:
    """The number of tokens, EOS included."""
    return len(hypothesis.ids) + hypothesis.finished


def end_of_loop(ids: Ids, repeats: int) -> int | None:
    """The number of ids at which the loop guard stops: the shortest prefix that `ends_in_loop`.

    It uses no arrays, since every hypothesis of every sentence passes here.
    """
    if not repeats:
        return None
    duplicates = len(ids) - len(set(ids))  # all ids of a loop but the first n are duplicates
    spans = ((n, loop_span(n, repeats)) for n in range(1, LONGEST_LOOP + 1))
    ends = (_end_of_repetition(ids, n, span) for n, span in spans if span - n <= duplicates)
    return min((end for end in ends if end is not None), default=None)


def _end_of_repetition(ids: Ids, n: int, span: int) -> int | None:
    """The length of the prefix in which a repeated n-gram first covers `span` ids, or None."""
    covered = n
    for i in range(n, len(ids)):
        covered = covered + 1 if ids[i] == ids[i - n] else n
        if covered == span:
            return i + 1
    return None


def cores() -> int:
    """The number of CPUs for this process, limited by OMP_NUM_THREADS."""
    return omp_threads() or available_cores()
