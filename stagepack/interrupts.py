"""Handling of Ctrl-C during a solve: the run stops and returns the best solution found so far."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeAlias

from stagepack.contracts import SolutionT
from stagepack.errors import StagepackError
from stagepack.progress import Progress, Stopped
from stagepack.stopping import stop_asked

_Handler: TypeAlias = Callable[[int, FrameType | None], object]

PATIENCE = 2.0  # seconds after Ctrl-C in which a method may end by itself
ECHO = 0.5  # seconds in which another Ctrl-C counts as the same one

_Told: TypeAlias = Callable[[], object]
_heeded: dict[type[BaseException], _Told | None] = {}


class _Lost:
    """Hears of exceptions raised in a function that native code called, out of which none comes."""

    def __init__(self, hook: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._hook = hook

    def __call__(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Be told of an exception, in the thread that lost it."""
        told = _heeded.get(unraisable.exc_type)
        if told is None:
            self._hook(unraisable)
        else:
            told()


def heed(kind: type[BaseException], told: _Told | None) -> _Told | None:
    """Have lost exceptions of a kind told to a function, in the thread that lost them.

    It takes nothing, and raises nothing.  None: they are complained of as all others.  Returns what
    was told before.
    """
    before, _heeded[kind] = _heeded.get(kind), told
    if told is not None and not isinstance(sys.unraisablehook, _Lost):
        sys.unraisablehook = _Lost(sys.unraisablehook)
    return before


class Interruptible:
    """Turns Ctrl-C into a request to end, and a request that nobody hears into an exception.

    An exception in the middle of compiled code, or of the compiler, comes out as any other one:
    so the first Ctrl-C only asks; where that does not help for `PATIENCE` seconds, or at the next
    one, KeyboardInterrupt is raised, and whatever becomes of it ends the run with what it has.
    """

    def __init__(self, progress: Progress[SolutionT]) -> None:
        self._interrupt = progress.interrupt
        self._asked = math.inf
        self._forced = False
        self._before: _Handler | None = None
        self._told_before: _Told | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        self._before = _handle_with(self._handle)
        if self._before is not None:
            self._told_before = heed(KeyboardInterrupt, self._try_again)
        if isinstance(self._before, Interrupts) and self._before.asked:
            self._interrupt()

    def _try_again(self) -> None:
        """Raise once more, elsewhere: LLVM calls back whenever it has compiled something."""
        self._signal_after(0.05)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.perf_counter()
        if self._asked == math.inf:
            self._asked = now
            self._interrupt()
            if isinstance(self._before, Interrupts):
                self._before(number, frame)
            self._signal_after(PATIENCE)
        elif now - self._asked >= ECHO:  # a group of processes may be signalled twice
            self._forced = True
            raise KeyboardInterrupt

    def _signal_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()  # it would come after the run
        self._timer = threading.Timer(seconds, signal.raise_signal, (signal.SIGINT,))
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            heed(KeyboardInterrupt, self._told_before)
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(self._before, Interrupts):
            self._before.solved = True
        if isinstance(error, KeyboardInterrupt):
            self._interrupt()
            return True
        garbled = self._forced and isinstance(error, Exception)
        return isinstance(error, Stopped) or (garbled and not isinstance(error, StagepackError))


class Interrupts:
    """Hears Ctrl-C while the block of a ``with`` makes several solves.

    A solve that ends with a proof just after Ctrl-C says so, not that it was interrupted, and
    between two solves KeyboardInterrupt would cost what those before found.  Once it `asked` to
    end, solves that begin in the block end at once; `solved` says whether one has ended.

    If it is the `last`, what follows the solve only writes down what it found.  Then no other
    Ctrl-C costs that: those that follow the one that ended the solve are not heard, in the block
    and after.
    """

    def __init__(self, *, last: bool = False) -> None:
        self.solved = False
        self._last = last
        self._signalled = False
        self._since = math.inf
        self._before: _Handler | None = None

    @property
    def asked(self) -> bool:
        """Whether the user, or the caller, has asked to end."""
        return self._signalled or stop_asked()

    def __enter__(self) -> Self:
        self._before = _handle_with(self)
        return self

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal: the first asks to end, the next one outside of solves raises."""
        now = time.perf_counter()
        if not self._signalled:
            self._signalled, self._since = True, now
            if isinstance(self._before, Interrupts):
                self._before(number, frame)
        elif now - self._since >= ECHO and not (self._last and self.solved):
            raise KeyboardInterrupt  # a group of processes may be signalled twice

    def __exit__(self, *error: object) -> None:
        kept = self._last and self.solved and self._signalled
        if self._before is not None and not kept:
            signal.signal(signal.SIGINT, self._before)


def _handle_with(handler: _Handler) -> _Handler | None:
    """Handle Ctrl-C, and return what did before; None where it is ignored, or not ours."""
    if threading.current_thread() is not threading.main_thread():
        return None
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        return None
    signal.signal(signal.SIGINT, handler)
    return before
