"""CP-SAT: the rows of transfers, what is spilled, and addresses of one group together.

Sets
    M                transfers; P_m the positions that transfer m may have
    B                buffers that are loaded, written or needed while an operator runs
    G_b              pairs of uses of buffer b between which it may be stored and loaded again
    I                iterations with compute: stages that run, and whether the first slice is there
    O                pairs (b, b') such that b' may be written over b
Parameters
    T                rows; positions are stage * T + row
    cycles_m         of a transfer; store_b, load_b of a spill
    compute_r        of the operator in row r
    times_i          how many iterations are like i
    overlap          which part of the shorter of compute and transfers hides beside the longer
    units_b          of buffer b, in multiples of the alignment
Variables
    x_mp             transfer m is at position p
    u_bp, v_bp       buffer b is stored for a while at p, is loaded again at p
    s_b, e_b         first position at which buffer b lives, and the one after its last; s'_b and
                     e'_b of what is loaded again
    a_b              address; a second one, where two slices of it are there all the time (d_b)
    w_bb'            b' is written over b
    h_ir             cycles of transfers that hide beside compute in row r of iteration i
Objective
    minimise     L * (sum of compute_r and of cycles_m) + what is spilled - sum of times_i h_ir,
                 the cycles of the group: a row takes compute + transfers - what is hidden; and of
                 equal ones the fewest spills
Constraints
    once         one x_mp of each m; as many u_bp as v_bp, at most one, in the same pair of G_b
    lives        s_b and e_b follow from x, u and v
    apart        rectangles [s_b, e_b) x [a_b, a_b + units_b) do not overlap.  With several slices
                 time is a circle of T rows: a rectangle is cut where a turn ends, and d_b holds
                 where it is longer than one
    over         a_b = a_b' where w_bb', and b ends before b' begins
    hidden       h_ir <= overlap * compute_r, h_ir <= overlap * transfers in row r of iteration i
Size
    |M| times 2T literals x, at most six rectangles a buffer, and 2T to 3T variables h
Source
    ours.  TPU-MLIR's level 3 minimises the sum of |compute - transfers| over rows, by an integer
    program without addresses
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_VALUE, Formulation, require_objective
from stagepack.formulations.groups.frame import Frame, Life
from stagepack.formulations.groups.memory import Memory, Point, at
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.chip import exact
from stagepack.instances.groups.lmem import in_place
from stagepack.instances.groups.problem import Objective
from stagepack.instances.groups.timesteps import STAGES, Spill, Timetable
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

Terms = list[tuple[int, "IntVar"]]
"""A sum: factors and literals."""


PARAMETERS = {"cp_model_presolve": False}
"""Presolve takes longer than what it saves: with it a group of 39 operators was left open after
15 s (78,799 cycles, at least 71,959) that is proved in 9 s without."""


class CpSat(Formulation[LayerGrouping, GroupingSolution]):
    """The model of one group of a plan as a `cp_model.CpModel`; its order and cut are given.

    The instance has free timesteps.  `plan` has all groups; solutions are this plan with other
    timesteps and addresses in `group`, which does not run from global memory.  What takes more than
    `upper`, the group's cycles in a known solution, may be cut off.

    `place` returns where the buffers of a timetable may lie, or None.  Where it is given, the model
    has no addresses: bytes alive in a row must fit, and solutions are placed as they are decoded;
    what cannot be placed is decoded as the plan itself.  `table` is the group by the rule
    ``nearest``.
    """

    model: CpModel

    def __init__(
        self,
        instance: LayerGrouping,
        plan: GroupingSolution,
        group: int,
        *,
        upper: int | None = None,
        place: Callable[[Timetable], tuple[int, ...] | None] | None = None,
    ) -> None:
        require_objective(instance.objective, Objective.CYCLES)
        self.instance, self.plan, self.group, self.upper = instance, plan, group, upper
        self._place, self.parameters = place, PARAMETERS
        self.table = Timetable(plan.timetable(instance, group).regions)
        self.frame = Frame(self.table)
        memory, self.overlap = instance.chip.memory, exact(instance.chip.overlap)
        self.infeasible = any(life.nbytes > memory for life in self.frame.lives)
        if not self.infeasible:
            self._require_exact()
            self._build_model()

    def _require_exact(self) -> None:
        """Refuse figures that CP-SAT cannot count with."""
        table, chip = self.table, self.instance.chip
        cycles = sum(table.compute) + sum(move.cycles for move in table.moves)
        area = STAGES * table.rows * chip.memory
        spills = 2 * (len(self.frame.lives) + 1)
        most = max(spills * cycles * table.rounds * self.overlap.denominator, area)
        if most >= LARGEST_VALUE:
            raise InputError(
                f"the CP-SAT model would count to {most:,}, beyond what it computes exactly",
                field="cycles",
                remedy="use coarser units of time and memory",
            )

    # ------------------------------------------------------------------ the model

    def _build_model(self) -> None:
        """Make the variables and the constraints."""
        from ortools.sat.python import cp_model

        self._cp, self._eu = cp_model, self.instance.chip.eu_bytes
        self.model = cp_model.CpModel()
        self._moved: dict[int, Terms] = defaultdict(list)
        self._once: dict[int, Terms] = defaultdict(list)
        self._memory = Memory(
            cp_model,
            self.model,
            self.frame.rows,
            self.frame.circular,
            -(-self.instance.chip.memory // self._eu),
        )
        self._transfers()
        self._spills()
        self._lives()
        self._over()
        self._memory.close(placed=self._place is None)
        self._hidden()
        self._objective()

    def _sum(self, terms: Iterable[tuple[int, IntVar]]) -> LinearExpr:
        """Return a sum of terms."""
        known = list(terms)
        return self._cp.LinearExpr.weighted_sum([x for _, x in known], [n for n, _ in known])

    def _literals(self, name: str, positions: Iterable[int]) -> dict[int, IntVar]:
        """Return a literal for each of some positions."""
        return {p: self.model.new_bool_var(f"{name},{p}") for p in positions}

    def _transfers(self) -> None:
        """One x_mp of each m."""
        self.x = [self._literals(f"x{m}", row) for m, row in enumerate(self.frame.allowed)]
        for move, row in zip(self.table.moves, self.x, strict=True):
            self.model.add_exactly_one(row.values())
            for p, x in row.items():
                (self._once if move.resident else self._moved)[p].append((move.cycles, x))

    def _spills(self) -> None:
        """As many u_bp as v_bp, at most one, in the same pair of G_b."""
        self.u: dict[int, dict[int, IntVar]] = {}
        self.v: dict[int, dict[int, IntVar]] = {}
        self.y: dict[int, IntVar] = {}
        for b, life in enumerate(self.frame.lives):
            if not life.gaps:
                continue
            self.y[b] = self.model.new_bool_var(f"y{b}")
            self.u[b], self.v[b] = {}, {}
            for first, end in life.gaps:
                u = self._literals(f"u{b}", range(first, end - 1))
                v = self._literals(f"v{b}", range(first + 1, end))
                self.model.add(sum(u.values()) == sum(v.values()))
                self.u[b] |= u
                self.v[b] |= v
            self.model.add(sum(self.u[b].values()) == self.y[b])
            there_and_back = self._sum(self.v[b].items()) - self._sum(self.u[b].items())
            self.model.add(there_and_back >= self.y[b])
            for moved, cycles in zip((self.u[b], self.v[b]), self._spill_cycles(life), strict=True):
                for p, literal in moved.items():
                    self._moved[p].append((cycles, literal))

    def _spill_cycles(self, life: Life) -> tuple[int, int]:
        """Return the cycles of the store and of the load of a spill."""
        chip, part = self.instance.chip, self.table.regions.part(life.tensor)
        nbytes = self.instance.tensors[life.tensor].nbytes(part)
        return chip.store_cycles(nbytes), chip.load_cycles(nbytes)

    def _lives(self) -> None:
        """Let s_b and e_b follow from x, u, v and w, and put the rectangles into memory."""
        self.w = {pair: self.model.new_bool_var(f"w{pair}") for pair in self.frame.over()}
        early = {old: w for (old, _), w in self.w.items()}
        self.a: dict[tuple[int, bool], list[IntVar]] = {}
        self._spans: list[tuple[Point, Point]] = []
        for b, life in enumerate(self.frame.lives):
            start = at(life.first) if life.load is None else self._position(life.load)
            end, back = self._ends(b, life, early.get(b))
            self._spans.append((start, end))
            self._live(b, start, end, [])
            if back is not None:
                self._live(b, *back, [self.y[b]])

    def _live(self, b: int, start: Point, end: Point, when: list[IntVar]) -> None:
        """Put what is alive from a point to another into memory."""
        life = self.frame.lives[b]
        first, height = self._address(life), -(-life.nbytes // self._eu)
        self.a[b, bool(when)] = [first]
        if life.resident and self.frame.circular:
            self._memory.always(first, height)
            return
        another = self._memory.live(start, end, (first, lambda: self._address(life)), height, when)
        if another is not None:
            self.a[b, bool(when)].append(another)

    def _address(self, life: Life) -> IntVar:
        """Return the variable of an address, in units."""
        most = (self.instance.chip.memory - life.nbytes) // self._eu
        return self.model.new_int_var(0, most, "a")

    def _position(self, m: int) -> Point:
        """Return the position of a transfer as one variable."""
        row = self.x[m]
        if len(row) == 1:
            return at(*row)
        position = self.model.new_int_var(min(row), max(row), f"p{m}")
        self.model.add(position == self._sum(row.items()))
        return Point(position, min(row), max(row))

    def _ends(
        self, b: int, life: Life, early: IntVar | None
    ) -> tuple[Point, tuple[Point, Point] | None]:
        """Return e_b, and s'_b and e'_b of a buffer that may be spilled."""
        last = life.used + 1
        final = None if life.store is None else self._position(life.store)
        latest = last if final is None else max(last, final.most + 1)
        if not life.gaps:
            if final is None:
                known = at(last) if early is None else Point(last - early, last - 1, last)
                return known, None
            end = self.model.new_int_var(last, latest, f"e{b}")
            self.model.add_max_equality(end, [final.value + 1, last])
            return Point(end, last, latest), None
        spilled, since = self.y[b], self._sum(self.u[b].items())
        first = min(self.u[b]) + 1
        end = self.model.new_int_var(first, latest, f"e{b}")
        self.model.add(end >= last - (0 if early is None else early)).only_enforce_if(~spilled)
        self.model.add(end >= since + 1).only_enforce_if(spilled)
        again = self.model.new_int_var(min(self.v[b]), max(self.v[b]), f"s'{b}")
        self.model.add(again == self._sum(self.v[b].items())).only_enforce_if(spilled)
        over = self.model.new_int_var(last, latest, f"e'{b}")
        if final is not None:
            before = self.model.new_bool_var(f"f{b}")
            self.model.add(end > final.value).only_enforce_if(~spilled)
            self.model.add(final.value <= since).only_enforce_if(spilled, before)
            self.model.add(final.value > again).only_enforce_if(spilled, ~before)
            self.model.add(over > final.value).only_enforce_if(spilled, ~before)
        back = Point(again, min(self.v[b]), max(self.v[b])), Point(over, last, latest)
        return Point(end, first, latest), back

    def _over(self) -> None:
        """a_b = a_b' where w_bb'; both together live no longer than a turn."""
        for (old, new), w in self.w.items():
            self.model.add(self.a[old, False][0] == self.a[new, False][0]).only_enforce_if(w)
            if old in self.y:
                self.model.add_implication(w, ~self.y[old])
            (start, _), (_, end) = self._spans[old], self._spans[new]
            if self.frame.circular and end.most - start.least > self.frame.rows:
                turn = end.value <= self.frame.rows + start.value
                self.model.add(turn).only_enforce_if(w)

    def _hidden(self) -> None:
        """h_ir <= overlap * compute_r, h_ir <= overlap * transfers."""
        overlap, rows = self.overlap, self.frame.rows
        self.h: list[tuple[int, IntVar, Terms]] = []
        for iteration in self.frame.iterations():
            for row, compute in enumerate(self.table.compute):
                moving = [t for stage in iteration.stages for t in self._moved[stage * rows + row]]
                if iteration.first >= 0:
                    moving += self._once[iteration.first * rows + row]
                if not moving:
                    continue
                h = self.model.new_int_var(0, int(overlap * compute), "h")
                self.model.add(overlap.denominator * h <= overlap.numerator * self._sum(moving))
                self.h.append((iteration.times, h, moving))

    def _objective(self) -> None:
        """Minimise L * (compute and transfers) + spills - what is hidden."""
        rounds, moves = self.frame.rounds, self.table.moves
        base = rounds * sum(self.table.compute)
        base += sum(move.cycles * (1 if move.resident else rounds) for move in moves)
        spills = [
            (rounds * sum(self._spill_cycles(self.frame.lives[b])), y) for b, y in self.y.items()
        ]
        total = base + self._sum(spills + [(-times, h) for times, h, _ in self.h])
        if self.upper is not None:
            self.model.add(total <= self.upper)
        self.model.minimize((len(self.y) + 1) * total + sum(self.y.values()))

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> GroupingSolution:
        """Return the plan with the timesteps and addresses of values by variable index."""
        found = np.rint(np.asarray(values, dtype=np.float64)).astype(np.int64)

        def chosen(row: dict[int, IntVar]) -> int:
            return next(p for p, literal in row.items() if found[literal.index])

        positions = tuple(map(chosen, self.x))
        away = [b for b, y in self.y.items() if found[y.index]]
        spills = [(self.frame.lives[b].tensor, chosen(self.u[b]), chosen(self.v[b])) for b in away]
        keys = [*((b, False) for b in range(len(self.frame.lives))), *((b, True) for b in away)]
        table = Timetable(self.table.regions, positions, [Spill(*spill) for spill in spills])
        if self._place is not None:
            places = self._place(table)
            if places is None:
                return self.plan
            return self.plan.with_group(self.group, positions, tuple(spills), places)
        offsets = []
        for buffer, key in zip(table.buffers, keys, strict=True):
            turns, rest = table.turns(buffer)
            offsets += [self._eu * int(found[a.index]) for a in self.a[key][: turns + (rest > 0)]]
        return self.plan.with_group(self.group, positions, tuple(spills), tuple(offsets))

    def hint(self, solution: GroupingSolution) -> Array:
        """Return x, u, v, w, h and a for a plan with the same groups and cuts.

        Nothing is said where it spills in a way that is never better.
        """
        values = np.full(len(self.model.proto.variables), np.nan)
        table = solution.timetable(self.instance, self.group)
        moves = zip(self.x, table.moves, table.positions, strict=True)
        chosen = [(row, self.frame.settled(move, position)) for row, move, position in moves]
        spilled = {spill.tensor: spill for spill in table.spills}
        for b, y in self.y.items():
            spill = spilled.pop(self.frame.lives[b].tensor, None)
            values[y.index] = spill is not None
            if spill is not None:
                chosen += [(self.u[b], spill.store), (self.v[b], spill.load)]
            else:
                chosen += [(self.u[b], -1), (self.v[b], -1)]
        if spilled or any(at_row >= 0 and at_row not in row for row, at_row in chosen):
            return np.full(len(values), np.nan)
        for row, at_row in chosen:
            for p, literal in row.items():
                values[literal.index] = p == at_row
        for _, h, moving in self.h:
            most = self.model.proto.variables[h.index].domain[1]
            transfers = sum(cycles * int(values[x.index]) for cycles, x in moving)
            values[h.index] = min(most, int(self.overlap * transfers))
        self._hint_addresses(values, table, solution.offsets[self.group])
        return values

    def _hint_addresses(self, values: Array, table: Timetable, offsets: tuple[int, ...]) -> None:
        away = {spill.tensor for spill in table.spills}
        lives = list(enumerate(self.frame.lives))
        keys = [(b, False) for b, _ in lives] + [
            (b, True) for b, life in lives if life.tensor in away
        ]
        place, met = {}, 0
        for buffer, key in zip(table.buffers, keys, strict=True):
            turns, rest = table.turns(buffer)
            place[key], count = met, turns + (rest > 0)
            for a, offset in zip(self.a[key], offsets[met : met + count], strict=False):
                values[a.index] = offset // self._eu
            met += count
        shared = set(in_place(table))
        for (old, new), w in self.w.items():
            one, other = place[old, False], place[new, False]
            values[w.index] = (one, other) in shared and offsets[one] == offsets[other]

    def worth(self, steps: int) -> int:
        """Return the cycles of the group: its objective."""
        return steps // (len(self.y) + 1)
