"""Two ONNX graphs: the encoder, and one decoder step with its cache. Every model can be exported."""

import importlib
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from onehop.converters.parity import Logits, greedy, positions
from onehop.decoding.engine import MORE_THAN_SOURCE
from onehop.decoding.request import LogProbs, RowIds
from onehop.model.kv_cache import LayerCache
from onehop.model.transformer import Layer, Tokens, Transformer
from onehop.pipelines.load import model_of
from onehop.storage.model_file import StoredModel
from onehop.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

NEEDS = ("onnx", "onnxscript", "onnxruntime")
_OPSET = 18
_ENCODER, _DECODER, _TOKENIZER, _ABOUT = "encoder.onnx", "decoder.onnx", "tokenizer.spm", "onehop.json"
_CACHE = ("keys", "values", "cross_keys", "cross_values")

CrossKeys = Float[Tensor, "layers batch heads source d_k"]
CrossValues = Float[Tensor, "layers batch heads source d_v"]
Source = Int[Tensor, "batch source"]


@dataclass
class _GrowingCache(LayerCache):
    """A cache that grows by concatenation: a graph's tensors are immutable."""

    def append(
        self, k: Float[Tensor, "batch heads new d_k"], v: Float[Tensor, "batch heads new d_v"], length: int
    ) -> tuple[Float[Tensor, "batch heads all d_k"], Float[Tensor, "batch heads all d_v"]]:
        self.keys, self.values = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        return self.keys, self.values


class EncoderGraph(nn.Module):
    """Source ids → the keys and values that every decoder layer attends to."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Source) -> tuple[CrossKeys, CrossValues]:
        memory = self.model.encode(Tokens.padded(src, PAD))
        pairs = [layer.cross_attention.keys_and_values(memory) for layer in self.model.decoder.layers]  # type: ignore[union-attr,operator]
        keys, values = zip(*pairs, strict=True)
        return torch.stack(keys), torch.stack(values)


class DecoderGraph(nn.Module):
    """The next token's logits, and the cache one token longer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        ids: Int[Tensor, "batch 1"],
        src: Source,
        keys: Float[Tensor, "layers batch heads past d_k"],
        values: Float[Tensor, "layers batch heads past d_v"],
        cross_keys: CrossKeys,
        cross_values: CrossValues,
    ) -> tuple[Float[Tensor, "batch vocab"], Float[Tensor, "layers batch heads grown d_k"], Float[Tensor, "..."]]:
        """One step; `src` is only used for its padding."""
        model, past = self.model, keys.shape[3]
        x = model.target_input(model.embed_target(ids), torch.full_like(ids, past))
        mask = (src != PAD)[:, None, None, :]
        caches = []
        for i, layer in enumerate(model.decoder.layers):
            assert isinstance(layer, Layer)
            caches.append(_GrowingCache(keys[i], values[i], cross_keys[i], cross_values[i]))
            x = layer.step(x, caches[-1], past, None, mask)
        logits = model.logits(model.decoder.finish(x))[:, -1]
        return logits, torch.stack([c.keys for c in caches]), torch.stack([c.values for c in caches])


def write(stored: StoredModel, folder: Path) -> None:
    """Write both graphs, the tokenizer, and a description of how to run them."""
    model = model_of(stored).eval()
    for side in (model.source_input, model.target_input):
        side.ensure_length(positions(stored.settings.model))
    _write_graphs(model, folder)
    (folder / _TOKENIZER).write_bytes(stored.tokenizer)
    (folder / _ABOUT).write_text(json.dumps(about(stored, model), indent=2) + "\n", encoding="utf-8")


