"""Proofs that buffers do not fit into a capacity, replayed step by step.

A proof names some buffers and some moments, and refutes even what is left of the instance then:
that these buffers keep apart at these moments.  Everything else (alignment beyond a common one,
places that are given, reserved ranges, banks) only asks for more.  Of what is left, buffers that
conflict with all others are put at the bottom, and sizes are counted in units of their common
divisor.  Then the steps speak of one *canonical* packing within the capacity: one of least sum of
size * offset; among these one of least sum of size^2 * offset; identical buffers as listed.  For
each buffer not yet placed, `low` is what its offset is known to be at least, and `base` the
highest top of its placed neighbours; it is above all of these.

place i   `low` of i is its base, and no unplaced neighbour fits below: i is there, or higher.  Two
          proofs follow, first of i at its base, then of i above it.
lift i    `low` of i exceeds its base, so that it stands on an unplaced neighbour (but not on a
          smaller one of its own moments, nor on a later identical one): not below their least top.
queue i   The identical buffer before i, alive with it at a moment named, is unplaced: i is not
          below its least top.
full t    Of what is unplaced at moment t, some lies above a floor and is too large for the rest.
drop i    `low` of i exceeds its base, where nothing unplaced can be in its way any more.
swap i    i lies directly on a smaller buffer of the same moments.

The last three end a case.  Why each is right: docs/exact-packing.md.  A step costs O(neighbours),
or a sort of what is alive at a moment.  Source: own work.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from stagepack.errors import InputError
from stagepack.files import finite
from stagepack.instances.documents import keys, strict
from stagepack.instances.packing.data import PackingData
from stagepack.instances.packing.words import KIND, Objective
from stagepack.instances.profile import Array
from stagepack.instances.proof import ProofCheck
from stagepack.instances.violation import Violation

MISFIT = "misfit"
"""What `proof` says in a file."""

VERSION = 1

PLACE, LIFT, QUEUE, FULL, DROP, SWAP = range(6)
"""What a step does: step = 6 * number + one of these."""

RULES = "place", "lift", "queue", "full", "drop", "swap"

MOST_BUFFERS = 1024
"""Buffers that steps may speak of; more may be alive at a moment that is overfull by itself."""

MOST_MOMENTS = 4096

MOST_CELLS = 2**24
"""Buffers times moments."""

MOST_STEPS = 10_000_000

AT_ONCE = 1024
"""Steps between two looks at the clock."""

Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Moment = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proof as a file holds it.

    ``buffers`` are ids, and numbers in ``cliques`` and ``steps`` are places in this list; of a
    conflict graph ``cliques`` stand for moments.
    """

    problem: str
    proof: str
    version: int
    instance: str = ""
    capacity: Number
    buffers: list[str | int]
    moments: list[Moment] = []
    cliques: list[list[Number]] = []
    steps: list[Number]


def check_proof(
    instance: PackingData,
    proof: str | Path | Mapping[str, object],
    *,
    time_limit: float | None = None,
) -> ProofCheck:
    """Replay a proof that buffers do not fit into a capacity.

    Parameters
    ----------
    instance : LmemPacking
    proof : path-like or mapping
        A file, or its document.
    time_limit : float, optional
        Seconds to replay it.

    Returns
    -------
    ProofCheck
        A wrong step is part of the answer, never an exception.

    Raises
    ------
    InputError
        For a document that is no proof or speaks of other buffers, for one too large, and once
        time is over.
    """
    until = math.inf if time_limit is None else time.monotonic() + time_limit
    place: str | Path = ""
    if isinstance(proof, Mapping):
        data = msgspec.json.encode(finite(dict(proof)))
    else:
        place, data = os.fspath(proof), strict.load(proof)
    with strict.located(place):
        document = strict.decode(data, Document)
        keys.require_single(data)
        _require_sound(document, instance)
        wrong = _refuted(document, instance, until)
    return ProofCheck(
        instance=instance.name,
        claim=f"no packing within {document.capacity:,} bytes",
        bound=document.capacity + 1,
        steps=len(document.steps),
        violations=wrong,
    )


