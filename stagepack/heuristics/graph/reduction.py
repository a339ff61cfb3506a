"""Reduction: blocks that do not affect any cost are tied to a neighbour, which leaves fewer ideals.

A block v is *idle* when it takes no time and no bytes on any device; bytes count only if devices
could run out of them.  It is tied to u if u is its only direct predecessor, or its only direct
successor, or v has neither, and if u is also a member of every net of v.  If sent and received
bytes count separately, v must not send a net to blocks other than u.

Proof that the optimum does not change: take any partition and move v to the stage of u.  If u is
the only predecessor of v, then the successors of v are not before the stage of u either, so the
order of stages remains valid; the same holds for a successor.  The work of u's stage does not grow.
A net of v has u as a member, so it touches no stage that it did not touch before, and does not cost
more: under `sum` each stage that it touches pays for it if there are several; if directions count
separately, u's stage sends or receives what it did before, since v only sent what u reads.  If v
was alone in its stage, this stage disappears; the stages before it then stash at most as much as
before, and one more device is unused.  For this reason nothing is tied if every device must be
used.  Conversely, each partition of the remaining blocks becomes one of all blocks by putting v
into the stage of u.

Cost: O(edges + members of nets).  Source: ours.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.graph.compact import Compact
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array


def hosts(compact: Compact, light: int = 0) -> Array:
    """Return for each block the one that it follows: itself where it counts.

    O(edges + members of nets) for the whole.  `light` is as for :func:`idle`.
    """
    if compact.exact_stages:
        return np.arange(compact.blocks)
    return _Following(compact, idle(compact, light)).hosts()


def idle(compact: Compact, light: int = 0) -> Array:
    """Return which blocks take neither time nor bytes that matter.

    Blocks of no time with at most `light` bytes count as if they had none.
    """
    found: Array = np.logical_not(compact.time.any(axis=(0, 1)))
    if compact.objective == Objective.REPLICATED:
        found &= compact.parameters == 0
    held = most_held(compact)
    if compact.objective == Objective.MEMORY or int(held.sum()) > compact.class_memory.min():
        found &= held <= light
    return found


def most_held(compact: Compact) -> Array:
    """Return the bytes of each block with all microbatches that can be in flight."""
    held: Array = compact.size + min(compact.microbatches, compact.devices) * compact.stash
    return held


class _Following:
    """Lets idle blocks follow neighbours, one after the other."""

    def __init__(self, compact: Compact, some: Array) -> None:
        self._idle = some
        self._host = np.arange(compact.blocks)
        self._directed = compact.objective in (Objective.OVERLAP, Objective.REPLICATED)
        self._before = _sets(compact.before_ptr, compact.before) if some.any() else []
        self._after = _sets(compact.after_ptr, compact.after) if some.any() else []
        self._nets = _sets(compact.of_ptr, compact.of_net) if some.any() else []
        self._members = _sets(compact.net_ptr, compact.net) if some.any() else []
        self._producer = compact.net[compact.net_ptr[:-1]].tolist()

    def hosts(self) -> Array:
        """Return the host of each block."""
        waiting, gone = np.flatnonzero(self._idle).tolist(), []
        while waiting:
            v = waiting.pop()
            u = self._leader(v) if self._host[v] == v else -1
            if u >= 0:
                near = self._before[v] | self._after[v] | {u}
                self._follow(v, u)
                gone.append(v)
                waiting += [w for w in near if self._idle[w]]
        for v in reversed(gone):
            self._host[v] = self._host[self._host[v]]
        return self._host

    def _leader(self, v: int) -> int:
        """Return a block that v can follow, or -1."""
        before, after, nets = self._before[v], self._after[v], self._nets[v]
        for side in (before, after):
            if len(side) == 1:
                (u,) = side
                if all(self._shared(t, u, v) for t in nets):
                    return u
        if not before and not after and nets:
            near = self._members[next(iter(nets))] - {v}
            return next((u for u in near if all(self._shared(t, u, v) for t in nets)), -1)
        return -1

    def _shared(self, t: int, u: int, v: int) -> bool:
        """Whether net t of v is one of u, too, and costs no more when v is where u is."""
        members = self._members[t]
        sends = self._directed and self._producer[t] == v and len(members) > 2
        return u in members and not sends

    def _follow(self, v: int, u: int) -> None:
        """Let block v be where block u is, which takes over its edges and nets."""
        self._host[v] = u
        for mine, theirs in ((self._before, self._after), (self._after, self._before)):
            for w in mine[v]:
                theirs[w].discard(v)
                if w != u:
                    theirs[w].add(u)
                    mine[u].add(w)
        for t in self._nets[v]:
            self._members[t].discard(v)
            if len(self._members[t]) == 1:
                self._nets[u].discard(t)


def _sets(first: Array, entries: Array) -> list[set[int]]:
    """Return the entries of each owner as a set."""
    return [set(part.tolist()) for part in np.split(entries, first[1:-1])]
