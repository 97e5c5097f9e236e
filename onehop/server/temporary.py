"""Temporary folders of a server, removed at its end, or by the next server if it was killed."""

import glob
import os
import shutil
import socket
import tempfile
from pathlib import Path


def own_folder(kind: str) -> Path:
    """A new temporary folder of this server."""
    remove_abandoned(kind)
    return Path(tempfile.mkdtemp(prefix=f"{_prefix(kind)}{os.getpid()}-"))


def remove_abandoned(kind: str) -> None:
    """Remove the folders of this kind that killed servers left behind."""
    prefix = _prefix(kind)
    for folder in Path(tempfile.gettempdir()).glob(f"{glob.escape(prefix)}*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if os.name == "posix" and pid.isdecimal() and not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Whether a process exists, as far as is known: on Windows signal 0 would be Ctrl-C."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, but belongs to another user
    return True


def _prefix(kind: str) -> str:
    # Containers may share a folder, but not process ids.
    return f"onehop-{kind}-{socket.gethostname()}-"
