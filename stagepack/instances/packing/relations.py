"""Reads and validates what buffers have to do with memories and with one another.

Homes, views, pairs that are kept apart or exempt, and penalties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stagepack.errors import InputError
from stagepack.files import in_bytes
from stagepack.instances.arrays import integer, integers
from stagepack.instances.joining import Joined
from stagepack.instances.packing.data import Memory, PackingData, Penalties
from stagepack.instances.packing.validate import pairs, ranges, require_buffers
from stagepack.instances.profile import Array


def memories(values: Iterable[Any]) -> tuple[Memory, ...]:
    """Return memories, given as such or as (name, capacity[, cost[, reserved[, alignment]]])."""
    found: list[Memory] = []
    for at, given in enumerate(values):
        where = f"memories[{at}]"
        value: Any = given
        if isinstance(value, Memory):
            value = value.name, value.capacity, value.cost, value.reserved, value.alignment
        entries: list[Any] = list(value) if isinstance(value, tuple | list) else []
        if not 2 <= len(entries) <= 5:
            raise InputError(
                f"{value!r} is no Memory",
                field=where,
                remedy="give (name, capacity, cost, reserved, alignment)",
            )
        entries += (0, (), 1)[len(entries) - 2 :]
        name, capacity, cost, reserved, alignment = entries
        if not isinstance(name, str):
            raise InputError(f"{name!r} is no name", field=where, remedy="give a string")
        found.append(
            Memory(
                name,
                None if capacity is None else integer(in_bytes(capacity, where), where),
                integer(cost, where),
                ranges(reserved, f"{where}.reserved"),
                integer(in_bytes(alignment, where), where),
            )
        )
        if found[-1].alignment < 1:
            raise InputError("is not positive", field=f"{where}.alignment", remedy="give 1 or more")
    return tuple(found)


def homes(given: Any, n: int, names: Sequence[str]) -> Array | None:
    """Return where each of n buffers may live: bool, shape (n, memories); None: anywhere.

    `given` is such an array, or the names or indices of memories by buffer; those that are left
    out may live anywhere.  `names` are those of the memories.
    """
    if given is None:
        return None
    found = np.ones((n, len(names)), dtype=bool)
    if isinstance(given, Mapping):
        for key, chosen in given.items():
            where = f"homes[{key}]"
            buffer = integer(key, where)
            require_buffers(np.array([buffer]), where, n)
            found[buffer] = False
            for name in [chosen] if isinstance(chosen, str | int) else chosen:
                index = names.index(name) if name in names else name
                if isinstance(index, str) or not 0 <= index < len(names):
                    raise InputError(
                        f"{name!r} is no memory",
                        field=where,
                        remedy="there are " + (", ".join(names) or "none"),
                    )
                found[buffer, index] = True
    else:
        array = np.asarray(given)
        if array.shape != found.shape or array.dtype != bool:
            raise InputError(
                f"has the shape {array.shape} and the type {array.dtype}",
                field="homes",
                remedy=f"give booleans, shape {found.shape}, or {{buffer: [memory, ...]}}",
            )
        found = array.copy()
    if not found.any(axis=1).all():
        at = int(np.argmin(found.any(axis=1)))
        raise InputError(f"buffer {at} has no memory", field="homes", remedy="allow one at least")
    found.setflags(write=False)
    return None if found.all() else found


def penalties(given: Any, n: int) -> Penalties | None:
    """Return penalties, given as such or as (buffer, buffer, cost); what a pair has twice adds up.

    Costs of 0 are left out.
    """
    if given is None or (isinstance(given, list | tuple) and not given):
        return None
    if isinstance(given, Penalties):
        ends, cost = np.asarray(given.pairs), np.asarray(given.cost)
    else:
        try:
            rows = np.array(list(given), dtype=np.int64).reshape(-1, 3)
        except (ValueError, TypeError, OverflowError):
            raise InputError(
                "is no list of pairs with a cost",
                field="penalties",
                remedy="give (buffer, buffer, cost)",
            ) from None
        ends, cost = rows[:, :2], rows[:, 2]
    cost = integers(cost, "penalties", "pair", len(ends))
    if (cost < 0).any():
        raise InputError("a cost is negative", field="penalties", remedy="give costs >= 0")
    if float(cost.sum(dtype=np.float64)) >= 2.0**61:
        raise InputError("the sum exceeds 2**61", field="penalties", remedy="use a coarser unit")
    each = pairs(ends, "penalties", n)
    total = np.zeros(len(each), dtype=np.int64)
    code = np.sort(np.asarray(ends, dtype=np.int64).reshape(-1, 2), axis=1) @ [n, 1]
    np.add.at(total, np.searchsorted(each @ [n, 1], code), cost)
    counted = total > 0
    return Penalties(each[counted], total[counted]) if counted.any() else None


def tied(given: PackingData) -> tuple[Array, Array]:
    """Return the group of each buffer, and by how much it lies above the group's lowest member.

    Two arrays of int64, shape (n,): colocated buffers and views have one place together.  Groups
    are numbered by their first buffer.

    Raises
    ------
    InputError
        When they ask for two different distances of a pair.
    """
    n = given.n
    around: dict[int, list[tuple[int, int]]] = {}
    for view in given.views:
        around.setdefault(view.host, []).append((view.buffer, view.offset))
        around.setdefault(view.buffer, []).append((view.host, -view.offset))
    for first, *others in given.colocated:
        for other in others:
            around.setdefault(first, []).append((other, 0))
            around.setdefault(other, []).append((first, 0))
    leader, shift = np.arange(n), np.zeros(n, dtype=np.int64)
    seen: dict[int, int] = {}
    for root in sorted(around):
        if root in seen:
            continue
        seen[root], reached = 0, [root]
        for buffer in reached:
            for other, distance in around[buffer]:
                place = seen[buffer] + distance
                if other not in seen:
                    seen[other] = place
                    reached.append(other)
                elif seen[other] != place:
                    names = given.buffer_id(buffer), given.buffer_id(other)
                    raise InputError(
                        f"buffers {names[0]} and {names[1]} would lie {distance:,} and "
                        f"{seen[other] - seen[buffer]:,} bytes apart",
                        field="views",
                        remedy="correct an offset, or take out a view or colocation",
                    )
        lowest = min(seen[buffer] for buffer in reached)
        leader[reached] = root
        shift[reached] = [seen[buffer] - lowest for buffer in reached]
    _, group = np.unique(leader, return_inverse=True)
    return group.astype(np.int64), shift


def check(given: PackingData) -> None:
    """Refuse relations that contradict one another, or the buffers."""
    name = given.buffer_id
    _views(given)
    require_buffers(np.array(given.exclusive, dtype=np.int64), "exclusive", given.n)
    if given.segment is not None and given.segment < 1:
        raise InputError(f"is {given.segment}", field="segment", remedy="give 1 byte or more")
    both = set(given.apart) & set(given.exempt)
    if both:
        i, j = min(both)
        raise InputError(
            f"buffers {name(i)} and {name(j)} are kept apart and exempt",
            field="exempt",
            remedy="leave out one of them",
        )
    if not (given.views or given.colocated):
        return
    group, shift = tied(given)
    for i, j in given.apart:
        low, high = max(shift[i], shift[j]), min(shift[i] + given.size[i], shift[j] + given.size[j])
        if group[i] == group[j] and low < high:
            raise InputError(
                f"buffers {name(i)} and {name(j)} are kept apart, but lie in one place",
                field="apart",
                remedy="leave out the pair, the view or the colocation",
            )
    base = given.fixed - shift
    lowest: dict[int, int] = {}
    for i in np.flatnonzero(given.fixed >= 0).tolist():
        other = lowest.setdefault(int(group[i]), i)
        if base[other] != base[i]:
            raise InputError(
                f"buffers {name(other)} and {name(i)} have one place, but are fixed at "
                f"{given.fixed[other]:,} and {given.fixed[i]:,}",
                field="colocated" if shift[i] == shift[other] else "views",
                remedy="fix them at one offset"
                if shift[i] == shift[other]
                else f"fix them {shift[i] - shift[other]:,} bytes apart",
            )
    for i, j in given.in_place:
        if shift[i] != shift[j] and group[i] != group[j]:
            raise InputError(
                f"buffers {name(i)} and {name(j)} lie at different heights of what they belong to",
                field="in_place",
                remedy="pair the hosts",
            )
    if given.homes is not None:
        common = np.ones((int(group.max()) + 1, given.homes.shape[1]), dtype=bool)
        np.logical_and.at(common, group, given.homes)
        if not common.any(axis=1).all():
            members = np.flatnonzero(group == int(np.argmin(common.any(axis=1))))
            raise InputError(
                f"buffers {', '.join(name(int(i)) for i in members[:5])} have one place, "
                "but no memory in common",
                field="homes",
                remedy="allow one memory for all of them",
            )


def _views(given: PackingData) -> None:
    """Refuse views outside of their host, two hosts of a view, and circles."""
    host: dict[int, int] = {}
    joined = Joined[int]()
    for at, view in enumerate(given.views):
        where = f"views[{at}]"
        require_buffers(np.array([view.buffer, view.host]), where, given.n)
        names = given.buffer_id(view.buffer), given.buffer_id(view.host)
        end = view.offset + int(given.size[view.buffer])
        if view.offset < 0 or end > given.size[view.host]:
            raise InputError(
                f"buffer {names[0]} at [{view.offset:,}, {end:,}) is not inside of "
                f"{names[1]}, which has {given.size[view.host]:,} bytes",
                field=where,
                remedy="give 0 <= offset <= size of the host - size of the view",
            )
        if view.buffer in host:
            raise InputError(
                f"buffer {names[0]} has two hosts",
                field=where,
                remedy="make it a view of one, and that one a view of the other",
            )
        if view.buffer == view.host or joined.root(view.buffer) == joined.root(view.host):
            raise InputError(
                f"buffer {names[0]} lies in itself", field=where, remedy="break the circle"
            )
        host[view.buffer] = view.host
        joined.join(view.buffer, view.host)


def lifetimes(
    lives: Iterable[Iterable[tuple[int, int]]], n: int
) -> tuple[list[int], list[int], list[tuple[int, int, int]]]:
    """Return starts, ends and gaps (buffer, start, end) of buffers that are alive several times.

    `lives` has an iterable of [start, end) for each of the n buffers.
    """
    start, end, gaps = [], [], []
    for at, given in enumerate(lives):
        try:
            spans = sorted(
                (integer(a, f"lives[{at}]"), integer(b, f"lives[{at}]")) for a, b in given
            )
        except (TypeError, ValueError):
            raise InputError(
                "is no list of times", field=f"lives[{at}]", remedy="give [(start, end), ...]"
            ) from None
        if not spans or any(a >= b for a, b in spans):
            raise InputError(
                "is empty, or ends before it begins",
                field=f"lives[{at}]",
                remedy="give [(start, end), ...] with start < end",
            )
        start.append(spans[0][0])
        last = spans[0][1]
        for begin, stop in spans[1:]:
            if begin > last:
                gaps.append((at, last, begin))
            last = max(last, stop)
        end.append(last)
    if len(start) != n:
        raise InputError(
            f"has {len(start):,} entries for {n:,} buffers",
            field="lives",
            remedy="give one a buffer",
        )
    return start, end, gaps
