"""MILP of packing: one binary variable for each interval of distances of two blocks.

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
    z                peak; of several memories the sum of theirs, z_k
    stay_iv          block i keeps the previous offset v of some of its buffers
    f_is, l_ias      bank in which what is s above the offset of block i begins, in which its buffer
                     of size a ends
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
    memory      sum over k of m_ik = 1; o_i + size_i <= limit_k where m_ik, and z_k likewise where
                the objective counts it; the blocks of a section that lie in memory k fit it
    stay        o_i = v where stay_iv
    banks       bank f_is <= o_i + s < bank (f_is + 1), o_i + s + a <= bank (l_ias + 1)
    conflicts   below_e + above_e + c_e = 1; l_ias < f_jt where below_e, l_jbt < f_is where above_e
    bank loads  of buffers of which every two are in F: z >= all their banks, less those of the
                smaller buffer for each c_e
Size
    |B| integers and a binary for each pair alive together (one less than its runs of distances, two
    runs without gaps); two rows a pair, one a block, and up to two `stacks` a block and section
Source
    disjunctions of pairs: Manne (Operations Research, 1960); runs, stacks and banks are ours

The constants that binaries switch are the distances that the places of two blocks leave.  Of
binaries that add up to 1, the first is what the others leave.  All variables are integers though
offsets beside whole binaries need not be: HiGHS 1.12 was seen to call wrong answers optimal where
integer and continuous offsets met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, assert_never

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_STEPS, LOOSE
from stagepack.formulations.packing.frame import Interval, Item
from stagepack.formulations.packing.model import PackingModel
from stagepack.formulations.program import Program, Sum, total
from stagepack.formulations.whole import require_costs
from stagepack.heuristics.packing.tuning import TUNING, ModelTuning, PackingTuning
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.problem import Objective
from stagepack.linear import Array

K = TypeVar("K")

LARGEST_HEIGHT = 10**8
"""Units beyond which constants in a solver's tolerances would no longer tell two places apart."""

LARGEST_PAIRS = 200_000
"""Pairs of blocks beyond which the model is refused."""

APART = -1
"""The run of distances for two blocks in different memories."""


class _OneOf:
    """Exactly one of several options: a binary for each but the first, which gets the rest.

    The row that leaves the first option no less than nothing comes later.
    """

    def __init__(self, program: Program[int], options: Iterable[int]) -> None:
        self.options = list(options)
        self.binaries = {option: program.variable() for option in self.options[1:]}
        self.first = 1 - total(self.binaries.values())

    def __getitem__(self, option: int) -> Sum[int]:
        return self.binaries.get(option, self.first)

    def of(self, worth: Mapping[int, int] | Sequence[int]) -> Sum[int]:
        """Return what the chosen option is worth."""
        return total(worth[option] * self[option] for option in self.options)

    def among(self, option: int) -> Sum[int] | int:
        """Return a sum that is 1 only if an option is chosen, else 0; 0 for what is none."""
        return self[option] if option in self.options else 0

    def chosen(self, values: Array) -> int:
        """Return the option that values by column choose."""
        return max(self.options, key=lambda option: self[option].at(values))

    def hint(self, values: Array, chosen: int) -> None:
        """Let the binaries choose an option."""
        for option, binary in self.binaries.items():
            values[binary.index] = option == chosen


