"""Fine-tuning: settings that suit a model and some pairs, then a training that starts from the model."""

import glob
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onehop.config import (
    DataSettings,
    Settings,
    TrainSettings,
    load_tables,
    settings_from_dict,
    with_changes,
    with_tables,
)
from onehop.console import console
from onehop.data.batches import Epoch
from onehop.data.corpus import entries_from_names
from onehop.data.mixture import SourcePart
from onehop.data.store import Pairs, Store
from onehop.errors import SettingsError, TextError
from onehop.model.device import pick_device
from onehop.storage.model_io import read_model
from onehop.storage.model_label import check_kind, describe
from onehop.storage.registry import named_model
from onehop.storage.run_folder import Run, read_metrics
from onehop.text.tokenizer import vocabulary_of
from onehop.training import workflow
from onehop.training.callbacks import Callback
from onehop.training.checks import initial_model
from onehop.training.estimate import Plan, measured_step, plan
from onehop.training.optimizer import load_weights
from onehop.training.step import Objective

_VALID_SIZE = 500
_LONGEST = 200
_EPOCHS = 4
# An epoch has about forty batches, and each is large enough for a useful gradient.
BATCHES = 40
LEAST_TOKENS, _MOST_TOKENS = 1024, 8192
LEAST_STEPS, _MOST_STEPS = 30, 20_000
# The peak for d_model 512: an eighth of the shipped model's.
_RATE = 1e-4
_VALIDATIONS = 6
_PATIENCE = 3
# With this share of text in another language, the wrong files were probably given.
_WRONG_LANGUAGE = 0.2
_FEW_PAIRS = 1000
_TIMED_SENTENCES = 16

Names = Sequence[str | Path]


def finetune(
    model: str | Path,
    files: Names,
    out: str | Path,
    *,
    valid: Names = (),
    mix: Names = (),
    settings: str | Path | None = None,
    changes: Sequence[str] = (),
    device: str | None = None,
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = False,
    bleu_on: int = 200,
) -> Path | None:
    """Fine-tune a translator on your own pairs. Returns the model file, or None if it was stopped.

    The model is validated before the first step, and the best validation is the result: at worst the model itself.
    Raw files are prepared by processes that import the caller's script: there, call it under
    `if __name__ == "__main__":`.

    Args:
        model: An installed model, a model file or a run folder.
        files: Aligned files such as mine.en and mine.de, or files that hold both sides: docs/guide/prepare.md.
        out: The run folder. The same call resumes a stopped run.
        valid: Validation pairs; otherwise up to 500 are held out.
        mix: General pairs, of which an epoch holds as many as of `files`, so that less of the rest is forgotten.
        settings: A TOML file with settings that replace the chosen ones.
        changes: The same one by one, such as `train.steps=500`.
        device: cpu, cuda or cuda:N; otherwise the GPU if there is one.
        callbacks: Callbacks besides the terminal's output: docs/guide/train.md.
        tensorboard: Write TensorBoard events too.
        bleu_on: Validation sentences that are translated for BLEU; 0: none.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from onehop import finetune, load_settings, train
        >>> from onehop.config import with_changes
        >>> folder = Path(tempfile.mkdtemp())
        >>> for language, word in (("en", "Room"), ("de", "Raum")):
        ...     _ = (folder / f"mine.{language}").write_text("".join(f"{word} {i}\\n" for i in range(200)))
        >>> few = ["train.steps=2", "data.valid_size=10"]
        >>> settings = with_changes(
        ...     load_settings("tiny"), [*few, "data.train=['mine.{lang}']", "tokenizer.vocab_size=300"]
        ... )
        >>> model = train(settings, folder / "model", data=folder, device="cpu", bleu_on=0)
        >>> files = [folder / "mine.en", folder / "mine.de"]
        >>> finetune(model, files, folder / "mine", changes=few, device="cpu", bleu_on=0).name
        'model.safetensors'
    """
    out = Path(out)
    pick_device(device)  # fail before preparing, which takes minutes
    tuning = prepare(model, files, out, valid=valid, mix=mix, settings=settings, changes=changes)
    if workflow.is_main_process() and len(tuning.store.pairs("train")) < _FEW_PAIRS:
        console().print(f"Fewer than {_FEW_PAIRS:,} pairs teach terms and style at best: look at the result.")
    file = workflow.train(
        tuning.settings,
        out,
        store=tuning.store.path,
        device=device,
        callbacks=callbacks,
        tensorboard=tensorboard,
        bleu_on=bleu_on,
    )
    if file is not None and workflow.is_main_process():
        console().print(result_to_text(out, str(model)))
    return file


