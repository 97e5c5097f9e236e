"""One translation with all its intermediate values: tensors by name, candidates, the beam as a tree.

`Tracer` traces the translations of one model; `Trace` is one of them.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onehop.decoding.options import Hypothesis, SearchOptions, allowing
from onehop.decoding.torch_engine import with_source_end
from onehop.errors import TextError
from onehop.interpret import trace_fields
from onehop.interpret.ablations import Edit, EditTap, Role, parse_edits
from onehop.interpret.embedding_space import EmbeddingSpace
from onehop.interpret.recorded_search import OnStep, RecordedSearch, TappedModel, recorded_search
from onehop.interpret.reruns import HeadsOff, Recording, heads_off, leak
from onehop.interpret.trace_fields import to_numpy
from onehop.interpret.trace_file import FORMAT, VERSION, Json, Named, compact, fit_to_limit, pack, too_large_error
from onehop.interpret.trace_file import Trace as Trace
from onehop.model.taps import Recorder
from onehop.model.transformer import Transformer, parameter_count, sinusoids
from onehop.pipelines.arguments import errors_name_arguments, one_text, strings_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_label import describe
from onehop.storage.registry import find_model, short_name
from onehop.text.tokenizer import BOS, EOS, normalise

LIMIT = 32 * 2**20
KEPT = 2  # models that `trace` keeps in memory
_TOP = 10
_NEIGHBOURS = 8
_POSITIONS = 64


def trace(
    text: str,
    model: str | Path | None = None,
    *,
    edits: Iterable[str] = (),
    beam: int = 4,
    alpha: float | None = None,
    device: str | None = None,
) -> Trace:
    """Translate a sentence and return every number of the forward pass, as tensors by name.

    `model` is the name of an installed model or a path; otherwise it is `en-de`. `edits` switch parts of it off, such
    as "mask=off". The model stays in memory for the next call.

    Examples:
        >>> from onehop import trace
        >>> traced = trace("Good morning!")
        >>> traced.text
        'Guten Morgen!'
        >>> heads, target_tokens, source_tokens = traced["decoder.layers.4.cross_attention.weights"].shape
        >>> heads
        8
    """
    text, edits = one_text(text), strings_of("edits", edits, "edits")
    with errors_name_arguments():
        return load_tracer(model, device).trace(text, edits, SearchOptions(beam=beam, alpha=alpha))


def load_tracer(model: str | Path | None, device: str | None) -> "Tracer":
    """A tracer of a model, which stays in memory until the model file changes."""
    path = find_model(None if model is None else str(model))
    return _kept_tracer(path, describe(path).hash, device)


@lru_cache(KEPT)
def _kept_tracer(path: Path, hash: str, device: str | None) -> "Tracer":
    return Tracer.load(path, device)


class Tracer:
    """Makes traces of one model.

    Tracer.load("model.safetensors").trace("Hello world.", edits=["scale=off"])
    """

    def __init__(self, translator: SentenceTranslator, name: str | None = None, hash: str | None = None) -> None:
        self.translator, self.name, self.hash = translator, name, hash

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Tracer":
        """Read a model file, or an installed model by its name."""
        file = find_model(str(path))
        return cls.of(SentenceTranslator.load(file, device), file)

    @classmethod
    def of(cls, translator: SentenceTranslator, path: Path) -> "Tracer":
        """A tracer of a translator that was loaded from `path`."""
        return cls(translator, short_name(path), describe(path).hash)

    @property
    def model(self) -> Transformer:
        model = self.translator.model
        assert isinstance(model, Transformer)
        return model

    @cached_property
    def tapped_model(self) -> TappedModel:
        return TappedModel(self.model)

    @cached_property
    def spaces(self) -> tuple[EmbeddingSpace, EmbeddingSpace]:
        """The embedding spaces of source and target; the same object if they are tied."""
        source, target = self.model.embedding, self.model.target_embedding
        first = EmbeddingSpace.of(source.weight)
        return first, first if target is None else EmbeddingSpace.of(target.weight)

    @torch.inference_mode()
    def trace(
        self,
        text: str,
        edits: Iterable[str] = (),
        options: SearchOptions | None = None,
        limit: int = LIMIT,
        on_step: OnStep | None = None,
        on_translation: Callable[[Trace], None] | None = None,
    ) -> Trace:
        """Translate a sentence and record everything, with at most `limit` bytes of tensors.

        `on_step` is called after every step of the search with the number of steps. It may raise to stop the search.
        `on_translation` is called with a first trace, whose header lacks the analyses of the recorded tensors.
        """
        start = time.perf_counter()
        ids, parsed = self.source_ids(text, limit), parse_edits(edits)
        options = allowing(self.translator.with_defaults(options), ids)
        searched = recorded_search(self.tapped_model, ids, options, EditTap(self.model, parsed), on_step)
        searched_at = time.perf_counter()
        recording = self.record(ids, searched.outputs, parsed)
        kept, left_out = fit_to_limit(limit, self.tensors(recording.recorder, searched))
        header = self.header(text, ids, parsed, options, searched) | self.choices(searched, recording)
        if on_translation is not None:
            on_translation(Trace(header, kept))
        with ThreadPoolExecutor(1) as executor:  # during the search it would slow the translation down
            fast = None if parsed else executor.submit(self.fast, ids, options)
            header |= self.analyses(ids, header["steps"], searched, recording) | {"left_out": left_out}
            header["fast"] = self.compared(fast.result() if fast else None, searched.best)
        end = time.perf_counter()
        seconds = {"search": searched_at - start, "record": end - searched_at, "total": end - start}
        return Trace({**header, "seconds": seconds}, kept)

    def source_ids(self, text: str, limit: int) -> list[int]:
        """The ids of a text that is neither empty nor too long to trace."""
        ids = self.translator.tokenizer.encode(text)
        if not ids:
            raise TextError("There is nothing to trace: the text is empty.", "Give a sentence.")
        if (least := trace_fields.least_bytes(self.model, len(ids) + 1)) > limit:
            raise too_large_error(least, limit)
        return ids

    def record(self, ids: Sequence[int], outputs: Sequence[int], edits: Sequence[Edit]) -> Recording:
        """Run one forward pass over source and translation, and record every quantity."""
        return Recording.of(
            self.tapped_model, self.model, with_source_end(self.model, ids), [BOS, *outputs[:-1]], outputs, edits
        )

    def tensors(self, recorder: Recorder, searched: RecordedSearch) -> dict[str, Named]:
        """All tensors of a trace, without the batch axis."""
        arrays = {name: Named(r.axes[1:], compact(name, to_numpy(r.value[0]))) for name, r in recorder.items()}
        width = max(len(rows[0]) for rows in searched.recorded.attention)
        attention = torch.stack(
            [
                torch.nn.functional.pad(torch.stack(rows, 1), (0, 0, 0, 0, 0, width - len(rows[0])))
                for rows in searched.recorded.attention
            ]
        )
        arrays["beam.cross_attention"] = Named(("step", "slot", "layer", "key"), compact("beam", to_numpy(attention)))
        table = self.positions(recorder["source_input.scaled"].value.shape[1])
        arrays["positions"] = Named(("position", "d_model"), compact("positions", to_numpy(table)))
        return arrays

    def positions(self, length: int) -> Tensor:
        """The position table, as far as this source needs it and the page shows it."""
        table, rows = self.model.source_input.positions, max(_POSITIONS, length)
        is_sinusoidal = self.model.settings.positions == "sinusoidal"
        return sinusoids(rows, table.shape[1]) if is_sinusoidal else table[:rows].clone()

    def header(
        self, text: str, ids: Sequence[int], edits: Sequence[Edit], options: SearchOptions, searched: RecordedSearch
    ) -> Json:
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.about(),
            "source": {
                "text": normalise(text),
                "tokens": self.pieces(with_source_end(self.model, ids)),
                "ids": with_source_end(self.model, ids),
            },
            "target": self.target(searched),
            "engine": "torch",
            "compute": str(next(self.model.parameters()).dtype).removeprefix("torch."),
            "options": {"beam": options.beam, "alpha": options.exponent, "penalty": options.penalty},
            "edits": [str(edit) for edit in edits],
        }

    def choices(self, searched: RecordedSearch, recording: Recording) -> Json:
        """How the search chose the translation, and the head that aligns it with the source."""
        return {
            "inputs": trace_fields.attention_inputs(self.model),
            "steps": [self.step(searched, i) for i in range(len(searched.outputs))],
            "aligner": trace_fields.aligner(self.model.settings, recording.recorder),
            "beam": {"width": max(map(len, searched.steps)), "steps": self.tree(searched)},
        }

    def analyses(
        self, ids: Sequence[int], steps: Sequence[Json], searched: RecordedSearch, recording: Recording
    ) -> Json:
        recorder, candidates = recording.recorder, [[choice["id"] for choice in step["top"]] for step in steps]
        return {
            "lens": trace_fields.logit_lens(self.model, recorder, candidates, self.choice),
            "neighbours": self.neighbours(with_source_end(self.model, ids), searched.outputs),
            "projection": self.projection(recorder),
            "residual": trace_fields.additions(recorder),
            "score_variance": trace_fields.score_variance(recorder),
            "leak": leak(recording),
        }

    @cached_property
    def _about(self) -> Json:
        model = self.model
        settings = {**asdict(model.settings), "d_k": model.settings.key_width, "d_v": model.settings.value_width}
        return {
            "name": self.name,
            "hash": self.hash,
            "source": self.translator.source,
            "target": self.translator.target,
            "vocab_size": model.vocab_size,
            "parameters": parameter_count(model),
            "settings": settings,
            "boxes": trace_fields.parameters_of_parts(model),
        }

    def about(self) -> Json:
        """The model: its name, settings, and the number of parameters of every part."""
        return self._about

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.translator.tokenizer.tokens(ids)

    def target(self, searched: RecordedSearch) -> Json:
        """The translation. Row i of the decoder reads input_tokens[i] and predicts output_tokens[i]."""
        best, outputs = searched.best, searched.outputs
        return {
            "text": self.translator.tokenizer.decode(best.ids),
            "tokens": self.pieces(best.ids),
            "ids": list(best.ids),
            "input_tokens": self.pieces([BOS, *outputs[:-1]]),
            "output_tokens": self.pieces(outputs),
            "finished": best.finished,
            "looped": best.looped,
            "score": best.score,
            "log_prob": best.log_prob,
        }

    def fast(self, ids: Sequence[int], options: SearchOptions) -> Hypothesis | None:
        """The translation by the fast engine, if it supports the model."""
        engine = self.translator.fast
        if engine is None or not self.translator.supports_fast(ids, options):
            return None
        return engine.translate([ids], options, [0])[0][0]

    def compared(self, fast: Hypothesis | None, best: Hypothesis) -> Json | None:
        """The fast engine's translation, and whether it equals the recorded one."""
        engine = self.translator.fast
        if engine is None or fast is None:
            return None
        text = self.translator.tokenizer.decode(fast.ids)
        return {"engine": engine.name, "compute": engine.compute, "text": text, "same": fast.ids == best.ids}

    def step(self, searched: RecordedSearch, position: int) -> Json:
        """How one token was chosen: the most probable tokens at this step of the search."""
        chosen = searched.steps[position][searched.path[position]]
        logits = searched.recorded.logits[position][chosen.parent]
        log_p = logits.log_softmax(-1)
        p = log_p.exp()
        top = p.topk(min(_TOP, len(p)))
        return {
            "position": position,
            "chosen": self.choice(chosen.token, float(p[chosen.token])),
            "rank": int((p > p[chosen.token]).sum()),
            "entropy": float(torch.special.entr(p).sum()) / math.log(2),
            "top": [self.choice(i, x) for i, x in zip(top.indices.tolist(), top.values.tolist(), strict=True)],
        }

    def choice(self, token: int, p: float) -> Json:
        return {"id": token, "token": self.pieces([token])[0], "p": p}

    def tree(self, searched: RecordedSearch) -> list[list[Json]]:
        """The beam: the candidates that each step kept, with their parents and their fates."""
        steps = searched.steps
        parents = [{kept.parent for kept in step} for step in [*steps[1:], []]]
        return [
            [
                {
                    "id": kept.token,
                    "token": self.pieces([kept.token])[0],
                    "parent": kept.parent,
                    "log_prob": kept.log_prob,
                    "score": kept.score,
                    "state": trace_fields.state_after(kept, row in parents[t], t + 1 == len(steps)),
                    "chosen": t < len(searched.path) and searched.path[t] == row,
                }
                for row, kept in enumerate(step)
            ]
            for t, step in enumerate(steps)
        ]

    def neighbours(self, source: Sequence[int], target: Sequence[int]) -> Json:
        """The nearest tokens of the vocabulary to each token."""
        return {
            side: [
                [{"id": i, "token": self.pieces([i])[0], "cosine": cosine, "xy": space.points[i]} for i, cosine in near]
                for near in space.nearest(ids, _NEIGHBOURS)
            ]
            for side, ids, space in zip(("source", "target"), (source, target), self.spaces, strict=True)
        }

    def projection(self, recorder: Recorder) -> Json:
        """The tokens on a plane: embedded, scaled, with positions added."""
        space, root = self.spaces[0], math.sqrt(self.model.settings.d_model)
        result: Json = {"method": "PCA of the embedding matrix", "explained": space.explained}
        result["cloud"] = [space.points[i] for i in space.cloud_ids]
        result["cloud_tokens"] = self.pieces(space.cloud_ids)
        for side, space in zip(("source", "target"), self.spaces, strict=True):
            stages = {"embedding": ("embeddings", 1.0), "scaled": ("scaled", root), "positioned": ("positioned", root)}
            result[side] = {
                stage: space.project(recorder[f"{side}_input.{name}"].value[0], scale)
                for stage, (name, scale) in stages.items()
            }
        return result

    @torch.inference_mode()
    def variant(self, text: str, edits: Sequence[str], options: SearchOptions | None = None) -> Json:
        """The translation under edits, with only its cross-attention and candidates."""
        ids, parsed = self.source_ids(text, LIMIT), parse_edits(edits)
        searched = recorded_search(
            self.tapped_model, ids, allowing(self.translator.with_defaults(options), ids), EditTap(self.model, parsed)
        )
        recorder = self.record(ids, searched.outputs, parsed).recorder
        layers = range(self.model.settings.n_decoder_layers)
        weights = [recorder[f"decoder.layers.{i}.cross_attention.weights"].value[0] for i in layers]
        cross = Named(("layer", "head", "query", "key"), compact("weights", to_numpy(torch.stack(weights))))
        return {
            "edits": [str(edit) for edit in parsed],
            "target": self.target(searched),
            "steps": [self.step(searched, i) for i in range(len(searched.outputs))],
            **pack({"cross": cross}),
        }

    def heads_off(self, header: Mapping[str, Any]) -> Iterator[HeadsOff]:
        """Switch off every head in turn, one attention at a time, and measure the effect on a trace's translation."""
        source, target = header["source"], header["target"]
        outputs = [*target["ids"], EOS] if target["finished"] else target["ids"]
        with torch.inference_mode():
            recording = self.record([i for i in source["ids"] if i != EOS], outputs, parse_edits(header["edits"]))
        return heads_off(recording)

    def neurons(self, stack: str, layer: int, indices: Sequence[int]) -> list[Json]:
        """The output of some neurons of a feed-forward network: the norm, and in the decoder the tokens it promotes."""
        return trace_fields.neurons(self.model, stack, layer, indices, lambda id: self.pieces([id])[0])

    def weights(self, role: Role, layer: int, head: int) -> Json:
        """The W^Q, W^K, W^V and W^O of one head, as in the paper: q = x W^Q."""
        tensors = trace_fields.head_weights(self.model, role, layer, head)
        return {"role": role, "layer": layer, "head": head, **pack(tensors)}
