"""CP-SAT for chains whose layers have alternatives: cut and choices in one model.

Sets
    I = 0..k-1       slots in pipeline order: the devices, or with like devices of which some may
                     stay unused the stages, unused slots first
    L = 0..n-1       layers; O_l the options of layer l, its own figures among them
    Q                keys that layers share
Parameters
    ticks_ilo        ticks of a layer in an option on slot i
    bytes_ilo        bytes that add up: held, of tokens, and stashed for as many microbatches as
                     slot i has in flight
    peak_lo          bytes while the layer runs, with what is carried past it
    recv_i[c], send_i[c]   ticks to receive at cut c, to send at cut c
Variables
    y_li             layer l is on slot i or one before it
    z_lio            layer l is on slot i in option o
    u_i              slot i is not empty (where it may be)
    v_io             slot i takes option o (where all its layers take the same)
    h_iq             slot i holds key q
    p_i              the largest peak of slot i
    C, T             as in :mod:`.model`
Objective
    minimise  C + T
Constraints
    order            y_li >= y_(l+1)i,  y_li <= y_l(i+1),  y_l(k-1) = 1
    options          sum of z_lio over o = y_li - y_l(i-1)
    cuts             y_(c-1)i - y_ci = 0 at cuts that are not allowed, 1 in all over i at fixed ones
    used             sum of z over l and o >= u_i;  z_lio <= u_i;  u_i <= u_(i+1)
    alike            z_lio <= v_io where layer l has o; its own figures only where it has not
    memory           sum of bytes_ilo z_lio + p_i + sum of the bytes of h_iq <= capacity of slot i
    peak             p_i >= peak_lo z_lio;  h_iq >= y_li - y_l(i-1) where l needs q
    compute          C >= sum of ticks_ilo z_lio over l, o (and what the objective adds)
    transfer         T >= recv_i + send_i, both sums over c of what a cut there takes
Size
    k n variables y and as many z for each option
Source
    ours
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_FACTOR
from stagepack.formulations.pipeline.model import PipelineModel
from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.instances.pipeline.choices import cycles_of_options, options
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.order import assign_devices
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.profile import Array
from stagepack.instances.ticks import exactly, ticks

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

LARGEST_MODEL = 300_000
"""Variables of layers, slots and options beyond which a model is refused."""

LOADING = 1e-5
"""Seconds that CP-SAT takes to load one of these, with its part of the rows."""

MOST_BYTES = 2**40
"""Units of bytes that CP-SAT adds up."""


class CpSatChosen(PipelineModel):
    """The model of cut and choices as a `cp_model.CpModel`.

    Parameters and attributes are those of :class:`PipelineModel`.
    """

    model: CpModel

    @staticmethod
    def unsupported(instance: PipelinePartition) -> str:
        """Return what the model cannot express of an instance, or ""."""
        alike = len({device.kind for device in instance.cluster.devices}) == 1
        timed = instance.recv_cycles is not None or instance.send_cycles is not None
        if (instance.free_order or instance.fewer_stages) and not (alike and not timed):
            return "knows alternatives of layers on unlike devices in their order alone; use dp"
        size = instance.n * instance.k * (len(instance.alternatives) + 1)
        if size > LARGEST_MODEL:
            return f"needs {size:,} variables, more than {LARGEST_MODEL:,}"
        return ""

    def build(self) -> None:
        """Build the model."""
        from ortools.sat.python import cp_model

        costs, instance = self.costs, self.costs.instance
        self.n, self.k, self._cp = costs.n, costs.k, cp_model
        self.names, self.figures = zip(*options(instance), strict=True)
        floor = objective_bound(costs) if self.additive else costs.compute_bound()
        host = costs.host if self.additive else 0
        self.least = floor - host, costs.transfer_bound() if self.bounded else 0
        self.slot_class = costs.device_class.tolist()
        self._set_units()
        self.model = cp_model.CpModel()
        self._layers()
        self._cuts()
        if instance.alternatives_per == "stage":
            self._alike()
        self._memory()
        self._objective()
        self.loading = LOADING * self.n * self.k * len(self.names)

    def _set_units(self) -> None:
        """Choose the ticks of a step; what is not whole in it is rounded down, layer by layer."""
        costs, cycles = self.costs, cycles_of_options(self.costs.instance)
        speeds = [device.speed for device in costs.instance.cluster.devices]
        each = {c: exactly(s) for c, s in zip(self.slot_class, speeds, strict=True)}
        self._ticks = {c: ticks(cycles, costs.scale / speed) for c, speed in each.items()}
        rows = [*self._ticks.values(), costs.recv, costs.send]
        common = math.gcd(*(int(np.gcd.reduce(row, axis=None)) for row in rows))
        most = max(int(table.max(axis=0).sum()) for table in self._ticks.values())
        most += int(costs.recv.max() + costs.send.max()) * (self.k if self.additive else 1)
        self.set_unit(common, most, LARGEST_FACTOR)
        self._most = most // self.unit + 1
        self._ticks = {c: table // self.unit for c, table in self._ticks.items()}
        self._recv, self._send = costs.recv // self.unit, costs.send // self.unit

    def _layers(self) -> None:
        """y_li and z_lio; unused slots come first where there may be some."""
        model, n, k, idle = self.model, self.n, self.k, self.costs.instance.fewer_stages
        self.y = [[model.new_bool_var(f"y{layer},{i}") for i in range(k - 1)] for layer in range(n)]
        self.z: dict[tuple[int, int, int], IntVar] = {}
        self.used = [model.new_bool_var(f"u{i}") for i in range(k)] if idle else []
        for i in range(k):
            if i and idle:
                model.add_implication(self.used[i - 1], self.used[i])
            for layer in range(n):
                if layer and i < k - 1:
                    model.add_implication(self.y[layer][i], self.y[layer - 1][i])
                if 0 < i < k - 1:
                    model.add_implication(self.y[layer][i - 1], self.y[layer][i])
                own = []
                for o, one in enumerate(self.figures):
                    if one.layers[layer]:
                        self.z[layer, i, o] = model.new_bool_var(f"z{layer},{i},{o}")
                        own.append(self.z[layer, i, o])
                model.add(sum(own) == self._on(layer, i))
                if idle:
                    model.add(sum(own) <= self.used[i])
            here = sum(self._on(layer, i) for layer in range(n))
            model.add(here >= (self.used[i] if idle else 1))

    def _on(self, layer: int, slot: int) -> Any:
        """Return the expression that is 1 where a layer is on a slot."""
        y = self.y[layer]
        return (y[slot] if slot < self.k - 1 else 1) - (y[slot - 1] if slot else 0)

    def _ends(self, slot: int, cut: int) -> Any:
        """Return the expression that is 1 where slots up to one hold the layers before a cut."""
        return self.y[cut - 1][slot] - self.y[cut][slot]

    def _cuts(self) -> None:
        """Cuts that are not allowed, and fixed ones."""
        for cut in np.flatnonzero(~self.costs.allowed).tolist():
            for slot in range(self.k - 1):
                self.model.add(self._ends(slot, cut) == 0)
        for cut in self.costs.instance.fixed_cuts:
            self.model.add(sum(self._ends(slot, cut) for slot in range(self.k - 1)) == 1)

    def _alike(self) -> None:
        """All layers of a slot that have it take the same option, the others their own figures."""
        model = self.model
        for i in range(self.k):
            taken = [model.new_bool_var(f"v{i},{o}") for o in range(len(self.names))]
            model.add_exactly_one(taken)
            for layer in range(self.n):
                for o in range(len(self.names)):
                    if o and (layer, i, o) in self.z:
                        model.add_implication(self.z[layer, i, o], taken[o])
                lacking = [v for o, v in enumerate(taken) if not o or (layer, i, o) not in self.z]
                model.add_bool_or([*lacking, ~self.z[layer, i, 0]])

    def _memory(self) -> None:
        """What layers hold in their options, the largest peak and keys fit each slot."""
        costs, instance, model = self.costs, self.costs.instance, self.model
        shared, peaks = instance.shared, [f.temporary + instance.carry for f in self.figures]
        limits = [costs.capacity[c] for c in self.slot_class]
        if all(limit is None for limit in limits):
            return
        nothing = np.zeros(self.n, dtype=np.int64)
        held = [f.held + costs.tokens * f.kv_bytes for f in self.figures]
        stash = [f.stash if instance.training else nothing for f in self.figures]
        sizes = [int(np.gcd.reduce(row)) for row in (*held, *stash, *peaks, shared.nbytes)]
        unit = math.gcd(*sizes) or 1
        most = sum(int(row.max()) for row in (*held, *peaks, *stash)) * self.n
        if (most * max(1, instance.microbatches) + int(shared.nbytes.sum())) // unit >= MOST_BYTES:
            raise InputError(
                "bytes have too many digits for CP-SAT to add up",
                field="model",
                remedy="round them to kibibytes, or use dp",
            )
        for i, limit in enumerate(limits):
            if limit is None:
                continue
            flying = min(instance.microbatches, self.k - i) if instance.training else 0
            top = max(int(row.max()) for row in peaks) // unit
            peak = model.new_int_var(0, top, f"p{i}")
            need: Any = peak
            for (layer, slot, o), z in self.z.items():
                if slot == i:
                    need += (int(held[o][layer]) + flying * int(stash[o][layer])) // unit * z
                    if peaks[o][layer]:
                        model.add(peak >= int(peaks[o][layer]) // unit * z)
            for q, nbytes in enumerate(shared.nbytes.tolist()):
                holds = model.new_bool_var(f"h{i},{q}")
                need += nbytes // unit * holds
                for layer in shared.layer[shared.key == q].tolist():
                    model.add(holds >= self._on(layer, i))
            model.add(need <= limit // unit)

    def _objective(self) -> None:
        """Minimise C + T, of what the slots compute, receive and send."""
        model, objective, low = self.model, self.costs.instance.objective, 0
        if self.exact:
            low = -(-self.least[0] // self.unit)
        most = max(self._most, low)
        if self.upper is not None:
            most = max(low, min(most, self.upper // self.unit))
        self.C, self.T = model.new_int_var(low, most, "C"), None
        if self.bounded:
            self.T = model.new_int_var(0, self._most, "T")
        every: list[Any] = []
        for i, c in enumerate(self.slot_class):
            table = self._ticks[c].tolist()
            work = sum(table[o][layer] * z for (layer, slot, o), z in self.z.items() if slot == i)
            recv, send = self._moved(self._recv[c], i - 1), self._moved(self._send[c], i)
            if objective is Objective.LATENCY:
                every += [work, recv, send]
            elif objective is Objective.SUM:
                model.add(work + recv + send <= self.C)
            else:
                model.add(work <= self.C)
            if objective is Objective.OVERLAP:
                model.add(recv <= self.C)
                model.add(send <= self.C)
            if self.T is not None:
                model.add(recv + send <= self.T)
        if self.additive:
            model.add(sum(every) <= self.C)
        model.minimize(self.C if self.T is None else self.C + self.T)

    def _moved(self, row: Array, slot: int) -> Any:
        """Return the steps that what crosses the cut behind a slot takes."""
        if not 0 <= slot < self.k - 1:
            return 0
        return sum(int(row[cut]) * self._ends(slot, cut) for cut in range(1, self.n) if row[cut])

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PipelineSolution:
        """Return the solution of values by variable index."""
        placed = {}
        for (layer, i, o), z in self.z.items():
            if round(float(values[z.index])):
                placed[layer] = i, o
        slots = [placed[layer][0] for layer in range(self.n)]
        cuts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), self.n]
        classes = [self.slot_class[slots[a]] for a in cuts[:-1]]
        stages = assign_devices(self.costs.instance, cuts, classes)
        taken = [placed[layer][1] for layer in range(self.n)]
        choices = tuple(self.names[o] for o in taken) if any(taken) else ()
        return PipelineSolution(stages.boundaries, stages.devices, choices)

    def hint(self, solution: PipelineSolution) -> Array:
        """Return where layers are and what they take, shape (variables,); NaN for what follows.

        Raises
        ------
        ValueError
            When it is worth more than `upper`.
        """
        if self.upper is not None and self.costs.objective(solution) > self.upper:
            raise ValueError(f"{solution} is worth more than the model allows")
        values = np.full(len(self.model.proto.variables), np.nan)
        for z in self.z.values():
            values[z.index] = 0
        idle = self.k - len(solution.devices)  # unused slots come first
        slots = [idle + at for at, (a, b, _) in enumerate(solution.stages) for _ in range(a, b)]
        taken = [self.names.index(name) for name in self.costs.instance.taken(solution)]
        for layer, i in enumerate(slots):
            values[self.z[layer, i, taken[layer]].index] = 1
            for at, y in enumerate(self.y[layer]):
                values[y.index] = i <= at
        for i, used in enumerate(self.used):
            values[used.index] = i >= idle
        return values

    def ticks(self, steps: int) -> int:
        """Return the ticks of C + T, which count from 0; figures are rounded down."""
        return steps * self.unit
