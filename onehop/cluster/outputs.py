"""The output folder of a translation on a cluster: finished files, and the partial output of a stopped job."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from onehop.atomic import json_object, write_json
from onehop.cluster.connection import STOPPED
from onehop.cluster.inputs import InputFile, ipc_table
from onehop.errors import TextError, check_folder, write_errors
from onehop.machine import sync

_STATE = Path(".onehop")
_writing = partial(write_errors, remedy="Check the folder.", full=f"Free space. {STOPPED}")


class OutputFolder:
    """A folder with one output for each input; its state is in `.onehop/`."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        check_folder(path)
        self.path, self.state = path, path / _STATE / "cluster"
        self.identity = json.loads(json.dumps(identity))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, and check that its content was made with the same model and options."""
        with _writing(self.path):
            self.state.mkdir(parents=True, exist_ok=True)
            try:
                with FileLock(self.state / "lock", timeout=0):
                    self._check_identity()
                    yield
            except Timeout:
                what = f"Another process is translating into {self.path}."
                raise TextError(what, "Wait for it, or give another -o.") from None

    def _check_identity(self) -> None:
        file = self.state / "job.json"
        if not file.exists():
            write_json(file, self.identity)
        elif _read_json(file) != self.identity:
            what = f"{self.path} was started with another model or other options."
            raise TextError(what, "Give another -o, or remove its .onehop folder to translate all files again.")

    def is_finished(self, input_: InputFile) -> bool:
        known = _read_json(self._record(input_))
        return (self.path / input_.name).exists() and known.get("finished") == input_.version

    def _record(self, input_: InputFile) -> Path:
        return self.state / f"{input_.name}.json"

    def file(self, input_: InputFile) -> "OutputFile":
        kind = _ParquetOutput if input_.format == "parquet" else OutputFile
        return kind(self.path / input_.name, self._record(input_), input_)


def _read_json(file: Path) -> dict[str, Any]:
    with suppress(OSError):
        return json_object(file.read_bytes()) or {}
    return {}


class OutputFile:
    """An output that is written window by window and renamed when it is complete."""

    def __init__(self, path: Path, record: Path, input_: InputFile) -> None:
        self.path, self.record, self.input = path, record, input_
        self.partial = record.with_suffix(".partial")
        state = _read_json(record)
        resumes = state.get("begun") == input_.version and self._can_resume(state)
        self.windows, self.lines, self.bytes = (state[n] if resumes else 0 for n in ("windows", "lines", "bytes"))
        self.consumed: int = state["consumed"] if resumes else 0

    def _can_resume(self, state: dict[str, Any]) -> bool:
        return self.partial.exists() and self.partial.stat().st_size >= state.get("bytes", 0)

    def __enter__(self) -> "OutputFile":
        with _writing(self.path):
            self.record.parent.mkdir(parents=True, exist_ok=True)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        return self

    def _open(self) -> None:
        self._file = self.partial.open("r+b" if self.bytes else "wb")
        self._file.truncate(self.bytes)
        self._file.seek(self.bytes)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes, lines: int, consumed: int) -> None:
        """Append a window; a restart resumes after it."""
        with _writing(self.path):
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
            self.windows, self.lines = self.windows + 1, self.lines + lines
            self.bytes, self.consumed = self.bytes + len(data), consumed
            state = {"begun": self.input.version, "windows": self.windows, "lines": self.lines}
            write_json(self.record, {**state, "bytes": self.bytes, "consumed": consumed})

    def finish(self) -> None:
        with _writing(self.path):
            self.__exit__()
            sync(self.partial)
            self.partial.replace(self.path)
            sync(self.path.parent)
            write_json(self.record, {"finished": self.input.version, "lines": self.lines})


class _ParquetOutput(OutputFile):
    """A Parquet file. Its index is at the end, so a stopped one starts from the beginning."""

    def _can_resume(self, state: dict[str, Any]) -> bool:
        return False

    def _open(self) -> None:
        self._writer: Any = None

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, data: bytes, lines: int, consumed: int) -> None:
        import pyarrow.parquet as pq

        table = ipc_table(data)
        with _writing(self.path):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self.partial, table.schema)
            if table.num_rows:
                self._writer.write_table(table)
            self.windows, self.lines, self.consumed = self.windows + 1, self.lines + lines, consumed
