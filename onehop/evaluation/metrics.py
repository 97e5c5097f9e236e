"""Translation scores, each with sacreBLEU's signature.

Every convention gives another number, so each is a metric of sacreBLEU, which computes the score, its confidence
interval and the test between two systems.
"""

import importlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from onehop.errors import require

RESAMPLES = 1000
TRIALS = 10_000
# Moses' own fallback for a language whose abbreviations it does not have.
FALLBACK_LANGUAGE = "en"
# In bytes, like the script of the paper's time: only ASCII blanks count, and é is two bytes.
_HYPHEN_INSIDE = re.compile(rb"(\S)-(\S)")


@dataclass(frozen=True)
class Interval:
    """A 95% confidence interval by bootstrap resampling: its mean and half its width."""

    mean: float
    plus_minus: float
    resamples: int
    seed: str


@dataclass(frozen=True)
class MetricScore:
    name: str
    value: float
    signature: str
    interval: Interval | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same sentences; `p_value` is that of the difference."""

    score: MetricScore
    against: MetricScore
    p_value: float
    trials: int

    @property
    def difference(self) -> float:
        return self.score.value - self.against.value


# --- conventions ----------------------------------------------------------------------------------------------


class Moses:
    """Moses' tokenizer, called as sacreBLEU calls its own: text in, tokens with spaces between them out.

    `normalise` makes punctuation plain first, as is usual on Multi30k; `compounds` splits them afterwards.
    """

    def __init__(self, language: str, *, normalise: bool = False, compounds: bool = False) -> None:
        sacremoses = _moses_package()
        self.version: str = sacremoses.__version__
        self.language = language if language in moses_languages() else FALLBACK_LANGUAGE
        self.normalise = sacremoses.MosesPunctNormalizer(self.language).normalize if normalise else None
        self.compounds = compounds
        self.tokenize = sacremoses.MosesTokenizer(self.language).tokenize
        # Each reference is needed again for every system and test.
        self._cached = lru_cache(maxsize=2**16)(self._tokens)

    def __call__(self, text: str) -> str:
        return self._cached(text)

    def _tokens(self, text: str) -> str:
        """The text without Moses' escapes such as &quot;, which change the tokens of every system alike."""
        text = self.normalise(text) if self.normalise else text
        text = self.tokenize(text, return_str=True, escape=False)
        return split_compounds(text) if self.compounds else text

    def signature(self) -> str:
        """The part of a score's signature after `tok:`."""
        parts = [f"moses-{self.language}", "norm" * bool(self.normalise), "atat" * self.compounds]
        return "-".join([*filter(None, parts), f"sacremoses-{self.version}"])


def _moses_package() -> Any:
    require("sacremoses")
    return importlib.import_module("sacremoses")


def moses_languages() -> set[str]:
    """Languages whose abbreviations Moses' tokenizer knows."""
    _moses_package()
    prefixes = importlib.import_module("sacremoses.corpus").NonbreakingPrefixes()
    return set(prefixes.available_langs.values())


def split_compounds(tokenised: str) -> str:
    """The parts of a hyphenated compound as words, and its hyphen as the word ##AT##-##AT##.

    A compound is any hyphen that touches no blank. Matches do not overlap, so a-b-c is split only once: the published
    numbers have this quirk, and so must a number beside them.
    """
    return _HYPHEN_INSIDE.sub(rb"\1 ##AT##-##AT## \2", tokenised.encode()).decode()


def bleu_metric(tokenize: str | Moses = "13a", *, lower: bool = False) -> Any:
    """sacreBLEU's BLEU, with a tokenizer of its own or Moses'."""
    from sacrebleu.metrics.bleu import BLEU

    # `force` silences the warning about text that looks tokenised.
    metric = BLEU(tokenize=tokenize if isinstance(tokenize, str) else "none", lowercase=lower, force=True)
    if isinstance(tokenize, Moses):
        metric.tokenizer, metric.tokenizer_signature = tokenize, tokenize.signature()
    return metric


