"""Suppresses what C libraries print to standard output and no option turns off.

HiGHS 1.12 prints "HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();" when it
repairs a solution.  C code writes through its own ``stdout`` stream, which is redirected to nowhere
for the duration of a call; output of Python code, from any thread, is not affected.  This works
with glibc, where ``stdout`` is a variable; with other C libraries nothing is suppressed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading


class _Muted:
    """Holds back what C libraries of this process print in the block of a ``with``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._nowhere: int | None = None
        self._before: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1 or platform.libc_ver()[0] != "glibc":
                return
            library = ctypes.CDLL(None)
            if self._nowhere is None:
                library.fopen.restype = ctypes.c_void_p
                self._nowhere = library.fopen(os.fsencode(os.devnull), b"w")
            if self._nowhere is not None:
                library.fflush(None)  # what others wrote before comes out as ever
                stream = ctypes.c_void_p.in_dll(library, "stdout")
                self._before, stream.value = stream.value, self._nowhere

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._before is not None:
                stream = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout")
                self._before, stream.value = None, self._before


muted = _Muted()
