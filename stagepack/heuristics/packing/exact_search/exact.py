"""Exact packing: branch and bound on canonical packings, component by component.

Each component is searched by :mod:`.exact_kernels` with several branching orders, in rounds of
growing limits (:mod:`.portfolio`), after a while alternating with beam searches: beams find
packings with hardly any free space, branch and bound proves.  If blocks shrink for some time, have
members of different sizes, or may share offsets, the components and searches are those of
:mod:`.exact_general`, which support this at about ten times the cost.

Cost: exponentially many nodes at worst; for one node, see the kernels.
Source: the recipe extends MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning", ASPLOS 2023) by exclusion inference and re-ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stagepack.heuristics import effort as clock
from stagepack.heuristics.packing import exact_search
from stagepack.heuristics.packing.exact_search import exact_state as state
from stagepack.heuristics.packing.exact_search.components import Component, Packing
from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE, too_large
from stagepack.heuristics.packing.exact_search.portfolio import (
    CanonicalPortfolio,
    Portfolio,
)
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Stopped
from stagepack.result import Status

if TYPE_CHECKING:
    from stagepack.heuristics.packing.exact_search.exact_general import Component as ShapedComponent
    from stagepack.heuristics.packing.exact_search.exact_general import ShapedPacking


@dataclass(frozen=True)
class Decision:
    """What is known about one capacity."""

    status: Status  # FEASIBLE, INFEASIBLE or UNKNOWN
    offsets: Array | None  # int64, shape (b,), optional: offsets of the blocks, where feasible
    bound: int  # a lower bound on the peak of the blocks; where infeasible it exceeds the capacity
    nodes: int  # nodes searched


def unsupported(blocks: Blocks, *, tuning: PackingTuning = TUNING) -> str:
    """Return why the exact search does not apply to `blocks`, or ''."""
    reason = too_large(blocks)
    if reason:
        return reason
    if blocks.pairs > (
        tuning.exact.pair_limit
        if blocks.rigid
        else tuning.exact.pair_limit // tuning.exact.shaped_pair
    ):
        return f"{blocks.pairs:,} pairs of buffers alive together are too many for the exact search"
    return ""


def prepared(
    blocks: Blocks,
    first: int = 0,
    end: int = -1,
    keep_going: Callable[[], bool] | None = None,
    *,
    tuning: PackingTuning = TUNING,
) -> Packing | ShapedPacking:
    """Return components to search: of full-height blocks, or of blocks of any shape.

    To `blocks`, :func:`unsupported` has no objection; only the sections [`first`, `end`) count, -1:
    to the last.  :class:`Stopped` is raised once `keep_going`, asked now and then, says no.
    """
    if blocks.rigid:
        return Packing(blocks, first, end, keep_going, tuning=tuning)
    shaped = exact_search.exact_general.ShapedPacking
    return shaped(blocks, first, end, keep_going, tuning=tuning)


def _portfolio(
    component: Component | ShapedComponent, warm: Array | None, *, tuning: PackingTuning
) -> Portfolio:
    """Return the searches of a component, given a packing of it."""
    if isinstance(component, Component):
        return CanonicalPortfolio(component, warm, tuning=tuning)
    return exact_search.exact_general.GeneralPortfolio(component, warm, tuning=tuning)


class Searches:
    """What searches the components of a packing, of :func:`prepared`: begun when needed, then gone
    on with.

    Whoever asks for one capacity and then for another hands them on, so that rounds are not
    searched again, beams go on, and what was found is known.
    """

    def __init__(self, packing: Packing | ShapedPacking, *, tuning: PackingTuning = TUNING) -> None:
        self.tuning = tuning
        self.packing = packing
        self.components: Sequence[Component | ShapedComponent] = packing.components
        self._portfolios: dict[int, Portfolio] = {}
        self._found: dict[int, Array] = {}

    def known(self, at: int, warm: Array | None) -> Array | None:
        """Return the lowest packing known of a component, given one of all blocks or None."""
        component, found = self.components[at], self._found.get(at)
        settled = None if warm is None else component.settled(warm)
        if settled is None or found is None:
            return found if settled is None else settled
        return min(found, settled, key=component.peak)

    def portfolio(self, at: int, warm: Array | None) -> Portfolio:
        """Return what searches a component; a packing of it has an order that may be tried."""
        portfolio = self._portfolios.get(at)
        if portfolio is None:
            portfolio = self._portfolios[at] = _portfolio(
                self.components[at], warm, tuning=self.tuning
            )
        elif warm is not None:
            portfolio.warm = warm
        return portfolio

    def rounds(self, at: int, capacity: int) -> int:
        """Return how many rounds a component was searched within a capacity in bytes."""
        portfolio = self._portfolios.get(at)
        units = self.components[at].capacity(capacity)
        return 0 if portfolio is None else portfolio.rounds.get(units, 0)

    def keep(self, at: int) -> Array:
        """Remember the packing that a component's search has found; return it."""
        self._found[at] = self.components[at].offsets(self._portfolios[at].units)
        return self._found[at]

    def drop(self, at: int) -> None:
        """Let go of the searches of a component, which take memory."""
        del self._portfolios[at]


