"""`onehop generate`: a decoder continues a text, token by token, through the same search as a translation."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.decoding.search import search
from onehop.errors import SettingsError
from onehop.model.variants import DecoderOnly
from onehop.pipelines.load import load_variant
from onehop.text.tokenizer import BOS, Tokenizer

Told = Callable[[str], None]
_UNFINISHED = "\ufffd"  # what bytes decode to before the last of their character is there


def options_of(*, temperature: float, top_k: int, top_p: float, seed: int, count: int = 1) -> SearchOptions:
    """How tokens are drawn; at temperature 0 none are, and the likeliest is taken."""
    if temperature == 0:
        return SearchOptions(beam=count, n_best=count)
    return SearchOptions(
        sample=True, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, n_best=count, alpha=0.0
    )


class Continuation:
    """A decoder as the search's step function: reads the prompt at once, remembers keys and values, tells tokens."""

    def __init__(self, model: DecoderOnly, prompt: Sequence[int], most: int, told: Callable[[int], None]) -> None:
        self.model, self.told = model, told
        self.cache = model.begin(1, 1 + len(prompt) + most)
        self.prompt = prompt

    def __call__(
        self, tokens: Int[Tensor, " rows"], parents: Int[Tensor, " rows"] | None
    ) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities of each row's next token."""
        if self.cache.length == 0:
            tokens = torch.tensor([BOS, *self.prompt], device=tokens.device)
            return self.following(tokens[None])
        if parents is not None:
            self.cache = self.cache.select(parents)
        if len(tokens) == 1:
            self.told(int(tokens[0]))
        return self.following(tokens[:, None])

    def following(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """What comes after these."""
        return self.model.step(ids, self.cache)[:, -1].float().log_softmax(-1)


class Writer:
    """A decoder ready to write.

    Writer.load("model.safetensors").write("Once upon a time", SearchOptions(sample=True), 100)
    """

    def __init__(self, model: DecoderOnly, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Writer":
        """Read a model file."""
        model, stored = load_variant(path, "decoder", device)
        assert isinstance(model, DecoderOnly)
        return cls(model, Tokenizer(stored.tokenizer))

    def write(self, prompt: str, options: SearchOptions, most: int, told: Told | None = None) -> list[str]:
        """The prompt with its continuations, best first; `told` is handed a single one piece by piece as it grows."""
        ids = self.tokenizer.encode(prompt)
        most = self.room(ids, most)  # before the prompt is told
        teller = Teller(self.tokenizer, ids, told)
        texts = [self.tokenizer.decode([*ids, *found.ids]) for found in self.search(ids, options, most, teller.add)]
        teller.end(texts[0])
        return texts

    @torch.inference_mode()
    def search(
        self, prompt: Sequence[int], options: SearchOptions, most: int, told: Callable[[int], None]
    ) -> list[Hypothesis]:
        """Continuations of at most so many tokens, for which there must be room."""
        step = Continuation(self.model, prompt, most, told)
        return search(step, [most], options, device=next(self.model.parameters()).device)[0]

    def room(self, prompt: Sequence[int], most: int) -> int:
        """How many tokens may follow a prompt: so many at most; an error where there is no room for one."""
        settings = self.model.settings
        if settings.positions == "learned":
            most = min(most, settings.max_length - 1 - len(prompt))
        if most < 1:
            raise SettingsError(
                f"A prompt of {len(prompt)} tokens leaves no room in the {settings.max_length} of the model.",
                "Shorten the prompt.",
            )
        return most


class Teller:
    """Tells a growing text in pieces that never have to be taken back."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], told: Told | None) -> None:
        self.tokenizer, self.told = tokenizer, told
        self.ids, self.said = list(prompt), ""
        self.tell(tokenizer.decode(prompt))

    def add(self, token: int) -> None:
        self.ids.append(token)
        self.tell(self.tokenizer.decode(self.ids))

    def tell(self, text: str) -> None:
        """What is new in a text, as far as its characters are complete."""
        whole = text.rstrip(_UNFINISHED)
        if self.told is not None and len(whole) > len(self.said):
            self.told(whole[len(self.said) :])
            self.said = whole

    def end(self, text: str) -> None:
        """What is missing yet; a character that stays incomplete is told as it is."""
        if self.told is not None and len(text) > len(self.said):
            self.told(text[len(self.said) :])
