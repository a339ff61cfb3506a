"""Executes the cells of a comparison: in this process, in child processes, or on an executor.

If a cell fails, even if its process dies, the other cells continue.  Ctrl-C cancels the cells that
have not started; those that run return the best solution they have.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

from stagepack.compare.cell import DIED, Kept, Outcome, attempt, run_cell, run_cells
from stagepack.compare.child import Forked, Keeper, Limits, run_watched
from stagepack.compare.outcomes import FAILED, Cell, Failure
from stagepack.compare.store import Store
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError
from stagepack.kinds import KINDS
from stagepack.methods.own import Own
from stagepack.result import Result, Termination
from stagepack.stopping import stop_asked

POLL = 0.05  # seconds between two looks whether the caller asks to end
ECHO = 0.1  # seconds after Ctrl-C in which children that were signalled too may end by themselves
AGAIN, PATIENCE = 0.6, 10
"""Seconds until cells that go on are asked once more to end, and how often they are."""
Chunk = tuple[Cell, ...]


class Run:
    """Cells waiting to be run, and the ways to run them.

    Each is a `solve` of one of the `instances`, with its method, its seed and all `arguments`.
    `start` hears of each that begins, `finish` of each with its outcome, in this thread, as they
    come.  Children begin with `engines` imported; results go to the `store` from those who have
    them first.  Without `limits` nothing is watched.  `own` are methods of the user by their names.
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
        limits: Limits | None = None,
        own: Mapping[str, Own] | None = None,
    ) -> None:
        self.solve = solve
        self.instances = instances
        self.arguments = dict(arguments)
        self.start = start
        self.finish = finish
        self.engines = tuple(engines)
        self.store = store
        self.limits = limits
        self.own = dict(own or {})
        self.questions: dict[Cell, JsonObject] = {}
        self.queue: deque[Cell] = deque()
        self.running: dict[Future[list[Outcome]], Chunk] = {}
        self.interrupted = False
        self._ended: queue.SimpleQueue[Future[list[Outcome]]] = queue.SimpleQueue()
        self._pickled: tuple[str, bytes] = ("", b"")

    def take(self, cells: Iterable[Cell]) -> None:
        """Put cells into the queue; those that are in the store have ended."""
        for cell in cells:
            if self.store is not None:
                instance = self.instances[cell.instance]
                asked = {**self.arguments, "method": cell.method, "seed": cell.seed}
                if cell.method in self.own:
                    asked["code"] = self.own[cell.method].code
                question = self.store.question(instance, cell.instance, asked)
                self.questions[cell] = question
                known = self.store.read(question, instance)
                if known is not None:
                    self.finish(cell, known)
                    continue
            self.queue.append(cell)

    def carry_out(self, executor: Executor | None, chunk: int, jobs: int) -> None:
        """Run the cells on an `executor`, `chunk` of them at a time; in so many children as there
        are `jobs`; or here, without any.
        """
        if executor is not None:
            self.on_executor(executor, chunk)
        elif jobs == 0:
            self.in_process()
        else:
            self.in_children(jobs)

    def in_process(self) -> None:
        """Run the cells here, one after the other."""
        while self.queue and not self.interrupted:
            cell = self.queue.popleft()
            self.start(cell)
            instance = self.instances[cell.instance]
            outcome = attempt(self.solve, instance, self._arguments(cell), self._place(cell))
            if isinstance(outcome, Failure):
                self.interrupted = outcome.status == "skipped"
            elif isinstance(outcome, Result):
                self.interrupted = outcome.termination == Termination.INTERRUPTED
            self._end(cell, outcome)

    def in_children(self, jobs: int) -> None:
        """Run the cells in child processes, so many at a time."""
        jobs = min(jobs, len(self.queue))
        if not jobs:
            return
        start = Forked(self.engines, hide_main=not self._refers_to_main())
        keepers = [Keeper(start, self.limits or Limits()) for _ in range(jobs)]
        idle: queue.SimpleQueue[Keeper] = queue.SimpleQueue()
        for keeper in keepers:
            idle.put(keeper)

        def run(payload: bytes) -> Outcome:
            keeper = idle.get()
            try:
                return keeper.run(payload)
            finally:
                idle.put(keeper)

        threads = ThreadPoolExecutor(jobs)
        try:
            self._feed(threads, run, most=jobs, keepers=keepers)
        except BaseException:
            self.interrupted = True
            raise
        finally:
            if self.interrupted:
                for keeper in keepers:
                    keeper.kill()
            threads.shutdown(cancel_futures=True)
            for keeper in keepers:
                keeper.close()

    def on_executor(self, executor: Executor, chunk: int = 1) -> None:
        """Run the cells on somebody else's executor, which gets them all at once, in chunks."""
        run = run_cell if self.limits is None else functools.partial(run_watched, self.limits)
        self._feed(executor, run, most=len(self.queue), chunk=chunk)
        while self.queue and not self.interrupted:
            self._end(self.queue.popleft(), Failure("error", "the executor broke down"))

    def _feed(
        self,
        executor: Executor,
        run: Callable[[bytes], Outcome],
        *,
        most: int,
        chunk: int = 1,
        keepers: Sequence[Keeper] = (),
    ) -> None:
        """Keep `most` chunks of cells under way until all have ended."""
        try:
            healthy = True
            while self.running or (self.queue and healthy):
                while healthy and self.queue and len(self.running) < most:
                    healthy = self._hand_out(executor, run, chunk)
                if self.running:
                    self._collect(self._next_ended())
        except KeyboardInterrupt:
            self.interrupted = True
            with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: at once
                self._drain(keepers)

    def _next_ended(self) -> Future[list[Outcome]]:
        """Wait for the next cells that end; raise KeyboardInterrupt once the caller asks to end."""
        while not stop_asked():
            with contextlib.suppress(queue.Empty):
                return self._ended.get(timeout=POLL)
        raise KeyboardInterrupt

    def _hand_out(self, executor: Executor, run: Callable[[bytes], Outcome], chunk: int) -> bool:
        """Submit some cells; return False when the executor takes no more."""
        cells: list[Cell] = []
        payloads: list[bytes] = []
        while self.queue and len(cells) < chunk:
            cell = self._next()
            try:
                payloads.append(self._payload(cell))
            except Exception as error:
                told = f"cannot be sent to a worker: {error} (jobs=0 needs to send nothing)"
                self._end(cell, Failure("error", told))
                continue
            cells.append(cell)
        if not cells:
            return True
        try:
            future = executor.submit(run_cells, run, payloads)
        except BrokenExecutor:
            self.queue.extendleft(reversed(cells))  # they never began
            return False
        self.running[future] = tuple(cells)
        future.add_done_callback(self._ended.put)
        for cell in cells:
            self.start(cell)
        return True

    def _next(self) -> Cell:
        """Take a cell from the queue: of a problem that none is under way of, if one is near.

        The first cells of a problem compile its kernels; others would only wait for them.
        """
        busy = {self.instances[cell.instance].kind for of in self.running.values() for cell in of}
        for place, cell in enumerate(itertools.islice(self.queue, 2 * len(KINDS))):
            if self.instances[cell.instance].kind not in busy:
                del self.queue[place]
                return cell
        return self.queue.popleft()

    def _collect(self, future: Future[list[Outcome]]) -> None:
        """Tell what became of the cells of a future that has ended."""
        cells = self.running.pop(future)
        error = None
        if future.cancelled():
            error = Failure("error", "the executor gave it up")
        elif isinstance(future.exception(), BrokenExecutor):
            error = DIED
        elif future.exception() is not None:
            raised = future.exception()
            error = Failure("error", f"{type(raised).__name__}: {raised}")
        outcomes = [self._found(cell) or error for cell in cells] if error else future.result()
        for cell, outcome in zip(cells, outcomes, strict=True):
            self._end(cell, outcome)

    def _found(self, cell: Cell) -> Result[Solution] | None:
        """Return what a worker kept of a cell before it was lost."""
        if self.store is None:
            return None
        return self.store.read(self.questions[cell], self.instances[cell.instance])

    def _drain(self, keepers: Sequence[Keeper]) -> None:
        """After Ctrl-C: cancel what has not begun, let the rest hand over what it has."""
        for future in list(self.running):
            if future.cancel():
                del self.running[future]
        began = time.monotonic()
        self._collect_until(began + (0.0 if stop_asked() else ECHO))
        for _ in range(PATIENCE):  # for cells to hand over what they have
            for keeper in keepers:  # the signal may have been for this process alone
                keeper.interrupt()
            self._collect_until(time.monotonic() + AGAIN)
            if keepers and not any(keeper.busy for keeper in keepers):
                break  # what begins only now has nothing

    def _collect_until(self, end: float) -> None:
        """Collect what ends until then."""
        while self.running:
            try:
                future = self._ended.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return
            if future in self.running:  # not cancelled
                self._collect(future)

    def _end(self, cell: Cell, outcome: Outcome) -> None:
        """Tell what became of a cell; the store hears of one that failed."""
        if isinstance(outcome, Failure) and outcome.status in FAILED and self.store is not None:
            with contextlib.suppress(InputError, OSError):
                self.store.note(self.questions[cell], outcome.status, outcome.reason)
        self.finish(cell, outcome)

    def _arguments(self, cell: Cell) -> JsonObject:
        method = self.own.get(cell.method, cell.method)
        return {**self.arguments, "method": method, "seed": cell.seed}

    def _place(self, cell: Cell) -> Kept | None:
        """Return where a cell is kept; None without a store."""
        return None if self.store is None else (self.store.path, self.questions[cell])

    def _payload(self, cell: Cell) -> bytes:
        if self._pickled[0] != cell.instance:
            self._pickled = (cell.instance, pickle.dumps(self.instances[cell.instance]))
        name = self.instances[cell.instance].kind
        kind = name, KINDS[name]
        parts = (self.solve, self._pickled[1], self._arguments(cell), self._place(cell), kind)
        return pickle.dumps(parts)

    def _refers_to_main(self) -> bool:
        """Return whether cells need the user's script; those that cannot be sent need nothing."""
        parts = (self.solve, self.arguments, {type(i) for i in self.instances.values()})
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
            return b"__main__" in pickle.dumps(parts)
        return False
