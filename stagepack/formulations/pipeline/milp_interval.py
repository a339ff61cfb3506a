"""MILP with interval variables: a partition is a path, one arc a stage.

Sets
    S         states of the order of devices, read from the tail (`StageOrder`); 0 is its start
    N         nodes (s, c): the stages placed so far led to state s and begin at cut c
    A         arcs (t, a, b): transition t of the order places the stage [a, b), which fits;
              it leads from the node (source t, b) to the node (target t, a)
    A_h       arcs whose target has level h; levels rise along every path, so at most one is used
Parameters
    p_tab     compute of an arc, in ticks; for `sum` compute + receive + send; for `overlap` the
              largest of the three
    q_tab     receive + send of an arc (`transfer-bounded` only)
    P, Q      lower bounds on the largest p and q of any partition
Variables
    x_tab     1 if the stage [a, b) is placed by transition t
    C, T      largest p and q of the arcs used
Objective
    minimise  C + T                                   (C alone unless `transfer-bounded`)
Constraints
    flow        one unit leaves the node (0, n) and enters an accepting state at cut 0; what
                enters any other node leaves it
    compute     C >= sum of max(p, P) x over A_h      for every level h
    transfer    T >= sum of max(q, Q) x over A_h      for every level h
    cutoff      C + T <= upper
Size
    a binary an arc, up to n^2 / 2 for each transition (k of them in a fixed order); a row a node,
    up to n a state, and one or two a level
Source
    ours: the dynamic program as a network, with the seed's objective (Auto Pipeline)

The path polytope is integral, so with C and T fixed (dearer arcs removed) the relaxation is
exact; with C and T variable it is not, a fractional path pays an average.  Raising every cost to
the bound P narrows that gap.  Memory, shared keys, variables, fixed cuts and tables decide which
arcs exist and need no constraint; arcs on no path cheap enough are never built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_STEPS, InSteps
from stagepack.formulations.pipeline.frame import (
    UNLIMITED,
    Slot,
    StageLimits,
    StageValues,
    constant_ticks,
    cuts_of_states,
    fitting_stages,
    furthest_ends,
    least_compute,
    min_over_covering,
    union,
)
from stagepack.formulations.pipeline.model import PipelineModel
from stagepack.instances.arrays import distinct
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.order import assign_devices
from stagepack.instances.pipeline.problem import Objective
from stagepack.linear import Array, Linear

LARGEST_MODEL = 3_000_000
"""Arcs beyond which the model is refused."""

COVERING_LAYERS = 1000  # up to so many layers, bound P and Q through an n x n matrix


@dataclass
class Arcs:
    """Arcs as columns, all of shape (arcs,), sorted by transition; int64."""

    # `transition`, `begin`, `end`: the stage [begin, end) is placed by a transition.
    transition: Array
    begin: Array
    end: Array
    # `compute`, `transfer`: ticks p and q.
    compute: Array
    transfer: Array

    def keep(self, mask: Array) -> Arcs:
        """Return the arcs of a mask."""
        return Arcs(*(column[mask] for column in vars(self).values()))


class MilpInterval(InSteps[PipelinePartition, PipelineSolution], PipelineModel):
    """The interval model as a `Linear`; expresses all but `latency`.

    Columns: x of every arc, then C, then T (`transfer-bounded` only).  Rows: flow, compute,
    transfer, cutoff.  The model's C and T count from P and Q in steps; what an arc has above these
    is rounded down, so that nothing is lost.

    `arcs` are the stages in the model; all else is as of :class:`PipelineModel`.
    """

    def build(self) -> None:
        """Build the model, or find out that there is no path."""
        costs = self.costs
        self.least = (least_compute(costs), 0)
        order = costs.order
        # States are numbered so that transitions lead to higher ones, sorted by target.
        self._levels = np.zeros(order.states, dtype=np.int64)
        for t in range(len(order.source)):
            above = self._levels[order.source[t]] + 1
            self._levels[order.target[t]] = max(self._levels[order.target[t]], above)
        self.arcs = self._build_arcs()
        self.infeasible = len(self.arcs.begin) == 0
        if not self.infeasible:
            self._set_units()
            self._build_model()

    @staticmethod
    def unsupported(instance: PipelinePartition) -> str:
        """Return why this model cannot express the instance, '' if it can."""
        if instance.objective.additive:
            return f"the interval model knows no objective {instance.objective}; use dp or cp-sat"
        return ""

    # ------------------------------------------------------------------ arcs

    def _build_arcs(self) -> Arcs:
        """Return the arcs on some path of stages that are cheap enough."""
        limits = StageLimits.of(self.costs, self.upper, *self.least)
        if min(limits.compute, limits.transfer) < 0 or self.least[0] > limits.compute:
            return self._nothing()
        arcs = self._on_paths(self._cheap(self._candidates(limits)))
        while len(arcs.begin):
            # Fewer arcs bound the largest costs better, which removes more arcs.
            least = self._least_costs(arcs)
            if least == self.least:
                break
            self.least = least
            cheaper = self._on_paths(self._cheap(arcs))
            if len(cheaper.begin) == len(arcs.begin):
                break
            arcs = cheaper
        return arcs

    def _nothing(self) -> Arcs:
        return Arcs(*(np.zeros(0, dtype=np.int64) for _ in range(5)))

    def _reachable(self, ends: dict[tuple[int, int], Array]) -> list[Array]:
        """Return the cuts, rising, between the tail and the head of each state, generously."""
        order = self.costs.order
        rows = (order.source, order.target, order.device_class, order.stashes)
        columns = zip(*(row.tolist() for row in rows), strict=True)
        steps = [(state, then, Slot(((c, stashes),))) for state, then, c, stashes in columns]
        return cuts_of_states(self.costs, steps, order.accepting.tolist(), ends)

    def _candidates(self, limits: StageLimits) -> Arcs:
        """Return the stages within the limit of compute, between reachable nodes."""
        costs, order = self.costs, self.costs.order
        kinds = {(int(c), int(s)) for c, s in zip(order.device_class, order.stashes, strict=True)}
        ends = {kind: furthest_ends(costs, *kind, limits.compute) for kind in sorted(kinds)}
        alive = self._reachable(ends)
        total, columns = 0, []
        tables: dict[tuple[int, int], Array] = {}
        for t in range(len(order.source)):
            starts, stops = alive[order.target[t]], alive[order.source[t]]
            kind = int(order.device_class[t]), int(order.stashes[t])
            if costs.tabular:
                if kind not in tables:
                    tables[kind] = fitting_stages(costs, *kind, limits.compute)
                i, j = np.nonzero(tables[kind][np.ix_(starts, stops)])
            else:
                first = np.searchsorted(stops, starts, side="right")
                count = np.searchsorted(stops, ends[kind][starts], side="right") - first
                count = np.maximum(count, 0)
                _refuse_beyond(total + int(count.sum()))
                i = np.repeat(np.arange(len(starts)), count)
                j = np.arange(len(i)) + np.repeat(first - (np.cumsum(count) - count), count)
            total += len(i)
            _refuse_beyond(total)
            columns.append((np.full(len(i), t), starts[i], stops[j]))
        if not columns:
            return self._nothing()
        transition, a, b = (np.concatenate(column) for column in zip(*columns, strict=True))
        return Arcs(transition, a, b, *self._ticks(transition, a, b))

    def _ticks(self, t: Array, a: Array, b: Array) -> tuple[Array, Array]:
        """Return p and q of arcs."""
        costs = self.costs
        c = costs.order.device_class[t]
        if costs.tabular:
            compute = np.zeros(len(t), dtype=np.int64)
            for number in range(costs.classes):
                here = c == number
                compute[here] = costs.compute_matrix(number)[a[here], b[here]]
        else:
            compute = costs.prefix[c, b] - costs.prefix[c, a]
        recv, send, none = costs.recv[c, a], costs.send[c, b], np.zeros(len(t), dtype=np.int64)
        match costs.instance.objective:
            case Objective.BOTTLENECK | Objective.HEADROOM:
                return compute, none
            case Objective.TRANSFER_BOUNDED:
                transfer = recv + send
                for number, extra in enumerate(costs.extra):
                    transfer = transfer + np.where(c == number, extra[a, b], 0)
                return compute, transfer
            case Objective.SUM | Objective.LATENCY | Objective.MOVES:
                return compute + recv + send, none
            case Objective.OVERLAP:
                return np.maximum(np.maximum(compute, recv), send), none
            case unknown:
                assert_never(unknown)

    def _most(self) -> tuple[int, int]:
        """Return what p and q of one arc may be at most."""
        if self.upper is None:
            return UNLIMITED, UNLIMITED
        rest = self.upper - constant_ticks(self.costs)
        return rest - self.least[1], rest - self.least[0]

    def _cheap(self, arcs: Arcs) -> Arcs:
        compute, transfer = self._most()
        return arcs.keep((arcs.compute <= compute) & (arcs.transfer <= transfer))

    def _on_paths(self, arcs: Arcs) -> Arcs:
        """Return the arcs on a path from the tail to the head, exactly."""
        order, none = self.costs.order, np.zeros(0, dtype=np.int64)
        spans = np.searchsorted(arcs.transition, np.arange(len(order.source) + 1))
        placed = [none] * order.states
        placed[0] = np.array([self.costs.n])
        used = np.zeros(len(arcs.begin), dtype=bool)
        for t in range(len(order.source)):
            here = slice(spans[t], spans[t + 1])
            used[here] = np.isin(arcs.end[here], placed[order.source[t]])
            q = order.target[t]
            placed[q] = union([placed[q], distinct(arcs.begin[here][used[here]])])
        ready = [np.zeros(int(accepts), dtype=np.int64) for accepts in order.accepting]
        for t in reversed(range(len(order.source))):
            here = slice(spans[t], spans[t + 1])
            used[here] &= np.isin(arcs.begin[here], ready[order.target[t]])
            q = order.source[t]
            ready[q] = union([ready[q], distinct(arcs.end[here][used[here]])])
        return arcs.keep(used)

    def _least_costs(self, arcs: Arcs) -> tuple[int, int]:
        """Return P and Q: every layer lies in some stage, at least in its cheapest one."""
        n = self.costs.n
        least = []
        for ticks, known in zip((arcs.compute, arcs.transfer), self.least, strict=True):
            bound = known
            if n <= COVERING_LAYERS:
                cheapest = np.full((n + 1, n + 1), UNLIMITED, dtype=np.int64)
                np.minimum.at(cheapest, (arcs.begin, arcs.end), ticks)
                bound = max(bound, min_over_covering(cheapest))
            # The largest cost is the cost of some arc.
            least.append(int(ticks[ticks >= bound].min(initial=UNLIMITED)))
        return least[0], least[1]

    def _set_units(self) -> None:
        """Choose the unit of the model's C and T."""
        arcs = self.arcs
        most = [
            max(int(ticks.max()), least)
            for ticks, least in zip((arcs.compute, arcs.transfer), self.least, strict=True)
        ]
        above = [top - low for top, low in zip(most, self.least, strict=True)]
        common = math.gcd(*map(int, map(np.gcd.reduce, (arcs.compute, arcs.transfer))))
        self.set_unit(common, max(above), LARGEST_STEPS)
        self._range = [ticks // self.unit for ticks in above]

    def _lifted(self, ticks: Array, least: int) -> Array:
        """Return max(ticks, least) - least in the model's units."""
        return np.asarray((np.maximum(ticks, least) - least) // self.unit)

    # ------------------------------------------------------------------ the model

    def _build_model(self) -> None:
        arcs, extra = len(self.arcs.begin), 2 if self.bounded else 1
        families = [self._flow(), self._compute()]
        if self.bounded:
            families.append(self._transfer())
        if self.bounded and self.upper is not None:
            families.append(self._cutoff())
        offsets = np.cumsum([0, *(len(rows.lower) for rows in families)])
        row = [rows.row + offset for rows, offset in zip(families, offsets, strict=False)]
        tops = self._range[:extra]
        self.model = Linear.of(
            cost=np.concatenate([np.zeros(arcs), np.ones(extra)]),
            lower=np.zeros(arcs + extra),
            upper=np.concatenate([np.ones(arcs), tops]),
            integral=np.arange(arcs + extra) < arcs,
            row=np.concatenate(row),
            column=np.concatenate([rows.column for rows in families]),
            value=np.concatenate([rows.value for rows in families]),
            low=np.concatenate([rows.lower for rows in families]),
            high=np.concatenate([rows.upper for rows in families]),
        )

    def _flow(self) -> Rows:
        """One unit leaves (0, n); what enters an inner node leaves it."""
        order, width, arcs = self.costs.order, self.costs.n + 1, self.arcs
        tail = order.source[arcs.transition] * width + arcs.end
        head = order.target[arcs.transition] * width + arcs.begin
        # What leaves (0, n) arrives at cut 0, in an accepting state: those nodes need no row.
        nodes, leaves = np.unique(tail, return_inverse=True)
        inner = np.flatnonzero(arcs.begin > 0)
        enters = np.searchsorted(nodes, head[inner])
        balance = (nodes == self.costs.n).astype(float)
        return Rows(
            row=np.concatenate([leaves, enters]),
            column=np.concatenate([np.arange(len(tail)), inner]),
            value=np.concatenate([np.ones(len(tail)), -np.ones(len(inner))]),
            lower=balance,
            upper=balance,
        )

    def _compute(self) -> Rows:
        """C >= sum of max(p, P) x over the arcs of each level."""
        return self._largest(self.arcs.compute, self.least[0], len(self.arcs.begin))

    def _transfer(self) -> Rows:
        """T >= sum of max(q, Q) x over the arcs of each level."""
        return self._largest(self.arcs.transfer, self.least[1], len(self.arcs.begin) + 1)

    def _largest(self, ticks: Array, least: int, column: int) -> Rows:
        level = self._levels[self.costs.order.target[self.arcs.transition]]
        levels, row = np.unique(level, return_inverse=True)
        count = len(levels)
        return Rows(
            row=np.concatenate([row, np.arange(count)]),
            column=np.concatenate([np.arange(len(row)), np.full(count, column)]),
            value=np.concatenate([-self._lifted(ticks, least), np.ones(count)]),
            lower=np.zeros(count),
            upper=np.full(count, np.inf),
        )

    def _cutoff(self) -> Rows:
        """C + T <= upper, both counted from their lower bounds."""
        assert self.upper is not None
        arcs = len(self.arcs.begin)
        return Rows(
            row=np.zeros(2, dtype=np.int64),
            column=np.array([arcs, arcs + 1]),
            value=np.ones(2),
            lower=np.array([-np.inf]),
            upper=np.array([float(self.spare // self.unit)]),
        )

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PipelineSolution:
        """Return the solution of a column of values: follow the unit from the tail."""
        arcs, order = self.arcs, self.costs.order
        x = np.asarray(values)[: len(arcs.begin)]
        chosen = np.flatnonzero(x > 0.5)
        source = order.source[arcs.transition[chosen]].tolist()
        leave = dict(zip(zip(source, arcs.end[chosen].tolist(), strict=True), chosen, strict=True))
        state, cut = 0, self.costs.n
        cuts, classes = [cut], []
        while cut:
            arc = leave[state, cut]
            t = arcs.transition[arc]
            state, cut = int(order.target[t]), int(arcs.begin[arc])
            cuts.append(cut)
            classes.append(int(order.device_class[t]))
        return assign_devices(self.costs.instance, cuts[::-1], classes[::-1])

    def hint(self, solution: PipelineSolution) -> Array:
        """Return the value of every column, shape (columns,), for a solution.

        :class:`ValueError`: it is not in the model, since infeasible, or worth more than `upper`.
        """
        path = self._path(solution)
        values = np.zeros(len(self.arcs.begin) + (2 if self.bounded else 1))
        values[path] = 1
        columns = [(self.arcs.compute, self.least[0])]
        if self.bounded:
            columns.append((self.arcs.transfer, self.least[1]))
        for place, (ticks, least) in enumerate(columns, start=len(self.arcs.begin)):
            values[place] = self._lifted(ticks[path], least).max()
        return values

    def _path(self, solution: PipelineSolution) -> list[int]:
        """Return the arcs of a solution; devices of one class stand for each other."""
        arcs, order = self.arcs, self.costs.order
        spans = np.searchsorted(arcs.transition, np.arange(len(order.source) + 1))
        routes: dict[int, list[int]] = {0: []}
        for begin, end, device in reversed(solution.stages):
            longer: dict[int, list[int]] = {}
            fits = order.device_class == self.costs.device_class[device]
            for t in np.flatnonzero(fits & np.isin(order.source, list(routes))):
                first = spans[t]
                here = slice(first, spans[t + 1])
                found = np.flatnonzero((arcs.begin[here] == begin) & (arcs.end[here] == end))
                if len(found):
                    route = routes[int(order.source[t])]
                    longer[int(order.target[t])] = [*route, int(first + found[0])]
            routes = longer
        for state, route in routes.items():
            if order.accepting[state]:
                return route
        raise ValueError(f"{solution} is not in the model")

    @cached_property
    def values(self) -> StageValues:
        """What C + T can be: the costs of arcs."""
        return StageValues(self.arcs.compute, self.arcs.transfer if self.bounded else None)


@dataclass(frozen=True)
class Rows:
    """One family of constraints: entries (row, column, value), lower and upper sides."""

    row: Array
    column: Array
    value: Array
    lower: Array
    upper: Array


def _refuse_beyond(arcs: int) -> None:
    if arcs > LARGEST_MODEL:
        raise InputError(
            f"the interval model needs more than {LARGEST_MODEL:,} arcs",
            field="model",
            remedy="give a good solution first (it removes arcs), or use the CP-SAT model or `dp`",
        )
