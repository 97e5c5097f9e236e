"""The parts of figure 1 that each model variant keeps, drops and adds, read from the models themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Literal

import torch

from onehop.config import ModelSettings, load_settings
from onehop.experiments.provenance import markdown
from onehop.interpret.attention_svg import INK, PAPER, QUIET, label
from onehop.model.transformer import Layer, Predictor
from onehop.model.variants import model_for

# A preset of each variant. The first is the paper's; the others are compared with it.
_MEMBERS = {
    "translator (the paper)": "base",
    "encoder (BERT)": "encoder",
    "decoder (GPT)": "decoder",
    "vision (ViT)": "digits",
}
_Change = Literal["keeps", "drops", "adds", "changes", ""]
_COLOURS: dict[_Change, tuple[str, str]] = {
    "keeps": ("#0072b2", "#ffffff"),
    "changes": ("#e69f00", INK),
    "adds": ("#009e73", "#ffffff"),
    "drops": (PAPER, QUIET),
    "": (PAPER, PAPER),
}
_NAME, _WIDTH, _HEIGHT, _GAP, _TOP = 190, 150, 24, 6, 64


@dataclass(frozen=True)
class _Part:
    """A part of a model: its name, its section in the paper, and a function that describes it, "" for none."""

    name: str
    section: str
    describe: Callable[[ModelSettings, Predictor], str]


def _layers(model: Predictor) -> list[Layer]:
    return [module for module in model.modules() if isinstance(module, Layer)]


_PREDICTIONS = {None: "next token", "decoder": "next token", "encoder": "hidden tokens", "vision": "class"}
_ACTIVATIONS = {"relu": "ReLU", "swish": "Swish", "gelu": "GELU", "gelu_tanh": "GELU (tanh)"}

PARTS = (
    _Part("token embedding", "3.4", lambda s, m: "yes" if hasattr(m, "embedding") else ""),
    _Part("patch projection", "", lambda s, m: "yes" if hasattr(m, "projection") else ""),
    _Part("token that gathers", "", lambda s, m: "yes" if hasattr(m, "answer_embedding") else ""),
    _Part("scale by √d_model", "3.4", lambda s, m: "yes"),
    _Part("positions", "3.5", lambda s, m: s.positions),
    _Part("segment embeddings", "", lambda s, m: "yes" if s.segments else ""),
    _Part("norm of the input", "", lambda s, m: "yes" if s.input_norm else ""),
    _Part("encoder stack", "3.1", lambda s, m: "yes" if hasattr(m, "encoder") else ""),
    _Part("decoder stack", "3.1", lambda s, m: "yes" if hasattr(m, "decoder") else ""),
    _Part("self-attention", "3.2", lambda s, m: "yes" if all(x.self_attention for x in _layers(m)) else ""),
    _Part("mask over the future", "3.2.3", lambda s, m: "no later token" if hasattr(m, "decoder") else ""),
    _Part("cross-attention", "3.2.3", lambda s, m: "yes" if any(x.cross_attention for x in _layers(m)) else ""),
    _Part("biases in attention", "", lambda s, m: "yes" if s.attention_bias else ""),
    _Part("feed-forward network", "3.3", lambda s, m: _ACTIVATIONS[s.activation]),
    _Part("order of norms", "3.1", lambda s, m: {"post": "after", "pre": "before"}[s.norm]),
    _Part("output matrix", "3.4", lambda s, m: "the embedding's" if hasattr(m, "embedding") and s.tied else "its own"),
    _Part("what is predicted", "3.1", lambda s, m: _PREDICTIONS[s.kind]),
)


def _descriptions() -> dict[str, dict[str, str]]:
    descriptions = {}
    for name, preset in _MEMBERS.items():
        settings = load_settings(preset).model
        with torch.device("meta"):
            model = model_for(settings, 100)
        descriptions[name] = {part.name: part.describe(settings, model) for part in PARTS}
    return descriptions


def _change(paper: str, own: str) -> _Change:
    """How a variant's part differs from the paper's."""
    if not paper:
        return "adds" if own else ""
    if not own:
        return "drops"
    return "keeps" if own == paper else "changes"


def cells() -> dict[str, dict[str, tuple[_Change, str]]]:
    """For each part and variant: the change, and the description."""
    descriptions = _descriptions()
    paper = next(iter(descriptions.values()))
    return {
        part.name: {
            name: (_change(paper[part.name], own[part.name]), own[part.name]) for name, own in descriptions.items()
        }
        for part in PARTS
    }


def table_text() -> str:
    """The variants as a table. The paper's column has descriptions, the others the changes."""
    rows, table = [], cells()
    for part in PARTS:
        first, *others = table[part.name].items()
        columns = [first[1][1] or "–", *(_cell_text(*cell) for _, cell in others)]
        rows.append([part.name, part.section, *columns])
    return markdown(["part", "section", *_MEMBERS], rows)


def _cell_text(what: _Change, own: str) -> str:
    more = "" if own in ("yes", "") or what == "keeps" else f": {own}"
    return f"{what}{more}" if what else "–"


def picture() -> str:
    """The variants as columns of boxes: blue kept, orange changed, green added, an empty outline dropped."""
    table = cells()
    width = _NAME + len(_MEMBERS) * (_WIDTH + _GAP) + _GAP
    height = _TOP + len(PARTS) * (_HEIGHT + _GAP) + _GAP
    parts = [label(_GAP, 22, "The family: blue kept, orange changed, green added, outlined dropped", "start", INK, 14)]
    for column, name in enumerate(_MEMBERS):
        parts.append(label(_NAME + column * (_WIDTH + _GAP) + _WIDTH / 2, _TOP - 10, name, "middle", INK, 12))
    for row, part in enumerate(PARTS):
        y = _TOP + row * (_HEIGHT + _GAP)
        parts.append(label(_NAME - 10, y + 16, part.name, "end", INK, 12))
        for column, cell in enumerate(table[part.name].values()):
            parts.append(_box(_NAME + column * (_WIDTH + _GAP), y, *cell))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape("Which parts each member of the family keeps, drops and adds")}" '
        f'font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="{PAPER}"/>{"".join(parts)}</svg>\n'
    )


def _box(x: float, y: float, what: _Change, own: str) -> str:
    if not what:
        return ""
    fill, ink = _COLOURS[what]
    dashed = ' stroke-dasharray="4 3"' if what == "drops" else ""
    text = "dropped" if what == "drops" else "" if own == "yes" else own
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{fill}" stroke="{QUIET}"{dashed}/>'
        f"{label(x + _WIDTH / 2, y + 16, text, 'middle', ink, 11)}"
    )
