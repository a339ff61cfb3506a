"""Relations between schedules of microbatches."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.schedule import PipelineSchedule
from tests.random_schedules import random_schedule
from tests.relations.relation import NO_WORSE, SAME, Relation, scaled

DURATIONS = ("forward", "backward", "weight")
BYTES = ("memory_forward", "memory_backward", "memory_weight")


def instance(seed: int) -> PipelineSchedule:
    """Return a small schedule; every third is of equal stages in a chain."""
    if seed % 3:
        return random_schedule(seed)
    draw = np.random.default_rng(seed)
    p, training = int(draw.integers(1, 4)), bool(draw.integers(2))
    given: dict[str, Any] = {"backward": [int(draw.integers(1, 5))] * p} if training else {}
    if training:
        given |= {"memory_forward": [1] * p, "limit": int(draw.integers(1, p + 1))}
    return PipelineSchedule.from_arrays(
        [int(draw.integers(1, 5))] * p,
        microbatches=int(draw.integers(1, 5)),
        latency=int(draw.integers(0, 3)),
        objective=str(draw.choice(["makespan", "span"])),
        **given,
    )


def sooner(given: PipelineSchedule) -> PipelineSchedule:
    """Return a schedule whose operations take a cycle less."""
    return given.replace(**{name: np.maximum(1, column - 1) for name, column in _times(given)})


def _times(given: PipelineSchedule) -> list[tuple[str, Any]]:
    return [(name, column) for name in DURATIONS if (column := getattr(given, name)) is not None]


def one_fewer(given: PipelineSchedule) -> PipelineSchedule | None:
    """Return a schedule without the last microbatch of each stage."""
    return (
        None if given.microbatches.min() < 2 else given.replace(microbatches=given.microbatches - 1)
    )


def slower(given: PipelineSchedule) -> PipelineSchedule:
    """Return a schedule all of whose times are three times as long."""
    times = {name: 3 * column for name, column in _times(given)}
    return given.replace(**times, latency=3 * given.latency, optimizer=3 * given.optimizer)


def heavier(given: PipelineSchedule) -> PipelineSchedule:
    """Return a schedule with five times as many bytes on devices five times as large."""
    limit = None if given.limit is None else 5 * given.limit
    return given.replace(**{name: 5 * getattr(given, name) for name in BYTES}, limit=limit)


def renumbered(given: PipelineSchedule) -> PipelineSchedule:
    """Return a schedule on devices with other numbers."""
    turn = np.roll(np.arange(given.d), 1)
    place = np.argsort(turn)
    return given.replace(
        devices=place[given.devices],
        limit=None if given.limit is None else given.limit[turn],
        optimizer=given.optimizer[turn],
        device_names=None,
    )


def reversed_(given: PipelineSchedule) -> PipelineSchedule | None:
    """Return a schedule that is read from its end: F where B was, or stages the other way."""
    if given.weight is not None or given.optimizer.any():
        return None
    if given.backward is not None:
        if (given.memory_forward + given.memory_backward).any():
            return None  # what stays has come before at the other end
        return given.replace(forward=given.backward, backward=given.forward)
    if given.memory_forward.any():
        return None
    edges = [(b, a) for a, b in given.edges]
    return given.replace(edges=edges)


def twice(given: PipelineSchedule) -> PipelineSchedule:
    """Return a schedule beside itself, on as many devices again."""
    p, d = given.p, given.d
    columns = (*(name for name, _ in _times(given)), *BYTES, "microbatches", "latency", "optimizer")
    return given.replace(
        **{name: np.tile(getattr(given, name), 2) for name in columns},
        devices=np.concatenate((given.devices, given.devices + d)),
        edges=[*given.edges, *((a + p, b + p) for a, b in given.edges)],
        limit=None if given.limit is None else np.tile(given.limit, 2),
        stage_names=None,
        device_names=None,
    )


def more(given: PipelineSchedule) -> PipelineSchedule:
    return given.replace(limit=None if given.limit is None else given.limit + 1)


RELATIONS = (
    Relation("more memory", more, NO_WORSE),
    Relation("no limit of memory", lambda given: given.replace(limit=None), NO_WORSE),
    Relation("faster links", lambda given: given.replace(latency=given.latency // 2), NO_WORSE),
    Relation("faster devices", sooner, NO_WORSE),
    Relation("a microbatch fewer", one_fewer, NO_WORSE),
    Relation("no optimizer", lambda given: given.replace(optimizer=0 * given.optimizer), NO_WORSE),
    Relation("three times as slow", slower, scaled(3)),
    Relation("five times the bytes", heavier, SAME),
    Relation("other numbers of devices", renumbered, SAME),
    Relation("reversed", reversed_, SAME),
    Relation("beside itself", twice, SAME),
)