def _write_graphs(model: Transformer, folder: Path) -> None:
    """Export both with a small example; batch size and lengths stay dynamic."""
    batch, source, past = 2, 5, 3
    src = torch.full((batch, source), EOS)
    cross_keys, cross_values = EncoderGraph(model)(src)
    keys, values = (x[:, :, :, :past] for x in (cross_keys, cross_values))
    dynamic_axes: dict[str, Any] = {"src": {0: "batch", 1: "source"}, "ids": {0: "batch"}}
    dynamic_axes |= {name: {1: "batch", 3: "source" if "cross" in name else "past"} for name in _CACHE}
    _to_onnx(EncoderGraph(model), {"src": src}, dynamic_axes, ["cross_keys", "cross_values"], folder / _ENCODER)
    inputs = {"ids": src[:, :1], "src": src, "keys": keys, "values": values}
    inputs |= {"cross_keys": cross_keys, "cross_values": cross_values}
    _to_onnx(DecoderGraph(model), inputs, dynamic_axes, ["logits", "new_keys", "new_values"], folder / _DECODER)


def _to_onnx(
    module: nn.Module, inputs: Mapping[str, Tensor], dynamic_axes: Mapping[str, Any], outputs: list[str], file: Path
) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the exporter about itself
        program = torch.onnx.export(
            module,
            kwargs=dict(inputs),
            dynamo=True,
            opset_version=_OPSET,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes={name: dynamic_axes[name] for name in inputs},
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces, which contain paths of this machine
    program.save(file, external_data=False)


def about(stored: StoredModel, model: Transformer) -> dict[str, Any]:
    """The metadata that the graphs lack."""
    s = stored.settings.model
    return {
        "source": stored.source,
        "target": stored.target,
        "model": stored.hash,
        "ids": {"pad": PAD, "unk": UNK, "begin": BOS, "end": EOS},
        "positions": len(model.target_input.positions),
        "empty_cache": {
            "keys": [s.n_decoder_layers, "batch", s.n_heads, 0, s.key_width],
            "values": [s.n_decoder_layers, "batch", s.n_heads, 0, s.value_width],
        },
        "text": "NFC, runs of white space as one space; then tokenizer.spm, and the end id behind the source",
    }


class OnnxStep:
    """The decoder's graph as a step of the search."""

    def __init__(self, port: "Onnx", src: Sequence[Sequence[int]]) -> None:
        self.port, self.src = port, np.array(src, dtype=np.int64)
        cross = port.encoder.run(None, {"src": self.src})
        self.cache = dict(zip(_CACHE, [*port.empty(len(src)), *cross], strict=True))

    def logits(self, tokens: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows vocab"]:
        """Append a token to each row."""
        outputs = self.port.decoder.run(None, {"ids": tokens[:, None], "src": self.src, **self.cache})
        self.cache |= {"keys": outputs[1], "values": outputs[2]}
        return np.asarray(outputs[0])

    def __call__(self, tokens: RowIds, parents: RowIds | None) -> LogProbs:
        if parents is not None:
            rows = parents.numpy()
            self.src = self.src[rows]
            self.cache = {name: array[:, rows] for name, array in self.cache.items()}
        return torch.from_numpy(self.logits(tokens.numpy())).log_softmax(-1)


class Onnx:
    """Runs such a folder in onnxruntime."""

    libraries: tuple[str, ...] = NEEDS
    computes = "float32"

    def __init__(self, folder: Path) -> None:
        self.about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer((folder / _TOKENIZER).read_bytes())
        self.positions: int = self.about["positions"]
        self.encoder, self.decoder = _session(folder / _ENCODER), _session(folder / _DECODER)

    def empty(self, batch: int) -> list[Float[np.ndarray, "layers batch heads 0 width"]]:
        shapes = self.about["empty_cache"].values()
        return [np.zeros([batch if n == "batch" else n for n in shape], dtype=np.float32) for shape in shapes]

    def translate(self, text: str) -> str:
        ids = self.tokenizer.encode(text)
        return self.tokenizer.decode(greedy(OnnxStep(self, [[*ids, EOS]]), len(ids) + MORE_THAN_SOURCE))

    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        """Logits computed step by step, so that the cache is compared too."""
        step = OnnxStep(self, [src])
        return np.concatenate([step.logits(np.array([token])) for token in tgt])


def _session(file: Path) -> Any:
    """An inference session with as many threads as torch has."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
