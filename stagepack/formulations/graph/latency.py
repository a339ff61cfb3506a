"""CP-SAT for latency: where every block is, and when everything ends.

Sets
    B, V, E          blocks of nodes, nodes, edges; b(v) the block of node v
    D, N             accelerators; nets
Parameters
    time_bd, cpu_v   steps of block b on accelerator d, of node v on a CPU
    cost_n           steps of net n
    P                nodes of one path, the longest where each is where it is fastest
Variables
    x_bd, c_b        block b is on accelerator d, on a CPU
    cut_nd           d holds some of the blocks of net n, and not all
    S_d, E_d         when d begins and ends
    F_v              when node v is there for others; L: when the last one is
    r_d, r_v         places in an order, only where cycles might take no time
Objective
    minimise         L
Constraints
    place            c_b + sum over d of x_bd = 1
    memory           sum of size_b x_bd <= room of d
    cut              cut_nd >= |x_ad - x_bd| for the first block a of net n and every other one
    load             E_d >= S_d + sum of time_bd x_bd + sum of cost_n cut_nd
    ready            S_d >= F_u where x_b(v)d = 1 and x_b(u)d = 0, (u, v) in E
    end              F_v >= E_d where x_b(v)d = 1; F_v >= F_u; F_v >= F_u + cpu_v where c_b(v) = 1
    last             L >= F_v
    path             L >= times of the nodes of P where they are, and costs of nets between them
                     where these cross
    order            r_v >= r_u + 1 on the same conditions as F, where both might take no time
    alike            of like accelerators, the first block of one is before that of the next
Size
    |B| |D| places, |N| |D| cuts, |E| |D| conditional rows
Source
    Tarnawski et al., *Efficient Algorithms for Device Placement of DNN Graph Operators*, NeurIPS
    2020, for the objective; rows for the path and the order are ours
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_FACTOR, LARGEST_VALUE, UNPRESOLVED, Formulation
from stagepack.heuristics.graph.latency.sample import Sample
from stagepack.heuristics.graph.tuning import TUNING, ModelsTuning
from stagepack.instances.graph.compact import UNLIMITED
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.instance import GraphPartition
from stagepack.linear import Array

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar


class Latency(Formulation[GraphPartition, GraphSolution]):
    """The model as a `cp_model.CpModel`; bounds are in ticks, all figures in steps of some.

    What is worth more than `upper`, the ticks of a known solution, may be cut off; none is worth
    less than `lower`.
    """

    def __init__(
        self,
        sample: Sample,
        *,
        upper: int | None = None,
        lower: int = 0,
        tuning: ModelsTuning = TUNING.models,
    ) -> None:
        from ortools.sat.python import cp_model

        self.sample, self.upper, self.lower = sample, upper, lower
        instance = sample.instance
        self.devices = range(instance.accelerators)
        size = instance.n + len(sample.cost) + len(sample.edges)
        if size * len(self.devices) > tuning.most_places:
            raise InputError(
                f"{instance.n:,} nodes on {len(self.devices):,} accelerators are too many for a "
                "model",
                field="method",
                remedy="use local-search, or fewer devices",
            )
        self._set_steps(size * len(self.devices) <= tuning.fine_places)
        self.model = cp_model.CpModel()
        self._places()
        if self.infeasible or self.first > self.most:
            self.infeasible = True
            return
        self._memory()
        self._loads()
        self._ends()
        self._path()
        self._acyclic()

    def _set_steps(self, fine: bool) -> None:
        """Count ticks in steps, rounded down: as fine as CP-SAT allows with presolve, or without.

        What takes longer than the known solution is in none that is better, however much longer.
        """
        sample = self.sample
        far = 2**62 if self.upper is None else self.upper
        figures = (sample.node_time, sample.cpu_time, sample.cost, sample.time)
        near = [int(np.gcd.reduce(f[f <= far], axis=None)) for f in figures if (f <= far).any()]
        node_time, cpu_time, cost, time = (np.minimum(f, far + 1) for f in figures)
        longest = np.maximum(node_time.max(axis=0, initial=0), cpu_time)
        # The row of the path has each figure once for every device.
        total = (len(self.devices) + 1) * (int(longest.sum()) + int(cost.sum()))
        unit = math.gcd(*near) or 1
        if total // unit >= LARGEST_FACTOR:
            largest = LARGEST_VALUE if fine else LARGEST_FACTOR
            unit = max(unit, -(-total // (largest - 1)))
            self.parameters = UNPRESOLVED if fine else {}
        self.unit, self.most = unit, min(total, far) // unit
        # Rounded up where it is too long in any case.
        self.node_time, self.cpu_time, self.cost, self.time = (
            np.where(f > far, self.most + 1, f // unit) for f in (node_time, cpu_time, cost, time)
        )
        least = np.minimum(sample.least() // unit, self.most + 1)
        self.head, before = sample.heads(least)
        self.first = max(int(self.head.max(initial=0)), min(self.lower // unit, self.most))
        self.path = sample.path(self.head, before)

    def _places(self) -> None:
        """Put each block on one device; of like accelerators, first blocks rise."""
        sample, model = self.sample, self.model
        self.c: list[IntVar | None] = []
        self.x: list[dict[int, IntVar]] = []
        like: dict[int, list[int]] = {}
        self.previous: dict[int, int] = {}
        for d in self.devices:
            mine = like.setdefault(int(sample.kind[d]), [])
            if mine:
                self.previous[d] = mine[-1]
            mine.append(d)
        longest = np.zeros(sample.blocks, dtype=np.int64)
        np.maximum.at(longest, sample.block_of, self.cpu_time)
        turn = {d: at for mine in like.values() for at, d in enumerate(mine)}
        for b in range(sample.blocks):
            fits = [
                d
                for d in self.devices
                if sample.fast[b]
                and sample.size[b] <= sample.room[d]
                and self.time[sample.kind[d], b] <= self.most
                and turn[d] <= b
            ]
            self.x.append({d: model.new_bool_var("") for d in fits})
            slow = sample.slow[b] and longest[b] <= self.most
            self.c.append(model.new_bool_var("") if slow else None)
            some = [*self.x[b].values(), *([] if self.c[b] is None else [self.c[b]])]
            if not some:
                self.infeasible = True
                return
            model.add_exactly_one(some)
        for b, row in enumerate(self.x):
            for d, here in row.items():
                if d in self.previous:
                    near = self.previous[d]
                    model.add_bool_or(
                        [~here, *(self.x[a][near] for a in range(b) if near in self.x[a])]
                    )

    def _memory(self) -> None:
        """Keep within the bytes of each accelerator, in units of what all have in common."""
        sample = self.sample
        if not len(sample.room) or sample.room.min() >= UNLIMITED:
            return
        total = int(sample.size.sum())
        unit = int(np.gcd.reduce(sample.size)) or 1
        if total // unit >= LARGEST_FACTOR:
            unit, self.coarse = -(-total // (LARGEST_FACTOR - 1)), True
        for d in self.devices:
            if sample.room[d] < total:
                rows = [
                    (int(sample.size[b] // unit), row[d])
                    for b, row in enumerate(self.x)
                    if d in row and sample.size[b]
                ]
                self.model.add(sum(size * x for size, x in rows) <= int(sample.room[d] // unit))

    def _loads(self) -> None:
        """E_d >= S_d + times + costs of the nets that are cut."""
        sample, model = self.sample, self.model
        ptr, net = sample.net_ptr.tolist(), sample.net.tolist()
        self.begin = [model.new_int_var(0, self.most, "") for _ in self.devices]
        self.end = [model.new_int_var(0, self.most, "") for _ in self.devices]
        self.net_of: dict[tuple[int, int], int] = {}
        for d in self.devices:
            time = self.time[sample.kind[d]].tolist()
            terms = [time[b] * row[d] for b, row in enumerate(self.x) if d in row and time[b]]
            for n, cost in enumerate(self.cost.tolist()):
                members = [self.x[b].get(d) for b in net[ptr[n] : ptr[n + 1]]]
                if not cost or all(one is None for one in members):
                    continue
                cut = model.new_bool_var("")
                terms.append(cost * cut)
                first, *others = members
                for other in others:
                    self._differ(first, other, cut)
            model.add(self.end[d] >= self.begin[d] + sum(terms))
        for n in range(len(self.cost)):
            for b in net[ptr[n] + 1 : ptr[n + 1]]:
                self.net_of[net[ptr[n]], b] = self.net_of[b, net[ptr[n]]] = n

    def _differ(self, one: IntVar | None, other: IntVar | None, cut: IntVar) -> None:
        """Let `cut` be 1 where just one of two is; None stands for 0."""
        for a, b in ((one, other), (other, one)):
            if a is not None:
                self.model.add_bool_or([~a, cut, *([] if b is None else [b])])

    def _ends(self) -> None:
        """Nothing begins before what it reads is there."""
        sample, model, block = self.sample, self.model, self.sample.block_of.tolist()
        head, cpu = self.head.tolist(), self.cpu_time.tolist()
        self.there = [model.new_int_var(low, self.most, "") for low in head]
        self.last = model.new_int_var(self.first, self.most, "")
        read = set(sample.edges[:, 0].tolist())
        for v, there in enumerate(self.there):
            c = self.c[block[v]]
            for d, here in self.x[block[v]].items():
                model.add(there >= self.end[d]).only_enforce_if(here)
            if c is not None:
                model.add(there >= cpu[v]).only_enforce_if(c)
            if v not in read:
                model.add(self.last >= there)
        known: set[tuple[int, int]] = set()
        for u, v in sample.edges.tolist():
            a, b = block[u], block[v]
            model.add(self.there[v] >= self.there[u])
            c = self.c[b]
            if c is not None:
                model.add(self.there[v] >= self.there[u] + cpu[v]).only_enforce_if(c)
            if a == b or (u, b) in known:
                continue
            known.add((u, b))
            for d, here in self.x[b].items():
                away = [~self.x[a][d]] if d in self.x[a] else []
                model.add(self.begin[d] >= self.there[u]).only_enforce_if([here, *away])
        model.minimize(self.last)

    def _path(self) -> None:
        """L is no less than what happens along one path, one after the other."""
        sample, block = self.sample, self.sample.block_of.tolist()
        terms, counted = [], set[int]()
        for v in self.path:
            b = block[v]
            for d, here in self.x[b].items():
                terms.append(int(self.node_time[sample.kind[d], v]) * here)
            c = self.c[b]
            if c is not None:
                terms.append(int(self.cpu_time[v]) * c)
        for u, v in zip(self.path, self.path[1:], strict=False):
            a, b = block[u], block[v]
            n = self.net_of.get((a, b), -1)
            if a == b or n < 0 or n in counted or not self.cost[n]:
                continue
            counted.add(n)
            for d in {*self.x[a], *self.x[b]}:
                cut = self.model.new_bool_var("")
                self._differ(self.x[a].get(d), self.x[b].get(d), cut)
                terms.append(int(self.cost[n]) * cut)
        self.model.add(self.last >= sum(terms))

    def _acyclic(self) -> None:
        """Order what might wait for one another without taking time."""
        sample, model, block = self.sample, self.model, self.sample.block_of.tolist()
        idle_fast = (self.node_time.min(axis=0, initial=1) == 0) & sample.fast[sample.block_of]
        idle_slow = (self.cpu_time == 0) & sample.slow[sample.block_of]
        idle = (idle_fast | idle_slow).tolist()
        pairs = []
        for u, v in sample.edges.tolist():
            a, b = block[u], block[v]
            n = self.net_of.get((a, b), -1)
            free = n < 0 or self.cost[n] == 0
            if idle[u] and idle[v] and (free or (idle_slow[u] and idle_slow[v])):
                pairs.append((u, v))
        most = len(self.devices) + sample.instance.n
        place = [model.new_int_var(0, most, "") for _ in self.devices] if pairs else []
        rank = {v: model.new_int_var(0, most, "") for pair in pairs for v in pair}
        for v, own in rank.items():
            for d, here in self.x[block[v]].items():
                model.add(own == place[d]).only_enforce_if(here)
        for u, v in pairs:
            a, b = block[u], block[v]
            c = self.c[b]
            if c is not None:
                model.add(rank[v] >= rank[u] + 1).only_enforce_if(c)
            for d, here in self.x[b].items() if a != b else ():
                away = [~self.x[a][d]] if d in self.x[a] else []
                model.add(rank[v] >= rank[u] + 1).only_enforce_if([here, *away])

    # ------------------------------------------------------------------ back and forth

    def worth(self, steps: int) -> int:
        """Return the least ticks of a solution of so many steps."""
        return max(0, steps) * self.unit

    def decode(self, values: Array) -> GraphSolution:
        """Return the solution of values by variable."""
        found = np.full(self.sample.blocks, -1, dtype=np.int64)
        for b, row in enumerate(self.x):
            for d, here in row.items():
                if values[here.index] > 0.5:
                    found[b] = d
        return self.sample.solution(found)

    def hint(self, solution: GraphSolution) -> Array:
        """Return where blocks are, like accelerators by their first blocks; NaN for what follows.

        Raises `ValueError` when a block is where the model has no place for it.
        """
        values = np.full(len(self.model.proto.variables), np.nan)
        kind = self.sample.kind.tolist()
        free = {c: iter([d for d in self.devices if kind[d] == c]) for c in set(kind)}
        taken: dict[int, int] = {}
        for b, place in enumerate(self.sample.places(solution).tolist()):
            if place >= 0 and place not in taken:
                taken[place] = next(free[kind[place]])
            at, c = taken.get(place, -1), self.c[b]
            if (at not in self.x[b]) if place >= 0 else c is None:
                raise ValueError(f"{solution} is not in the model")
            for d, here in self.x[b].items():
                values[here.index] = d == at
            if c is not None:
                values[c.index] = place < 0
        return values