# --- settings from the model and the text -----------------------------------------------------------------------


@dataclass(frozen=True)
class FineTuning:
    """A fine-tuning that is ready to start: its settings and the prepared text."""

    settings: Settings
    store: Store


def prepare(
    model: str | Path,
    files: Names,
    out: Path,
    *,
    valid: Names = (),
    mix: Names = (),
    settings: str | Path | None = None,
    changes: Sequence[str] = (),
) -> FineTuning:
    """Prepare the text with the model's tokenizer, and choose what was not set."""
    tables = load_tables(settings) if settings is not None else {}
    file = named_model(str(model))
    check_kind(file, None)
    content = describe(file).content
    entries, languages = _entries_of(model, content, {"files": files, "--valid": valid, "--mix": mix})
    trained = settings_from_dict(content["settings"])
    data = DataSettings(
        source=languages[0],
        target=languages[1],
        train=entries["files"],
        valid=entries["--valid"],
        mix=entries["--mix"] or None,
        valid_size=_VALID_SIZE,
        longest=min(_LONGEST, trained.model.max_length - 1),
    )
    chosen = Settings(model=trained.model, tokenizer=trained.tokenizer, data=data)
    chosen = with_changes(with_tables(chosen, tables), changes)
    Run(out).check_overwrites_nothing()
    store = workflow.open_store(chosen, out, None, None, tokenizer=read_model(file).tokenizer)
    _check_language(store)
    chosen = replace(chosen, train=_schedule(chosen, store, str(model)))
    return FineTuning(with_changes(with_tables(chosen, tables), changes), store)


def _entries_of(
    model: str | Path, content: Mapping[str, Any], options: Mapping[str, Names]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, str]]:
    """The files as entries of the settings, and the languages: the model's, which the names must not contradict."""
    languages = (str(content["source"]), str(content["target"]))
    entries = {}
    for option, names in options.items():
        entries[option], named = entries_from_names([str(name) for name in names])
        if named and not all(languages):
            languages = named  # an imported model may not say
        src, tgt = languages
        if named and set(named) != set(languages):
            raise TextError(
                f"The files are called {named[0]} and {named[1]}, and {model} translates from {src} to {tgt}.",
                f"Name them like mine.{src} mine.{tgt}, or choose another model.",
            )
    if not all(languages):
        raise TextError(f"{model} does not say its languages.", "Name the files after them, such as mine.en mine.de.")
    return entries, languages


def _check_language(store: Store) -> None:
    """Refuse text that is largely in other languages than the model's, for example with swapped columns."""
    report = store.report
    wrong = report.dropped["language"].count
    if wrong > _WRONG_LANGUAGE * report.read:
        raise TextError(
            f"{wrong:,} of {report.read:,} pairs are not in {store.source} and {store.target}, in this order.",
            "Look whether the sides are swapped; --set data.language=false takes them as they are.",
        )


