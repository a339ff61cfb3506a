"""MILP of who lies below whom: one binary for every distance that two blocks may keep.

Sets
    B                blocks: buffers with one offset
    M                memories (one, unless the instance gives several to choose from)
    E                pairs of blocks i < j that are alive together
    T_ij             runs [least_t, most_t] of allowed distances o_j - o_i: i above j, in the room
                     that windows and gaps leave, at one offset (where that is allowed), i below j;
                     with several memories also any distance, t = `apart`
    V_i              runs [first_v, last_v] of offsets of block i
    F                pairs of buffers that should not share a bank, with those of the same blocks
                     and sizes taken together
Parameters
    size_i, step_i   units of block i, and what its offset is a multiple of
    rise_si          units that block i holds in section s
    limit_k          end of memory k
    load_s           units in use in section s
    bank             units of a bank
Variables
    q_i              offset of block i in steps; o_i = step_i q_i
    v_ir             block i lies in run r of its offsets (where there are several)
    x_ijt            o_j - o_i lies in run t of T_ij (no variable where there is one run)
    m_ik             block i lies in memory k (where there are several)
    z                peak
    stay_iv          block i keeps the previous offset v of some of its buffers
    f_i, l_ia        bank in which block i begins, in which its buffer of size a ends
    below_e, above_e, c_e   the banks of the first buffer of pair e lie below, above, neither
Objective
    minimise    z                                    peak, fit
                weight sum of count_e c_e + z        bank-conflicts
                sum of bytes_iv (1 - stay_iv)        moves
                sum of cost_ik m_ik                  spill
Constraints
    places      sum of first_v v_ir <= o_i <= sum of last_v v_ir; o_i = step_i q_i
    distances   sum of least_t x_ijt <= o_j - o_i <= sum of most_t x_ijt, sum of x_ijt = 1
    apart       x_ijt <= 2 - m_ik - m_jk for t = `apart` and every memory k
    order       o_j >= o_i + d for blocks i, j that can be exchanged for one another
    stacks      o_j >= sum of rise_si x_ijt over the blocks i of section s, t = `i below j`
    peak        z >= o_i + size_i + sum of rise_sj x_ijt, t = `i below j`; z >= load_s
    memory      sum over k of m_ik = 1; o_i + size_i <= limit_k where m_ik; the blocks of a
                section that lie in memory k fit it
    stay        o_i = v where stay_iv
    banks       bank f_i <= o_i < bank (f_i + 1), o_i + a <= bank (l_ia + 1)
    conflicts   below_e + above_e + c_e = 1; l_ia < f_j where below_e, l_jb < f_i where above_e
    bank loads  of buffers of which every two are in F: z >= all their banks, less those of the
                smaller buffer for each c_e

The constants that binaries switch are the distances that the places of two blocks leave.  Of
binaries that add up to 1, the first is what the others leave.  All variables are integers though
offsets beside whole binaries need not be: HiGHS 1.12 was seen to call wrong answers optimal where
integer and continuous offsets met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.packing.frame import Frame, Interval, Item, too_dense
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.solution import PackingSolution
from stagepack.instances.packing.words import Objective
from stagepack.instances.profile import Array

TOLERANCE = 1e-6
"""Error allowed for in raw bounds, relative to the height: the engine's tolerances."""

LARGEST_HEIGHT = 10**8
"""Units beyond which constants in a solver's tolerances would no longer tell two places apart."""

LARGEST_PAIRS = 200_000
"""Pairs of blocks beyond which the model is refused."""

PAIR, ROW, TERM, LOOK = 4e-5, 1.2e-5, 7e-6, 2e-7
"""Seconds of work to build what the model has for a run of distances of a pair, a short row, a term
of a long one, and to look at what may become one."""

APART = -1
"""The run of distances for two blocks in different memories."""


