"""CP-SAT for devices that run several stages each, wherever these are placed.

Sets
    S = 0..s-1       stages in pipeline order; d(i) is the device of stage i
    J = 0..s         cuts; stage i is the spans [c_i, c_(i+1)), which no cut may split
    K_d              keys a device may have to hold: those that layers share, and one for each step
                     from one size of temporary and carried bytes to the next
Parameters
    work_d[c]        ticks of the spans before cut c on device d
    held[c], stash[c]   bytes that the spans before cut c hold, and stash for each microbatch
    next_q[c]        the first span from cut c on that needs key q, or the number of spans
    fixed[c]         the first fixed cut after cut c
    m                microbatches of a step
    least            a lower bound on the largest load, from counting
Variables
    c_j              cut j
    used_i           stage i is not empty (where that may be and stashes count)
    z_ir             stage i stashes r microbatches (likewise)
    h_dq             device d holds key q
    C                the largest load of a device
Objective
    minimise  C
Constraints
    cuts             c_0 = 0, c_s = n, c_i < c_(i+1), or c_i <= c_(i+1) where stages may be empty
    fixed            c_(i+1) <= fixed[c_i]
    load             C >= sum of work_d[c_(i+1)] - work_d[c_i] over the stages i of device d
    spread           the first j stages hold at most C for each device among them; so do the others
    stashes          z_ir exactly where r = min(m, used stages from i on)
    keys             h_dq, or c_(i+1) <= next_q[c_i], for each stage i of device d
    memory           what the stages of d hold and stash, and its keys, fit device d
Size
    s + 1 cuts with a table of n + 1 entries each for every class of devices around them; with
    memory, as many for each stage and key
Source
    ours
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_FACTOR
from stagepack.formulations.pipeline.cp_sat import LOADING
from stagepack.formulations.pipeline.model import PipelineModel
from stagepack.heuristics.pipeline.bounds import counted
from stagepack.instances.arrays import distinct
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

LARGEST_LOOKUPS = 5_000_000
"""Entries of all lookups beyond which a model is refused."""


class CpSatPlaced(PipelineModel):
    """The model of stages on devices as a `cp_model.CpModel`.

    Parameters and attributes are those of :class:`PipelineModel`.
    """

    model: CpModel

    @staticmethod
    def unsupported(instance: PipelinePartition) -> str:
        """Return what the model cannot express of an instance: too large tables."""
        entries = len(instance.stage_devices) * (len(_keys(instance)) + 1)
        entries *= int(instance.allowed_cuts.sum())
        if entries > LARGEST_LOOKUPS:
            return f"needs tables of {entries:,} entries, more than {LARGEST_LOOKUPS:,}"
        return ""

    def build(self) -> None:
        """Build the model; too few spans for the stages are no model."""
        from ortools.sat.python import cp_model

        costs, instance = self.costs, self.costs.instance
        self.places = np.flatnonzero(costs.allowed)
        self.n, self.table = len(self.places) - 1, instance.stage_devices
        fixed = np.searchsorted(self.places, instance.fixed_cuts)
        self.infeasible = bool((self.places[fixed] != instance.fixed_cuts).any())
        self.infeasible |= self.n < len(self.table) and not instance.fewer_stages
        self.least = counted(costs), 0
        if self.infeasible:
            return
        self._cp, self.model = cp_model, cp_model.CpModel()
        self._lookups: dict[tuple[object, int], tuple[IntVar, Array, int]] = {}
        self._set_units()
        self._cuts(fixed)
        self._load()
        self._memory()
        self.loading = LOADING * (self.n + 1) * len(self._lookups)

    def _set_units(self) -> None:
        """Choose the unit of ticks, which rounding adds to once for each stage of a device."""
        costs = self.costs
        prefix = costs.prefix[:, self.places]
        common = int(np.gcd.reduce(np.diff(prefix, axis=1), axis=None))
        self.set_unit(common, int(prefix[:, -1].max()), LARGEST_FACTOR)
        self.loss *= max(map(self.table.count, set(self.table)))
        self._work = prefix // self.unit

    def _cuts(self, fixed: Array) -> None:
        """c_0 = 0, c_s = n, c_i < c_(i+1), or <= where stages may be empty; fixed cuts."""
        model, n, stages = self.model, self.n, len(self.table)
        least = 0 if self.costs.instance.fewer_stages else 1
        self.c = [
            model.new_int_var(
                n if j == stages else least * j, least * (j - stages) + n if j else 0, f"c{j}"
            )
            for j in range(stages + 1)
        ]
        ends = np.append(np.sort(fixed), n)
        ends = np.append(ends[np.searchsorted(ends[:-1], np.arange(n), side="right")], n)
        for i in range(stages):
            model.add(self.c[i + 1] >= self.c[i] + least)
            if len(fixed):
                model.add(self.c[i + 1] <= self._lookup("fixed", i, ends))

    def _lookup(self, name: object, j: int, table: Array) -> IntVar | int:
        """Return a variable for table[c_j], shape of the table (n + 1,)."""
        if j in (0, len(self.table)):
            return int(table[0 if j == 0 else self.n])
        if (name, j) not in self._lookups:
            domain = self._cp.Domain.from_values(distinct(table).tolist())
            found = self.model.new_int_var_from_domain(domain, f"{name},{j}")
            self.model.add_element(self.c[j], table.tolist(), found)
            self._lookups[name, j] = found, table, j
        return self._lookups[name, j][0]

    def _span(self, name: object, i: int, table: Array) -> LinearExpr | int:
        """Return table[c_(i+1)] - table[c_i]."""
        return self._lookup(name, i + 1, table) - self._lookup(name, i, table)

    def _load(self) -> None:
        """C >= sum of the work of the stages of each device; spread."""
        costs, model, work = self.costs, self.model, self._work
        most = int(work[:, -1].max())
        if self.upper is not None:  # rounded, it may have grown
            most = min(most, -(-(self.upper + self.loss) // self.unit))
        low = -(-self.least[0] // self.unit)
        self.C = model.new_int_var(min(low, most), most, "C")
        for device in range(costs.k):
            c = int(costs.device_class[device])
            stages = [i for i, own in enumerate(self.table) if own == device]
            model.add(sum(self._span(("w", c), i, work[c]) for i in stages) <= self.C)
        if costs.classes == 1:
            for j in range(1, len(self.table)):
                done = self._lookup(("w", 0), j, work[0])
                before, after = len(set(self.table[:j])), len(set(self.table[j:]))
                if before < costs.k:
                    model.add(done <= before * self.C)
                if after < costs.k:
                    model.add(int(work[0, -1]) - done <= after * self.C)
        model.minimize(self.C)

    # ------------------------------------------------------------------ memory

    def _memory(self) -> None:
        """What the stages of a device hold and stash, and its keys, fit it."""
        costs, instance, model = self.costs, self.costs.instance, self.model
        limits = [costs.capacity[c] for c in costs.device_class.tolist()]
        if all(limit is None for limit in limits):
            return
        whole = sum(instance.exclusive.values(), np.zeros(instance.n, dtype=np.int64))
        held, stash = (
            np.concatenate([[0], np.cumsum(column)])[self.places]
            for column in (whole, instance.stash if instance.training else 0 * whole)
        )
        keys = _keys(instance)
        bytes_of = self._bytes_of(held, stash, [nbytes for nbytes, _ in keys])
        nexts = [self._next(layers) for _, layers in keys]
        stashed = self._stashed(stash // bytes_of)
        for device, limit in enumerate(limits):
            if limit is None:
                continue
            stages = [i for i, own in enumerate(self.table) if own == device]
            need = sum(self._span("held", i, held // bytes_of) + stashed[i] for i in stages)
            for q, ((nbytes, _), first) in enumerate(zip(keys, nexts, strict=True)):
                holds = model.new_bool_var(f"h{device},{q}")
                need += nbytes // bytes_of * holds
                for i in stages:
                    bound = model.add(self.c[i + 1] <= self._lookup(("q", q), i, first))
                    bound.only_enforce_if(~holds)
            model.add(need <= limit // bytes_of)

    def _bytes_of(self, held: Array, stash: Array, keys: list[int]) -> int:
        """Return bytes of a unit of memory, which all figures are whole in."""
        unit = math.gcd(*np.diff(held).tolist(), *np.diff(stash).tolist(), *keys) or 1
        flying = min(self.costs.instance.microbatches, len(self.table))
        if (int(held[-1]) + flying * int(stash[-1]) + sum(keys)) // unit >= 2**40:
            raise InputError(
                "bytes have too many digits for the CP-SAT model",
                field="exclusive",
                remedy="count in larger units",
            )
        return unit

    def _next(self, layers: Array) -> Array:
        """Return the first span from each cut on that one of the layers is in."""
        spans = np.append(np.searchsorted(self.places, layers, side="right") - 1, self.n)
        return np.asarray(spans[np.searchsorted(spans, np.arange(self.n + 1))])

    def _stashed(self, stash: Array) -> list[LinearExpr | int]:
        """Return what each stage stashes, in units; z_ir where stages may be empty."""
        model, stages, most = self.model, len(self.table), self.costs.instance.microbatches
        each = [self._span("stash", i, stash) if stash[-1] else 0 for i in range(stages)]
        if not self.costs.instance.fewer_stages or not stash[-1]:
            return [min(most, stages - i) * each[i] for i in range(stages)]
        found: list[LinearExpr | int] = []
        used = [model.new_bool_var(f"used{i}") for i in range(stages)]
        for i in range(stages):
            model.add(self.c[i + 1] > self.c[i]).only_enforce_if(used[i])
            model.add(self.c[i + 1] == self.c[i]).only_enforce_if(~used[i])
            top = min(most, stages - i)
            total = model.new_int_var(0, top * int(stash[-1]), f"stash{i}")
            count, z = sum(used[i:]), {r: model.new_bool_var(f"z{i},{r}") for r in range(top + 1)}
            model.add_exactly_one(z.values())
            for r, literal in z.items():
                exact = model.add(count == r) if r < most else model.add(count >= r)
                exact.only_enforce_if(literal)
                model.add(total >= r * each[i]).only_enforce_if(literal)
            found.append(total)
        return found

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PipelineSolution:
        """Return the solution of values by variable index."""
        boundaries, devices = [0], []
        for i, device in enumerate(self.table):
            cut = int(self.places[round(float(values[self.c[i + 1].index]))])
            if cut > boundaries[-1]:
                boundaries.append(cut)
                devices.append(device)
        return PipelineSolution(tuple(boundaries), tuple(devices))

    def hint(self, solution: PipelineSolution) -> Array:
        """Return the cuts of a solution, and what is looked up there, shape (variables,); NaN else.

        :class:`ValueError`: it is worth more than `upper`.
        """
        costs, instance = self.costs, self.costs.instance
        value = costs.objective(solution)
        if self.upper is not None and value > self.upper:
            raise ValueError(f"{solution} is worth more than the model allows")
        ends = dict(zip(instance.slots_of(solution), solution.boundaries[1:], strict=True))
        cuts = [0]
        for i in range(len(self.table)):
            cuts.append(int(np.searchsorted(self.places, ends[i])) if i in ends else cuts[-1])
        values = np.full(len(self.model.proto.variables), np.nan)
        for j, cut in enumerate(cuts):
            values[self.c[j].index] = cut
        for variable, table, j in self._lookups.values():
            values[variable.index] = table[cuts[j]]
        return values

    def ticks(self, steps: int) -> int:
        """Return the ticks of C, which counts from 0, less what a coarser unit has added."""
        return steps * self.unit - self.loss


def _keys(instance: PipelinePartition) -> list[tuple[int, Array]]:
    """Return bytes of each key that a device may have to hold, and the layers that need it.

    What a device's layer of the largest peak needs is what all steps up to that peak need: a step
    is needed by the layers whose peak is above it.  None where no device has a limit.
    """
    if all(device.memory is None for device in instance.cluster.devices):
        return []
    shared = instance.shared
    found = [
        (nbytes, shared.layer[shared.key == key])
        for key, nbytes in enumerate(shared.nbytes.tolist())
    ]
    peak, before = instance.temporary + instance.carry, 0
    for size in distinct(peak).tolist():
        if size > before:
            found.append((size - before, np.flatnonzero(peak >= size)))
            before = size
    return found
