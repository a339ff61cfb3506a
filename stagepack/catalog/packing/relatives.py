"""Relatives of perfect packings: slightly changed, to be packed into their load.

Whether they fit is not known from their construction, and hardly any space is free.  For some that
are hard or open, ``benchmarks/hard_packings`` has the lowest placements known.
"""

from __future__ import annotations

import numpy as np

from stagepack.catalog.packing import dissections
from stagepack.errors import InputError
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.problem import Objective

FAMILIES = {"planted": dissections.planted, "pinwheel": dissections.pinwheel}


def relative_of(of: str, buffers: int, changes: int, seed: int, number: int) -> LmemPacking:
    """Return a relative of a packing cut from a rectangle, or of the buffers of a file.

    `of` is one of `FAMILIES`, cut into so many `buffers`, or a CSV file, of whose relatives of this
    `seed` `number` says which.  `changes` are those of :func:`relative`.
    """
    if of not in FAMILIES:
        from stagepack.formats import door

        given = door.read(of, kind="lmem-packing")
        if given.conflicts is not None or given.period is not None:
            remedy = "give one whose buffers have a start and an end"
            raise InputError("holds conflicts or a period", field="of", file=of, remedy=remedy)
        return relative(given, changes, np.random.default_rng([seed, number]))
    instance = FAMILIES[of](buffers, seed, peak=2**20)
    found = relative(instance, changes, np.random.default_rng([seed, changes]))
    return found.replace(name=f"relative-{of}-{buffers}-{changes}")


def relative(instance: LmemPacking, changes: int, random: np.random.Generator) -> LmemPacking:
    """Return an instance with so many `changes`, drawn by `random`, to be fitted into its load.

    A change moves a size by a granule or an end by a step of time, or swaps two sizes.
    """
    size, end = instance.size.copy(), instance.end.copy()
    granule = int(np.gcd.reduce(size))
    moments = np.unique(np.concatenate([instance.start, instance.end]))
    done = 0
    while done < changes:
        i, j = random.integers(instance.n, size=2)
        kind, sign = random.integers(3), random.choice([-1, 1])
        before = size[i], end[i]
        if kind == 0:
            size[i] = max(granule, size[i] + granule * sign)
        elif kind == 1:
            at = np.clip(np.searchsorted(moments, end[i]) + sign, 0, len(moments) - 1)
            end[i] = moments[at] if moments[at] > instance.start[i] else end[i]
        else:
            size[i], size[j] = size[j], size[i]
        done += before != (size[i], end[i])
    changed = instance.replace(size=size, end=end)
    return changed.replace(capacity=highest_load(changed), objective=Objective.FIT)


def highest_load(instance: LmemPacking) -> int:
    """Return the largest sum of sizes alive at one time."""
    at = np.concatenate([instance.end, instance.start])  # what ends makes room first
    change = np.concatenate([-instance.size, instance.size])
    return int(np.cumsum(change[np.argsort(at, kind="stable")]).max())
