"""`onehop fill`: an encoder says what could stand where [MASK] stands."""

from dataclasses import dataclass
from pathlib import Path

import torch

from onehop.errors import ModelFileError, TextError
from onehop.family.encoder import EncoderOnly
from onehop.members import load_member
from onehop.model import Tokens
from onehop.tasks import MARKS, MASK
from onehop.tokenizer import EOS, WORD_MARK, Tokenizer
from onehop.vocabulary import vocabulary_of

GAP = "[MASK]"


@dataclass(frozen=True)
class Filling:
    """A piece for a gap, how probable it is there, and the text with it; other gaps stay open."""

    piece: str
    probability: float
    text: str


class Filler:
    """An encoder that was trained to fill gaps.

    Filler.load("model.safetensors").fill("The [MASK] sat on the mat.", 5)
    """

    def __init__(self, model: EncoderOnly, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Filler":
        """Read a model file."""
        model, stored = load_member(path, "encoder", device)
        tokenizer = vocabulary_of(stored.tokenizer)
        if not isinstance(tokenizer, Tokenizer) or not isinstance(model, EncoderOnly):
            raise ModelFileError(
                f"{path} was imported without an output for words.", "Use onehop embed, or train an encoder."
            )
        return cls(model, tokenizer)

    @torch.inference_mode()
    def fill(self, text: str, count: int) -> list[list[Filling]]:
        """For each gap the most probable pieces, best first."""
        parts = text.split(GAP)
        if len(parts) == 1:
            raise TextError(f"There is no {GAP} in the text.", f"Write {GAP} where a word is wanted.")
        encoded = [self.tokenizer.encode(part) for part in parts]
        ids = [i for part in encoded for i in (MASK, *part)][1:]
        self.model.source_input.reach(len(ids) + 1)
        read = torch.tensor([[*ids, EOS]], device=next(self.model.parameters()).device)
        probabilities = self.model.logits(self.model.encode(Tokens.padded(read)))[0].float()
        probabilities[:, :MARKS] = -torch.inf  # marks are no words
        probabilities = probabilities.softmax(-1).cpu()
        gaps = [place for place, i in enumerate(ids) if i == MASK]
        return [self.fillings(ids, gap, *probabilities[gap].topk(count)) for gap in gaps]

    def fillings(self, ids: list[int], gap: int, shares: torch.Tensor, pieces: torch.Tensor) -> list[Filling]:
        """The pieces of one gap."""
        return [
            Filling(self.tokenizer.tokens([piece])[0], share, self.shown([*ids[:gap], piece, *ids[gap + 1 :]]))
            for share, piece in zip(shares.tolist(), pieces.tolist(), strict=True)
        ]

    def shown(self, ids: list[int]) -> str:
        """Ids as text, open gaps as they were written."""
        tokens = [WORD_MARK + GAP if i == MASK else self.tokenizer.tokens([i])[0] for i in ids]
        if not any(i == MASK for i in ids):
            return self.tokenizer.decode(ids)
        return "".join(tokens).replace(WORD_MARK, " ").strip()
