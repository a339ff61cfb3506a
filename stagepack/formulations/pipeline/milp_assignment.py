"""MILP with cumulative assignment variables: y says which stage a layer has reached.

Sets
    I = 0..k-1      stages; stage i runs on device i, and every device is used
    B = 0..|B|-1    blocks of layers that no cut may divide; a chain of single layers when every
                    cut is allowed
    W_i             blocks at which stage i may begin, in the reach of both ends of the chain
    K               keys of shared bytes
Parameters
    work_ib         ticks of block b on device i
    recv_ib, send_ib   ticks device i needs to receive, to send at the cut before block b
    bytes_ib        exclusive bytes of block b and the activations that stage i stashes of it
    peak_b          largest temporary + carried bytes of a layer of b
    size_q          bytes of key q
    reach_i(b)      the block at which stage i + 1 begins at the latest when stage i begins at b
    P, Q            lower bounds on the largest compute and transfer
Variables
    y_bi            1 if block b is on stage i or a later one, that is, stage i begins at b or
                    before; x_bi = y_bi - y_b(i+1) is 1 if b is on stage i, and
                    s_bi = y_bi - y_(b-1)i is 1 if stage i begins at b
    u_qi            1 if stage i holds key q
    p_i             peak of the temporary and carried bytes on stage i
    C, T            largest compute and transfer; for `sum` C holds both, for `overlap` the largest
                    of compute, receive and send
Objective
    minimise  C + T                                     (C alone unless `transfer-bounded`)
Constraints
    monotone    y_(b-1)i <= y_bi
    order       y_b(i+1) <= y_(b-1)i                    every stage holds a block
    memory      sum of bytes_ib x_bi + sum of size_q u_qi + p_i <= capacity_i
    shared      u_qi >= x_bi                            for the keys q of block b
    peak        p_i >= peak_b x_bi
    reach       y_reach_i(b),(i+1) >= y_bi
    compute     C >= sum of work_ib x_bi                (and what the objective adds)
    transfer    T >= sum of recv_ib s_bi + sum of send_ib s_b(i+1)
    cutoff      C + T <= upper
Size
    a binary y for each block of a window, up to (k - 1) |B|; k (|K| + 1) continuous columns where
    memory binds; up to 3 k |B| rows of two columns, k |B| rows `peak`, one `shared` for each block
    that uses a key, and up to four long ones a stage
Source
    ours: assignment in sums over stages, so that branching halves the chain

Forbidden cuts and the spans of variables are inside blocks, fixed cuts bound the reach.  `reach`
follows from memory (and from `upper`) for whole y; it is much the stronger in the relaxation, and
its coefficients of 1 keep answers exact where bytes by the billion meet a solver's tolerance.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from functools import cached_property
from typing import assert_never

import numpy as np

from stagepack.formulations.base import LARGEST_STEPS, InSteps
from stagepack.formulations.pipeline.frame import (
    UNLIMITED,
    Slot,
    StageValues,
    constant_ticks,
    furthest_ends,
    reachable,
    stashed_microbatches,
    transfers_count,
)
from stagepack.formulations.pipeline.model import PipelineModel
from stagepack.formulations.program import Program, Sum, total
from stagepack.instances.arrays import distinct
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.order import device_classes
from stagepack.instances.pipeline.problem import Objective
from stagepack.linear import Array

MOST_REACHES = 8
"""Furthest ends of so many kinds of stages are kept for the next ones."""


class MilpAssignment(InSteps[PipelinePartition, PipelineSolution], PipelineModel):
    """The assignment model as a `Linear`, for a fixed order of devices, all used.

    Only what the windows W_i leave open becomes a variable; elsewhere y is 0, 1 or the y of an
    earlier block.  The model's C and T count from P and Q in steps.  Bytes are rounded down
    to units few enough for the engine: `reach` says exactly what fits.

    Parameters and other attributes are those of :class:`PipelineModel`.
    """

    def build(self) -> None:
        """Build the model, or find out that the ends of the chain do not meet."""
        costs = self.costs
        self._stashes = stashed_microbatches(costs)
        self._class = costs.device_class.tolist()
        self._reaches: dict[tuple[int, int, int], Array] = {}
        self.infeasible = not self._set_windows()
        if not self.infeasible:
            self._set_units()
            self._build_model()

    @staticmethod
    def unsupported(instance: PipelinePartition) -> str:
        """Return why this model cannot express the instance, '' if it can."""
        instead = "use the interval model or CP-SAT"
        if instance.compute_table is not None or instance.memory_table is not None:
            return f"the assignment model adds up costs of layers and cannot use tables; {instead}"
        if instance.reduces:
            return f"the assignment model does not know reductions of tied weights; {instead}"
        if instance.objective in (Objective.LATENCY, Objective.HEADROOM, Objective.MOVES):
            return f"the assignment model knows no objective {instance.objective}; use CP-SAT"
        if instance.fewer_stages:
            return f"the assignment model uses every device; {instead}"
        if instance.free_order and max(device_classes(instance)) > 0:
            return f"the assignment model needs a fixed order of unlike devices; {instead}"
        return ""

    # ------------------------------------------------------------------ what is known beforehand

    def _set_windows(self) -> bool:
        """Find blocks and windows; return whether the ends of the chain meet."""
        costs, k = self.costs, self.costs.k
        self.places = np.flatnonzero(costs.allowed)
        self.blocks = len(self.places) - 1
        slots = [Slot(((self._class[i], self._stash(i)),)) for i in range(k)]
        self.least, self.limits, cuts = reachable(costs, slots, self.upper)
        if cuts is None:
            return False
        self.windows: list[list[int]] = [np.searchsorted(self.places, row).tolist() for row in cuts]
        self.first = [window[0] for window in self.windows]
        self.last = [window[-1] for window in self.windows]
        return True

    def _stash(self, i: int) -> int:
        return min(self._stashes, self.costs.k - i)

    def _set_units(self) -> None:
        """Choose the unit, and the blocks' figures in steps."""
        costs, k = self.costs, self.costs.k
        prefix = costs.prefix[:, self.places]
        recv, send = costs.recv[:, self.places], costs.send[:, self.places]
        if not transfers_count(costs):
            recv, send = np.zeros_like(recv), np.zeros_like(send)
        gcds = [np.gcd.reduce(row, axis=None) for row in (np.diff(prefix, axis=1), recv, send)]
        common = max(1, math.gcd(*map(int, gcds)))
        # C and T are multiples of what all costs have in common, so are their lower bounds.
        compute, transfer = (-(-ticks // common) * common for ticks in self.least)
        self.least = compute, transfer
        rows = [
            sum(
                int(prefix[self._class[i], self.last[j]] - prefix[self._class[i], self.first[j]])
                for j in (i, i + 1)
            )
            for i in range(k)
        ]
        # What C may be above its lower bound counts, too, where the windows leave little choice.
        spans = [
            int(prefix[self._class[i], self.last[i + 1]] - prefix[self._class[i], self.first[i]])
            for i in range(k)
        ]
        rows.append(max(spans) - compute)
        most = max(rows) + int(recv.max()) + int(send.max())
        self.set_unit(common, most, LARGEST_STEPS)
        self._low = [ticks // self.unit for ticks in self.least]
        whole = [row // self.unit for row in (prefix, recv, send)]
        figures = np.diff(whole[0], axis=1), *whole[1:]
        # Of every stage; those of one class are one array.
        self.work, self.recv, self.send = ([rows[c] for c in self._class] for rows in figures)
        self._units = [[rows[c] for c in self._class] for rows in whole]

    def _block_bytes(self) -> None:
        """Sum, or take the largest of, the bytes of each block's layers; collect its keys."""
        instance, begin = self.costs.instance, self.places[:-1]
        columns = list(instance.exclusive.values()) or [np.zeros(instance.n, dtype=np.int64)]
        self._exclusive = np.add.reduceat(np.sum(columns, axis=0), begin)
        self._stashed = np.add.reduceat(instance.stash, begin)
        self._block_peak = np.maximum.reduceat(instance.temporary + instance.carry, begin)
        block = np.searchsorted(self.places, instance.shared.layer, side="right") - 1
        count = max(1, len(instance.shared.names))
        pairs = distinct(block * count + instance.shared.key)
        ends = np.searchsorted(pairs, count * np.arange(self.blocks + 1)).tolist()
        keys = (pairs % count).tolist()
        self._keys: list[list[int]] = [keys[a:b] for a, b in itertools.pairwise(ends)]

    # ------------------------------------------------------------------ variables

    def y(self, b: int, i: int) -> Sum[int] | int:
        """Return y_bi: a variable, or 0 or 1 where the windows leave no choice."""
        if i == self.costs.k:
            return int(b >= self.blocks)
        if b < self.first[i]:
            return 0
        if b >= self.last[i]:
            return 1
        return self.begins[self._stands(b, i), i]

    def _stands(self, b: int, i: int) -> int:
        """Return for which block y_bi stands: the last one up to b at which stage i may begin."""
        return self.windows[i][bisect.bisect_right(self.windows[i], b) - 1]

    def x(self, b: int, i: int) -> Sum[int]:
        """Return x_bi: block b is on stage i."""
        return total((self.y(b, i), -1 * self.y(b, i + 1)))

    def s(self, b: int, i: int) -> Sum[int]:
        """Return s_bi: stage i begins at block b."""
        return total((self.y(b, i), -1 * self.y(b - 1, i) if b else 0))

    def _touched(self, i: int) -> range:
        """Return the blocks that stage i may hold."""
        return range(self.first[i], self.last[i + 1])

    # ------------------------------------------------------------------ the model

    def _build_model(self) -> None:
        self._block_bytes()
        program = self.program = Program[int]()
        stages = range(self.costs.k)
        self._full = [i for i in stages if self._may_fill(i)]
        self.begins = {(b, i): program.variable() for i in stages for b in self.windows[i][:-1]}
        holds = {(q, i) for i in self._full for b in self._touched(i) for q in self._keys[b]}
        self.u = {key: program.variable(integral=False) for key in sorted(holds)}
        self.p = {i: program.variable(upper=LARGEST_STEPS, integral=False) for i in self._full}
        top = LARGEST_STEPS if self.upper is None else max(0, self._spare)
        self.C = program.variable(upper=top, integral=False)
        self.T: Sum[int] = Sum({})
        if self.bounded:
            self.T = program.variable(upper=top, integral=False)
        program.minimise(self.C + self.T)
        self._monotone()
        self._order()
        self._memory()
        self._shared()
        self._peak()
        self._reach()
        self._compute()
        if self.bounded:
            self._transfer()
            if self.upper is not None:
                self._cutoff()
        self.infeasible = program.contradiction
        if not self.infeasible:
            self.model = program.arrays()

    @property
    def _spare(self) -> int:
        """Steps that `upper` leaves above P + Q."""
        assert self.upper is not None
        most = self.upper - constant_ticks(self.costs) + self.loss
        return most // self.unit - (sum(self._low) if self.bounded else self._low[0])

    def _latest_next(self, i: int, first: int, last: int, most_compute: int) -> list[int]:
        """Return the blocks at which stage i + 1 begins at the latest.

        For stages that begin at the blocks from `first` to `last`.
        """
        kind = self._class[i], self._stash(i), most_compute
        if kind not in self._reaches:
            if len(self._reaches) >= MOST_REACHES:
                self._reaches.clear()
            self._reaches[kind] = furthest_ends(self.costs, *kind)
        ends = self._reaches[kind][self.places[first : last + 1]]
        latest: list[int] = (np.searchsorted(self.places, ends, side="right") - 1).tolist()
        return latest

    def _may_fill(self, i: int) -> bool:
        """Whether some stage within the windows could exceed the memory of device i."""
        if self.costs.capacity[self._class[i]] is None:
            return False
        first = self.first[i]
        return self._latest_next(i, first, first, UNLIMITED)[0] < self.last[i + 1]

    def _monotone(self) -> None:
        """y_(b-1)i <= y_bi."""
        for i, window in enumerate(self.windows):
            for before, b in itertools.pairwise(window[:-1]):
                self.program.at_most(self.begins[before, i], self.begins[b, i])

    def _order(self) -> None:
        """y_b(i+1) <= y_(b-1)i."""
        self._rise(
            (self.y(b, i + 1), self.y(b - 1, i))
            for i in range(1, self.costs.k - 1)
            for b in range(self.first[i + 1], self.last[i] + 1)
        )

    def _rise(self, pairs: Iterator[tuple[Sum[int] | int, Sum[int] | int]]) -> None:
        """Let low <= high for pairs (low, high), once each, without those that always hold."""
        seen = set()
        for low, high in pairs:
            if low is high or low == 0 or high == 1 or (id(low), id(high)) in seen:
                continue
            seen.add((id(low), id(high)))
            self.program.at_most(low, high)

    def _memory(self) -> None:
        """Sum of bytes_ib x_bi + sum of size_q u_qi + p_i <= capacity_i."""
        size = self.costs.instance.shared.nbytes
        for i in self._full:
            nbytes = self._bytes(i, self._exclusive + self._stash(i) * self._stashed)
            own = (int(nbytes[b]) * self.x(b, i) for b in self._touched(i) if nbytes[b])
            sizes = self._bytes(i, size)
            keys = (int(sizes[q]) * u for (q, j), u in self.u.items() if j == i)
            capacity = int(self._bytes(i, self._capacity(i)))
            self.program.at_most(total((*own, *keys, self.p[i])), capacity)

    def _capacity(self, i: int) -> int:
        return self.costs.capacity[self._class[i]] or 0

    def _bytes(self, i: int, nbytes: Array | int) -> Array:
        """Return bytes as the memory row of stage i counts them, rounded down."""
        capacity = self._capacity(i)
        unit = capacity // LARGEST_STEPS + 1
        # What exceeds the device by itself need not be told apart.
        return np.minimum(nbytes, capacity + unit) // unit

    def _shared(self) -> None:
        """u_qi >= x_bi."""
        for i in self._full:
            for b in self._touched(i):
                for q in self._keys[b]:
                    self.program.at_most(self.x(b, i), self.u[q, i])

    def _peak(self) -> None:
        """p_i >= peak_b x_bi."""
        for i in self._full:
            peaks = self._bytes(i, self._block_peak)
            for b in self._touched(i):
                if peak := int(peaks[b]):
                    self.program.at_most(peak * self.x(b, i), self.p[i])

    def _reach(self) -> None:
        """y_reach_i(b),(i+1) >= y_bi."""
        self._rise(
            (self.y(b, i), self.y(end, i + 1))
            for i in range(self.costs.k)
            for b, end in enumerate(self._latest_ends(i), start=self.first[i])
        )

    def _latest_ends(self, i: int) -> list[int]:
        """Return the latest ends of stage i from each block at which it may begin, by `upper`."""
        last = min(self.last[i], self.blocks - 1)
        return self._latest_next(i, self.first[i], last, self.limits.compute)

    def _works(self, i: int) -> Sum[int]:
        """Return the work of stage i less `_held`: what it holds when both its ends come last."""
        held = self.last[i]
        return total(
            int(self.work[i][b]) * (self.x(b, i) - int(b >= held)) for b in self._touched(i)
        )

    def _held(self, i: int) -> int:
        """Return, in units, the work that :meth:`_works` leaves out; exact, however large."""
        prefix = self._units[0][i]
        return int(prefix[self.last[i + 1]] - prefix[min(self.last[i], self.last[i + 1])])

    def _recvs(self, i: int) -> Sum[int]:
        places = range(self.first[i], self.last[i] + 1)
        return total(int(self.recv[i][b]) * self.s(b, i) for b in places if i)

    def _sends(self, i: int) -> Sum[int]:
        places, inner = range(self.first[i + 1], self.last[i + 1] + 1), i + 1 < self.costs.k
        return total(int(self.send[i][b]) * self.s(b, i + 1) for b in places if inner)

    def _compute(self) -> None:
        """C >= sum of work_ib x_bi, and what the objective adds."""
        least, at_most = self._low[0], self.program.at_most
        for i in range(self.costs.k):
            works, low = self._works(i), least - self._held(i)
            match self.costs.instance.objective:
                case Objective.SUM:
                    at_most(0, self.C + low - works - self._recvs(i) - self._sends(i))
                case Objective.OVERLAP:
                    at_most(0, self.C + low - works)
                    for row, term in zip(self._units[1:], (self._recvs, self._sends), strict=True):
                        if row[i].max() > least:
                            at_most(0, self.C + least - term(i))
                case (
                    Objective.BOTTLENECK
                    | Objective.TRANSFER_BOUNDED
                    | Objective.LATENCY
                    | Objective.HEADROOM
                    | Objective.MOVES
                ):
                    at_most(0, self.C + low - works)
                case unknown:
                    assert_never(unknown)

    def _transfer(self) -> None:
        """T >= sum of recv_ib s_bi + sum of send_ib s_b(i+1)."""
        low = self._low[1]
        for i in range(self.costs.k):
            self.program.at_most(0, self.T + low - self._recvs(i) - self._sends(i))

    def _cutoff(self) -> None:
        """C + T <= upper, both counted from their lower bounds."""
        self.program.at_most(0, self._spare - self.C - self.T)

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PipelineSolution:
        """Return the solution of values by column."""
        starts = [0] * (self.costs.k + 1)
        starts[-1] = self.blocks
        for i in range(1, self.costs.k):
            chosen = [b for b in self.windows[i][:-1] if values[self.begins[b, i].index] > 0.5]
            starts[i] = chosen[0] if chosen else self.last[i]
        return PipelineSolution.in_order(self.places[starts])

    def hint(self, solution: PipelineSolution) -> Array:
        """Return the value of every column for a solution.

        :class:`ValueError`: it cannot be in the model, since it has another number of stages, is
        cut where none may be, or is worth more than `upper`.
        """
        k, places = self.costs.k, np.array(solution.boundaries)
        starts = np.searchsorted(self.places, places)
        known = len(places) == k + 1 and bool((self.places[starts] == places).all())
        if not known or not all(b in row for b, row in zip(starts, self.windows, strict=True)):
            raise ValueError(f"{solution} is not in the model")
        values = np.zeros(len(self.program.cost))
        for (b, i), y in self.begins.items():
            values[y.index] = starts[i] <= b
        for (q, i), u in self.u.items():
            values[u.index] = any(q in self._keys[b] for b in range(starts[i], starts[i + 1]))
        for i, p in self.p.items():
            peak = self._block_peak[starts[i] : starts[i + 1]].max()
            values[p.index] = self._bytes(i, peak)
        for variable, most, low in zip(
            (self.C, self.T), self.largest(solution), self._low, strict=True
        ):
            if variable.terms:
                values[variable.index] = -(-most // self.unit) - low
        return values

    @cached_property
    def values(self) -> StageValues | None:
        """What C + T can be."""
        return StageValues.of(self.costs, self.limits.compute)

    def ticks(self, steps: int) -> int:
        """Return the ticks of C + T, which count from P + Q in whole steps."""
        low = sum(self._low) if self.bounded else self._low[0]
        return (low + steps) * self.unit - self.loss
