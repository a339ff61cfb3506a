"""Parameters that were called otherwise before: the old spelling is taken, and told once."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from stagepack.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
_told: set[tuple[str, str]] = set()


def renamed(**spellings: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function take old spellings of its parameters: ``@renamed(color="colour")``.

    Each is named by a FutureWarning, once a process; beside the new one it is refused.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        name = function.__qualname__

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in spellings.keys() & kwargs.keys():
                new = spellings[old]
                if new in kwargs:
                    raise InputError(f"is {new} by its old name", field=old, remedy="leave it out")
                kwargs[new] = kwargs.pop(old)
                if (name, old) not in _told:
                    _told.add((name, old))
                    told = f"{name}: {old} is called {new} now"
                    warnings.warn(told, FutureWarning, stacklevel=2)
            return function(*args, **kwargs)

        return called

    return decorated
