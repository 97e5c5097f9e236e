"""`onehop translate --ray`: files through Ray Data, a pool of workers with loaded engines, outputs in order.

Ray Data reads windows of lines, distributes them to workers and returns the results in order. If a worker or node
dies, Ray repeats its windows elsewhere. The main process writes the outputs.
"""

import logging
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from filelock import FileLock

from onehop.atomic import write_whole
from onehop.cluster.connection import ClusterError, alive_nodes, joined
from onehop.cluster.inputs import Cells, Format, InputFile, Piece, find_inputs, header_of, is_url, pieces
from onehop.cluster.outputs import OutputFile, OutputFolder
from onehop.console import PrepareDisplay
from onehop.errors import OnehopError, SettingsError, TextError
from onehop.pipelines.bulk import BulkJob
from onehop.pipelines.pivot import LinePipeline
from onehop.storage.model_label import SUFFIX, check_unchanged, describe

_WARNINGS_SHOWN = 10
_ATTEMPTS = 4  # per window; if a worker dies in each, the job ends
_MOST_THREADS = 4  # default maximum of a CPU worker; more workers use cores better than more threads


@dataclass(frozen=True)
class _Done:
    """The result of a piece: output and warnings, or the error."""

    piece: Piece
    lines: int = 0
    data: bytes = b""
    warnings: list[tuple[int, list[str]]] = field(default_factory=list)
    error: OnehopError | None = None
    worker: str = ""


def translate_on_cluster(
    job: BulkJob,
    words: Sequence[str],
    out: Path,
    *,
    address: str,
    workers: int | None,
    fields: Sequence[str],
) -> None:
    """Translate files, folders, patterns and URLs into the folder `out`, one output for each input.

    Finished files of an earlier run are skipped. A file that cannot be read is reported at the end; the others are
    still translated.
    """
    inputs = find_inputs(words, out)
    if job.output != "text" and any(input_.format != "text" for input_ in inputs):
        raise SettingsError("--json and --n-best are for text files.", "Leave them out for TSV, JSONL and Parquet.")
    folder = OutputFolder(out, {**job.identity(), "fields": list(fields)})
    with folder.locked(), PrepareDisplay() as display:
        remaining = [input_ for input_ in inputs if not folder.is_finished(input_)]
        if len(remaining) < len(inputs):
            display.note(f"{len(inputs) - len(remaining):,} of {len(inputs):,} files were already finished")
        if remaining:
            with joined(address):
                _Translation(job, remaining, folder, fields, display).run(workers)
        display.note(f"{out}: {len(inputs):,} files")


