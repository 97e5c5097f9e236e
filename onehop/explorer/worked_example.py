"""The worked example: attention over two words, small enough to follow with a pencil, by the model's own function."""

from typing import Any

import torch
from torch import Tensor

from onehop.model.attention import attention

WORDS = ["Hello", "World"]
MATRICES = {
    "x": [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]],
    "w_q": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.1, 0.2, 0.3]],
    "w_k": [[0.2, 0.3, 0.4], [0.5, 0.6, 0.7], [0.8, 0.9, 0.1], [0.2, 0.3, 0.4]],
    "w_v": [[0.3, 0.4, 0.5], [0.6, 0.7, 0.8], [0.9, 0.1, 0.2], [0.3, 0.4, 0.5]],
}


def worked_example() -> dict[str, Any]:
    """The matrices and every step from them to the output."""
    given = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in MATRICES.items()}
    steps = {letter: given["x"] @ given[f"w_{letter}"] for letter in ("q", "k", "v")}

    def keep(name: str, value: Tensor) -> Tensor:
        steps[name] = value[0, 0]
        return value

    q, k, v = (steps[letter][None, None] for letter in ("q", "k", "v"))
    attention(q, k, v, tap=keep)
    return {"words": WORDS, "given": MATRICES, "steps": {name: value.tolist() for name, value in steps.items()}}
