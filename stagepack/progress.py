"""The state of a running solve: the best solution and bound so far, the clock, and stopping rules.

This module is independent of problems and solvers.  An instance evaluates solutions, an algorithm
finds them, and :class:`Progress` keeps the best solution together with the best proved bound.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from stagepack import memory
from stagepack.contracts import Number, SolutionT
from stagepack.errors import CheckError, ContradictionError
from stagepack.evidence import SEARCHED, Evidence, Proof
from stagepack.result import Event, EventKind, Status, Termination, Trace, relative_gap, slack
from stagepack.stopping import stop

WholeT = TypeVar("WholeT")

log = logging.getLogger("stagepack")

PATIENCE = 2.0
"""Seconds of setup after which people are told what takes so long."""


class Compilation:
    """Tells, once a process, that kernels are compiled: not that they come from the cache."""

    def __init__(self) -> None:
        self.kept = True  # on disk, so that machine code need not be made again
        self.told = False
        self.heard: Callable[[bool], None] | None = None  # of every begin, True, and end
        self._paused: tuple[float, float | None] = 0.0, None  # all pauses so far; since when
        self._depth = self._pauses = 0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    @property
    def seconds(self) -> float:
        """How long it took so far to make or load kernels, and what makes them."""
        counted, since = self._paused
        return counted if since is None else counted + time.perf_counter() - since

    def pause(self) -> None:
        """Take no time from now on as time of solving, in any thread."""
        with self._lock:
            self._pauses += 1
            if self._pauses == 1:
                self._paused = self._paused[0], time.perf_counter()

    def resume(self) -> None:
        """Take the end of the last pause begun."""
        with self._lock:
            self._pauses -= 1
            if not self._pauses:
                self._paused = self.seconds, None

    @property
    def under_way(self) -> bool:
        """Whether something is being compiled now."""
        return self._depth > 0

    def begin(self) -> None:
        """Take the beginning of a compilation, perhaps within another one, from any thread."""
        self.pause()
        with self._lock:
            self._depth += 1
            if self._depth > 1:
                return
        if self.heard is not None:
            self.heard(True)
        if not self.told:
            self._timer = threading.Timer(max(0.0, PATIENCE - self.seconds), self._tell)
            self._timer.daemon = True
            if memory.has_room():
                self._timer.start()

    def end(self) -> None:
        """Take the end of the last one begun."""
        self.resume()
        with self._lock:
            self._depth -= 1
            if self._depth > 0:
                return
        if self._timer is not None:
            self._timer.cancel()
        if self.heard is not None:
            self.heard(False)

    def _tell(self) -> None:
        if not self.told:
            self.told = True
            why = "first use only" if self.kept else "at every start: no folder can keep them"
            log.info("compiling kernels (%s) ...", why)


compilation = Compilation()
"""That of this process."""


def clock() -> float:
    """Return the seconds of a clock that stands still while kernels are compiled or loaded."""
    return time.perf_counter() - compilation.seconds


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage in the block: loading makes hardly any, and would take a fifth longer."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Stopped(Exception):
    """Raised inside a method when :class:`Progress` says that it is time to return."""


def pausing(keep_going: Callable[[], bool] | None) -> Callable[[], None]:
    """Return what raises :class:`Stopped` once `keep_going` says no."""

    def pause() -> None:
        if keep_going is not None and not keep_going():
            raise Stopped

    return pause


class Comparable(Protocol):
    """What is less than another of its kind, or not."""

    def __lt__(self, other: Any, /) -> bool: ...


class Progress(Generic[SolutionT]):
    """The best solution and bound of a running solve, its clock, and its reasons to stop.

    Methods `offer` solutions and `raise_bound`; between steps they ask `keep_going`.  Only
    solutions that the instance's own checker accepts are kept.

    `evaluate` gives the objective value of a solution, as the instance defines it, `check` its
    violations, of which any raise :class:`CheckError`.  `time_limit` is in seconds from now, not
    counting :attr:`setup_time`; the run also stops once the objective is at most `target`, or the
    relative gap at most `gap`.  `tolerance` is that of objective values, relative: 0 for integer
    data.

    `on_incumbent` is called with ``(solution, objective, bound)`` at each improvement, `on_bound`
    with ``(bound, source)`` at each better bound.  Of solutions of equal objective the one with the
    least `secondary` is kept.  `by_clock`: the clock may say when something is told; else equal
    runs tell, and stop, alike.

    `failure` is what the caller's functions raised, which ends the run; nothing is told after it.
    """

    def __init__(
        self,
        evaluate: Callable[[SolutionT], Number],
        check: Callable[[SolutionT], tuple[object, ...]],
        *,
        time_limit: float | None = None,
        target: Number | None = None,
        gap: float = 0.0,
        tolerance: float = 0.0,
        on_incumbent: Callable[[SolutionT, Number, Number | None], None] | None = None,
        on_bound: Callable[[Number, str], None] | None = None,
        secondary: Callable[[SolutionT], Comparable] | None = None,
        by_clock: bool = True,
    ) -> None:
        self._evaluate = evaluate
        self.by_clock = by_clock
        self._secondary = secondary
        self._second: Comparable | None = None  # of the solution that is kept, once asked for
        self._check = check
        self._time_limit = time_limit
        self._target = target
        self._gap = gap
        self._tolerance = tolerance
        self._on_incumbent = on_incumbent
        self._on_bound = on_bound
        self._started = time.perf_counter()
        self._lock = threading.RLock()
        self._interrupted = False
        self._stop = stop()
        self._closed = False
        self._stopped: Termination | None = None
        self.failure: BaseException | None = None
        self._clock: Callable[[], float] | None = None
        self._offered = self._started
        self._checking = 0.0
        self._setup, self._compiled = 0.0, compilation.seconds
        self.trace = Trace()
        self.solution: SolutionT | None = None
        self.objective: Number | None = None
        self.bound: Number | None = None
        self.bound_source = ""
        self.evidence: Evidence | None = None  # why the bound holds, or why nothing is feasible
        self.contradictions: list[str] = []  # what engines said of it that is known to be false
        self._sure: tuple[Number | None, str, Evidence | None] = (None, "", None)
        """The best bound of no engine."""
        self._distrusted: set[str] = set()
        self.infeasible_reason: str | None = None
        self.reason = ""
        self.engine = ""
        self.has_start = False  # what was given to start from was looked at

    @property
    def setup_time(self) -> float:
        """Seconds of :meth:`setup`, and of kernels that were compiled within it or elsewhere."""
        return self._setup + compilation.seconds - self._compiled

    @property
    def elapsed(self) -> float:
        """Seconds of solving so far, setup not counted."""
        return time.perf_counter() - self._started - self.setup_time

    @property
    def remaining(self) -> float:
        """Seconds left; infinite without a time limit."""
        if self._time_limit is None:
            return math.inf
        return self._time_limit - self.spent

    @property
    def spent(self) -> float:
        """Seconds of the clock that ends the run: the wall's, or another one."""
        return self.elapsed if self._clock is None else self._clock()

    def limit_by(self, clock: Callable[[], float], seconds: float) -> None:
        """End by another clock than the wall's: once it says so many seconds."""
        self._clock, self._time_limit = clock, seconds

    @contextlib.contextmanager
    def setup(self, what: str) -> Iterator[None]:
        """Count the block (an import, a compilation) as setup, and say so when it takes long."""

        def tell() -> None:
            if not (compilation.told or compilation.under_way):  # it speaks for itself
                log.info("%s ...", what)

        notice = threading.Timer(PATIENCE, tell)
        notice.daemon = True
        began = time.perf_counter() - compilation.seconds
        if memory.has_room():
            notice.start()
        try:
            with uncollected():
                yield
        finally:
            notice.cancel()
            self._count_setup(time.perf_counter() - compilation.seconds - began)

    def _count_setup(self, seconds: float) -> None:
        self._setup += seconds

    @contextlib.contextmanager
    def reserving(self, part: float) -> Iterator[None]:
        """Keep a part, of 1, of the time that is left for what follows the block."""
        whole = self._time_limit
        if whole is not None:
            self._time_limit = whole - part * max(0.0, self.remaining)
        try:
            yield
        finally:
            if whole is not None and self.remaining <= 0:
                self.stop(Termination.TIME_LIMIT)
            self._time_limit = whole

    @contextlib.contextmanager
    def lending(self, part: float, most: float) -> Iterator[None]:
        """Give the block a part, of 1, of the time left, but at most so many seconds.

        However the block ends, the run goes on.
        """
        whole, stopped = self._time_limit, self._stopped
        self._time_limit = self.spent + min(part * max(0.0, self.remaining), most)
        try:
            with contextlib.suppress(Stopped):
                yield
        finally:
            self._time_limit, self._stopped = whole, stopped

    @property
    def stale(self) -> bool:
        """Whether nothing was offered for a moment: a fast search need not report every step.

        Nor may the checking of what it offers take more than a part of its time.
        """
        past = time.perf_counter() - self._offered
        return self.by_clock and past >= max(0.05, 5 * self._checking)

    def take_start(self) -> None:
        """Note that the run starts from what it was given."""
        self.has_start = True

    def offer(self, solution: SolutionT, source: str) -> bool:
        """Check and evaluate `solution`; keep it if it is better.  Return whether it was."""
        better, violations = self._take(solution, source)
        if violations:
            raise CheckError(
                f"{source} returned a solution that fails its check: "
                + "; ".join(str(violation) for violation in violations[:3])
            )
        return better

    def offer_if_valid(self, solution: SolutionT, source: str) -> tuple[object, ...]:
        """Do as :meth:`offer`, but return the violations of what a naive rule gave."""
        return self._take(solution, source)[1]

    def _take(self, solution: SolutionT, source: str) -> tuple[bool, tuple[object, ...]]:
        """Return whether `solution` is better than what is known, and its violations."""
        began = time.perf_counter()
        violations = self._check(solution)
        if violations:
            return False, violations
        objective = self._evaluate(solution)
        self._offered = time.perf_counter()
        self._checking = self._offered - began
        with self._lock:
            if self._closed:
                return False, ()
            if self.objective is not None and objective >= self.objective:
                if objective == self.objective:
                    self._prefer(solution)
                return False, ()
            told = self.evidence is not None and self.evidence.proof is Proof.ENGINE
            if told and self._contradict(objective, self.bound):
                self.disbelieve(
                    self.bound_source, f"proved a bound above {objective:,}, a valid one"
                )
            self._require_consistent(objective, self.bound, source)
            self.solution, self.objective, self._second = solution, objective, None
            self.trace.events.append(Event(self.elapsed, EventKind.INCUMBENT, objective, source))
            bound = self.bound
        log.debug("%.3fs incumbent %s (%s)", self.elapsed, objective, source)
        self._tell(self._on_incumbent, solution, objective, bound)
        return True, ()

    def _tell(self, called: Callable[..., None] | None, *news: object) -> None:
        if called is None or self.failure is not None:
            return
        try:
            called(*news)
        except BaseException as error:
            self.failure = error
            raise

    def _prefer(self, solution: SolutionT) -> None:
        """Keep a solution of equal objective if it has less of the secondary one."""
        if self._secondary is None or self.solution is None:
            return
        if self._second is None:
            self._second = self._secondary(self.solution)
        second = self._secondary(solution)
        if second < self._second:
            self.solution, self._second = solution, second

    def raise_bound(self, bound: Number | None, source: str, evidence: Evidence = SEARCHED) -> None:
        """Record that no solution is better than a `bound`, if that is news.

        An equal bound is news where more can be seen of its evidence: then this is kept.  An engine
        whose word a valid solution contradicts, before or later, is believed no more, and all its
        bounds are dropped.

        None and infinities are no news, and nothing is where nothing is feasible; `source` says
        how it was proved.
        """
        if bound is None or not math.isfinite(bound):
            return
        with self._lock:
            if self._closed or source in self._distrusted or self.infeasible_reason is not None:
                return
            claimed = evidence.proof is Proof.ENGINE
            sure = self._sure[0]
            if not claimed and (sure is None or bound > sure):
                self._sure = bound, source, evidence
            if self.bound is not None and bound < self.bound:
                return
            if bound == self.bound:
                if self.evidence is not None and evidence.rank < self.evidence.rank:
                    self.bound_source, self.evidence = source, evidence
                return
            if claimed and self._contradict(self.objective, bound):
                self.disbelieve(source, f"proved a bound above {self.objective:,}, a valid one")
                return
            self._require_consistent(self.objective, bound, source)
            self.bound, self.bound_source, self.evidence = bound, source, evidence
            self.trace.events.append(Event(self.elapsed, EventKind.BOUND, bound, source))
        log.debug("%.3fs bound %s (%s)", self.elapsed, bound, source)
        self._tell(self._on_bound, bound, source)

    def confirm_warm_start(self, value: Number, source: str) -> None:
        """Record that an engine took the solution it was given, worth `value`, as its first."""
        with self._lock:
            self.trace.events.append(Event(self.elapsed, EventKind.WARM_START, value, source))

    def prove_infeasible(self, reason: str, evidence: Evidence = SEARCHED) -> None:
        """Record that the instance has no solution, why, and what shows it."""
        if self.solution is not None:
            raise ContradictionError(
                f"called infeasible although a valid solution is known: {reason}"
            )
        self.infeasible_reason, self.evidence = reason, evidence

    def close(self) -> None:
        """Take nothing more, whatever a late thread still offers: the result is being read."""
        with self._lock:
            self._closed = True

    def _require_consistent(
        self, objective: Number | None, bound: Number | None, source: str
    ) -> None:
        if self._contradict(objective, bound):
            raise CheckError(
                f"{source}: the bound {bound:,} exceeds the value {objective:,} of a valid solution"
            )

    def _contradict(self, objective: Number | None, bound: Number | None) -> bool:
        """Whether a bound says that a solution of some value cannot be."""
        if objective is None or bound is None:
            return False
        return bound > objective + self._slack(objective)

    def disbelieve(self, source: str, said: str) -> None:
        """Report what an engine, a `source`, said that cannot be true; drop its bounds."""
        with self._lock:
            self._distrusted.add(source)
            self.trace.events = [
                event
                for event in self.trace.events
                if event.kind != EventKind.BOUND or event.source != source
            ]
            if self.bound_source == source:
                self.bound, self.bound_source, self.evidence = self._sure
            note = f"{source} {said}: it is not believed, and its bounds are dropped"
            if note not in self.contradictions:
                self.contradictions.append(note)
        log.warning("%s", note)

    @property
    def interrupted(self) -> bool:
        """Whether the run was asked to end, by an exception of a callback or otherwise."""
        if self._stop is not None and not self._interrupted:
            try:
                self._interrupted = bool(self._stop())
            except BaseException as error:
                self._interrupted, self.failure = True, self.failure or error
        return self._interrupted or self.failure is not None

    def interrupt(self) -> None:
        """Ask the run to end with what it has (Ctrl-C)."""
        self._interrupted = True

    def stop(self, why: Termination) -> None:
        """Record why a method ended by itself, where the clock alone does not tell."""
        self._stopped = why

    @property
    def proved(self) -> bool:
        """Whether nothing is left to find: optimal within the tolerance, or infeasible."""
        if self.infeasible_reason is not None:
            return True
        if self.objective is None or self.bound is None:
            return False
        return self.bound >= self.objective - self._slack(self.objective)

    def _slack(self, objective: Number) -> Number:
        return slack(objective, self._tolerance)

    def stop_reason(self) -> Termination | None:
        """Return why the run should stop now, or None if it should go on."""
        if self.interrupted:
            return Termination.INTERRUPTED
        if self.proved:
            return Termination.PROVED
        if self.objective is not None:
            if self._target is not None and self.objective <= self._target:
                return Termination.TARGET
            gap = relative_gap(self.objective, self.bound)
            if self._gap > 0 and gap is not None and gap <= self._gap:
                return Termination.TARGET
        if self.remaining <= 0:
            return Termination.TIME_LIMIT
        return self._stopped

    def keep_going(self) -> bool:
        """Whether there is a reason and the time to search on."""
        return self.stop_reason() is None

    def require_time(self) -> None:
        """Raise :class:`Stopped` when the run should stop now."""
        if not self.keep_going():
            raise Stopped

    def outcome(self) -> tuple[Status, Termination]:
        """Return status and termination of what is known now, for the final result."""
        termination = self.stop_reason() or Termination.FINISHED
        if self.infeasible_reason is not None:
            return Status.INFEASIBLE, Termination.PROVED
        if self.objective is None:
            return Status.UNKNOWN, termination
        if self.proved:
            # Within the tolerance the bound may exceed the value: never report a negative gap.
            assert self.bound is not None
            self.bound = min(self.bound, self.objective)
            return Status.OPTIMAL, Termination.PROVED
        return Status.FEASIBLE, termination