class _Translation:
    def __init__(
        self,
        job: BulkJob,
        inputs: list[InputFile],
        folder: OutputFolder,
        fields: Sequence[str],
        display: PrepareDisplay,
    ) -> None:
        self.job, self.inputs, self.fields, self.display = job, inputs, fields, display
        self.outputs = [folder.file(input_) for input_ in inputs]
        self.consumed = [output.consumed for output in self.outputs]
        self.failed: dict[int, OnehopError] = {}
        self.workers: set[str] = set()
        self.lines = self.warned = 0

    def run(self, workers: int | None) -> None:
        pool = _pool_of(self.job, workers)
        sizes = [input_.size for input_ in self.inputs]
        self.display.stage("translating", None if None in sizes else sum(filter(None, sizes)), "bytes")
        if resumed := sum(self.consumed):
            self.display.resume(resumed)
        for number, results in groupby(self._results(pool), key=lambda done: done.piece.file):
            with self.outputs[number] as output:
                for done in results:
                    self._write_result(done, output, pool.size)
        restarts = max(0, len(self.workers) - pool.size)
        notes = [f"{restarts} workers restarted"] * bool(restarts) + [f"{self.warned:,} warnings"] * bool(self.warned)
        self.display.note(", ".join([f"{self.lines:,} lines translated", *notes]))
        if self.failed:
            what = f"{len(self.failed)} of {len(self.inputs)} files could not be translated."
            raise TextError(what, "Correct them and run the same command: finished files are kept.")

    def _write_result(self, done: _Done, output: OutputFile, pool_size: int) -> None:
        """Write a result; results of a failed file are dropped."""
        number, piece = done.piece.file, done.piece
        if done.worker not in self.workers:
            self.workers.add(done.worker)
            if len(self.workers) > pool_size:
                self.display.note("onehop: A worker died. Another one repeats its windows.")
        if number in self.failed:
            return
        if done.error is not None:
            self.failed[number] = done.error
            self.display.note(f"onehop: {done.error}")
            return
        if piece.window is None and piece.table is None:
            output.finish()
        else:
            output.write(done.data, done.lines, piece.consumed)
            self.lines += done.lines
        for line, warnings in done.warnings:
            self.warned += len(warnings)
            if self.warned <= _WARNINGS_SHOWN:
                self.display.note(f"onehop: line {line} of {self.inputs[number].url}: {'; '.join(warnings)}")
        self.display.advance(max(0, piece.consumed - self.consumed[number]))
        self.consumed[number] = max(self.consumed[number], piece.consumed)

    def _results(self, pool: "_Pool") -> Iterator[_Done]:
        """The results in the order of files and windows."""
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # its import has set another level
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.target_max_block_size = 1  # a window is a block: the work lost with a worker
        context.enable_progress_bars = False
        files = enumerate(zip(self.outputs, self.inputs, strict=True))
        rows = [{"file": pickle.dumps((i, output.windows, input_))} for i, (output, input_) in files]
        formats = [(input_.format, header_of(input_, self.fields)) for input_ in self.inputs]
        this_node = ray.get_runtime_context().get_node_id()
        on_this_node: Any = {"num_cpus": 0, "label_selector": {"ray.io/node-id": this_node}}
        attempts = ray.remote(**on_this_node)(_Attempts).remote()
        read_pieces: Any = partial(_read, gpu=pool.gpus > 0)
        worker: Any = _Worker
        worker_arguments = (
            replace(self.job, threads=pool.threads),
            _ship_models(self.job),
            formats,
            self.fields,
            attempts,
        )
        everywhere = all(is_url(input_.url) for input_ in self.inputs)
        dataset = (
            ray.data.from_items(rows, override_num_blocks=len(rows))
            # Local files are read on this node, files at URLs on any. Reading takes no core from the workers.
            .flat_map(read_pieces, num_cpus=0, label_selector=None if everywhere else {"ray.io/node-id": this_node})
            .map(
                worker,
                fn_constructor_args=worker_arguments,
                compute=ray.data.ActorPoolStrategy(size=pool.size, max_tasks_in_flight_per_actor=2),
                num_cpus=0 if pool.gpus else pool.threads,
                num_gpus=pool.gpus,
            )
        )
        for row in dataset.iter_rows():
            yield pickle.loads(row["done"])


# --- on the nodes ---------------------------------------------------------------------------------------------


def _read(row: dict[str, Any], *, gpu: bool) -> Iterator[dict[str, Any]]:
    number, skip, input_ = pickle.loads(row["file"])
    for piece in pieces(number, input_, skip, gpu=gpu):
        yield {"piece": pickle.dumps(piece)}


