"""Chromium and a server of the explorer's page, for the benchmarks that open it."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from playwright.sync_api import Browser, sync_playwright
from starlette.applications import Starlette

from onehop.explorer.content import Explorer
from onehop.explorer.routes import explorer_routes
from onehop.explorer.serve import HOST, listening

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def served(explorer: Explorer) -> Iterator[str]:
    """Serve the explorer in a thread; the value is its address."""
    bound = listening(0)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=explorer_routes(lambda: explorer)), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    yield f"http://{HOST}:{bound.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)
