"""A search that tells what is settled while it goes on, and can begin with a given prefix or be given up.

Settled is what every hypothesis that may still win begins with. CTranslate2 tells it of a single path; of a beam, of
sampling and of a prefix torch does.
"""

from collections.abc import Sequence

from onehop.decoding.engine import Settled, lacking
from onehop.decoding.options import SearchOptions, allowing
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.text.tokenizer import Tokenizer


def settle(
    translator: SentenceTranslator,
    source: list[int],
    options: SearchOptions,
    *,
    prefix: Sequence[int] = (),
    settled: Settled = lambda ids: None,
    number: int = 0,
) -> list[Translation]:
    """The n best translations of one sentence; `settled` hears of each longer beginning that they will share."""
    options = allowing(translator.with_defaults(options), source)
    if translator.fast is not None and tells(translator, source, options) and not prefix:
        engine = translator.fast
    else:
        engine = translator.reference
    found = engine.stream(source, options, settled, prefix=prefix, number=number)
    return [translator.translation(h, engine) for h in found]


def tells(translator: SentenceTranslator, source: list[int], options: SearchOptions) -> bool:
    """Whether the fast engine tells what is settled: it follows one path, and has all that is asked."""
    assert translator.fast is not None
    return options.is_greedy and options.n_best == 1 and not lacking(options) and translator.fast.reaches(source)


def settled_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of a beginning that no further token can change: without the bytes of an unfinished character."""
    return tokenizer.decode(ids).rstrip("\ufffd")
