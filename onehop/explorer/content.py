"""The data of the page: the model, traces of a sentence with and without edits, weights, and measurements."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import torch
from torch import Tensor

from onehop.errors import OnehopError
from onehop.explorer.html import page_alone, served_page
from onehop.interpret.ablations import ROLES, Role, parse_edits
from onehop.interpret.recorded_search import OnStep
from onehop.interpret.reruns import attentions
from onehop.interpret.trace_file import Json, Trace, lay_out, pack
from onehop.interpret.tracer import LIMIT, Tracer
from onehop.model.attention import attention
from onehop.pipelines.confidence import DOUBTFUL, confidence
from onehop.text.language_id import Identifier, name_of

DATA = Path(__file__).with_name("data")
MEASUREMENTS = ("dimension", "paths", "complexity", "coreference", "patterns", "pruning", "lengths", "warmup", "twins")
_REMEMBERED, _VARIANTS = 8, 32
_MOST_SWEPT = 48  # maximum source tokens for which an exported file includes every head switched off
_FEWEST_WORDS, _SURE = 3, 80.0  # below these words and percent, the language of a text is a guess
_NEURONS = 8  # shown per position on the page
_DECIDING = 4  # heads whose removal an exported file includes
_OF_ATTENTION = ("q", "k", "v", "scores", "weights", "head_outputs")

# Sentences offered for each source language; the page opens with the first.
SENTENCES = {
    "en": (
        "The animal didn't cross the street because it was too tired.",
        "The animal didn't cross the street because it was too wide.",
        "The cat sat because it was sleepy.",
        "The cat sat on the mat because it was tired.",
        "The animal crossed the road because it got tired.",
        "The dog bites the man.",
        "The man bites the dog.",
    ),
    "de": (
        "Die Katze saß da, weil sie müde war.",
        "Das Tier ging nicht über die Straße, weil es zu müde war.",
        "Das Tier ging nicht über die Straße, weil sie zu breit war.",
        "Der Hund beißt den Mann.",
        "Den Hund beißt der Mann.",
    ),
    "fr": (
        "Le chat dormait parce qu'il était fatigué.",
        "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
        "L'animal n'a pas traversé la rue parce qu'elle était trop large.",
        "Le chien mord l'homme.",
        "L'homme mord le chien.",
    ),
}
ENGLISH = SENTENCES["en"]


class Explorer:
    """One model behind the page. Requests are computed one at a time: two at once would only slow each other down."""

    def __init__(
        self,
        tracer: Tracer,
        opening: str | None = None,
        patches: Path | None = None,
        *,
        limit: int = LIMIT,
        other: "Explorer | None" = None,
    ) -> None:
        """`opening` is the first sentence of the page; the default is one in the model's source language.

        `limit` is the maximum number of bytes of a trace's tensors. `other` is a model to compare with.
        """
        self.tracer, self.limit, self.other = tracer, limit, other
        # Read here, so that a wrong file is refused before anything is computed.
        self.own_figures = {} if patches is None else {"patches": {**patches_in(patches), "file": str(patches)}}
        self.readable = SENTENCES.get(tracer.translator.source, ())
        self.opening = (self.readable or ENGLISH)[0] if opening is None else opening
        self._one_at_a_time, self._identifier = Lock(), Identifier()
        self._traces: OrderedDict[tuple[str, ...], Trace] = OrderedDict()
        self._variants = lru_cache(_VARIANTS)(tracer.variant)

    def trace(self, text: str, edits: Sequence[str] = ()) -> str:
        """A trace as JSON."""
        return self.traced(text, edits).to_json()

    def streamed_trace(
        self, text: str, edits: Sequence[str], on_step: OnStep, on_translation: Callable[[Json], None]
    ) -> list[bytes]:
        """A trace as the page reads it: the header as a line of JSON, then the tensors of all figures as bytes.

        Decoding base64 in a JSON text of 40 MB would stop the page for a second. `on_translation` is called before with
        what the top of the page needs.
        """
        trace = self.traced(text, edits, on_step, lambda first: on_translation(_opening_of(first)))
        tensors, buffer = lay_out({name: t for name, t in trace.tensors.items() if is_shown(name, trace.header)})
        header = {"trace": {**trace.header, "tensors": tensors}, "bytes": len(buffer)}
        return [json.dumps(header, ensure_ascii=False, allow_nan=False).encode() + b"\n", buffer]

    def traced(
        self,
        text: str,
        edits: Sequence[str] = (),
        on_step: OnStep | None = None,
        on_translation: Callable[[Trace], None] = lambda _: None,
    ) -> Trace:
        """A trace; the last few are cached."""
        key = (text, *edits)

        def with_own_fields(trace: Trace) -> Trace:
            own = {"language": self.other_language(text), "confidence": self.confidence(trace.header)}
            return Trace({**trace.header, **own}, trace.tensors)

        with self._one_at_a_time:
            if key not in self._traces:
                trace = self.tracer.trace(
                    text,
                    edits,
                    limit=self.limit,
                    on_step=on_step,
                    on_translation=lambda first: on_translation(with_own_fields(first)),
                )
                self._traces[key] = with_own_fields(trace)
            self._traces.move_to_end(key)
            if len(self._traces) > _REMEMBERED:
                self._traces.popitem(last=False)
            return self._traces[key]

    def confidence(self, header: Json) -> Json | None:
        """The probability that a translation is good; None for an edited model, and if no confidence was fitted."""
        target = header["target"]
        tokens = len(target["ids"]) + target["finished"]
        ended = target["finished"] and not target["looped"]
        value = confidence(self.tracer.name, target["log_prob"], tokens, finished=ended)
        return None if value is None or header["edits"] else {"value": value, "doubtful": value < DOUBTFUL}

    def other_language(self, text: str) -> Json | None:
        """The language of a text that is clearly not the model's source language; None if it is, or unknown."""
        reads = self.tracer.translator.source
        guess = self._identifier.guess(text) if len(text.split()) >= _FEWEST_WORDS else None
        if guess is None or guess["language"] == reads or guess["confidence"] < _SURE:
            return None
        return {"code": guess["language"], "read": name_of(guess["language"]), "reads": name_of(reads)}

    def variant(self, text: str, edits: Sequence[str]) -> Json:
        """The translation under edits, and whether it is unchanged; the last few are cached."""
        made = tuple(str(edit) for edit in parse_edits(edits))
        with self._one_at_a_time:
            variant = self._variants(text, made)
        plain = self.traced(text).text
        return {**variant, "label": self.label(made), "same": variant["target"]["text"] == plain}

    def heads(self, text: str, edits: Sequence[str] = ()) -> Iterator[Json]:
        """Switch off every head in turn: first the number of attentions, then the effects of each attention's heads.

        The lock is free between two attentions, so that other requests can be answered.
        """
        header = self.traced(text, edits).header
        yield {"attentions": len(attentions(self.tracer.model))}
        parts = self.tracer.heads_off(header)
        while True:
            with self._one_at_a_time:
                part = next(parts, None)
            if part is None:
                return
            effect = [[round(x, 6) for x in row] for row in part.effect.tolist()]
            top = [[[[self.tracer.pieces([i])[0], round(p, 6)] for i, p in step] for step in row] for row in part.top]
            yield {"role": part.role, "layer": part.layer, "effect": effect, "top": top}

    def about(self) -> Json:
        """The model, and the sentences and edits that the page offers."""
        sentences = dict.fromkeys([self.opening, *self.readable])
        offered = [{"edits": [edit], "label": label} for edit, label in self.edits().items()]
        return {"model": self.tracer.about(), "sentences": list(sentences), "edits": offered, "limit_bytes": self.limit}

    def edits(self) -> dict[str, str]:
        """The edits that the page offers, with labels. Labels count from 1."""
        s = self.tracer.model.settings
        encoder, decoder = s.n_encoder_layers - 1, s.n_decoder_layers - 1
        return {
            "scale=off": "scores not divided at all",
            f"scale={s.key_width}": "scores divided by dₖ, not by its root",
            "mask=off": "no causal mask",
            "positions=off": "no positions",
            "positions=shuffled": "the positions of the source shuffled",
            f"head=off@cross.{decoder}.0": f"head 1 of the cross-attention in layer {decoder + 1} off",
            f"head=only@cross.{decoder}.0": f"only head 1 of the cross-attention in layer {decoder + 1}",
            "heads=averaged": "all heads averaged, in every attention",
            "heads=averaged@cross": "all heads averaged, in the cross-attention",
            "residual=off": "no residual connections",
            f"residual=off@encoder.{encoder}": f"no residual connections in layer {encoder + 1} of the encoder",
            "norm=off": "no layer norm",
        }

    def label(self, edits: Sequence[str]) -> str:
        """The labels of edits that the page offers; others are shown as they were given."""
        offered = self.edits()
        return ", ".join(offered.get(edit, edit) for edit in edits)

    # --- the page

    def served(self) -> str:
        """The page that requests everything else from this explorer."""
        other = {} if self.other is None else {"other": {"about": self.other.about()}}
        return served_page({"backend": "live", **self.constant(), **other})

    def alone(self, text: str, edits: Sequence[str] = (), backend: Literal["export", "notebook"] = "export") -> str:
        """The page in one file: one sentence, all offered edits, and the weights of the first head shown.

        The edits include each head without which the model would write another word.
        """
        trace = self.traced(text, edits)
        first, blob = first_picture(trace)
        head = trace.header["aligner"]
        heads = self.swept(text, edits, len(trace.header["source"]["ids"]))
        offered = {**deciding_heads(trace.header["steps"], heads or []), **self.edits()}
        late = {
            "blob": blob,
            "heads": heads,
            "neurons": self.strongest_neurons(trace),
            "variants": [self.variant_or_error(text, edit) for edit in offered],
            "weights": [
                self.tracer.weights(role, layer, head["head"])
                for role in ROLES
                for layer in self.opening_layers(role, head["layer"])
            ],
        }
        constant = self.constant()
        constant["about"]["edits"] = [{"edits": [edit], "label": label} for edit, label in offered.items()]
        return page_alone({"backend": backend, **constant, "trace": first}, late)

    def swept(self, text: str, edits: Sequence[str], length: int) -> list[Json] | None:
        """The effect of each head, for an exported file; None for a long text, which would take minutes."""
        return list(self.heads(text, edits))[1:] if length <= _MOST_SWEPT else None

    def strongest_neurons(self, trace: Trace) -> list[Json]:
        """The most active decoder neurons at each step with their outputs, for an exported file."""
        neurons = []
        for layer in range(self.tracer.model.settings.n_decoder_layers):
            name = f"decoder.layers.{layer}.feed_forward.hidden"
            if name in trace:
                order = (-abs(trace[name].astype(float))).argsort(-1, kind="stable")[:, :_NEURONS]
                most_active = self.tracer.neurons("decoder", layer, sorted({*order.flatten().tolist()}))
                neurons += [{"layer": layer, **neuron} for neuron in most_active]
        return neurons

    def opening_layers(self, role: Role, layer: int) -> list[int]:
        """The layers of a role that the page may show first, as in `page/state.js`.

        This is the layer that aligns best, or the role's last layer. After a visit to a shorter encoder the page keeps
        the encoder's layer.
        """
        s = self.tracer.model.settings
        own = (s.n_encoder_layers if role == "encoder" else s.n_decoder_layers) - 1
        return sorted({min(layer, own), min(layer, own, s.n_encoder_layers - 1)})

    def constant(self) -> Json:
        """The data that does not depend on the sentence."""
        return {
            "about": self.about(),
            "measured": {**measured(), **self.own_figures},
            "worked": worked_example(),
            "paper": read_data("paper"),
        }

    def variant_or_error(self, text: str, edit: str) -> Json:
        """A variant, or the error: a model without norms may produce NaN."""
        try:
            return self.variant(text, [edit])
        except OnehopError as e:
            return {"edits": [edit], "label": self.label([edit]), "error": str(e)}