class _OneOf:
    """Exactly one of several options: a binary for each but the first, which gets the rest."""

    def __init__(self, variables: Any, key: Any, options: Iterable[int]) -> None:
        self.options = list(options)
        key = key if isinstance(key, tuple) else (key,)
        self.binaries = {option: variables[(*key, option)] for option in self.options[1:]}
        self.first = 1 - sum(self.binaries.values())

    def __getitem__(self, option: int) -> Any:
        return self.binaries.get(option, self.first)

    def chosen(self, value: dict[int, float]) -> int:
        """Return the option that values by identity of the variables choose."""
        found = {option: value[id(binary)] for option, binary in self.binaries.items()}
        return max(self.options, key=lambda option: found.get(option, 1 - sum(found.values())))

    def hint(self, chosen: int) -> dict[int, float]:
        """Return the values of the binaries when an option is chosen."""
        return {id(binary): float(option == chosen) for option, binary in self.binaries.items()}


class Milp:
    """The order model as a Pyomo `ConcreteModel`; expresses every instance.

    Parameters
    ----------
    instance : LmemPacking
        The instance.
    upper : int, optional
        Objective value of a known solution: what is worth more may be cut off, nothing else is.
    lower : int, optional
        A known lower bound on the objective value.
    spend : callable, optional
        Called with the seconds that what is about to be built usually takes.

    Attributes
    ----------
    model : pyomo ConcreteModel or None
        None when `infeasible`.
    infeasible : bool
        No solution worth at most `upper` exists: some block has no place, or two have none
        beside one another.

    Raises
    ------
    InputError
        When addresses are too large for floating-point numbers, or the pairs too many.
    """

    def __init__(
        self,
        instance: LmemPacking,
        *,
        upper: int | None = None,
        lower: int | None = None,
        spend: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self.instance, self._spend = instance, spend
        self.frame = frame = Frame(instance, upper=upper, lower=lower)
        self.infeasible = frame.infeasible
        self.model: Any = None
        if self.infeasible:
            return
        if frame.height > LARGEST_HEIGHT:
            raise InputError(
                f"the MILP would need addresses to {frame.height:,} "
                f"(in units of {frame.unit:,} bytes)",
                field="size",
                remedy="round sizes and alignments up to a coarser unit, or use cp-sat",
            )
        self.runs = self._runs()
        self.infeasible = not all(self.runs.values())
        if not self.infeasible:
            self._build_model()

    @staticmethod
    def unsupported(instance: LmemPacking) -> str:
        """Return why the model would be too large, or ''; it expresses every instance."""
        return too_dense(Blocks.of(instance))

    # ------------------------------------------------------------------ what is known beforehand

    def _runs(self) -> dict[tuple[int, int], dict[int, Interval]]:
        """Return T_ij: the allowed runs of distances by their number, `APART` among them."""
        frame = self.frame
        found: dict[tuple[int, int], dict[int, Interval]] = {}
        for i, j in frame.neighbours():
            if len(found) >= LARGEST_PAIRS:
                raise InputError(
                    f"the MILP would need more than {LARGEST_PAIRS:,} pairs of buffers",
                    field="model",
                    remedy="use cp-sat or the exact search",
                )
            found[i, j] = dict(enumerate(frame.distances(i, j)))
            if frame.several:
                found[i, j][APART] = frame.reach(i, j)
            self._spend(LOOK * 10 * len(found[i, j]))
        return found

    def _below(self, i: int, j: int) -> Any:
        """Return a binary (or 0 or 1) that is 1 only if block i lies wholly below block j."""
        key, first = ((i, j), False) if i < j else ((j, i), True)
        runs = self.runs[key]
        kept = [t for t in runs if t != APART]
        if not kept:
            return 0
        t = kept[0] if first else kept[-1]
        # Of all distances in the last run, the least must still clear every pair of pieces.
        least, most = runs[t]
        distance = -most if first else least
        if distance < self._clearance[i, j]:
            return 0
        return self.x[key][t]

    # ------------------------------------------------------------------ the model

    def _build_model(self) -> None:
        import pyomo.environ as pyo

        self._pyo = pyo
        m = self.model = pyo.ConcreteModel()
        self._offsets(m)
        self._distances(m)
        if self.frame.several:
            self._memory(m)
        else:
            self._stacks(m)
        self._order(m)
        match self.instance.objective:
            case Objective.MOVES:
                self._stay(m)
            case Objective.SPILL:
                self._spill(m)
            case Objective.BANK_CONFLICTS:
                self._banks(m)
                self._conflicts(m)
            case Objective.PEAK | Objective.FIT:
                self._minimise(m, m.z)
        self.variables = list(m.component_data_objects(pyo.Var, active=True))

    def _minimise(self, m: Any, value: Any) -> None:
        """Minimise a value in multiples of `gain`, up to `upper`."""
        m.objective = self._pyo.Objective(expr=value)
        # Where nothing is left to decide, value is a number, and no more than `upper`.
        if self.frame.upper is not None and not isinstance(value, int):
            m.cutoff = self._pyo.Constraint(expr=value <= self.frame.upper // self.frame.gain)

    def _offsets(self, m: Any) -> None:
        """First_v v_ir <= o_i <= last_v v_ir, o_i = step_i q_i; z >= o_i + size_i."""
        frame, pyo, places = self.frame, self._pyo, self.frame.places
        blocks, step = range(frame.blocks.b), frame.step.tolist()
        ends = [
            (runs[0][0] // at, runs[-1][1] // at) for runs, at in zip(places, step, strict=True)
        ]
        m.q = pyo.Var(blocks, domain=pyo.Integers, bounds=lambda _, i: ends[i])
        self.o = [step[i] * m.q[i] for i in blocks]
        split = [i for i in blocks if len(places[i]) > 1]
        m.v = pyo.Var([(i, r) for i in split for r in range(1, len(places[i]))], domain=pyo.Binary)
        self.v = {i: _OneOf(m.v, i, range(len(places[i]))) for i in split}
        m.one_place = self._at_most_one(self.v)

        def end(i: int, side: int) -> Any:
            return sum(run[side] * self.v[i][r] for r, run in enumerate(places[i]))

        m.place_low = pyo.Constraint(split, rule=lambda m, i: self.o[i] >= end(i, 0))
        m.place_high = pyo.Constraint(split, rule=lambda m, i: self.o[i] <= end(i, 1))
        if frame.minimises_peak:
            m.z = pyo.Var(domain=pyo.Integers, bounds=(frame.least_peak, frame.height))
            m.peak = pyo.Constraint(blocks, rule=lambda m, i: m.z >= self.o[i] + int(frame.size[i]))

    def _distances(self, m: Any) -> None:
        """Sum of least_t x_ijt <= o_j - o_i <= sum of most_t x_ijt, sum of x_ijt = 1."""
        pyo = self._pyo
        pairs = list(self.runs)
        m.x = pyo.Var(
            [(*pair, t) for pair, runs in self.runs.items() for t in list(runs)[1:]],
            domain=pyo.Binary,
        )
        self.x = {pair: _OneOf(m.x, pair, runs) for pair, runs in self.runs.items()}
        m.one_run = self._at_most_one(self.x)

        def end(pair: tuple[int, int], side: int) -> Any:
            self._spend(PAIR / 2 * len(self.runs[pair]))
            return sum(run[side] * self.x[pair][t] for t, run in self.runs[pair].items())

        m.distance_low = pyo.Constraint(
            pairs, rule=lambda m, i, j: self.o[j] - self.o[i] >= end((i, j), 0)
        )
        m.distance_high = pyo.Constraint(
            pairs, rule=lambda m, i, j: self.o[j] - self.o[i] <= end((i, j), 1)
        )

    def _at_most_one(self, choices: dict[Any, _OneOf]) -> Any:
        """Let the binaries of each choice leave the first option no less than nothing."""
        several = [key for key, choice in choices.items() if len(choice.binaries) > 1]
        return self._pyo.Constraint(
            several, rule=lambda m, *key: choices[key if len(key) > 1 else key[0]].first >= 0
        )

    def _order(self, m: Any) -> None:
        """o_j >= o_i + d for exchangeable blocks (the memory of j no earlier, with several)."""
        m.order = self._pyo.ConstraintList()
        memories = range(len(self.frame.limits))
        for i, j, apart in self.frame.successors():
            if self.frame.several:
                m.order.add(sum(k * (self.m[j][k] - self.m[i][k]) for k in memories) >= 0)
            else:
                m.order.add(self.o[j] - self.o[i] >= apart)

    def _stacks(self, m: Any) -> None:
        """What lies below a block in a section fits below it, what lies above fits under z."""
        frame = self.frame
        shared = {i for pair in frame.shares for i in pair}
        alive: list[list[tuple[int, int, int]]] = [[] for _ in range(frame.blocks.sections)]
        for i, pieces in enumerate(frame.pieces):
            for first, end, low, high in pieces:
                for section in alive[first:end]:
                    section.append((i, low, high))
        self._clearance = {}
        for pair in self.runs:
            for i, j in (pair, pair[::-1]):
                self._spend(LOOK * len(frame.pieces[i]) * len(frame.pieces[j]))
                self._clearance[i, j] = max(
                    high - other_low
                    for first, end, _, high in frame.pieces[i]
                    for other_first, other_end, other_low, _ in frame.pieces[j]
                    if first < other_end and other_first < end
                )
        m.stacks = self._pyo.ConstraintList()
        seen = set()
        for section in alive:
            rows = [(i, high - low) for i, low, high in section if i not in shared]
            for j, low, high in section:
                others = frozenset((i, rise) for i, rise in rows if i != j)
                self._spend(LOOK * len(rows))
                if len(others) < 2 or j in shared or (j, low, high, others) in seen:
                    continue
                seen.add((j, low, high, others))
                self._spend(2 * TERM * len(others))
                below = sum(rise * self._below(i, j) for i, rise in others)
                m.stacks.add(self.o[j] + low - below >= 0)
                if frame.minimises_peak:
                    above = sum(rise * self._below(j, i) for i, rise in others)
                    m.stacks.add(m.z - self.o[j] - high - above >= 0)

    def _memory(self, m: Any) -> None:
        """Sum over k of m_ik = 1; limits, loads and distances in each memory."""
        frame, pyo = self.frame, self._pyo
        blocks, memories = range(frame.blocks.b), range(len(frame.limits))
        m.m = pyo.Var(blocks, memories[1:], domain=pyo.Binary)
        self.m = {i: _OneOf(m.m, i, memories) for i in blocks}
        m.one_memory = self._at_most_one(self.m)
        m.limit = pyo.Constraint(
            blocks,
            rule=lambda m, i: (
                self.o[i] + int(frame.size[i])
                <= sum(frame.limits[k] * self.m[i][k] for k in memories)
            ),
        )
        m.apart = pyo.ConstraintList()
        for (i, j), x in self.x.items():
            self._spend(ROW * len(memories))
            for k in memories if len(memories) > 1 else ():
                m.apart.add(x[APART] + self.m[i][k] + self.m[j][k] <= 2)
        shared = {i for pair in frame.shares for i in pair}
        alive: list[dict[int, int]] = [{} for _ in range(frame.blocks.sections)]
        for i, pieces in enumerate(frame.pieces):
            for first, end, low, high in pieces if i not in shared else ():
                for section in alive[first:end]:
                    section[i] = section.get(i, 0) + high - low
        m.loads = pyo.ConstraintList()
        for section in alive:
            for k in memories:
                if sum(section.values()) > frame.limits[k]:
                    self._spend(TERM * len(section))
                    held = sum(height * self.m[i][k] for i, height in section.items())
                    m.loads.add(held <= frame.limits[k])

    def _spill(self, m: Any) -> None:
        """Minimise the cost of all accesses, in multiples of `gain`."""
        cost = self.frame.spill // self.frame.gain
        self._minimise(
            m, sum(int(cost[i, k]) * one[k] for i, one in self.m.items() for k in one.options)
        )

    def _stay(self, m: Any) -> None:
        """o_i = v where stay_iv; minimise the bytes of the others."""
        frame, pyo = self.frame, self._pyo
        stays = {(i, at): nbytes for i, at, nbytes in frame.stays}
        m.stay = pyo.Var(list(stays), domain=pyo.Binary)

        def low(m: Any, i: int, at: int) -> Any:
            first = frame.places[i][0][0]
            return self.o[i] >= first + (at - first) * m.stay[i, at]

        def high(m: Any, i: int, at: int) -> Any:
            last = frame.places[i][-1][1]
            return self.o[i] <= last - (last - at) * m.stay[i, at]

        m.stay_low = pyo.Constraint(list(stays), rule=low)
        m.stay_high = pyo.Constraint(list(stays), rule=high)
        kept = sum(nbytes // frame.gain * m.stay[key] for key, nbytes in stays.items())
        self._minimise(m, frame.movable // frame.gain - kept)

    def _banks(self, m: Any) -> None:
        """Bank f_i <= o_i < bank (f_i + 1), o_i + a <= bank (l_ia + 1)."""
        frame, pyo, bank = self.frame, self._pyo, self.frame.bank
        starts = sorted({i for i, _ in frame.bank_items})
        most = -(-frame.height // bank)
        m.f = pyo.Var(starts, domain=pyo.Integers, bounds=(0, most))
        m.l = pyo.Var(frame.bank_items, domain=pyo.Integers, bounds=(0, most))
        m.begin_low = pyo.Constraint(starts, rule=lambda m, i: self.o[i] >= bank * m.f[i])
        m.begin_high = pyo.Constraint(
            starts, rule=lambda m, i: self.o[i] + 1 <= bank * (m.f[i] + 1)
        )
        m.end = pyo.Constraint(
            frame.bank_items, rule=lambda m, i, a: self.o[i] + a <= bank * (m.l[i, a] + 1)
        )

    def _conflicts(self, m: Any) -> None:
        """below_e + above_e + c_e = 1, and minimise conflicts and peak."""
        frame, pyo = self.frame, self._pyo
        weight, most = self.instance.conflict_weight, -(-frame.height // frame.bank)
        self._bank_pairs = list(frame.bank_pairs)
        self._spend(10 * ROW * len(self._bank_pairs))
        number = range(len(self._bank_pairs))
        m.below = pyo.Var(number, domain=pyo.Binary)
        m.above = pyo.Var(number, domain=pyo.Binary)
        m.one_way = pyo.Constraint(number, rule=lambda m, e: m.below[e] + m.above[e] <= 1)
        c = [1 - m.below[e] - m.above[e] for e in number]

        def clears(m: Any, one: Item, other: Item, literal: Any) -> Any:
            return m.l[one] + 1 <= m.f[other[0]] + (most + 1) * (1 - literal)

        m.bank_below = pyo.Constraint(
            number, rule=lambda m, e: clears(m, *self._bank_pairs[e], m.below[e])
        )
        m.bank_above = pyo.Constraint(
            number, rule=lambda m, e: clears(m, *self._bank_pairs[e][::-1], m.above[e])
        )
        m.bank_loads = pyo.ConstraintList()
        at = {pair: e for e, pair in enumerate(self._bank_pairs)}
        for saved, total in frame.bank_loads():
            less = sum(units * c[at[pair]] for pair, units in saved.items())
            m.bank_loads.add(m.z + less >= total)
        counts = list(frame.bank_pairs.values())
        conflicts = sum(counts[e] * c[e] for e in number) + frame.certain_conflicts
        self._minimise(m, (weight // frame.gain) * conflicts + (frame.unit // frame.gain) * m.z)

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PackingSolution:
        """Return the solution of values in the order of `variables`.

        Offsets are whole units: the least ones that keep the binaries' choice.
        """
        frame = self.frame
        value = {id(v): float(x) for v, x in zip(self.variables, values, strict=True)}
        memory = None
        if frame.several:
            memory = np.array([choice.chosen(value) for choice in self.m.values()])
        return frame.solution(self._lowest(value), memory)

    def _lowest(self, value: dict[int, float]) -> Array:
        """Return the least offsets on the grid that the binaries allow."""
        frame, m = self.frame, self.model

        low = [places[0][0] for places in frame.places]
        for i, choice in self.v.items():
            low[i] = frame.places[i][choice.chosen(value)][0]
        if self.instance.objective is Objective.MOVES:
            for i, at in m.stay:
                if value[id(m.stay[i, at])] > 0.5:
                    low[i] = max(low[i], at)
        if self.instance.objective is Objective.BANK_CONFLICTS:
            # Within its banks a block conflicts as chosen.
            for i in m.f:
                low[i] = max(low[i], round(value[id(m.f[i])]) * frame.bank)
        apart: list[tuple[int, int, int]] = []
        for (i, j), runs in self.runs.items():
            least, most = runs[self.x[i, j].chosen(value)]
            apart += [(i, j, least), (j, i, -most)]
        low = [-(-at // step) * step for at, step in zip(low, frame.step.tolist(), strict=True)]
        for _ in range(frame.blocks.b + 1):
            before = list(low)
            for i, j, distance in apart:
                step = int(frame.step[j])
                low[j] = max(low[j], -(-(low[i] + distance) // step) * step)
            if low == before:
                break
        return np.array(low, dtype=np.int64)

    def hint(self, solution: PackingSolution) -> Array:
        """Return the value of every variable, in the order of `variables`, for a solution.

        Raises
        ------
        InputError
            When the solution is not in the model: a block lies where it may not, or higher than
            `upper` or an allocation without holes allows.
        """
        frame, m = self.frame, self.model
        offsets, memory = frame.settled(solution)
        at = offsets.tolist()
        value: dict[int, float] = {id(m.q[i]): at[i] // int(frame.step[i]) for i in m.q}
        for i, choice in self.v.items():
            runs = enumerate(frame.places[i])
            value |= choice.hint(next(r for r, (low, last) in runs if low <= at[i] <= last))
        for (i, j), choice in self.x.items():
            found = APART
            if memory is None or memory[i] == memory[j]:
                found = next(
                    t
                    for t, (low, last) in self.runs[i, j].items()
                    if t != APART and low <= at[j] - at[i] <= last
                )
            value |= choice.hint(found)
        if memory is not None:
            for i, choice in self.m.items():
                value |= choice.hint(int(memory[i]))
        if frame.minimises_peak:
            value[id(m.z)] = max(frame.least_peak, int((offsets + frame.size).max()))
        match self.instance.objective:
            case Objective.MOVES:
                value |= {id(m.stay[i, v]): at[i] == v for i, v in m.stay}
            case Objective.BANK_CONFLICTS:
                value |= self._hint_banks(at)
        return np.array([float(value[id(v)]) for v in self.variables])

    def _hint_banks(self, at: list[int]) -> dict[int, float]:
        m, bank = self.model, self.frame.bank
        value: dict[int, float] = {id(m.f[i]): at[i] // bank for i in m.f}
        value |= {id(m.l[i, a]): (at[i] + a - 1) // bank for i, a in m.l}
        for e, ((i, a), (j, b)) in enumerate(self._bank_pairs):
            below = (at[i] + a - 1) // bank < at[j] // bank
            above = (at[j] + b - 1) // bank < at[i] // bank
            value[id(m.below[e])], value[id(m.above[e])] = below, above
        return value

    def lower_bound(self, raw: float, tolerance: float = TOLERANCE) -> int:
        """Return the value that no solution undercuts, from the engine's bound.

        Lowered by the engine's `tolerance` times the constants that binaries are multiplied by,
        once for each block that can lie on another, and rounded up to the next value that the
        objective can have; at most upper + 1.
        """
        if not math.isfinite(raw):
            return self.frame.safe_bound(-math.inf)
        slack = tolerance * (abs(raw) + 2 * self.frame.height * self.frame.blocks.b + 1)
        return self.frame.safe_bound(math.ceil(raw - slack) * self.frame.gain)
