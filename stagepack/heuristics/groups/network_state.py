"""The arrays and integers by which compiled kernels represent networks and chips.

An *edge* is an input of an operator; those of operator k are ``edge[k]`` to ``edge[k + 1]``.
Axes are n, c, d, h, w.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array

N, C, D, H, W, WIDTH, READERS = range(7)
"""Columns of tensors: values along each axis, bytes of a value, and how many operators read it, one
more where it is a result of the network."""

READ = 5
"""Column of edges: the tensor; those before say on which axes all of it is read in any case."""

CHANNELS, VALUES, VALUE_BYTES, GIVEN_BYTES = range(4)
"""Columns of weights: values are those of a channel; bytes of a lane may be given, else -1."""

FIRST_EDGE, END_EDGE, FIRST_WEIGHT, END_WEIGHT, MODEL, TURNS, TIMES, PER, TALL, WIDE = range(10)
"""Columns of operators: edges and weights, how cycles follow from a part (`GIVEN`, ...), how often
planes are gone over and the cycles of a value in one as a fraction, rows and columns to count
instead of the part's (0: the part's)."""
BUFFER, IN_PLACE, EVEN, ALONE = range(10, 14)
"""Columns of operators: bytes of its working buffer, whether it may write over its first input,
whether parts must begin and end where something is repeated anew, whether it is in no group."""
CUTTABLE, WAY, KERNEL, STRIDE, BEFORE = 14, 19, 20, 21, 22
"""Columns of operators: whether it can be cut along each of five axes; and along H the way (`SAME`,
...), kernel or factor, stride, rows before."""
WINDOW_COLUMNS = 4
"""Columns from those of the way along H to those of the way along W."""

SAME, WINDOW, TRANSPOSED, REPEATED, LINEAR, CUBIC = range(6)
"""How rows that are read follow from rows that are written; of the last two kernel, stride and rows
before are step, unit and shift of a grid."""

GIVEN, PLANES, MATRIX = range(3)
"""How cycles follow from a part: see :func:`.group_kernels.compute`."""


class Network(NamedTuple):
    """Operators and tensors (those that operators write first, then inputs), by columns.

    Few arrays, since kernels take long to compile where they are given many.
    """

    # int64 (n, 27): from `FIRST_EDGE` to `BEFORE`, the last four for columns as well as for rows.
    operators: Array
    tensors: Array  # int64 (tensors, 7): from `N` to `READERS`
    edges: Array  # int64 (edges, 6): up to `READ`
    weights: Array  # int64 (weights, 4): from `CHANNELS` to `GIVEN_BYTES`


class Machine(NamedTuple):
    """A chip, and what groups may be, in integers; rates and the overlap as fractions."""

    lanes: int
    memory: int
    eu_bytes: int
    load: tuple[int, int]
    store: tuple[int, int]
    load_latency: int
    store_latency: int
    startup: int
    overlap: tuple[int, int]
    cores: int
    limit: tuple[int, int]
    """Rows that may be read again, as a part of all; (-1, 1): any."""
