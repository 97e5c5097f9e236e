"""How good a translation is, in scores that carry their provenance: each comes with sacreBLEU's signature."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A number with the way it was computed."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", lower: bool = False) -> Score:
    """BLEU as sacreBLEU computes it."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenize, lowercase=lower, force=tokenize == "none")
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("BLEU", value, str(metric.get_signature()))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2++: character n-grams up to 6, word n-grams up to 2."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(word_order=2)
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("chrF2++", value, str(metric.get_signature()))