def deciding_heads(steps: Sequence[Json], heads: Sequence[Json]) -> dict[str, str]:
    """Edits that switch off the strongest head of a piece, where another piece is then the first choice.

    The strongest ones are first. `heads` are the effects of all heads, as `Explorer.heads` yields them.
    """
    names = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
    found: dict[str, tuple[float, str]] = {}
    for step, written in enumerate(steps):
        effects = [(row[step], part, head) for part in heads for head, row in enumerate(part["effect"])]
        if not effects or written["rank"]:
            continue
        effect, part, head = min(effects, key=lambda each: each[0])
        role, layer = part["role"], part["layer"]
        if part["top"][head][step][0][0] != written["chosen"]["token"]:
            edit, label = f"head=off@{role}.{layer}.{head}", f"{names[role]}, layer {layer + 1}, head {head + 1} off"
            found[edit] = min(found.get(edit, (0.0, label)), (effect, label))
    strongest = sorted(found, key=lambda edit: found[edit])[:_DECIDING]
    return {edit: found[edit][1] for edit in strongest}


def first_picture(trace: Trace) -> tuple[Json, str]:
    """A trace's header with the tensor that the top of the page needs, and the tensors of all figures in base64."""
    shown = pack({name: tensor for name, tensor in trace.tensors.items() if is_shown(name, trace.header)})
    return {**_opening_of(trace), "tensors": shown["tensors"]}, shown["blob"]