def _schedule(settings: Settings, store: Store, model: str) -> TrainSettings:
    """The schedule: small batches, a small learning rate that decays to 0, a few epochs, the best validation kept."""
    train, default = settings.train, TrainSettings()
    weights = train.weights or _mix_weights(store)
    pairs = store.pairs("train", weights)
    budget, steps = train.batch_tokens, train.steps
    if budget in (0, default.batch_tokens):
        longest = max(int(side.max()) for side in (pairs.src_lengths, pairs.tgt_lengths)) + 1
        budget = max(min(max(_tokens_of(pairs) // BATCHES, LEAST_TOKENS), _MOST_TOKENS) // 64 * 64, longest)
    if steps == default.steps:  # the rest follows from the number of steps
        steps = min(max(_EPOCHS * len(Epoch(pairs, budget, train.seed, 0)), LEAST_STEPS), _MOST_STEPS)
    every = max(1, steps // _VALIDATIONS)
    return TrainSettings(
        start_from=model,
        steps=steps,
        batch_tokens=budget,
        weights=weights,
        warmup=max(1, steps // 10),
        learning_rate=round(_RATE * math.sqrt(512 / settings.model.d_model), 7),  # as the paper's depends on the width
        decay="cosine",
        clip=1.0,
        ema=0.99,
        average=1,
        keep=1,
        save_every=every,
        validate_every=every,
        patience=_PATIENCE,
        report_every=max(1, every // 5),
        cpu_dtype="auto",
    )


def _tokens_of(pairs: Pairs) -> int:
    """Tokens of the longer side in an epoch."""
    parts = pairs.parts or [SourcePart("", 0, len(pairs))]
    sides = (pairs.src_lengths, pairs.tgt_lengths)
    return max(int(sum(part.weight * side[part.first : part.last].sum() for part in parts)) for side in sides)


def _mix_weights(store: Store) -> dict[str, float] | None:
    """Weights with which an epoch holds no more general pairs than pairs of the domain; None if there are none."""
    files = len(store.description["made_from"]["files"]["train"])
    domain, general = store.sources[:files], store.sources[files:]
    if not general:
        return None
    if not sum(pairs for _, pairs in general):
        raise TextError("No pair of --mix is left after the filters.", "Look at its files, or leave them out.")
    if both := {name for name, _ in domain} & {name for name, _ in general}:
        raise SettingsError(f"Two files are called {both.pop()}, one of them general.", "Rename one of them.")
    share = sum(n for _, n in domain) / max(1, sum(n for _, n in general))
    return {glob.escape(name): round(min(1.0, share), 4) for name, _ in general}


# --- before and after -------------------------------------------------------------------------------------------


def dry_run(tuning: FineTuning, out: Path, *, device: str | None = None, bleu_on: int = 200) -> str:
    """The plan of a fine-tuning and its duration here, measured on a step and some translations."""
    settings, store, where = tuning.settings, tuning.store, pick_device(device)
    workflow.check_can_start(workflow.as_prepared(settings, store), store, out)
    objective = Objective.of(settings, vocabulary_of(store.tokenizer).vocab_size, where)
    load_weights(objective.model, initial_model(settings, store, objective.model).weights())
    pairs = store.pairs("train", settings.train.weights)
    estimate = plan(settings, pairs, objective, where)
    step = measured_step(objective, settings, pairs, estimate.batch_tokens, where)
    # Without gradients a pass takes a third of the time.
    validation = step / 3 * _tokens_of(store.pairs("valid")) / estimate.batch_tokens
    sentences = min(bleu_on, len(store.pairs("valid")))
    if sentences:
        timed = min(_TIMED_SENTENCES, sentences)
        began = time.perf_counter()
        workflow.bleu_validator(store, timed)(objective.model.eval())
        validation += (time.perf_counter() - began) * sentences / timed
    return plan_to_text(settings, store, estimate, step, validation)


def plan_to_text(settings: Settings, store: Store, plan: Plan, step: float, validation: float) -> str:
    train = settings.train
    validations = 2 + (train.steps - 1) // train.validate_every  # before the first step, in between, at the end
    seconds = train.steps * step + validations * validation
    disk = 40 * plan.parameters / 1e9  # two checkpoints with Adam's moments and an average, the best, the result
    return (
        f"{train.start_from}: {plan.parameters:,} parameters, {store.source} → {store.target}\n"
        f"{len(store.pairs('train')):,} pairs to train on, {len(store.pairs('valid')):,} to validate on\n"
        f"{train.steps:,} steps of {plan.batch_tokens:,} tokens are {plan.epochs:.1f} epochs; "
        f"learning rate up to {train.learning_rate:.0e}; {validations} validations\n"
        f"about {workflow.duration(seconds)} here: a step took {step:.1f} s, a validation takes {validation:.0f} s\n"
        f"about {plan.memory_bytes / 1e9:.1f} GB of memory and {disk:.1f} GB of disk\n"
        f"nothing was trained; the prepared text is in {store.path}"
    )


def result_to_text(out: Path, model: str) -> str:
    """The gain of the result over the initial model."""
    validations = [line for line in read_metrics(out / "metrics.jsonl") if "valid_nll" in line]
    steps = read_model(out / "model.safetensors").provenance["averaged_steps"]
    first, last = (next(line for line in validations if line["step"] == step) for step in (0, steps[-1]))
    if first is last:
        return f"No validation was better than {model} itself, which is the result. More pairs may help."
    scores = [f"loss {first['valid_nll']:.3f} → {last['valid_nll']:.3f}"]
    scores += [
        f"{name} {first[key]:.1f} → {last[key]:.1f}"
        for key, name in (("bleu", "BLEU"), ("chrf", "chrF"))
        if key in last
    ]
    return f"On the validation pairs: {', '.join(scores)} (step {last['step']:,})."
