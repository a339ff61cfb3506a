"""Small sets of buffers that have no placement, and the changes that would allow one.

A deletion filter (Chinneck and Dravnieks 1991) drops every buffer and rule without which the rest
still has no placement.  Then each limit is raised, by bisection, until a placement exists.  The
feasibility questions are answered by the exact search or, for rules it does not support, by CP-SAT.
Each has a time limit and their number is bounded; the answer is what is known when it is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stagepack import solvers
from stagepack.errors import InputError
from stagepack.formulations import packing as formulations
from stagepack.heuristics import effort
from stagepack.heuristics.iis import reduce
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.arrays import distinct
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.methods.models import PACE
from stagepack.methods.packing.attempt import PackingProgress
from stagepack.result import Status


@dataclass(frozen=True)
class InfeasibleBuffers:
    """Buffers that do not fit together."""

    buffers: tuple[int, ...]  # their indices, ascending
    # Without any one of them the others fit.  False: not proved.
    irreducible: bool


class Questions:
    """Asks whether instances have any placement, as long as that is cheap."""

    def __init__(self, progress: PackingProgress, *, tuning: PackingTuning = TUNING) -> None:
        self.tuning = tuning
        self.progress = progress
        self.asked = self.undecided = 0
        # On the clock that ends the run, so that runs that are to repeat do.
        self._until = progress.spent + tuning.reasons.seconds
        self._limited = np.isfinite(progress.remaining)

    def keep_going(self) -> bool:
        """Whether there is time, and hope, for one more question."""
        if (
            self.progress.interrupted
            or self.undecided >= self.tuning.reasons.undecided
            or self.asked >= self.tuning.reasons.questions
        ):
            return False
        # Without a time limit only work counts, so that such runs repeat.
        return not self._limited or (
            self.progress.remaining > 0 and self.progress.spent < self._until
        )

    def fits(self, instance: LmemPacking) -> Status:
        """Return FEASIBLE, INFEASIBLE or UNKNOWN."""
        if not self.keep_going():
            return Status.UNKNOWN
        self.asked += 1
        effort.spend(self.tuning.reasons.made + self.tuning.prices.item * instance.n)
        try:
            found = self._by_search(instance) or self._by_model(instance)
        except InputError:  # beyond the numbers of one or not installed the other
            found = Status.UNKNOWN
        self.undecided += found is Status.UNKNOWN
        return found

    def _by_search(self, instance: LmemPacking) -> Status | None:
        """Ask the exact search; None where it does not know all rules."""
        if instance.memories:
            return None
        blocks = Blocks.of(instance)
        if exact.unsupported(blocks, tuning=self.tuning):
            return None
        capacity = instance.ceiling
        return exact.decide(
            blocks,
            _stacked(blocks) if capacity is None else capacity,
            keep_going=self.keep_going,
            node_limit=self.tuning.reasons.question_nodes,
            tuning=self.tuning,
        ).status

    def _by_model(self, instance: LmemPacking) -> Status:
        """Ask CP-SAT."""
        engine = solvers.engine("cp-sat")
        if engine.unavailable():
            return Status.UNKNOWN
        with self.progress.setup("loading cp-sat"):
            engine.load()
        model = formulations.CpSat(instance, tuning=self.tuning)
        if model.infeasible:
            return Status.INFEASIBLE
        found: list[object] = []
        outcome = engine.solve(
            model.model,
            limits=solvers.Limits(
                time_limit=max(0.0, self.progress.remaining) if self._limited else None,
                work_limit=self.tuning.reasons.question_work,
            ),
            on_solution=lambda values, bound: found.append(values),
            should_stop=lambda: bool(found) or not self.keep_going(),
        )
        effort.spend(outcome.work / PACE)
        if outcome.interrupted:
            self.progress.interrupt()
        if found or outcome.values is not None:
            return Status.FEASIBLE
        return outcome.status


def _stacked(blocks: Blocks) -> int:
    """Return a height that suffices: everything on top of one another, on any support."""
    support = int(blocks.range_low.max(initial=0))
    return support + int((blocks.size + blocks.alignment).sum())


def part(instance: LmemPacking, buffers: list[int], ceiling: int | None) -> LmemPacking:
    """Return some buffers as an instance that asks for any placement below the ceiling.

    Without a `ceiling`, in bytes, the peak is sought; with several memories it has no meaning.
    `buffers` are indices.
    """
    chosen = {"accesses": np.zeros(len(buffers), dtype=np.int64), "banks": None}
    if instance.objective is Objective.PENALTIES:
        chosen["penalties"] = None
    if instance.memories:
        spilt = instance.objective is Objective.SPILL
        objective = Objective.SPILL if spilt else Objective.PEAK
        return instance.select(buffers, objective=objective, **chosen)
    objective = Objective.PEAK if ceiling is None else Objective.FIT
    return instance.select(buffers, objective=objective, capacity=ceiling, **chosen)


def find(
    instance: LmemPacking,
    ceiling: int | None,
    questions: Questions,
    *,
    within: tuple[int, int] | None = None,
    tuning: PackingTuning = TUNING,
) -> InfeasibleBuffers | None:
    """Return buffers that do not fit together, as few as can be proved quickly.

    No buffer may exceed the address `ceiling`; `within` are sections [first, end) that are known to
    be too full.  None: nothing could be left out, or too much is to be asked of `questions`.
    """
    blocks = Blocks.of(instance)
    kept = list(range(blocks.b))
    if within is not None:
        owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
        kept = distinct(owner[(blocks.first < within[1]) & (blocks.end > within[0])]).tolist()
    if len(kept) > tuning.reasons.blocks:
        return None
    groups = [np.flatnonzero(blocks.block == at).tolist() for at in range(blocks.b)]
    born = [int(instance.start[group].min()) for group in groups]
    nbytes = [int(instance.size[group].max()) for group in groups]

    def fits(kept: list[int]) -> Status:
        buffers = sorted(i for at in kept for i in groups[at])
        return questions.fits(part(instance, buffers, ceiling))

    kept.sort(key=lambda at: (born[at], at))
    # What is alive at other times goes in large pieces, the rest one by one: of the buffers, the
    # largest are tried last, for they are hardly ever superfluous.
    kept, _ = reduce(kept, fits, questions.keep_going, least=max(1, len(kept) // 16))
    kept.sort(key=lambda at: (nbytes[at], at))
    kept, irreducible = reduce(kept, fits, questions.keep_going)
    if len(kept) == len(groups) and not irreducible:
        return None
    return InfeasibleBuffers(tuple(sorted(i for at in kept for i in groups[at])), irreducible)


def lifetime(instance: LmemPacking, buffers: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the first and last time at which at least two of some buffers are alive.

    None for conflict graphs, and where no two ever are.
    """
    if instance.conflicts is not None:
        return None
    blocks = Blocks.of(instance)
    chosen = distinct(blocks.block[list(buffers)])
    alive = np.zeros(blocks.sections + 1, dtype=np.int64)
    for i in chosen.tolist():
        for p in range(blocks.piece_ptr[i], blocks.piece_ptr[i + 1]):
            alive[blocks.first[p]] += 1
            alive[blocks.end[p]] -= 1
    crowded: Array = np.flatnonzero(np.cumsum(alive)[:-1] >= min(2, len(chosen)))
    crowded = blocks.moment[crowded[crowded < blocks.timed]]
    return (int(crowded.min()), int(crowded.max())) if len(crowded) else None


