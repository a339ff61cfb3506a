"""Branches of ONNX models in memory: what they hold has a place of its own.

The branches of an `If` never run together.  The step of an `If` is stretched to as many as all of
its branches have, one branch after the other, so that buffers of one never meet those of another.
What a branch reads from around it lives through all of these.  What the `If` writes is one buffer,
in each branch from where that writes it, or from its last step on where it only hands on what is
there.  Branches within branches likewise.  Loops stay one step that holds the most that is alive
inside.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.onnx.model import Model
from stagepack.formats.onnx.network import NetworkReader
from stagepack.instances.network import Network
from stagepack.instances.packing.profiled import different

Lives = list[tuple[int, int]]
Columns = Callable[[Network], JsonObject]
"""What makes of a network ids, sizes, start and end of its buffers, a step a block."""


class Row(NamedTuple):
    """A buffer: its name, bytes, and when it lives, in order."""

    name: str
    nbytes: int
    lives: Lives


class Branch(NamedTuple):
    """What a branch holds of its own, its steps, and when each result is there."""

    rows: list[Row]
    steps: int
    results: list[Lives]


def opened(network: Network, reader: NetworkReader, columns: Columns) -> JsonObject:
    """Return `columns` of a network with what its branches hold.

    `reader` made the network.  Branches whose shapes are not known stay one step.
    """
    rows, _ = _rows(network, reader, columns)
    return {
        "ids": different([row.name for row in rows]),
        "size": [row.nbytes for row in rows],
        "start": None,
        "end": None,
        "lives": [row.lives for row in rows],
    }


def _rows(network: Network, reader: NetworkReader, columns: Columns) -> tuple[list[Row], int]:
    """Return the buffers of a network, and its steps."""
    derived = columns(network)
    names = ("ids", "size", "start", "end")
    given = list(zip(*(derived[name] for name in names), strict=True))
    branches = {}
    for at, block in enumerate(network.blocks):
        if block.name in reader.branches:
            try:
                found = [_branch(body, reader, columns) for body in reader.branches[block.name]]
            except InputError:
                continue
            branches[at] = found
    spans = [sum(b.steps for b in branches[at]) if at in branches else 1
             for at in range(len(network.blocks))]  # fmt: skip
    begin = list(accumulate(spans, initial=0))
    rows = {name: Row(name, size, [(begin[s], begin[e])]) for name, size, s, e in given}
    for at, found in branches.items():
        block, first = network.blocks[at], begin[at]
        rows.pop(f"inside {block.name}", None)
        results: list[Lives] = [[] for _ in block.outputs]
        for number, branch in enumerate(found):
            label = ("then", "else")[number] if len(found) > 1 else "inside"
            for row in branch.rows:
                name = f"{label} of {block.name}: {row.name}"
                rows[name] = Row(name, row.nbytes, [(first + s, first + e) for s, e in row.lives])
            for lives, own in zip(results, branch.results, strict=True):
                lives += [(first + s, first + e) for s, e in own]
            first += branch.steps
        for name, lives in zip(block.outputs, results, strict=True):
            if name in rows:
                _, nbytes, whole = rows[name]
                rest = [(first, whole[-1][1])] if whole[-1][1] > first else []
                rows[name] = Row(name, nbytes, _joined([*lives, *rest]))
    return list(rows.values()), begin[-1]


def _joined(lives: Lives) -> Lives:
    """Return intervals in order, those that touch as one."""
    found = lives[:1]
    for start, end in lives[1:]:
        if start == found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _branch(body: Model, outer: NetworkReader, columns: Columns) -> Branch:
    """Return what a branch holds besides what it reads from around it, and its results."""
    reader = outer.inside(body)
    results = [reader.root(name) for name in body.outputs]
    if reader.idle:
        return Branch([], 1, [[(0, 1)] for _ in results])
    network = reader.network()
    rows, steps = _rows(network, reader, columns)
    made = {name for block in network.blocks for name in block.outputs}
    lives = {row.name: row.lives for row in rows if row.name in made}
    kept = [
        row for row in rows
        if row.name not in results and (row.name in made or row.name not in network.tensors)
    ]  # fmt: skip
    return Branch(kept, steps, [lives.get(name, [(steps - 1, steps)]) for name in results])
