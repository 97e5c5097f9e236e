"""`onehop explore`: serve the page on this machine only, and open it in the browser."""

import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from onehop.errors import OnehopError, SettingsError, require
from onehop.explorer.content import Explorer

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

HOST = "127.0.0.1"
PORT = 8117


def serve(
    explorer: Explorer, *, port: int | None, browser: bool, say: Callable[[str], None], edits: Sequence[str] = ()
) -> None:
    require("starlette", "uvicorn", instead="write a file with --export")
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from onehop.explorer.routes import CrossOriginGuard

    # Against DNS rebinding: a foreign name that resolves to this machine must not be served.
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    app = Starlette(routes=routes_of(explorer), middleware=[guard, Middleware(CrossOriginGuard)])
    with listening(port) as bound:
        address = f"http://{HOST}:{bound.getsockname()[1]}/{fragment(explorer, edits)}"
        say(f"The explorer is at {address} (Ctrl-C stops it).")
        warming = threading.Thread(target=warm_up, args=[explorer])
        opening = threading.Timer(0.5, webbrowser.open, [address])
        warming.start()
        if browser:
            opening.start()
        try:
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[bound])
        finally:
            opening.cancel()
            warming.join()  # a thread that runs torch at interpreter exit aborts the process


def routes_of(explorer: Explorer) -> "list[BaseRoute]":
    """The routes of the page; those of the model to compare with are under /other."""
    from starlette.routing import Mount

    from onehop.explorer.routes import explorer_routes

    other = explorer.other
    beside = [] if other is None else [Mount("/other", routes=explorer_routes(lambda: other))]
    return [*explorer_routes(lambda: explorer), *beside]


def warm_up(explorer: Explorer) -> None:
    """Compute the opening sentence in advance. An error is shown when the page requests it."""
    with suppress(OnehopError):
        explorer.trace(explorer.opening)
        if explorer.other is not None:
            explorer.other.trace(explorer.opening)


def fragment(explorer: Explorer, edits: Sequence[str]) -> str:
    """The fragment of the URL that opens the page with edits and the other model."""
    against = [] if explorer.other is None else [("against", f"@model:{explorer.other.tracer.name}")]
    words = [*against, *(("edit", edit) for edit in edits)]
    return "#" + urlencode(words) if words else ""


def listening(port: int | None) -> socket.socket:
    """A socket at the given port; by default at the usual port, or at any free one."""
    for wanted in (PORT, 0) if port is None else (port,):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, wanted))
            bound.listen()  # clients that connect before the server has started wait instead of being refused
        except (OSError, OverflowError):
            bound.close()
        else:
            return bound
    raise SettingsError(f"Port {port} is not available.", "Choose another with --port, or leave it out.")
