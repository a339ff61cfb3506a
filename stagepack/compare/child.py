"""Child processes that run cells; they are reused, watched, and ended at their limits.

A :class:`Keeper` has one child process, which runs one cell after another.  If the child dies, or
is ended because its time is up, only its current cell fails, and the next cell gets a new child.
The child ends itself as soon as its keeper does, even during a cell.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Protocol

from stagepack.compare.cell import DIED, NO_ROOM, Outcome, run_cell, start_worker
from stagepack.compare.outcomes import Failure
from stagepack.progress import compilation

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

PRELOAD = ("stagepack.solve", "numba")
"""Modules that a fork server imports once for all children."""
ENGINE_MODULES = {
    "cp-sat": ("ortools.sat.python.cp_model",),
    "highs": ("highspy",),
    "pyomo": ("pyomo.environ", "highspy"),
}
"""Modules that it imports besides `PRELOAD` when methods run on an engine."""
COMPILING, ANEW, COMPILED = b"+", b"*", b"-"
"""News of a child before its answer: kernels are compiled (and cannot be kept), or are no more."""
SPAWN = "from stagepack.compare.child import main; main()"


@dataclass(frozen=True)
class Limits:
    """What a cell may take beside what its method is told; `fresh`: in a process of its own.

    `wall` seconds, all included, after which that is ended, and bytes of `memory`, data that it may
    hold, where the system can limit them (Linux).
    """

    wall: float | None = None
    memory: int | None = None
    fresh: bool = False


class Process(Protocol):
    """What a keeper must know of its child."""

    @property
    def pid(self) -> int | None:
        """Its number."""

    def kill(self) -> None:
        """End it at once."""

    def join(self) -> object:
        """Wait until it has ended."""


Start = Callable[[int | None], tuple[Process, Connection]]
"""Starts a child that may hold so many bytes."""


class Keeper:
    """Runs cells in a child process, which `start` starts."""

    def __init__(self, start: Start, limits: Limits) -> None:
        self.start = start
        self.limits = limits
        self.busy = False  # with a cell that has begun
        self._child: tuple[Process, Connection] | None = None

    def run(self, payload: bytes) -> Outcome:
        """Return what became of a pickled cell; a failure when its process ended."""
        try:
            if self._child is None:
                self._child = self.start(self.limits.memory)
                self._child[1].recv_bytes()  # it is ready: what it imports is nobody's time
            pipe = self._child[1]
            pipe.send_bytes(payload)
            self.busy = True
            answer = self._answer(pipe)
            if answer is None:
                self.close()
                return Failure("error", f"was ended after {self.limits.wall:g} s, its limit in all")
            outcome: Outcome = pickle.loads(answer)
        except (EOFError, OSError):
            outcome = DIED
        finally:
            self.busy = False
        if self.limits.fresh or outcome in (DIED, NO_ROOM):
            self.close()
        return outcome

    def _answer(self, pipe: Connection) -> bytes | None:
        """Return the answer, None when time is up; tell meanwhile when kernels are compiled."""
        wall = self.limits.wall
        end = None if wall is None else time.monotonic() + wall
        with contextlib.ExitStack() as compiles:
            while pipe.poll(None if end is None else max(0.0, end - time.monotonic())):
                news = pipe.recv_bytes()
                if news == COMPILED:
                    compiles.close()
                elif news in (COMPILING, ANEW):
                    compilation.kept &= news == COMPILING
                    compilation.begin()
                    compiles.callback(compilation.end)
                else:
                    return news
        return None

    def interrupt(self) -> None:
        """Let the cell under way hand over what it has."""
        if self._child is not None and self._child[0].pid and sys.platform != "win32":
            with contextlib.suppress(OSError):
                os.kill(self._child[0].pid, signal.SIGINT)

    def kill(self) -> None:
        """End the child, from any thread; who waits for it learns that it died."""
        if self._child is not None:
            self._child[0].kill()

    def close(self) -> None:
        """End the child, by the thread that runs cells."""
        if self._child is not None:
            process, pipe = self._child
            self._child = None
            process.kill()
            process.join()
            pipe.close()


# ---------------------------------------------------------------------- starting a child


class Forked:
    """Starts children from a fork server with warm imports, where there is one.

    Children begin with `engines` imported.  With `hide_main` they do without the user's script:
    they would import it, so that one without an ``if __name__ == "__main__"`` guard would compare
    again in every child.
    """

    def __init__(self, engines: Iterable[str], *, hide_main: bool) -> None:
        self.context = _context(engines)
        self.hide_main = hide_main
        self._lock = threading.Lock()

    def __call__(self, memory: int | None) -> tuple[Process, Connection]:
        """Start a child."""
        here, there = self.context.Pipe()
        process = self.context.Process(target=serve, args=(there, memory), daemon=True)
        with self._lock:
            main = sys.modules["__main__"]
            if self.hide_main:
                sys.modules["__main__"] = types.ModuleType("__main__")
            try:
                process.start()
            finally:
                sys.modules["__main__"] = main
        there.close()
        return process, here


def _context(engines: Iterable[str]) -> ForkServerContext | SpawnContext:
    """Return the start method for children: a fork server with warm imports, where there is one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    families = {engine.split(":")[0] for engine in engines}
    modules = [module for name in families for module in ENGINE_MODULES.get(name, ())]
    context.set_forkserver_preload([*PRELOAD, *sorted(set(modules))])
    if threading.current_thread() is threading.main_thread():
        # The server inherits deafness to Ctrl-C: it would die of it, noisily, while it imports.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            # No document names it; without it the server starts with the first child, and hears.
            getattr(forkserver, "ensure_running", lambda: None)()
        finally:
            signal.signal(signal.SIGINT, handler)
    return context


