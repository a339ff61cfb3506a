"""A run in little memory has a guard: libraries that get no more end the process without Python.

OpenBLAS leaves with code 1, C++ code of engines aborts; nothing in the process can answer that.
So where there is little memory the run goes on in a child, and the parent says what became of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from types import FrameType

from stagepack import memory
from stagepack.cli.terminal.screen import engines_silenced

_PARENT_DIED = 1  # PR_SET_PDEATHSIG of Linux's <sys/prctl.h>
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def guarded(ended: Callable[[bool], int]) -> Callable[[], None]:
    """Go on in a child where there is little memory; the parent leaves with the child's code.

    `ended` is told whether the run was interrupted, tells that it was ended, and returns the exit
    code.  It is called in the parent, or in a child that was interrupted before it began.  What is
    returned is to be called when the run leaves by itself.
    """
    if not memory.is_scarce():
        return lambda: None
    watching, told = os.pipe()
    # A signal waits until both processes know what to do with it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child:
        os.close(told)
        _wait(child, watching, ended, before)
    os.close(watching)
    _die_with_parent()

    def left() -> None:
        os.write(told, b".")

    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    except KeyboardInterrupt:
        code = ended(True)
        left()
        os._exit(code)
    return left


def _die_with_parent() -> None:
    """Have Linux kill this process when its parent dies; elsewhere it runs to its own end."""
    if sys.platform == "linux":
        # Python has no name for it, and a C library need not have one.
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)


def load_frugally() -> None:
    """Where there is little memory, load NumPy while there is room, with one buffer of OpenBLAS.

    It has one a core otherwise.
    """
    if memory.is_scarce():
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with engines_silenced():
            importlib.import_module("numpy")


def _wait(child: int, watching: int, ended: Callable[[bool], int], mask: Iterable[int]) -> None:
    """Leave as the child does; once signals are passed on to it, none is blocked but by `mask`."""
    interrupted = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _SIGNALS:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    left = os.read(watching, 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if left and code >= 0 else ended(interrupted))
