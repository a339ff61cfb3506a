"""Every group of operators in every cut, and all ways to put groups one after the other.

The cycles of groups add up, and a group takes what it takes by itself.  So the least of each set of
operators is found first, over all cuts that fit, and a path over what has run then tells the least
of all.  Addresses are those of a packing: it fits, if one in which nothing can move down does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator
from fractions import Fraction
from typing import NamedTuple

from stagepack.claims.every import TooManyError, packing
from stagepack.instances.groups.check import cut_wrongly
from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.execution.replay import Replay, played_alone
from stagepack.instances.groups.operators import AXES
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.packing import LmemPacking

MOST_OPERATORS, MOST_ADDRESSES = 12, 2_000
"""Operators of a network, and parts of packings that are tried for one group in one cut."""


class _Part(NamedTuple):
    """A group: its cycles, operators, cut, and the addresses of its buffers."""

    cycles: int
    operators: tuple[int, ...]
    slices: tuple[int, ...]
    offsets: tuple[int, ...]


def candidates(instance: GroupingData, below: Fraction | None) -> Iterator[GroupingSolution | None]:
    """Yield None for each group in a cut, then the best plan, if it is better."""
    if instance.timesteps != "nearest" or instance.n > MOST_OPERATORS:
        raise TooManyError  # transfers may be in any row
    limit = math.inf if below is None else below
    every, parts = (1 << instance.n) - 1, dict[int, _Part | None]()
    best: dict[int, tuple[int, tuple[_Part, ...]]] = {0: (0, ())}
    for done in range(every):
        if done not in best:
            continue
        cycles, before = best[done]
        for members in _groups(instance, done):
            own = sum(1 << at for at in members)
            if own not in parts:
                parts[own] = yield from _least(instance, members, limit)
            part = parts[own]
            if part is not None:
                known = best.get(done | own, (limit, ()))[0]
                if cycles + part.cycles < known:
                    best[done | own] = cycles + part.cycles, (*before, part)
    if every in best:
        chosen = best[every][1]
        order = tuple(at for part in chosen for at in part.operators)
        yield GroupingSolution(
            tuple(itertools.accumulate((len(part.operators) for part in chosen), initial=0)),
            tuple(part.slices for part in chosen),
            order if order != tuple(range(instance.n)) else (),
            offsets=tuple(part.offsets for part in chosen),
        )


def _groups(instance: GroupingData, done: int) -> Iterator[tuple[int, ...]]:
    """Yield the operators that may run next, after some."""
    rest = [at for at in range(instance.n) if not done >> at & 1]
    for count in range(1, min(instance.max_group, len(rest)) + 1):
        given = instance.order == "given"
        for members in [tuple(rest[:count])] if given else itertools.combinations(rest, count):
            read = {t for at in members for t in instance.reads[at] if t < instance.n}
            if all(done >> t & 1 or t in members for t in read):
                yield members


def _least(
    instance: GroupingData, members: tuple[int, ...], limit: float | Fraction
) -> Generator[None, None, _Part | None]:
    """Return the least that a group takes; None: it takes too much, or does not fit."""
    found: list[tuple[int, tuple[int, ...], Replay | None]] = []
    if len(members) == 1 and instance.stands(members[0]):
        found.append((played_alone(instance, members[0]), (), None))
    for counts in _cuts(instance, members):
        yield None
        plan = GroupingSolution((0, len(members)), (counts,), members)
        played = Replay(instance, plan, 0)
        if played.cycles < limit and not any(cut_wrongly(played)):
            found.append((played.cycles, counts, played))
    for cycles, counts, replay in sorted(found, key=lambda one: one[0]):
        offsets = () if replay is None else _addresses(replay)
        if offsets is not None:
            return _Part(cycles, members, counts, offsets)
    return None


def _cuts(instance: GroupingData, members: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield how many ranges N, C, H and W may be cut into."""
    if any(instance.alone(at) for at in members):
        return
    sizes = [instance.max_slices] * 4
    for at in members:
        tensor = instance.tensors[at]
        inside = tensor.readers and {*tensor.readers} <= {*members}
        if not inside or at in instance.kept:
            shape = [tensor.shape[AXES.index(letter)] for letter in "nchw"]
            sizes = list(map(min, sizes, shape))
    if instance.slicing == "n-then-h":
        sizes[1] = sizes[3] = 1
    yield from _factors(sizes, instance.max_slices)


def _factors(sizes: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield a number up to each size, whose product is at most so much."""
    if not sizes:
        yield ()
        return
    for count in range(1, min(sizes[0], most) + 1):
        for others in _factors(sizes[1:], most // count):
            yield (count, *others)


def _addresses(played: Replay) -> tuple[int, ...] | None:
    """Return addresses in a lane; None: there are none."""
    places, period, chip = played.places, played.period, played.instance.chip
    held = [at for at, place in enumerate(places) if place.nbytes]
    if not held:
        return (0,) * len(places)
    number = {at: i for i, at in enumerate(held)}
    over = [(number[a], number[b]) for a, b in played.overwritten if a in number and b in number]
    begins = [places[at].start % (period or math.inf) for at in held]
    fit = LmemPacking.from_arrays(
        [places[at].nbytes for at in held],
        [int(begin) for begin in begins],
        [int(begin) + places[at].rows for begin, at in zip(begins, held, strict=True)],
        period=period or None,
        alignment=chip.eu_bytes,
        in_place=over,
        capacity=chip.memory,
        objective="fit",
    )
    for count, packed in enumerate(packing.candidates(fit, None)):
        if count > MOST_ADDRESSES:
            raise TooManyError
        if packed is not None and not fit.check(packed):
            offsets = dict(zip(held, packed.offsets.tolist(), strict=True))
            return tuple(offsets.get(at, 0) for at in range(len(places)))
    return None
