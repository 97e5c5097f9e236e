"""Attention matrices as an SVG: one square per pair of tokens, darker for more weight."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from jaxtyping import Float
from torch import Tensor

_CELL, _GAP, _LABEL, _TITLE = 18, 28, 34, 22
INK, QUIET, PAPER, _COLOUR = "#1b1f24", "#57606a", "#ffffff", "#0072b2"


@dataclass(frozen=True)
class Panel:
    """One head's weights: a row per query token, a column per key token."""

    title: str
    weights: Float[Tensor, "query key"]
    queries: Sequence[str]
    keys: Sequence[str]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height with labels and title."""
        return _LABEL + _CELL * len(self.keys), _TITLE + _LABEL + _CELL * len(self.queries)


def heatmap_svg(panels: Sequence[Panel], columns: int, caption: str) -> str:
    """The panels in rows of `columns`, as a self-contained SVG."""
    width, height = (max(p.size[i] for p in panels) + _GAP for i in (0, 1))
    rows = -(-len(panels) // columns)
    total = (width * min(columns, len(panels)) + _GAP, height * rows + _GAP + _TITLE)
    positions = ((_GAP + i % columns * width, _GAP + _TITLE + i // columns * height) for i in range(len(panels)))
    groups = [
        f'<g transform="translate({x} {y})">{_panel_svg(p)}</g>' for p, (x, y) in zip(panels, positions, strict=True)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}" width="{total[0]}" '
        f'height="{total[1]}" role="img" aria-label="{escape(caption)}" font-family="system-ui, sans-serif">'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        f"{label(_GAP, _GAP, caption, 'start', INK, 14)}{''.join(groups)}</svg>\n"
    )


def _panel_svg(panel: Panel) -> str:
    parts = [label(_LABEL, 12, panel.title, "start", QUIET, 12)]
    top = _TITLE + _LABEL
    for j, key in enumerate(panel.keys):
        parts.append(label(_LABEL + _CELL * (j + 0.5), top - 8, key, "middle", INK, 12))
    for i, query in enumerate(panel.queries):
        parts.append(label(_LABEL - 8, top + _CELL * (i + 0.7), query, "end", INK, 12))
        parts += [_cell(_LABEL + _CELL * j, top + _CELL * i, w) for j, w in enumerate(panel.weights[i].tolist())]
    return "".join(parts)


def _cell(x: float, y: float, weight: float) -> str:
    """One square; its weight is shown on hover."""
    return (
        f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" fill="{_COLOUR}" '
        f'fill-opacity="{0.04 + 0.96 * weight:.3f}"><title>{weight:.3f}</title></rect>'
    )


def label(x: float, y: float, text: str, anchor: str, colour: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'
