"""PipeDream's own recurrence: a chain of states, each a set of operators that may run first.

A state is an antichain of what follows the first source, with all that comes before it.  A cut
behind it moves the outputs of the antichain and of its *augmentation*: of everything before one of
its operators that has a reader which is not before that same operator.  Tensors so are handed from
stage to stage, and some count that all readers have met.  That is PipeDream's model, not this
package's: what its partitions are worth is judged here as that of any other.

Source: Narayanan et al., *PipeDream: Generalized Pipeline Parallelism for DNN Training*, SOSP 2019;
``optimizer_graph_hierarchical.py`` and ``graph.py`` of its authors, one level of links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from stagepack.heuristics import effort
from stagepack.instances.graph.compact import FORBIDDEN, Compact
from stagepack.instances.profile import Array

MOST_STATES = 4_000
"""Beyond, the recurrence takes minutes: it looks at every pair of states."""
FAR = 2.0**62
BIT, TRIED = 3e-6, 4e-7
"""Seconds of work for a block before another one, and for one tried next to a state."""


class TooManyStates(Exception):  # noqa: N818 - a way to give up, no error
    """The graph has more states than the recurrence can look at."""


class Recurrence:
    """The states of a graph, and the best stages over them.

    Parameters
    ----------
    compact : Compact
        Of contiguous stages on accelerators and links that are alike.
    pause : callable
        Called now and then; what it raises ends the search.

    Raises
    ------
    TooManyStates
    """

    def __init__(self, compact: Compact, pause: Callable[[], object] = lambda: None) -> None:
        self.compact, self._pause = compact, pause
        if compact.blocks > MOST_STATES:  # a state each, or longer sets
            raise TooManyStates
        self._set_ancestors()
        antichains = self._states()
        self._set_extra()
        self.states = [self._closed(antichain) for antichain in antichains]
        n = compact.blocks
        self.states[-1] = (1 << n) - 1  # what nothing of the first source leads to comes last
        packed = b"".join(state.to_bytes(-(-n // 8), "little") for state in self.states)
        bits = np.frombuffer(packed, dtype=np.uint8).reshape(len(self.states), -1)
        self._members = np.unpackbits(bits, axis=1, count=n, bitorder="little").astype(bool)
        work = np.minimum(compact.time, FORBIDDEN).sum(axis=0)[0]
        self._work = self._members @ work.astype(np.float64)
        self._weights = self._members @ (compact.parameters * float(compact.sync))
        self._held = self._members @ compact.size.astype(np.float64)
        self._moved = np.array([0.0, *map(self._output, antichains[1:-1]), 0.0])[: len(antichains)]

    def _set_ancestors(self) -> None:
        """Find what is before each block, and what the first source leads to."""
        compact, n = self.compact, self.compact.blocks
        near = _neighbours(compact.before_ptr, compact.before)
        readers = _neighbours(compact.after_ptr, compact.after)
        self._before = [0] * n
        for v in range(n):
            for u in near[v]:
                self._before[v] |= self._before[u] | 1 << u
        self._after = [sum(1 << w for w in row) for row in readers]
        reached = 1
        for v in range(n):
            if reached >> v & 1:
                reached |= self._after[v]
        self._reached = [v for v in range(n) if reached >> v & 1]
        self._produced = np.zeros(n)
        np.add.at(self._produced, compact.net[compact.net_ptr[:-1]], compact.net_cost)

    def _set_extra(self) -> None:
        """Find what is before each block and has readers elsewhere.

        Readers that are before the same block have met the tensor, or will have by then.
        """
        self._extra = [0] * self.compact.blocks
        for v in self._reached:
            before = self._before[v]
            effort.spend(BIT * before.bit_count())
            self._pause()
            known = before | 1 << v
            self._extra[v] = sum(1 << u for u in _bits(before) if self._after[u] & ~known)

    def _closed(self, blocks: int) -> int:
        """Return a set of blocks with all that comes before them."""
        self._pause()
        found = blocks
        for v in _bits(blocks):
            found |= self._before[v]
        return found

    def _output(self, blocks: int) -> float:
        """Return what is moved across the cut behind a state, in ticks."""
        self._pause()
        before = 0
        for v in _bits(blocks):
            before |= self._before[v]
        last = moved = blocks & ~before
        for v in _bits(last):
            moved |= self._extra[v]
        return float(self._produced[list(_bits(moved))].sum())

    def _states(self) -> list[int]:
        """Return all states, as sets of what the first source leads to, the smallest first."""
        near = sum(1 << v for v in self._reached)
        found, level = [0], {0}
        while level:
            following = set()
            for state in level:
                effort.spend(TRIED * len(self._reached))
                self._pause()
                for v in self._reached:
                    if not state >> v & 1 and self._before[v] & near & ~state == 0:
                        following.add(state | 1 << v)
                if len(found) + len(following) > MOST_STATES:
                    raise TooManyStates
            found += sorted(following)
            level = following
        return found

    def best(self, replicated: bool) -> tuple[Array, list[int]] | None:
        """Return the stage of each block, and the devices of each stage; None: nothing fits.

        O(states**2 * devices), times devices again where stages are replicated.

        Parameters
        ----------
        replicated : bool
            Stages may run on several devices.
        """
        count, k = len(self.states), self.compact.devices
        most = k if replicated else 1
        value = np.full((k + 1, count), FAR)
        value[0, 0] = 0
        origin = np.zeros((k + 1, count, 2), dtype=np.int64)
        room = float(self.compact.class_memory[0])
        for j in range(1, count):
            self._pause()
            state = self.states[j]
            lower = np.array([i for i in range(j) if self.states[i] & ~state == 0])
            held = self._held[j] - self._held[lower]
            lower = lower[held <= room]
            if not len(lower):
                continue
            work = self._work[j] - self._work[lower]
            sync = self._weights[j] - self._weights[lower]
            moved = np.maximum(self._moved[lower], self._moved[j])
            for m in range(1, most + 1):
                stage = np.maximum((work + sync * (m - 1) / m) / m, moved / m)
                for used in range(m, k + 1):
                    total = np.maximum(value[used - m, lower], stage)
                    at = int(total.argmin())
                    if total[at] < value[used, j]:
                        value[used, j] = total[at]
                        origin[used, j] = lower[at], m
        return self._stages(value, origin)

    def _stages(self, value: Array, origin: Array) -> tuple[Array, list[int]] | None:
        """Trace the best stages back from the last state."""
        j = len(self.states) - 1
        used = self.compact.devices if self.compact.exact_stages else int(value[:, j].argmin())
        if value[used, j] >= FAR:
            return None
        stage = np.zeros(self.compact.blocks, dtype=np.int64)
        devices: list[int] = []
        while j:
            i, m = origin[used, j].tolist()
            stage[self._members[j] & ~self._members[i]] = len(devices)
            devices.append(m)
            j, used = i, used - m
        return len(devices) - 1 - stage, devices[::-1]


def _bits(state: int) -> Iterator[int]:
    """Yield the members of a set of bits, rising."""
    while state:
        lowest = state & -state
        yield lowest.bit_length() - 1
        state ^= lowest


def _neighbours(ptr: Array, near: Array) -> list[list[int]]:
    """Return rows as lists."""
    ends, flat = ptr.tolist(), near.tolist()
    return [flat[a:b] for a, b in pairwise(ends)]
