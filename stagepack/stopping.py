"""How a caller ends a run from another thread: a flag, or a function that is asked."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from stagepack.errors import InputError


class Flag(Protocol):
    """What is set in one thread and seen in others: `threading.Event`, or one of its kin."""

    def is_set(self) -> bool:
        """Whether it is."""


Stop: TypeAlias = Flag | Callable[[], object]
"""How a caller ends a run: a flag that is set, or a function that returns true."""

_stop: contextvars.ContextVar[Callable[[], object] | None] = contextvars.ContextVar(
    "stop", default=None
)


def stop() -> Callable[[], object] | None:
    """Return what says that the caller wants what runs in this context to end; None for nothing."""
    return _stop.get()


def stop_asked() -> bool:
    """Whether the caller of what runs in this context has asked it to end."""
    asks = _stop.get()
    return asks is not None and bool(asks())


@contextlib.contextmanager
def heeding(stop: Stop | None) -> Iterator[None]:
    """End the runs that begin in the block, in this thread, once the caller asks: `stop`.

    Where the block is within another one, what that heeds ends them as well.
    """
    if stop is None:
        yield
        return
    own = getattr(stop, "is_set", stop)
    if isinstance(stop, type) or not callable(own):
        raise InputError(
            f"{stop!r}", field="stop", remedy="give a threading.Event, a function, or None"
        )
    outer = _stop.get()
    token = _stop.set(own if outer is None else lambda: own() or outer())
    try:
        yield
    finally:
        _stop.reset(token)
