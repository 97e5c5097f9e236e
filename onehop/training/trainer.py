"""The training loop: from a token store to a model file. A restart resumes from the last checkpoint.

    for each step: take the batches, forward, backward, update if finite, report

No random state outlives a step: dropout is seeded by (seed, step, process), batches by (seed, epoch). So weights,
Adam's moments and the position are the whole state.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from onehop._version import __version__
from onehop.config import ModelSettings, Settings
from onehop.console import RESUMES
from onehop.data.batches import Epoch
from onehop.data.bpe_dropout import make_resegmenter
from onehop.data.objectives import TrainingTask
from onehop.data.store import Pairs, Store
from onehop.errors import DivergedError, RunError
from onehop.machine import all_freed_memory_kept
from onehop.model import kernels
from onehop.model.device import deterministic, device_name
from onehop.model.transformer import parameter_count
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import write_model
from onehop.storage.run_folder import Checkpoint, Progress, Run, run_write_errors
from onehop.text.tokenizer import vocabulary_of
from onehop.training.callbacks import Callback, Callbacks, Report
from onehop.training.checks import check_fits, check_resumable, inherit_alpha, initial_model
from onehop.training.cuda_step import CudaGraphStep
from onehop.training.dataloader import FixedShapes, Update, prefetch, updates
from onehop.training.distributed import World, world
from onehop.training.estimate import max_token_budget, measured_peak, update_flops
from onehop.training.optimizer import (
    EMA,
    learning_rate,
    load_optimizer,
    load_weights,
    make_optimizer,
    optimizer_arrays,
    set_rate,
    to_arrays,
    weight_arrays,
)
from onehop.training.signals import Stop, stop_on_signals
from onehop.training.step import Objective, PlainStep, StepResult, training_dtype
from onehop.training.validation import Validation, Validator

# Updates that are prefetched: making a new epoch takes a second or two, a hundred steps of a fast GPU.
_PREFETCH = 64


def train(
    settings: Settings,
    store: Store,
    folder: Path,
    *,
    device: str | None = None,
    callback: Callback | None = None,
    validator: Validator | None = None,
) -> Path | None:
    """Train in a run folder, or resume there. Returns the model file, or None if it was stopped."""
    if settings.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # oneDNN, which computes bfloat16 products on a CPU, caches 1,024 shapes. Packed batches always have new ones, so
    # that takes gigabytes and saves nothing.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    check_fits(settings, store)
    with deterministic(settings.train.deterministic), world(device) as here, all_freed_memory_kept():
        run = Run(folder)
        trainer = Trainer(settings, store, run, here, callback if callback and here.is_main else Callbacks(), validator)
        try:
            trainer.begin()
            trainer.fit()
            return trainer.finish()
        finally:
            trainer.close()
            run.release()


class Trainer:
    def __init__(
        self, settings: Settings, store: Store, run: Run, world: World, callback: Callback, validator: Validator | None
    ) -> None:
        self.settings, self.store, self.run, self.world = settings, store, run, world
        self.callback, self.validator = callback, validator
        self.vocab_size = vocabulary_of(store.tokenizer).vocab_size
        self.task = TrainingTask(settings.model, self.vocab_size)
        torch.manual_seed(settings.train.seed)
        sharded = world.size > 1 and settings.train.shard
        self.objective = Objective.of(settings, self.vocab_size, world.device, sharded=sharded)
        self.model = self.objective.model
        self.validation = Validation(self.model, settings, store, world, self.task, validator)
        self.parallel = world.parallelize(self.objective, self.model, shard=settings.train.shard)
        self.compiled = world.device.type == "cuda" and settings.train.compile and has_fixed_shapes(settings.model)
        self.optimizer = make_optimizer(self.model, settings.train, capturable=world.size == 1 and self.compiled)
        self.ema = EMA(self.model, settings.train.ema) if settings.train.ema else None
        self.resegmenter = make_resegmenter(settings, store)
        self.progress = Progress()
        self.budget = settings.train.batch_tokens
        self.step: PlainStep | CudaGraphStep  # `begin` makes it, when the token budget is known
        self.stop = Stop()
        self.peak = math.inf

    def begin(self) -> None:
        """Open the run folder, find the token budget, build the step."""
        if self.settings.train.watch == "bleu" and self.validator is None:
            raise RunError("train.watch is bleu, but BLEU is not measured.", "Set train.watch=loss.")
        if self.settings.train.start_from and not self.run.metadata():
            initial_model(self.settings, self.store, self.model)  # before anything is written
        if self.world.is_main:
            self.run.begin(self.settings, self._metadata())
            self.run.keep_tokenizer(self.store.tokenizer)
        self.world.wait()
        if not self.run.metadata():
            raise RunError(
                f"{self.run.path} is not the same folder for every process.", "Put it on a disk that they share."
            )
        self.budget = self.budget or self.run.metadata().get("batch_tokens") or self._find_budget()
        if self.world.is_main:
            self.run.note(batch_tokens=self.budget)
        self.peak = measured_peak(self.world.device, training_dtype(self.settings.train, self.world.device))
        self.step = self._make_step()
        run = {"steps": self.settings.train.steps, "run": str(self.run.path), "holds": self.store.holds}
        self.callback.began({**self.run.metadata(), **self._machine(), **run})

    def fit(self) -> None:
        """Train to the last step, or until stopped."""
        train, stop = self.settings.train, self.stop
        self._resume()
        self._note_machine()
        with (
            stop_on_signals(stop),
            prefetch(self.stream(), _PREFETCH, until=lambda: bool(stop)) as loader,
            closing(self),  # abandons a half-made epoch, which the thread would wait for
        ):
            if train.start_from and self.progress == Progress(exact=self.progress.exact):
                self._validate()  # the baseline to beat
            while self.progress.step < train.steps:
                began = time.perf_counter()  # waiting for the batch counts
                update = next(loader, None)
                if self.world.any(bool(stop)) or update is None:  # every process must call it
                    break
                step = self.progress.step + 1
                rate = learning_rate(step, train, self.settings.model.d_model)
                set_rate(self.optimizer, rate)
                result = self.step.run(step, update, loader.peek)
                if result.parts:
                    self._note_split(step, result.parts)
                if not result.finite:
                    raise self._diverged_error(step, update, result)
                if self.ema:
                    self.ema.update(step)
                self.progress = replace(self.progress, step=step, epoch=update.epoch, batch=update.next_batch)
                report = self._report(update, rate, result, time.perf_counter() - began)
                self.callback.stepped(report)
                if step % train.report_every == 0 or step == train.steps:
                    self._write(report)
                if step % train.validate_every == 0 or step == train.steps:
                    self._validate()
                if step % train.save_every == 0:
                    self._save()
            self._save()

    def finish(self) -> Path | None:
        if self.world.any(self.stop.by_signal):  # one process or all may have received it
            self.callback.said(f"Stopped at step {self.progress.step}; {RESUMES}")
            return None
        if self.stop:
            self.callback.said(f"Finished early at step {self.progress.step}: {self.stop.reason}.")
        file = self.run.path / "model.safetensors"
        stored = self._stored()
        if self.world.is_main:
            write_model(file, stored)
            inherit_alpha(self.settings, file)
        self.world.wait()
        return file

    def close(self) -> None:
        """End the tokenizing processes. A second call does nothing."""
        if self.resegmenter:
            self.resegmenter.close()

    def _metadata(self) -> Report:
        """The metadata of the run, the same at every start."""
        return {
            "parameters": parameter_count(self.model),
            "pairs": len(self.store.pairs("train")),
            "data": self.store.hash,
            "tokenizer": self.store.tokenizer_hash,
            "source": self.store.source,
            "target": self.store.target,
        }

    def _machine(self) -> Report:
        """What else the last bits depend on."""
        device = self.world.device
        bfloat16 = device.type == "cpu" and self.objective.dtype is torch.bfloat16  # a GPU always has it
        return {
            "onehop": __version__,
            "torch": torch.__version__,
            "device": device_name(device) + ", bfloat16" * bfloat16,
            "threads": torch.get_num_threads(),
            "processes": self.world.size,
        }

    def _note_machine(self) -> None:
        """Note the machine of the next steps: on another machine the last bits may differ."""
        if self.progress.step >= self.settings.train.steps or self.stop:
            return
        machine = self._machine()
        machines = self.run.metadata().get("machines", []) if self.world.is_main else []
        known = [{**earlier, **machine} == earlier for earlier in machines]
        if self.world.any(not all(known)):  # only the main process has read them
            self.progress = replace(self.progress, exact=False)
            self.callback.said("It was started on another machine or with other threads: the last bits may differ.")
        if self.world.is_main and not (known and known[-1]):
            self.run.note(machines=[*machines, {"from_step": self.progress.step, **machine}])

    def _find_budget(self) -> int:
        """The largest token budget that fits into memory, the same in every process."""
        budget = self.world.min(max_token_budget(self.objective, self.settings, self.world.device))
        self.callback.said(f"Batches of {budget:,} source and target tokens fit into memory.")
        return budget

    def _make_step(self) -> PlainStep | CudaGraphStep:
        """The step for this device: compiled with fixed shapes on GPUs, captured as a CUDA graph on a single one."""
        shapes = self._fixed_shapes() if self.compiled else None
        plain = PlainStep(self.objective, self.parallel, self.optimizer, self.settings.train, self.world, shapes)
        return plain if shapes is None or self.world.size > 1 else CudaGraphStep(plain, shapes)

    def _fixed_shapes(self) -> FixedShapes:
        """Shapes that hold nearly every batch of an epoch. A larger batch costs a recompilation."""
        longest, size = self.settings.model.max_length, self.world.size
        rows = self.budget if size == 1 else -(-self.budget // size) + longest
        most = Epoch(self.pairs_of(0), self.budget, self.settings.train.seed, 0).most_sentences
        return FixedShapes(rows, int(1.1 * most) + rows // longest + 2, longest)

    def _resume(self) -> None:
        checkpoint = self.run.latest()
        if self.world.is_main:
            self.run.rewind_metrics(checkpoint.progress.step if checkpoint else -1)
        if checkpoint is None:
            if self.settings.train.start_from:
                self._start_from(initial_model(self.settings, self.store, self.model))
            return
        check_resumable(checkpoint, self.model, self.run.folder(checkpoint.progress.step))
        load_weights(self.model, checkpoint.weights)
        load_optimizer(self.model, self.optimizer, checkpoint.optimizer)
        if self.ema:
            self.ema.load(checkpoint.optimizer)
        self.progress = checkpoint.progress
        self._stop_early()
        done = self.progress.step >= self.settings.train.steps
        message = "All {} steps are done already." if done else "Resuming from step {}."
        self.callback.said(message.format(self.progress.step))

    def _start_from(self, start: StoredModel) -> None:
        """Initialise the weights from another model."""
        load_weights(self.model, start.weights())
        if self.ema:
            self.ema = EMA(self.model, self.settings.train.ema)
        if self.world.is_main:
            self.run.note(started_from=start.hash)

    def stream(self) -> Iterator[Update]:
        """Yield the updates from the present position on."""
        p = self.progress
        return updates(self.pairs_of, self.settings, self.budget, p.epoch, p.batch, self.task)

    def pairs_of(self, epoch: int) -> Pairs:
        """The pairs of an epoch: those of the store, or segmented again with BPE-dropout."""
        if self.resegmenter:
            return self.resegmenter.epoch(epoch)
        return self.store.pairs("train", self.settings.train.weights)

    def _report(self, update: Update, rate: float, result: StepResult, seconds: float) -> Report:
        """Report a step with its speed, as a share of the measured peak of matrix products."""
        nll = result.nll / update.tokens
        flops = update_flops(self.settings.model, self.vocab_size, update.src_tokens, update.tgt_tokens)
        flops *= 2 if self.settings.train.r_drop else 1
        speed = flops / seconds / self.world.size
        self.peak = max(self.peak, speed)  # it was measured too low if the machine was busy then
        return {
            "step": self.progress.step,
            "epoch": update.epoch,
            "loss": result.objective / update.tokens,
            "nll": nll,
            "perplexity": math.exp(min(nll, 50.0)),
            "learning_rate": rate,
            "gradient": result.norm,
            "tokens_per_second": update.tgt_tokens / seconds,
            "seconds": seconds,
            "share_of_peak": speed / self.peak,
        }

    def _note_split(self, step: int, parts: int) -> None:
        """Note that a step did not fit into memory: from here on the last bits may differ."""
        self.progress = replace(self.progress, exact=False)
        text = f"Step {step} did not fit into memory and was split into {parts} parts."
        self.callback.said(f"{text} From here on a resumed run may differ in the last bits.")
        self.run.note(split_at=[*self.run.metadata().get("split_at", []), step])

    def _diverged_error(self, step: int, update: Update, result: StepResult) -> DivergedError:
        """The error for a step with NaN or infinity. Its batch is saved for inspection."""
        file = self.run.path / f"not-finite-step-{step}.npz"
        if self.world.is_main:
            with run_write_errors(file):
                np.savez(file, **{f"{n}_{i}": a for i, b in enumerate(update.batches) for n, a in vars(b).items()})
        return DivergedError(
            f"The loss is {result.objective / update.tokens} and the gradient's norm {result.norm} at step {step} "
            f"(epoch {update.epoch}).",
            f"The weights were not touched and the batch is in {file}; "
            "train in another folder with a lower train.learning_rate or train.clip=1.0.",
        )

    def _write(self, report: Report) -> None:
        """Append a line to the metrics file."""
        if self.world.is_main:
            self.run.report(report)

    def _validate(self) -> None:
        """The loss on the validation pairs, and the validator's scores."""
        report = {"step": self.progress.step, **self.validation(self.ema, self.budget)}
        self._write({k: v for k, v in report.items() if k != "samples"})
        self.callback.validated(report)
        self._update_best(report)
        self._stop_early()

    def _update_best(self, report: Report) -> None:
        """Remember the best score and count the validations since; with early stopping, keep its weights."""
        train, p = self.settings.train, self.progress
        score = report["bleu"] if train.watch == "bleu" else -report["valid_nll"]
        better = p.best is None or score > p.best
        self.progress = replace(p, best=score if better else p.best, since_best=0 if better else p.since_best + 1)
        if better and train.patience:
            weights = to_arrays(self.ema.weights) if self.ema else weight_arrays(self.model)
            if self.world.is_main:
                self.run.save_best(weights, self.progress.step)
        elif better and self.world.is_main:
            self.run.forget_best()

    def _stop_early(self) -> None:
        """Stop after `patience` validations without a better score, also on resume."""
        train = self.settings.train
        if train.patience and self.progress.since_best >= train.patience:
            self.stop.reason = f"no better {train.watch} in {train.patience} validations"

    def _save(self) -> None:
        """Write a checkpoint. Every process must call it."""
        train, optimizer = self.settings.train, optimizer_arrays(self.model, self.optimizer)
        if self.ema:
            optimizer |= to_arrays({f"ema.{name}": p for name, p in self.ema.weights.items()})
        checkpoint = Checkpoint(self.progress, weight_arrays(self.model), optimizer)
        if self.world.is_main:
            self.run.save(checkpoint, max(train.keep, train.average), train.save_every)
        self.world.wait()

    def _stored(self) -> StoredModel:
        """The result with everything a translator needs. Every process must call it.

        Its weights are those of the best validation with early stopping, else the EMA, else the average of the last
        checkpoints.
        """
        best = self.run.best() if self.settings.train.patience else None
        if best is not None:
            weights, steps = best
        elif self.ema:
            weights, steps = to_arrays(self.ema.weights), [self.progress.step]
        else:
            weights, steps = self.run.averaged(self.settings.train.average)
        state = {"step": self.progress.step, "averaged_steps": steps, "exact": self.progress.exact}
        provenance = {**self.run.metadata(), **state}
        return StoredModel(
            settings=self.settings,
            tokenizer=self.store.tokenizer,
            source=self.store.source,
            target=self.store.target,
            provenance=provenance,
            tensors=weights,
        )


def has_fixed_shapes(model: ModelSettings) -> bool:
    """Whether padding to fixed shapes is of use: not for images, nor for heads too wide for the flash kernel."""
    return model.kind != "vision" and max(model.key_width, model.value_width) <= kernels.FLASH_MAX_WIDTH
