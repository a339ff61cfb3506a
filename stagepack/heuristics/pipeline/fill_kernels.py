"""Greedy filling of devices, plain for few of them and compiled for many.

It is the probe of :mod:`.bisect`: each stage extends as far as the limit and the memory allow.
Cost: O(k log n).  Source: see there.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled


def fill(
    limit: int, prefix: Array, reach: Array, classes: Array, fewer: bool, found: Array
) -> tuple[int, int]:
    """Fill devices in order, each to at most `limit` ticks and as far as it reaches.

    Parameters
    ----------
    limit : int
        Ticks.
    prefix : ndarray of int64, shape (classes, spans + 1)
        Running sums of compute up to each allowed cut.
    reach : ndarray of int64, shape (classes, spans)
        Furthest end of a stage that begins at each allowed cut but the last.
    classes : ndarray of int64, shape (k,)
        Class of each device.
    fewer : bool
        Devices may stay unused.
    found : ndarray of int64, shape (2, k)
        Written: end and device of each stage, of which a device has one at most.

    Returns
    -------
    most, stages : int
        The largest compute and the number of stages; most is -1 when something is left over.
    """
    spans, k = reach.shape[1], len(classes)
    at, stages, most = 0, 0, 0
    for device in range(k):
        if at == spans:
            break
        c = classes[device]
        end = np.searchsorted(prefix[c], prefix[c, at] + limit, side="right") - 1
        end = min(end, reach[c, at])
        # A span is left for each of the devices after this one.
        if not fewer:
            end = min(end, spans - (k - 1 - device))
        # A device that nothing fits stays unused, where that is allowed.
        if end > at:
            most = max(most, prefix[c, end] - prefix[c, at])
            found[0, stages], found[1, stages] = end, device
            stages += 1
            at = end
        elif not fewer:
            return -1, stages
    if at < spans or not (fewer or stages == k):
        return -1, stages
    return most, stages


fill_many = compiled(fill)
""":func:`fill` as machine code, which is faster for many devices only."""