def _require_sound(document: Document, instance: PackingData) -> None:
    """Refuse what is no proof about this instance at all."""
    for field, said, known in (
        ("problem", document.problem, KIND),
        ("proof", document.proof, MISFIT),
        ("version", document.version, VERSION),
    ):
        if said != known:
            raise InputError(f"is {said!r}, not {known!r}", field=field, remedy="give a proof")
    if instance.objective is Objective.SPILL:
        raise InputError("several memories have no proofs", remedy="give one memory")
    graph = instance.conflicts is not None
    for field, many, most in (
        ("moments", len(document.moments), 0 if graph else MOST_MOMENTS),
        ("cliques", len(document.cliques), MOST_MOMENTS if graph else 0),
        ("steps", len(document.steps), MOST_STEPS),
    ):
        if many > most:
            raise InputError(
                f"{many:,} where {most:,} may be",
                field=field,
                remedy="give a proof of this instance",
            )


def _refuted(document: Document, instance: PackingData, until: float) -> tuple[Violation, ...]:
    """Return what is wrong with the proof, () for nothing."""
    which = _named(document, instance)
    _require_few(len(which), len(document.moments) or len(document.cliques), instance)
    wrong = _together(instance, which)
    if wrong:
        return (Violation("buffers", wrong),)
    if instance.conflicts is None:
        alive = _alive(instance, which, document.moments)
    else:
        alive, wrong = _cliques(document.cliques, instance, which, instance.conflicts, until)
    if wrong:
        return (Violation("cliques", wrong),)
    size, capacity = _rounded(instance, which, document.capacity)
    loads = alive.T.astype(np.float64) @ size.astype(np.float64)
    for t in np.flatnonzero(loads > 0.999 * capacity).tolist():
        if sum(size[alive[:, t]].tolist()) > capacity:
            return ()
    if len(which) > MOST_BUFFERS:
        return (Violation("load", "there is room at all of the moments named"),)
    return Replay(size.tolist(), alive, capacity).run(document.steps, until)


def _require_few(buffers: int, moments: int, instance: PackingData) -> None:
    """Refuse more buffers than are replayed in little memory."""
    most = MOST_CELLS // max(1, moments)
    if instance.conflicts is not None or moments > 1:
        most = min(most, MOST_BUFFERS)
    if buffers > most:
        raise InputError(
            f"{buffers:,} where {most:,} may be", field="buffers", remedy="give a shorter proof"
        )


def _require_time(until: float) -> None:
    if time.monotonic() > until:
        raise InputError("takes longer to replay than the limit", remedy="raise -t")


# ---------------------------------------------------------------------- what is left of an instance


def _named(document: Document, instance: PackingData) -> Array:
    """Return the numbers of the buffers that are named, in order."""
    if instance.ids is None:
        number = {str(i): i for i in range(instance.n)} if document.buffers else {}
    else:
        number = {name: i for i, name in enumerate(instance.ids)}
    found = [number.get(str(name), -1) for name in document.buffers]
    for name, at in zip(document.buffers, found, strict=True):
        if at < 0:
            raise InputError(
                f"no buffer is called {name}", field="buffers", remedy="give its own instance"
            )
    if len(set(found)) < len(found):
        raise InputError("names a buffer twice", field="buffers", remedy="name each once")
    return np.array(found, dtype=np.int64)


def _together(instance: PackingData, which: Array) -> str:
    """Return which of the buffers may overlap, '' if none may."""
    named = set(which.tolist())
    for group in (*instance.in_place, *instance.colocated):
        both = [instance.buffer_id(i) for i in group if i in named]
        if len(both) > 1:
            return f"{both[0]} and {both[1]} may overlap; a proof speaks of one of them at most"
    return ""


