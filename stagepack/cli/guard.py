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
from collections.abc import Callable
from types import FrameType

from stagepack import memory
from stagepack.cli.terminal.screen import engines_silenced

_PARENT_DIED = 1  # PR_SET_PDEATHSIG of Linux's <sys/prctl.h>


def guarded(ended: Callable[[bool], int]) -> Callable[[], None]:
    """Go on in a child where there is little memory; the parent leaves with the child's code.

    Parameters
    ----------
    ended : callable
        Tells, in the parent, that the child was ended, and returns the exit code; is told whether
        it was interrupted.

    Returns
    -------
    callable
        To be called when the run leaves by itself.
    """
    if not memory.is_scarce():
        return lambda: None
    watching, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        _wait(child, watching, ended)
    os.close(watching)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)

    def left() -> None:
        os.write(told, b".")

    return left


def load_frugally() -> None:
    """Where there is little memory, load NumPy while there is room, with one buffer of OpenBLAS.

    It has one a core otherwise.
    """
    if memory.is_scarce():
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with engines_silenced():
            importlib.import_module("numpy")


def _wait(child: int, watching: int, ended: Callable[[bool], int]) -> None:
    """Leave as the child does."""
    interrupted = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    left = os.read(watching, 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if left and code >= 0 else ended(interrupted))
