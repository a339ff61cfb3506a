"""Data that the models of packing share: the instance in units, its windows and distances.

All addresses are multiples of the unit of
:class:`~stagepack.instances.packing.normal_form.blocks.Blocks`, such that some optimal placement
uses only multiples of it.  Buffers with the same offset form a block.
The distance d = offset_j - offset_i of two blocks that are in use at the same time must lie in one
of a few intervals: i below j, i above j, or within the space that windows and gaps leave free.

Sets
    B, P_i    blocks; pieces (first, end, low, high) of block i: sections and units that it occupies
    E         blocks alive together (`neighbours`), those that may share an offset (`shares`), those
              that can be exchanged for one another (`alike`), pairs for different banks
              (`bank_pairs`) and sets of buffers that are all pairs (`bank_cliques`)
Quantities
    size_i, step_i       units of block i, and what its offset is a multiple of
    V_i                  runs of offsets of block i (`places`)
    D_ij                 runs of distances of blocks i and j (`distances`)
    V_ik, step_ik        the same in memory k, where block i may live (`places_in`, `step_in`)
    limit_k              end of memory k; the largest is `height`
    least, gain          a lower bound on the objective, and what its values are multiples of
Cost
    O(pieces) to begin with, O(pieces_i pieces_j) a pair; the pairs are up to |B|^2 / 2
Source
    ours
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import assert_never

import numpy as np

from stagepack.errors import InputError
from stagepack.heuristics.packing.homes import alone_in, possible
from stagepack.heuristics.packing.penalties.pairs import Pairs
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.normal_form.places import aligned_unit
from stagepack.instances.packing.problem import Objective
from stagepack.instances.profile import Array

Interval = tuple[int, int]
"""First and last of a run of integers."""

LARGEST_PAIRS = 2_000_000
"""Pairs of pieces of blocks alive together beyond which no model is built: on an engine each may
take a kilobyte."""

Item = tuple[int, int, int]
"""A block, the units of one of its buffers, and how far that lies above the block's offset."""

Begin = tuple[int, int]
"""A block, and how far above its offset a buffer of it begins."""


def too_dense(blocks: Blocks) -> str:
    """Return why a model of these blocks would take too much memory, or ''."""
    if blocks.pairs <= LARGEST_PAIRS:
        return ""
    return (
        f"{blocks.pairs:,} pairs of buffers are alive together, too many for a model "
        f"(at most {LARGEST_PAIRS:,}); use auto or dive"
    )