class Part(Progress[SolutionT], Generic[SolutionT, WholeT]):
    """A run within another one, which ends when that does and shares its clock.

    Its setup counts as that of the `whole`, too.  If it is `polishing`, it goes on where nothing is
    left to find of the other one: it ends with its clock and where that is interrupted.
    `evaluate`, `check` and `options` are those of :class:`Progress`.
    """

    def __init__(
        self,
        whole: Progress[WholeT],
        evaluate: Callable[[SolutionT], Number],
        check: Callable[[SolutionT], tuple[object, ...]],
        *,
        polishing: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(evaluate, check, by_clock=whole.by_clock, **options)
        self.whole, self._polishing = whole, polishing

    @property
    def remaining(self) -> float:
        """Seconds left of the whole run, or of what the part may take."""
        return min(super().remaining, self.whole.remaining)

    def stop_reason(self) -> Termination | None:
        """Return why to stop: the whole run should, or the part has done what it was for."""
        if self._polishing:
            ended = Termination.INTERRUPTED if self.whole.interrupted else None
        else:
            ended = self.whole.stop_reason()
        return ended or super().stop_reason()

    def take_start(self) -> None:
        """Note that the run starts from what it was given, and so does the whole."""
        super().take_start()
        self.whole.take_start()

    def disbelieve(self, source: str, said: str) -> None:
        """Report, of the whole run as well, what an engine said that cannot be true."""
        super().disbelieve(source, said)
        self.whole.disbelieve(source, said)

    def _count_setup(self, seconds: float) -> None:
        super()._count_setup(seconds)
        self.whole._count_setup(seconds)
