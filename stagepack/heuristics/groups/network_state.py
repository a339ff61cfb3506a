"""Networks and chips as compiled kernels know them: arrays and integers, and what they mean.

An *edge* is an input of an operator; those of operator k are ``edge[k]`` to ``edge[k + 1]``.
Axes are n, c, d, h, w.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array

SAME, WINDOW, TRANSPOSED, REPEATED = range(4)
"""How rows that are read follow from rows that are written."""

GIVEN, DENSE, LANES, MATRIX = range(4)
"""How cycles follow from a part: see :func:`.group_kernels.compute`."""


class Network(NamedTuple):
    """Operators and tensors (those that operators write first, then inputs).

    Attributes
    ----------
    size : ndarray of int64, shape (tensors, 5)
    width : ndarray of int64, shape (tensors,)
        Bytes of a value.
    readers : ndarray of int64, shape (tensors,)
        How many operators read it, and one more where it is a result of the network.
    edge : ndarray of int64, shape (n + 1,)
    read : ndarray of int64, shape (edges,)
        The tensor of each edge.
    whole : ndarray of bool, shape (edges, 5)
        Whether all of it is read on an axis, whatever part is written.
    window : ndarray of int64, shape (n, 2, 4)
        Along H and W: the way (`SAME`, ...), and kernel, stride, rows before; or the factor.
    even : ndarray of bool, shape (n,)
        Whether parts must begin and end where something is repeated anew.
    cuttable : ndarray of bool, shape (n, 5)
    alone : ndarray of bool, shape (n,)
    model, taps : ndarray of int64, shape (n,)
        How cycles follow from a part, and the factor that does not depend on it.
    spread : ndarray of int64, shape (n, 2)
        Rows and columns to count instead of the part's; 0: the part's.
    weight : ndarray of int64, shape (n + 1,)
        Weights of operator k are weight[k] to weight[k + 1].
    weights : ndarray of int64, shape (weights, 4)
        Channels, values a channel, bytes of a value, given bytes in every lane or -1.
    buffer : ndarray of int64, shape (n,)
    in_place : ndarray of bool, shape (n,)
    """

    size: Array
    width: Array
    readers: Array
    edge: Array
    read: Array
    whole: Array
    window: Array
    even: Array
    cuttable: Array
    alone: Array
    model: Array
    taps: Array
    spread: Array
    weight: Array
    weights: Array
    buffer: Array
    in_place: Array


class Machine(NamedTuple):
    """A chip, and what groups may be, in integers; rates and the overlap as fractions."""

    lanes: int
    memory: int
    eu_bytes: int
    pixels: int
    load: tuple[int, int]
    store: tuple[int, int]
    load_latency: int
    store_latency: int
    startup: int
    overlap: tuple[int, int]
    cores: int
    limit: tuple[int, int]
    """Rows that may be read again, as a part of all; (-1, 1): any."""
