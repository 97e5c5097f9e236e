"""The application under uvicorn, in one process or several."""

import gc
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount
from starlette.types import ASGIApp

from onehop.data.worker_pool import when_parent_ends
from onehop.decoding.ctranslate2_engine import cores
from onehop.errors import ModelChangedError, SettingsError
from onehop.pipelines.route import Pair, all_routes
from onehop.server.access_log import make_stderr_non_blocking
from onehop.server.app import Application
from onehop.server.explore import Explorers
from onehop.server.metrics import SHARED_FOLDER, Metrics
from onehop.server.service import Service
from onehop.server.settings import ServerSettings
from onehop.server.slow_clients import TimeoutProtocol
from onehop.server.start import ServeOptions
from onehop.server.temporary import own_folder, remove_abandoned
from onehop.storage.model_label import check_unchanged, describe
from onehop.storage.registry import short_name

# The variable by which the processes of one server receive their configuration.
VARIABLE = "ONEHOP_SERVE"
# After a stop signal, running work gets a little longer than a request may take.
_GRACE_SECONDS = 5


class _Announcing(uvicorn.Server):
    """A server that prints its address and languages once it listens."""

    line = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                _announce(host, port, self.line)


def _announce(host: str, port: int, line: str) -> None:
    """Print to standard error, since standard output has the access log."""
    where = f"onehop serves at http://{f'[{host}]' if ':' in host else host}:{port}"
    print(f"{where}\n{line}", file=sys.stderr, flush=True)


def models_line(models: Sequence[Path]) -> str:
    """The models and language pairs, in one line."""
    by_pair: dict[Pair, list[str]] = {}
    for path in models:
        by_pair.setdefault(describe(path).pair, []).append(short_name(path))
    direct = [f"{a} → {b} ({' or '.join(names)})" for (a, b), names in by_pair.items()]
    through = [" → ".join([a, *(b for _, b in legs)]) for (a, _), legs in all_routes(by_pair).items() if len(legs) > 1]
    return f"onehop translates {', '.join([*direct, *through])}"


def run(models: Sequence[Path], settings: ServerSettings, options: ServeOptions, **engine: Any) -> None:
    """Serve until a signal arrives; then finish running requests."""
    # uvicorn raises the signal again at the end, and the parent process must see that signal.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    line = models_line(models)
    engine["threads"] = engine.get("threads") or max(1, cores() // options.workers)
    plan: dict[str, Any] = {"models": [str(path) for path in models], "settings": asdict(settings), "engine": engine}
    plan["explore"], plan["hosts"], plan["files"] = options.explores, options.hosts, None
    plan["hashes"] = [describe(path).hash for path in models]
    _check_address(options.host, options.port)
    remove_abandoned("files")
    app = application(plan)  # with several processes too, so that an error is reported once, and here
    common = _uvicorn_options(settings, options)
    if options.workers == 1:
        server = _Announcing(uvicorn.Config(app, **common))
        server.line = line
        server.run()
        return
    del app
    gc.collect()  # it is full of reference cycles, and the processes load their own models
    os.environ[SHARED_FOLDER], plan["files"] = str(own_folder("metrics")), str(own_folder("files"))
    os.environ[VARIABLE] = json.dumps(plan)
    _announce(options.host, options.port, line)
    try:
        uvicorn.run("onehop.server.run:from_environment", factory=True, workers=options.workers, **common)
    finally:
        _remove_folders(plan)


def _remove_folders(plan: dict[str, Any]) -> None:
    """Remove the folders that several processes shared."""
    for folder in (os.environ[SHARED_FOLDER], plan["files"]):
        shutil.rmtree(folder, ignore_errors=True)


def _uvicorn_options(settings: ServerSettings, options: ServeOptions) -> dict[str, Any]:
    return {
        "host": options.host,
        "port": options.port,
        "http": TimeoutProtocol,
        "ws": "none",
        "access_log": False,
        "log_config": None,  # its handlers would keep the original stderr, and could block on its reader
        "log_level": "error",  # a warning per malformed request would let strangers fill the log
        "server_header": False,
        "timeout_graceful_shutdown": int(settings.answer_seconds + _GRACE_SECONDS),
        "proxy_headers": options.proxies is not None,
        "forwarded_allow_ips": options.proxies or "",
    }


def _check_address(host: str, port: int) -> None:
    """Check that the address can be bound, before a model is read."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address[:2], family=family).close()
    except OSError as e:
        # getaddrinfo's error numbers are negative, and it has its own messages.
        reason = (os.strerror(e.errno) if e.errno is not None and e.errno > 0 else str(e.strerror)).lower()
        raise SettingsError(
            f"{host}:{port} cannot be listened on: {reason}.", "Choose another --host or --port."
        ) from None


def application(plan: dict[str, Any]) -> ASGIApp:
    settings = ServerSettings(**{**plan["settings"], "origins": tuple(plan["settings"]["origins"])})
    metrics = Metrics()
    TimeoutProtocol.header_seconds = settings.read_seconds
    TimeoutProtocol.response_seconds = settings.answer_seconds
    TimeoutProtocol.most_connections = settings.max_connections
    paths, hashes = [Path(path) for path in plan["models"]], plan["hashes"]
    services = [Service.load(path, settings, metrics, **plan["engine"]) for path in paths]
    explorers = Explorers.of(paths, plan["engine"]["device"], hashes) if plan["explore"] else None
    folder = Path(plan["files"]) if plan["files"] else None
    app = Application(services, settings, metrics, explorers=explorers, hosts=plan["hosts"], folder=folder).asgi
    TimeoutProtocol.malformed = app.malformed
    make_stderr_non_blocking(metrics.dropped_lines)
    return app


def from_environment() -> ASGIApp:
    when_parent_ends(_stop)
    plan = json.loads(os.environ[VARIABLE])
    try:
        for path, expected in zip(plan["models"], plan["hashes"], strict=True):
            check_unchanged(path, expected)
    except ModelChangedError as e:  # a restarted worker must not serve another model than the others
        return Starlette(routes=[Mount("/", JSONResponse({"error": str(e)}, 503))])
    return application(plan)


def _stop() -> None:
    """Stop as if the parent process had sent the signal: its workers would keep the port."""
    _remove_folders(json.loads(os.environ[VARIABLE]))
    signal.raise_signal(signal.SIGTERM)
