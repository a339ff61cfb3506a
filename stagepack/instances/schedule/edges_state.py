"""Edges between stages as kernels take them; the cache of compiled code looks at this file."""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array


class Edges(NamedTuple):
    """The edges of stage s are first[s] .. first[s + 1] - 1: the other stage, and the latency that
    counts; int64, shapes (p + 1,), (edges,), (edges,).
    """

    first: Array
    stage: Array
    lag: Array
