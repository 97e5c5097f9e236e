"""A server in its own process, for the benchmarks of serving."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import httpx


@contextlib.contextmanager
def serving(python: Sequence[str], options: Sequence[str]) -> Iterator[tuple[subprocess.Popen, str]]:
    """Run `onehop serve` by these arguments of Python; the value is the process and its address, once it is healthy."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, *python, "serve", "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/health", timeout=60).status_code == 200:
                    break
            time.sleep(0.1)
        else:
            raise SystemExit("The server ended before it was healthy.")
        yield process, url
    finally:
        process.terminate()
        process.wait()
