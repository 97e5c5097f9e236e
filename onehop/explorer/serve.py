"""`onehop explore`: the page at an address of this machine alone, opened in the browser."""

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

    from onehop.explorer.cross_origin import CrossOriginGuard

    # A page of another name that resolves to this machine must not read along.
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    app = Starlette(routes=routes_of(explorer), middleware=[guard, Middleware(CrossOriginGuard)])
    with listening(port) as bound:
        address = f"http://{HOST}:{bound.getsockname()[1]}/{fragment(explorer, edits)}"
        say(f"The explorer is at {address} (Ctrl-C ends it).")
        warming = threading.Thread(target=warm_up, args=[explorer])
        opening = threading.Timer(0.5, webbrowser.open, [address])
        warming.start()
        if browser:
            opening.start()
        try:
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[bound])
        finally:
            opening.cancel()
            warming.join()  # torch in a thread that the interpreter's end cuts off aborts the process


def routes_of(explorer: Explorer) -> "list[BaseRoute]":
    """The page and its questions; those to the model that it is compared with lie under /other."""
    from starlette.routing import Mount

    from onehop.explorer.routes import explorer_routes

    other = explorer.other
    beside = [] if other is None else [Mount("/other", routes=explorer_routes(lambda: other))]
    return [*explorer_routes(lambda: explorer), *beside]


def warm_up(explorer: Explorer) -> None:
    """Have the opening sentence ready when the page asks; whatever is wrong with it, the page is told then."""
    with suppress(OnehopError):
        explorer.trace(explorer.opening)
        if explorer.other is not None:
            explorer.other.trace(explorer.opening)


def fragment(explorer: Explorer, edits: Sequence[str]) -> str:
    """The part of an address that makes the page open with edits and beside the other model."""
    against = [] if explorer.other is None else [("against", f"@model:{explorer.other.tracer.name}")]
    words = [*against, *(("edit", edit) for edit in edits)]
    return "#" + urlencode(words) if words else ""


def listening(port: int | None) -> socket.socket:
    """A socket at the port asked for; else at the usual one, or any that is free."""
    for wanted in (PORT, 0) if port is None else (port,):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, wanted))
            bound.listen()  # who comes before the server has started waits, and is not refused
        except (OSError, OverflowError):
            bound.close()
        else:
            return bound
    raise SettingsError(f"Port {port} cannot be had.", "Choose another with --port, or leave it out.")
