"""From raw text to a model file in one call: prepare if needed, train, validate by translating, show progress."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from onehop.config import Settings, load_settings, settings_to_dict
from onehop.console import PrepareDisplay, TrainDisplay, console
from onehop.data.filters import report_to_text
from onehop.data.prepare import prepare
from onehop.data.store import Store
from onehop.decoding.options import SearchOptions
from onehop.errors import OtherStoreError, SettingsError, StoreError, require
from onehop.evaluation.metrics import bleu, chrf
from onehop.model.device import pick_device
from onehop.model.transformer import Predictor
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import write_model
from onehop.storage.run_folder import Run
from onehop.text.tokenizer import Tokenizer, vocabulary_of
from onehop.training import trainer
from onehop.training.callbacks import Callback, Callbacks
from onehop.training.checks import check_fits, inherit_alpha, initial_model
from onehop.training.distributed import processes
from onehop.training.estimate import Plan, plan
from onehop.training.step import Objective
from onehop.training.validation import Validator


def train(
    settings: Settings | str | Path,
    out: str | Path,
    *,
    store: str | Path | None = None,
    data: str | Path | None = None,
    device: str | None = None,
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = False,
    bleu_on: int = 500,
) -> Path | None:
    """Train in the run folder `out`, or resume there. Returns the model file, or None if it was stopped.

    Raw files are prepared by processes that import the caller's script: there, call it under
    `if __name__ == "__main__":`.

    Args:
        settings: Settings, the name of a preset, or a TOML file.
        out: The run folder. The same call resumes from the last checkpoint.
        store: A store of `onehop prepare`; otherwise the raw files of the settings are prepared first.
        data: The folder of the raw files.
        device: cpu, cuda or cuda:N; otherwise the GPU if there is one.
        callbacks: Callbacks besides the terminal's output: docs/guide/train.md.
        tensorboard: Write TensorBoard events too.
        bleu_on: Validation sentences that are translated for BLEU; 0: none.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from onehop import load_settings, train
        >>> from onehop.config import with_changes
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "pairs.tsv").write_text("".join(f"{i} and {i + 1}\\t{i + 1} und {i}\\n" for i in range(200)))
        >>> changes = ["data.train=['pairs.tsv']", "data.valid_size=10", "tokenizer.vocab_size=300", "train.steps=2"]
        >>> settings = with_changes(load_settings("tiny"), changes)
        >>> train(settings, folder / "run", data=folder, device="cpu", bleu_on=0).name
        'model.safetensors'
    """
    settings = settings if isinstance(settings, Settings) else load_settings(settings)
    out = Path(out)
    if bleu_on and settings.model.kind is None:
        require("sacrebleu", instead="switch BLEU off: --bleu-on 0, in Python bleu_on=0")
    Run(out).check_overwrites_nothing()  # before preparing, which takes minutes
    pick_device(device)
    opened = open_store(settings, out, None if store is None else Path(store), None if data is None else Path(data))
    settings = as_prepared(settings, opened)
    validator = bleu_validator(opened, bleu_on) if bleu_on and settings.model.kind is None else None
    if not is_main_process():
        return trainer.train(settings, opened, out, device=device, validator=validator)
    with TrainDisplay(every=settings.train.report_every) as display, ExitStack() as stack:
        if settings.train.warmup >= settings.train.steps:
            display.said(
                f"The learning rate only rises: train.warmup is {settings.train.warmup:,} steps, "
                f"and the run has {settings.train.steps:,}."
            )
        events = [stack.enter_context(closing(TensorBoard(out)))] if tensorboard else []
        callback = Callbacks(display, *events, *callbacks)
        return trainer.train(settings, opened, out, device=device, callback=callback, validator=validator)


def as_prepared(settings: Settings, store: Store) -> Settings:
    """The settings with the tables of the store, so that the run records what was used."""
    made_from = store.description["made_from"]
    files = settings.data.train or tuple(name for name, _ in made_from["files"]["train"])
    data = replace(settings.data, **made_from["data"], train=files)
    vocabulary = {k: v for k, v in made_from["tokenizer"].items() if k in ("vocab_size", "sample", "weights")}
    return replace(settings, data=data, tokenizer=replace(settings.tokenizer, **vocabulary))


def check_agrees(settings: Settings, changes: Sequence[str], store: Path) -> None:
    """Refuse a requested setting that differs from the store's."""
    prepared = settings_to_dict(as_prepared(settings, Store.open(store)))
    for name in (change.partition("=")[0].strip() for change in changes):
        table, _, key = name.partition(".")
        requested, used = (tables.get(table, {}).get(key) for tables in (settings_to_dict(settings), prepared))
        if requested != used:
            raise SettingsError(
                f"{name} is {requested}, and the store {store} was made with {used}.", "Leave it out, or prepare again."
            )