class _Attempts:
    """Counts the attempts at each window: one that keeps killing its worker must end the job."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()

    def begin(self, file: int, number: int) -> int:
        self.counts[file, number] += 1
        return self.counts[file, number]


class _Worker:
    """Translates pieces with an engine that is loaded once."""

    def __init__(
        self,
        job: BulkJob,
        shipped: "list[_ShippedModel]",
        formats: list[tuple[Format, list[str]]],
        fields: Sequence[str],
        attempts: Any,
    ) -> None:
        self.job, self.formats, self.fields = job, formats, fields
        self.shipped, self.attempts = shipped, attempts
        self.pipeline: LinePipeline | None = None
        self.name = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        piece: Piece = pickle.loads(row["piece"])
        try:
            done = self._translate(piece)
        except OnehopError as e:
            done = _Done(piece, error=e)
        # The source text is not sent back.
        kept = replace(piece, window=piece.window and replace(piece.window, lines=[]), table=piece.table and b"")
        return {"done": pickle.dumps(replace(done, piece=kept, worker=self.name))}

    def _translate(self, piece: Piece) -> _Done:
        if piece.window is None and piece.table is None:
            return _Done(piece, error=piece.error)
        import ray

        if ray.get(self.attempts.begin.remote(piece.file, piece.number)) > _ATTEMPTS:
            raise _worker_died(piece)
        if self.pipeline is None:
            job = replace(self.job, route=tuple(model.here() for model in self.shipped))
            self.pipeline = job.pipeline(job.translator())
        format, columns = self.formats[piece.file]
        if format == "text":
            assert piece.window is not None
            translated = self.job.translate(self.pipeline, piece.window)
            return _Done(piece, len(piece.window.lines), translated.data, translated.warnings)
        cells = Cells(piece, format, self.fields, columns)
        parts = [text.split("\n") for text in cells.texts]
        results = iter(self.pipeline.translate([part for lines in parts for part in lines]))
        texts = ["\n".join(next(results).text for _ in lines) for lines in parts]
        return _Done(piece, cells.count, cells.with_translations(texts))


def _worker_died(piece: Piece) -> ClusterError:
    where = f"window {piece.number} of a Parquet file"
    if piece.window:
        where = f"the lines from {piece.window.first} on of {piece.window.name}"
    remedy = "If memory ran out, give fewer --workers or a smaller --batch-size."
    return ClusterError(f"A worker died {_ATTEMPTS} times at {where}.", remedy)


@dataclass(frozen=True)
class _ShippedModel:
    """A model file for every node: by its path if the node has the same model there, else from the object store."""

    path: Path
    hash: str
    files: dict[str, Any]  # name -> reference to the bytes

    def here(self) -> Path:
        """The model's path on this node."""
        import ray

        with suppress(OnehopError):
            check_unchanged(self.path, self.hash)
            return self.path
        folder = Path(tempfile.gettempdir()) / f"onehop-models-{os.getuid()}" / self.hash
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):
                for name, content in self.files.items():
                    if not (folder / name).exists():
                        write_whole(folder / name, ray.get(content))
        except OSError as e:
            what = f"{os.uname().nodename} cannot keep the model in {folder}: {e.strerror or e}."
            raise ClusterError(what, "Free space there, or set TMPDIR for its `ray start`.") from None
        return folder / self.path.name


def _ship_models(job: BulkJob) -> list[_ShippedModel]:
    """The models of a job and their companion files. They are shipped only if there are other nodes."""
    import ray

    is_alone = len(alive_nodes()) == 1
    models = []
    for path in job.route:
        path = path.absolute()
        companions = sorted(path.parent.glob(f"{path.name.removesuffix(SUFFIX)}*"))
        files = {} if is_alone else {file.name: ray.put(file.read_bytes()) for file in companions if file.is_file()}
        models.append(_ShippedModel(path, describe(path).hash, files))
    return models


# --- how many workers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pool:
    """Workers, and the resources of each: CPU threads, or a share of a GPU."""

    size: int
    threads: int
    gpus: float


def _pool_of(job: BulkJob, workers: int | None) -> _Pool:
    """As many workers as the cluster can run, or as requested."""
    nodes = alive_nodes()
    gpus = sum(node.get("GPU", 0) for node in nodes)
    if (job.device or "").startswith("cuda"):
        if not gpus:
            raise ClusterError("The cluster has no GPU.", "Leave out --device, or add a node that has one.")
        size = workers or int(gpus)
        return _Pool(size, job.threads or 1, min(1.0, gpus / size))
    cores = [int(node.get("CPU", 0)) for node in nodes]
    if workers is None:
        threads = job.threads or min([_MOST_THREADS, *filter(None, cores)])
        return _Pool(max(1, sum(n // threads for n in cores)), threads, 0.0)
    threads = job.threads or max(1, sum(cores) // workers)
    threads = min(threads, max(cores))
    if sum(n // threads for n in cores) < workers:
        what = f"{workers} workers of {threads} threads need more cores than the cluster has."
        raise ClusterError(what, f"It has {sum(cores)}: give fewer --workers or --threads.")
    return _Pool(workers, threads, 0.0)
