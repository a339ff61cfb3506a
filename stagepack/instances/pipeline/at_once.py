"""What is asked of a whole chain at once, by array operations: reaches, memory, least values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stagepack.instances.pipeline.data import SharedBytes
from stagepack.instances.profile import Array

MANY_LAYERS = 100_000
"""From there on a compiled pass finds what fits, which needs no table."""
CELLS = 2_000_000  # entries of a table between two pauses
Changes = tuple[Array, Array, Array]
"""Of ranges: where they begin, where they end, and by how much they differ from those before."""
FEW = 1000  # values, sooner looked at than sifted


def furthest_fit(per_layer: Array, peak: Array, capacity: int) -> Array:
    """Return, shape (n,), the greatest end by start of what fits a `capacity`; else the start.

    A range holds the sum of its `per_layer` and the most of its `peak`, bytes of shape (n,).  By
    bisection for all starts at once; range maxima come from a sparse table.  O(n log n).
    """
    n = len(per_layer)
    prefix = np.concatenate([[0], np.cumsum(per_layer)])
    starts = np.arange(n)
    if not peak.any():
        ends = np.searchsorted(prefix, prefix[:-1] + capacity, side="right") - 1
        return np.asarray(ends)
    levels = [peak]
    while 2 ** len(levels) <= n:
        step = 2 ** (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-step], levels[-1][step:]))
    # Lengthen every range by descending powers of two while it still fits.
    ends, top = starts.copy(), np.zeros(n, dtype=np.int64)
    for level in range(len(levels) - 1, -1, -1):
        further = ends + 2**level
        may = further <= n
        highest = np.where(may, levels[level][np.minimum(ends, len(levels[level]) - 1)], 0)
        highest = np.maximum(top, highest)
        fits = may & (prefix[np.minimum(further, n)] - prefix[starts] + highest <= capacity)
        ends = np.where(fits, further, ends)
        top = np.where(fits, highest, top)
    return ends


def smallest(values: Array, count: int) -> Array:
    """Return the `count` least values, in no order; a few of many are soon found.

    One of every block of values is among those looked at closely, so that they are enough.
    """
    few = values
    if len(values) > FEW:
        blocks = values[: len(values) // count * count].reshape(count, -1)
        few = values[values <= blocks.min(axis=1).max()]
    return np.asarray(np.partition(few, count - 1)[:count])


def peaks(per_layer: Array) -> Array:
    """Return, shape (n + 1, n + 1), the most of any layer of [a, b).  O(n^2)."""
    n = len(per_layer)
    found = np.zeros((n + 1, n + 1), dtype=np.int64)
    found[:n, 1:] = per_layer[None, :]
    found[:n, 1:][np.tri(n, k=-1, dtype=bool)] = 0
    np.maximum.accumulate(found, axis=1, out=found)
    return found


def blocks(n: int, pause: Callable[[], object]) -> Iterator[slice]:
    """Yield rows of a table of all ranges, as many as soon are written; `pause` before each."""
    for first in range(0, n + 1, at_once := 1 + CELLS // (n + 1)):
        pause()
        yield slice(first, min(first + at_once, n + 1))


def held_once(shared: SharedBytes, n: int, pause: Callable[[], object] = lambda: None) -> Array:
    """Return, shape (n + 1, n + 1), the bytes of the keys that [a, b) uses, each once.

    Of differences between the ranges that contain a use but not the previous one; O(n^2 + uses).
    `pause` is called now and then.
    """
    return _summed([_uses(shared)], n, pause)


def held_in_part(shared: SharedBytes, n: int, pause: Callable[[], object] = lambda: None) -> Array:
    """Return, shape (n + 1, n + 1), the bytes of keys that [a, b) uses as other layers do, too.

    `shared`, `n` and `pause` are as :func:`held_once` takes them.
    """
    order = np.lexsort((shared.layer, shared.key))
    key, layer = shared.key[order], shared.layer[order]
    first = layer[np.flatnonzero(np.diff(key, prepend=-1))]
    last = layer[np.flatnonzero(np.diff(key, append=-1))]
    nbytes = shared.nbytes[np.unique(key)]
    # All of them are in the ranges with a <= first and last < b.
    whole = np.zeros_like(first), last + 1, -nbytes
    return _summed([_uses(shared), whole, (first + 1, last + 1, nbytes)], n, pause)


def _uses(shared: SharedBytes) -> Changes:
    """Return by how much the bytes of used keys change from one range to the next."""
    nbytes, after = shared.nbytes[shared.key], shared.layer + 1
    # A use at layer l adds its key to the ranges with previous < a <= l < b.
    begins = np.concatenate([shared.previous() + 1, after])
    return begins, np.tile(after, 2), np.concatenate([nbytes, -nbytes])


def _summed(changes: Sequence[Changes], n: int, pause: Callable[[], object]) -> Array:
    """Return, shape (n + 1, n + 1), the running sums of changes along both axes."""
    begins, ends, amounts = map(np.concatenate, zip(*changes, strict=True))
    order = np.argsort(begins, kind="stable")
    first = np.searchsorted(begins[order], np.arange(n + 2))
    found, row = np.empty((n + 1, n + 1), dtype=np.int64), np.zeros(n + 2, dtype=np.int64)
    for rows in blocks(n, pause):
        for a in range(rows.start, rows.stop):
            here = order[first[a] : first[a + 1]]
            np.add.at(row, ends[here], amounts[here])
            if len(here) or not a:
                np.cumsum(row[:-1], out=found[a])
            else:
                found[a] = found[a - 1]
    return found


def first_uses(shared: SharedBytes, n: int) -> Array:
    """Return, shape (n + 1,), the first use of a shared key at each layer or after it."""
    first = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(shared.layer, minlength=n), out=first[1:])
    return first


def next_of(fixed_cuts: Sequence[int], n: int) -> Array:
    """Return, shape (n,), the first fixed cut after each layer, or n: stages end there at last."""
    if not fixed_cuts:
        return np.full(n, n, dtype=np.int64)
    fixed = np.array([*fixed_cuts, n], dtype=np.int64)
    return np.asarray(fixed[np.searchsorted(fixed, np.arange(n), side="right")])


def needs_kernels(shared: SharedBytes, n: int) -> bool:
    """Whether memory is looked up by the compiled kernel: shared keys, or very many layers."""
    return bool(len(shared.layer)) or n >= MANY_LAYERS