def _opening_of(trace: Trace) -> Json:
    """A trace's header with the one tensor that the top of the page needs."""
    aligning = f"decoder.layers.{trace.header['aligner']['layer']}.cross_attention.weights"
    return {**trace.header, "tensors": {}, "opening": pack({aligning: trace.tensors[aligning]})}


def is_shown(name: str, header: Json) -> bool:
    """Whether the page reads a tensor: embeddings, inputs and outputs of attentions, neurons, positions, the beam."""
    path, _, quantity = name.rpartition(".")
    if path in header["inputs"]:
        return quantity in _OF_ATTENTION
    if quantity == "hidden":
        return True
    made_from = {name for inputs in header["inputs"].values() for name in inputs.values()}
    return (
        name in made_from or name in ("positions", "beam.cross_attention") or path in ("source_input", "target_input")
    )


def measured() -> dict[str, Any]:
    """The results of `onehop paper measure` and `onehop demo digits`; None if a file is missing."""
    return {name: read_data(name) for name in (*MEASUREMENTS, "patches")}


def patches_in(file: Path | str) -> Json:
    """Images with a vision model's attention, from the file that `onehop demo digits` writes."""
    try:
        patches: Json = json.loads(Path(file).read_text(encoding="utf-8"))
        known = patches["name"] == "patches"
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        remedy = "Give the patches.json that `onehop demo digits -o FOLDER` writes."
        raise OnehopError(f"{file} has no images with attention.", remedy)
    return patches


def read_data(name: str) -> Any:
    file = DATA / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


_WORDS = ["Hello", "World"]
_MATRICES = {
    "x": [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]],
    "w_q": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.1, 0.2, 0.3]],
    "w_k": [[0.2, 0.3, 0.4], [0.5, 0.6, 0.7], [0.8, 0.9, 0.1], [0.2, 0.3, 0.4]],
    "w_v": [[0.3, 0.4, 0.5], [0.6, 0.7, 0.8], [0.9, 0.1, 0.2], [0.3, 0.4, 0.5]],
}


def worked_example() -> dict[str, Any]:
    """The matrices of the worked example, and every step to the output."""
    inputs = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in _MATRICES.items()}
    steps = {letter: inputs["x"] @ inputs[f"w_{letter}"] for letter in ("q", "k", "v")}

    def keep(name: str, value: Tensor) -> Tensor:
        steps[name] = value[0, 0]
        return value

    q, k, v = (steps[letter][None, None] for letter in ("q", "k", "v"))
    attention(q, k, v, tap=keep)
    return {"words": _WORDS, "given": _MATRICES, "steps": {name: value.tolist() for name, value in steps.items()}}
