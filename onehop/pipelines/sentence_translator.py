"""Translates single sentences: the tokenizer and the engines of one model.

Torch is imported only if it translates.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from onehop.decoding.engine import HALF, ComputeType, Engine, EngineName, Settled, lacking
from onehop.decoding.options import Hypothesis, SearchOptions, allowing
from onehop.errors import SettingsError, is_installed, require
from onehop.machine import omp_threads
from onehop.storage.ctranslate2_format import Compute
from onehop.storage.model_label import check_kind, describe
from onehop.storage.registry import default_alpha, find_model
from onehop.text.tokenizer import Tokenizer

# Sentences sorted by length at a time: enough to fill batches of equal length, few enough to hold in memory.
WINDOW = 16384


@dataclass(frozen=True)
class Translation:
    """One hypothesis of the search as text, with its scores and the engine that made it."""

    text: str
    tokens: tuple[str, ...]
    score: float
    log_prob: float
    finished: bool
    looped: bool
    engine: EngineName | None = None
    compute: str | None = None


_EMPTY = Translation("", (), 0.0, 0.0, finished=True, looped=False)


class SentenceTranslator:
    """Translates sentences with one model.

    SentenceTranslator.load("model.safetensors").translate(["Hello world."])

    The engine `fast` translates what it supports. The engine `reference` is loaded on first use, for everything else.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: str,
        target: str,
        *,
        reference: Callable[[], Engine] | None = None,
        fast: Engine | None = None,
        alpha: float | None = None,
    ) -> None:
        """`alpha` is the default for the length penalty."""
        self.tokenizer = tokenizer
        self.alpha = alpha
        self.source, self.target = source, target
        self.fast = fast
        self._load_reference = reference
        self._loaded_reference: Engine | None = None
        self._lock = Lock()

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        device: str | None = None,
        *,
        engine: Literal["auto"] | EngineName = "auto",
        compute: ComputeType | None = None,
        threads: int | None = None,
    ) -> "SentenceTranslator":
        """Load a model by its file or its name; the default is en-de.

        `engine` "auto" means CTranslate2 without a GPU, and torch for what it lacks. `compute` defaults to int8 in
        CTranslate2 and to float32 in torch, which has bfloat16 and float16 too. `threads` defaults to one per core.
        """
        check_engine_options(device, engine, compute, threads)
        path = find_model(None if path is None else str(path))
        check_kind(path, None)
        if compute not in HALF and (engine == "ctranslate2" or (engine == "auto" and _prefers_ctranslate2(device))):
            from onehop.decoding.ctranslate2_engine import UnsupportedError

            exact: Compute = "float32" if compute == "float32" else "int8"
            try:
                return cls._with_ctranslate2(path, exact, threads, alone=engine == "ctranslate2")
            except UnsupportedError:
                if engine == "ctranslate2":
                    raise
        from onehop.storage.model_io import read_model  # imports NumPy and safetensors

        stored = read_model(path)
        reference = _torch_engine(stored, device, threads, compute)
        tokenizer, alpha = Tokenizer(stored.tokenizer), default_alpha(path)
        return cls(tokenizer, stored.source, stored.target, reference=lambda: reference, alpha=alpha)

    @classmethod
    def _with_ctranslate2(
        cls, path: Path, compute: Compute, threads: int | None, *, alone: bool
    ) -> "SentenceTranslator":
        from onehop.decoding.ctranslate2_engine import Converted, Ct2Engine

        hash = describe(path).hash

        def reference() -> Engine:
            from onehop.storage.model_io import read_unchanged

            return _torch_engine(read_unchanged(path, hash), "cpu", threads)

        converted = Converted.of(path, compute)
        return cls(
            converted.tokenizer,
            converted.metadata["source"],
            converted.metadata["target"],
            reference=None if alone else reference,
            fast=Ct2Engine(converted, compute, threads),
            alpha=default_alpha(path),
        )

    @classmethod
    def of_model(cls, model: Any, tokenizer: Tokenizer, source: str, target: str) -> "SentenceTranslator":
        """A translator over a torch model in memory, such as the one in training."""
        from onehop.decoding.torch_engine import TorchEngine

        engine = TorchEngine(model)
        return cls(tokenizer, source, target, reference=lambda: engine)

    @property
    def reference(self) -> Engine:
        """The torch engine, loaded once even if several threads need it."""
        if self._load_reference is None:
            raise SettingsError("This translator was loaded for CTranslate2 alone.", "Load it with the engine torch.")
        with self._lock:
            self._loaded_reference = self._loaded_reference or self._load_reference()
        return self._loaded_reference

    @property
    def model(self) -> Any:
        """The torch model. It is typed `Any` because its class would import torch."""
        return self.reference.model  # type: ignore[attr-defined]

    def translate(self, texts: Sequence[str], options: SearchOptions | None = None) -> list[Translation]:
        """The best translation of each text. An empty text stays empty."""
        return list(self.stream(texts, options))

    def stream(self, texts: Iterable[str], options: SearchOptions | None = None) -> Iterator[Translation]:
        """Like `translate`, for any number of texts in bounded memory: a window at a time, in order."""
        for best in self._windows(texts, options):
            yield best[0]

    def n_best(
        self,
        texts: Sequence[str],
        options: SearchOptions | None = None,
        indices: Sequence[int] | None = None,
        *,
        tags: bool = False,
    ) -> list[list[Translation]]:
        """The n best translations of each text, best first.

        `indices` seed the sampling of each text. With `tags`, tags in a text are special tokens.
        """
        return list(self._windows(texts, options, indices, tags=tags))

    def complete(
        self, source: Sequence[int], prefixes: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[Translation]:
        """For each prefix, the best translation of the source that begins with it."""
        if not prefixes:
            return []
        engine = self.fast if self.fast is not None and self.fast.reaches(source) else self.reference
        options = allowing(self.with_defaults(options), source)
        return [self.translation(h, engine) for h in engine.complete(source, prefixes, options)]

    def search(
        self,
        source: list[int],
        options: SearchOptions,
        *,
        prefix: Sequence[int] = (),
        settled: Settled = lambda ids: None,
        index: int = 0,
    ) -> list[Translation]:
        """The n best translations of one sentence, which begin with a given prefix.

        While the search runs, `settled` gets each longer prefix of all hypotheses that can still win. It may raise
        SearchCancelled.
        """
        options = allowing(self.with_defaults(options), source)
        engine = self.fast
        if prefix or engine is None or not self.streams_fast(source, options):
            engine = self.reference
        hypotheses = engine.stream(source, options, settled, prefix=prefix, index=index)
        return [self.translation(h, engine) for h in hypotheses]

    def streams_fast(self, source: list[int], options: SearchOptions) -> bool:
        """Whether the fast engine can report the settled prefix: in a greedy search with supported options."""
        if self.fast is None or lacking(options):
            return False
        return options.is_greedy and options.n_best == 1 and self.fast.reaches(source)

    def with_defaults(self, options: SearchOptions | None) -> SearchOptions:
        """The options with this model's default length penalty, unless they have their own."""
        options = options or SearchOptions()
        return replace(options, alpha=self.alpha) if options.alpha is None else options

    def _windows(
        self,
        texts: Iterable[str],
        options: SearchOptions | None,
        indices: Sequence[int] | None = None,
        *,
        tags: bool = False,
    ) -> Iterator[list[Translation]]:
        if isinstance(texts, str):  # a string is an iterable of letters
            raise SettingsError("One string is given where several texts are translated.", "Give a list of sentences.")
        rest, rest_of_indices = iter(texts), count() if indices is None else iter(indices)
        while window := list(islice(rest, WINDOW)):
            sources = self.tokenizer.encode_batch(window, tags=tags)
            yield from self.translate_ids(sources, options, list(islice(rest_of_indices, len(window))))

    def translate_ids(
        self, sources: Sequence[list[int]], options: SearchOptions | None, indices: Sequence[int]
    ) -> list[list[Translation]]:
        """The n best translations of sources in ids, each by an engine that supports the options."""
        defaults = self.with_defaults(options)
        results: dict[int, list[Translation]] = {}
        nonempty = [i for i, ids in enumerate(sources) if ids]
        for engine, share in self.split_by_engine(nonempty, lambda i: self.supports_fast(sources[i], defaults)):
            # Loop detection allows the repetitions of the source, so its options depend on the source.
            allowed = {i: allowing(defaults, sources[i]) for i in share}
            for group_options in dict.fromkeys(allowed.values()):
                group = [i for i in share if allowed[i] == group_options]
                best = engine.translate([sources[i] for i in group], group_options, [indices[i] for i in group])
                for i, hypotheses in zip(group, best, strict=True):
                    results[i] = [self.translation(h, engine) for h in hypotheses]
        return [results.get(i, [_EMPTY]) for i in range(len(sources))]

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Log-probabilities of the tokens of given translations, EOS last."""
        scores: dict[int, list[float]] = {}
        fast = self.fast
        for engine, share in self.split_by_engine(
            range(len(sources)), lambda i: fast is not None and fast.reaches(sources[i]) and fast.reaches(targets[i])
        ):
            share_scores = engine.score([sources[i] for i in share], [targets[i] for i in share])
            scores.update(zip(share, share_scores, strict=True))
        return [scores[i] for i in range(len(sources))]

    def split_by_engine(
        self, indices: Sequence[int], is_fast: Callable[[int], bool]
    ) -> Iterator[tuple[Engine, list[int]]]:
        """The engines with the indices of their sentences; an engine without sentences is left out."""
        fast = [i for i in indices if is_fast(i)]
        if self.fast is not None and fast:
            yield self.fast, fast
        if rest := sorted(set(indices) - set(fast)):
            yield self.reference, rest

    def supports_fast(self, source: Sequence[int], options: SearchOptions) -> bool:
        """Whether the fast engine supports a sentence and options. If there is no other engine, it must."""
        if self.fast is None:
            return False
        names, reaches = lacking(options), self.fast.reaches(source)
        if self._load_reference is None and names:
            value = getattr(options, names[0])
            raise SettingsError(f"CTranslate2 lacks search.{names[0]} = {value}.", "Use the engine auto or torch.")
        if self._load_reference is None and not reaches:
            what = f"A sentence of {len(source)} tokens is too long for CTranslate2."
            raise SettingsError(what, "Split it, or use the engine auto or torch.")
        return reaches and not names

    def translation(self, hypothesis: Hypothesis, engine: Engine) -> Translation:
        return Translation(
            self.tokenizer.decode(hypothesis.ids),
            tuple(self.tokenizer.tokens(hypothesis.ids)),
            hypothesis.score,
            hypothesis.log_prob,
            hypothesis.finished,
            hypothesis.looped,
            engine.name,
            engine.compute,
        )


def check_engine_options(device: str | None, engine: str, compute: str | None, threads: int | None) -> None:
    """Refuse invalid and unsupported combinations before a file is read."""
    if engine not in ("auto", "torch", "ctranslate2"):
        raise SettingsError(f"There is no engine {engine!r}.", "Choose auto, torch or ctranslate2.")
    if compute is not None and compute not in get_args(ComputeType):
        raise SettingsError(f"There is no compute type {compute!r}.", "Choose int8, float32, bfloat16 or float16.")
    if threads is not None and not (isinstance(threads, int) and threads >= 1):
        raise SettingsError(f"{threads!r} threads cannot translate.", "Give 1 or more.")
    if engine == "ctranslate2" and device not in (None, "cpu"):
        raise SettingsError(f"CTranslate2 runs on the CPU here, not on {device}.", "Use the engine torch.")
    if engine == "torch" and compute == "int8":
        raise SettingsError("The engine torch does not compute in int8.", "Use the engine ctranslate2.")
    if engine == "ctranslate2" and compute in HALF:
        raise SettingsError(f"CTranslate2 does not compute in {compute} here.", "Use the engine torch.")
    if engine == "torch" or device not in (None, "cpu") or compute in HALF:
        require("torch")
    if engine == "ctranslate2" and not is_installed("ctranslate2"):
        raise SettingsError("CTranslate2 is not installed.", "Run: pip install ctranslate2.")


def _prefers_ctranslate2(device: str | None) -> bool:
    return device in (None, "cpu") and is_installed("ctranslate2") and (device == "cpu" or not has_gpu())


def has_gpu() -> bool:
    """Whether torch could use a GPU. Without a GPU torch is not imported."""
    import ctranslate2

    if ctranslate2.get_cuda_device_count() == 0 or not is_installed("torch"):
        return False
    import torch

    return torch.cuda.is_available()


def _torch_engine(stored: Any, device: str | None, threads: int | None, compute: ComputeType | None = None) -> Engine:
    """The torch engine over a StoredModel, in float32 unless `compute` is a half precision."""
    require("torch")
    import torch

    from onehop.decoding.torch_engine import TorchEngine
    from onehop.model.device import pick_device
    from onehop.pipelines.load import model_of

    if threads := threads or omp_threads():  # CTranslate2 sets torch's threads to one when it is loaded
        torch.set_num_threads(threads)
    with torch.inference_mode(False):  # tensors of inference mode could not be trained
        dtype = getattr(torch, compute) if compute in HALF else torch.float32
        return TorchEngine(model_of(stored).to(pick_device(device), dtype))