def decide(
    blocks: Blocks,
    capacity: int,
    *,
    keep_going: Callable[[], bool] | None = None,
    node_limit: int | None = None,
    warm: Array | None = None,
    searches: Searches | None = None,
    tuning: PackingTuning = TUNING,
) -> Decision:
    """Decide whether the blocks can be packed below `capacity`, in bytes.

    To `blocks`, :func:`unsupported` has no objection.  `keep_going` is asked at least every 0.2 s
    or so; the answer is UNKNOWN once it returns False.  `node_limit`: give up after about this many
    nodes; reproducible, unlike a clock.

    `warm`, int64 of shape (b,), are offsets of a packing of any height: parts of it that are low
    enough are kept, and its order is tried.  `searches` are of these blocks, to go on with.
    """
    if searches is None:
        try:
            searches = Searches(
                prepared(blocks, keep_going=keep_going, tuning=tuning), tuning=tuning
            )
        except Stopped:
            return Decision(Status.UNKNOWN, None, 0, 0)
    return decide_packing(
        searches,
        capacity,
        keep_going=keep_going,
        node_limit=node_limit,
        warm=warm,
        tuning=tuning,
    )


def decide_packing(
    packing: Packing | ShapedPacking | Searches,
    capacity: int,
    *,
    keep_going: Callable[[], bool] | None = None,
    node_limit: int | None = None,
    warm: Array | None = None,
    tuning: PackingTuning = TUNING,
) -> Decision:
    """Decide for components that are already made; see :func:`decide`.

    `packing` is of :func:`prepared`, or what has searched it; `capacity`, `keep_going`,
    `node_limit` and `warm` are as there.
    """
    searches = packing if isinstance(packing, Searches) else Searches(packing, tuning=tuning)
    packing = searches.packing
    bound, offsets = packing.bound, packing.offsets.copy()
    if bound > capacity:
        return Decision(Status.INFEASIBLE, None, bound, 0)
    effort = _Effort(keep_going, node_limit, tuning=tuning)

    def decision(status: Status, bound: int = bound) -> Decision:
        found = offsets if status is Status.FEASIBLE else None
        return Decision(status, found, bound, effort.nodes)

    waiting: dict[int, Array | None] = {}
    for at, component in enumerate(searches.components):
        known = searches.known(at, warm)
        if known is not None and component.peak(known) <= capacity:
            offsets[component.index] = known
        else:
            waiting[at] = known
    number = 0
    while waiting:
        # In the first round searches are made as they are needed: they may be many.
        for at, known in list(waiting.items()):
            searched, outcome = searches.components[at], state.RUNNING
            if effort.go_on():
                portfolio = searches.portfolio(at, known)
                outcome = effort.round(portfolio, searched.capacity(capacity), number)
            if outcome == state.RUNNING:
                return decision(Status.UNKNOWN)
            if outcome == state.EXHAUSTED:
                return decision(Status.INFEASIBLE, portfolio.next_peak(capacity))
            if outcome == state.FOUND:
                offsets[searched.index] = searches.keep(at)
                searches.drop(at)
                del waiting[at]
        number += 1
    return decision(Status.FEASIBLE)


