"""Proofs that buffers do not fit into a capacity, found by search and written step by step.

The search is that of :mod:`..exact_search.exact`, in terms of the rules by which the verifier
(`verify/packing_misfit.py`) replays a proof.  It records its steps, without those that turned out
to be unnecessary.  Cost: O(blocks + conflicts) a node.  Source: own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.refutation import refuting_kernels as kernels
from stagepack.heuristics.packing.refutation.refuting_kernels import Tree
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.profile import Array


@dataclass(frozen=True)
class Window:
    """Buffers that must keep apart at some moments."""

    size: Array  # int64 (n,): of each buffer
    alive: Array  # bool (n, moments): who is alive when
    capacity: int  # what they are to fit into

    @property
    def overfull(self) -> bool:
        """Whether some moment holds more than fits."""
        return bool((self.size @ self.alive > self.capacity).any())


class Refutation:
    """A search of one window in one order, which can be paused; `nodes` are those so far.

    Blocks of higher values in `order`, float (n,), are preferred.  With `lowest_section` it
    branches where the floor is least, else at the block of least base.
    """

    def __init__(
        self,
        window: Window,
        order: Array,
        *,
        lowest_section: bool = False,
        tuning: PackingTuning = TUNING,
    ) -> None:
        self.tuning = tuning
        near = (window.alive.astype(np.float32) @ window.alive.T.astype(np.float32)) > 0
        bottom = near.sum(axis=1) == len(near)
        self._left = left = np.flatnonzero(~bottom)
        alive, near = window.alive[left], near[np.ix_(left, left)]
        np.fill_diagonal(near, val=False)
        capacity = window.capacity - int(window.size[bottom].sum())
        unit = math.gcd(*window.size[left].tolist()) or 1
        size, n = window.size[left] // unit, len(left)
        _, life = np.unique(alive, axis=0, return_inverse=True)
        rank = np.empty(n, dtype=np.int64)
        rank[np.argsort(-order[left], kind="stable")] = np.arange(n)
        near_of, member_of = np.nonzero(near), np.nonzero(alive.T)
        self._tree = Tree(
            capacity=capacity // unit,
            rounds=tuning.windows.log_rounds,
            size=size,
            rank=rank,
            life=life.reshape(-1).astype(np.int64),
            before=_identical(size, life.reshape(-1)),
            near_ptr=_rows(near_of[0], n),
            near=np.ascontiguousarray(near_of[1]),
            member_ptr=_rows(member_of[0], alive.shape[1]),
            members=np.ascontiguousarray(member_of[1]),
            low=np.zeros(n, dtype=np.int64),
            base=np.zeros(n, dtype=np.int64),
            at=np.full(n, -1),
            # More than a node takes: then there is room for it once both are twice as long.
            past=np.zeros((256 * n + 64, 3), dtype=np.int64),
            steps=np.zeros(512 * n + 64, dtype=np.int64),
            frames=np.zeros((n + 2, 7), dtype=np.int64),
            part=np.full((n + 2, n), -1),
            active=np.ones((n + 2, n), dtype=bool),
            queue=np.zeros(n, dtype=np.int64),
            control=np.zeros(7, dtype=np.int64),
        )
        self._tree.control[kernels.LOWEST_SECTION] = lowest_section

    @property
    def nodes(self) -> int:
        """Nodes so far."""
        return int(self._tree.control[kernels.NODES])

    def run(self, node_limit: int, keep_going: Callable[[], bool]) -> int:
        """Return FITS, REFUTED, LIMIT, or RUNNING once told to stop."""
        while True:
            outcome = kernels.refute(node_limit, self.tuning.windows.log_budget, self._tree)
            effort.spend(
                self.tuning.prices.call
                + self.tuning.windows.log_step * int(self._tree.control[kernels.SPENT])
            )
            if outcome == kernels.LONG:
                tree = self._tree
                past, steps = (
                    np.concatenate([a, np.zeros_like(a)]) for a in (tree.past, tree.steps)
                )
                self._tree = tree._replace(past=past, steps=steps)
            elif outcome != kernels.RUNNING:
                return outcome
            if not keep_going():
                return kernels.RUNNING

    def steps(self) -> list[int]:
        """Return the steps of a proof, in the numbers of the window."""
        steps = self._tree.steps[: self._tree.control[kernels.STEPS]]
        which, rule = np.divmod(steps, 6)
        of_moment = rule == kernels.FULL
        which[~of_moment] = self._left[which[~of_moment]]
        found: list[int] = (6 * which + rule).tolist()
        return found


def _rows(owner: Array, count: int) -> Array:
    """Return where rows begin, from the row of each entry."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))]).astype(np.int64)


def _identical(size: Array, life: Array) -> Array:
    """Return the identical block before each, or -1."""
    before, latest = np.full(len(size), -1), dict[tuple[int, int], int]()
    for i, alike in enumerate(zip(size.tolist(), life.tolist(), strict=True)):
        before[i] = latest.get(alike, -1)
        latest[alike] = i
    return before
