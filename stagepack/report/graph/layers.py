"""A layered drawing of a graph: positions of its nodes, and the paths of its edges.

Layers are lengths of longest paths; nodes with more readers than inputs are placed directly before
their first reader.
The output of a node is drawn as one line from which its readers branch off, with a bend in every
layer that it passes (Sugiyama, Tagawa, Toda 1981).  The backward pass is drawn below in reverse, so
that its nodes are near their forward nodes.  Within layers, points are ordered and placed by the
mean of their neighbours, in repeated sweeps.  If there are many layers, they are broken into rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stagepack.instances.graph import GraphPartition
from stagepack.instances.profile import Array

BENDS = 3  # at most, for each node: the longest lines lose theirs
SWEEPS, FEW_SWEEPS, MANY = 12, 3, 6000  # there and back, the fewer for so many points
ROWS = 16
GAP, PASSES = 1.4, 0.6  # between rows, and between the passes of a row, in nodes
SLIM = 0.45  # room of a bend, where that of a node is 1
FAINT = 0.05  # pull along a piece from a node to a bend, where that between two alike is 1
BETTER = 1.12  # by which nodes grow where there is a further row


class Pieces(NamedTuple):
    """Pieces of lines along which tensors run; all are arrays of int64."""

    # Points that each piece joins.
    begin: Array
    end: Array
    # Node that writes what runs there; the one that reads it, -1 for what runs further.
    writer: Array
    reader: Array
    passed: Array  # bends between the writer and the piece


class Layered(NamedTuple):
    """Points of a drawing, nodes first, then bends; and pieces of lines between them."""

    # (points,): columns from 0 within a row; heights, 1 for a node, growing downwards.
    x: Array
    y: Array
    row: Array  # (points,): where layers are broken as lines of text are: the row of each point
    # As in :class:`Pieces`.
    begin: Array
    end: Array
    writer: Array
    reader: Array
    passed: Array
    # Size of the whole.
    columns: int
    height: float

    def crossing(self, device: Array) -> Array:
        """Return for each piece whether what runs there is read on another device.

        `device`, int64 (nodes,), is that of each node.
        """
        last = np.full(len(device), -1)
        ends = self.reader >= 0
        apart = ends & (device[self.writer] != device[self.reader])
        np.maximum.at(last, self.writer[apart], self.passed[apart])
        return np.where(ends, apart, last[self.writer] > self.passed)

    def lines(self, pieces: Array, steps: int) -> Array:
        """Return lines along pieces, shape (lines, steps + 1, 2); two stubs from row to row.

        `pieces`, int64, are numbers of pieces.
        """
        a, b = self.begin[pieces], self.end[pieces]
        same = self.row[a] == self.row[b]
        places = np.column_stack((self.x, self.y))
        found = [np.column_stack((places[a[same]], places[b[same]]))]
        for point, edge in ((a[~same], self.columns - 0.5), (b[~same], -0.5)):
            x, y = self.x[point], self.y[point]
            found.append(np.column_stack((x, y, x + np.clip(edge - x, -1, 1), y)))
        ends = np.concatenate(found)
        share = np.linspace(0, 1, steps + 1)
        bow = share * share * (3 - 2 * share)
        x = ends[:, :1] + (ends[:, 2:3] - ends[:, :1]) * share
        y = ends[:, 1:2] + (ends[:, 3:] - ends[:, 1:2]) * bow
        return np.stack([x, y], axis=2)


@lru_cache(maxsize=4)
def layered(instance: GraphPartition, width: float, height: float) -> Layered:
    """Return the drawing of a graph that fills a page of some size best.

    `width` and `height` are in any unit.
    """
    edges, backward = np.unique(instance.edges, axis=0), instance.backward
    layer = _layers(edges, backward, backward)
    if _against(edges, backward, instance.colour, layer):
        layer = _layers(edges, backward, np.zeros_like(backward))
    points, owner, pieces = _routed(edges, layer, backward)
    below = backward[owner]
    y = _placed(points, below, pieces, instance.n)
    row, y, columns, total = _rows(points, below, y, width, height)
    return Layered((points - row * columns).astype(float), y, row, *pieces, columns, total)


def _against(edges: Array, backward: Array, colour: Array, layer: Array) -> bool:
    """Return whether edges of the backward pass lead where those of the forward pass do."""
    place = np.full(int(colour.max()) + 2, -1)  # of the forward nodes of a colour; the last: none
    paired = ~backward & (colour >= 0)
    np.maximum.at(place, colour[paired], layer[paired])
    u, v = place[colour[edges[backward[edges].all(axis=1)]]].T
    known = (u >= 0) & (v >= 0)
    return int(np.sign(v - u)[known].sum()) > 0


def _layers(edges: Array, backward: Array, turned: Array) -> Array:
    """Return the layer of each node: the longest path to it, or close to what reads it.

    Among nodes that are `turned`, paths are those against the edges.
    """
    n, back = len(backward), backward[edges]
    after: list[list[int]] = [[] for _ in range(n)]  # within its pass
    across: list[list[int]] = [[] for _ in range(n)]
    waiting, layer = [0] * n, [0] * n
    for (u, v), (start, end) in zip(edges.tolist(), back.tolist(), strict=True):
        if start != end:
            across[u].append(v)
            across[v].append(u)
        else:
            u, v = (v, u) if turned[u] else (u, v)
            after[u].append(v)
            waiting[v] += 1
    before = waiting.copy()
    ready = [v for v in range(n) if not waiting[v]]
    for u in ready:  # each pass is free of circles
        for v in after[u]:
            waiting[v] -= 1
            layer[v] = max(layer[v], layer[u] + 1)
            if not waiting[v]:
                ready.append(v)
    for u in reversed(ready):
        near = [layer[v] - 1 for v in after[u]] or [layer[v] for v in across[u]]
        if len(near) >= before[u]:
            layer[u] = max(layer[u], min(near, default=0))
    return np.array(layer)


def _routed(edges: Array, layer: Array, backward: Array) -> tuple[Array, Array, Pieces]:
    """Return the layer of every point and the node whose output bends there, and the pieces."""
    n, (u, v) = len(layer), edges.T
    way = np.ones(n, dtype=np.int64)
    way[u] = np.where(backward[u] & (layer[v] < layer[u]), -1, 1)
    passed = way[u] * (layer[v] - layer[u]) - 1
    passed[backward[u] != backward[v]] = 0
    length = np.zeros(n, dtype=np.int64)
    np.maximum.at(length, u, passed)
    longest = np.sort(length)
    fitting = longest[np.cumsum(longest) <= BENDS * n]
    length[length > (fitting[-1] if len(fitting) else 0)] = 0
    first = n + np.cumsum(length) - length  # each node's first bend
    owner = np.repeat(np.arange(n), length)
    bend = np.arange(n, n + len(owner))
    step = bend - first[owner]
    routed = (passed > 0) & (passed <= length[u])
    pieces = Pieces(
        np.concatenate(
            (np.where(step > 0, bend - 1, owner), np.where(routed, first[u] + passed - 1, u))
        ),
        np.concatenate((bend, v)),
        np.concatenate((owner, u)),
        np.concatenate((np.full(len(owner), -1), v)),
        np.concatenate((step, np.maximum(passed, 0))),
    )
    points = np.concatenate((layer, layer[owner] + way[owner] * (1 + step)))
    return points, np.concatenate((np.arange(n), owner)), pieces


def _placed(points: Array, backward: Array, pieces: Pieces, n: int) -> Array:
    """Return heights of points, of each pass alone: near their neighbours, none upon another."""
    count = len(points)
    room = np.where(np.arange(count) < n, 1.0, SLIM)
    key = 2 * points + backward
    order = np.argsort(key, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(key[order])) + 1)
    step = points[pieces.end] - points[pieces.begin]
    close = (abs(step) == 1) & (backward[pieces.begin] == backward[pieces.end])
    left = np.where(step > 0, pieces.begin, pieces.end)[close]
    right = np.where(step > 0, pieces.end, pieces.begin)[close]
    ends = left, right
    near = (_near(count, n, *ends[::-1]), _near(count, n, *ends))
    y = np.zeros(count)
    for own in members:
        y[own] = np.cumsum(room[own]) - room[own].sum() / 2
    sweeps = SWEEPS if count <= MANY else FEW_SWEEPS
    for sweep in range(sweeps + 1):
        for which, layers in ((0, members), (1, members[::-1])):
            for own in layers:
                sides = (0, 1) if sweep == sweeps else (which,)
                wanted = _wanted(y, own, [near[side] for side in sides])
                rank = np.argsort(wanted, kind="stable")
                y[own[rank]] = _spaced(wanted[rank], room[own[rank]])
    return y


def _near(count: int, n: int, of: Array, other: Array) -> tuple[Array, Array, Array]:
    """Return the neighbours of each point on one side, as pointers and values, and their pull."""
    ends = np.concatenate(([0], np.cumsum(np.bincount(of, minlength=count))))
    order = np.argsort(of, kind="stable")
    of, other = of[order], other[order]
    return ends, other, np.where((of < n) == (other < n), 1.0, FAINT)


def _wanted(y: Array, own: Array, sides: Sequence[tuple[Array, Array, Array]]) -> Array:
    """Return the mean height of the neighbours of some points; their own where they have none."""
    total, count = np.zeros(len(own)), np.zeros(len(own))
    for ends, other, pull in sides:
        size = ends[own + 1] - ends[own]
        which = np.repeat(np.arange(len(own)), size)
        place = np.arange(int(size.sum())) + np.repeat(ends[own] - (np.cumsum(size) - size), size)
        np.add.at(total, which, pull[place] * y[other[place]])
        np.add.at(count, which, pull[place])
    return np.where(count > 0, total / np.where(count > 0, count, 1), y[own])


def _spaced(wanted: Array, room: Array) -> Array:
    """Return rising heights closest to those wanted (least squares), each with its room."""
    offset = np.cumsum(room) - room / 2
    blocks: list[tuple[float, int]] = []  # mean, size
    for value in (wanted - offset).tolist():
        mean, size = value, 1
        while blocks and blocks[-1][0] >= mean:
            before, others = blocks.pop()
            mean = (before * others + mean * size) / (others + size)
            size += others
        blocks.append((mean, size))
    means, sizes = zip(*blocks, strict=True)
    return np.asarray(np.repeat(means, sizes) + offset)


def _rows(
    points: Array, below: Array, y: Array, width: float, height: float
) -> tuple[Array, Array, int, float]:
    """Return the row and the height of each point, and the size of the whole page."""
    depth = int(points.max()) + 1
    best, found = 0.0, None
    for rows in range(1, min(ROWS, depth) + 1):
        columns = math.ceil(depth / rows)
        row = points // columns
        bands, band = np.unique(2 * row + below, return_inverse=True)
        level = y - _slope(points, y, band)[band] * points
        low, high = np.full(len(bands), np.inf), np.full(len(bands), -np.inf)
        np.minimum.at(low, band, level)
        np.maximum.at(high, band, level)
        tall = high - low + 1
        gaps = np.where(np.diff(bands // 2) > 0, GAP, PASSES)
        starts = np.cumsum(tall) - tall + np.concatenate(([0], np.cumsum(gaps)))
        total = float(starts[-1] + tall[-1])
        cell = min(width / columns, height / total)
        if found is None or cell > BETTER * best:
            best, found = cell, (row, level + (starts - low + 0.5)[band], columns, total)
    assert found is not None
    return found


def _slope(x: Array, y: Array, band: Array) -> Array:
    """Return by how much each band rises from column to column (least squares)."""
    count = np.bincount(band)
    x, y = (a - (np.bincount(band, weights=a) / count)[band] for a in (x, y))
    spread = np.bincount(band, weights=x * x)
    return np.asarray(np.bincount(band, weights=x * y) / np.where(spread > 0, spread, 1))
