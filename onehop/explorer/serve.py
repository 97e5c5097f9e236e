"""`onehop explore`: the page at an address of this machine alone, opened in the browser."""

import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import urlencode

from onehop.errors import OnehopError, SettingsError, require
from onehop.explorer.content import Explorer

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
    from onehop.explorer.routes import explorer_routes

    # A page of another name that resolves to this machine must not read along.
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    app = Starlette(routes=explorer_routes(lambda: explorer), middleware=[guard, Middleware(CrossOriginGuard)])
    with listening(port) as bound:
        address = f"http://{HOST}:{bound.getsockname()[1]}/"
        say(f"The explorer is at {address} (Ctrl-C ends it).")
        warming = threading.Thread(target=warm_up, args=[explorer])
        opening = threading.Timer(0.5, webbrowser.open, [address + fragment(edits)])
        warming.start()
        if browser:
            opening.start()
        try:
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[bound])
        finally:
            opening.cancel()
            warming.join()  # torch in a thread that the interpreter's end cuts off aborts the process


def warm_up(explorer: Explorer) -> None:
    """Have the opening sentence ready when the page asks; whatever is wrong with it, the page is told then."""
    with suppress(OnehopError):
        explorer.trace(explorer.opening)


def fragment(edits: Sequence[str]) -> str:
    """The part of an address that makes the page open with edits."""
    return "#" + urlencode([("edit", edit) for edit in edits]) if edits else ""


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
