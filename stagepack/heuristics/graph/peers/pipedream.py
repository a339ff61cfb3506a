"""PipeDream's own recurrence: a chain of states, each a set of operators closed under predecessors.

A state is given by an antichain of operators, together with everything before them.  A cut after a
state transfers the outputs of the antichain and of its *augmentation*: of all operators before a
member of the antichain that have a reader which is not before that member.  Tensors are thus passed
on from stage to stage, and some are counted although all of their readers have run.

If the links have levels (GPUs within machines), the best pipeline of each range of states on the
devices of one level is used as a single device on the next level.  Memory is counted as by the
authors: weights and activations of a stage, multiplied by the number of later devices, where
replicas count separately; the last stage therefore fits into any memory.  What the first stage
sends is counted by those that receive it alone: where these are more replicas, it takes less time.
This is PipeDream's model, not this package's.  Its partitions are evaluated here like all others.

Cost: O(states**2 * devices), more with replicas and levels, see :meth:`Recurrence.best`.
Source: Narayanan et al., *PipeDream: Generalized Pipeline Parallelism for DNN Training*, SOSP 2019;
``optimizer_graph_hierarchical.py`` and ``graph.py`` of its authors, with a compression ratio of 1,
``use_memory_constraint`` if there is a capacity, ``use_fewer_machines`` if devices may stay empty,
and ``straight_pipeline`` if stages have no replicas.  Differences of states of which neither
contains the other, on which levels beyond the first fail there, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier.plan import rows
from stagepack.heuristics.graph.tuning import TUNING, PeersTuning
from stagepack.instances.graph.compact import FORBIDDEN, UNLIMITED, Compact
from stagepack.instances.graph.levels import Level, levels_of
from stagepack.instances.profile import Array

FAR = 2.0**62
"""Ticks of what does not fit."""


class TooManyStatesError(Exception):
    """The graph has more states than the recurrence can look at."""


class Plan(NamedTuple):
    """Stages of a recurrence."""

    stage: Array  # int64 (blocks,): of each block
    # Of each stage: the first device, and on how many it runs.
    first: list[int]
    replicas: list[int]
    value: float  # ticks of the slowest one, as the recurrence counts them


class _Table(NamedTuple):
    """The best pipelines of a level, by units used, state before and last state."""

    value: Array  # float64 (units + 1, starts, states): ticks of the slowest stage; `FAR` for none
    cut: Array  # int32, of that shape: state before the last stage
    # int32, of that shape: units of what is before it, and its own.
    rest: Array
    replicas: Array

    @classmethod
    def empty(cls, shape: tuple[int, int, int]) -> _Table:
        """Return one without pipelines."""
        return cls(np.full(shape, FAR), *(np.zeros(shape, dtype=np.int32) for _ in range(3)))

    def put(self, used: int, state: int, found: Array, cut: Array, replicas: int) -> None:
        """Keep what is better than what is known, for each start."""
        better = np.flatnonzero(found < self.value[used, :, state])
        at = used, better, state
        self.value[at], self.cut[at] = found[better], cut[better]
        self.rest[at], self.replicas[at] = used - replicas, replicas

    def spare(self, used: int, state: int) -> None:
        """Use a unit fewer where that is better."""
        better = np.flatnonzero(self.value[used - 1, :, state] < self.value[used, :, state])
        for figures in self:
            figures[used, better, state] = figures[used - 1, better, state]


class Recurrence:
    """The states of a graph, and the best stages over them; raises `TooManyStatesError`.

    `compact` has contiguous stages on accelerators that are alike, with links of one bandwidth or
    in levels.  `pause` is called now and then; what it raises ends the search.
    """

    def __init__(
        self,
        compact: Compact,
        pause: Callable[[], object] = lambda: None,
        tuning: PeersTuning = TUNING.peers,
    ) -> None:
        self.compact, self._pause, self.tuning = compact, pause, tuning
        if compact.blocks > tuning.pipedream_states:  # a state each, or longer sets
            raise TooManyStatesError
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
        weights = compact.parameters if compact.parameters.any() else compact.size
        self._exchanged = self._members @ (compact.parameters * float(compact.sync))
        self._stashed = self._members @ (compact.stash + weights).astype(np.float64)
        room = int(compact.class_memory[0])
        self._room = float(room) if room < UNLIMITED else math.inf
        self._set_levels()
        self._moved = np.zeros((len(self.levels), len(self.states)))
        for at, level in enumerate(self.levels):
            produced = self._produced(level)
            self._moved[at, 1:-1] = [self._output(one, produced) for one in antichains[1:-1]]
        self._earlier = self._subsets()

    def _set_levels(self) -> None:
        """Find the levels of links, each with the row of its bandwidth among those of nets."""
        compact = self.compact
        self.levels: tuple[Level, ...] = (Level(compact.devices, 0),)
        if compact.level is not None:
            self.levels = levels_of(compact.level)
        ranges = [(level.units + 1) * len(self.states) ** 2 for level in self.levels[:-1]]
        if max(ranges, default=0) > self.tuning.pipedream_ranges:
            raise TooManyStatesError

    def _produced(self, level: Level) -> Array:
        """Return the ticks on links of a level of all that each block writes."""
        compact = self.compact
        cost = compact.net_cost
        if compact.level_cost is not None:
            cost = compact.level_cost[int(level.bandwidth)]
        found = np.zeros(compact.blocks)
        np.add.at(found, compact.net[compact.net_ptr[:-1]], cost)
        return found

    def _subsets(self) -> list[Array]:
        """Return for each state those that it holds and that are less."""
        found = []
        for j, state in enumerate(self.states):
            self._pause()
            found.append(np.array([i for i in range(j) if self.states[i] & ~state == 0], dtype=int))
        return found

    def _set_ancestors(self) -> None:
        """Find what is before each block, and what the first source leads to."""
        compact, n = self.compact, self.compact.blocks
        near = rows(compact.before_ptr, compact.before)
        readers = rows(compact.after_ptr, compact.after)
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

    def _set_extra(self) -> None:
        """Find what is before each block and has readers elsewhere.

        Readers that are before the same block have met the tensor, or will have by then.
        """
        self._extra = [0] * self.compact.blocks
        for v in self._reached:
            before = self._before[v]
            effort.spend(self.tuning.before_price * before.bit_count())
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

    def _output(self, blocks: int, produced: Array) -> float:
        """Return what is moved across the cut behind a state, in ticks."""
        self._pause()
        before = 0
        for v in _bits(blocks):
            before |= self._before[v]
        last = moved = blocks & ~before
        for v in _bits(last):
            moved |= self._extra[v]
        return float(produced[list(_bits(moved))].sum())

    def _states(self) -> list[int]:
        """Return all states, as sets of what the first source leads to, the smallest first."""
        near = sum(1 << v for v in self._reached)
        found, level = [0], {0}
        while level:
            following = set()
            for state in level:
                effort.spend(self.tuning.trial_price * len(self._reached))
                self._pause()
                for v in self._reached:
                    if not state >> v & 1 and self._before[v] & near & ~state == 0:
                        following.add(state | 1 << v)
                if len(found) + len(following) > self.tuning.pipedream_states:
                    raise TooManyStatesError
            found += sorted(following)
            level = following
        return found

    def best(self, replicated: bool) -> Plan | None:
        """Return the best stages; None: nothing fits.

        O(states**2 * devices), times devices again where stages are replicated, which takes links
        of one bandwidth; times states where links are in levels.
        """
        tables: list[_Table] = []
        for at in range(len(self.levels)):
            tables.append(self._level(at, tables, replicated))
        value = float(tables[-1].value[-1, 0, -1])
        if value >= FAR:
            return None
        parts = list(self._stages(tables, 0, len(self.states) - 1, 0))
        stage = np.zeros(self.compact.blocks, dtype=np.int64)
        for number, (i, j, _, _) in enumerate(parts):
            stage[self._members[j] & ~self._members[i]] = number
        return Plan(stage, [first for _, _, first, _ in parts], [m for *_, m in parts], value)

    def _level(self, at: int, inner: list[_Table], replicated: bool) -> _Table:
        """Return the best pipelines over the units of level `at`, 0 the innermost.

        `inner` are those of the levels within; `replicated`: stages may run on several units.
        """
        units, count, tuning = self.levels[at].units, len(self.states), self.tuning
        outermost = at == len(self.levels) - 1
        table = _Table.empty((units + 1, 1 if outermost else count, count))
        most = units if replicated else 1
        for j in range(1, count):
            earlier = self._earlier[j]
            held = self._stashed[j] - self._stashed[earlier]
            exchanged = self._exchanged[j] - self._exchanged[earlier]
            time = self._work[j] - self._work[earlier]
            if inner:
                time = inner[-1].value[-1, earlier, j]
            cuts = np.flatnonzero(earlier > 0)
            for used in range(1, units + 1):
                self._pause()
                for m in range(1, min(most, used) + 1):
                    pairs = table.value.shape[1] * len(earlier)
                    effort.spend(tuning.step_price + tuning.pair_price * pairs)
                    alone = (time + exchanged * (m - 1) / m) / m
                    alone[held * -(-(units - used) // m) > self._room] = FAR
                    if m == used:  # the whole range, which nothing comes into
                        starts = earlier[earlier < table.value.shape[1]]
                        whole = np.full(table.value.shape[1], FAR)
                        whole[starts] = alone[: len(starts)]
                        table.put(used, j, whole, np.arange(len(whole)), m)
                    if len(cuts):
                        moved = np.maximum(self._moved[at, earlier[cuts]], self._moved[at, j]) / m
                        stage = np.maximum(alone[cuts], moved)
                        before = table.value[used - m][:, earlier[cuts]]
                        total = np.maximum(before, stage)
                        best = total.argmin(axis=1)
                        least = total[np.arange(len(total)), best]
                        table.put(used, j, least, earlier[cuts][best], m)
                if not self.compact.exact_stages:
                    table.spare(used, j)
        return table

    def _stages(
        self, tables: list[_Table], start: int, end: int, first: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield state before, last state, first device and replicas of each stage of a range."""
        table, inner = tables[-1], tables[:-1]
        used, parts = len(table.value) - 1, list[tuple[int, int, int]]()
        while not parts or parts[-1][0] != start:
            place = used, start, end
            parts.append((int(table.cut[place]), end, int(table.replicas[place])))
            end, used = parts[-1][0], int(table.rest[place])
        size = math.prod(level.units for level in self.levels[: len(inner)])
        for i, j, m in reversed(parts):
            if inner:
                yield from self._stages(inner, i, j, first)
            else:
                yield i, j, first, m
            first += m * size


def _bits(state: int) -> Iterator[int]:
    """Yield the members of a set of bits, rising."""
    while state:
        lowest = state & -state
        yield lowest.bit_length() - 1
        state ^= lowest
