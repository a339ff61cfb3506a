"""Exact packing: branch and bound on canonical packings, component by component.

Every component is searched by :mod:`~stagepack.heuristics.packing.exact_kernels`, round-robin over
several orders with doubling node limits: what is proved does not depend on the order, so every
restart is legal and the first search that ends counts.  Where blocks shrink for a while, have
members of unlike size or may share offsets, the components and searches are those of
:mod:`~stagepack.heuristics.packing.shapes`, which know all this at some ten times the cost.

Source: the recipe extends MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning", ASPLOS 2023) by exclusion inference and re-ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.packing import exact_kernels as kernels
from stagepack.heuristics.packing import exact_state as state
from stagepack.heuristics.packing import shapes
from stagepack.heuristics.packing.components import Component, Packing
from stagepack.heuristics.packing.exact_state import CHANGE, FRAME, NOWHERE
from stagepack.heuristics.packing.shapes import ShapedPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.result import Status

WORK = 12_000_000
"""Elementary steps of the kernel between two looks at the clock: well under 0.2 s."""

ORDERS = (
    (state.LOWEST_BLOCK, "TWA"),
    (state.LOWEST_SECTION, "TAW"),
    (state.LOWEST_BLOCK, "TAW"),
    (state.LOWEST_SECTION, "AWT"),
    (state.LOWEST_BLOCK, "WAT"),
    (state.LOWEST_SECTION, "TSA"),
    (state.LOWEST_BLOCK, "AWT"),
    (state.LOWEST_SECTION, "TZA"),
    (state.LOWEST_BLOCK, "TDA"),
    (state.LOWEST_SECTION, "WAT"),
    (state.LOWEST_BLOCK, "TZA"),
    (state.LOWEST_SECTION, "TDA"),
    (state.LOWEST_BLOCK, "TSA"),
    (state.LOWEST_SECTION, "TWA"),
)
"""Where to branch, and which block is preferred there among equal bases.

By descending largest load in a section (T), duration (W), number of sections (S), area (A), size
(Z), number of conflicts (D).  Where the load comes first, ranks are computed anew whenever a
component falls apart.
"""

ALWAYS, IN_TURN = 2, 4
"""So many of the orders are tried in every round, and so many of the others in turn.