def _rounded(instance: PackingData, which: Array, capacity: int) -> tuple[Array, int]:
    """Return sizes rounded up to what all alignments have in common, and a capacity for these.

    Offsets are multiples of it, so that what lies above a buffer begins at one, and no buffer
    lies above the last multiple below the capacity at which it fits.
    """
    size = instance.size[which]
    step = int(np.gcd.reduce(instance.alignment[which])) if len(which) else 1
    wide = [-(-s // step) * step for s in size.tolist()]
    if max(wide, default=0) >= 2**62:
        return size, capacity
    tops = [(capacity - s) // step * step + w for s, w in zip(size.tolist(), wide, strict=True)]
    return np.array(wide, dtype=np.int64), max(tops, default=capacity)


def _alive(instance: PackingData, which: Array, moments: list[int]) -> Array:
    """Return which buffers hold all of their bytes at which moments, shape (buffers, moments)."""
    at, place = np.array(moments, dtype=np.int64), {int(i): row for row, i in enumerate(which)}
    start, end = instance.start[which, None], instance.end[which, None]
    alive = np.zeros((len(which), len(at)), dtype=bool)
    turns = [at] if instance.period is None else [at % instance.period]
    turns += [] if instance.period is None else [turns[0] + instance.period]
    for now in turns:
        alive |= (start <= now) & (now < end)
    for gap in instance.gaps:
        if gap.buffer in place:
            for now in turns:
                alive[place[gap.buffer]] &= (now < gap.start) | (now >= gap.end)
    return alive


def _cliques(
    cliques: list[list[int]], instance: PackingData, which: Array, conflicts: Array, until: float
) -> tuple[Array, str]:
    """Return the members of cliques, shape (buffers, cliques), and two that do not conflict."""
    alive = np.zeros((len(which), len(cliques)), dtype=bool)
    place = np.full(instance.n, -1)
    place[which] = np.arange(len(which))
    one, other = place[conflicts].T
    both = (one >= 0) & (other >= 0)
    apart = ~np.eye(len(which), dtype=bool)
    apart[one[both], other[both]] = apart[other[both], one[both]] = False
    for t, clique in enumerate(cliques):
        _require_time(until)
        if max(clique, default=0) >= len(which):
            raise InputError(
                f"no buffer has number {max(clique)}",
                field="cliques",
                remedy="give places in the list of buffers",
            )
        alive[clique, t] = True
        members = np.flatnonzero(alive[:, t])
        wrong = np.argwhere(apart[np.ix_(members, members)])
        if len(wrong):
            i, j = (instance.buffer_id(int(k)) for k in which[members[wrong[0]]])
            return alive, f"{i} and {j} do not conflict"
    return alive, ""


# ---------------------------------------------------------------------- steps


class _WrongError(Exception):
    """A step that does not follow."""


class Replay:
    """What is known of a canonical packing, step by step.

    Parameters
    ----------
    size : list of int
    alive : ndarray of bool, shape (buffers, moments)
    capacity : int
    """

    def __init__(self, size: list[int], alive: Array, capacity: int) -> None:
        buffers = len(size)
        near = alive.astype(np.float32) @ alive.T.astype(np.float32) > 0
        bottom = near.sum(axis=1) >= buffers - 1 + near.diagonal()
        near &= ~(bottom | np.eye(buffers, dtype=bool))
        left = np.flatnonzero(~bottom).tolist()
        capacity -= sum(size[i] for i in np.flatnonzero(bottom).tolist())
        unit = math.gcd(*(size[i] for i in left)) or 1
        self._capacity = capacity // unit
        self._size = [s // unit for s in size]
        self._near = [np.flatnonzero(row).tolist() for row in near]
        self._members = [np.flatnonzero(column & ~bottom).tolist() for column in alive.T]
        self._life = [row.tobytes() for row in alive]
        self._before = [-1] * buffers
        latest: dict[tuple[int, bytes], int] = {}
        for i in left:
            if not alive[i].any():  # nothing keeps it from its like, or from anything
                continue
            alike = self._size[i], self._life[i]
            self._before[i] = latest.get(alike, -1)
            latest[alike] = i
        self._low, self._base = [0] * buffers, [0] * buffers
        self._placed: list[bool] = bottom.tolist()
        self._at = [-1] * buffers
        self._past: list[tuple[int, int, int]] = []
        self._cases: list[tuple[int, int, bool]] = []  # buffer, rows of the past, whether above
        self._done = capacity < 0

    @property
    def done(self) -> bool:
        """Whether no case is left."""
        return self._done

    def run(self, steps: list[int], until: float) -> tuple[Violation, ...]:
        """Take all steps; return what is wrong with them, () for nothing."""
        for number, step in enumerate(steps):
            if number % AT_ONCE == 0:
                _require_time(until)
            wrong = self.take(step)
            if wrong:
                which, rule = divmod(step, len(RULES))
                return (Violation("step", f"{number:,} ({RULES[rule]} {which}): {wrong}"),)
        if not self._done:
            return (Violation("steps", f"{len(self._cases):,} cases are left open at the end"),)
        return ()

    def take(self, step: int) -> str:
        """Take a step; return why it does not follow, which changes nothing, '' if it does."""
        which, rule = divmod(step, len(RULES))
        rules = self._place, self._lift, self._queue, self._full, self._drop, self._swap
        if self._done:
            return "all was proved before"
        if which >= (len(self._members) if rule == FULL else len(self._size)):
            return "there is none of this number"
        if rule not in (FULL, SWAP) and self._placed[which]:
            return "it is placed"
        try:
            rules[rule](which)
        except _WrongError as wrong:
            return str(wrong)
        return ""

    def _place(self, i: int) -> None:
        low = self._low[i]
        if low > self._base[i]:
            raise _WrongError("it is known to lie above its base")
        waiting = [k for k in self._near[i] if not self._placed[k]]
        if any(self._low[k] + self._size[k] <= low for k in waiting):
            raise _WrongError("an unplaced neighbour may lie below it")
        self._cases.append((i, len(self._past), False))
        self._placed[i], self._at[i] = True, low
        top = low + self._size[i]
        for k in waiting:
            if self._base[k] < top:
                self._change(k, max(self._low[k], top), top)

    def _lift(self, i: int) -> None:
        self._require_above(i)
        life, size = self._life[i], self._size[i]
        tops = [
            self._low[k] + self._size[k]
            for k in self._near[i]
            if not self._placed[k]
            and (self._life[k] != life or self._size[k] > size or (self._size[k] == size and k < i))
        ]
        self._change(i, max(self._low[i], min(tops, default=self._capacity + 1)), self._base[i])

    def _queue(self, i: int) -> None:
        before = self._before[i]
        if before < 0 or self._placed[before]:
            raise _WrongError("no identical buffer before it is unplaced")
        self._change(i, max(self._low[i], self._low[before] + self._size[before]), self._base[i])

    def _full(self, t: int) -> None:
        waiting = [(self._low[k], self._size[k]) for k in self._members[t] if not self._placed[k]]
        above = 0
        for low, size in sorted(waiting, reverse=True):
            above += size
            if low + above > self._capacity:
                return self._close()
        raise _WrongError("what is unplaced there may fit")

    def _drop(self, i: int) -> None:
        self._require_above(i)
        top = self._base[i] + self._size[i]
        if any(self._low[k] < top for k in self._near[i] if not self._placed[k]):
            raise _WrongError("an unplaced neighbour may keep it from its base")
        self._close()

    def _swap(self, i: int) -> None:
        at, size, life = self._at[i], self._size[i], self._life[i]
        if at < 0 or not any(
            0 <= self._at[k] == at - self._size[k]
            and self._size[k] < size
            and self._life[k] == life
            for k in self._near[i]
        ):
            raise _WrongError("it lies on no smaller buffer of its moments")
        self._close()

    def _require_above(self, i: int) -> None:
        if self._low[i] <= self._base[i]:
            raise _WrongError("it may lie at its base")

    def _change(self, i: int, low: int, base: int) -> None:
        self._past.append((i, self._low[i], self._base[i]))
        self._low[i], self._base[i] = low, base

    def _close(self) -> None:
        """End the case at hand, and all that end with it."""
        while self._cases:
            i, rows, above = self._cases.pop()
            while len(self._past) > rows:
                k, self._low[k], self._base[k] = self._past.pop()
            if not above:
                self._placed[i], self._at[i] = False, -1
                self._cases.append((i, rows, True))
                self._change(i, self._low[i] + 1, self._base[i])
                return
        self._done = True
