"""CP-SAT: one integer variable a block, rectangles in time and address that must not overlap.

Sets
    B                blocks: buffers with one offset
    M                memories (one, unless the instance gives several to choose from)
    P_i              pieces of block i: in the sections [first, end) it occupies the units
                     [o_i + low, o_i + high)
    S                blocks such that every pair that may share an offset has one of them
    E                pairs of buffers that should not share a bank, with those of the same blocks,
                     sizes and heights above their offsets taken together
Parameters
    size_i, step_i   units of block i, and what its offset is a multiple of
    D_ij             allowed distances o_j - o_i of blocks i and j that are alive together
    limit_k          end of memory k
    load_s           units in use in section s
    bank             units of a bank
Variables
    q_i              offset of block i in steps, within its places; o_i = step_i q_i
    z                peak (where the objective counts it), the sum of z_k where there are several
    z_k              peak of memory k
    m_ik             block i lies in memory k (where there are several)
    x_ijt            o_j - o_i lies in run t of D_ij (for i or j in S)
    stay_iv          block i keeps the previous offset v of some of its buffers
    f_is, r_is       bank in which a buffer s above the offset of block i begins, and where within
                     it; o_i + s = bank f_is + r_is
    g_ias            such a buffer of size a takes one bank more than a begin at a bank's first
                     unit would; it ends in bank l_ias = f_is + (a - 1) div bank + g_ias
    below_e, above_e, c_e   the banks of the first buffer of pair e lie below, above, neither
    p_ia             such a buffer shares no bank with a larger one of its pairs
    below_p, above_p, share_p   the first block of penalised pair p lies below, above, neither
Objective
    minimise    z                                    peak, fit
                weight sum of count_e c_e + z        bank-conflicts
                sum of bytes_iv (1 - stay_iv)        moves
                sum of cost_ik m_ik                  spill
                sum of cost_p share_p                penalties
Constraints
    apart       the rectangles of P_i, i not in S, do not overlap (in each memory)
    pairs       o_j - o_i in run t of D_ij where x_ijt; one x_ijt holds (where i and j lie in one
                memory)
    peak        z >= o_i + size_i, z >= load_s; z_k >= o_i + size_i where m_ik, and z_k >= the sum
                over the blocks alive in section s of size_i m_ik
    memory      sum over k of m_ik = 1; o_i in V_ik and a multiple of step_ik where m_ik, and the
                sum over the blocks alive in section s of size_i m_ik <= limit_k
    order       o_j >= o_i + d for blocks i, j that can be exchanged for one another
    stay        o_i = v where stay_iv
    banks       g_ias where r_is + (a - 1) mod bank >= bank
    conflicts   below_e + above_e + c_e = 1; l_ias < f_jt where below_e, l_jbt < f_is where above_e
    cliques     of buffers of which every two are in E, those with p_ia have banks of their own;
                z >= all their banks, less those of the smaller buffer for each c_e
    share       o_j >= o_i + high_i - low_j where below_p, and so on; one of below_p, above_p and
                share_p holds (where i and j lie in one memory)
Size
    |B| + 1 variables, two intervals a piece, |B| rows for the peak and one constraint `apart` for
    each run of sections that pieces bridge (all times |M| with several memories); three variables
    and two rows for each pair of E
Source
    ours, on CP-SAT's rectangles that must not overlap
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_FACTOR, LARGEST_VALUE
from stagepack.formulations.packing.frame import Begin, Frame, Interval, Item, smaller_item
from stagepack.formulations.packing.model import PackingModel
from stagepack.heuristics.packing.tuning import TUNING, ModelTuning, PackingTuning
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.problem import Objective
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import Domain, IntVar

LARGEST_AREA = 2**62
"""Sections times height: CP-SAT adds areas up in 64 bits."""


class CpSat(PackingModel):
    """The rectangle model as a `cp_model.CpModel`; expresses every instance."""

    @staticmethod
    def row(tuning: ModelTuning) -> float:
        """Return the seconds of work that a block takes in any case."""
        return tuning.cp_sat_row

    @staticmethod
    def bank_pair(tuning: ModelTuning) -> float:
        """Return the seconds of work of two buffers that should not share a bank."""
        return tuning.cp_sat_bank_pair

    @classmethod
    def building(cls, instance: LmemPacking, tuning: PackingTuning = TUNING) -> float:
        """Return the seconds of work that building the model takes at least, about."""
        sides = len(Blocks.of(instance).first) * max(1, len(instance.memories))
        return super().building(instance, tuning) + 2 * tuning.models.cp_sat_row * sides

    def build(self) -> None:
        """Build the model."""
        self.parameters: dict[str, object] = {}
        self._require_exact()
        self._build_model()

    def _require_exact(self) -> None:
        """Refuse figures beyond what CP-SAT computes exactly."""
        frame, instance = self.frame, self.instance
        largest, chosen = frame.height, frame.several or bool(frame.sharing)
        match instance.objective:
            case Objective.BANK_CONFLICTS:
                assert instance.banks is not None
                pairs, chosen = len(instance.banks.pairs), True
                largest = max(largest, (pairs + 1) * instance.conflict_weight // frame.gain)
            case Objective.MOVES:
                chosen = True
                largest = max(largest, frame.movable // frame.gain)
            case Objective.PENALTIES:
                chosen = True
                largest = max(largest, int(frame.pairs.cost.sum()) // frame.gain)
            case Objective.SPILL:
                largest = max(largest, int(frame.spill.max(axis=1).sum()) // frame.gain)
            case Objective.PEAK | Objective.FIT:
                pass
            case unknown:
                assert_never(unknown)
        area = largest * max(1, frame.blocks.sections)
        # Rows that hold only if something was chosen have addresses as factors.
        self._wide = chosen and largest >= LARGEST_FACTOR
        if largest >= LARGEST_VALUE or area >= LARGEST_AREA:
            raise InputError(
                f"the CP-SAT model would count to {largest:,} (in units of {frame.unit:,} bytes), "
                "beyond what it computes exactly",
                field="size",
                remedy="round sizes and alignments up to a coarser unit",
            )

    # ------------------------------------------------------------------ the model

    def _build_model(self) -> None:
        """Build variables and constraints, in the order of the head of this module."""
        from ortools.sat.python import cp_model

        self._cp = cp_model
        self.model = cp_model.CpModel()
        self._offsets()
        self._memories()
        self._apart()
        self._pairs()
        self._order()
        self.z: Any = None
        match self.instance.objective:
            case Objective.MOVES:
                self._stays()
            case Objective.SPILL:
                self._spill()
            case Objective.PENALTIES:
                self._share()
            case Objective.BANK_CONFLICTS:
                self._peak()
                self._banks()
                self._conflicts()
            case Objective.PEAK | Objective.FIT:
                self._peak()
                self.model.minimize(self.z)
            case unknown:
                assert_never(unknown)
        rows = len(self.model.proto.constraints)
        if (
            self._wide
            or self.frame.blocks.pairs > self.tuning.presolved_pairs
            or rows > self.tuning.presolved_rows
        ):
            self.parameters["cp_model_presolve"] = False

    def _domain(self, runs: list[Interval]) -> Domain:
        """Return intervals as a domain."""
        return self._cp.Domain.from_intervals([list(run) for run in runs])

    def _offsets(self) -> None:
        """o_i = step_i q_i within the places of block i."""
        frame, model = self.frame, self.model
        self.q, self.o = [], []
        self.v: list[tuple[int, int, int, int, IntVar]] = []
        self.multiples: list[tuple[int, int, int, IntVar]] = []
        for i, places in enumerate(frame.places):
            step = int(frame.step[i])
            runs = [(first // step, last // step) for first, last in places]
            self._spend(self.tuning.cp_sat_row + self.tuning.cp_sat_term * len(runs))
            q = model.new_int_var_from_domain(self._domain(runs), f"q{i}")
            self.q.append(q)
            self.o.append(step * q)

    def _memories(self) -> None:
        """Sum over k of m_ik = 1; o_i in V_ik where m_ik; loads within limit_k."""
        frame, model = self.frame, self.model
        self.m: list[list[IntVar]] = []
        if not frame.several:
            return
        for i in range(frame.blocks.b):
            self._spend(2 * self.tuning.cp_sat_row * len(frame.limits))
            row = [model.new_bool_var(f"m{i},{k}") for k in range(len(frame.limits))]
            self.m.append(row)
            model.add_exactly_one(row)
            for k, m in enumerate(row):
                self._home(i, k, m)
        for alive in frame.alive:
            section = [(i, high - low) for i, low, high in alive if i not in frame.sharing]
            total = sum(height for _, height in section)
            for k, limit in enumerate(frame.limits):
                if total > limit:
                    self._spend(self.tuning.cp_sat_row + self.tuning.cp_sat_term * len(section))
                    model.add(sum(height * self.m[i][k] for i, height in section) <= limit)

    def _home(self, i: int, k: int, m: IntVar) -> None:
        """o_i lies in a run of V_ik and is a multiple of step_ik where m = m_ik holds."""
        frame, model = self.frame, self.model
        runs, step = frame.places_in[k].get(i), int(frame.step[i])
        if runs is None:
            model.add(m == 0)
            return
        if runs != frame.places[i]:
            # Not as one constraint with holes: see `_pairs`.
            chosen = [m]
            if len(runs) > 1:
                chosen = [model.new_bool_var(f"v{i},{k},{first}") for first, _ in runs]
                model.add_bool_or(~m, *chosen)
                self.v += [(i, k, *run, v) for run, v in zip(runs, chosen, strict=True)]
            for (first, last), v in zip(runs, chosen, strict=True):
                model.add(self.q[i] >= first // step).only_enforce_if(v)
                model.add(self.q[i] <= last // step).only_enforce_if(v)
        times = frame.step_in[k][i] // step
        if times > 1:
            most = frame.places[i][-1][1] // (step * times)
            r = model.new_int_var(0, most, f"r{i},{k}")
            model.add(self.q[i] == times * r).only_enforce_if(m)
            self.multiples.append((i, k, times, r))

    def _apart(self) -> None:
        """Rectangles of the blocks outside S do not overlap, in each memory."""
        frame = self.frame
        alone = [i for i in range(frame.blocks.b) if i not in frame.sharing]
        for part in _parts(frame, alone):
            for k in range(len(frame.limits)):
                self._apart_in(k, part)

    def _apart_in(self, k: int, part: list[tuple[int, int, int, int, int]]) -> None:
        """No two rectangles of a memory overlap, of these (block, first, end, low, high)."""
        model = self.model
        sides = []
        for i, first, end, low, high in part:
            self._spend(2 * self.tuning.cp_sat_row)
            height, start = high - low, self.o[i] + low
            if self.m:
                side = model.new_optional_fixed_size_interval_var(
                    start, height, self.m[i][k], f"y{i},{first},{k}"
                )
            else:
                side = model.new_fixed_size_interval_var(start, height, f"y{i},{first}")
            sides.append((model.new_fixed_size_interval_var(first, end - first, ""), side))
        if len({(first, end) for _, first, end, _, _ in part}) == 1:
            model.add_no_overlap([side for _, side in sides])
            return
        model.add_no_overlap_2d([time for time, _ in sides], [side for _, side in sides])

    def _pairs(self) -> None:
        """Let o_j - o_i lie in the run of D_ij that x_ijt chooses, within one memory."""
        frame, model = self.frame, self.model
        self.x: dict[tuple[int, int], list[tuple[Interval, IntVar]]] = {}
        for i, j in frame.neighbours() if frame.sharing else ():
            if i not in frame.sharing and j not in frame.sharing:
                continue
            # As one linear constraint with holes in its domain, CP-SAT 9.15 was seen to
            # lose solutions in presolve.
            self.x[i, j] = []
            for run in frame.distances(i, j):
                self._spend(3 * self.tuning.cp_sat_row)
                x = model.new_bool_var(f"x{i},{j},{run[0]}")
                model.add(self.o[j] - self.o[i] >= run[0]).only_enforce_if(x)
                model.add(self.o[j] - self.o[i] <= run[1]).only_enforce_if(x)
                self.x[i, j].append((run, x))
            runs = [x for _, x in self.x[i, j]]
            if not self.m:
                model.add_exactly_one(runs)
                continue
            for one, other in zip(self.m[i], self.m[j], strict=True):
                model.add_bool_or(~one, ~other, *runs)

    def _order(self) -> None:
        """o_j >= o_i + d for exchangeable blocks (the memory of j no earlier, with several)."""
        for i, j, apart in self.frame.successors():
            self._spend(
                self.tuning.cp_sat_row + 2 * self.tuning.cp_sat_term * len(self.frame.limits)
            )
            if self.m:
                number = [sum(k * m for k, m in enumerate(self.m[at])) for at in (i, j)]
                self.model.add(number[0] <= number[1])
            else:
                self.model.add(self.o[j] - self.o[i] >= apart)

    def _peak(self) -> None:
        """Let z >= o_i + size_i, z >= load_s; of several memories, the sum of such z_k."""
        frame, model = self.frame, self.model
        self.z = model.new_int_var(frame.least_peak, frame.highest, "z")
        tops = [self.o[i] + int(size) for i, size in enumerate(frame.size)]
        if not frame.several:
            for top in tops:
                self._spend(self.tuning.cp_sat_row)
                model.add(self.z >= top)
            return
        self.peaks = [model.new_int_var(0, end, f"z{k}") for k, end in enumerate(frame.limits)]
        model.add(self.z == sum(self.peaks))
        for k, z in enumerate(self.peaks):
            for top, row in zip(tops, self.m, strict=True):
                self._spend(self.tuning.cp_sat_row)
                model.add(z >= top).only_enforce_if(row[k])
            for alive in frame.alive:
                section = [(i, high - low) for i, low, high in alive if i not in frame.sharing]
                self._spend(self.tuning.cp_sat_row + self.tuning.cp_sat_term * len(section))
                model.add(z >= sum(height * self.m[i][k] for i, height in section))

    def _minimise(self, weights: list[int], variables: list[IntVar], constant: int) -> None:
        """Minimise a sum in multiples of `gain`, between `least` and `upper`."""
        frame = self.frame
        weights = [weight // frame.gain for weight in weights]
        total = self._cp.LinearExpr.weighted_sum(variables, weights) + constant // frame.gain
        self.model.minimize(total)
        if frame.upper is not None:
            self.model.add(total <= frame.upper // frame.gain)
        if frame.least > 0:
            self.model.add(total >= frame.least // frame.gain)

    def _stays(self) -> None:
        """o_i = v where stay_iv; minimise the bytes of the others."""
        frame, model = self.frame, self.model
        self.stay = [model.new_bool_var(f"stay{i},{at}") for i, at, _ in frame.stays]
        self._spend(2 * self.tuning.cp_sat_row * len(frame.stays))
        for (i, at, _), stay in zip(frame.stays, self.stay, strict=True):
            model.add(self.o[i] == at).only_enforce_if(stay)
        self._minimise([-nbytes for _, _, nbytes in frame.stays], self.stay, frame.movable)

    def _spill(self) -> None:
        """Minimise the cost of all accesses."""
        self._minimise(self.frame.spill.ravel().tolist(), [m for row in self.m for m in row], 0)

    def _share(self) -> None:
        """Of below_p, above_p and share_p one holds; minimise the cost of those that share."""
        frame, model, pairs = self.frame, self.model, self.frame.pairs
        low, high = (pairs_of // frame.unit for pairs_of in (pairs.low, pairs.high))
        self.share: list[tuple[IntVar, IntVar, IntVar]] = []
        for p, (i, j) in enumerate(pairs.member.tolist()):
            self._spend(self.tuning.cp_sat_bank_pair)
            below, above, share = (model.new_bool_var(f"{name}{p}") for name in ("b", "a", "s"))
            if self.m:
                for one, other in zip(self.m[i], self.m[j], strict=True):
                    model.add_bool_or(~one, ~other, below, above, share)
            else:
                model.add_exactly_one(below, above, share)
            ends = self.o[i] + int(high[p, 0]), self.o[j] + int(high[p, 1])
            model.add(ends[0] <= self.o[j] + int(low[p, 1])).only_enforce_if(below)
            model.add(ends[1] <= self.o[i] + int(low[p, 0])).only_enforce_if(above)
            self.share.append((below, above, share))
        shares = [share for _, _, share in self.share]
        self._minimise(pairs.cost.tolist(), shares, pairs.certain)

    def _banks(self) -> None:
        """o_i + s = bank f_is + r_is, and g_ias where r_is + (a - 1) mod bank >= bank."""
        frame, model, bank = self.frame, self.model, self.frame.bank
        self.f: dict[Begin, IntVar] = {}
        self.r: dict[Begin, IntVar] = {}
        self.g: dict[Item, IntVar] = {}
        for i, above in frame.bank_begins:
            first, last = frame.places[i][0][0] + above, frame.places[i][-1][1] + above
            f = self.f[i, above] = model.new_int_var(first // bank, last // bank, f"f{i},{above}")
            r = self.r[i, above] = model.new_int_var(0, bank - 1, f"r{i},{above}")
            model.add(self.o[i] + above == bank * f + r)
        for item in frame.bank_items:
            rest = (item[1] - 1) % bank
            if rest:
                g = self.g[item] = model.new_bool_var(f"g{item}")
                model.add(self.r[item[0], item[2]] >= bank - rest).only_enforce_if(g)
                model.add(self.r[item[0], item[2]] < bank - rest).only_enforce_if(~g)

    def _conflicts(self) -> None:
        """below_e + above_e + c_e = 1, and minimise conflicts and peak."""
        frame, model, bank = self.frame, self.model, self.frame.bank
        weight = self.instance.conflict_weight
        self.last = {
            item: self.f[item[0], item[2]] + (item[1] - 1) // bank + self.g.get(item, 0)
            for item in frame.bank_items
        }
        self.conflicts: dict[tuple[Item, Item], tuple[IntVar, IntVar, IntVar]] = {}
        for e, (one, other) in enumerate(frame.bank_pairs):
            self._spend(self.tuning.cp_sat_bank_pair)
            below, above, c = (model.new_bool_var(f"{name}{e}") for name in ("b", "a", "c"))
            model.add_exactly_one(below, above, c)
            model.add(self.last[one] < self.f[other[0], other[2]]).only_enforce_if(below)
            model.add(self.last[other] < self.f[one[0], one[2]]).only_enforce_if(above)
            self.conflicts[one, other] = below, above, c
        self._cliques()
        self._minimise(
            [weight * count for count in frame.bank_pairs.values()] + [frame.unit],
            [c for _, _, c in self.conflicts.values()] + [self.z],
            weight * frame.certain_conflicts,
        )

    def _cliques(self) -> None:
        """Banks of the buffers of a clique do not overlap where p_ia, and z covers them."""
        frame, model, bank = self.frame, self.model, self.frame.bank
        cliques = [clique for clique in frame.bank_cliques if len(clique) > 2]  # two are told above
        smaller: dict[Item, list[IntVar]] = {item: [] for clique in cliques for item in clique}
        for pair, (_, _, c) in self.conflicts.items():
            if (item := smaller_item(*pair)) in smaller:
                smaller[item].append(c)
        banks = {}
        self.p: dict[Item, tuple[IntVar, list[IntVar]]] = {}
        self.taken: dict[Item, IntVar] = {}
        for item, conflicts in smaller.items():
            self._spend(self.tuning.cp_sat_row * (4 + len(conflicts)))
            p = model.new_bool_var(f"p{item}")
            model.add_bool_or(p, *conflicts)
            for c in conflicts:
                model.add_implication(p, ~c)
            self.p[item] = p, conflicts
            size = (item[1] - 1) // bank + 1 + self.g.get(item, 0)
            end = model.new_int_var(0, -(-frame.height // bank), f"l{item}")
            model.add(end == self.last[item] + 1)
            self.taken[item] = end
            banks[item] = model.new_optional_interval_var(
                self.f[item[0], item[2]], size, end, p, f"banks{item}"
            )
        for clique in cliques:
            self._spend(self.tuning.cp_sat_row + self.tuning.cp_sat_term * len(clique))
            model.add_no_overlap([banks[item] for item in clique])
        for saved, total in frame.bank_loads():
            self._spend(self.tuning.cp_sat_row + self.tuning.cp_sat_term * len(saved))
            less = sum(units * self.conflicts[pair][2] for pair, units in saved.items())
            model.add(self.z + less >= total)

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PackingSolution:
        """Return the solution of values by variable index."""
        found = np.rint(np.asarray(values, dtype=np.float64)).astype(np.int64)
        offsets = self.frame.step * found[[q.index for q in self.q]]
        memory = None
        if self.m:
            memory = np.array([found[[m.index for m in row]].argmax() for row in self.m])
        return self.frame.solution(offsets, memory)

    def hint(self, solution: PackingSolution) -> Array:
        """Return the value of every variable, shape (variables,), for a solution.

        Raises `InputError` when it is not in the model: a block lies where it may not, or higher
        than `upper` or an allocation without holes allows.
        """
        frame = self.frame
        offsets, memory = frame.settled(solution)
        values = np.zeros(len(self.model.proto.variables), dtype=np.int64)
        for i, q in enumerate(self.q):
            values[q.index] = offsets[i] // frame.step[i]
        for i, row in enumerate(self.m):
            assert memory is not None
            values[row[int(memory[i])].index] = 1
        for (i, j), runs in self.x.items():
            if memory is None or memory[i] == memory[j]:
                for (first, last), x in runs:
                    values[x.index] = first <= offsets[j] - offsets[i] <= last
        if self.z is not None:
            peak = int((offsets + frame.size).max())
            if memory is not None:
                for k, z in enumerate(self.peaks):
                    here = memory == k
                    values[z.index] = (offsets + frame.size)[here].max(initial=0)
                peak = int(sum(values[z.index] for z in self.peaks))
            values[self.z.index] = max(frame.least_peak, peak)
        for i, k, first, last, v in self.v:
            assert memory is not None
            values[v.index] = memory[i] == k and first <= offsets[i] <= last
        for i, k, times, r in self.multiples:
            assert memory is not None
            if memory[i] == k:
                values[r.index] = offsets[i] // (frame.step[i] * times)
        match self.instance.objective:
            case Objective.MOVES:
                for (i, at, _), stay in zip(frame.stays, self.stay, strict=True):
                    values[stay.index] = offsets[i] == at
            case Objective.BANK_CONFLICTS:
                self._hint_banks(values, offsets)
            case Objective.PENALTIES:
                self._hint_shares(values, offsets, memory)
            case Objective.SPILL | Objective.PEAK | Objective.FIT:
                pass
            case unknown:
                assert_never(unknown)
        return values

    def _hint_shares(self, values: Array, offsets: Array, memory: Array | None) -> None:
        """Enter which penalised pairs share, and which of the others lies below."""
        pairs, unit = self.frame.pairs, self.frame.unit
        shared = pairs.shared(offsets * unit)
        for p, (i, j) in enumerate(pairs.member.tolist()):
            if memory is None or memory[i] == memory[j]:
                which = 2 if shared[p] else int(offsets[i] > offsets[j])
                values[self.share[p][which].index] = 1

    def _hint_banks(self, values: Array, offsets: Array) -> None:
        """Enter the values of what speaks of banks."""
        bank = self.frame.bank
        for (i, shift), f in self.f.items():
            where = int(offsets[i]) + shift
            values[f.index], values[self.r[i, shift].index] = divmod(where, bank)
        for (i, size, shift), g in self.g.items():
            values[g.index] = (offsets[i] + shift) % bank + (size - 1) % bank >= bank
        for (i, size, shift), end in self.taken.items():
            values[end.index] = (offsets[i] + shift + size - 1) // bank + 1
        for ((i, a, s), (j, b, t)), (below, above, c) in self.conflicts.items():
            one, other = int(offsets[i]) + s, int(offsets[j]) + t
            if (one + a - 1) // bank < other // bank:
                values[below.index] = 1
            elif (other + b - 1) // bank < one // bank:
                values[above.index] = 1
            else:
                values[c.index] = 1
        for p, conflicts in self.p.values():
            values[p.index] = not any(values[c.index] for c in conflicts)


def _parts(frame: Frame, members: list[int]) -> list[list[tuple[int, int, int, int, int]]]:
    """Return the pieces (block, first, end, low, high) of blocks in runs that share no section.

    Parts with one piece need no constraint and are left out.
    """
    rows = sorted((*piece[:2], i, *piece[2:]) for i in members for piece in frame.pieces[i])
    parts: list[list[tuple[int, int, int, int, int]]] = []
    reach = -1
    for first, end, i, low, high in rows:
        if first >= reach:
            parts.append([])
        parts[-1].append((i, first, end, low, high))
        reach = max(reach, end)
    return [part for part in parts if len(part) > 1]
