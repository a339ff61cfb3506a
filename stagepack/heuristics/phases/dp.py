"""Exact search over boundaries for one number of I/O tiles and one microbatch size.

Phases depend on each other in two ways only.  First, bytes that a group keeps on the chip occupy
memory in all phases between its forward and its backward phase, which are those of all later
groups.  Second, a phase that loads the variables of the next phase ahead hides cycles of it: F_j
those of F_{j+1} and, on the way back, B_{j+1} those of B_j; this couples neighbouring groups.  A
label (last option, bytes kept, cycles) at a boundary is therefore all that later groups depend on.
Of labels that are equal in what couples them, those with more bytes and no fewer cycles are
dropped; so are labels that cannot improve the best known plan, given the cycles that the rest needs
when nothing is kept.

If nothing is kept and nothing is loaded ahead, one label per boundary remains, and the method is
the interval dynamic program, O(n * longest feasible group).  Source: own work; label setting as for
shortest paths with resources.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.options import OptionTable
from stagepack.heuristics.phases.ranges_kernels import frontier
from stagepack.instances.profile import Array


def rest(table: OptionTable, keep_going: Callable[[], bool] = lambda: True) -> Array:
    """Return at least how many cycles the layers from each boundary on need, shape (n + 1,).

    Exact where nothing is kept and nothing loaded ahead: then what a group costs does not depend on
    the others.  2**62 where no groups lead to the end; `keep_going` is asked now and then, and may
    raise.  O(options).
    """
    n, tuning = table.n, table.costs.tuning
    often = tuning.options.layers_at_once
    least = np.full(n + 1, UNLIMITED, dtype=np.int64)
    least[n] = 0
    # What may be hidden of a group: all its variables, but not those of the first phase.
    hideable = table.hide_first + table.hide_last if table.prefetch else 0
    later = table.time - hideable
    for first in range(n - 1, -1, -1):
        if first % often == often - 1:
            spend(tuning.prices.look_price * often)
            keep_going()
        low, high = table.start[first], table.start[first + 1]
        if low == high:
            continue
        cycles = later[low:high]
        if table.prefetch and first == 0:
            cycles = cycles + table.hide_first[low:high]
        least[first] = min(UNLIMITED, int((cycles + least[table.end[low:high]]).min()))
    return least


def search(
    table: OptionTable,
    least: Array,
    upper: int = UNLIMITED,
    *,
    keep_going: Callable[[], bool] = lambda: True,
) -> list[int] | None:
    """Return the options of the best plan of fewer than `upper` cycles, in order; None if none.

    `least` is from :func:`rest`.  When `keep_going`, asked now and then, says no the answer is
    None.
    """
    n = table.n
    if least[0] >= upper:
        return None
    # Labels: parallel lists of arrays by boundary; the one at 0 stands for no group at all.
    part = table.costs.tuning.options.pairs_at_once
    waiting = [_Waiting(table.prefetch, part) for _ in range(n + 1)]
    option, kept, cycles, parent = (
        np.array([-1]),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.array([-1]),
    )
    labels: list[tuple[Array, Array]] = []  # (option, parent), for the way back
    offset = 0
    for boundary in range(n + 1):
        if not keep_going():
            return None
        if boundary:
            if not waiting[boundary].size:
                continue
            option, kept, cycles, parent = waiting[boundary].take()
        labels.append((option, parent))
        numbers = np.arange(offset, offset + len(option))
        offset += len(option)
        if boundary == n:
            break
        labels_here = (option, kept, cycles, numbers)
        if not _extend(table, boundary, labels_here, least, upper, waiting, keep_going):
            return None
    else:
        return None
    best = int(np.argmin(cycles))
    number = int(numbers[best])
    options, parents = (np.concatenate(parts) for parts in zip(*labels, strict=True))
    chosen = []
    while parents[number] >= 0:
        chosen.append(int(options[number]))
        number = int(parents[number])
    return chosen[::-1]


def _extend(
    table: OptionTable,
    boundary: int,
    labels: tuple[Array, Array, Array, Array],
    least: Array,
    upper: int,
    waiting: list[_Waiting],
    keep_going: Callable[[], bool],
) -> bool:
    """Add to `waiting`, by boundary, what follows `labels`; return whether there was time.

    Labels, option, kept, cycles and number of each, are at `boundary`; plans must beat `upper`.
    `least` is from :func:`rest`; `keep_going` is asked between blocks of pairs.
    """
    tuning = table.costs.tuning
    prices = tuning.prices
    option, kept, cycles, numbers = labels
    low, high = table.start[boundary], table.start[boundary + 1]
    rows = np.arange(low, high)
    following = least[table.end[low:high]]
    if table.prefetch:
        # The next group may yet hide these cycles, on the way back.
        following = following - table.hide_last[low:high]
    size = max(1, tuning.options.pairs_at_once // max(1, high - low))
    spend(5 * prices.look_price + prices.read_price * len(option) * (high - low))
    for block in range(0, len(option), size):
        if block and not keep_going():
            return False
        chunk = slice(block, block + size)
        total = cycles[chunk, None] + table.time[None, low:high]
        if table.prefetch and boundary:
            total -= hidden(table, option[chunk], kept[chunk], rows)
        fits = kept[chunk, None] + table.need[None, low:high] <= table.capacity
        promising = fits & (total + following < upper)
        came, went = np.nonzero(promising)
        ends = table.end[low + went]
        order = np.argsort(ends, kind="stable")
        came, went, ends = came[order], went[order], ends[order]
        cuts = np.flatnonzero(np.diff(ends)) + 1
        spend(prices.look_price * (len(cuts) + 1) + prices.met_price * len(ends))
        for part in np.split(np.arange(len(ends)), cuts):
            if len(part):
                i, j = came[part], went[part]
                waiting[ends[part[0]]].add(
                    rows[j],
                    kept[chunk][i] + table.kept[low + j],
                    total[i, j],
                    numbers[chunk][i],
                )
    return True


class _Waiting:
    """Labels (option, kept, cycles, parent) at a boundary not yet reached; the best of them."""

    def __init__(self, by_option: bool, part: int) -> None:
        self.by_option, self._part = by_option, part
        self.size, self._limit = 0, part
        self._parts: list[tuple[Array, ...]] = []

    def add(self, *labels: Array) -> None:
        """Add labels; when there are many, leave out those that others beat."""
        self._parts.append(labels)
        self.size += len(labels[0])
        if self.size > self._limit:
            self._parts = [self.take()]
            self.size = len(self._parts[0][0])
            self._limit = self._part + 2 * self.size

    def take(self) -> tuple[Array, ...]:
        """Return the labels that no other one beats, and forget all."""
        option, kept, cycles, parent = (
            np.concatenate(parts) for parts in zip(*self._parts, strict=True)
        )
        self._parts, self.size = [], 0
        state = option if self.by_option else np.zeros_like(option)
        stays = frontier(state, kept, np.lexsort((kept, cycles, state)))
        return option[stays], kept[stays], cycles[stays], parent[stays]


def hidden(table: OptionTable, before: Array, kept: Array, after: Array) -> Array:
    """Return the cycles that prefetching hides between neighbouring groups, int64 (p, q).

    It costs memory alone, so that every phase loads ahead for which the next one's variables fit.
    `before` and `kept`, int64 (p,), are an option, and the bytes kept by it and all groups before
    it; `after`, int64 (q,), options of the next group.
    """
    # Forward: the earlier group's forward phase loads for the later group's first phase.
    room = table.capacity - (table.need_first[before] + kept - table.kept[before])
    forward = np.where(
        table.shards[None, after] <= room[:, None],
        np.minimum(table.hide_first[None, after], table.free_first[before, None]),
        0,
    )
    # On the way back: the later group's last phase loads for the earlier group's backward phase.
    burden = table.need_last[None, after] + (kept + table.shards[before])[:, None]
    backward = np.where(
        burden <= table.capacity,
        np.minimum(table.hide_last[before, None], table.free_last[None, after]),
        0,
    )
    return np.asarray(forward + backward)
