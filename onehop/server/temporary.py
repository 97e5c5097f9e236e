"""Folders of a running server, which are removed at its end, or by the next server if it was killed."""

import glob
import os
import shutil
import socket
import tempfile
from pathlib import Path


def own_folder(kind: str) -> Path:
    """A new folder of this server, for one kind of files."""
    remove_abandoned(kind)
    return Path(tempfile.mkdtemp(prefix=f"{_prefix(kind)}{os.getpid()}-"))


def remove_abandoned(kind: str) -> None:
    """Remove the folders of this kind that killed servers have left."""
    prefix = _prefix(kind)
    for folder in Path(tempfile.gettempdir()).glob(f"{glob.escape(prefix)}*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if os.name == "posix" and pid.isdecimal() and not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, as far as the system tells: on Windows signal 0 would be Ctrl-C."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, but another user's
    return True


def _prefix(kind: str) -> str:
    # Containers may share a folder, but not the numbers of processes.
    return f"onehop-{kind}-{socket.gethostname()}-"
