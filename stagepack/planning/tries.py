"""State shared by all searches for plans: limits, attempts, and the best plan so far."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack.contracts import FoundT, InstanceOf, Number, SolutionT
from stagepack.errors import InputError
from stagepack.evidence import SEARCHED, TOLD, VERIFIABLE, Evidence, Proof
from stagepack.instances.schedule import PipelineSchedule
from stagepack.interrupts import Interrupts
from stagepack.planning.model_plan import Attempt, ModelPlan
from stagepack.planning.stages import Level, Structure
from stagepack.progress import clock, compilation
from stagepack.result import Result, Status, Termination, Trace
from stagepack.solve import solve

QUESTIONS = 20
"""For how many times the limit of one question new ones are begun."""
LEAST = 0.01
"""Seconds of a question after one that was interrupted."""
ROUNDS = 8
"""How often one partition is asked for again, with what was learnt of the last one."""


@dataclass
class Tries:
    """What is known while plans are looked for."""

    name: str
    microbatches: int
    split: bool
    limits: dict[str, Any]  # of each question, as :func:`stagepack.solve` takes them
    model: Any = field(kw_only=True)
    because: Evidence = SEARCHED  # why the bound holds, or nothing fits
    engines: bool = False  # whether an engine's word is all that is known of an answer
    enough: int | None = None  # a bound on every plan
    share: float = 1.0  # part of the limit that a question may take
    # Whether a question was: those after it get next to no time, and none is begun anew.
    interrupted: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    best: tuple[Number, tuple[Level, ...], Structure] | None = None
    _began: float = field(default_factory=clock)

    def ask(self, instance: InstanceOf[FoundT]) -> Result[FoundT]:
        """Solve one question."""
        limit = self.limits["time_limit"]
        given = limit if limit is None else self.share * limit
        given = LEAST if self.interrupted else given
        compiled = compilation.seconds
        with Interrupts() as interrupts:
            found = solve(instance, **{**self.limits, "time_limit": given})
        self.engines |= found.proof is Proof.ENGINE
        self.interrupted |= interrupts.asked or found.termination is Termination.INTERRUPTED
        self._began += found.setup_time - (compilation.seconds - compiled)  # no time of the clock
        return found

    def asked(self) -> Evidence:
        """Return what bounds rest on that rest on answers: an engine's word, or searches."""
        return TOLD if self.engines else SEARCHED

    def unsolved(self, found: Result[Any]) -> str:
        """Take why nothing fits from a question that has no solution; return it."""
        proof, shown = found.proof or Proof.SEARCH, found.proof in VERIFIABLE
        data = {"rule": "part", "proof": str(proof), "evidence": found.evidence}
        self.because = Evidence(Proof.LOG, data) if shown else Evidence(proof)
        return found.reason

    def ends(self) -> bool:
        """Whether no further question is asked: nothing is faster, or the time is over."""
        if self.best is not None and self.enough is not None and self.best[0] <= self.enough:
            return True
        if self.interrupted:
            return True
        limit = self.limits["time_limit"]
        return limit is not None and clock() - self._began > QUESTIONS * limit

    def note(
        self,
        in_flight: int,
        lent: int,
        status: Status,
        reason: str,
        objective: Number | None = None,
    ) -> None:
        """Note a way through the levels that was tried, with what an :class:`.Attempt` has:
        `in_flight`, `lent`, `status`, `reason`, `objective`.
        """
        self.attempts.append(Attempt(in_flight, lent, status, objective, reason))

    def timed(self, given: Structure, more: tuple[Level, ...], lent: int = 0) -> bool:
        """Schedule the stages of a plan, `given`, and keep it where it is the best.

        Returns whether they can have a schedule: stages of a graph have none where its backward
        pass does not lead back through them.  A document holds `more` levels beside partition,
        schedule and stages; `lent` is that of an :class:`.Attempt`.
        """
        flying = given.microbatches // given.bundle
        try:
            schedule = given.schedule()
        except InputError as error:
            self.note(flying, lent, Status.UNKNOWN, error.problem)
            return False
        if self.best is not None and quickest(schedule) >= self.best[0]:
            self.note(flying, lent, Status.FEASIBLE, "its work alone takes longer")
            return True
        timed = self.ask(schedule)
        if timed.solution is None or timed.objective is None:
            self.note(flying, lent, timed.status, timed.reason)
            return True
        self.note(flying, lent, timed.status, "", timed.objective)
        levels = (given.cut, Level("schedule", schedule, timed), *more)
        self.offer(timed.objective, (*levels, *given.inside.values()), given)
        return True

    def offer(self, value: Number, levels: tuple[Level, ...], given: Structure) -> None:
        """Keep a plan of `given` stages and their `levels` where its `value`, cycles of a step, is
        the best.
        """
        if self.best is None or value < self.best[0]:
            self.best = value, levels, given

    def plan(self, bound: int | None, source: str, reason: str = "") -> ModelPlan:
        """Return what was found, with a `bound` and its `source`, or the `reason` that nothing
        fits.
        """
        found = ModelPlan(
            name=self.name,
            status=Status.INFEASIBLE if reason else Status.UNKNOWN,
            levels=(),
            bound=None if reason else bound,
            bound_source=source,
            microbatches=self.microbatches,
            attempts=tuple(self.attempts),
            reason=reason,
            interrupted=self.interrupted,
            proof=self.because.proof,
            evidence=self.because.data,
            split=self.split,
            model=self.model,
        )
        if self.best is None:
            if reason:
                return found
            told = "; ".join(dict.fromkeys(one.reason for one in self.attempts if one.reason))
            over = "it was interrupted" if self.interrupted else "the time was over"
            told = told or f"{over} before any plan was made"
            return dataclasses.replace(found, reason=told)
        value, levels, given = self.best
        proved = bound is not None and value <= bound
        return dataclasses.replace(
            found,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            levels=levels,
            bound=bound,
            reason="",
            split=given.split,
            model=None,
            bundle=given.bundle,
            on_chip=given.on_chip,
        )


def quickest(schedule: PipelineSchedule) -> int:
    """Return a quick bound: the most work of a device, in a chain after F of the stages before."""
    chain = [(at, at + 1) for at in range(schedule.p - 1)]
    if schedule.p == schedule.d and list(map(tuple, schedule.edges)) == chain:
        return int((np.cumsum(schedule.forward) - schedule.forward + schedule.work).max())
    return int(schedule.work.max())


def expressed(
    whole: InstanceOf[SolutionT], solution: SolutionT, first: Result[SolutionT]
) -> Result[SolutionT]:
    """Return a valid solution that another question led to as an answer of this one, `whole`.

    The bound of `first`, of the question itself, holds.
    """
    if first.solution == solution and first.digest == whole.digest:
        return first
    return dataclasses.replace(
        first,
        status=Status.FEASIBLE,
        termination=Termination.FINISHED,
        objective=whole.evaluate(solution),
        solution=solution,
        instance=whole.name,
        objective_name=str(whole.objective),
        digest=whole.digest,
        options={},
        trace=Trace(),
    )