Which order solves an instance is hard to foresee, and many fail for very long: of slightly changed
hard instances, fourteen orders in turn leave half as many unsolved as six fixed ones.
"""

LARGEST_PAIRS = 10_000_000
"""Pairs of blocks alive together that the search holds in memory: 16 bytes each."""

SHAPED = 50
"""How many times as much a pair takes where blocks are not of full height at all times."""


@dataclass(frozen=True)
class Decision:
    """What is known about one capacity.

    Attributes
    ----------
    status : Status
        FEASIBLE, INFEASIBLE or UNKNOWN.
    offsets : ndarray of int64, shape (b,), optional
        Offsets of the blocks, where feasible.
    bound : int
        A lower bound on the peak of the blocks; where infeasible it exceeds the capacity.
    nodes, steps : int
        Nodes searched, and elementary steps taken.
    """

    status: Status
    offsets: Array | None
    bound: int
    nodes: int
    steps: int


def unsupported(blocks: Blocks) -> str:
    """Return why the exact search does not apply to `blocks`, or ''."""
    reason = unknown_rule(blocks)
    if reason:
        return reason
    first, end = np.sort(blocks.first), np.sort(blocks.end)
    # Pieces that overlap: those begun before a piece ends, less those ended before, itself and it.
    pairs = int((np.searchsorted(first, end, side="left") - np.arange(1, len(end) + 1)).sum())
    if pairs > (LARGEST_PAIRS if blocks.rigid else LARGEST_PAIRS // SHAPED):
        return f"{pairs} pairs of buffers alive together are too many for the exact search"
    return ""


def unknown_rule(blocks: Blocks) -> str:
    """Return why the numbers in `blocks` are beyond the exact search, or ''."""
    highest = max([0, *blocks.range_low.tolist(), *blocks.fixed.tolist()])
    if highest + float(blocks.size.sum()) + float(blocks.alignment.sum()) >= NOWHERE:
        return "the exact search counts to 2**60 bytes; use a coarser unit"
    return ""


def prepared(
    blocks: Blocks, which: Array | None = None, first: int = 0, end: int = -1
) -> Packing | ShapedPacking:
    """Return components to search: of full-height blocks, or of blocks of any shape.

    Parameters
    ----------
    blocks : Blocks
        For which :func:`unsupported` has no objection.
    which : ndarray of int64, optional
        Only these blocks (default: all).
    first, end : int
        Only these sections [first, end); -1: to the last.
    """
    return (Packing if blocks.rigid else ShapedPacking)(blocks, which, first, end)


class Search:
    """A search of one component for packings within a capacity, which can be paused.

    Parameters
    ----------
    component : Component

    Attributes
    ----------
    steps : int
        Elementary steps of the kernel, of all that was begun.
    """

    def __init__(self, component: Component) -> None:
        self.component = component
        b, sections = component.b, len(component.sections)
        self._frames = np.zeros(b + 2, dtype=FRAME)
        self._trail = np.zeros(16 * (b + sections) + 64, dtype=CHANGE)
        self._lists = np.zeros(8 * (b + sections), dtype=np.int64)
        self._parts = np.zeros((4 * b, 4), dtype=np.int64)
        self._queue = np.zeros(b + 1, dtype=np.int64)
        self._control = np.zeros(8, dtype=np.int64)
        self.steps = 0
        self._blocks = component.blocks.copy()
        self._sections = component.sections.copy()
        self._capacity = 0

    @property
    def nodes(self) -> int:
        """Nodes since the start."""
        return int(self._control[state.NODES])

    @property
    def units(self) -> Array:
        """Offsets in units, where a packing was found."""
        return np.asarray(self._blocks["offset"].copy())

    def start(self, capacity: int, rank: Array, weight: Array, focus: int) -> None:
        """Begin anew.

        Parameters
        ----------
        capacity : int
            In units, above the lift.
        rank : ndarray of int64, shape (b,)
            A permutation: blocks of lower rank are preferred.
        weight : ndarray of float, shape (b,)
            What loads are multiplied by when they outrank `rank`; 0: they do not.
        focus : int
            LOWEST_BLOCK or LOWEST_SECTION.
        """
        component = self.component
        self._blocks[:] = component.blocks
        self._sections[:] = component.sections
        scaled = weight * min(1.0, 2.0**40 / max(1, capacity))
        self._blocks["weight"] = scaled
        loads = (scaled * component.load()).astype(np.int64)
        self._blocks["rank"] = rank - component.b * loads
        b, sections = component.b, len(component.sections)
        self._lists[: b + sections] = np.concatenate([np.arange(b), np.arange(sections)])
        self._control[:] = 0
        self._control[state.LISTS] = b + sections
        self._control[state.FOCUS] = focus
        frame = self._frames[:1]
        frame["state"] = state.SELECT
        frame["begin"], frame["count"] = 0, b
        frame["section"], frame["section_end"] = b, b + sections
        frame["level"] = 0
        self._capacity = capacity

    def run(self, node_limit: int) -> int:
        """Go on for about :data:`WORK` steps; return RUNNING, FOUND, EXHAUSTED or LIMIT."""
        component = self.component
        while True:
            outcome = kernels.search(
                self._capacity,
                node_limit,
                WORK,
                component.linear,
                self._blocks,
                self._sections,
                component.section_ptr,
                component.section_of,
                component.neighbour_ptr,
                component.neighbours,
                component.member_ptr,
                component.members,
                component.windows,
                component.holes,
                self._frames,
                self._trail,
                self._lists,
                self._parts,
                self._queue,
                self._control,
            )
            self.steps += int(self._control[state.SPENT])
            if outcome != state.FULL:
                return int(outcome)
            self._trail = np.concatenate([self._trail, np.zeros_like(self._trail)])
            self._lists = np.concatenate([self._lists, np.zeros_like(self._lists)])
            self._parts = np.concatenate([self._parts, np.zeros_like(self._parts)])


class Portfolio:
    """Searches of one component in many orders.

    Parameters
    ----------
    component : Component
    warm : ndarray of int64, shape (b,), optional
        Offsets of some packing of the component's blocks, whose order is then tried too.
    """

    def __init__(self, component: Component, warm: Array | None = None) -> None:
        self.component = component
        self.search = Search(component)
        self._nodes = 0
        group = component.group
        self._keys = {
            "T": component.load().astype(float),
            "W": group.duration.astype(float),
            "S": np.diff(group.section_ptr).astype(float),
            "A": group.duration * (group.size / component.unit),
            "Z": group.size.astype(float),
            "D": np.diff(component.neighbour_ptr).astype(float),
        }
        self._warm = warm
        self._random = np.random.default_rng(component.b)

    @property
    def searched(self) -> int:
        """Nodes of all searches so far."""
        return self._nodes + self.search.nodes

    def next_peak(self, nbytes: int) -> int:
        """Return the least possible peak above a capacity that was proved too small, in bytes."""
        return self.component.next_peak(nbytes)

    def round(self, capacity: int, number: int, go_on: Callable[[], bool]) -> int:
        """Search once in every order, with a limit of nodes that doubles from round to round.

        Parameters
        ----------
        capacity : int
            In units, above the lift.
        number : int
            Of the round, from 0.
        go_on : callable
            Asked between chunks of work.

        Returns
        -------
        int
            FOUND, EXHAUSTED, LIMIT, or RUNNING when told to stop.
        """
        b = self.component.b
        limit = b << number if number else b + b // 16  # first those that need hardly any search
        for focus, rank, weight in self._orders(number):
            self._nodes = self.searched
            self.search.start(capacity, rank, weight, focus)
            outcome = state.RUNNING
            while outcome == state.RUNNING:
                outcome = self.search.run(limit)
                if outcome == state.RUNNING and not go_on():
                    return state.RUNNING
            if outcome != state.LIMIT:
                return outcome
            if not go_on():
                return state.RUNNING
        return state.LIMIT

    def _orders(self, number: int) -> Iterator[tuple[int, Array, Array]]:
        """Yield focus, ranks and weights of loads of each search of a round.

        After two rounds the first key but the load is multiplied by lognormal noise, mostly
        little: it should break near ties in ever new ways, not the order.  Blocks of the same
        sections get the same, since canonical packings have the larger of them below.
        """
        component = self.component
        turns = ORDERS[ALWAYS:]
        begin = IN_TURN * number
        turn = [turns[at % len(turns)] for at in range(begin, begin + IN_TURN) if turns]
        for focus, order in (*ORDERS[:ALWAYS], *turn):
            keys = [-self._keys[key] for key in order if key != order[0] or key != "T"]
            if number > 1:
                noise = self._random.lognormal(0.0, (0.02, 0.1, 0.02)[number % 3], component.b)
                keys[0] = keys[0] * noise[component.life]
            weight = np.full(component.b, float(order[0] == "T"))
            yield focus, _ranks(keys[::-1]), weight
        if self._warm is not None:
            yield state.LOWEST_BLOCK, _ranks([self._warm]), np.zeros(component.b)


def _portfolio(
    component: Component | shapes.Component, warm: Array | None
) -> Portfolio | shapes.Portfolio:
    """Return the searches of a component, given a packing of it."""
    if isinstance(component, shapes.Component):
        return shapes.Portfolio(component, warm)
    return Portfolio(component, warm)


def _ranks(keys: list[Array]) -> Array:
    """Return the rank of each item by ascending keys, the last one first."""
    rank = np.empty(len(keys[0]), dtype=np.int64)
    rank[np.lexsort(keys)] = np.arange(len(rank))
    return rank


def decide(
    blocks: Blocks,
    capacity: int,
    *,
    keep_going: Callable[[], bool] | None = None,
    node_limit: int | None = None,
    step_limit: int | None = None,
    warm: Array | None = None,
) -> Decision:
    """Decide whether the blocks can be packed below `capacity`.

    Parameters
    ----------
    blocks : Blocks
        For which :func:`unsupported` has no objection.
    capacity : int
        Bytes.
    keep_going : callable, optional
        Asked at least every 0.2 s or so; the answer is UNKNOWN once it returns False.
    node_limit : int, optional
        Give up after about this many nodes; reproducible, unlike a clock.
    step_limit : int, optional
        Give up after about this many elementary steps of the kernels: as reproducible, and of
        much the same cost whatever the blocks.
    warm : ndarray of int64, shape (b,), optional
        Offsets of a packing of any height: parts of it that are low enough are kept, and its
        order is tried.
    """
    return decide_packing(
        prepared(blocks),
        capacity,
        keep_going=keep_going,
        node_limit=node_limit,
        step_limit=step_limit,
        warm=warm,
    )


def decide_packing(
    packing: Packing | ShapedPacking,
    capacity: int,
    *,
    keep_going: Callable[[], bool] | None = None,
    node_limit: int | None = None,
    step_limit: int | None = None,
    warm: Array | None = None,
) -> Decision:
    """Decide for components that are already made; see :func:`decide`."""
    if packing.bound > capacity:
        return Decision(Status.INFEASIBLE, None, packing.bound, 0, 0)
    offsets = packing.offsets.copy()
    waiting = []
    for component in packing.components:
        known = None if warm is None else component.settled(warm)
        if known is not None and component.peak(known) <= capacity:
            offsets[component.index] = known
        else:
            waiting.append(_portfolio(component, known))
    portfolios = list(waiting)

    def searched() -> int:
        return sum(portfolio.searched for portfolio in portfolios)

    def spent() -> int:
        return sum(portfolio.search.steps for portfolio in portfolios)

    def decision(status: Status, bound: int) -> Decision:
        found = offsets if status is Status.FEASIBLE else None
        return Decision(status, found, bound, searched(), spent())

    def go_on() -> bool:
        return (
            (node_limit is None or searched() < node_limit)
            and (step_limit is None or spent() < step_limit)
            and (keep_going is None or keep_going())
        )

    number = 0
    while waiting:
        for portfolio in list(waiting):
            component = portfolio.component
            outcome = portfolio.round(component.capacity(capacity), number, go_on)
            if outcome == state.FOUND:
                offsets[component.index] = component.offsets(portfolio.search.units)
                waiting.remove(portfolio)
            elif outcome == state.EXHAUSTED:
                return decision(Status.INFEASIBLE, portfolio.next_peak(capacity))
            elif outcome == state.RUNNING:
                return decision(Status.UNKNOWN, packing.bound)
        number += 1
    return decision(Status.FEASIBLE, packing.bound)


def minimise(
    blocks: Blocks,
    *,
    upper: Array | None = None,
    lower: int = 0,
    on_solution: Callable[[Array], None] | None = None,
    on_bound: Callable[[int], None] | None = None,
    keep_going: Callable[[], bool] | None = None,
    node_limit: int | None = None,
    step_limit: int | None = None,
) -> Status:
    """Find and prove the least peak.

    Round by round, with doubling limits of nodes: from below, is the bound a peak, else raise it;
    from above, halve the way to the bound, in shorter steps while that fails, by a unit at last.
    Only the components that decide the peak are searched.

    Parameters
    ----------
    blocks : Blocks
        For which :func:`unsupported` has no objection.
    upper : ndarray of int64, shape (b,), optional
        Offsets of a packing to begin with.
    lower : int
        A lower bound on the peak in bytes.
    on_solution : callable, optional
        Called with the offsets of every packing that is better than all before (and `upper`).
    on_bound : callable, optional
        Called with every lower bound that is better than all before, the first one included.
    keep_going, node_limit, step_limit
        As in :func:`decide`.

    Returns
    -------
    Status
        OPTIMAL: the last packing is proved; INFEASIBLE: there is none at all; FEASIBLE or
        UNKNOWN: stopped with or without a packing.
    """
    descent = _Descent(
        prepared(blocks), upper, lower, on_solution, on_bound, keep_going, node_limit, step_limit
    )
    if upper is not None:  # settling it may have lowered it already
        descent.known = int((upper + blocks.size).max(initial=0))
    return descent.run()


class _Descent:
    """The state of :func:`minimise`: what is known about each component and the whole."""

    def __init__(
        self,
        packing: Packing | ShapedPacking,
        upper: Array | None,
        lower: int,
        on_solution: Callable[[Array], None] | None,
        on_bound: Callable[[int], None] | None,
        keep_going: Callable[[], bool] | None,
        node_limit: int | None,
        step_limit: int | None,
    ) -> None:
        self.packing = packing
        self.offsets = packing.offsets.copy()
        self.portfolios: list[Portfolio | shapes.Portfolio] = []
        self.high: list[int] = []
        for component in packing.components:
            known = None if upper is None else component.settled(upper)
            self.portfolios.append(_portfolio(component, known))
            self.high.append(NOWHERE if known is None else component.peak(known))
            if known is not None:
                self.offsets[component.index] = known
        self.lower = max(lower, packing.bound)
        self.known = NOWHERE if upper is None else self.upper
        self._on_solution, self._on_bound = on_solution, on_bound
        self._keep_going = keep_going
        self._node_limit, self._step_limit = node_limit, step_limit

    @property
    def upper(self) -> int:
        """Peak of the packing at hand, NOWHERE while there is none."""
        return max([self.packing.peak, *self.high])

    def go_on(self) -> bool:
        """Return whether there is time and work left."""
        searched = sum(portfolio.searched for portfolio in self.portfolios)
        steps = sum(portfolio.search.steps for portfolio in self.portfolios)
        return (
            (self._node_limit is None or searched < self._node_limit)
            and (self._step_limit is None or steps < self._step_limit)
            and (self._keep_going is None or self._keep_going())
        )

    def run(self) -> Status:
        """Search until proved or stopped."""
        if self.lower >= NOWHERE:
            return Status.INFEASIBLE
        if self._on_bound is not None:
            self._on_bound(self.lower)
        self._report()
        number, stride = 0, NOWHERE
        while self.upper > self.lower:
            at = self.high.index(max(self.high))
            if self.upper == NOWHERE:
                outcome = self._try(at, NOWHERE - 1, number)
                if outcome == state.EXHAUSTED:
                    return Status.INFEASIBLE
                number += outcome == state.LIMIT
            else:
                outcome = self._try(at, self.lower, number)
                stride = min(stride, max(1, (self.upper - self.lower) // 2))
                while outcome == state.LIMIT and self.upper > self.lower and stride:
                    at = self.high.index(max(self.high))
                    step = max(stride, self.portfolios[at].component.unit)
                    lowered = self._try(at, max(self.lower, self.upper - step), number)
                    if lowered == state.RUNNING:
                        outcome = lowered
                    if lowered == state.LIMIT:
                        stride = stride // 4 if step == stride else 0
                if outcome == state.LIMIT:
                    number, stride = number + 1, max(1, (self.upper - self.lower) // 2)
            if outcome == state.RUNNING:
                return Status.UNKNOWN if self.upper >= NOWHERE else Status.FEASIBLE
        return Status.OPTIMAL

    def _try(self, at: int, capacity: int, number: int) -> int:
        """Search a component once in every order; keep what is learned."""
        portfolio = self.portfolios[at]
        component = portfolio.component
        outcome = portfolio.round(component.capacity(capacity), number, self.go_on)
        if outcome == state.FOUND:
            found = component.offsets(portfolio.search.units)
            self.offsets[component.index] = found
            self.high[at] = component.peak(found)
            self._report()
        elif outcome == state.EXHAUSTED and capacity < NOWHERE - 1:
            proved = portfolio.next_peak(capacity)
            if proved > self.lower:
                self.lower = proved
                if self._on_bound is not None:
                    self._on_bound(self.lower)
        return outcome

    def _report(self) -> None:
        """Pass on the packing at hand if it is better than those before."""
        if self.upper < self.known:
            self.known = self.upper
            if self._on_solution is not None:
                self._on_solution(self.offsets.copy())
