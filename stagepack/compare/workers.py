"""Where the cells of a comparison run: in this process, on workers of our own, on any executor.

A cell that fails, even one whose process dies, costs the others nothing.  Ctrl-C cancels what has
not begun and lets the cells under way hand over what they have.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from stagepack.compare.outcomes import Cell, Failure
from stagepack.compare.store import Store
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError
from stagepack.files import NO_MEMORY
from stagepack.result import Result, Termination

log = logging.getLogger("stagepack")

PRELOAD = ("stagepack.solve", "numba")
"""Modules that a fork server imports once for all workers."""
ENGINE_MODULES = {
    "cp-sat": ("ortools.sat.python.cp_model",),
    "highs": ("highspy",),
    "pyomo": ("pyomo.environ", "highspy"),
}
"""And those that it imports besides when methods run on an engine."""
ECHO = 0.1  # seconds after Ctrl-C in which workers that were signalled too may end by themselves
GRACE = 6.0  # seconds that running cells have to hand over their incumbents after that
DIED = Failure("error", "the worker process died (a crash, or out of memory)")

Outcome = Result[Solution] | Failure
Kept = tuple[Path, JsonObject]
"""The store in which a cell is kept, and its question."""


def _attempt(
    solve: Callable[..., Result[Solution]], instance: Instance, arguments: JsonObject
) -> Outcome:
    """Run one cell; whatever goes wrong comes back as a :class:`Failure`."""
    try:
        return solve(instance, **arguments)
    except InputError as error:
        return Failure("n/a", str(error))
    except MemoryError:
        return Failure("n/a", NO_MEMORY)
    except KeyboardInterrupt:
        return Failure("skipped", "interrupted with nothing in hand")
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}".strip()
        return Failure("error", text.splitlines()[0], traceback.format_exc())


def run_cell(payload: bytes) -> Outcome:
    """Run one pickled cell in a worker."""
    with _interruptible():
        try:
            solve, instance, arguments, kept = pickle.loads(payload)
            instance = pickle.loads(instance)
        except Exception as error:
            text = f"cannot be read in a worker: {type(error).__name__}: {error}"
            return Failure("error", text, traceback.format_exc())
        return _kept(_attempt(solve, instance, arguments), kept)


def _kept(outcome: Outcome, kept: Kept | None) -> Outcome:
    """Return an outcome once it is in the store, if there is one; or why it is not."""
    if kept is None or isinstance(outcome, Failure):
        return outcome
    folder, question = kept
    try:
        Store(folder).write(question, outcome)
    except (InputError, OSError) as error:
        return Failure("error", f"cannot be kept: {error}")
    return outcome


_in_worker = False


def _start_worker() -> None:
    """Make this process a worker: Ctrl-C reaches a running cell, once, and nothing else."""
    global _in_worker
    _in_worker = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    def once(signum: int, frame: types.FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if not _in_worker or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Run:
    """Cells waiting to be run, and the ways to run them.

    Parameters
    ----------
    solve : callable
        ``solve(instance, method=, seed=, **arguments)``.
    instances : dict
        The instances by label.
    arguments : dict
        Arguments of every cell.
    start : callable
        Called with each cell that begins.
    finish : callable
        Called with each cell and its outcome, in this thread, as they come.
    engines : iterable of str
        Engines that will be used: workers begin with them imported.
    store : Store, optional
        Where results are kept, by those who have them first.
    """

    def __init__(
        self,
        solve: Callable[..., Result[Solution]],
        instances: Mapping[str, Instance],
        arguments: JsonObject,
        start: Callable[[Cell], None],
        finish: Callable[[Cell, Outcome], None],
        engines: Iterable[str] = (),
        store: Store | None = None,
    ) -> None:
        self.solve = solve
        self.instances = instances
        self.arguments = dict(arguments)
        self.start = start
        self.finish = finish
        self.engines = tuple(engines)
        self.store = store
        self.questions: dict[Cell, JsonObject] = {}
        self.queue: deque[Cell] = deque()
        self.running: dict[Future[Outcome], Cell] = {}
        self.interrupted = False
        self._pickled: tuple[str, bytes] = ("", b"")

    def take(self, cells: Iterable[Cell]) -> None:
        """Put cells into the queue; those that are in the store have ended."""
        for cell in cells:
            if self.store is not None:
                instance = self.instances[cell.instance]
                question = self.store.question(instance, cell.instance, self._arguments(cell))
                self.questions[cell] = question
                known = self.store.read(question, instance)
                if known is not None:
                    self.finish(cell, known)
                    continue
            self.queue.append(cell)

    def in_process(self) -> None:
        """Run the cells here, one after the other."""
        while self.queue and not self.interrupted:
            cell = self.queue.popleft()
            self.start(cell)
            instance = self.instances[cell.instance]
            outcome = _attempt(self.solve, instance, self._arguments(cell))
            outcome = _kept(outcome, self._place(cell))
            if isinstance(outcome, Failure):
                self.interrupted = outcome.status == "skipped"
            else:
                self.interrupted = outcome.termination == Termination.INTERRUPTED
            self.finish(cell, outcome)

    def on_processes(self, jobs: int) -> None:
        """Run the cells on worker processes; replace workers that die.

        No more cells are handed out than there are workers: when one dies, the cells under way
        are suspects, and each is tried once more with a worker of its own.
        """
        while self.queue and not self.interrupted:
            suspects = self._with_pool(min(jobs, len(self.queue)))
            if len(suspects) == 1:
                self.finish(suspects[0], DIED)
                continue
            others, self.queue = self.queue, deque()
            for cell in suspects:
                if not self.interrupted:
                    self.queue.append(cell)
                    for culprit in self._with_pool(1):
                        self.finish(culprit, DIED)
            self.queue = others

    def _with_pool(self, jobs: int) -> list[Cell]:
        """Run the queue on a pool of our own; return the cells under way when it broke down."""
        context = _context(self.engines)
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker)
        try:
            return self._feed(pool, jobs, own=True)
        finally:
            workers = list(_workers(pool).values())
            pool.shutdown(wait=not self.interrupted, cancel_futures=True)
            if self.interrupted:
                for worker in workers:
                    worker.terminate()

    def on_executor(self, executor: Executor) -> None:
        """Run the cells on somebody else's executor, which gets them all at once."""
        for cell in self._feed(executor, len(self.queue), own=False):
            self.finish(cell, DIED)
        while self.queue and not self.interrupted:
            self.finish(self.queue.popleft(), Failure("error", "the executor broke down"))

    def _feed(self, executor: Executor, limit: int, *, own: bool) -> list[Cell]:
        """Keep `limit` cells under way; return those that are lost when the executor breaks."""
        try:
            while self.queue or self.running:
                healthy = self._hand_out(executor, limit, own)
                lost = self._collect(everything=not healthy)
                if lost or not healthy:
                    return lost
        except KeyboardInterrupt:
            self.interrupted = True
            with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: at once
                self._drain(executor, own)
        return []

    def _hand_out(self, executor: Executor, limit: int, own: bool) -> bool:
        """Submit cells up to the limit; return False when the executor takes no more."""
        while self.queue and len(self.running) < limit:
            cell = self.queue.popleft()
            try:
                payload = self._payload(cell)
            except Exception as error:
                self.finish(cell, Failure("error", f"cannot be sent to a worker: {error}"))
                continue
            try:
                with self._main_hidden() if own else contextlib.nullcontext():
                    self.running[executor.submit(run_cell, payload)] = cell
            except BrokenExecutor:
                self.queue.appendleft(cell)  # it never began
                return False
            self.start(cell)
        return True

    def _collect(self, *, everything: bool) -> list[Cell]:
        """Wait for a cell (or for everything); return those lost with their worker."""
        if not self.running:
            return []
        done, _ = wait(self.running, return_when=FIRST_COMPLETED)
        if everything or any(isinstance(f.exception(), BrokenExecutor) for f in done):
            done, _ = wait(self.running)
        lost = []
        for future in [f for f in self.running if f in done]:
            cell, error = self.running.pop(future), future.exception()
            if isinstance(error, BrokenExecutor):
                lost.append(cell)
            elif error is not None:
                self.finish(cell, Failure("error", f"{type(error).__name__}: {error}"))
            else:
                self.finish(cell, future.result())
        return lost

    def _drain(self, executor: Executor, own: bool) -> None:
        """After Ctrl-C: cancel what has not begun, let the rest hand over what it has."""
        self.running = {f: cell for f, cell in self.running.items() if not f.cancel()}
        wait(self.running, timeout=ECHO)
        if own and sys.platform != "win32":  # the signal may have been for this process alone
            for pid in list(_workers(executor)):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGINT)
        done, _ = wait(self.running, timeout=GRACE)
        for future in [f for f in self.running if f in done]:
            cell = self.running.pop(future)
            if future.exception() is None:
                self.finish(cell, future.result())

    def _arguments(self, cell: Cell) -> JsonObject:
        return {**self.arguments, "method": cell.method, "seed": cell.seed}

    def _place(self, cell: Cell) -> Kept | None:
        """Return where a cell is kept; None without a store."""
        return None if self.store is None else (self.store.path, self.questions[cell])

    def _payload(self, cell: Cell) -> bytes:
        if self._pickled[0] != cell.instance:
            self._pickled = (cell.instance, pickle.dumps(self.instances[cell.instance]))
        parts = (self.solve, self._pickled[1], self._arguments(cell), self._place(cell))
        return pickle.dumps(parts)

    @contextlib.contextmanager
    def _main_hidden(self) -> Iterator[None]:
        """Start workers without running the user's script in each of them.

        Worker processes import the main module, so that a script without an ``if __name__ ==
        "__main__"`` guard would compare again in every worker.  Cells do not need that module
        unless they refer to it.
        """
        main = sys.modules["__main__"]
        parts = (self.solve, self.arguments, [type(i) for i in self.instances.values()])
        if b"__main__" not in pickle.dumps(parts):
            sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _workers(executor: Executor) -> dict[int, BaseProcess]:
    """Return the worker processes of a pool by their id; none where Python hides them."""
    return dict(getattr(executor, "_processes", None) or {})


def _context(engines: Iterable[str]) -> BaseContext:
    """Return the start method for workers: a fork server with warm imports, where there is one."""
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
            forkserver.ensure_running()
        finally:
            signal.signal(signal.SIGINT, handler)
    return context
