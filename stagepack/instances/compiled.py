"""How kernels are compiled: once, kept on disk, without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def compiled(function: FunctionT) -> FunctionT:
    """Compile `function` when it is first called.

    Machine code is kept beside the source, or in the user's cache folder where that is not
    writable; where neither is, every process compiles anew.
    """
    try:
        kernel: Any = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        kernel = numba.njit(nogil=True)(function)
    return cast("FunctionT", kernel)