# ---------------------------------------------------------------------- what would mend it


def least_that_fits(
    low: int, high: int, unit: int, make: Callable[[int], LmemPacking], questions: Questions
) -> int | None:
    """Return the least multiple of `unit` in (`low`, `high`] with which an instance is known to
    fit.

    Bisection: fitting must be monotone.  `low` is known not to do, `high` is tried first; `make`
    gets an instance from a number, and `questions` whether it fits, as long as there is patience.
    None: even `high` is not known to do.
    """
    low, high = low // unit, -(-high // unit)
    if questions.fits(make(high * unit)) is not Status.FEASIBLE:
        return None
    while low + 1 < high and questions.keep_going():
        middle = (low + high) // 2
        if questions.fits(make(middle * unit)) is Status.FEASIBLE:
            high = middle
        else:
            low = middle
    return high * unit


def larger_capacity(
    instance: LmemPacking, ceiling: int, questions: Questions, known: int | None = None
) -> int | None:
    """Return a capacity above the ceiling that would do, the least as far as is known.

    The `ceiling` is known not to do.  `known` would do; the capacity of a stack when absent.
    """
    blocks = Blocks.of(instance)
    everyone = list(range(instance.n))
    enough = _stacked(blocks) if known is None else known
    return least_that_fits(
        ceiling, enough, blocks.unit, lambda at: part(instance, everyone, at), questions
    )