class _Spawned(subprocess.Popen[bytes]):
    def join(self) -> object:
        return self.wait()


def spawned(memory: int | None) -> tuple[Process, Connection]:
    """Start a child of any process: Dask's are daemons, which multiprocessing lets have none."""
    here, there = multiprocessing.Pipe()
    path = os.pathsep.join(filter(None, sys.path))
    process = _Spawned(
        [sys.executable, "-c", SPAWN, str(there.fileno()), str(memory or 0)],
        env={**os.environ, "PYTHONPATH": path},
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
    )
    there.close()
    return process, here


_here = threading.local()


def run_watched(limits: Limits, payload: bytes) -> Outcome:
    """Run one pickled cell in a child of this thread, in a worker of somebody else."""
    if os.name != "posix":
        return run_cell(payload)
    keeper: Keeper | None = getattr(_here, "keeper", None)
    if keeper is None or keeper.limits != limits:
        if keeper is not None:
            keeper.close()
        keeper = _here.keeper = Keeper(spawned, limits)
    return keeper.run(payload)


# ---------------------------------------------------------------------- in the child


def main() -> None:
    """Serve as the child that :func:`spawned` starts."""
    descriptor, memory = map(int, sys.argv[1:3])
    serve(Connection(descriptor), memory or None)


def serve(pipe: Connection, memory: int | None) -> None:
    """Run the cells that come through a pipe until it is closed, in so many bytes of `memory`."""
    start_worker()
    importlib.import_module(PRELOAD[0])
    if memory is not None:
        _limit_memory(memory)
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, waiting), daemon=True).start()
    told = threading.Lock()

    def tell(news: bytes) -> None:
        with told:
            pipe.send_bytes(news)

    def compiles(begun: bool) -> None:
        tell((COMPILING if compilation.kept else ANEW) if begun else COMPILED)

    compilation.heard = compiles
    tell(b"ready")
    while True:
        outcome = run_cell(waiting.get())
        try:
            answer = pickle.dumps(outcome)
        except MemoryError:
            answer = pickle.dumps(NO_ROOM)
        except Exception as error:
            text = f"cannot be handed over: {type(error).__name__}: {error}"
            answer = pickle.dumps(Failure("error", text))
        tell(answer)


def _listen(pipe: Connection, waiting: queue.SimpleQueue[bytes]) -> None:
    """Take cells; end the process with the pipe, even in the midst of a cell."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            waiting.put(pipe.recv_bytes())
    os._exit(0)


def _limit_memory(memory: int) -> None:
    """Limit the data of this process."""
    if sys.platform != "win32":
        import resource

        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, most))
