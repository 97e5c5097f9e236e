"""`onehop demo`: translations of the best-known example sentences, and the model's attention at the pronoun."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.text import Text

from onehop.console import console
from onehop.errors import OnehopError, write_errors
from onehop.experiments.coreference import Coreference, coreference_sentences
from onehop.explorer.content import Explorer
from onehop.explorer.view import View
from onehop.interpret.trace_file import Trace
from onehop.interpret.tracer import Tracer
from onehop.storage.ctranslate2_format import alignment_layer
from onehop.storage.registry import find_model
from onehop.text.tokenizer import WORD_MARK

_MODEL = "en-de"
EXAMPLES = coreference_sentences()[:3]
_ARTICLES = {"er": "der", "sie": "die", "es": "das"}
BAR = 48  # the length in characters of a weight of 1
_LEAST = 0.05  # words of less weight are summed


@dataclass(frozen=True)
class PronounAttention:
    """The attention at the step of the pronoun: the mean over the heads of one layer's cross-attention."""

    pronoun: str
    words: list[str]
    weights: list[float]
    layer: int
    layer_heads: int
    heads: int  # in all layers
    heads_on_it: int  # of these, the heads that attend to "it" more than to any other token
    probability: dict[str, float]  # of each pronoun that was among the most probable tokens


def demo(page: Path, device: str | None = None) -> None:
    """Translate the examples, show the attention, and write the explorer's page of the first one."""
    out = console(stderr=False)
    # A wrong path is reported before the model is read.
    if page.is_dir():
        raise OnehopError(f"{page} is a folder.", "Give -o an HTML file.")
    with write_errors(page.parent):
        page.parent.mkdir(parents=True, exist_ok=True)
    tracer = Tracer.load(find_model(_MODEL), device)
    explorer = Explorer(tracer, EXAMPLES[0].source)
    for example in EXAMPLES:
        trace = Trace.from_json(explorer.trace(example.source))
        out.print(Text(example.source), Text(f"→ {trace.text}", "bold"), sep="\n")
        for line in lines(example, trace.text, pronoun_attention(trace, alignment_layer(tracer.model.settings))):
            out.print(line)
        out.print()
    out.print("A weight says where a head looked, not what decided the word.")
    out.print("For that, the page switches parts of the model off and translates again.")
    console().print("Writing the page: the first sentence is translated about 15 times more.")
    View(explorer.alone(EXAMPLES[0].source)).save(page)
    out.print(f"Open this file in a browser, to see every number of the first translation:\n{page}")


def pronoun_attention(trace: Trace, layer: int) -> PronounAttention | None:
    """The attention at the pronoun; None if the model wrote no pronoun."""
    source, outputs = trace.header["source"]["tokens"], trace.header["target"]["output_tokens"]
    step = next((i for i, token in enumerate(outputs) if token.removeprefix(WORD_MARK) in _ARTICLES), None)
    if step is None:
        return None
    layers = range(trace.header["model"]["settings"]["n_decoder_layers"])
    rows = np.stack([trace[f"decoder.layers.{i}.cross_attention.weights"][:, step] for i in layers])
    words = words_of(source)
    mean = rows[layer].astype(float).mean(0)
    top = {choice["token"].removeprefix(WORD_MARK): choice["p"] for choice in trace.header["steps"][step]["top"]}
    return PronounAttention(
        pronoun=outputs[step].removeprefix(WORD_MARK),
        words=[word for word, _ in words],
        weights=[float(mean[pieces].sum()) for _, pieces in words],
        layer=layer,
        layer_heads=rows.shape[1],
        heads=rows.shape[0] * rows.shape[1],
        heads_on_it=Counter(source[key] for key in rows.argmax(-1).flat)[WORD_MARK + "it"],
        probability={word: p for word, p in top.items() if word in _ARTICLES},
    )


def words_of(tokens: list[str]) -> list[tuple[str, list[int]]]:
    """The words of a sentence with the indices of their tokens; punctuation is separate."""
    words: list[tuple[str, list[int]]] = []
    for i, token in enumerate(tokens):
        if words and token[0].isalpha():
            word, pieces = words.pop()
            words.append((word + token, [*pieces, i]))
        else:
            words.append((token.removeprefix(WORD_MARK).replace("</s>", "(end)"), [i]))
    return words


def lines(example: Coreference, translation: str, attention: PronounAttention | None) -> list[Text]:
    """A bar for each attended word, and the verdict on the pronoun."""
    if attention is None:
        return [Text("  It wrote no er, sie or es.")]
    where = f"decoder layer {attention.layer + 1} looked (mean of its {attention.layer_heads} heads) at:"
    output = [Text(f"  While it wrote “{attention.pronoun}”, {where}")]
    for word, weight in zip(attention.words, attention.weights, strict=True):
        if weight >= _LEAST:
            bar = "█" * max(1, round(BAR * weight))
            output.append(Text.assemble(f"  {word:>14} ", (bar, "cyan"), f" {weight:.0%}"))
    little = [weight for weight in attention.weights if weight < _LEAST]
    output.append(Text(f"  {f'{len(little)} others':>14} {sum(little):.0%} together"))
    output.append(
        Text(f"  {attention.heads_on_it} of {attention.heads} heads look at “it” more than at any other token.")
    )
    return [*output, _verdict(example, translation, attention)]


def _verdict(example: Coreference, translation: str, attention: PronounAttention) -> Text:
    """Whether the pronoun has the gender of the German noun, which is known for the examples."""
    noun = f"{_ARTICLES[example.pronoun]} {example.german}"
    if example.german not in translation:
        return Text(f"  “it” is the {example.noun}, and “{example.german}” is not in the translation: not judged.")
    if attention.pronoun == example.pronoun:
        return Text.assemble(("  Right", "green"), f": “it” is the {example.noun}, {noun}.")
    chances = " against ".join(
        f"{attention.probability.get(word, 0):.0%}" for word in (example.pronoun, attention.pronoun)
    )
    return Text.assemble(
        ("  Wrong", "red"), f": “it” is the {example.noun}, {noun}, so “{example.pronoun}”, which had {chances}."
    )
