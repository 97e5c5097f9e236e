"""`onehop demo reverse`: train a Transformer to reverse strings of digits.

The task is small enough for two CPU cores, and needs attention: each output digit has to find the input digit that it
copies, at a distance that depends on the length.
"""

import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.text import Text

from onehop.config import DataSettings, Settings, load_settings
from onehop.console import PrepareDisplay, TrainDisplay, console
from onehop.data.prepare import prepare
from onehop.decoding.options import SearchOptions
from onehop.errors import RunError, write_errors
from onehop.experiments.sentence_attention import attention_weights
from onehop.interpret.attention_svg import Panel, heatmap_svg
from onehop.pipelines.load import model_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model
from onehop.text.tokenizer import EOS, WORD_MARK, Tokenizer
from onehop.training.trainer import train

PAIRS = 12_000
HELD_OUT = 200
LONGEST = 12
_PICTURE = "attention.svg"
_SHOWN = {WORD_MARK: "␣", "</s>": "end"}


@dataclass(frozen=True)
class ReverseOutcome:
    """The number of correct strings among held-out ones."""

    right: int
    of: int
    examples: list[tuple[str, str]]
    model: Path


def run(folder: Path | None = None) -> ReverseOutcome:
    """Generate the task, train the smallest preset, and translate held-out strings."""
    torch.set_num_threads(1)  # for so small a model, threads cost more than they gain
    with tempfile.TemporaryDirectory() as temporary:
        work = folder or Path(temporary)
        strings = digit_strings(PAIRS + HELD_OUT)
        with write_errors(work, error=RunError):
            work.mkdir(parents=True, exist_ok=True)
            write_pairs(work / "digits.tsv", strings[HELD_OUT:])
        settings = reverse_settings()
        with PrepareDisplay() as display:
            store = prepare(settings, work / "store", root=work, progress=display, processes=1)
        with TrainDisplay(every=100, kept=folder is not None) as display:
            model = train(settings, store, work / "run", device="cpu", callback=display)
        if model is None:
            raise KeyboardInterrupt
        outcome = check(model, strings[:HELD_OUT])
        if folder:
            (folder / _PICTURE).write_text(attention_picture(model, *outcome.examples[0]), encoding="utf-8")
        return outcome


def reverse_settings() -> Settings:
    """The tiny preset without the filters that are meant for prose."""
    data = DataSettings(
        source="digits",
        target="reversed",
        train=("digits.tsv",),
        valid_size=200,
        alphabetic=0.0,
        language=False,
        identical=False,
    )
    return replace(load_settings("tiny"), data=data)


def digit_strings(count: int) -> list[str]:
    """Distinct strings of digits; the same ones in every call."""
    draw = random.Random(0)
    strings: dict[str, None] = {}
    while len(strings) < count:
        strings["".join(draw.choices("0123456789", k=draw.randint(3, LONGEST)))] = None
    return list(strings)


def in_words(strings: list[str]) -> list[str]:
    """The digits as words, for tests that need words."""
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    return [" ".join(names[int(digit)] for digit in string) for string in strings]


def write_pairs(file: Path, strings: list[str]) -> None:
    file.write_text("".join(f"{s}\t{s[::-1]}\n" for s in strings), encoding="utf-8")


def check(model: Path, held_out: list[str]) -> ReverseOutcome:
    translations = SentenceTranslator.load(model, "cpu", engine="torch").translate(held_out, SearchOptions(beam=1))
    right = sum(t.text == s[::-1] for s, t in zip(held_out, translations, strict=True))
    examples = [(s, t.text) for s, t in zip(held_out[:5], translations, strict=False)]
    return ReverseOutcome(right, len(held_out), examples, model)


def attention_picture(model: Path, source: str, translation: str) -> str:
    """The attention of each output digit in every head of the last layer."""
    stored = read_model(model)
    tokenizer = Tokenizer(stored.tokenizer)
    src, tgt = map(tokenizer.encode, (source, translation))
    weights = attention_weights(model_of(stored).eval(), src, tgt)["cross"][-1]
    # The row of a token is the step that predicts the next one, so it is labelled with the next one.
    rows, columns = ([_SHOWN.get(t, t) for t in tokenizer.tokens(ids)] for ids in ([*tgt, EOS], [*src, EOS]))
    panels = [Panel(f"head {i + 1}", head, rows, columns) for i, head in enumerate(weights)]
    caption = f"{source} → {translation}: where each digit written (rows) looked in the source (columns)"
    return heatmap_svg(panels, len(panels), caption)


def show(outcome: ReverseOutcome) -> None:
    out = console()
    out.print("\nStrings it has never seen:")
    for source, translation in outcome.examples:
        mark = Text("✓", "green") if translation == source[::-1] else Text("✗", "red")
        out.print(f"  {source}  →  {translation} ", mark)
    out.print(f"{outcome.right} of {outcome.of} right.")
    picture = outcome.model.parent.parent / _PICTURE
    if picture.exists():
        out.print(f"Where it looked while it wrote the first one: {picture}", markup=False, soft_wrap=True)
