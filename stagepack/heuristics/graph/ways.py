"""The allowed sequences of devices: an automaton over stages, from the last one to the first.

If the order of devices is free, a state is the number of used devices of each class.  In a fixed
order it is the number of devices passed so far, and the next stage of a class takes the first
following device of this class; a later one would only leave fewer.  If the number of stages can
differ from that of devices (replicas, or devices that may stay empty) and stages stash activations,
states count the stages, too.

Cost: O(transitions): up to the product of (devices of a class + 1) states, times the stages if they
are counted, and from each state one transition for each class, or for each class and number of
replicas.  Source: ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.graph.stage_kernels import Ways
from stagepack.instances.graph.compact import Compact
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array

State = tuple[tuple[int, ...], int]
"""Devices of each class in use or, in a fixed order, passed; and stages, as far as they matter."""


@dataclass(frozen=True)
class Step:
    """A stage more."""

    state: State  # after it
    # Of its device; on how many it is replicated; the microbatches whose stashes it holds.
    device_class: int
    devices: int
    stashes: int


@dataclass(frozen=True, eq=False)
class Automaton:
    """All ways to place stages on devices."""

    ways: Ways  # its transitions
    # int64 (states, classes): devices of each class that are in use in a state, or passed.
    used: Array
    source: Array  # (transitions,): the state that each transition leaves

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.used)

    @classmethod
    def of(cls, compact: Compact, sequence: Array | None) -> Automaton:
        """Build the automaton of devices in any order or, given a class a stage, in that one."""
        rules = _Rules(compact, sequence)
        states = [rules.begin]
        number = {rules.begin: 0}
        steps: list[list[Step]] = []
        for state in states:  # grows
            steps.append(list(rules.steps(state)))
            for step in steps[-1]:
                if step.state not in number:
                    number[step.state] = len(states)
                    states.append(step.state)
        flat = [step for row in steps for step in row]
        whole = tuple(compact.class_count.tolist())
        ways = Ways(
            first=np.cumsum([0, *map(len, steps)]).astype(np.int32),
            target=np.array([number[step.state] for step in flat], dtype=np.int32),
            device_class=np.array([step.device_class for step in flat], dtype=np.int32),
            devices=np.array([step.devices for step in flat], dtype=np.int32),
            stashes=np.array([step.stashes for step in flat], dtype=np.int32),
            accepting=np.array([not compact.exact_stages or used == whole for used, _ in states]),
        )
        used = np.array([used for used, _ in states], dtype=np.int64)
        return cls(ways, used, np.repeat(np.arange(len(states)), np.diff(ways.first)))


class _Rules:
    """What may follow what."""

    def __init__(self, compact: Compact, sequence: Array | None) -> None:
        self._compact = compact
        self._sequence = None if sequence is None else sequence[::-1].tolist()
        self._counts = compact.class_count.tolist()
        self._stashing = compact.microbatches if compact.stash.any() else 1
        self.begin: State = (0,) * len(self._counts), 0

    def steps(self, state: State) -> Iterator[Step]:
        """Yield the stages that may come next, one for each class and number of replicas."""
        used, stages = state
        stashes = min(self._compact.microbatches, stages + 1)
        for after, device_class, devices in self._devices(used):
            counted = min(stages + 1, self._stashing - 1)
            yield Step((after, counted), device_class, devices, stashes)

    def _devices(self, used: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Yield what is in use after a stage more, its class and number of devices."""
        if self._sequence is None:
            replicated = self._compact.objective == Objective.REPLICATED
            for c, count in enumerate(self._counts):
                left = count - used[c]
                for devices in range(1, (left if replicated else min(left, 1)) + 1):
                    yield (*used[:c], used[c] + devices, *used[c + 1 :]), c, devices
            return
        passed, seen = list(used), set()
        for c in self._sequence[sum(used) :]:
            passed[c] += 1
            if c not in seen:
                seen.add(c)
                yield tuple(passed), c, 1
            if self._compact.exact_stages:
                return


def spread(compact: Compact, most_states: int) -> Array | None:
    """Return one order of the devices, classes in turn, where any order would be too many states.

    None where all of them can be looked at, by `most_states`: see :class:`.tuning.IdealsTuning`.
    """
    if states(compact) <= most_states or compact.sequence is not None:
        return None
    return compact.device_class


def states(compact: Compact) -> int:
    """Return how many states the automaton has at most."""
    counts: list[int] = compact.class_count.tolist()
    stages = compact.microbatches if compact.stash.any() else 1
    if compact.sequence is not None:
        return (sum(counts) + 1) * min(stages, sum(counts) + 1)
    apart = stages if compact.objective == Objective.REPLICATED else 1
    return math.prod(count + 1 for count in counts) * min(apart, sum(counts) + 1)