def chrf_metric() -> Any:
    """sacreBLEU's chrF2++: character n-grams up to 6, word n-grams up to 2."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(word_order=2)


def ter_metric() -> Any:
    """sacreBLEU's TER: edits per reference word; less is better."""
    from sacrebleu.metrics.ter import TER

    return TER()


@dataclass(frozen=True)
class Convention:
    """A way to score that publications use: `metric` makes sacreBLEU's metric for a target language."""

    title: str
    metric: Callable[[str], Any]


CONVENTIONS = {
    "bleu_13a": Convention("sacreBLEU 13a", lambda _: bleu_metric("13a")),
    "bleu_intl": Convention("sacreBLEU intl", lambda _: bleu_metric("intl")),
    "bleu_tokenised": Convention("tokenised BLEU", lambda language: bleu_metric(Moses(language))),
    "bleu_compounds": Convention("compound-split BLEU", lambda language: bleu_metric(Moses(language, compounds=True))),
    "chrf": Convention("chrF2++", lambda _: chrf_metric()),
    "ter": Convention("TER (less is better)", lambda _: ter_metric()),
}


# --- scores ---------------------------------------------------------------------------------------------------


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return MetricScore(result.name, float(result.score), str(metric.get_signature()))


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str | Moses = "13a", lower: bool = False
) -> MetricScore:
    return _score(bleu_metric(tokenize, lower=lower), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
    """chrF2++: character n-grams up to 6, word n-grams up to 2."""
    return _score(chrf_metric(), hypotheses, references)


def ter(hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
    """Translation edit rate: edits per 100 reference words; less is better."""
    return _score(ter_metric(), hypotheses, references)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    metric = chrf_metric()
    pairs = zip(hypotheses, references, strict=True)
    return [float(metric.sentence_score(hypothesis, [reference]).score) for hypothesis, reference in pairs]


def score_with_interval(
    metric: Any, hypotheses: Sequence[str], references: Sequence[str], *, resamples: int = RESAMPLES
) -> MetricScore:
    (result,), _ = _paired_test(metric, [hypotheses], references, test_type="bs", n_samples=resamples)
    return result


def compare(
    metric: Any,
    hypotheses: Sequence[str],
    against: Sequence[str],
    references: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> Comparison:
    """Two systems' scores, and whether they differ: two-sided approximate randomisation.

    Each trial swaps the two systems' outputs of every sentence with probability one half.
    """
    (first, second), p_value = _paired_test(
        metric, [hypotheses, against], references, test_type="ar", n_samples=trials, n_ar_confidence=resamples
    )
    # Swapping all sentences or none gives the measured difference: 2 of 2^n equally likely outcomes. sacreBLEU does
    # not count equal differences, so it would call systems that differ in one sentence significantly different.
    differing = sum(first_text != second_text for first_text, second_text in zip(hypotheses, against, strict=True))
    return Comparison(first, second, max(p_value, min(1.0, 2.0 ** (1 - differing))), trials)


def _paired_test(
    metric: Any, systems: Sequence[Sequence[str]], references: Sequence[str], **options: Any
) -> tuple[list[MetricScore], float]:
    """Each system's score with its interval as sacreBLEU's own test gives them; the p-value if there are two."""
    from sacrebleu.significance import PairedTest

    test: Any = PairedTest
    named = [(str(number), list(system)) for number, system in enumerate(systems)]
    signatures, results = test(named, {"": metric}, [list(references)], **options)()
    ((name, signature),) = signatures.items()
    scores = [
        MetricScore(
            name,
            float(result.score),
            str(signature),
            Interval(float(result.mean), float(result.ci), signature.info["bs"], signature.info["seed"]),
        )
        for result in results[name]
    ]
    p_value = results[name][-1].p_value
    return scores, math.nan if p_value is None else float(p_value)
