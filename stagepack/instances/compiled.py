"""Compilation of kernels: done once, cached on disk, executed without the interpreter lock."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numba
import numpy as np
from numba.core import event, types
from numba.core.compiler_lock import global_compiler_lock
from numba.np import linalg

from stagepack.instances import compiler
from stagepack.progress import compilation

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
KERNELS = ("*kernels.py", "*_state.py", "rules.py", "sweep.py")
"""Files that hold kernels, or constants that are compiled into them; they import no others."""
COMPILERS = ("compiled.py", "compiler.py")
"""Files that say how these are compiled."""
PATIENCE = 30.0
"""Seconds that a process waits for another one to compile the kernel that it needs."""
LOOKS = 0.02
"""Seconds between two looks at whether it has."""
FEW = 20_000
"""Most steps of a call that is interpreted: a step takes about a microsecond."""
WARM_UP = 0.03
"""Seconds that the calls of a kernel are interpreted for before it is compiled, in a process."""


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


def compiled(function: FunctionT) -> FunctionT:
    """Compile `function` when it is first called.

    Machine code is kept beside the source, or in the user's cache folder where that is not
    writable; where neither is, every process compiles anew.  Code of other sources is not used.
    """
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
        kernel = numba.njit(**options)(function)
    # Numba looks at the function's own file only, but constants and kernels of other files are
    # compiled into it.
    with contextlib.suppress(AttributeError):
        file = kernel._cache._cache_file
        file._source_stamp = (file._source_stamp, sources())
        kernel.compile = functools.partial(_alone, kernel.compile, f"{file._index_path}.lock")
    return cast("FunctionT", kernel)


def tiered(steps: Callable[..., int]) -> Callable[[FunctionT], FunctionT]:
    """Interpret a function while its calls are short and few; then compile it.

    To compile it, or even to load it from the cache, takes longer than what it does for a small
    instance.  Either way it must return the same: entries narrower than 64 bits and truth values,
    which the interpreter does not widen, are converted before they are calculated with.

    Parameters
    ----------
    steps : callable
        From the function's arguments to the most elementary steps that the call may take.
    """

    def tier(function: FunctionT) -> FunctionT:
        kernel: Any = compiled(function)
        spent = 0.0

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            nonlocal spent
            if spent >= WARM_UP or steps(*args) > FEW:
                return kernel(*args)
            began = time.thread_time()
            with np.errstate(all="ignore"):  # integers wrap around, as they do in machine code
                found = function(*args)
            spent += time.thread_time() - began
            return _plain(found)

        if kernel is not function:
            vars(call).update(dispatcher=kernel, _numba_type_=kernel._numba_type_)
        return cast("FunctionT", call)

    return tier


def entries(*args: Any) -> int:
    """Return how many entries the arrays have that a kernel is given: `steps` of a single pass."""
    return sum(entries(*one) if isinstance(one, tuple) else getattr(one, "size", 1) for one in args)


def _plain(found: Any) -> Any:
    """Return what a kernel returns with Python's own numbers, as machine code does."""
    if type(found) is tuple:
        return tuple(map(_plain, found))
    return found.item() if isinstance(found, np.generic) else found


def _alone(make: Callable[[object], object], path: str, signature: object) -> object:
    """Compile a kernel while no other process does, or take from the cache what one has made.

    Nobody is waited for where nothing can be locked, nor when the other process does not come back.
    """
    with global_compiler_lock, contextlib.ExitStack() as held:
        began, known = time.perf_counter(), compilation.seconds
        with contextlib.suppress(OSError):
            file = held.enter_context(Path(path).open("ab"))
            if not _locked(file):
                _wait(file)
        with compiler.quick():
            made = make(signature)
        if not compilation.under_way:  # else it is a part of what is
            compilation.seconds = known + time.perf_counter() - began
        return made


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


UNCOMPILED = bool(vars(numba.config)["DISABLE_JIT"])
"""Whether all kernels run as they are, for a debugger (NUMBA_DISABLE_JIT)."""

if UNCOMPILED:
    np.seterr(over="ignore")  # integers wrap around, as they do in machine code


def _field(entry: Any, name: str) -> Any:
    found = np.void.__getattribute__
    return entry[name] if name in (found(entry, "dtype").names or ()) else found(entry, name)


_ENTRY = type("Entry", (np.void,), {"__getattribute__": _field, "__setattr__": np.void.__setitem__})
"""Entries of records whose fields come before NumPy's own attributes."""


def record(fields: Sequence[tuple[str, type[np.generic]]]) -> np.dtype[np.void]:
    """Return the type of records whose fields kernels read and write by name, compiled or not."""
    return np.dtype((_ENTRY, np.dtype(list(fields), align=True)))


def inner(function: FunctionT) -> FunctionT:
    """Compile `function` into the kernels that call it, which are kept on disk, not by itself.

    Without a way in from the interpreter it takes about a quarter less time.
    """
    return _part(function, **_INNER)


def step(function: FunctionT) -> FunctionT:
    """Compile `function` like :func:`inner`; it must neither make nor return arrays.

    References to arrays are then not counted, which takes longer than a short function itself
    where what it is given is a tuple of many.
    """
    return _part(function, **_STEP)


def inlined(function: FunctionT) -> FunctionT:
    """Compile `function` like :func:`step`, as a part of every function that calls it.

    Where compilers leave it apart, tuples of many arrays are copied at every call: searches whose
    loops call a few such parts then take two to four times as long.  Not for what is called from
    many places, which would take long to compile.
    """
    return _part(function, forceinline=True, **_STEP)


def copied(function: FunctionT) -> FunctionT:
    """Copy the statements of `function` to where it is called, before types are known."""
    part = _part(function, inline="always")
    vars(function).update(targetoptions={"inline": "always"}, py_func=function)
    return part


def _part(function: FunctionT, **options: Any) -> FunctionT:
    """Tell numba how a function is compiled into others; the interpreter runs it as it is."""
    kernel = _widened(numba.njit(**options)(function))
    if kernel is not function:  # not so under NUMBA_DISABLE_JIT
        vars(function).update(dispatcher=kernel, _numba_type_=kernel._numba_type_)
    return function


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
