"""Centres the activations of a converted model, so that int8 loses less.

CTranslate2 rounds a row of activations to 8 bits with one scale. Where one channel of a layer norm is a large constant,
the others get few of the levels. The constants c move into biases: the norm's beta loses c, the first bias of the next
sublayer gains W c, and its last bias gains c for the residual connection. Only the rounding changes.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from onehop.config import ModelSettings
from onehop.shapes import Float32, Int
from onehop.storage.number_formats import Array
from onehop.text.tokenizer import BOS, EOS

_Activations: TypeAlias = Float32[np.ndarray, "sentences length _"]
_Ids: TypeAlias = Int[np.ndarray, "sentences length"]

# A model is centred if the mean of one channel has this share of a layer norm's mean square. `de-en` has 0.728, `en-fr`
# 0.703, the other shipped models less than 0.6. Centring would help those too, but their translations were measured.
OUTLIER_SHARE = 0.715
_SENTENCES, _LENGTH = 8, 24
_EPSILON = np.float32(1e-5)


def centred(variables: Mapping[str, Array], model: ModelSettings, threshold: float = OUTLIER_SHARE) -> dict[str, Array]:
    """The variables of the centred model, or the same variables if no channel is an outlier."""
    changed = dict(variables)
    if model.norm != "post":
        return changed
    forward = NumpyForward(variables, model)
    outputs = forward.norm_outputs()
    pairs = [pair for stack in ("encoder", "decoder") for pair in pairwise(_sublayers(stack, model))]
    if not any(_outlier_share(outputs[before]) >= threshold for before, _ in pairs):
        return changed
    for before, reader in pairs:
        # Whole numbers do not depend on the order of a machine's sums, and small constants become 0.
        constant = np.rint(outputs[before].mean((0, 1)))
        first, last = _linears(reader)
        changed[f"{before}/layer_norm/beta"] = changed[f"{before}/layer_norm/beta"] - constant
        for linear, added in ((first, forward.weight(first) @ constant), (last, constant)):
            changed[f"{linear}/bias"] = changed.get(f"{linear}/bias", np.float32(0)) + added
    return changed


def _outlier_share(x: _Activations) -> float:
    """The largest share of one channel's mean in the mean square of the rows."""
    return float(np.square(x.mean((0, 1))).max() / np.square(x).sum(-1).mean())


def _sublayers(stack: str, model: ModelSettings) -> list[str]:
    """CTranslate2's names in the order of computation. Each sublayer reads the layer norm of the one before."""
    n, kinds = model.n_encoder_layers, ["self_attention", "ffn"]
    if stack == "decoder":
        n, kinds = model.n_decoder_layers, ["self_attention", "attention", "ffn"]
    return [f"{stack}/layer_{i}/{kind}" for i in range(n) for kind in kinds]


def _linears(sublayer: str) -> tuple[str, str]:
    """The matrix that reads a sublayer's input and the one that writes its output."""
    return f"{sublayer}/linear_0", f"{sublayer}/linear_{2 if sublayer.endswith('/attention') else 1}"


class NumpyForward:
    """The forward pass of a converted post-norm model in NumPy."""

    def __init__(self, variables: Mapping[str, Array], model: ModelSettings) -> None:
        self.variables, self.model = variables, model

    def norm_outputs(self) -> dict[str, _Activations]:
        """The layer norm's output after each sublayer, for sentences of pieces from all over the vocabulary."""
        vocab_size = len(self.variables["decoder/embeddings/weight"])
        length = min(_LENGTH, len(self.variables["decoder/position_encodings/encodings"]))
        ids = np.linspace(max(BOS, EOS) + 1, vocab_size - 1, 2 * _SENTENCES * length).astype(np.int64)
        src, tgt = (half.reshape(length, _SENTENCES).T for half in (ids[::2], ids[1::2]))
        if self.model.source_end is not False:
            src[:, -1] = EOS
        tgt[:, 0] = BOS
        return self.forward(src, tgt)

    def forward(self, src: _Ids, tgt: _Ids) -> dict[str, _Activations]:
        outputs: dict[str, _Activations] = {}
        memory = None
        for stack, ids in (("encoder", src), ("decoder", tgt)):
            x = self.embed(stack, ids)
            for name in _sublayers(stack, self.model):
                x = outputs[name] = self.layer_norm(name, x + self.sublayer(name, x, memory))
            memory = x
        return outputs

    def embed(self, stack: str, ids: _Ids) -> _Activations:
        own = "encoder/embeddings_0" if stack == "encoder" else "decoder/embeddings"
        table = own if f"{own}/weight" in self.variables else "decoder/embeddings"
        positions = self.variables.get(f"{stack}/position_encodings/encodings")
        if positions is None:
            positions = self.variables["decoder/position_encodings/encodings"]
        return np.asarray(self.weight(table, ids) * math.sqrt(self.model.d_model) + positions[: ids.shape[1]])

    def sublayer(self, name: str, x: _Activations, memory: _Activations | None) -> _Activations:
        first, last = _linears(name)
        y = self.linear(first, x)
        if name.endswith("/ffn"):
            return self.linear(last, self.activation(y))
        if name.endswith("/self_attention"):
            q, k, v = np.split(y, 3, axis=-1)
            return self.linear(last, self.attention(q, k, v, causal=memory is not None))
        assert memory is not None
        k, v = np.split(self.linear(f"{name}/linear_1", memory), 2, axis=-1)
        return self.linear(last, self.attention(y, k, v))

    def attention(self, q: _Activations, k: _Activations, v: _Activations, causal: bool = False) -> _Activations:
        """The outputs of all heads, side by side."""
        q, k, v = (x.reshape(*x.shape[:2], self.model.n_heads, -1).swapaxes(1, 2) for x in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(q.shape[-1]))
        if causal:
            scores = np.where(np.tri(*scores.shape[-2:]).astype(bool), scores, np.float32(-np.inf))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads = (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(1, 2)
        return np.asarray(heads.reshape(*heads.shape[:2], -1))

    def activation(self, x: _Activations) -> _Activations:
        if self.model.activation == "relu":
            return np.asarray(np.maximum(x, 0))
        steepness = np.float32(1 if self.model.activation == "swish" else 1.702)  # x σ(1.702 x) is close to GELU
        return np.asarray(x / (1 + np.exp(-steepness * x)))

    def linear(self, name: str, x: _Activations) -> _Activations:
        return np.asarray(x @ self.weight(name).T + self.variables.get(f"{name}/bias", np.float32(0)))

    def layer_norm(self, sublayer: str, x: _Activations) -> _Activations:
        gamma, beta = (self.variables[f"{sublayer}/layer_norm/{name}"] for name in ("gamma", "beta"))
        x = x - x.mean(-1, keepdims=True)
        return np.asarray(x / np.sqrt(np.square(x).mean(-1, keepdims=True) + _EPSILON) * gamma + beta)

    def weight(self, name: str, rows: _Ids | slice = slice(None)) -> Float32[np.ndarray, "... cols"]:
        weight, scale = self.variables[f"{name}/weight"][rows], self.variables.get(f"{name}/weight_scale")
        return np.asarray(weight if scale is None else weight / scale[rows][..., None])
