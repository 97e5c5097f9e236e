"""Where operating systems differ: the cores and memory that this process may use, and syncing to disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY_IF_UNKNOWN = 4 << 30  # bytes
_GLIBC_BLOCK = (32 << 20) - (64 << 10)  # glibc adapts to freed blocks of up to 32 MiB, its own header included
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # glibc's malloc.h
_GLIBC_MMAP_MAX = 65536  # its default


def available_cores() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def omp_threads() -> int | None:
    """The number of threads that OMP_NUM_THREADS allows, if it is set."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return int(limit) if limit.isdecimal() and int(limit) > 0 else None


def available_memory() -> int:
    """Free bytes of main memory: the machine's, or its control group's if that is less."""
    machine, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    has_sysconf = hasattr(os, "sysconf")  # not on Windows
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if has_sysconf else MEMORY_IF_UNKNOWN
    if machine.exists():
        lines = dict(line.split(":") for line in machine.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = (group / "memory.max", group / "memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        free = min(free, int(limit.read_text()) - int(used.read_text()) + page_cache_bytes(group / "memory.stat"))
    return free


def page_cache_bytes(statistics: Path) -> int:
    """Bytes of the page cache of a control group, which the kernel frees when memory is needed."""
    lines = statistics.read_text().splitlines() if statistics.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def keep_freed_memory() -> None:
    """Let glibc keep up to 64 MiB of freed memory in each arena, for the next allocation.

    Otherwise it returns memory to the kernel and faults it in again, page by page, in every batch of a small model. It
    keeps twice the largest block that was allocated by mmap and freed, unless MALLOC_ variables set a limit. So one
    such block is allocated and freed; its pages are never touched.
    """
    bytes(_GLIBC_BLOCK)


@contextmanager
def all_freed_memory_kept() -> Iterator[None]:
    """Let glibc keep freed memory in blocks of any size within the block, and return it to the kernel at the end.

    A training step allocates the same blocks as the one before. Otherwise the large ones are faulted in each time.
    """
    import ctypes  # only training needs it

    libc = ctypes.CDLL(None) if os.name == "posix" else None
    if libc is None or not hasattr(libc, "mallopt"):  # another C library
        yield
        return
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        # glibc adapts to blocks no longer, so these are the thresholds that `keep_freed_memory` leads to.
        libc.mallopt(_M_MMAP_MAX, _GLIBC_MMAP_MAX)
        libc.mallopt(_M_MMAP_THRESHOLD, _GLIBC_BLOCK)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _GLIBC_BLOCK)
        libc.malloc_trim(0)


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk, so that it survives a power cut."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
