"""Little memory (``ulimit -v``): whether this process has, and how libraries fail that get none."""

from __future__ import annotations

import mmap
import sys

if sys.platform != "win32":  # loaded now: when memory has run out, nothing can be
    import resource

TOO_LITTLE = "takes more memory than there is"
LITTLE = 2**33  # bytes of addresses; shells of clusters have larger limits, where no run ends
ROOM = 2**25  # bytes of addresses for a thread: its stack, and what it begins with


def is_scarce() -> bool:
    """Whether the address space of this process is limited to little."""
    if sys.platform == "win32":
        return False
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit != resource.RLIM_INFINITY and limit < LITTLE


def ran_out(error: BaseException) -> bool:
    """Whether an error is how libraries fail that get no memory, where there is little."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, ModuleNotFoundError):
        starved = False
    elif isinstance(error, OSError):
        starved = error.errno is None  # a library that does not load
    else:
        starved = isinstance(error, SystemError | ImportError) or "start new thread" in str(error)
    return starved and is_scarce()


def has_room() -> bool:
    """Whether a thread can start: without room for one, Python waits for its begin for ever."""
    if is_scarce():
        try:
            mmap.mmap(-1, ROOM).close()
        except OSError:
            return False
    return True
