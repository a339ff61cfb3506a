"""Addresses of the buffers of a group: first by a rule, then by exact search.

The rule is that of the seed, which is TPU-MLIR's: longest lifetime first, then largest size.  If it
finds no placement within the capacity, the exact search of LMEM packing decides.  A variant of the
rule that avoids shared banks may need more room; its placement is preferred if it fits.

Cost: a greedy placement by either rule; the exact search, if needed, ends at its limit of work.
Source: TPU-MLIR, as the seed describes it; what follows the rule is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from stagepack.heuristics.effort import spend, spent
from stagepack.heuristics.groups.oracle import ALONE, Members, Oracle
from stagepack.heuristics.groups.tuning import TUNING, PlacementTuning
from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.greedy import BankPairs
from stagepack.heuristics.packing.constructive.rules import RULES, Measures
from stagepack.heuristics.packing.exact_search import exact
from stagepack.instances.groups import GroupingSolution
from stagepack.instances.groups.banks import Pairs
from stagepack.instances.groups.lmem import in_place, packing
from stagepack.instances.groups.regions import Regions
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing import Banks
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Stopped
from stagepack.result import Status

RULE = RULES["first-fit-lifetime-size"]

NEVER = 2**60
"""More bytes than any lane has."""

Offsets = tuple[int, ...]
Place = Callable[[Timetable, Callable[[], bool], PlacementTuning], tuple[Status, Offsets]]
"""What places a group: :func:`place`, or what is like it."""


def place(
    table: Timetable,
    keep_going: Callable[[], bool],
    tuning: PlacementTuning = TUNING.placement,
) -> tuple[Status, Offsets]:
    """Return whether the buffers of a group can be placed, and where.

    That is FEASIBLE and offsets in the order of :func:`.lmem.copies`; INFEASIBLE; or UNKNOWN, where
    the search took too long.  `keep_going` is asked several times a second.
    """
    offsets = place_by_rule(table, keep_going, tuning)
    if offsets is not None:
        return Status.FEASIBLE, offsets
    if not keep_going():
        return Status.UNKNOWN, ()
    blocks, capacity = Blocks.of(packing(table)), table.regions.instance.chip.memory
    decision = exact.decide(blocks, capacity, keep_going=_limited(keep_going, tuning))
    if decision.status is Status.FEASIBLE and decision.offsets is not None:
        return Status.FEASIBLE, tuple(blocks.expand(decision.offsets).tolist())
    return decision.status, ()


def _limited(keep_going: Callable[[], bool], tuning: PlacementTuning) -> Callable[[], bool]:
    """Return a `keep_going` that says no once so much work is done from here on."""
    until = spent() + tuning.search_seconds
    return lambda: spent() < until and keep_going()


def place_apart(table: Timetable, pairs: Pairs, keep_going: Callable[[], bool]) -> Offsets | None:
    """Return offsets for which few pairs share a bank, by the same rule minding banks, or None.

    `pairs` are what should not share a bank, by index of :func:`.lmem.copies`; `keep_going` is
    asked several times a second.
    """
    chip = table.regions.instance.chip
    blocks = Blocks.of(packing(table))
    apart = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    banks = BankPairs.of(blocks, Banks(chip.banks, chip.bank_bytes, apart))
    rule = RULES["bank-aware"]
    found = greedy.place(blocks, rule, ceiling=chip.memory, keep_going=keep_going, banks=banks)
    return None if found is None else tuple(blocks.expand(found).tolist())


def place_by_rule(
    table: Timetable,
    keep_going: Callable[[], bool],
    tuning: PlacementTuning = TUNING.placement,
) -> Offsets | None:
    """Return where the seed's rule places the buffers of a group, None where it finds no place.

    `keep_going` is asked several times a second.
    """
    spend(tuning.group_price + tuning.buffer_price * len(table.buffers))
    if not keep_going():
        return None
    blocks, capacity = Blocks.of(packing(table)), table.regions.instance.chip.memory
    found = _by_rule(blocks, capacity, keep_going)
    return None if found is None else tuple(blocks.expand(found).tolist())


def _by_rule(blocks: Blocks, capacity: int, keep_going: Callable[[], bool]) -> Array | None:
    """Place blocks of any shape by one kernel: groups have few, and each kernel takes a second."""
    offsets = np.full(blocks.b, -1)
    order = RULE.order(Measures(blocks), keep_going)
    done = greedy.place_limited(blocks, order, offsets, ceiling=capacity, keep_going=keep_going)
    return offsets if done else None


def least_memory(
    table: Timetable,
    enough: int,
    keep_going: Callable[[], bool],
    tuning: PlacementTuning = TUNING.placement,
) -> int:
    """Return the fewest bytes of a lane in which the buffers of a group can be placed.

    Where the exact search takes too long these are the fewest that were found; where it is no less
    than `enough` bytes, their sum at one time will do for an answer.  `keep_going` is asked several
    times a second.
    """
    least = 0 if in_place(table) else max(table.load_bytes())
    if least >= enough:  # without what it costs to make a packing of it
        return least
    blocks = Blocks.of(packing(table))
    least = int(blocks.load.max())
    if least >= enough:
        return least
    offsets = _by_rule(blocks, NEVER, lambda: True)
    assert offsets is not None  # without a ceiling there is a place for all
    most = int((offsets + blocks.size).max())
    while least < most:
        tried = (least + most) // 2
        decision = exact.decide(blocks, tried, keep_going=_limited(keep_going, tuning))
        if decision.status is Status.INFEASIBLE:
            least = tried + 1
        elif decision.offsets is not None:
            most = int((decision.offsets + blocks.size).max())
        else:
            break
    return most


class Placements:
    """Groups that were placed, and plans of them.

    The `oracle` is told which cuts cannot be placed; `placing` places a group, as :func:`place`
    does, which has `keep_going`, too.  `decided`: every placement asked for was found, or proved
    impossible.
    """

    def __init__(
        self,
        oracle: Oracle,
        keep_going: Callable[[], bool],
        placing: Place = place,
    ) -> None:
        self._placing = placing
        self._oracle, self._keep_going = oracle, keep_going
        self._found: dict[tuple[Members, int], Offsets] = {}
        self.decided = True

    def stands(self, members: Members, which: int) -> bool:
        """Whether the buffers of a group can be placed in a cut; if not, the cut is banned.

        Raises :class:`.Stopped` once the clock says no.
        """
        if which == ALONE or (members, which) in self._found:
            return True
        table = Timetable(Regions(self._oracle.instance, members, self._oracle.cuts[which]))
        tuning = self._oracle.tuning.placement
        status, offsets = self._placing(table, self._keep_going, tuning)
        if status is Status.FEASIBLE:
            self._found[members, which] = offsets
            return True
        if not self._keep_going():
            raise Stopped
        self.decided &= status is Status.INFEASIBLE
        self._oracle.ban(members, which)
        return False

    def plan(self, groups: Sequence[tuple[Members, int]]) -> GroupingSolution:
        """Return the plan of groups that all stand, each with its cut, in their order."""
        order = tuple(at for members, _ in groups for at in members)
        sizes = [len(members) for members, _ in groups]
        return GroupingSolution(
            tuple(accumulate(sizes, initial=0)),
            tuple(() if which == ALONE else tuple(self._oracle.cuts[which]) for _, which in groups),
            order=() if order == tuple(range(len(order))) else order,
            offsets=tuple(
                () if which == ALONE else self._found[members, which] for members, which in groups
            ),
        )