def is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def open_store(
    settings: Settings, out: Path, store: Path | None, data: Path | None, *, tokenizer: bytes | None = None
) -> Store:
    """The given store, or the one in the run folder, which is prepared from raw files if missing."""
    if store is not None:
        return Store.open(store)
    if not settings.data.train:
        raise StoreError("There is nothing to train on.", "Give a store, or settings with files in their [data] table.")
    if (out / "run.json").exists() or processes() > 1:
        # A run resumes with its own store, even without the raw files. Several processes must not prepare at once.
        return Store.open(out / "store")
    with PrepareDisplay() as display:
        make = partial(prepare, settings, out / "store", root=data, tokenizer=tokenizer, progress=display)
        try:
            prepared = make()
        except OtherStoreError:  # left by a dry run or a refused run; no training has used it
            prepared = make(force=True)
    console().print(report_to_text(prepared.report))
    return prepared


def bleu_validator(store: Store, sentences: int) -> Validator:
    """A validator that translates validation sentences greedily and scores them; it keeps three samples."""
    sources, references = store.valid_text("src")[:sentences], store.valid_text("tgt")[:sentences]
    tokenizer = Tokenizer(store.tokenizer)

    def validate(model: Predictor) -> Mapping[str, Any]:
        translator = SentenceTranslator.of_model(model, tokenizer, store.source, store.target)
        texts = [t.text for t in translator.translate(sources, SearchOptions(beam=1))]
        samples = list(zip(sources[:3], texts[:3], strict=True))
        return {"bleu": bleu(texts, references).value, "chrf": chrf(texts, references).value, "samples": samples}

    return validate


class TensorBoard(Callback):
    def __init__(self, folder: Path) -> None:
        require("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.folder = folder
        self.events: Any = None
        self.writer = SummaryWriter

    def close(self) -> None:
        if self.events:
            self.events.close()

    def began(self, metadata: dict[str, Any]) -> None:
        """The run starts or resumes. Events after the last checkpoint are written again."""
        last = (Run(self.folder).steps() or [0])[-1]
        self.events = self.writer(self.folder / "tensorboard", purge_step=last + 1)

    def stepped(self, report: dict[str, Any]) -> None:
        self.write("train", report)

    def validated(self, report: dict[str, Any]) -> None:
        self.write("valid", report)

    def write(self, group: str, report: dict[str, Any]) -> None:
        """Every number of a report as a curve."""
        for name, value in report.items():
            if isinstance(value, float):
                self.events.add_scalar(f"{group}/{name}", value, report["step"])


def dry_run(
    settings: Settings, out: Path, *, store: Path | None = None, data: Path | None = None, device: str | None = None
) -> Plan:
    """The plan of a training, with the same checks."""
    Run(out).check_overwrites_nothing()
    opened = open_store(settings, out, store, data)
    settings = as_prepared(settings, opened)
    check_can_start(settings, opened, out)
    objective = Objective.of(settings, vocabulary_of(opened.tokenizer).vocab_size, pick_device(device))
    if settings.train.start_from and not Run(out).metadata():
        initial_model(settings, opened, objective.model)
    return plan(settings, opened.pairs("train", settings.train.weights), objective, pick_device(device))


def check_can_start(settings: Settings, store: Store, out: Path) -> None:
    """Run the checks of a training that starts or resumes in this folder."""
    check_fits(settings, store)
    run = Run(out)
    if run.metadata():
        run.check_same(settings, {"tokenizer": store.tokenizer_hash, "data": store.hash})


def plan_to_text(plan: Plan, settings: Settings) -> str:
    return (
        f"{plan.parameters:,} parameters\n"
        f"about {plan.memory_bytes / 1e9:.1f} GB of memory: {plan.state_bytes / 1e9:.2f} for weights, gradients and "
        f"Adam, and {plan.bytes_per_token / 1e3:,.0f} KB for each of {plan.batch_tokens:,} tokens (in float32)\n"
        f"{plan.steps_per_epoch:,} steps an epoch; {settings.train.steps:,} steps are {plan.epochs:.1f} epochs\n"
        f"at least {duration(plan.least_seconds)} here, at the rate of a large matrix product; expect two to three "
        "times as long, and more for a small model on a GPU"
    )


def duration(seconds: float) -> str:
    """A duration in the largest unit of which there are at least two."""
    units = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next((size, unit) for size, unit in units if seconds >= 2 * size or size == 1)
    return f"{seconds / size:.0f} {unit}"


def average(folder: Path, last: int, out: Path, *, ema: bool = False) -> list[int]:
    """Write a model file with the mean of a run's last checkpoints, or its exponential average; their steps."""
    run = Run(folder)
    run.check_exists()
    weights, steps = run.exponential_average() if ema else run.averaged(last)
    settings, tokenizer, source, target = run.ingredients()
    provenance = {**run.metadata(), "averaged_steps": steps}
    stored = StoredModel(
        settings=settings, tokenizer=tokenizer, source=source, target=target, provenance=provenance, tensors=weights
    )
    inherit_alpha(settings, write_model(out, stored))
    return steps
