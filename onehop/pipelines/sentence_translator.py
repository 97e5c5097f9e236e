"""Text in, text out: tokenizer and engine put together. Torch is imported only when it is what translates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from onehop.decoding.engine import HALF, ComputeType, Engine, EngineName, lacking
from onehop.decoding.options import Hypothesis, SearchOptions, allowing
from onehop.errors import SettingsError, is_installed, require
from onehop.machine import asked_threads
from onehop.storage.ctranslate2_format import Compute
from onehop.storage.model_label import check_kind, describe
from onehop.storage.registry import default_alpha, find_model
from onehop.text.tokenizer import Tokenizer

# Sentences sorted by length at a time: enough to fill batches of equal length, few enough to hold in memory.
WINDOW = 16384


@dataclass(frozen=True)
class Translation:
    """One translation with what the search knows about it, and the engine that made it."""

    text: str
    tokens: tuple[str, ...]
    score: float
    log_prob: float
    finished: bool
    looped: bool
    engine: EngineName | None = None
    compute: str | None = None


class SentenceTranslator:
    """A model ready to translate.

    SentenceTranslator.load("model.safetensors").translate(["Hello world."])

    `fast` translates what it can and `reference`, made when it is first needed, everything else.
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
        """`alpha`: what the length penalty takes where the caller does not say."""
        self.tokenizer = tokenizer
        self.alpha = alpha
        self.source, self.target = source, target
        self.fast = fast
        self._reference = reference
        self._made: Engine | None = None
        self._making = Lock()

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
        """Read a model by its file or its name; without either, en-de.

        `engine` "auto" means CTranslate2 where there is no GPU, and torch for what it lacks. `compute` is int8 in
        CTranslate2 and float32 in torch if nothing is said, and torch has bfloat16 and float16; `threads` one a core.
        """
        check_request(device, engine, compute, threads)
        path = find_model(None if path is None else str(path))
        check_kind(path, None)
        if compute not in HALF and (engine == "ctranslate2" or (engine == "auto" and prefers_ctranslate2(device))):
            from onehop.decoding.ctranslate2_engine import UnsupportedError

            exact: Compute = "float32" if compute == "float32" else "int8"
            try:
                return cls._with_ctranslate2(path, exact, threads, alone=engine == "ctranslate2")
            except UnsupportedError:
                if engine == "ctranslate2":
                    raise
        from onehop.storage.model_io import read_model  # with the weights come NumPy and safetensors

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
            converted.facts["source"],
            converted.facts["target"],
            reference=None if alone else reference,
            fast=Ct2Engine(converted, compute, threads),
            alpha=default_alpha(path),
        )

    @classmethod
    def of_model(cls, model: Any, tokenizer: Tokenizer, source: str, target: str) -> "SentenceTranslator":
        """A translator over a torch model that is there already, such as the one in training."""
        from onehop.decoding.torch_engine import TorchEngine

        engine = TorchEngine(model)
        return cls(tokenizer, source, target, reference=lambda: engine)

    @property
    def reference(self) -> Engine:
        """The torch engine, made once though several threads may ask for it."""
        if self._reference is None:
            raise SettingsError("This translator was loaded for CTranslate2 alone.", "Load it with the engine torch.")
        with self._making:
            self._made = self._made or self._reference()
        return self._made

    @property
    def model(self) -> Any:
        """The torch model, to look into; not named in the type, for that would import torch."""
        return self.reference.model  # type: ignore[attr-defined]

    def translate(self, texts: Sequence[str], options: SearchOptions | None = None) -> list[Translation]:
        """The best translation of each text of a list; an empty text stays empty."""
        return list(self.stream(texts, options))

    def stream(self, texts: Iterable[str], options: SearchOptions | None = None) -> Iterator[Translation]:
        """The same, of any number of texts in bounded memory: a window at a time, in order."""
        for found in self._windows(texts, options):
            yield found[0]

    def n_best(
        self,
        texts: Sequence[str],
        options: SearchOptions | None = None,
        numbers: Sequence[int] | None = None,
        *,
        tags: bool = False,
    ) -> list[list[Translation]]:
        """The n best translations of each text, best first; `numbers` name the texts for the sampling, else places.

        With `tags`, what looks like a tag in a text is one.
        """
        return list(self._windows(texts, options, numbers, tags=tags))

    def complete(
        self, source: Sequence[int], prefixes: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[Translation]:
        """The best translation of a source that begins with each prefix."""
        if not prefixes:
            return []
        engine = self.fast if self.fast is not None and self.fast.reaches(source) else self.reference
        options = allowing(self.with_defaults(options), source)
        return [self.translation(h, engine) for h in engine.complete(source, prefixes, options)]

    def with_defaults(self, options: SearchOptions | None) -> SearchOptions:
        """The options with what suits this model where the caller does not say."""
        options = options or SearchOptions()
        return replace(options, alpha=self.alpha) if options.alpha is None else options

    def _windows(
        self,
        texts: Iterable[str],
        options: SearchOptions | None,
        numbers: Sequence[int] | None = None,
        *,
        tags: bool = False,
    ) -> Iterator[list[Translation]]:
        if isinstance(texts, str):  # its letters would be taken for sentences
            raise SettingsError("One string is given where several texts are translated.", "Give a list of sentences.")
        rest, begin = iter(texts), 0
        while window := list(islice(rest, WINDOW)):
            end = begin + len(window)
            named = range(begin, end) if numbers is None else numbers[begin:end]
            yield from self.found(self.tokenizer.encode_batch(window, tags=tags), options, named)
            begin = end

    def found(
        self, encoded: Sequence[list[int]], options: SearchOptions | None, numbers: Sequence[int]
    ) -> list[list[Translation]]:
        """The n best translations of sources in ids, each by the engine that has the options."""
        options, found = self.with_defaults(options), [[nothing()] for _ in encoded]
        for engine, places in self.shares(encoded, options):
            best = self.search(engine, [encoded[i] for i in places], options, [numbers[i] for i in places])
            for i, translations in zip(places, best, strict=True):
                found[i] = translations
        return found

    def search(
        self, engine: Engine, sources: Sequence[Sequence[int]], options: SearchOptions, numbers: Sequence[int]
    ) -> list[list[Translation]]:
        """What an engine finds for each source, to which the guard against loops allows what it says itself."""
        found: list[list[Translation]] = [[] for _ in sources]
        asked = [allowing(options, ids) for ids in sources]
        for each in dict.fromkeys(asked):
            places = [i for i, wanted in enumerate(asked) if wanted == each]
            best = engine.translate([sources[i] for i in places], each, [numbers[i] for i in places])
            for i, hypotheses in zip(places, best, strict=True):
                found[i] = [self.translation(h, engine) for h in hypotheses]
        return found

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Log-probabilities of the tokens of given translations and, last, of their end marks."""
        found: list[list[float]] = [[] for _ in sources]
        fast = self.fast
        quick = [i for i, ids in enumerate(sources) if fast and fast.reaches(ids) and fast.reaches(targets[i])]
        rest = sorted(set(range(len(sources))) - set(quick))
        for engine, places in ((fast, quick), (self.reference if rest else None, rest)):
            if engine is not None and places:
                scored = engine.score([sources[i] for i in places], [targets[i] for i in places])
                for i, scores in zip(places, scored, strict=True):
                    found[i] = scores
        return found

    def shares(self, encoded: Sequence[Sequence[int]], options: SearchOptions) -> Iterator[tuple[Engine, list[int]]]:
        """Which engine translates which sentences; empty sentences go to no engine."""
        places = [i for i, ids in enumerate(encoded) if ids]
        quick = [i for i in places if self.is_fast(encoded[i], options)]
        if self.fast is not None and quick:
            yield self.fast, quick
        if rest := sorted(set(places) - set(quick)):
            yield self.reference, rest

    def is_fast(self, source: Sequence[int], options: SearchOptions) -> bool:
        """Whether the fast engine can translate a sentence under these options; where it must and cannot, an error."""
        if self.fast is None:
            return False
        names, reaches = lacking(options), self.fast.reaches(source)
        if self._reference is None and names:
            value = getattr(options, names[0])
            raise SettingsError(f"CTranslate2 lacks search.{names[0]} = {value}.", "Use the engine auto or torch.")
        if self._reference is None and not reaches:
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


def nothing() -> Translation:
    """The translation of an empty text, which no engine made."""
    return Translation("", (), 0.0, 0.0, finished=True, looped=False)


# --- which engine ---------------------------------------------------------------------------------------------


def check_request(device: str | None, engine: str, compute: str | None, threads: int | None) -> None:
    """Refuse what cannot be had, before anything is read."""
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
    if engine == "ctranslate2" and not has_ctranslate2():
        raise SettingsError("CTranslate2 is not installed.", "Run: pip install ctranslate2.")


def has_ctranslate2() -> bool:
    """Whether the fast engine is installed."""
    return is_installed("ctranslate2")


def prefers_ctranslate2(device: str | None) -> bool:
    """Whether to translate on the CPU with CTranslate2; a GPU is asked for only where CTranslate2 sees one."""
    if device not in (None, "cpu") or not has_ctranslate2():
        return False
    return device == "cpu" or not has_gpu()


def has_gpu() -> bool:
    """Whether torch could use a GPU; without importing it where the machine has none."""
    import ctranslate2

    if ctranslate2.get_cuda_device_count() == 0 or not is_installed("torch"):
        return False
    import torch

    return torch.cuda.is_available()


def _torch_engine(stored: Any, device: str | None, threads: int | None, compute: ComputeType | None = None) -> Engine:
    """The torch engine over a StoredModel, in float32 unless a shorter format is asked for."""
    require("torch")
    import torch

    from onehop.decoding.torch_engine import TorchEngine
    from onehop.model.device import pick_device
    from onehop.pipelines.load import model_of

    if threads := threads or asked_threads():  # CTranslate2 sets torch's threads to one when it is loaded
        torch.set_num_threads(threads)
    with torch.inference_mode(False):  # a model first asked for while translating could not be trained with
        dtype = getattr(torch, compute) if compute in HALF else torch.float32
        return TorchEngine(model_of(stored).to(pick_device(device), dtype))
