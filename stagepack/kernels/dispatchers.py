"""What numba makes of functions; imported when the first kernel is compiled."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numba
from numba.core import caching, event, types
from numba.core.compiler_lock import global_compiler_lock
from numba.np import linalg

from stagepack.kernels import compiler
from stagepack.progress import compilation

KERNELS = ("*kernels.py", "*_state.py", "rules.py", "sweep.py")
"""Files that hold kernels, or constants that are compiled into them; they import no others."""
COMPILERS = ("compiled.py", "compiler.py", "dispatchers.py")
"""Files that say how these are compiled."""
PATIENCE = 30.0
"""Seconds that a process waits for another one to compile the kernel that it needs."""
LOOKS = 0.02
"""Seconds between two looks at whether it has."""
_settings: Any = numba.config
CHECKED = bool(_settings.BOUNDSCHECK) and not _settings.DISABLE_JIT
"""Whether machine code checks indices (NUMBA_BOUNDSCHECK); it is then kept in files of its own.

What is interpreted is checked by NumPy.  Indices from -n to -1 count from the end of n entries in
either: they are no error.
"""


def _spare_blas() -> None:
    """Load numba's view of NumPy without BLAS, which no kernel calls.

    Numba would load SciPy's only to see whether it is there: a third of the time that the first
    kernel takes, and address space that OpenBLAS asks for again and again where it is refused, in
    a loop that no signal ends.  Whose kernels call BLAS has it loaded then.
    """
    asked = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = asked


_spare_blas()

_INNER: dict[str, Any] = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    **compiler.options(compiler.Part),
}
_STEP: dict[str, Any] = {**_INNER, "_nrt": False}


def whole(function: Callable[..., object]) -> Any:
    """Return what runs a function as machine code, made when called first, and kept."""
    # No other language calls them: a way in for it would take a tenth of the time.
    options: dict[str, Any] = {
        "nogil": True,
        "no_cfunc_wrapper": True,
        **compiler.options(compiler.Whole),
    }
    try:
        kernel: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        compilation.kept = False
        return numba.njit(**options)(function)
    # Numba looks at the function's own file only, but constants and kernels of other files are
    # compiled into it.
    with contextlib.suppress(*([] if CHECKED else [AttributeError])):
        cache = kernel._cache
        if CHECKED:  # whose code numba would not tell from any other
            path, base = cache._cache_path, f"{cache._impl.filename_base}.checked"
            cache._cache_file = caching.IndexDataCacheFile(path, base, None)
        file = cache._cache_file
        file._source_stamp = (cache._impl.locator.get_source_stamp(), sources())
        kernel.compile = functools.partial(_alone, kernel.compile, f"{file._index_path}.lock")
    return kernel


def inner(function: Callable[..., object]) -> Any:
    """Return what is compiled into the kernels that call a function."""
    return _widened(numba.njit(**_INNER)(function))


def step(function: Callable[..., object]) -> Any:
    """Return the same for a function that neither makes nor returns arrays."""
    return _widened(numba.njit(**_STEP)(function))


def inlined(function: Callable[..., object]) -> Any:
    """Return the same for what LLVM is to put into every function that calls it."""
    return _widened(numba.njit(forceinline=True, **_STEP)(function))


def copied(function: Callable[..., object]) -> Any:
    """Return the same for what is copied before types are known."""
    return _widened(numba.njit(inline="always", **_STEP)(function))


def _alone(make: Callable[[object], object], path: str, signature: object) -> object:
    """Compile a kernel while no other process does, or take from the cache what one has made.

    Nobody is waited for where nothing can be locked, nor when the other process does not come back.
    """
    with global_compiler_lock, contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            file = held.enter_context(Path(path).open("ab"))
            if not _locked(file):
                _wait(file)
        with compiler.quick():
            return make(signature)


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


def _widened(kernel: Any) -> Any:
    """Let a kernel take all signed integers as 64 bits, constants as any others.

    Otherwise it is compiled once more for every constant, and for every width, that it is given.
    """
    if not hasattr(kernel, "get_call_template"):  # under NUMBA_DISABLE_JIT, for a debugger
        return kernel
    chosen = kernel.get_call_template

    def widened(args: Iterable[Any], kws: Mapping[str, Any]) -> Any:
        return chosen(tuple(map(_wide, args)), {name: _wide(kws[name]) for name in kws})

    kernel.get_call_template = widened
    return kernel


def _wide(kind: Any) -> Any:
    plain = getattr(kind, "literal_type", kind)
    return types.int64 if plain in types.signed_domain else plain


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


class _Pause(event.Listener):
    """Hears of the lock under which numba compiles, or loads from its cache, whatever runs first.

    This is how compilation is kept off the clock, in one place: no method need see to it.
    """

    def on_start(self, event: Any) -> None:
        compilation.pause()

    def on_end(self, event: Any) -> None:
        compilation.resume()


event.register("numba:compiler_lock", _Pause())
event.register("numba:compile", _Listener())


@functools.cache
def sources() -> str:
    """Return a fingerprint of the sources of all kernels, and of how these are compiled."""
    package = Path(__file__).parents[1]
    files = {path for pattern in KERNELS for path in package.rglob(pattern)}
    files |= {Path(__file__).parent / name for name in COMPILERS}
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(path.read_bytes())
    return whole.hexdigest()
