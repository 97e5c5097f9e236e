"""`onehop generate`: a decoder continues a text token by token, with the same search as a translation."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from onehop.decoding.options import SearchOptions
from onehop.decoding.request import LogProbs, RowIds
from onehop.decoding.search import search
from onehop.errors import SettingsError
from onehop.model.variants import DecoderOnly
from onehop.pipelines.load import load_variant
from onehop.text.tokenizer import BOS, Tokenizer

_OnText = Callable[[str], None]


def options_of(*, temperature: float, top_k: int, top_p: float, seed: int, count: int = 1) -> SearchOptions:
    """Options for sampling; at temperature 0 a beam search."""
    if temperature == 0:
        return SearchOptions(beam=count, n_best=count)
    return SearchOptions(
        sample=True, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, n_best=count, alpha=0.0
    )


class Continuation:
    """The step function of the search for a decoder: the first step reads the whole prompt, later ones use the cache.

    `on_token` is called with each token of a single continuation.
    """

    def __init__(
        self, model: DecoderOnly, prompt: Sequence[int], max_tokens: int, on_token: Callable[[int], None]
    ) -> None:
        self.model, self.on_token = model, on_token
        self.cache = model.init_cache(1, 1 + len(prompt) + max_tokens)
        self.prompt = prompt

    def __call__(self, tokens: RowIds, parents: RowIds | None) -> LogProbs:
        if self.cache.length == 0:
            ids = torch.tensor([[BOS, *self.prompt]], device=tokens.device)
        else:
            if parents is not None:
                self.cache = self.cache.select(parents)
            if len(tokens) == 1:
                self.on_token(int(tokens[0]))
            ids = tokens[:, None]
        return self.model.step(ids, self.cache)[:, -1].float().log_softmax(-1)


class Writer:
    """Continues texts with a decoder.

    Writer.load("model.safetensors").write("Once upon a time", SearchOptions(sample=True), 100)
    """

    def __init__(self, model: DecoderOnly, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Writer":
        model, stored = load_variant(path, "decoder", device)
        assert isinstance(model, DecoderOnly)
        return cls(model, Tokenizer(stored.tokenizer))

    @torch.inference_mode()
    def write(self, prompt: str, options: SearchOptions, max_tokens: int, on_text: _OnText | None = None) -> list[str]:
        """The prompt with continuations of at most `max_tokens` tokens, best first.

        If there is a single one, `on_text` is called with each new part of its text.
        """
        ids, settings = self.tokenizer.encode(prompt), self.model.settings
        max_tokens = int(min(max_tokens, settings.most_positions - 1 - len(ids)))
        if max_tokens < 1:
            raise SettingsError(
                f"A prompt of {len(ids)} tokens leaves no room in the {settings.max_length} of the model.",
                "Shorten the prompt.",
            )
        stream = TextStream(self.tokenizer, ids, on_text)
        step = Continuation(self.model, ids, max_tokens, stream.add)
        [hypotheses] = search(step, [max_tokens], options, device=next(self.model.parameters()).device)
        texts = [self.tokenizer.decode([*ids, *hypothesis.ids]) for hypothesis in hypotheses]
        stream.send(texts[0])
        return texts


class TextStream:
    """Calls `on_text` with the new parts of a growing text, once their characters are complete."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], on_text: _OnText | None) -> None:
        self.tokenizer, self.on_text = tokenizer, on_text
        self.ids, self.sent = list(prompt), 0
        self.send(tokenizer.decode_complete(prompt))

    def add(self, token: int) -> None:
        self.ids.append(token)
        self.send(self.tokenizer.decode_complete(self.ids))

    def send(self, text: str) -> None:
        if self.on_text is not None and len(text) > self.sent:
            self.on_text(text[self.sent :])
            self.sent = len(text)