class Milp(PackingModel):
    """The order model as a `Linear`; expresses every instance, without penalties."""

    # With 1e-9 HiGHS 1.12 called 24 of 125 random packings infeasible or a worse peak optimal, 1.16
    # 5 of 183; with its own tolerance neither of them one of 308.
    parameters = MappingProxyType({"tolerance": LOOSE})

    @staticmethod
    def unsupported(instance: LmemPacking) -> str:
        """Return what the model does not express, or why it would be too large, or ''."""
        if instance.objective is Objective.PENALTIES:
            return "knows nothing of penalties; use cp-sat"
        if any(memory.reserved or memory.alignment > 1 for memory in instance.memories):
            return "takes no memories with reserved ranges or alignments of their own; use cp-sat"
        return PackingModel.unsupported(instance)

    @staticmethod
    def bank_pair(tuning: ModelTuning) -> float:
        """Return the seconds of work of two buffers that should not share a bank."""
        return 10 * tuning.milp_row

    @classmethod
    def building(cls, instance: LmemPacking, tuning: PackingTuning = TUNING) -> float:
        """Return the seconds of work that building the model takes at least, about."""
        blocks = Blocks.of(instance)
        alive = blocks.pairs if blocks.linear and blocks.rigid else 0  # else some count twice
        return super().building(instance, tuning) + tuning.models.milp_pair * alive

    def build(self) -> None:
        """Build the model, unless two blocks have no place beside one another."""
        frame = self.frame
        if frame.height > LARGEST_HEIGHT:
            raise InputError(
                f"the MILP would need addresses to {frame.height:,} "
                f"(in units of {frame.unit:,} bytes)",
                field="size",
                remedy="round sizes and alignments up to a coarser unit, or use cp-sat",
            )
        # From there on the tolerance of a binary is worth half a unit: blocks may overlap by one.
        self.coarse = frame.height >= LARGEST_STEPS
        self.runs = self._runs()
        self.infeasible = not all(self.runs.values())
        if not self.infeasible:
            self._build_model()

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
            if len({*frame.homes(i), *frame.homes(j)}) > 1:
                found[i, j][APART] = frame.reach(i, j)
            self._spend(self.tuning.milp_compared * 10 * len(found[i, j]))
        return found

    def _below(self, i: int, j: int) -> Sum[int] | int:
        """Return a sum that is 1 only if block i lies wholly below block j, else 0."""
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
        """Build columns and rows, in the order of the head of this module."""
        self.program = Program[int]()
        self._offsets()
        self._distances()
        if self.frame.several:
            self._memory()
        else:
            self._stacks()
        self._order()
        match self.instance.objective:
            case Objective.MOVES:
                self._stay()
            case Objective.SPILL:
                self._spill()
            case Objective.BANK_CONFLICTS:
                self._banks()
                self._conflicts()
            case Objective.PEAK | Objective.FIT:
                self._minimise(self.z)
            case Objective.PENALTIES:
                raise InputError(self.unsupported(self.instance), field="objective")
            case unknown:
                assert_never(unknown)
        self.infeasible = self.program.contradiction
        if not self.infeasible:
            require_costs(self.program, 1)
            self.model = self.program.arrays()

    def _minimise(self, value: Sum[int]) -> None:
        """Minimise a value in multiples of `gain`, up to `upper`."""
        self.program.minimise(value)
        # Where nothing is left to decide, value is a number, and no more than `upper`.
        if self.frame.upper is not None and value.terms:
            self.program.at_most(value, self.frame.upper // self.frame.gain)

    def _choices(self, options: Mapping[K, Iterable[int]]) -> dict[K, _OneOf]:
        """Return a choice for each key: first all binaries, then the rows that tie them."""
        choices = {key: _OneOf(self.program, some) for key, some in options.items()}
        for choice in choices.values():
            if len(choice.binaries) > 1:
                self.program.at_most(0, choice.first)
        return choices

    def _offsets(self) -> None:
        """First_v v_ir <= o_i <= last_v v_ir, o_i = step_i q_i; z >= o_i + size_i."""
        frame, program, places = self.frame, self.program, self.frame.places
        self.q, self.o = [], []
        for runs, step in zip(places, frame.step.tolist(), strict=True):
            q = program.variable(lower=runs[0][0] // step, upper=runs[-1][1] // step)
            self.q.append(q)
            self.o.append(step * q)
        split = [i for i, runs in enumerate(places) if len(runs) > 1]
        self.v = self._choices({i: range(len(places[i])) for i in split})
        for i in split:
            program.at_most(self.v[i].of([first for first, _ in places[i]]), self.o[i])
        for i in split:
            program.at_most(self.o[i], self.v[i].of([last for _, last in places[i]]))
        if frame.minimises_peak and not frame.several:
            self.z = program.variable(lower=frame.least_peak, upper=frame.height)
            for o, size in zip(self.o, frame.size.tolist(), strict=True):
                program.at_most(o + size, self.z)

    def _distances(self) -> None:
        """Sum of least_t x_ijt <= o_j - o_i <= sum of most_t x_ijt, sum of x_ijt = 1."""
        self.x = self._choices(self.runs)
        for side in (0, 1):
            for (i, j), runs in self.runs.items():
                self._spend(self.tuning.milp_pair / 2 * len(runs))
                distance = self.o[j] - self.o[i]
                end = self.x[i, j].of({t: run[side] for t, run in runs.items()})
                self.program.at_most(*((distance, end) if side else (end, distance)))

    def _order(self) -> None:
        """o_j >= o_i + d for exchangeable blocks (the memory of j no earlier, with several)."""
        memories = range(len(self.frame.limits))
        for i, j, apart in self.frame.successors():
            if self.frame.several:
                self.program.at_most(0, self.m[j].of(memories) - self.m[i].of(memories))
            else:
                self.program.at_most(apart, self.o[j] - self.o[i])

    def _stacks(self) -> None:
        """What lies below a block in a section fits below it, what lies above fits under z."""
        frame, program = self.frame, self.program
        shared = {i for pair in frame.shares for i in pair}
        self._clearance = {}
        for pair in self.runs:
            for i, j in (pair, pair[::-1]):
                self._spend(self.tuning.milp_compared * len(frame.pieces[i]) * len(frame.pieces[j]))
                self._clearance[i, j] = max(
                    high - other_low
                    for first, end, _, high in frame.pieces[i]
                    for other_first, other_end, other_low, _ in frame.pieces[j]
                    if first < other_end and other_first < end
                )
        seen = set()
        for section in frame.alive:
            rows = [(i, high - low) for i, low, high in section if i not in shared]
            for j, low, high in section:
                others = frozenset((i, rise) for i, rise in rows if i != j)
                self._spend(self.tuning.milp_compared * len(rows))
                if len(others) < 2 or j in shared or (j, low, high, others) in seen:
                    continue
                seen.add((j, low, high, others))
                self._spend(2 * self.tuning.milp_term * len(others))
                below = total(rise * self._below(i, j) for i, rise in others)
                program.at_most(0, self.o[j] + low - below)
                if frame.minimises_peak:
                    above = total(rise * self._below(j, i) for i, rise in others)
                    program.at_most(0, self.z - self.o[j] - high - above)

    def _memory(self) -> None:
        """Sum over k of m_ik = 1; limits, loads and distances in each memory."""
        frame, program = self.frame, self.program
        blocks, memories = range(frame.blocks.b), range(len(frame.limits))
        self.m = self._choices({i: frame.homes(i) for i in blocks})
        for i in blocks:
            program.at_most(self.o[i] + int(frame.size[i]), self.m[i].of(frame.limits))
        for (i, j), x in self.x.items():
            self._spend(self.tuning.milp_row * len(memories))
            for k in frame.homes(i) if APART in self.runs[i, j] else ():
                if k in self.m[j].options:
                    program.at_most(x[APART] + self.m[i][k] + self.m[j][k], 2)
        self.peaks = [program.variable(upper=end) for end in frame.limits if frame.minimises_peak]
        if frame.minimises_peak:
            self.z = total(self.peaks)
            program.at_most(frame.least_peak, self.z)
        for k, z in enumerate(self.peaks):
            for i in blocks:
                size = int(frame.size[i])
                if k in self.m[i].options:
                    elsewhere = frame.height * (1 - self.m[i][k])
                    self._spend(self.tuning.milp_row)
                    program.at_most(self.o[i] + size, z + elsewhere)
        shared = {i for pair in frame.shares for i in pair}
        for alive in frame.alive:
            section: dict[int, int] = {}
            for i, low, high in alive:
                if i not in shared:
                    section[i] = section.get(i, 0) + high - low
            for k in memories:
                held = total(height * self.m[i].among(k) for i, height in section.items())
                self._spend(self.tuning.milp_term * len(section))
                if self.peaks:
                    program.at_most(held, self.peaks[k])
                elif sum(section.values()) > frame.limits[k]:
                    program.at_most(held, frame.limits[k])

    def _spill(self) -> None:
        """Minimise the cost of all accesses, in multiples of `gain`."""
        cost = (self.frame.spill // self.frame.gain).tolist()
        self._minimise(total(one.of(cost[i]) for i, one in self.m.items()))

    def _stay(self) -> None:
        """o_i = v where stay_iv; minimise the bytes of the others."""
        frame, program = self.frame, self.program
        self.stay = {(i, at): program.variable() for i, at, _ in frame.stays}
        for (i, at), stay in self.stay.items():
            first = frame.places[i][0][0]
            program.at_most(first + (at - first) * stay, self.o[i])
        for (i, at), stay in self.stay.items():
            last = frame.places[i][-1][1]
            program.at_most(self.o[i], last - (last - at) * stay)
        kept = total(nbytes // frame.gain * self.stay[i, at] for i, at, nbytes in frame.stays)
        self._minimise(frame.movable // frame.gain - kept)

    def _banks(self) -> None:
        """Bank f_is <= o_i + s < bank (f_is + 1), o_i + s + a <= bank (l_ias + 1)."""
        frame, program, bank = self.frame, self.program, self.frame.bank
        most = -(-frame.height // bank)
        self.f = {begin: program.variable(upper=most) for begin in frame.bank_begins}
        self.l = {item: program.variable(upper=most) for item in frame.bank_items}
        for (i, above), f in self.f.items():
            program.at_most(bank * f, self.o[i] + above)
        for (i, above), f in self.f.items():
            program.at_most(self.o[i] + above + 1, bank * (f + 1))
        for (i, size, above), last in self.l.items():
            program.at_most(self.o[i] + above + size, bank * (last + 1))

    def _conflicts(self) -> None:
        """below_e + above_e + c_e = 1, and minimise conflicts and peak."""
        frame, program = self.frame, self.program
        weight, most = self.instance.conflict_weight, -(-frame.height // frame.bank)
        pairs = list(frame.bank_pairs)
        self._spend(self.bank_pair(self.tuning) * len(pairs))
        self.below = {pair: program.variable() for pair in pairs}
        self.above = {pair: program.variable() for pair in pairs}
        c = {pair: 1 - self.below[pair] - self.above[pair] for pair in pairs}
        for pair in pairs:
            program.at_most(self.below[pair] + self.above[pair], 1)
        for one, other in pairs:
            self._clears(one, other, self.below[one, other], most)
        for one, other in pairs:
            self._clears(other, one, self.above[one, other], most)
        for saved, load in frame.bank_loads():
            less = total(units * c[pair] for pair, units in saved.items())
            program.at_most(load, self.z + less)
        conflicts = total(count * c[pair] for pair, count in frame.bank_pairs.items())
        conflicts += frame.certain_conflicts
        self._minimise(weight // frame.gain * conflicts + frame.unit // frame.gain * self.z)

    def _clears(self, one: Item, other: Item, literal: Sum[int], most: int) -> None:
        """Let the banks of an item lie below those of another where `literal`."""
        begin = self.f[other[0], other[2]]
        self.program.at_most(self.l[one] + 1, begin + (most + 1) * (1 - literal))

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PackingSolution:
        """Return the solution of values by column.

        Offsets are whole units: the least ones that keep the binaries' choice.
        """
        frame = self.frame
        memory = None
        if frame.several:
            memory = np.array([choice.chosen(values) for choice in self.m.values()])
        return frame.solution(self._lowest(values), memory)

    def _lowest(self, values: Array) -> Array:
        """Return the least offsets on the grid that the binaries allow."""
        frame = self.frame
        low = [places[0][0] for places in frame.places]
        for i, choice in self.v.items():
            low[i] = frame.places[i][choice.chosen(values)][0]
        if self.instance.objective is Objective.MOVES:
            for (i, at), stay in self.stay.items():
                if values[stay.index] > 0.5:
                    low[i] = max(low[i], at)
        if self.instance.objective is Objective.BANK_CONFLICTS:
            # Within its banks a block conflicts as chosen.
            for (i, above), f in self.f.items():
                low[i] = max(low[i], round(values[f.index]) * frame.bank - above)
        apart: list[tuple[int, int, int]] = []
        for (i, j), runs in self.runs.items():
            least, most = runs[self.x[i, j].chosen(values)]
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
        """Return the value of every column for a solution.

        Raises `InputError` when it is not in the model: a block lies where it may not, or higher
        than `upper` or an allocation without holes allows.
        """
        frame = self.frame
        offsets, memory = frame.settled(solution)
        at = offsets.tolist()
        values = np.zeros(len(self.program.cost))
        values[[q.index for q in self.q]] = offsets // frame.step
        for i, choice in self.v.items():
            choice.hint(values, _run_of(at[i], dict(enumerate(frame.places[i]))))
        for (i, j), choice in self.x.items():
            together = memory is None or memory[i] == memory[j]
            runs = {t: run for t, run in self.runs[i, j].items() if t != APART}
            choice.hint(values, _run_of(at[j] - at[i], runs) if together else APART)
        if memory is not None:
            for i, choice in self.m.items():
                choice.hint(values, int(memory[i]))
        tops = offsets + frame.size
        if frame.minimises_peak and memory is None:
            values[self.z.index] = max(frame.least_peak, int(tops.max()))
        elif frame.minimises_peak:
            for k, z in enumerate(self.peaks):
                values[z.index] = tops[memory == k].max(initial=0)
        match self.instance.objective:
            case Objective.MOVES:
                for (i, v), stay in self.stay.items():
                    values[stay.index] = at[i] == v
            case Objective.BANK_CONFLICTS:
                self._hint_banks(values, at)
            case Objective.SPILL | Objective.PEAK | Objective.FIT | Objective.PENALTIES:
                pass
            case unknown:
                assert_never(unknown)
        return values

    def _hint_banks(self, values: Array, at: list[int]) -> None:
        """Enter the values of what speaks of banks."""
        bank = self.frame.bank
        for (i, s), f in self.f.items():
            values[f.index] = (at[i] + s) // bank
        for (i, a, s), last in self.l.items():
            values[last.index] = (at[i] + s + a - 1) // bank
        for one, other in self.below:
            for under, over, literals in ((one, other, self.below), (other, one, self.above)):
                (i, a, s), (j, _, t) = under, over
                clear = (at[i] + s + a - 1) // bank < (at[j] + t) // bank
                values[literals[one, other].index] = clear

    def slack(self, raw: float, tolerance: float) -> float:
        """Return the engine's tolerance times the constants that binaries are multiplied by.

        Once for each block that can lie on another, and the largest cost, but no less than half a
        unit, which costs nothing.
        """
        largest = max(map(abs, self.program.cost), default=0)
        stacked = 2 * self.frame.height * self.frame.blocks.b
        return max(0.5, tolerance * (abs(raw) + stacked + largest + 1))


def _run_of(place: int, runs: dict[int, Interval]) -> int:
    """Return which run a place lies in."""
    return next(number for number, (low, last) in runs.items() if low <= place <= last)
