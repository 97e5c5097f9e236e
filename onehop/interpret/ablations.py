"""Ablations: edits of one run, written as `NAME=VALUE@SCOPE` and applied by a tap.

The model itself is never changed: an edited run goes through `watch` with its own `EditTap`.
`docs/guide/explore.md` lists the edits.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from onehop.errors import SettingsError
from onehop.model.transformer import Transformer

Role: TypeAlias = Literal["encoder", "decoder", "cross"]
ROLES: tuple[Role, ...] = ("encoder", "decoder", "cross")

_ATTENTION = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention\.(\w+)")
_ADD_NORM = re.compile(r"(encoder|decoder)\.(?:layers\.(\d+)\.\w+_add_norm\.)?(skip|residual|norm)")
_INPUT = re.compile(r"(source|target)_input\.(\w+)")


class AttentionName(NamedTuple):
    """A tapped name such as `decoder.layers.2.cross_attention.weights`, in parts."""

    role: Role
    layer: int
    quantity: str


def parse_attention_name(name: str) -> AttentionName | None:
    """The parts of a tapped name; None if it does not belong to an attention."""
    match = _ATTENTION.fullmatch(name)
    if match is None:
        return None
    role: Role = "cross" if match[3] == "cross" else "encoder" if match[1] == "encoder" else "decoder"
    return AttentionName(role, int(match[2]), match[4])


def attention_path(role: Role, layer: int) -> str:
    """The path of an attention module, such as `decoder.layers.2.cross_attention`."""
    stack = "encoder" if role == "encoder" else "decoder"
    return f"{stack}.layers.{layer}.{'cross' if role == 'cross' else 'self'}_attention"


@dataclass(frozen=True)
class Scope:
    """The part of the model that an edit changes: a role or stack, a layer and a head; None means all."""

    role: str | None = None
    layer: int | None = None
    head: int | None = None

    def includes(self, role: str, layer: int | None) -> bool:
        """Whether a role and layer are in this scope. The norm after the last layer has no layer."""
        return self.role in (None, role) and self.layer in (None, layer)

    def heads(self, n_heads: int) -> slice:
        return slice(0, n_heads) if self.head is None else slice(self.head, self.head + 1)

    def __str__(self) -> str:
        return ".".join(str(part) for part in (self.role, self.layer, self.head) if part is not None)


@dataclass(frozen=True)
class _Form:
    """The syntax of one edit: its values, the minimum and maximum depth of its scope, and an example."""

    values: str
    depth: tuple[int, int]
    roles: tuple[str, ...]
    example: str


FORMS: Mapping[str, _Form] = {
    "scale": _Form(r"off|\d{1,6}(?:\.\d{1,6})?", (0, 3), ROLES, "scale=off, scale=2 or scale=2@cross.1"),
    "mask": _Form("off", (0, 0), (), "mask=off"),
    "positions": _Form(
        r"off|shuffled(?::\d{1,9})?", (0, 0), (), "positions=off, positions=shuffled or positions=shuffled:7"
    ),
    "head": _Form("off|only", (3, 3), ROLES, "head=off@cross.1.0 or head=only@cross.1.0"),
    "heads": _Form("averaged", (0, 2), ROLES, "heads=averaged or heads=averaged@encoder.1"),
    "residual": _Form("off", (0, 2), ROLES[:2], "residual=off or residual=off@encoder.1"),
    "norm": _Form("off", (0, 2), ROLES[:2], "norm=off or norm=off@encoder.1"),
}


@dataclass(frozen=True)
class Edit:
    """One edit, as `str` writes it and `Edit.parse` reads it."""

    name: str
    value: str
    scope: Scope = Scope()

    @classmethod
    def parse(cls, text: str) -> "Edit":
        name, _, rest = text.strip().partition("=")
        value, at, scope = rest.partition("@")
        form = FORMS.get(name)
        if form is None:
            raise SettingsError(f"There is no edit {_short(text)}.", f"Edits are {', '.join(FORMS)}: {_OVERVIEW}")
        if not re.fullmatch(form.values, value):
            raise SettingsError(f"{_short(text)} is no edit of {name}.", f"Write {form.example}.")
        edit = cls(name, value, _parse_scope(text, scope if at else None, form))
        if name == "scale" and edit.divisor == 0:
            raise SettingsError("scale=0 divides by zero.", "Give a divisor above 0.")
        return edit

    @property
    def divisor(self) -> float:
        """The divisor of the scores that replaces √d_k. Only for `scale`."""
        return 1.0 if self.value == "off" else float(self.value)

    @property
    def seed(self) -> int:
        """The seed of the permutation. Only for `positions=shuffled`."""
        return int(self.value.partition(":")[2] or 1)

    def check(self, model: Transformer) -> None:
        """Refuse a layer or head that the model does not have."""
        s, scope = model.settings, self.scope
        layers = s.n_encoder_layers if scope.role == "encoder" else s.n_decoder_layers
        for what, index, count in (("layer", scope.layer, layers), ("head", scope.head, s.n_heads)):
            if index is not None and index >= count:
                raise SettingsError(
                    f"{self} asks for {what} {index}, but there are {count}.", f"They count from 0 to {count - 1}."
                )

    def __str__(self) -> str:
        return f"{self.name}={self.value}" + (f"@{self.scope}" if self.scope != Scope() else "")


_OVERVIEW = "for example scale=off, mask=off, positions=off, head=off@cross.1.0, residual=off, norm=off."


def _short(text: str) -> str:
    """A user's text shortened for a one-line error message."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _parse_scope(text: str, scope: str | None, form: _Form) -> Scope:
    """Read ROLE.LAYER.HEAD as deep as the edit allows."""
    parts = [] if scope is None else scope.split(".")
    least, most = form.depth
    numbers = parts[1:]
    fits = least <= len(parts) <= most and (scope is None or parts[0] in form.roles)
    if not fits or not all(re.fullmatch(r"\d{1,4}", number) for number in numbers):
        raise SettingsError(f"{_short(text)} names no place for this edit.", f"Write {form.example}.")
    return Scope(parts[0] if parts else None, *map(int, numbers))


