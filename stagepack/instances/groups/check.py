"""What a plan is worth and whether it is right, straight from the definitions."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.lmem import Copy, copies, in_place
from stagepack.instances.groups.operators import AXES, C, H, N, W, compute_cycles
from stagepack.instances.groups.regions import dealt, too_few
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.groups.taps import needed_along
from stagepack.instances.groups.timesteps import STAGES, Timetable, nearest
from stagepack.instances.groups.words import Order, Slicing, Timesteps
from stagepack.instances.violation import Violation


def evaluate(instance: GroupingData, solution: GroupingSolution) -> int:
    """Return the cycles of all groups."""
    return sum(group_cycles(instance, solution))


def group_cycles(instance: GroupingData, solution: GroupingSolution) -> list[int]:
    """Return the cycles of each group."""
    return [
        alone_cycles(instance, solution.operators(group)[0]) if table is None else table.cycles
        for group, table in solution.timetables(instance)
    ]


def alone_row(instance: GroupingData, at: int) -> tuple[int, int, int]:
    """Return the cycles of compute, loads and stores of an operator that runs by itself."""
    operator, chip = instance.operators[at], instance.chip
    own, *read = (instance.tensors[t] for t in (at, *dict.fromkeys(instance.reads[at])))
    loads = sum(chip.load_cycles(tensor.nbytes(tensor.shape)) for tensor in read)
    loads += sum(chip.load_cycles(weight.nbytes(weight.channels)) for weight in operator.weights)
    compute = compute_cycles(operator, instance.sources(at), operator.full, chip)
    return compute, loads, chip.store_cycles(own.nbytes(own.shape))


def alone_cycles(instance: GroupingData, at: int) -> int:
    """Return the cycles of an operator that runs from and to global memory: one row of its own."""
    compute, loads, stores = alone_row(instance, at)
    return instance.chip.row_cycles(compute, loads + stores)


def shape(instance: GroupingData, solution: GroupingSolution) -> tuple[Violation, ...]:
    """Return why a solution cannot be evaluated: ``boundaries``, ``order``, ``slices``, ..."""
    n, cuts = instance.n, solution.boundaries
    if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != n or any(a >= b for a, b in pairwise(cuts)):
        return (Violation("boundaries", f"they must rise from 0 to {n:,}, the operators"),)
    if solution.order and sorted(solution.order) != list(range(n)):
        return (Violation("order", f"it must name each of the {n:,} operators once"),)
    early = next(_order(instance, solution), None)
    if early is not None:
        return (early,)
    for name in ("slices", "positions", "spills", "offsets"):
        given = getattr(solution, name)
        if (given or name == "slices") and len(given) != solution.groups:
            detail = f"{len(given):,} entries for {solution.groups:,} groups"
            return (Violation(name, detail),)
    return tuple(_shape_violations(instance, solution))[:1]


def _shape_violations(instance: GroupingData, solution: GroupingSolution) -> Iterator[Violation]:
    """Yield what is wrong in the shape of single groups."""
    for group, counts in enumerate(solution.slices):
        where, operators = f"group {group}", solution.operators(group)
        first = instance.operators[operators[0]].name
        if not counts and (len(operators) > 1 or not instance.stands(operators[0])):
            yield Violation("alone", f"{where}: {first} cannot run from global memory here")
            return
        if not counts:
            continue
        if len(counts) != 4 or any(count < 1 for count in counts):
            yield Violation("slices", f"{where}: give four counts of at least 1, or none")
            return
        if math.prod(counts) > instance.max_slices:
            detail = f"{where}: {math.prod(counts):,} slices, of {instance.max_slices:,}"
            yield Violation("slices", detail)
            return
        lone = [instance.operators[at].name for at in operators if instance.alone(at)]
        if lone:
            yield Violation("alone", f"{where}: {lone[0]} can only run from global memory")
            return
        short = _too_small(instance, solution, group)
        if short:
            yield Violation("slices", f"{where}: {short}")
            return
        spills = solution.spills[group] if solution.spills else ()
        odd = next((spill for spill in spills if len(spill) != 3), None)
        if odd is not None:
            yield Violation("spills", f"{where}: {odd} is no tensor with two positions")
            return
        given = solution.positions[group] if solution.positions else ()
        if not (given or spills):
            continue
        table = solution.timetable(instance, group)
        rows = range(STAGES * table.rows)
        if given and (len(given) != len(table.moves) or any(at not in rows for at in given)):
            detail = f"{where}: give {len(table.moves):,} positions below {len(rows):,}"
            yield Violation("positions", detail)
            return
        for spill in table.spills:
            if spill.tensor not in (*table.operators, *table.regions.loaded) or not (
                spill.store in rows and spill.load in rows
            ):
                yield Violation("spills", f"{where}: {tuple(spill)} names no tensor or row of it")
                return


def _too_small(instance: GroupingData, solution: GroupingSolution, group: int) -> str:
    """Return which tensor has fewer values on an axis than ranges are wanted, or ""."""
    own = set(solution.operators(group))
    for at in solution.operators(group):
        tensor = instance.tensors[at]
        inside = tensor.readers and all(reader in own for reader in tensor.readers)
        if inside and at not in instance.kept:
            continue
        for axis, parts in zip((N, C, H, W), solution.slices[group], strict=True):
            size = tensor.shape[axis]
            if size < parts:
                return too_few(tensor.name, size, axis, parts)
    return ""


def check(instance: GroupingData, solution: GroupingSolution) -> tuple[Violation, ...]:
    """Return every rule that `solution` breaks, by name; () when it is valid.

    The names: those of :func:`shape` (``order`` also where something is read before it is
    written, or operators leave the order that they are to keep), ``group`` (too many operators),
    ``slices`` (too many, on an axis that is not allowed, within what cannot be cut, or read again
    beyond the limit), ``halo`` (a slice lacks what it reads, or what it should give out),
    ``positions`` (read before it is loaded, stored before it is written, not by the rule where
    there is one), ``spills``, ``memory`` (beyond the lane, not aligned) and
    ``collision``.
    """
    found = list(shape(instance, solution))
    if found:
        return tuple(found)
    found += [Violation("order", why) for why in _moved(instance, solution)]
    for group, table in solution.timetables(instance):
        if table is None:
            continue
        where = f"group {group}"
        if table.rows > instance.max_group:
            found.append(
                Violation("group", f"{where}: {table.rows:,} operators of {instance.max_group:,}")
            )
        found += [Violation("slices", f"{where}: {why}") for why in _slicing(instance, table)]
        found += [Violation("halo", f"{where}: {why}") for why in _halos(table)]
        found += [Violation("positions", f"{where}: {why}") for why in _positions(table)]
        found += [Violation("spills", f"{where}: {why}") for why in _spills(table)]
        offsets = solution.offsets[group] if solution.offsets else ()
        found += _memory(table, offsets, where)
    return tuple(found)


def _order(instance: GroupingData, solution: GroupingSolution) -> Iterator[Violation]:
    """Yield operators that run before what they read is written."""
    order = solution.order or range(instance.n)
    place = {at: when for when, at in enumerate(order)}
    for at in order:
        for tensor in instance.reads[at]:
            if tensor < instance.n and place[tensor] > place[at]:
                names = instance.operators[at].name, instance.operators[tensor].name
                yield Violation("order", f"{names[0]} runs before {names[1]}, which it reads")


def _moved(instance: GroupingData, solution: GroupingSolution) -> Iterator[str]:
    """Yield operators that run before others of the network that they are to follow."""
    if instance.order == Order.GIVEN:
        for one, other in pairwise(solution.order):
            if other < one:
                names = instance.operators[one].name, instance.operators[other].name
                yield f"{names[0]} runs before {names[1]}, given after it; order: free?"
                return
    for group in range(solution.groups):
        for one, other in pairwise(solution.operators(group)):
            if other < one:
                names = instance.operators[one].name, instance.operators[other].name
                yield f"group {group}: {names[0]} runs before {names[1]}, given after it"


def _slicing(instance: GroupingData, table: Timetable) -> Iterator[str]:
    """Yield what is wrong with the way a group is cut."""
    cut = table.regions.cut
    if instance.slicing == Slicing.N_THEN_H:
        if cut.c > 1 or cut.w > 1:
            yield "only N and H may be cut"
        elif cut.h > 1 and any(
            max(n for _, n in table.regions.along(0)[t]) > 1 for t in table.regions.stored
        ):
            yield "H is cut before N is down to one"
    yield from table.regions.refusals()


def _halos(table: Timetable) -> Iterator[str]:
    """Yield what slices read, or give out, that is not within what they hold, axis by axis."""
    regions, instance = table.regions, table.regions.instance
    for axis, letter in enumerate(AXES.upper()):
        held = regions.along(axis)
        for at in table.operators:
            sources, operator = instance.sources(at), instance.operators[at]
            for which, tensor in enumerate(instance.reads[at]):
                for number, (own, there) in enumerate(zip(held[at], held[tensor], strict=True)):
                    part = own[0], sum(own)
                    first, end = needed_along(operator, which, axis, part, sources)
                    if first < end and not there[0] <= first < end <= sum(there):
                        yield (
                            f"range {number} of {operator.name} along {letter} reads "
                            f"[{first}, {end}) of {instance.tensors[tensor].name}, there are "
                            f"[{there[0]}, {sum(there)})"
                        )
        for tensor in regions.stored:
            known, given = instance.tensors[tensor], 0
            shares = dealt(known.shape[axis], regions.cut.along(axis))
            for (start, length), there in zip(shares, held[tensor], strict=True):
                if start != given or not there[0] <= start < start + length <= sum(there):
                    yield f"{known.name} along {letter} is not given out from {given} on"
                given = start + length
            if given != known.shape[axis]:
                yield f"{known.name} along {letter} is given out up to {given}"


def _positions(table: Timetable) -> Iterator[str]:
    """Yield transfers that come too late or too early."""
    ruled = table.regions.instance.timesteps == Timesteps.NEAREST
    by_rule = nearest(table.moves, table.rows)
    for move, position, wanted in zip(table.moves, table.positions, by_rule, strict=True):
        own = table.rows + move.operator
        if ruled and position != wanted:
            yield f"{move.name} moves in row {position}, by the rule in {wanted}; timesteps: free?"
        if move.load and position >= own:
            yield f"{move.name} is loaded in row {position}, read in {own}"
        if not move.load and position <= own:
            yield f"{move.name} is stored in row {position}, written in {own}"


def _spills(table: Timetable) -> Iterator[str]:
    """Yield tensors that leave before they are there, or do not come back in time."""
    place = {at: table.rows + k for k, at in enumerate(table.operators)}
    born, stored = dict(place), {}
    if table.spills and table.regions.instance.timesteps == Timesteps.NEAREST:
        yield "by the rule no tensor leaves for a while; timesteps: free?"
    for move, position in zip(table.moves, table.positions, strict=True):
        if move.load and move.tensor >= 0:
            born[move.tensor] = position
            if move.resident and any(spill.tensor == move.tensor for spill in table.spills):
                yield f"{move.name} stays for all slices"
        if not move.load:
            stored[move.tensor] = position
    seen = set()
    for tensor, store, load in table.spills:
        name = table.regions.instance.tensors[tensor].name
        readers = table.regions.instance.tensors[tensor].readers
        used = [place[at] for at in readers if at in place]
        if tensor in seen:
            yield f"{name} is spilled twice"
        seen.add(tensor)
        if not born[tensor] < store < load:
            yield f"{name} is there from row {born[tensor]}, stored in {store}, loaded in {load}"
        elif any(store < row <= load for row in used):
            yield f"{name} is read while it is away"
        elif store < stored.get(tensor, store) <= load:
            yield f"{name} is stored for others while it is away"


def _memory(table: Timetable, offsets: tuple[int, ...], where: str) -> Iterator[Violation]:
    """Yield copies outside of the lane, at odd addresses, or over one another."""
    places, chip = copies(table), table.regions.instance.chip
    if len(offsets) != len(places):
        yield Violation("memory", f"{where}: {len(offsets):,} offsets for {len(places):,} buffers")
        return
    for copy, offset in zip(places, offsets, strict=True):
        end = offset + copy.buffer.lane_bytes
        if offset < 0 or end > chip.memory:
            over = f"{end - chip.memory:,} too many" if end > chip.memory else "below 0"
            detail = f"{copy.name} ends at {end:,} of {chip.memory:,} bytes in a lane: {over}"
            yield Violation("memory", f"{where}: {detail}")
        if offset % chip.eu_bytes:
            yield Violation("memory", f"{where}: {copy.name} is at {offset:,}, not aligned")
    shared = set(in_place(table))
    told = set()
    for one, other, row in _overlaps(places, offsets, table.period):
        pair = min(one, other), max(one, other)
        if pair in told or (pair in shared and offsets[one] == offsets[other]):
            continue
        told.add(pair)
        detail = f"{places[one].name} and {places[other].name} overlap in row {row}"
        yield Violation("collision", f"{where}: {detail}")


def _overlaps(
    places: Sequence[Copy], offsets: Sequence[int], period: int
) -> Iterator[tuple[int, int, int]]:
    """Yield copies that lie over one another, by address, and a row, the first one first.

    Goes from row to row and keeps what is alive sorted by address.
    """
    comes, goes = defaultdict(list), defaultdict(list)
    sizes = [copy.buffer.lane_bytes for copy in places]
    for at, copy in enumerate(places):
        if sizes[at] and copy.rows > 0:  # a tensor may leave before it comes: see `_spills`
            end = copy.start + copy.rows
            comes[copy.start].append(at)
            if period and end > period:  # around the end of the circle
                comes[0].append(at)
            goes[end - period if period and end > period else end].append(at)
    largest, alive = max(sizes, default=0), list[tuple[int, int]]()
    for row in sorted({*comes, *goes}):
        for at in goes[row]:
            del alive[bisect_left(alive, (offsets[at], at))]
        for at in comes[row]:
            end = offsets[at] + sizes[at]
            for place in range(bisect_left(alive, (offsets[at] - largest + 1, 0)), len(alive)):
                offset, other = alive[place]
                if offset >= end:
                    break
                if offset + sizes[other] > offsets[at]:
                    yield (at, other, row) if offset > offsets[at] else (other, at, row)
            insort(alive, (offsets[at], at))