class _Effort:
    """Nodes and steps that the searches of several components have taken, and their limits."""

    def __init__(
        self,
        keep_going: Callable[[], bool] | None,
        node_limit: int | None,
        *,
        tuning: PackingTuning,
    ) -> None:
        self.tuning = tuning
        self._keep_going = keep_going
        self._node_limit = node_limit
        self._portfolio: Portfolio | None = None
        self._nodes = 0  # without those of the portfolio at work

    @property
    def nodes(self) -> int:
        """Nodes of all searches so far."""
        return self._nodes + (0 if self._portfolio is None else self._portfolio.searched)

    def go_on(self) -> bool:
        """Return whether there is time and work left."""
        return (self._node_limit is None or self.nodes < self._node_limit) and (
            self._keep_going is None or self._keep_going()
        )

    def round(self, portfolio: Portfolio, capacity: int, number: int, *, beams: bool = True) -> int:
        """Search a component once in every order, within the limits, and then with beams.

        Rounds of this capacity that are over are not searched again.  Short searches, which are
        limited to nodes, do without beams.
        """
        number = max(number, portfolio.rounds.get(capacity, 0))
        nodes = self.nodes
        self._portfolio = portfolio
        self._nodes = nodes - portfolio.searched
        began, beamed = clock.spent(), 0.0
        soonest = (
            self.tuning.exact.beams_late
            if number < self.tuning.exact.beams_rounds
            else self.tuning.exact.beams_early
        )
        share = (
            self.tuning.exact.beams_eager
            if portfolio.seconds < self.tuning.exact.beams_eager_until
            else self.tuning.exact.beams_share
        )

        def beside(least: float = self.tuning.exact.beams_turn) -> int:
            nonlocal beamed
            now = clock.spent()
            ordered = now - began - beamed
            due = share * ordered - beamed
            if due <= least or portfolio.seconds + ordered < soonest:
                return state.LIMIT
            outcome = self.beam(portfolio, capacity, due)
            beamed += clock.spent() - now
            return outcome

        beams = beams and self.tuning.exact.beams and self._node_limit is None
        outcome = portfolio.round(capacity, number, self.go_on, beside if beams else None)
        if outcome == state.LIMIT and beams:
            outcome = beside(0.0)
        portfolio.seconds += clock.spent() - began - beamed
        return outcome

    def beam(self, portfolio: Portfolio, capacity: int, seconds: float) -> int:
        """Search a component with beams for some seconds of work, unless nodes are limited."""
        if self._node_limit is not None or not self.tuning.exact.beams or not self.go_on():
            return state.LIMIT
        return portfolio.beam(capacity, seconds, self.go_on)


def minimise(
    blocks: Blocks,
    *,
    upper: Array | None = None,
    lower: int = 0,
    on_solution: Callable[[Array], None] | None = None,
    on_bound: Callable[[int], None] | None = None,
    keep_going: Callable[[], bool] | None = None,
    node_limit: int | None = None,
    searches: Searches | None = None,
    tuning: PackingTuning = TUNING,
) -> Status:
    """Find and prove the least peak.

    Round by round, with doubling limits of nodes: from below, is the bound a peak, else raise it;
    from above, halve the way to the bound, in shorter steps while that fails, by a unit at last.
    Only the components that decide the peak are searched.

    `upper`, int64 of shape (b,), are offsets of a packing to begin with; `lower` is a lower bound
    on the peak in bytes.  `on_solution` is called with the offsets of every packing that is better
    than all before (and `upper`), `on_bound` with every lower bound that is better than all before,
    the first one included.  `keep_going`, `node_limit` and `searches` are as in :func:`decide`.

    OPTIMAL: the last packing is proved; INFEASIBLE: there is none at all; FEASIBLE or UNKNOWN:
    stopped with or without a packing.
    """
    effort = _Effort(keep_going, node_limit, tuning=tuning)
    if searches is None:
        try:
            searches = Searches(
                prepared(blocks, keep_going=keep_going, tuning=tuning), tuning=tuning
            )
        except Stopped:
            if on_bound is not None:
                on_bound(max(lower, int(blocks.load.max())))
            return Status.UNKNOWN if upper is None else Status.FEASIBLE
    descent = _Descent(searches, upper, lower, on_solution, on_bound, effort, tuning=tuning)
    if upper is not None:  # settling it may have lowered it already
        descent.known = int((upper + blocks.size).max(initial=0))
    return descent.run()