def parse_edits(texts: Iterable[str]) -> tuple[Edit, ...]:
    """Read several edits; duplicates count once."""
    return tuple(dict.fromkeys(Edit.parse(text) for text in texts))


class EditTap:
    """A tap that applies edits, each by the method of its name. It keeps state, so each run needs a new one."""

    def __init__(self, model: Transformer, edits: Iterable[Edit]) -> None:
        self.settings = model.settings
        self.edits = tuple(edits)
        self.values: dict[str, Tensor] = {}
        for edit in self.edits:
            edit.check(model)

    @property
    def changes_the_past(self) -> bool:
        """Whether later tokens change the states of earlier positions, so that no cache is valid."""
        return any(edit.name == "mask" for edit in self.edits)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        raw = value
        for edit in self.edits:
            value = getattr(self, edit.name)(edit, name, value)
        last = name.rpartition(".")[2]
        self.values[last] = raw if last == "skip" else value
        return value

    def scale(self, edit: Edit, name: str, value: Tensor) -> Tensor:
        """Replace the divisor √d_k."""
        if not _attention_in(edit.scope, name, "scaled_scores"):
            return value
        value, heads = value.clone(), edit.scope.heads(value.shape[1])
        value[:, heads] *= math.sqrt(self.settings.key_width) / edit.divisor
        return value

    def mask(self, edit: Edit, name: str, value: Tensor) -> Tensor:
        """Remove the causal mask. Runs have one sentence, so no padding is unmasked."""
        unmasked = _attention_in(Scope("decoder"), name, "masked_scores")
        return self.values["scaled_scores"] if unmasked else value

    def positions(self, edit: Edit, name: str, value: Tensor) -> Tensor:
        """Remove the position encodings, or shuffle the source's."""
        match = _INPUT.fullmatch(name)
        if not match or match[2] != "positioned":
            return value
        if edit.value == "off":
            return self.values["scaled"]
        if match[1] == "target":
            return value
        order = torch.randperm(value.shape[1], generator=torch.Generator().manual_seed(edit.seed))
        positions = value - self.values["scaled"]
        return self.values["scaled"] + positions[:, order.to(value.device)]

    def head(self, edit: Edit, name: str, value: Tensor) -> Tensor:
        """Zero the output of one head, or of all the others."""
        if not _attention_in(edit.scope, name, "head_outputs"):
            return value
        off = torch.zeros(value.shape[1], dtype=torch.bool, device=value.device)
        off[edit.scope.head] = True
        if edit.value == "only":
            off = ~off
        return value.masked_fill(off[:, None, None], 0.0)

    def heads(self, edit: Edit, name: str, value: Tensor) -> Tensor:
        """Give every head the mean attention weights of all heads."""
        averaged = _attention_in(edit.scope, name, "weights")
        return value.mean(1, keepdim=True).expand_as(value) if averaged else value

    def residual(self, edit: Edit, name: str, value: Tensor) -> Tensor:
        return torch.zeros_like(value) if _add_norm_in(edit.scope, name, "skip") else value

    def norm(self, edit: Edit, name: str, value: Tensor) -> Tensor:
        """Skip the layer norm."""
        if not _add_norm_in(edit.scope, name, "norm"):
            return value
        within_layer = ".layers." in name
        return self.values["skip" if within_layer and self.settings.norm == "pre" else "residual"]


def _attention_in(scope: Scope, name: str, quantity: str) -> bool:
    """Whether a name is this quantity of an attention in this scope."""
    attention = parse_attention_name(name)
    return attention is not None and attention.quantity == quantity and scope.includes(attention.role, attention.layer)


def _add_norm_in(scope: Scope, name: str, quantity: str) -> bool:
    """Whether a name is this quantity around a sub-layer in this scope."""
    match = _ADD_NORM.fullmatch(name)
    if match is None or match[3] != quantity:
        return False
    return scope.includes(match[1], None if match[2] is None else int(match[2]))