class Frame:
    """A packing in units, for a model to be built from.

    `upper` and `lower` are those of :class:`~stagepack.formulations.packing.model.PackingModel`.

    - `unit`: bytes of a unit.
    - `size`, `step`, int64, shape (b,): size of each block, and what its offset is a multiple of.
    - `low`, `high`, int64, shape (pieces,): what each piece occupies above the offset of its block.
    - `limits`: where each memory ends: the first address that cannot be used, or that need not be.
    - `height`: the largest of `limits`, and of what `upper` leaves: no top lies above.
    - `places`: runs of offsets, first to last, that each block may have.
    - `places_in`, `step_in`: the same by block, and what its offset is a multiple of, in each
      memory; those that may not live in it are left out.
    - `infeasible`: some block has no place.
    - `least`: lower bound on the objective value from loads and from what nothing can change.
    - `gain`: differences between objective values are multiples of this.
    """

    def __init__(
        self, instance: LmemPacking, *, upper: int | None = None, lower: int | None = None
    ) -> None:
        self.instance = instance
        self.blocks = blocks = Blocks.of(instance)
        rooms = _rooms(instance, blocks)
        self.unit = unit = _unit([room for _, room in rooms])
        self.size = blocks.size // unit
        self.low, self.high = blocks.low // unit, blocks.high // unit
        self.step = np.lcm(blocks.alignment, unit) // unit
        self.upper = upper
        self.limits = self._make_limits([room for _, room in rooms])
        self.height = max(self.limits)
        # Circular lifetimes, conflict graphs and gaps: a block has its pieces anywhere.
        self.pieces = [
            [
                (int(blocks.first[p]), int(blocks.end[p]), int(self.low[p]), int(self.high[p]))
                for p in range(blocks.piece_ptr[i], blocks.piece_ptr[i + 1])
            ]
            for i in range(blocks.b)
        ]
        self.least_peak = self._least_peak()
        self.places_in: list[dict[int, list[Interval]]] = []
        self.step_in: list[dict[int, int]] = []
        for (members, room), limit in zip(rooms, self.limits, strict=True):
            steps = (np.lcm(room.alignment, unit) // unit).tolist()
            self.step_in.append(dict(zip(members, steps, strict=True)))
            runs = ((i, self._places(room, at, limit)) for at, i in enumerate(members))
            self.places_in.append({i: found for i, found in runs if found})
        self.places = [self._anywhere(i) for i in range(blocks.b)]
        self._set_values(lower)
        self.infeasible = (
            not all(self.places)
            or (upper is not None and self.least > upper)
            or (self.minimises_peak and self.least_peak > self.highest)
        )

    # ------------------------------------------------------------------ where memory ends

    def _make_limits(self, rooms: list[Blocks]) -> list[int]:
        """Return the end of each memory, in units; what an allocation needs where it has none."""
        instance, unit = self.instance, self.unit
        limits = [memory.capacity for memory in instance.memories] or [instance.ceiling]
        if instance.banks is not None:
            end = instance.banks.count * instance.banks.nbytes
            limits = [end if limit is None else min(limit, end) for limit in limits]
        if self.upper is not None and self.minimises_peak:
            # Allocations as high as the known one stay in the model, the known one with them.
            limits = [self.upper if limit is None else min(limit, self.upper) for limit in limits]
        return [
            self._stacked(room) if limit is None else limit // unit
            for room, limit in zip(rooms, limits, strict=True)
        ]

    def _stacked(self, room: Blocks) -> int:
        """Return a height that suffices: all of a memory on top of one another, on any support."""
        supports = [room.range_low]
        if self.instance.objective is Objective.MOVES:
            supports.append(self.instance.previous)
        highest = max((int(part.max()) for part in supports if len(part)), default=0)
        steps = int(room.size.sum() + np.lcm(room.alignment, self.unit).sum())
        return -(-(highest + steps) // self.unit)

    @property
    def minimises_peak(self) -> bool:
        """Whether the objective value is never less than the peak."""
        objective = self.instance.objective
        return objective in (Objective.PEAK, Objective.FIT, Objective.BANK_CONFLICTS)

    @property
    def highest(self) -> int:
        """What the peak, or the sum of the peaks of several memories, does not exceed."""
        most = sum(self.limits)
        if self.upper is not None and self.minimises_peak:
            most = min(most, self.upper // self.unit)
        return most if self.several else self.height

    @property
    def several(self) -> bool:
        """Whether there is a memory to choose for each block."""
        return bool(self.instance.memories)

    def _places(self, room: Blocks, at: int, limit: int) -> list[Interval]:
        """Return the runs of offsets of a block of some memory within its ranges and `limit`."""
        unit, nbytes = self.unit, int(room.size[at])
        top = min(limit, self.height) - nbytes // unit
        ranges = range(room.range_ptr[at], room.range_ptr[at + 1])
        runs = [
            (
                -(-int(room.range_low[r]) // unit),
                min(top, (int(room.range_high[r]) - nbytes) // unit),
            )
            for r in ranges
        ] or [(0, top)]
        step = int(np.lcm(room.alignment[at], unit)) // unit
        runs = [(-(-first // step) * step, last // step * step) for first, last in runs]
        return sorted((first, last) for first, last in runs if 0 <= first <= last)

    def _anywhere(self, i: int) -> list[Interval]:
        """Return the runs of offsets that block i has in some memory, apart from one another."""
        found: list[Interval] = []
        for first, last in sorted(run for places in self.places_in for run in places.get(i, ())):
            if self.several and found and first <= found[-1][1] + int(self.step[i]):
                found[-1] = found[-1][0], max(found[-1][1], last)
            else:
                found.append((first, last))
        return found

    # ------------------------------------------------------------------ what an answer is worth

    def _set_values(self, lower: int | None) -> None:
        """Set `least` and `gain`, and the tables of the objective at hand."""
        instance, blocks = self.instance, self.blocks
        self.stays: list[tuple[int, int, int]] = []
        self.spill: Array = np.zeros((blocks.b, 0), dtype=np.int64)
        self.gain, self.least = self.unit, self.least_peak * self.unit
        match instance.objective:
            case Objective.BANK_CONFLICTS:
                weight = instance.conflict_weight
                self.gain = math.gcd(self.unit, weight)
                self.least += weight * self.certain_conflicts
            case Objective.MOVES:
                self._set_stays()
            case Objective.SPILL:
                cost = np.array([memory.cost for memory in instance.memories], dtype=np.int64)
                accesses = np.zeros(blocks.b, dtype=np.int64)
                np.add.at(accesses, blocks.block, instance.accesses)
                self.spill = accesses[:, None] * cost[None, :]
                self.gain = int(np.gcd.reduce(self.spill, axis=None)) or 1
                self.least = sum(
                    min((int(costs[k]) for k in self.homes(i)), default=0)
                    for i, costs in enumerate(self.spill)
                )
            case Objective.PENALTIES:
                self.gain = math.gcd(self.pairs.certain, *self.pairs.cost.tolist()) or 1
                self.least = self.pairs.certain
            case Objective.PEAK | Objective.FIT:
                pass
            case unknown:
                assert_never(unknown)
        if lower is not None:
            self.least = max(self.least, -(-lower // self.gain) * self.gain)
        if instance.objective in (Objective.PEAK, Objective.FIT):
            self.least_peak = self.least // self.unit

    def _set_stays(self) -> None:
        """Set `stays`: (block, previous offset in units, bytes that stay with it)."""
        instance = self.instance
        bytes_at: dict[tuple[int, int], int] = {}
        for buffer in np.flatnonzero(instance.previous >= 0).tolist():
            at = int(instance.previous[buffer] - self.blocks.shift[buffer])
            key = int(self.blocks.block[buffer]), at // self.unit
            bytes_at[key] = bytes_at.get(key, 0) + int(instance.size[buffer])
        self.movable = sum(bytes_at.values())
        self.gain = math.gcd(*bytes_at.values()) or 1
        most: dict[int, int] = {}
        for (i, at), nbytes in sorted(bytes_at.items()):
            if any(first <= at <= last for first, last in self.places[i]):
                self.stays.append((i, at, nbytes))
                most[i] = max(most.get(i, 0), nbytes)
        self.least = self.movable - sum(most.values())

    def _least_peak(self) -> int:
        """Return the units that must be used below the peak, from loads and single blocks."""
        blocks, unit = self.blocks, self.unit
        nbytes = int(blocks.load.max(initial=0))
        for low, high in () if self.several else self.instance.reserved:
            if low < nbytes:
                nbytes += high - low
        least = -(-max(nbytes, int(blocks.size.max())) // unit)
        for i in range(blocks.b):
            if blocks.range_ptr[i] < blocks.range_ptr[i + 1]:
                lowest = int(blocks.range_low[blocks.range_ptr[i]])
                least = max(least, (lowest + int(blocks.size[i])) // unit)
        return least

    def homes(self, i: int) -> list[int]:
        """Return the memories in which block i has a place."""
        return [k for k, places in enumerate(self.places_in) if i in places]

    # ------------------------------------------------------------------ who conflicts, and how

    @cached_property
    def shares(self) -> list[tuple[int, int]]:
        """Pairs of blocks that may overlap at equal offsets."""
        return [(int(i), int(j)) for i, j in self.blocks.may_share]

    @cached_property
    def sharing(self) -> set[int]:
        """Blocks such that every pair in `shares` has one of them."""
        found: set[int] = set()
        for i, j in self.shares:
            if i not in found and j not in found:
                found.add(j)
        return found

    @cached_property
    def alive(self) -> list[list[tuple[int, int, int]]]:
        """The blocks of each section, and which units they occupy: (block, low, high)."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(self.blocks.sections)]
        for i, pieces in enumerate(self.pieces):
            for first, end, low, high in pieces:
                for section in found[first:end]:
                    section.append((i, low, high))
        return found

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of blocks i < j that are ever alive together."""
        ptr, other = self.blocks.neighbours()
        for i in range(self.blocks.b):
            for j in other[ptr[i] : ptr[i + 1]].tolist():
                if i < j:
                    yield i, j

    def distances(self, i: int, j: int) -> list[Interval]:
        """Return the runs of allowed values of offset_j - offset_i, ascending.

        The first and the last end where the places of the two blocks end.
        """
        forbidden = [
            (low - other_high + 1, high - other_low - 1)
            for first, end, low, high in self.pieces[i]
            for other_first, other_end, other_low, other_high in self.pieces[j]
            if first < other_end and other_first < end
        ]
        least, most = self.reach(i, j)
        may_meet = least <= 0 <= most and (min(i, j), max(i, j)) in self._share_set
        allowed = []
        for first, last in sorted(forbidden):
            if least < first:
                allowed.append((least, min(first - 1, most)))
            least = max(least, last + 1)
        allowed.append((least, most))
        allowed = [(first, last) for first, last in allowed if first <= last]
        if may_meet and not any(first <= 0 <= last for first, last in allowed):
            allowed.append((0, 0))
        return sorted(allowed)

    def reach(self, i: int, j: int) -> Interval:
        """Return the least and the largest offset_j - offset_i that their places leave."""
        least = self.places[j][0][0] - self.places[i][-1][1]
        return least, self.places[j][-1][1] - self.places[i][0][0]

    @cached_property
    def _share_set(self) -> set[tuple[int, int]]:
        """Pairs that may share, to be looked up."""
        return set(self.shares)

    # ------------------------------------------------------------------ who can be exchanged

    @cached_property
    def alike(self) -> list[list[int]]:
        """Classes of two and more blocks that any allocation may exchange for one another."""
        special = {i for pair in self.shares for i in pair}
        special.update(i for i, _, _ in self.stays)
        if self.instance.objective is Objective.PENALTIES:
            special.update(self.pairs.member.ravel().tolist())
        if self.instance.objective is Objective.BANK_CONFLICTS:
            special.update(item[0] for pair in self.bank_pairs for item in pair)
        classes: dict[object, list[int]] = {}
        for i in range(self.blocks.b):
            if i in special or not self.pieces[i]:
                continue
            key = (
                int(self.size[i]),
                int(self.step[i]),
                tuple(self.pieces[i]),
                tuple(tuple(places.get(i, ())) for places in self.places_in),
                tuple(steps.get(i, 0) for steps in self.step_in),
                tuple(self.spill[i].tolist()),
            )
            classes.setdefault(key, []).append(i)
        return [members for members in classes.values() if len(members) > 1]

    def successors(self) -> Iterator[tuple[int, int, int]]:
        """Yield (i, j, d): of exchangeable blocks, offset_j may be asked to be >= offset_i + d."""
        for members in self.alike:
            apart = max(high - low for _, _, low, high in self.pieces[members[0]])
            for i, j in itertools.pairwise(members):
                yield i, j, apart

    @cached_property
    def pairs(self) -> Pairs:
        """Pairs of blocks that share addresses at a cost."""
        return Pairs.of(self.instance, self.blocks)

    # ------------------------------------------------------------------ banks

    @property
    def bank(self) -> int:
        """Units of a bank."""
        assert self.instance.banks is not None
        return self.instance.banks.nbytes // self.unit

    @cached_property
    def bank_pairs(self) -> dict[tuple[Item, Item], int]:
        """How many pairs of buffers are (item, item), none of them with one offset."""
        block, size = self.blocks.block, self.instance.size // self.unit
        shift = self.blocks.shift // self.unit
        order = np.lexsort((shift, size, block))
        items = np.stack([block[order], size[order], shift[order]], axis=1)
        new = np.append(True, (np.diff(items, axis=0) != 0).any(axis=1))
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.cumsum(new) - 1
        named = np.sort(number[self.instance.bank_pairs], axis=1)
        ends = self.instance.bank_pairs
        apart = (np.diff(block[ends]) != 0).ravel() | (np.diff(shift[ends]) != 0).ravel()
        codes, count = np.unique(named[apart] @ [len(order), 1], return_counts=True)
        item = [(i, units, above) for i, units, above in items[new].tolist()]
        one, other = np.divmod(codes, len(order))
        pairs = zip(one.tolist(), other.tolist(), count.tolist(), strict=True)
        return {(item[low], item[high]): times for low, high, times in pairs}

    @cached_property
    def bank_items(self) -> list[Item]:
        """The items that occur in `bank_pairs`, ascending."""
        return sorted({item for pair in self.bank_pairs for item in pair})

    @cached_property
    def bank_begins(self) -> list[Begin]:
        """Where buffers of these items begin, ascending."""
        return sorted({(i, above) for i, _, above in self.bank_items})

    @property
    def certain_conflicts(self) -> int:
        """Pairs of buffers with one offset: they share a bank wherever they are."""
        return len(self.instance.bank_pairs) - sum(self.bank_pairs.values())

    @cached_property
    def bank_cliques(self) -> list[list[Item]]:
        """Sets of items all of whose pairs should not share a bank; they cover all pairs.

        Greedy: from every pair and every item on, the one with most banks joins first.
        """
        adjacent: dict[Item, set[Item]] = {}
        for one, other in self.bank_pairs:
            adjacent.setdefault(one, set()).add(other)
            adjacent.setdefault(other, set()).add(one)
        found: dict[frozenset[Item], None] = {}
        covered: set[tuple[Item, Item]] = set()
        seeds = [(item,) for item in sorted(adjacent)] + sorted(self.bank_pairs)
        for seed in seeds:
            if seed in covered:
                continue
            clique = list(seed)
            candidates = set.intersection(*(adjacent[item] for item in seed))
            while candidates:
                clique.append(max(candidates, key=lambda item: (item[1], item)))
                candidates &= adjacent[clique[-1]]
            covered.update(itertools.combinations(sorted(clique), 2))
            found[frozenset(clique)] = None
        return [sorted(clique) for clique in found]

    def bank_loads(self) -> Iterator[tuple[dict[tuple[Item, Item], int], int]]:
        """Yield (saved, total): z >= total - sum of saved[pair] over conflicting pairs.

        In a set of buffers without conflicts all fill whole banks but the topmost.  Leave out
        the smaller buffer of every conflicting pair: such a set remains.  Totals that every peak
        reaches are left out.
        """
        for clique in self.bank_cliques:
            whole = {item: -(-item[1] // self.bank) * self.bank for item in clique}
            spare = max(whole[item] - item[1] for item in clique)
            total = sum(whole.values()) - spare
            if total > self.least_peak:
                pairs = itertools.combinations(clique, 2)
                yield {pair: whole[smaller_item(*pair)] for pair in pairs}, total

    # ------------------------------------------------------------------ from and to solutions

    def solution(self, offsets: Array, memory: Array | None = None) -> PackingSolution:
        """Return the solution of offsets in units (and memories) of the blocks."""
        chosen = None if memory is None else memory[self.blocks.block]
        offsets = self.blocks.expand(offsets * self.unit)
        return PackingSolution.of(self.instance, offsets, chosen)

    def settled(self, solution: PackingSolution) -> tuple[Array, Array | None]:
        """Return offsets in units (and memories) of the blocks, in the order models ask for.

        Rounding all offsets down to the unit keeps every rule: distances, ends of ranges and banks
        are multiples of the unit.  Raises `InputError` when the solution is not in the model: some
        block lies where it may not, or higher than `upper` or an allocation without holes allows.
        """
        leader = np.zeros(self.blocks.b, dtype=np.int64)
        leader[self.blocks.block] = np.arange(self.instance.n)
        offsets = self.blocks.gathered(solution.offsets) // self.unit
        memory = None if solution.memory is None else solution.memory[leader]
        for i in range(self.blocks.b):
            at = int(offsets[i])
            places = self.places_in[0 if memory is None else int(memory[i])].get(i, ())
            if not any(first <= at <= last for first, last in places):
                raise InputError(
                    f"has buffer {self.instance.buffer_id(int(leader[i]))} at "
                    f"{solution.offsets[leader[i]]}, outside the model",
                    field="warm_start",
                    remedy="give a valid solution without needless holes",
                )
        for members in self.alike:
            key = offsets[members]
            if memory is not None:
                order = np.lexsort((key, memory[members]))
                memory[members] = memory[members][order]
            else:
                order = np.argsort(key, kind="stable")
            offsets[members] = key[order]
        return offsets, memory


def _rooms(instance: LmemPacking, blocks: Blocks) -> list[tuple[list[int], Blocks]]:
    """Return which blocks may live in each memory, and what they are there."""
    if not instance.memories:
        return [(list(range(blocks.b)), blocks)]
    found: list[tuple[list[int], Blocks]] = []
    where = possible(instance)
    for index in range(len(instance.memories)):
        buffers = np.flatnonzero(where[:, index])
        if not len(buffers):
            found.append(([], replace(blocks, alignment=blocks.alignment[:0])))
            continue
        room = Blocks.of(alone_in(instance, index, buffers))
        members = np.empty(room.b, dtype=np.int64)
        members[room.block] = blocks.block[buffers]
        found.append((members.tolist(), room))
    return found


def _unit(rooms: list[Blocks]) -> int:
    """Return a divisor of the units of some memories that goes with all their alignments."""
    if len(rooms) == 1:
        return rooms[0].unit
    unit = math.gcd(*(room.unit for room in rooms))
    return aligned_unit(unit, np.concatenate([room.alignment for room in rooms]))


def smaller_item(one: Item, other: Item) -> Item:
    """Return which of two items is smaller; of equal ones, the first."""
    return min(one, other, key=lambda item: (item[1], item))