class _Descent:
    """The state of :func:`minimise`: what is known about each component and the whole."""

    def __init__(
        self,
        searches: Searches,
        upper: Array | None,
        lower: int,
        on_solution: Callable[[Array], None] | None,
        on_bound: Callable[[int], None] | None,
        effort: _Effort,
        *,
        tuning: PackingTuning,
    ) -> None:
        self.tuning = tuning
        self.searches, packing = searches, searches.packing
        self.packing, self.offsets = packing, packing.offsets.copy()
        self.high = np.full(len(packing.components), NOWHERE, dtype=np.int64)
        self._settled: list[Array | None] = []
        for at, component in enumerate(searches.components):
            known = searches.known(at, upper)
            self._settled.append(known)
            if known is not None:
                self.high[at] = component.peak(known)
                self.offsets[component.index] = known
        self.lower = max(lower, packing.bound)
        self.known = NOWHERE if upper is None else self.upper
        self._on_solution, self._on_bound = on_solution, on_bound
        self._effort, self._due = effort, 0.0  # seconds of work that beams are to take

    @property
    def upper(self) -> int:
        """Peak of the packing at hand, NOWHERE while there is none."""
        return max(self.packing.peak, int(self.high.max(initial=0)))

    def run(self) -> Status:
        """Search until proved or stopped."""
        if self.lower >= NOWHERE:
            return Status.INFEASIBLE
        if self._on_bound is not None:
            self._on_bound(self.lower)
        self._report()
        number = raised = 0
        if self.upper > self.lower:
            number = self.searches.rounds(self._highest, self.lower)
        while self.upper > self.lower:
            if not self._effort.go_on():
                return Status.UNKNOWN if self.upper >= NOWHERE else Status.FEASIBLE
            if self.upper == NOWHERE:
                outcome = self._try(NOWHERE - 1, number)
                if outcome == state.EXHAUSTED:
                    return Status.INFEASIBLE
                number += outcome == state.LIMIT
                continue
            # Where the bound goes up again and again, it does so in ever longer leaps.
            unit = self.packing.components[self._highest].unit
            leap = min(
                unit * (1 << raised >> self.tuning.exact.patience), (self.upper - self.lower) // 2
            )
            outcome = self._try(self.lower + leap, number)
            if outcome == state.EXHAUSTED:
                raised += 1
            elif outcome == state.LIMIT and leap:
                raised = 0
            elif outcome == state.LIMIT:
                self._lower_peak(number)
                number += 1
        return Status.OPTIMAL

    def _lower_peak(self, number: int) -> None:
        """Halve the way to the bound, then lower the packing in shorter and shorter steps."""
        stride, outcome = max(1, (self.upper - self.lower) // 2), state.FOUND
        while self.upper > self.lower and stride and outcome != state.RUNNING:
            if not self._effort.go_on():
                return
            unit = self.packing.components[self._highest].unit
            capacity = max(self.lower, self.upper - max(stride, unit))
            # A step that is easy takes few nodes: the limits grow to that of this round.
            tried = self.searches.rounds(self._highest, capacity)
            for limited in range(min(tried, number), number + 1):
                outcome = self._try(capacity, limited)
                if outcome != state.LIMIT:
                    break
            if outcome == state.LIMIT:
                stride = stride // 4 if stride >= unit else 0
            elif outcome == state.FOUND:
                stride = min(stride, max(1, (self.upper - self.lower) // 2))

    @property
    def _highest(self) -> int:
        """The component that decides the peak."""
        return int(self.high.argmax())

    def _try(self, capacity: int, number: int) -> int:
        """Search the highest component once in every order; keep what is learned.

        Above the bound, beams look for a packing at the bound afterwards, for as long.
        """
        at = self._highest
        component = self.packing.components[at]
        portfolio = self.searches.portfolio(at, self._settled[at])
        began, beams = clock.spent(), capacity == self.lower
        outcome = self._effort.round(portfolio, component.capacity(capacity), number, beams=beams)
        if outcome == state.LIMIT and not beams:
            self._due += self.tuning.exact.beams_share * (clock.spent() - began)
            if (
                self._due > self.tuning.exact.beams_turn
                and portfolio.seconds > self.tuning.exact.beams_late
            ):
                outcome = self._effort.beam(portfolio, component.capacity(self.lower), self._due)
                self._due = 0.0
        if outcome == state.FOUND:
            found = self.searches.keep(at)
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
