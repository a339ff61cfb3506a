"""Evaluates and checks plans of layer groupings, directly from the definitions.

Groups are executed by :mod:`.execution.replay`, which shares no code with what writes plans.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stagepack.instances.groups.chip import exact
from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.execution.replay import STAGES, Place, Replay, played_alone
from stagepack.instances.groups.operators import AXES
from stagepack.instances.groups.problem import OperatorKind, Order, Slicing, Timesteps
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.violation import Violation


def evaluate(instance: GroupingData, solution: GroupingSolution) -> int:
    """Return the cycles of all groups."""
    return sum(group_cycles(instance, solution))


def group_cycles(instance: GroupingData, solution: GroupingSolution) -> list[int]:
    """Return the cycles of each group."""
    return [
        Replay(instance, solution, group).cycles
        if counts
        else played_alone(instance, solution.operators(group)[0])
        for group, counts in enumerate(solution.slices)
    ]


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
        operators = solution.operators(group)
        if not counts and len(operators) == 1 and instance.stands(operators[0]):
            continue
        where, first = f"group {group}", instance.operators[operators[0]].name
        if not counts:
            yield Violation("alone", f"{where}: {first} cannot run from global memory here")
            return
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
        played = Replay(instance, solution, group)
        rows = range(len(STAGES) * played.rows)
        if given and (len(given) != played.moved or any(at not in rows for at in given)):
            detail = f"{where}: give {played.moved:,} positions below {len(rows):,}"
            yield Violation("positions", detail)
            return
        for tensor, store, load in spills:
            known = tensor in played.loaded or tensor in operators
            if not (known and store in rows and load in rows):
                detail = f"{where}: {(tensor, store, load)} names no tensor or row of it"
                yield Violation("spills", detail)
                return


def _too_small(instance: GroupingData, solution: GroupingSolution, group: int) -> str:
    """Return which tensor has fewer values on an axis than ranges are wanted, or ""."""
    own = set(solution.operators(group))
    for at in solution.operators(group):
        tensor = instance.tensors[at]
        inside = tensor.readers and all(reader in own for reader in tensor.readers)
        if inside and at not in instance.kept:
            continue
        for letter, parts in zip("nchw", solution.slices[group], strict=True):
            size = tensor.shape[AXES.index(letter)]
            if size < parts:
                along = letter.upper()
                return (
                    f"{tensor.name} has {size:,} values along {along}, too few for {parts:,} ranges"
                )
    return ""


def check(instance: GroupingData, solution: GroupingSolution) -> tuple[Violation, ...]:
    """Return every rule that `solution` breaks, by name; () when it is valid.

    The names: those of :func:`shape` (``order`` also where something is read before it is
    written, or operators leave the order that they are to keep), ``group`` (too many operators),
    ``slices`` (too many, on an axis that is not allowed, within what cannot be cut, or read again
    beyond the limit), ``positions`` (read before it is loaded, stored before it is written, not by
    the rule where there is one), ``spills``, ``memory`` (beyond the lane, not aligned) and
    ``collision``.
    """
    found = list(shape(instance, solution))
    if found:
        return tuple(found)
    found += [Violation("order", why) for why in _moved(instance, solution)]
    for group, counts in enumerate(solution.slices):
        if not counts:
            continue
        where, played = f"group {group}", Replay(instance, solution, group)
        if played.rows > instance.max_group:
            found.append(
                Violation("group", f"{where}: {played.rows:,} operators of {instance.max_group:,}")
            )
        found += [Violation("slices", f"{where}: {why}") for why in cut_wrongly(played)]
        found += [Violation("positions", f"{where}: {why}") for why in _positions(played)]
        spills = [Violation("spills", f"{where}: {why}") for why in _spills(played)]
        offsets = solution.offsets[group] if solution.offsets else ()
        found += spills or _memory(played, offsets, where)
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


def cut_wrongly(played: Replay) -> Iterator[str]:
    """Yield what is wrong with the way a group is cut."""
    instance, cut = played.instance, played.cut
    if instance.slicing == Slicing.N_THEN_H:
        if cut["c"] > 1 or cut["w"] > 1:
            yield "only N and H may be cut"
        elif cut["h"] > 1 and any(
            end - first > 1 for tensor in played.stored for first, end in played.ranges[0][tensor]
        ):
            yield "H is cut before N is down to one"
    for axis, letter in enumerate(AXES):
        if cut[letter] == 1:
            continue
        for at in played.operators:
            operator, along = instance.operators[at], letter.upper()
            if letter in operator.whole and not played.alike(at, letter):
                yield f"{operator.name} cannot be cut along {along}"
            elif not _even(played, at, axis):
                yield f"{operator.name} is cut along {along} within what it repeats"
        if letter in "hw":
            yield from _read_again(played, axis)


def _even(played: Replay, at: int, axis: int) -> bool:
    """Whether ranges of an upsampling begin and end where they must."""
    operator, letter = played.instance.operators[at], AXES[axis]
    if operator.kind != OperatorKind.UPSAMPLE or not operator.even or letter not in "hw":
        return True
    times, size = operator.scale["hw".index(letter)], operator.full[axis]
    return not any(
        first % times or (end % times and end < size) for first, end in played.ranges[axis][at]
    )


def _read_again(played: Replay, axis: int) -> Iterator[str]:
    """Yield inputs of which slices read more again than the limit allows, along H or W."""
    limit, letter = played.instance.overlap_limit, AXES[axis]
    for tensor in played.loaded if limit is not None else ():
        known = played.instance.tensors[tensor]
        size = known.shape[axis]
        again = sum(end - first for first, end in played.ranges[axis][tensor]) - size
        if limit is not None and again > exact(limit) * size and not played.alike(tensor, letter):
            yield (
                f"{again:,} of {size:,} along {letter.upper()} of {known.name} are read again, "
                f"more than {limit:g} of them"
            )


def _positions(played: Replay) -> Iterator[str]:
    """Yield transfers that come too late or too early."""
    ruled = played.instance.timesteps == Timesteps.NEAREST
    for move in played.transfers:
        name, position, own = move.name, move.position, move.operator
        wanted = own - 1 if move.load else own + 1
        if ruled and position != wanted:
            yield f"{name} moves in row {position}, by the rule in {wanted}; timesteps: free?"
        if move.load and position >= own:
            yield f"{name} is loaded in row {position}, read in {own}"
        if not move.load and position <= own:
            yield f"{name} is stored in row {position}, written in {own}"


def _spills(played: Replay) -> Iterator[str]:
    """Yield tensors that leave before they are there, or do not come back in time."""
    if played.spills and played.instance.timesteps == Timesteps.NEAREST:
        yield "by the rule no tensor leaves for a while; timesteps: free?"
    moves = {(move.load, move.tensor): move for move in played.transfers}
    seen = set()
    for tensor, store, load in played.spills:
        name = played.instance.tensors[tensor].name
        brought, taken = moves.get((True, tensor)), moves.get((False, tensor))
        born = played.position(tensor) if brought is None else brought.position
        if brought is not None and brought.once:
            yield f"{name} stays for all slices"
        if tensor in seen:
            yield f"{name} is spilled twice"
        seen.add(tensor)
        if not born < store < load:
            yield f"{name} is there from row {born}, stored in {store}, loaded in {load}"
        elif any(store < row <= load for row in played.readers(tensor)):
            yield f"{name} is read while it is away"
        elif taken is not None and store < taken.position <= load:
            yield f"{name} is stored for others while it is away"


def _memory(played: Replay, offsets: tuple[int, ...], where: str) -> Iterator[Violation]:
    """Yield places outside of the lane, at odd addresses, or over one another."""
    places, chip = played.places, played.instance.chip
    if len(offsets) != len(places):
        yield Violation("memory", f"{where}: {len(offsets):,} offsets for {len(places):,} buffers")
        return
    for place, offset in zip(places, offsets, strict=True):
        end = offset + place.nbytes
        if offset < 0 or end > chip.memory:
            over = f"{end - chip.memory:,} too many" if end > chip.memory else "below 0"
            detail = f"{place.name} ends at {end:,} of {chip.memory:,} bytes in a lane: {over}"
            yield Violation("memory", f"{where}: {detail}")
        if offset % chip.eu_bytes:
            yield Violation("memory", f"{where}: {place.name} is at {offset:,}, not aligned")
    told = set()
    for one, other, row in _overlaps(places, offsets, played.period):
        pair = min(one, other), max(one, other)
        shared = {(one, other), (other, one)} & played.overwritten
        if pair in told or (shared and offsets[one] == offsets[other]):
            continue
        told.add(pair)
        detail = f"{places[one].name} and {places[other].name} overlap in row {row}"
        yield Violation("collision", f"{where}: {detail}")


def _overlaps(
    places: Sequence[Place], offsets: Sequence[int], period: int
) -> Iterator[tuple[int, int, int]]:
    """Yield places that lie over one another, by address, and a row, the first one first.

    Goes from row to row and keeps what is alive sorted by address.
    """
    comes, goes = defaultdict(list), defaultdict(list)
    sizes = [place.nbytes for place in places]
    for at, place in enumerate(places):
        if not place.nbytes:
            continue
        end = place.start + place.rows
        comes[place.start].append(at)
        if period and end > period:  # around the end of the circle
            comes[0].append(at)
            end -= period
        goes[end].append(at)
    largest, alive = max(sizes, default=0), list[tuple[int, int]]()
    for row in sorted({*comes, *goes}):
        for at in goes[row]:
            del alive[bisect_left(alive, (offsets[at], at))]
        for at in comes[row]:
            end = offsets[at] + sizes[at]
            for number in range(bisect_left(alive, (offsets[at] - largest + 1, 0)), len(alive)):
                offset, other = alive[number]
                if offset >= end:
                    break
                if offset + sizes[other] > offsets[at]:
                    yield (at, other, row) if offset > offsets[at] else (other, at, row)
            insort(alive, (offsets[at], at))
