"""Possible positions of cuts: bounds and reachable cuts that all models of pipelines share.

All of these are necessary conditions for solutions with an objective of at most `upper` ticks, so a
cut that violates them can be removed without losing such a solution.  Sets of cuts are masks of
shape (n + 1,); the possible ends of a stage that begins at cut a are the cuts of (a, ends[a]].
Quantities
    P, Q      bounds on the largest compute and transfer: every layer is in some stage, at least in
              its cheapest one; every slot receives and sends somewhere (`reachable`)
    limits    what compute and transfer of one stage may be: `upper` less Q, less P (`StageLimits`)
    ends[a]   furthest end of a stage that fits a class and computes no more (`furthest_ends`)
    W_j       cuts that slots before j reach from the head, and those after it from the tail
    values    what C + T can be: sums of costs of single stages (`StageValues`)
Cost
    O(n log n) for each class and number of stashes, O(n) a slot; O(n^2) with tables of ranges
Source
    ours
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from stagepack.errors import InputError
from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.instances.arrays import distinct
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array

UNLIMITED = 2**62
MOST_CUTS = 5_000_000  # of all slots together
MOST_VALUES = 4_000_000  # stages whose values are collected
MOST_TOKENS = 2**25  # stages of which it is told how many tokens they have room for
MOST_SUMMANDS = 200_000  # and how many of them are added up each time


@dataclass(frozen=True)
class StageLimits:
    """Ticks that no stage of a solution worth at most `upper` exceeds."""

    # `compute`, `transfer`: limits of compute and of receive + send (without the host's share).
    compute: int
    transfer: int

    @classmethod
    def of(
        cls, costs: RangeCosts, upper: int | None, least_compute: int, least_transfer: int
    ) -> StageLimits:
        """Derive them from what is known of solutions.

        `upper` are ticks of a known solution, `least_compute` and `least_transfer` lower bounds on
        the largest compute and transfer.
        """
        if upper is None:
            return cls(UNLIMITED, UNLIMITED)
        match costs.instance.objective:
            case Objective.BOTTLENECK | Objective.HEADROOM:
                return cls(upper - constant_ticks(costs), UNLIMITED)
            case Objective.TRANSFER_BOUNDED:
                rest = upper - costs.host
                return cls(rest - least_transfer, rest - least_compute)
            case Objective.SUM | Objective.LATENCY | Objective.MOVES:
                # Compute and transfer of one stage together stay within the limit.
                return cls(upper - costs.host, upper - costs.host)
            case Objective.OVERLAP:
                # Receive and send count one by one: left to the models.
                return cls(upper, UNLIMITED)
            case unknown:
                assert_never(unknown)


def generous(costs: RangeCosts, upper: int | None) -> int | None:
    """Return `upper` raised by the ticks to which rounding may put a solution worth `upper`.

    Whole cycles have exact ticks.  Others are rounded at every cut, and summed in another order
    by `evaluate`: a few ticks and one a layer, and no more than the instance's tolerance.
    """
    tolerance = costs.instance.tolerance
    if upper is None or not tolerance:
        return upper
    return upper + min(costs.n + 8, 1 + int(tolerance * upper))


def transfers_count(costs: RangeCosts) -> bool:
    """Whether the objective looks at transfers at all."""
    return costs.instance.objective.counts_transfers


def constant_ticks(costs: RangeCosts) -> int:
    """Return the ticks that every solution pays on top: the exchange with the host.

    For `headroom` less than nothing, see :func:`in_tokens`.
    """
    free = costs.instance.objective in (Objective.BOTTLENECK, Objective.OVERLAP)
    return 0 if free else costs.host


def in_tokens(costs: RangeCosts) -> RangeCosts:
    """Return costs of `headroom` as those of a bottleneck.

    As its compute a stage has the tokens that it lacks of as many as there can be at most.
    O(classes * n**2).
    """
    n, most = costs.n, -objective_bound(costs)
    if costs.classes * (n + 1) ** 2 > MOST_TOKENS:
        raise InputError(
            f"{costs.classes:,} x {n:,} x {n:,} stages are too many to tell the tokens of each",
            field="model",
            remedy="use `dp`, or join layers",
        )
    running = np.concatenate([[0], np.cumsum(costs.instance.cached_bytes(1))])
    each = np.maximum(running[None, :] - running[:, None], 0)
    work = []
    for c in range(costs.classes):
        room = (costs.capacity[c] or 0) - costs.memory_matrix(c, 0)
        tokens = np.where(each > 0, costs.tokens + room // np.maximum(each, 1), most)
        work.append(most - np.minimum(tokens, most))
    return costs.with_tables(work, -most)


def least_compute(costs: RangeCosts) -> int:
    """Return a lower bound, in ticks, on the largest compute of any partition.

    With tables, too: every layer is in some stage, at least in its cheapest one; UNLIMITED when
    some layer fits nowhere.
    """
    if costs.instance.objective.additive:
        return objective_bound(costs) - costs.host  # of all stages together
    if costs.tabular:
        cheapest = np.full((costs.n + 1, costs.n + 1), UNLIMITED, dtype=np.int64)
        for c in range(costs.classes):
            # Stashed microbatches only add memory.
            stage = np.where(costs.fits_matrix(c, 0), costs.compute_matrix(c), UNLIMITED)
            np.minimum(cheapest, stage, out=cheapest)
        return min_over_covering(cheapest)
    return costs.compute_bound()


def min_over_covering(cheapest: Array) -> int:
    """Return the largest, over all layers, of the least cost among the stages that contain it.

    `cheapest`, shape (n + 1, n + 1), holds the cost of [a, b), UNLIMITED where it is no stage.
    """
    n = len(cheapest) - 1
    best = np.minimum.accumulate(cheapest, axis=0)  # over starts up to a
    best = np.minimum.accumulate(best[:, ::-1], axis=1)[:, ::-1]  # and over ends from b on
    layers = np.arange(n)
    return int(best[layers, layers + 1].max())


def furthest_ends(costs: RangeCosts, device_class: int, stashes: int, most_compute: int) -> Array:
    """Return, shape (n + 1,), an end that no stage exceeds which begins at each cut.

    Without tables (a, ends[a]] holds exactly the ends that fit and compute at most
    `most_compute` ticks; with tables, all such ends and maybe more.  `ends` does not decrease.
    O(n log n); O(n^2) with tables.

    The stage runs on a `device_class`, stashes so many microbatches, `stashes`, and computes
    `most_compute` ticks at most.
    """
    n = costs.n
    ends = np.arange(n + 1)
    if most_compute < 0:
        return ends
    if costs.tabular:
        stage = fitting_stages(costs, device_class, stashes, most_compute)
        some = stage.any(axis=1)
        ends[some] = n - np.argmax(stage[some, ::-1], axis=1)
        return np.maximum.accumulate(ends)
    ends[:n] = costs.reach(device_class, stashes)
    if most_compute < UNLIMITED:
        prefix = costs.prefix[device_class]
        within = np.searchsorted(prefix, prefix + most_compute, side="right") - 1
        ends = np.minimum(ends, within)
    return ends


def fitting_stages(costs: RangeCosts, device_class: int, stashes: int, most_compute: int) -> Array:
    """Return, shape (n + 1, n + 1), which [a, b) fit and compute at most `most_compute` ticks.

    They are on a device of `device_class` by its `costs`, with so many `stashes`.
    """
    fits = costs.fits_matrix(device_class, stashes)
    return np.asarray(fits & (costs.compute_matrix(device_class) <= most_compute))


def starts_before(cuts: Array, ends: Array, places: Array) -> Array:
    """Return the places from which a stage may end at one of `cuts`.

    `cuts`, (cuts,), rise, and so do `places`, (places,), where stages may begin at all; `ends`,
    (n + 1,), are those of :func:`furthest_ends`.
    """
    if not len(cuts):
        return cuts
    first = np.searchsorted(ends, cuts[0])
    low, high = np.searchsorted(places, (first, cuts[-1])).tolist()
    near = places[low:high]
    next_cut = cuts[np.searchsorted(cuts, near, side="right")]
    return np.asarray(near[next_cut <= ends[near]])


def ends_after(cuts: Array, ends: Array, places: Array) -> Array:
    """Return the places at which a stage may end that begins at one of `cuts`.

    `cuts`, `ends` and `places` are as in :func:`starts_before`, but that it may end at `places`.
    """
    if not len(cuts):
        return cuts
    low, high = np.searchsorted(places, (cuts[0], ends[cuts[-1]]), side="right").tolist()
    near = places[low:high]
    last_cut = cuts[np.searchsorted(cuts, near) - 1]
    return np.asarray(near[near <= ends[last_cut]])


@dataclass(frozen=True)
class Slot:
    """One place in the pipeline: who may run it, and whether it may stay empty."""

    options: tuple[tuple[int, int], ...]  # what may run here
    # Where it may be empty: ``""`` nowhere, ``"start"`` at cut 0 only, ``"any"`` anywhere.
    idle: str = ""


def slot_cuts(costs: RangeCosts, slots: Sequence[Slot], most_compute: int) -> list[Array]:
    """Return the cuts, rising, that may lie before each slot and after the last one.

    They are those of :func:`cuts_of_states`: a state is how many slots, from the last one on, have
    their stages.

    `slots` are places of stages, in the order of the chain, and `most_compute` ticks that no stage
    exceeds.
    """
    options = sorted({option for slot in slots for option in slot.options})
    ends = {option: furthest_ends(costs, *option, most_compute) for option in options}
    steps = [(at, at + 1, slot) for at, slot in enumerate(reversed(slots))]
    return cuts_of_states(costs, steps, [False] * len(slots) + [True], ends)[::-1]


def cuts_of_states(
    costs: RangeCosts,
    steps: Sequence[tuple[int, int, Slot]],
    accepting: Sequence[bool],
    ends: Mapping[tuple[int, int], Array],
) -> list[Array]:
    """Return the cuts, rising, at which the stages that lead to each state may begin.

    Swept from both ends: they are reached from cut n, in state 0, and lead to cut 0 in one that is
    `accepting`.  All are empty where there is no way through.  Looks at no more than the longest
    stages leave between them: O(n) for every option, and O(that * log n) for every step.

    `steps` are states before and after a stage, and its slot, those into a state before those out
    of it; `ends` are from :func:`furthest_ends`, by option.
    """
    places = np.flatnonzero(costs.allowed)

    def stay(cuts: Array, slot: Slot) -> Array:
        """Return where a slot may be empty."""
        idle: dict[str, Array] = {"": cuts[:0], "any": cuts, "start": cuts[:1][cuts[:1] == 0]}
        return idle[slot.idle]

    earliest = [costs.n, *[costs.n + 1] * (len(accepting) - 1)]
    furthest = [0 if accepts else -1 for accepts in accepting]
    for state, then, slot in steps:
        near = [int(np.searchsorted(ends[option], earliest[state])) for option in slot.options]
        near += [earliest[state]] if slot.idle == "any" else []
        earliest[then] = min(earliest[then], *near)
    for state, then, slot in reversed(steps):
        if furthest[then] >= 0:
            far = [int(ends[option][furthest[then]]) for option in slot.options]
            furthest[state] = max(furthest[state], *far, furthest[then] if slot.idle else 0)
    within = [span(places, *some) for some in zip(earliest, furthest, strict=True)]
    if sum(map(len, within)) > MOST_CUTS:
        raise InputError(
            f"the places of {len(accepting) - 2:,} cuts are more than {MOST_CUTS:,} together",
            field="model",
            remedy="give a good solution first (it leaves fewer), or use `dp`",
        )
    left = [places[-1:], *[places[:0]] * (len(accepting) - 1)]
    for state, then, slot in steps:
        some = [starts_before(left[state], ends[o], within[then]) for o in slot.options]
        left[then] = union([left[then], *some, stay(left[state], slot)])
    right = [places[:1] if accepts else places[:0] for accepts in accepting]
    for state, then, slot in reversed(steps):
        some = [ends_after(right[then], ends[o], within[state]) for o in slot.options]
        right[state] = union([right[state], *some, stay(right[then], slot)])
    return [common(a, b) for a, b in zip(left, right, strict=True)]


def union(rows: Sequence[Array]) -> Array:
    """Return the cuts, rising, that are in any of some rows of rising cuts.  O(their range)."""
    some = [row for row in rows if len(row)]
    if len(some) < 2:
        return some[0] if some else rows[0]
    first, last = min(int(row[0]) for row in some), max(int(row[-1]) for row in some)
    found = np.zeros(last - first + 1, dtype=bool)
    for row in some:
        found[row - first] = True
    return np.flatnonzero(found) + first


def common(cuts: Array, others: Array) -> Array:
    """Return the cuts, rising, that are in two rows of rising cuts.  O(the range of `others`)."""
    if not len(cuts) or not len(others):
        return cuts[:0]
    near = span(cuts, others[0], others[-1])
    found = np.zeros(others[-1] - others[0] + 1, dtype=bool)
    found[others - others[0]] = True
    return np.asarray(near[found[near - others[0]]])


def span(places: Array, first: int, last: int) -> Array:
    """Return the places from `first` to `last`.

    `places`, int64, rise; `first` and `last` are among what is returned where they are places.
    """
    begin = np.searchsorted(places, first)
    return np.asarray(places[begin : np.searchsorted(places, last, side="right")])


def least_transfer(costs: RangeCosts, slots: Sequence[Slot], cuts: Sequence[Array]) -> int:
    """Return a lower bound, in ticks, on the largest receive + send.

    `slots` are places of stages, in the order of the chain, with the `cuts` of :func:`slot_cuts`.
    """
    bound = 0
    for j, slot in enumerate(slots):
        if slot.idle or not len(cuts[j]) or not len(cuts[j + 1]):
            continue
        bound = max(
            bound,
            min(
                int(costs.recv[c, cuts[j]].min() + costs.send[c, cuts[j + 1]].min())
                for c, _ in slot.options
            ),
        )
    return bound


def reachable(
    costs: RangeCosts, slots: Sequence[Slot], upper: int | None
) -> tuple[tuple[int, int], StageLimits, list[Array] | None]:
    """Return bounds on the largest compute and transfer, limits of stages, and cuts of slots.

    `slots` are places of stages, in the order of the chain, `upper` ticks of a known solution.
    Cuts are as from :func:`slot_cuts`, None when the ends of the chain do not meet.
    """
    least = (least_compute(costs), 0)
    bounded = costs.instance.objective is Objective.TRANSFER_BOUNDED
    for _ in range(2):  # the second time with the transfers of the first time's cuts
        limits = StageLimits.of(costs, upper, *least)
        if least[0] >= UNLIMITED or least[0] > limits.compute:
            return least, limits, None
        cuts = slot_cuts(costs, slots, limits.compute)
        if not all(map(len, cuts)):
            return least, limits, None
        if not bounded:
            break
        least = least[0], least_transfer(costs, slots, cuts)
    return least, limits, cuts


def stashed_microbatches(costs: RangeCosts) -> int:
    """Return how many microbatches a stage stashes at most; 0 when nothing is stashed."""
    instance = costs.instance
    return instance.microbatches if instance.training and bool(instance.stash.any()) else 0


class StageValues:
    """What the largest costs of a partition may be: costs of single stages, and nothing between.

    An engine proves a bound up to its tolerance, or in a coarser unit; the least value from there
    on that any partition can have is as safe a bound, and most of the time the optimum itself.

    `compute` and `transfer` are ticks of all stages, in any order; no `transfer` unless it is a
    summand of its own.
    """

    def __init__(self, compute: Array, transfer: Array | None = None) -> None:
        self.compute = distinct(compute)
        self.transfer = None if transfer is None else distinct(transfer)

    @classmethod
    def of(cls, costs: RangeCosts, most_compute: int = UNLIMITED) -> StageValues | None:
        """Collect them for stages of at most `most_compute` ticks; None when they are too many.

        None, too, where it is no largest cost that counts.

        Whatever fits or not: more values than there are do no harm.
        """
        cuts = np.flatnonzero(costs.allowed)
        if costs.instance.objective.additive or len(cuts) ** 2 * costs.classes > MOST_VALUES:
            return None
        begin, end = (cuts[i] for i in np.triu_indices(len(cuts), 1))
        compute, transfer = [], []
        for c in range(costs.classes):
            matrix = costs.compute_matrix(c) if costs.tabular else None
            prefix = costs.prefix[c]
            work = prefix[end] - prefix[begin] if matrix is None else matrix[begin, end]
            recv, send = costs.recv[c, begin], costs.send[c, end]
            match costs.instance.objective:
                case Objective.SUM | Objective.LATENCY | Objective.MOVES:
                    compute.append(work + recv + send)
                case Objective.OVERLAP:
                    compute += [work, recv, send]
                case Objective.BOTTLENECK | Objective.TRANSFER_BOUNDED | Objective.HEADROOM:
                    compute.append(work)
                    own = costs.extra[c][begin, end] if costs.extra else 0
                    transfer.append(recv + send + own)
                case unknown:
                    assert_never(unknown)
        both = np.concatenate(compute)
        bounded = costs.instance.objective is Objective.TRANSFER_BOUNDED
        return cls(both[both <= most_compute], np.concatenate(transfer) if bounded else None)

    def at_least(self, ticks: int) -> int:
        """Return the least value that is `ticks` or more; `ticks` when that is unknown."""
        compute, transfer = self.compute, self.transfer
        if transfer is None:
            first = int(np.searchsorted(compute, ticks))
            return int(compute[first]) if first < len(compute) else ticks
        if len(compute) > MOST_SUMMANDS:
            return ticks
        at = np.asarray(np.searchsorted(transfer, ticks - compute))
        some = np.asarray(at < len(transfer))
        if not some.any():
            return ticks
        return int((compute[some] + transfer[at[some]]).min())
