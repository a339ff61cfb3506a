"""Edges between stages as kernels take them; the cache of compiled code looks at this file."""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array


class Edges(NamedTuple):
    """The edges of each stage; int64 arrays.

    Attributes
    ----------
    first, stage, lag : ndarray, shape (p + 1,), (edges,), (edges,)
        Those of stage s, first[s] .. first[s + 1] - 1: the other stage, and the latency that
        counts.
    """

    first: Array
    stage: Array
    lag: Array