def larger_memory(
    instance: LmemPacking, questions: Questions, *, tuning: PackingTuning = TUNING
) -> tuple[int, int] | None:
    """Return which memory to enlarge, and to what capacity: the one that takes fewest bytes."""
    blocks = Blocks.of(instance)
    everyone = list(range(instance.n))
    found: list[tuple[int, int, int]] = []
    for index, memory in enumerate(instance.memories[: tuning.reasons.probed]):
        if memory.capacity is None:
            continue

        def enlarged(capacity: int, index: int = index) -> LmemPacking:
            memories = list(instance.memories)
            memories[index] = replace(memories[index], capacity=capacity)
            return part(instance, everyone, None).replace(memories=memories)

        enough = memory.capacity + _stacked(blocks)
        least = least_that_fits(memory.capacity, enough, blocks.unit, enlarged, questions)
        if least is not None:
            found.append((least - memory.capacity, index, least))
    return min(found)[1:] if found else None


def wider_range(
    instance: LmemPacking,
    buffers: tuple[int, ...],
    questions: Questions,
    *,
    tuning: PackingTuning = TUNING,
) -> tuple[int, int, int] | None:
    """Return whose last range to extend, from where, and where to: fewest bytes; None: nobody's.

    The choice is among `buffers`.
    """
    blocks = Blocks.of(instance)
    ends: dict[int, int] = {}
    for item in instance.allowed:
        if item.buffer in buffers and instance.fixed[item.buffer] < 0:
            ends[item.buffer] = max(ends.get(item.buffer, 0), item.high)
    found: list[tuple[int, int, int, int]] = []
    for buffer, end in list(ends.items())[: tuning.reasons.probed]:

        def widened(high: int, buffer: int = buffer, end: int = end) -> LmemPacking:
            allowed = [
                replace(item, high=high) if item.buffer == buffer and item.high == end else item
                for item in instance.allowed
            ]
            changed = instance.replace(allowed=allowed)
            return part(changed, list(range(instance.n)), instance.ceiling)

        least = least_that_fits(end, end + _stacked(blocks), blocks.unit, widened, questions)
        if least is not None:
            found.append((least - end, buffer, end, least))
    return min(found)[1:] if found else None


def looser(
    instance: LmemPacking,
    buffers: tuple[int, ...],
    questions: Questions,
    *,
    tuning: PackingTuning = TUNING,
) -> list[int]:
    """Return which of some fixed buffers, if it alone were free, would let everything fit.

    Of the fixed ones among `buffers`, the first `probed` are tried.
    """
    fixed = [i for i in buffers if instance.fixed[i] >= 0][: tuning.reasons.probed]
    found = []
    for buffer in fixed:
        free = instance.fixed.copy()
        free[buffer] = -1
        changed = part(instance.replace(fixed=free), list(range(instance.n)), instance.ceiling)
        if questions.fits(changed) is Status.FEASIBLE:
            found.append(buffer)
    return found
