"""How kernels are compiled that only other kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def inner(function: FunctionT) -> FunctionT:
    """Compile `function` into the kernels that call it, which are kept on disk, not by itself.

    Without a way in from the interpreter it takes about a quarter less time.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    kernel: Any = numba.njit(**options)(function)
    return cast("FunctionT", kernel)
