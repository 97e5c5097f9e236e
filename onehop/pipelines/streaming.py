"""A search that reports its settled prefix while it runs. It may continue a given prefix, and can be cancelled.

The settled prefix is shared by all hypotheses that can still win. CTranslate2 reports it for greedy search. For
beams, sampling and given prefixes torch does.
"""

from collections.abc import Sequence

from onehop.decoding.engine import Settled, lacking
from onehop.decoding.options import SearchOptions, allowing
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.text.tokenizer import Tokenizer


def streaming_search(
    translator: SentenceTranslator,
    source: list[int],
    options: SearchOptions,
    *,
    prefix: Sequence[int] = (),
    settled: Settled = lambda ids: None,
    index: int = 0,
) -> list[Translation]:
    """The n best translations of one sentence. `settled` is called with each longer prefix that they share."""
    options = allowing(translator.with_defaults(options), source)
    engine = translator.fast
    if prefix or engine is None or not can_stream_fast(translator, source, options):
        engine = translator.reference
    hypotheses = engine.stream(source, options, settled, prefix=prefix, index=index)
    return [translator.translation(h, engine) for h in hypotheses]


def can_stream_fast(translator: SentenceTranslator, source: list[int], options: SearchOptions) -> bool:
    """Whether the fast engine can report the settled prefix: in a greedy search with supported options."""
    if translator.fast is None or lacking(options):
        return False
    return options.is_greedy and options.n_best == 1 and translator.fast.reaches(source)


def settled_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of a prefix that no further token can change: without the bytes of an unfinished character."""
    return tokenizer.decode(ids).rstrip("\ufffd")
