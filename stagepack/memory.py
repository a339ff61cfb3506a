"""Limits of this process's memory (``ulimit -v``), and how libraries fail that get no more."""

from __future__ import annotations

import mmap
import sys

if sys.platform != "win32":  # loaded now: when memory has run out, nothing can be
    import resource

TOO_LITTLE = "takes more memory than there is"
ROOM = 2**25  # bytes of addresses for a thread: its stack, and what it begins with


def is_limited() -> bool:
    """Whether the address space of this process is limited."""
    if sys.platform == "win32":
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def ran_out(error: BaseException) -> bool:
    """Whether an error is how libraries fail that get no more memory, where it is limited.

    Parameters
    ----------
    error : BaseException
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, ModuleNotFoundError):
        starved = False
    elif isinstance(error, OSError):
        starved = error.errno is None  # a library that does not load
    else:
        starved = isinstance(error, SystemError | ImportError) or "start new thread" in str(error)
    return starved and is_limited()


def has_room() -> bool:
    """Whether a thread can start: without room for one, Python waits for its begin for ever."""
    if is_limited():
        try:
            mmap.mmap(-1, ROOM).close()
        except OSError:
            return False
    return True
