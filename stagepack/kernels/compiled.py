"""What is said of kernels, and which calls are interpreted.

Numba is loaded with the first kernel that is compiled: :mod:`.dispatchers`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from stagepack.progress import compilation, uncollected

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
DISPATCHERS = "stagepack.kernels.dispatchers"
"""Where numba is imported."""
FEW = 20_000
"""Most steps of a call that is interpreted: a step takes about a microsecond."""
WARM_UP = 0.03
"""Seconds that the calls of a kernel are interpreted for before it is compiled, in a process."""


def compiled(function: FunctionT) -> FunctionT:
    """Compile `function` when it is first called, or take the machine code that is kept of it."""
    kernel: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        nonlocal kernel
        kernel = kernel or _kernel(call, args)
        return kernel(*args)

    return _tell(cast("FunctionT", call), "whole")


def tiered(steps: Callable[..., int]) -> Callable[[FunctionT], FunctionT]:
    """Interpret a function while its calls are short and few; then compile it.

    To compile it, or even to load it from the cache, takes longer than what it does for a small
    instance.  Either way it must return the same: entries narrower than 64 bits and truth values,
    which the interpreter does not widen, are converted before they are calculated with.

    `steps` says of a call's arguments how many elementary steps it may take at most.
    """

    def tier(function: FunctionT) -> FunctionT:
        spent, kernel = 0.0, None

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            nonlocal spent, kernel
            if spent >= WARM_UP or steps(*args) > FEW:
                kernel = kernel or _kernel(call, args)
                return kernel(*args)
            began = time.thread_time()
            with np.errstate(all="ignore"):  # integers wrap around, as they do in machine code
                found = function(*args)
            spent += time.thread_time() - began
            return _plain(found)

        return _tell(cast("FunctionT", call), "whole")

    return tier


def entries(*args: Any) -> int:
    """Return how many entries the arrays have that a kernel is given: `steps` of a single pass."""
    return sum(entries(*one) if isinstance(one, tuple) else getattr(one, "size", 1) for one in args)


def _plain(found: Any) -> Any:
    """Return what a kernel returns with Python's own numbers, as machine code does."""
    if type(found) is tuple:
        return tuple(map(_plain, found))
    return found.item() if isinstance(found, np.generic) else found


UNCOMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
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
    """Compile `function` into the kernels that call it, which are kept on disk, not by itself."""
    return _tell(function, "inner")


def step(function: FunctionT) -> FunctionT:
    """Compile `function` like :func:`inner`; it must neither make nor return arrays.

    References to arrays are then not counted, which takes longer than a short function itself
    where what it is given is a tuple of many.
    """
    return _tell(function, "step")


def inlined(function: FunctionT) -> FunctionT:
    """Compile `function` like :func:`step`, as a part of every function that calls it.

    Where compilers leave it apart, tuples of many arrays are copied at every call: searches whose
    loops call a few such parts then take two to four times as long.  Not for what is called from
    many places, which would take long to compile.
    """
    return _tell(function, "inlined")


_untold: list[tuple[Any, str]] = []
"""Functions that numba does not know yet, and how they are compiled."""
_telling = threading.RLock()
if sys.platform != "win32":  # a child that is forked meanwhile would wait for it for ever
    os.register_at_fork(
        before=_telling.acquire, after_in_parent=_telling.release, after_in_child=_telling.release
    )


def _tell(function: FunctionT, way: str) -> FunctionT:
    """Have numba compile a function in some way (a name of `dispatchers`), once it is loaded."""
    with _telling:
        _untold.append((function, way))
        if DISPATCHERS in sys.modules:
            _load()
    return function


def _load() -> None:
    """Load numba, where nothing was compiled so far, and tell it of all functions.

    It takes a quarter of a second, which is most of a run on an instance whose kernels are all
    interpreted.  Like compilation it is no time of solving.
    """
    with _telling, uncollected():
        compilation.pause()
        try:
            dispatchers = importlib.import_module(DISPATCHERS)
            while _untold:
                function, way = _untold[-1]
                python = inspect.unwrap(function)
                vars(function)["dispatcher"] = getattr(dispatchers, way)(function, python)
                _untold.pop()  # now: what is interrupted goes on with it
        finally:
            compilation.resume()


def _kernel(function: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """Return what runs a function as machine code; under NUMBA_DISABLE_JIT the function itself."""
    _load()
    kernel: Callable[..., Any] = vars(function)["dispatcher"]
    sys.modules[DISPATCHERS].ready(kernel, arguments)
    return kernel
