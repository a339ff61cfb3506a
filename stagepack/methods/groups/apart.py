"""Reduces bank conflicts: new addresses for a plan whose groups and timesteps stay fixed.

A bank conflict is a pair of buffers that are accessed at the same time and share a bank.  Each
group is treated separately.  First a placement rule that avoids shared banks is applied.  If
conflicts remain, CP-SAT minimises their number and proves a bound.  The time for this is as long as
the search for the plan took, or a fraction of the time limit, divided evenly among the groups.
Identical groups are solved once.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stagepack import solvers
from stagepack.errors import ContradictionError, InputError
from stagepack.formulations.packing.cp_sat import CpSat
from stagepack.heuristics.effort import counting, spend, spent
from stagepack.heuristics.groups.placement import Offsets, place_apart
from stagepack.heuristics.groups.tuning import TUNING
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.banks import Pairs, bank_pairs, shared_pairs
from stagepack.instances.groups.lmem import copies, in_place, packing
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing import Banks, LmemPacking, PackingSolution
from stagepack.methods import Settings
from stagepack.methods.groups.offering import checking, offer
from stagepack.methods.models import PACE, run_model
from stagepack.progress import Part, Progress, Stopped
from stagepack.result import Termination


class Apart(NamedTuple):
    """Addresses of groups that are alike, how many pairs share a bank there, and how many must.

    The table is that of the first of them; `pairs` that should not share a bank are by index of
    :func:`.lmem.copies`.
    """

    table: Timetable
    pairs: Pairs
    offsets: Offsets
    shared: int
    least: int = 0


class Fewest(Part[PackingSolution, GroupingSolution]):
    """A run of the model of a group, for the fewest pairs in one bank, within a run of the method
    (`whole`).

    The conflicts of the `problem` come first, its peak second.
    """

    def __init__(self, problem: LmemPacking, whole: Progress[GroupingSolution]) -> None:
        super().__init__(whole, problem.evaluate, problem.check, polishing=True)
        self._problem, self._weight = problem, problem.conflict_weight

    @property
    def least(self) -> int:
        """Pairs that must share a bank."""
        return 0 if self.bound is None else int(self.bound) // self._weight

    def offer(self, solution: PackingSolution, source: str) -> bool:
        """Keep the first of equally few pairs, however many come before the engine has ended."""
        pairs = int(self._problem.evaluate(solution)) // self._weight
        if self.objective is not None and pairs >= int(self.objective) // self._weight:
            return False
        return super().offer(solution, source)

    def stop_reason(self) -> Termination | None:
        """Return why to stop: the peak does not matter once no fewer pairs can share a bank."""
        if self.objective is not None and int(self.objective) // self._weight <= self.least:
            return Termination.PROVED
        return super().stop_reason()


def spread(
    instance: LayerGrouping, progress: Progress[GroupingSolution], settings: Settings
) -> None:
    """Place the groups of the best plan anew where fewer pairs of buffers then share a bank."""
    plan, tuning = progress.solution, settings.tuned(TUNING)
    if plan is None or instance.chip.banks == 1:
        return
    known: dict[object, Apart] = {}
    names: dict[int, object] = {}
    for group, table in plan.timetables(instance):
        if table is None:
            continue
        if not _goes_on(progress):
            break
        pairs = tuple(bank_pairs(table))
        spend(tuning.banks.pair_price * len(pairs))
        names[group] = _signature(table, pairs)
        if names[group] not in known:
            known[names[group]] = _by_rule(table, pairs, plan.offsets[group], progress)
    _search(known, progress, settings)
    offsets = list(plan.offsets)
    for group, name in names.items():
        one = known[name]
        if one.offsets == offsets[group]:
            continue
        if one.shared < shared_pairs(one.table, one.pairs, offsets[group]):
            offsets[group] = one.offsets
    if tuple(offsets) != plan.offsets:
        every = sum(len(known[name].pairs) for name in names.values())
        counting_pairs = 2 * tuning.banks.pair_price * every  # both plans are looked at
        seconds = 2 * checking(plan, tuning.check) + counting_pairs
        if seconds > max(tuning.banks.late, progress.remaining):
            words = "there was no time to check addresses with fewer pairs in one bank"
            progress.reason = "; ".join(filter(None, [progress.reason, words]))
            return
        spend(counting_pairs)
        better = replace(plan, offsets=tuple(offsets))
        offer(progress, better, "fewer pairs in one bank", tuning)
    _say([known[name] for name in names.values()], progress)


def _goes_on(progress: Progress[GroupingSolution]) -> bool:
    """Whether there is time left."""
    return progress.remaining > 0 and not progress.interrupted


def _signature(table: Timetable, pairs: Pairs) -> object:
    """Return what is equal where the addresses of one group do for another."""
    places = tuple((copy.buffer.lane_bytes, copy.start, copy.rows) for copy in copies(table))
    return places, table.period, in_place(table), pairs


def _by_rule(
    table: Timetable, pairs: Pairs, offsets: Offsets, progress: Progress[GroupingSolution]
) -> Apart:
    """Return the addresses of the rule that minds banks, or those that are there."""
    there = Apart(table, pairs, offsets, shared_pairs(table, pairs, offsets))
    if not there.shared or not _goes_on(progress):
        return there
    found = place_apart(table, pairs, lambda: _goes_on(progress))
    if found is None:
        return there
    return min(
        there,
        there._replace(offsets=found, shared=shared_pairs(table, pairs, found)),
        key=lambda one: one.shared,
    )


def _search(
    known: dict[object, Apart], progress: Progress[GroupingSolution], settings: Settings
) -> None:
    """Let CP-SAT look at groups, all of them for as long, as long as there is work to be spent."""
    tuning = settings.tuned(TUNING).banks
    most = tuning.most_pairs
    names = [name for name, one in known.items() if one.shared and len(one.pairs) <= most]
    engine = solvers.engine("cp-sat")
    if not names or engine.unavailable():
        return
    with progress.setup("loading cp-sat"), counting():
        engine.load()
    limit = settings.time_limit or tuning.usual_limit
    until = spent() + max(tuning.share * limit, spent())
    while names:
        share = (until - spent()) / len(names)
        if share < tuning.least:
            return
        for name in names:
            if not _goes_on(progress):
                return
            known[name] = _exactly(known[name], share, progress, settings)
            spend(tuning.least)
        names = [name for name in names if known[name].least < known[name].shared]


def _exactly(
    known: Apart, seconds: float, progress: Progress[GroupingSolution], settings: Settings
) -> Apart:
    """Return the addresses with which the fewest pairs share a bank, as far as there is work."""
    table, chip = known.table, known.table.regions.instance.chip
    pairs = np.array(known.pairs, dtype=np.int64)
    engine = solvers.engine("cp-sat")
    banks = Banks(chip.banks, chip.bank_bytes, pairs)
    problem = packing(table).replace(objective="bank-conflicts", banks=banks)
    inner = Fewest(problem, progress)

    def infeasible() -> None:
        raise ContradictionError("the banks of a group have no addresses, although some are known")

    with contextlib.suppress(InputError, Stopped):  # figures beyond what the engine counts to
        took = run_model(
            engine,
            lambda: CpSat(problem),
            "CpSat",
            inner,
            settings,
            start=PackingSolution(np.array(known.offsets, dtype=np.int64)),
            work=PACE * seconds,
            conclude_infeasible=infeasible,
        )
        spend(took)
    if inner.interrupted:
        progress.interrupt()
    best = known._replace(least=min(inner.least, known.shared))
    if inner.solution is not None:
        found = tuple(inner.solution.offsets.tolist())
        shared = shared_pairs(table, known.pairs, found)
        if shared < best.shared:
            best = best._replace(offsets=found, shared=shared, least=min(best.least, shared))
    return best


def _say(groups: list[Apart], progress: Progress[GroupingSolution]) -> None:
    """Say how many pairs are left, and whether they must be."""
    shared, least = sum(one.shared for one in groups), sum(one.least for one in groups)
    if not shared:
        return
    proof = "the fewest" if shared == least else f"at least {least:,}"
    words = f"pairs of buffers in one bank: {shared:,}, {proof} with these groups and timesteps"
    progress.reason = "; ".join(filter(None, [progress.reason, words]))
