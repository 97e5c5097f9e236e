"""Join a Ray cluster or start one on this machine, and report Ray's errors in one line."""

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onehop.errors import OnehopError, SettingsError, require

_LOCAL = "local"
# Windows of text are small, so a local cluster needs little shared memory.
_OBJECT_STORE_BYTES = 512 << 20
_CONNECT_SECONDS = 5.0
_STARTS = 3  # Ray waits 30 seconds for its own processes, which is short on a busy machine
_REGISTER_SECONDS = 600  # a worker that imports torch on busy cores may need minutes; Ray's default is one minute
_LOOPBACK = "127.0.0.1"
_LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
STOPPED = "Run the same command again: finished work is kept."


class ClusterError(OnehopError):
    """A Ray cluster cannot be reached, or work on it failed."""


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Connect to the cluster at `address`, or start one on this machine for "local", until the block ends.

    A local cluster listens on 127.0.0.1 only. Usage statistics are never sent.
    """
    require("ray")
    if address.startswith("ray://"):
        remedy = "Run the command on a node of the cluster, with --ray HOST:PORT or --ray auto."
        raise SettingsError(f"--ray {address} is an address for Ray's client, which cannot read local files.", remedy)
    _set_environment(address)
    import ray

    if ray.is_initialized():  # the caller has joined a cluster
        yield
        return
    if not _answers(address):
        raise _unreachable(address, ConnectionError())
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == _LOCAL:
        listens_on = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        if listens_on != _LOOPBACK:
            what = f"Ray was imported before, and a cluster would listen on {listens_on}."
            raise ClusterError(what, f"Set {_LOOPBACK_ONLY}=0 before Ray is imported.")
        options |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
        options["_system_config"] = {"worker_register_timeout_seconds": _REGISTER_SECONDS}
    with _without_banner():
        _init(address, options)
    for name in ("ray", "ray.data", "ray.train"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with in_one_line():
            yield
    finally:
        ray.shutdown()


def _set_environment(address: str) -> None:
    """Set the environment variables that Ray reads on import."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray's own progress messages; onehop shows what the user needs.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address == _LOCAL:
        # Ray's default on other systems. As `_node_ip_address`, Ray would replace 127.0.0.1 by the machine's address.
        os.environ[_LOOPBACK_ONLY] = "0"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")


def _init(address: str, options: dict[str, Any]) -> None:
    import ray

    for start in range(1, _STARTS + 1):
        try:
            ray.init(address, **options)
            return
        except Exception as e:  # Ray raises a plain Exception if its processes start too slowly
            ray.shutdown()
            if address != _LOCAL or start == _STARTS or isinstance(e, ValueError):
                raise _unreachable(address, e) from None


def _answers(address: str) -> bool:
    """Whether something listens at HOST:PORT; Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return True  # local, or auto
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def alive_nodes() -> list[dict[str, float]]:
    """The resources of each node, such as CPU and GPU."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in nodes if node["Alive"]]


@contextmanager
def _without_banner() -> Iterator[None]:
    """Suppress Ray's start-up output on stderr; its C++ core does not use Python's logging."""
    sys.stderr.flush()
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


def _unreachable(address: str, error: Exception) -> ClusterError:
    if address == _LOCAL:
        return ClusterError(f"Ray cannot start here: {error_line(error, 0)}", "See /tmp/ray/session_latest/logs.")
    return ClusterError(
        f"There is no Ray cluster at {address}, or this machine is not one of its nodes.",
        "Start one with `ray start --head`, join it here with `ray start --address=HOST:6379`, or give --ray local.",
    )


@contextmanager
def in_one_line() -> Iterator[None]:
    """Raise Ray's errors as errors of onehop; an OnehopError of a task is raised unchanged."""
    from ray.exceptions import GetTimeoutError, OutOfDiskError, OutOfMemoryError, RayError, RayTaskError

    try:
        yield
    except OnehopError:
        raise
    except RayError as e:
        if (cause := _cause_of(e)) is not None:
            raise cause from None
        if isinstance(e, OutOfDiskError):
            raise ClusterError("The disk of a node is full.", f"Free space in its /tmp/ray. {STOPPED}") from None
        if isinstance(e, OutOfMemoryError):
            remedy = f"Give fewer --workers or a smaller --batch-size. {STOPPED}"
            raise ClusterError("A node ran out of memory.", remedy) from None
        if isinstance(e, RayTaskError | GetTimeoutError):
            raise ClusterError(f"A task on the cluster failed: {error_line(e, -1)}", STOPPED) from e
        raise ClusterError(f"The cluster failed: {error_line(e, 0)}", STOPPED) from e


def _cause_of(error: BaseException | None) -> OnehopError | None:
    """The OnehopError inside the errors that Ray wraps around it, or None."""
    while error is not None:
        if isinstance(error, OnehopError):
            return type(error)(error.what, error.remedy) if type(error).__module__ == "onehop.errors" else error
        inner = getattr(error, "cause", None) or error.__cause__
        if isinstance(inner, OnehopError):
            return inner
        error = inner if inner is not error else None
    return None


def error_line(error: BaseException, index: int) -> str:
    """One line of an error's message, as a sentence."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[index].strip()[:300].rstrip(".") + "."
