"""`onehop prepare --ray`: the tasks of a sharded store on the nodes of a cluster.

Every node must see the store's folder. Files are read on the node where the command was started.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, no_type_check

from onehop.cluster.connection import alive_nodes, in_one_line, joined
from onehop.config import Settings
from onehop.data.chunks import Plain, RawChunk
from onehop.data.corpus import ParallelFile
from onehop.data.prepare import prepare
from onehop.data.shards import PART_CHUNKS, make_shards, raw_parts
from onehop.data.store import Store
from onehop.errors import OnehopError, StoreError

_READ_AHEAD = 4  # parts of a file that may wait for a task
_TASKS_PER_CORE = 2  # submitted at the same time


def prepare_on_cluster(
    settings: Settings, out: Path, *, address: str, part_chunks: int = PART_CHUNKS, **options: Any
) -> Store:
    """Make a store in shards; `options` are those of `prepare`. A task whose node dies runs again on another."""
    with joined(address):
        cores = max(1, int(sum(node.get("CPU", 0) for node in alive_nodes())))
        make = partial(make_shards, runner=_ClusterRunner(cores), partitions=cores, part_chunks=part_chunks)
        return prepare(settings, out.absolute(), make=make, **options)  # tasks run in other working directories


class _ClusterRunner:
    """Runs tasks on the nodes, in order and with bounded memory."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def map(self, task: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        import ray

        remote: Any = ray.remote(num_cpus=1, max_retries=-1, scheduling_strategy="SPREAD")(_run_task)
        pending: deque[Any] = deque()
        with in_one_line():
            for item in items:
                pending.append(remote.remote(task, *item))
                if len(pending) >= _TASKS_PER_CORE * self.cores:
                    yield ray.get(pending.popleft())
            while pending:
                yield ray.get(pending.popleft())

    def parts_of(self, file: ParallelFile, plain: Plain, chunks: int) -> Iterator[Any]:
        """References to the parts, which go directly from the reader to the tasks."""
        import ray

        on_this_node: Any = {
            "num_cpus": 0,
            "num_returns": "streaming",
            "label_selector": {"ray.io/node-id": ray.get_runtime_context().get_node_id()},
            "_generator_backpressure_num_objects": _READ_AHEAD,
        }
        read: Any = ray.remote(**on_this_node)(_read)
        yield from read.remote(file, plain, chunks)


@no_type_check  # a type-checking wrapper would hide from Ray that this is a generator
def _read(file: ParallelFile, plain: Plain, chunks: int) -> Iterator[list[RawChunk]]:
    yield from raw_parts(file, plain, chunks)


def _run_task(task: Callable[..., Any], *item: Any) -> Any:
    """The result of a task; a full or unshared disk is reported in one line."""
    try:
        return task(*item)
    except OnehopError:
        raise
    except OSError as e:
        remedy = "Put the store on a shared disk with free space, and run the same command again."
        raise StoreError(f"A node cannot use {e.filename or 'the store'}: {e.strerror or e}.", remedy) from None
