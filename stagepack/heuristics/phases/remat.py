"""Recomputation within one group, at most once per layer: labels along the layers, exact or a beam.

Layers are processed from the first to the last.  At layer l, the memory of its forward and of its
backward pass is known, because both depend only on the layers before:

- **kept** layers: their bytes are part of the label;
- **open** layers are dropped and will be recomputed just before the backward pass of layer l or of
  a later one, so their outputs are available at l.  When an open layer is *closed* at l, it is
  recomputed before l, and its inputs must be available;
- **closed** layers are not available.  If a later backward pass, or a layer that is closed later,
  reads the output of one, the copy of the forward pass is *retained* from there on, like a kept
  one.

A state is the set of open layers and the set of closed layers that may still be read.  Its labels
are the non-dominated pairs (bytes kept, cycles recomputed).  Layers are closed only when something
reads them, since later recomputation needs less memory, with one exception.  A layer recomputed
from a retained output before it is read frees that output earlier, at the cost of its own output;
charging the smaller of the two is safe.  Not counted are the moments during recomputation, except
for a layer just before its own backward pass, and the bytes of retained outputs in the forward
part after their last reader there.  The labels therefore give a bound on every plan.  The plan that
belongs to it is often feasible, and then optimal.

Labels that cannot lead to a better plan than the best known one are dropped.  The least remaining
cycles are those of the same problem without skip connections, where a state is the length of the
open run, for every number of kept bytes (:func:`.remat_kernels.complete`); a part of a run may
continue alone, from a retained output.  If there are too many labels, the least promising are
dropped, and the smallest of their bounds limits the bound on the result.

Cost: O(layers * longest run * room) for the remaining cycles; the states, and so the labels of an
exact search, are exponentially many at worst.  Source: own work; label setting as for shortest
paths with resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.phases import remat_kernels
from stagepack.heuristics.phases.remat_kernels import UNREACHED, Completions, Figures
from stagepack.heuristics.phases.tuning import TUNING, PhasesTuning
from stagepack.instances.phases.data import Policy
from stagepack.instances.profile import Array

NONE = 2**61
"""Cycles of no plan."""
KEPT, OPEN, OWN = range(3)


class Group(Protocol):
    """One step of a group that holds all layers: figures as the labels need them."""

    # Layers; bytes for what is live, the base and x_0 taken off.
    n: int
    room: int
    # Bytes of x_0 ... x_n, of tapes and of working memory; cycles.
    x: list[int]
    tape: list[int]
    temporary: list[int]
    forward: list[int]
    readers: list[list[int]]  # by tensor; none of a tensor without bytes
    products: list[int]  # bytes that the backward part needs of each layer
    # Bytes of gradients alive during the backward pass of each layer, and just before it.
    gradients: list[int]
    gradients_before: list[int]
    allowed: dict[Policy, bool]  # by policy


@dataclass(frozen=True)
class Found:
    """What a search found."""

    again: int  # cycles computed again by the labels' best plan, `NONE` without one
    dropped: tuple[int, ...]  # the layers computed again in it
    recompute: tuple[tuple[int, ...], ...]  # the layers computed again before each backward layer
    # Cycles computed again by any plan of less than the `upper` given; `NONE`: there is none.
    bound: int
    complete: bool  # whether no label was left out that might have told more


def layers_of(mask: int) -> Iterator[int]:
    """Return the members of a set of layers, rising."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Labels:
    """Labels along the layers of one group; see the module.

    Nothing in the group may be paged, and its `room` must not be below 0.  With `retaining` the
    output of a layer that is computed again may be retained until then; without, sequences are
    canonical, and exact but for the moments at which layers are computed again.  `keep_going` is
    asked several times a second; it may raise.
    """

    def __init__(
        self,
        group: Group,
        *,
        retaining: bool,
        keep_going: Callable[[], bool] = lambda: True,
        tuning: PhasesTuning = TUNING,
    ) -> None:
        self.group, self.retaining, self._tuning = group, retaining, tuning
        n = self.n = group.n
        self.readers = [sum(1 << v for v in group.readers[u + 1]) for u in range(n)]
        self.reads = [0] * n
        for u in range(n):
            for v in group.readers[u + 1]:
                self.reads[v] |= 1 << u
        self.last = [mask.bit_length() - 1 for mask in self.readers]
        self.output = [group.x[u + 1] if self.readers[u] else 0 for u in range(n)]
        self.backward = [group.gradients[v] + group.temporary[v] + group.tape[v] for v in range(n)]
        self.forward = [group.x[v + 1] + group.temporary[v] + group.tape[v] for v in range(n)]
        self.own = [group.gradients_before[v] + self.forward[v] for v in range(n)]
        self.may_drop = [
            group.allowed[Policy.RECOMPUTE] and group.products[u] > 0 for u in range(n)
        ]
        self.may_keep = [group.allowed[Policy.KEEP] or not group.products[u] for u in range(n)]
        self._complete(keep_going)

    def _complete(self, keep_going: Callable[[], bool]) -> None:
        """Find the least cycles to come, all figures rounded down to coarser units if need be."""
        group, n, tuning = self.group, self.n, self._tuning.remat
        self.unit = group.room // tuning.levels + 1
        self.scale = sum(group.forward) // (UNREACHED - 1) + 1
        products = np.array(group.products, dtype=np.int64)
        sums = np.concatenate(([0], np.cumsum(products)))
        levels = group.room // self.unit + 1
        most = tuning.entries // (2 * levels * (n + 1)) - 1
        self.longest = max(1, min(self._longest_run(sums), most))
        retained = [min(self.output[u - 1], group.products[u]) if u else 0 for u in range(n)]
        figures = Figures(
            room=levels - 1,
            forward=np.array(self.forward, dtype=np.int64) // self.unit,
            backward=np.array(self.backward, dtype=np.int64) // self.unit,
            products=products // self.unit,
            outputs=np.array(self.output, dtype=np.int64) // self.unit,
            cycles=np.array(group.forward, dtype=np.int64) // self.scale,
            retained=np.array(retained, dtype=np.int64) // self.unit,
            may_keep=np.array(self.may_keep),
            may_drop=np.array(self.may_drop),
            retaining=self.retaining,
            longest=self.longest,
        )
        kept, dropped = np.empty((2, n + 1, levels), dtype=np.int32)
        runs = np.empty((2, self.longest + 1, n + 1, levels), dtype=np.int32)
        kept[n] = dropped[n] = runs[:, :, n] = 0
        self.least = Completions(kept, dropped, runs)
        size = levels * (self.longest + 1)
        part = max(1, tuning.entries_at_once // size)
        for high in range(n, 0, -part):
            low = max(0, high - part)
            remat_kernels.complete(figures, self.least, low, high)
            spend(self._tuning.prices.read_price * size * (high - low))
            keep_going()

    def _longest_run(self, sums: Array) -> int:
        """Return of how many layers open runs fit into the memory, at most; `sums`: of products."""
        room, backward = self.group.room, np.array(self.backward, dtype=np.int64)
        low, high = 1, self.n  # the more layers, the more bytes
        while low < high:
            length = (low + high) // 2
            if (sums[length:-1] - sums[: -1 - length] + backward[length:] > room).all():
                high = length
            else:
                low = length + 1
        return low

    @property
    def bound(self) -> int:
        """Cycles that any plan computes again, `NONE` where there is none."""
        least = int(self.least.kept[0, 0])
        return NONE if least >= UNREACHED else least * self.scale

    # ------------------------------------------------------------------ arcs

    def _bytes(self, mask: int, of: Sequence[int]) -> int:
        """Return the bytes of a set of layers."""
        return sum(of[u] for u in layers_of(mask))

    def _arcs(
        self, opened: int, closed: int, layer: int
    ) -> Iterator[tuple[int, int, int, int, int, int, int]]:
        """Yield what can follow a state at a layer.

        Each with the sets of open and closed layers, bytes kept and cycles added, most bytes kept
        before, what becomes of the layer, and the set of layers closed.
        """
        group, output, products = self.group, self.output, self.group.products
        bit = 1 << layer
        wanted = closed & self.reads[layer]
        if wanted and not self.retaining:
            return
        retained = self._bytes(wanted, output)
        closed &= ~wanted
        held = self._bytes(opened, products)
        later = -1 << layer
        waiting = [u for u in layers_of(opened | closed) if self.readers[u] & later]
        need = max(
            held + self.backward[layer], self.forward[layer] + sum(output[u] for u in waiting)
        )
        limit = group.room - retained - need
        if limit < 0:
            return
        choices = []
        if self.may_keep[layer]:
            choices.append((opened, closed, products[layer], 0, limit, KEPT))
        if self.may_drop[layer]:
            cycles = group.forward[layer]
            if self.readers[layer]:
                choices.append((opened | bit, closed, 0, cycles, limit, OPEN))
            if (group.tape[layer] or not self.may_keep[layer]) and (
                self.retaining or not self.readers[layer]
            ):
                strict = min(limit, group.room - retained - held - self.own[layer])
                choices.append((opened, closed | bit, 0, cycles, strict, OWN))
        for still, gone, kept, cycles, most, what in choices:
            if most < 0:
                continue
            for left, closing in self._closings(opened, still, layer):
                more = self._retained(closing, gone)
                if more is None:
                    continue
                charge, out = more
                future = later << 1 | left
                out = sum(1 << u for u in layers_of(out | closing) if self.readers[u] & future)
                yield left, out, retained + kept + charge, cycles, most, what, closing

    def _closings(self, opened: int, still: int, layer: int) -> Iterator[tuple[int, int]]:
        """Yield (left open, closed) for each way to close layers before `layer`."""
        later = -1 << (layer + 1)
        work = [(opened, still, 0)]
        while work:
            rest, left, closing = work.pop()
            if not rest:
                yield left, closing
                continue
            # Readers come after what they read: they are decided already.
            u = rest.bit_length() - 1
            rest ^= 1 << u
            if self.readers[u] & (later | left):
                work.append((rest, left, closing))
            if self.readers[u] & (closing | 1 << layer):
                work.append((rest, left ^ 1 << u, closing | 1 << u))

    def _retained(self, closing: int, gone: int) -> tuple[int, int] | None:
        """Return bytes retained so that layers can be computed again, and who is gone still."""
        charge = 0
        for v in layers_of(closing):
            wanted = self.reads[v] & gone
            if wanted:
                if not self.retaining:
                    return None
                gone &= ~wanted
                charge += min(self._bytes(wanted, self.output), self.group.products[v])
        return charge, gone

    # ------------------------------------------------------------------ search

    def search(self, upper: int, most: int, keep_going: Callable[[], bool] = lambda: True) -> Found:
        """Return the best plan that computes less than `upper` cycles again, or a bound.

        `most` labels are followed at each layer.  `keep_going` is asked now and then; once it says
        no, only the bound of before is returned.
        """
        states = [(0, 0)]
        starts = np.array([0, 1], dtype=np.int64)
        held, again = np.zeros(1, np.int64), np.zeros(1, np.int64)
        trail: list[tuple[Array, Array, list[tuple[int, int]]]] = []
        lost, often, prices = NONE, self._tuning.remat.states_at_once, self._tuning.prices
        for layer in range(self.n):
            index: dict[tuple[int, int], int] = {}
            arcs: list[tuple[int, int, int, int, int]] = []
            marks: list[tuple[int, int]] = []
            for source, (opened, closed) in enumerate(states):
                if source % often == 0 and not keep_going():
                    return Found(NONE, (), (), self.bound, False)
                least = int(held[starts[source]])
                for left, out, more, cycles, limit, what, closing in self._arcs(
                    opened, closed, layer
                ):
                    if least <= limit:
                        state = index.setdefault((left, out), len(index))
                        arcs.append((source, state, more, cycles, limit))
                        marks.append((what, closing))
            if not arcs:
                return Found(NONE, (), (), lost, lost == NONE)
            states = list(index)
            target, held, again, label, arc, least_of = self._grow(
                starts, held, again, arcs, states, layer, upper
            )
            spend(prices.look_price * (5 + len(arcs)) + prices.label_price * len(target))
            order = np.lexsort((again, held, target))
            chosen = remat_kernels.undominated(order, target, held, again)
            if len(chosen) > most:
                promise = least_of[chosen]
                worst = int(np.partition(promise, most)[most])
                lost = min(lost, worst)
                better = promise < worst
                chosen = chosen[better] if better.any() else chosen[:most]
            if not len(chosen):
                return Found(NONE, (), (), lost, lost == NONE)
            trail.append((label[chosen], arc[chosen], marks))
            held, again = held[chosen], again[chosen]
            present, dense = np.unique(target[chosen], return_inverse=True)
            states = [states[number] for number in present.tolist()]
            starts = np.concatenate(([0], np.cumsum(np.bincount(dense, minlength=len(states)))))
        best = int(np.argmin(again))
        dropped, recompute = self._unroll(trail, best)
        value = int(again[best])
        return Found(value, dropped, recompute, min(lost, value), lost >= value)

    def _grow(
        self,
        starts: Array,
        held: Array,
        again: Array,
        arcs: list[tuple[int, int, int, int, int]],
        states: list[tuple[int, int]],
        layer: int,
        upper: int,
    ) -> tuple[Array, ...]:
        """Return the labels that arcs lead to; see :func:`.remat_kernels.grow`."""
        known: dict[tuple[int, int], int] = {}
        table: list[Array] = []
        rows = np.empty(len(states), np.int64)
        for number, (opened, closed) in enumerate(states):
            length, kind = 0, 0
            if opened >> layer & 1:
                while length <= layer and length < self.longest and opened >> (layer - length) & 1:
                    length += 1
                before = layer - length
                kind = int(before >= 0 and not opened >> before & 1 and closed >> before & 1)
            elif closed >> layer & 1:
                kind = 2
            key = (kind, length)
            if key not in known:
                known[key] = len(table)
                if length:
                    table.append(self.least.runs[kind, length, layer + 1])
                else:
                    table.append((self.least.dropped if kind else self.least.kept)[layer + 1])
            rows[number] = known[key]
        return tuple(
            remat_kernels.grow(
                starts,
                held,
                again,
                np.array(arcs, dtype=np.int64),
                self.unit,
                self.scale,
                rows,
                np.array(table, dtype=np.int64),
                upper,
            )
        )

    def _unroll(
        self, trail: list[tuple[Array, Array, list[tuple[int, int]]]], label: int
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Return which layers a label drops, and what runs again before each backward layer."""
        recompute: list[tuple[int, ...]] = []
        for layer in reversed(range(self.n)):
            before, arc, marks = trail[layer]
            what, closing = marks[int(arc[label])]
            recompute.append((*layers_of(closing), *([layer] if what == OWN else ())))
            label = int(before[label])
        dropped = sorted(u for run in recompute for u in run)
        return tuple(dropped), tuple(reversed(recompute))
