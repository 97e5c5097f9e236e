"""The embedding space: nearest neighbours, and the plane of the first two principal components."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

_CLOUD = 600
_SPECIAL_TOKENS = 4  # padding, unknown, BOS and EOS


@dataclass(frozen=True, eq=False)
class EmbeddingSpace:
    """An embedding matrix with its first two principal components."""

    matrix: Float[Tensor, "vocabulary d_model"]
    mean: Float[Tensor, " d_model"]
    plane: Float[Tensor, "d_model 2"]
    explained: list[float]

    @classmethod
    def of(cls, weight: Float[Tensor, "vocabulary d_model"]) -> "EmbeddingSpace":
        """Compute the plane. The sign of each axis makes its largest component positive."""
        matrix = weight.detach().float()
        mean = matrix.mean(0)
        centred = matrix - mean
        variances, vectors = torch.linalg.eigh(centred.T @ centred / len(matrix))
        plane = vectors[:, [-1, -2]]
        largest = plane.gather(0, plane.abs().argmax(0, keepdim=True))
        share = (variances[[-1, -2]] / variances.sum().clamp(min=1e-30)).tolist()
        return cls(matrix, mean, plane * largest.sign(), share)

    @cached_property
    def directions(self) -> Float[Tensor, "vocabulary d_model"]:
        """Every row, normalised."""
        return torch.nn.functional.normalize(self.matrix, dim=-1)

    @cached_property
    def points(self) -> list[list[float]]:
        """The point of every token on the plane."""
        return self.project(self.matrix)

    @property
    def cloud_ids(self) -> list[int]:
        """The tokens merged first, which are the most frequent, for the background."""
        words = range(_SPECIAL_TOKENS + 256, len(self.matrix))
        return list(words[:_CLOUD])

    def project(self, vectors: Float[Tensor, "rows d_model"], scale: float = 1.0) -> list[list[float]]:
        """Points on the plane. `scale` is the factor that the vectors were multiplied by."""
        points: list[list[float]] = ((vectors.float() - scale * self.mean) @ self.plane).tolist()
        return points

    def nearest(self, ids: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
        """For each id the tokens of largest cosine, without itself and special tokens."""
        rows = torch.tensor(list(ids), device=self.matrix.device)
        cosines = self.directions[rows] @ self.directions.T
        cosines[:, :_SPECIAL_TOKENS] = -2.0
        cosines[torch.arange(len(rows)), rows] = -2.0
        best = cosines.topk(min(count, cosines.shape[1] - _SPECIAL_TOKENS - 1))
        return [list(zip(i, c, strict=True)) for i, c in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
