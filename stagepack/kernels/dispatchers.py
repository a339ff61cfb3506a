"""What numba makes of functions; imported when the first kernel is compiled.

Only what numba offers to everybody is used: ``njit``, ``numba.extending.overload``, its settings in
``numba.config``, and its events.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numba
from numba.core import event
from numba.extending import overload

from stagepack.kernels.cache import folder_of
from stagepack.progress import compilation

PATIENCE = 30.0
"""Seconds that a process waits for another one to compile the kernel that it needs."""
LOOKS = 0.02
"""Seconds between two looks at whether it has."""
_settings: Any = numba.config
_njit: Any = numba.njit  # whose types leave out some options
_overload: Any = overload
CHECKED = bool(_settings.BOUNDSCHECK) and not _settings.DISABLE_JIT
"""Whether machine code checks indices (NUMBA_BOUNDSCHECK); it is then kept in a folder of its own.

What is interpreted is checked by NumPy.  Indices from -n to -1 count from the end of n entries in
either: they are no error.
"""
_PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of what only other kernels call: ways in from elsewhere would take a quarter more."""
_STEP: dict[str, Any] = {**_PART, "_nrt": False, "no_rewrites": True}
"""Those of what makes no arrays: nobody counts who holds the arrays that it is given, and no loops
over whole arrays are joined (``_nrt`` as the help of ``numba.extending.register_jitable`` has it).
"""


def whole(call: Any, function: Callable[..., object]) -> Any:
    """Return what runs a function as machine code, made when called first, and kept.

    `call` runs the function for callers in Python; kernels may call it, too.
    """
    own = _settings.CACHE_DIR
    folder = folder_of(own, CHECKED)
    # No other language calls them: a way in for it would take a tenth of the time.
    kept = _njit(nogil=True, no_cfunc_wrapper=True, cache=folder is not None)
    compilation.kept &= folder is not None
    _settings.CACHE_DIR = own if folder is None else str(folder)
    try:
        kernel = kept(function)
    finally:
        _settings.CACHE_DIR = own
    _offer(call, function, _PART)
    return kernel


def inner(call: Any, function: Callable[..., object]) -> Any:
    """Have a function compiled into the kernels that call it."""
    return _offer(call, function, _PART)


def step(call: Any, function: Callable[..., object]) -> Any:
    """Do the same for a function that neither makes nor returns arrays."""
    return _offer(call, function, _STEP)


def inlined(call: Any, function: Callable[..., object]) -> Any:
    """Do the same for what LLVM is to put into every function that calls it."""
    return _offer(call, function, {**_STEP, "forceinline": True})


def _offer(call: Any, function: Callable[..., object], options: dict[str, Any]) -> Any:
    """Let kernels call a function; constants that they give do not compile it anew."""
    _overload(call, jit_options=options, strict=False)(lambda *_, **__: function)
    return function


def ready(kernel: Any, arguments: tuple[Any, ...]) -> None:
    """Compile a kernel for some arguments, or take from the cache what another process has made.

    While one process compiles it others wait, but not for ever, nor where nothing can be locked.
    """
    if not hasattr(kernel, "compile"):  # under NUMBA_DISABLE_JIT
        return
    path, given = Path(kernel.stats.cache_path or ""), tuple(map(numba.typeof, arguments))
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            if path.is_dir():
                lock = path / f"{kernel.__module__}.{kernel.__qualname__}.lock"
                file = held.enter_context(lock.open("ab"))
                if not _locked(file):
                    _wait(file)
        try:
            kernel.compile(given)
        except (EOFError, pickle.UnpicklingError):  # what is kept was cut off, as by a full disk
            for damaged in path.glob(f"*{kernel.__qualname__}-*.nb[ci]"):
                damaged.unlink(missing_ok=True)
            kernel.compile(given)


def _wait(file: IO[bytes]) -> None:
    compilation.begin()
    try:
        end = time.monotonic() + PATIENCE
        while not _locked(file) and time.monotonic() < end:
            time.sleep(LOOKS)
    finally:
        compilation.end()


def _locked(file: IO[bytes]) -> bool:
    """Return whether a file is this process's until it closes it; on Windows always."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class _Pause(event.Listener):
    """Hears of the lock under which numba compiles, or loads from its cache, whatever runs first.

    This is how compilation is kept off the clock, in one place: no method need see to it.
    """

    def on_start(self, event: Any) -> None:
        compilation.pause()

    def on_end(self, event: Any) -> None:
        compilation.resume()


class _Listener(event.Listener):
    """Hears of what numba compiles; what it finds in its cache is no such event.

    Meanwhile garbage is not looked for, of which there is hardly any: a tenth of the time.
    """

    collects = False

    def on_start(self, event: Any) -> None:
        if not compilation.under_way:
            self.collects = gc.isenabled()
            gc.disable()
        compilation.begin()

    def on_end(self, event: Any) -> None:
        compilation.end()
        if self.collects and not compilation.under_way:
            gc.enable()


event.register("numba:compiler_lock", _Pause())
event.register("numba:compile", _Listener())
