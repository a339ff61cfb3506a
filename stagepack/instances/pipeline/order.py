"""The order of devices: an automaton that reads the chain from its tail, and classes of devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST

LARGEST_AUTOMATON = 2_500_000
"""Transitions of free order; those of devices that may stay unused:"""

LARGEST_CHAIN = 200_000
UNREACHABLE = 2**61  # stages
BLOCK = 5_000  # devices between two pauses
KEPT_AS = "_device_classes"  # with an instance, outside its fields


@dataclass(frozen=True)
class StageOrder:
    """An automaton over devices: each transition places one stage before those placed so far.

    Reading the chain from its tail makes the number of stashed microbatches a matter of the state
    alone: stage i of k stashes min(m, k - i), the number of stages from it to the end.
    """

    states: int  # state 0 has placed nothing; transitions lead to higher states
    # `source`, `target`, `device_class`, `stashes`: int64, shape (transitions,): sorted by target.
    source: Array
    target: Array
    device_class: Array
    stashes: Array
    accepting: Array  # bool, shape (states,): whether the chain may begin here
    # int64, shape (states,), optional: stages placed so far, where a state has one number of them.
    placed: Array | None = None

    @staticmethod
    def refusal(instance: PipelinePartition) -> InputError | None:
        """Return why the automaton of an instance would be too large, None if it is not."""
        k, classes = instance.k, device_classes(instance)
        if not (instance.free_order or instance.fewer_stages) or max(classes) == 0:
            return None  # one order of the devices: nothing to combine
        if instance.free_order:
            counts = np.bincount(classes).tolist()
            size = math.prod(count + 1 for count in counts)
            if size * len(counts) > LARGEST_AUTOMATON:
                return InputError(
                    f"{_short(size)} ways to choose among {k} devices of {len(counts)} kinds are "
                    "too many",
                    field="free_order",
                    remedy="fix the order of the devices or use fewer kinds",
                )
        elif k * k * max(1, min(_stashes(instance), k)) // 2 > LARGEST_CHAIN:
            return InputError(
                f"{k} unlike devices that may stay unused make too many combinations",
                field="fewer_stages",
                remedy="use all devices, or devices of one kind",
            )
        return None

    @classmethod
    def of(cls, instance: PipelinePartition) -> StageOrder:
        """Build the automaton of an instance.

        Fixed order: k transitions; with devices that may stay unused O(k^2), times the stages
        placed when they stash.  Free order: one state for every choice of how many devices of each
        class are in use; too many, of many unlike devices, are refused.
        """
        k, classes = instance.k, device_classes(instance)
        refusal = cls.refusal(instance)
        if refusal is not None:
            raise refusal
        m = _stashes(instance)
        alike = max(classes) == 0
        if alike or not (instance.free_order or instance.fewer_stages):
            return cls._in_order(np.array(classes[::-1], dtype=np.int64), m, instance.fewer_stages)
        if instance.free_order:
            return cls._in_any_order(np.bincount(classes).tolist(), m, instance.fewer_stages)
        # A state is the device used last and the stages placed, as far as they matter.
        start = (k, 0)
        edges: list[tuple[tuple[int, int], tuple[int, int], int, int]] = []
        states = [start]
        for device in reversed(range(k)):
            arrivals: dict[tuple[int, int], None] = {}
            for state in states:
                stashes = min(m, state[1] + 1)
                edges.append((state, (device, stashes), classes[device], stashes))
                arrivals[device, stashes] = None
            states += arrivals
        number = {start: 0}
        for _, then, _, _ in edges:
            number.setdefault(then, len(number))
        rows = sorted((number[then], number[state], c, stash) for state, then, c, stash in edges)
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return cls(
            states=len(number),
            source=table[:, 1].copy(),
            target=table[:, 0].copy(),
            device_class=table[:, 2].copy(),
            stashes=table[:, 3].copy(),
            accepting=np.arange(len(number)) > 0,
        )

    @classmethod
    def _in_any_order(cls, counts: list[int], microbatches: int, fewer_stages: bool) -> StageOrder:
        """Return that of so many devices of each class.

        A state counts the devices of each class in use, as the digits of its number.
        """
        states = math.prod(count + 1 for count in counts)
        number, placed, step = np.arange(states), np.zeros(states, dtype=np.int64), 1
        free, steps = [], []
        for count in counts:
            used = number // step % (count + 1)
            placed += used
            free.append(np.flatnonzero(used < count))
            steps.append(step)
            step *= count + 1
        source = np.concatenate(free)
        device_class = np.repeat(np.arange(len(counts)), [len(some) for some in free])
        target = source + np.array(steps)[device_class]
        order = np.argsort(target, kind="stable")
        source = source[order]
        return cls(
            states=states,
            source=source,
            target=target[order],
            device_class=device_class[order],
            stashes=np.minimum(microbatches, placed[source] + 1),
            accepting=(placed > 0) & fewer_stages | (number == states - 1),
            placed=placed,
        )

    @classmethod
    def _in_order(cls, backwards: Array, microbatches: int, fewer_stages: bool) -> StageOrder:
        """Return that of devices, given by their classes from the last one on, in one order.

        A state counts the stages placed.
        """
        placed = np.arange(1, len(backwards) + 1)
        return cls(
            states=len(backwards) + 1,
            source=placed - 1,
            target=placed,
            device_class=backwards,
            stashes=np.minimum(microbatches, placed),
            accepting=np.arange(len(backwards) + 1) >= (1 if fewer_stages else len(backwards)),
            placed=np.arange(len(backwards) + 1),
        )

    @cached_property
    def arrivals(self) -> Array:
        """Transitions into state q are arrivals[q] to arrivals[q + 1] - 1; shape (states + 1,)."""
        return np.searchsorted(self.target, np.arange(self.states + 1))

    @cached_property
    def fewest_stages(self) -> tuple[Array, Array]:
        """The fewest stages before a tail of each state, and in it; each of shape (states,)."""
        if self.placed is not None:  # one stage more with every transition
            ends = np.sort(self.placed[self.accepting])
            return ends[np.searchsorted(ends, self.placed)] - self.placed, self.placed
        edges = list(zip(self.source.tolist(), self.target.tolist(), strict=True))
        before = np.where(self.accepting, 0, UNREACHABLE).tolist()
        after = [0] + [UNREACHABLE] * (self.states - 1)
        for source, target in edges:
            after[target] = min(after[target], after[source] + 1)
        for source, target in reversed(edges):
            before[source] = min(before[source], before[target] + 1)
        return np.array(before, dtype=np.int64), np.array(after, dtype=np.int64)


def device_classes(
    instance: PipelinePartition, pause: Callable[[], object] = lambda: None
) -> list[int]:
    """Return the class of each device, numbered by first appearance; like devices share one.

    Found once and kept with the instance.  `pause` is called now and then.
    """
    kept: dict[str, list[int]] = vars(instance)
    if KEPT_AS not in kept:
        kept[KEPT_AS] = _device_classes(instance, pause)
    return kept[KEPT_AS]


def _device_classes(instance: PipelinePartition, pause: Callable[[], object]) -> list[int]:
    per_device = (
        instance.recv_cycles is not None
        or instance.send_cycles is not None
        or any(
            table is not None and table.ndim == 3
            for table in (instance.compute_table, instance.memory_table)
        )
    )
    devices = instance.cluster.devices
    if per_device:
        return list(range(len(devices)))
    moves = instance.objective is Objective.MOVES
    holding = set(instance.previous or ()) if moves else set()
    known: dict[object, int] = {}
    classes: list[int] = []
    for begin in range(0, len(devices), BLOCK):
        pause()
        some = devices[begin : begin + BLOCK]
        kinds = [(one.kind, d if d in holding else -1) for d, one in enumerate(some, begin)]
        classes += [known.setdefault(kind, len(known)) for kind in kinds]
    return classes


def assign_devices(
    instance: PipelinePartition, boundaries: list[int], classes: list[int]
) -> PipelineSolution:
    """Return the solution of stages with `boundaries` whose devices are of the given `classes`.

    The classes are a path of the automaton :class:`StageOrder`.  In a fixed order the stages take
    the first devices that will do: any choice among devices of one class is as good as another.
    """
    order = device_classes(instance)
    devices: list[int] = []
    if instance.free_order:
        free = {c: [d for d in range(instance.k) if order[d] == c] for c in set(order)}
        devices = [free[c].pop(0) for c in classes]
    else:
        device = 0
        for c in classes:
            device = order.index(c, device)
            devices.append(device)
            device += 1
    return PipelineSolution(tuple(boundaries), tuple(devices))


def _short(number: int) -> str:
    return (
        str(number)
        if number < 10**12
        else f"more than 10**{int((number.bit_length() - 1) * 0.30102)}"
    )


def _stashes(instance: PipelinePartition) -> int:
    """Return how many stashed microbatches make a difference; 0 where none is counted."""
    every: list[Any] = [instance, *instance.alternatives.values()]
    stashing = instance.training and any(one.stash.any() for one in every)
    limited = any(
        device.memory is not None and device.memory < LARGEST for device in instance.cluster.devices
    )
    return instance.microbatches if stashing and limited else 0
