"""Relations between schedules of phases."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.phases import PhaseSchedule
from tests.random_phases import random_phases
from tests.relations.relation import NO_WORSE, SAME, Relation, at_most, scaled

RATES = ("remote_bandwidth", "host_bandwidth", "tile_bandwidth", "gather_bandwidth")
TIMES = ("forward", "backward", "update", "forward_fixed", "backward_fixed")
BYTES = ("variables", "state", "temporary", "tape", "activations", "temporary_fixed")


def instance(seed: int) -> PhaseSchedule:
    """Return a few layers; every fourth has transfers that take no time."""
    if seed % 4:
        return random_phases(seed)
    untimed: dict[str, Any] = dict.fromkeys(RATES)
    return random_phases(seed, **untimed, io_tiles=(0, 0))


def times(given: PhaseSchedule, names: tuple[str, ...], factor: int) -> dict[str, Any]:
    """Return columns that are so many times as much."""
    return {name: factor * getattr(given, name) for name in names}


def larger(given: PhaseSchedule) -> PhaseSchedule:
    memory = given.chip.memory
    return given.replace(memory=None if memory is None else 2 * memory)


def faster(given: PhaseSchedule) -> PhaseSchedule:
    """Return a schedule whose transfers take half as long."""
    rates = {name: rate for name in RATES if (rate := getattr(given.chip, name)) is not None}
    return given.replace(**{name: 2 * rate for name, rate in rates.items()})


def quicker(given: PhaseSchedule) -> PhaseSchedule:
    return given.replace(**{name: getattr(given, name) // 2 for name in TIMES})


def free(given: PhaseSchedule) -> PhaseSchedule:
    return given.replace(remote_memory=None, graphs=None, fixed_boundaries=None)


def any_policy(given: PhaseSchedule) -> PhaseSchedule | None:
    words = ("stash", "keep", "recompute")
    return given.replace(policies=words) if given.training else None


def heavier(given: PhaseSchedule) -> PhaseSchedule | None:
    """Return a schedule with three times as many bytes, memory and rates."""
    chip = given.chip
    parted = chip.io_tiles != (0, 0) and (chip.memory or 0) % chip.tiles
    if parted or (given.sharding > 1).any():  # shares are rounded
        return None
    limits = {"memory": chip.memory, "remote_memory": given.remote_memory}
    rates = {name: getattr(chip, name) for name in RATES}
    changes = {name: None if one is None else 3 * one for name, one in {**limits, **rates}.items()}
    return given.replace(**times(given, BYTES, 3), **changes)


def slower(given: PhaseSchedule) -> PhaseSchedule | None:
    """Return a schedule all of whose times are three times as long, where none is rounded."""
    chip = given.chip
    if any(getattr(chip, name) is not None for name in RATES) or chip.io_tiles != (0, 0):
        return None
    return given.replace(**times(given, TIMES, 3), startup=3 * chip.startup)


def repeated(given: PhaseSchedule) -> PhaseSchedule | None:
    """Return a schedule of twice as many steps."""
    if given.microbatch is None or given.remote_memory is not None:
        return None
    return given.replace(global_batch=2 * given.global_batch)


def more_tiles(given: PhaseSchedule) -> PhaseSchedule | None:
    """Return a schedule with another number of tiles for I/O to choose."""
    low, high = given.chip.io_tiles
    return given.replace(io_tiles=(low, high + 1)) if high + 1 < given.chip.tiles else None


def lighter(given: PhaseSchedule) -> PhaseSchedule:
    return given.replace(temporary=given.temporary // 2, state=given.state // 2)


def relabelled(given: PhaseSchedule) -> PhaseSchedule:
    """Return a schedule whose classes have other numbers."""
    return given.replace(layer_class=7 - np.asarray(given.layer_class))


RELATIONS = (
    Relation("more memory", larger, NO_WORSE),
    Relation("no limit of memory", lambda given: given.replace(memory=None), NO_WORSE),
    Relation("faster transfers", faster, NO_WORSE),
    Relation("faster layers", quicker, NO_WORSE),
    Relation("no startup", lambda given: given.replace(startup=0), NO_WORSE),
    Relation("no budgets", free, NO_WORSE),
    Relation("any policy", any_policy, NO_WORSE),
    Relation("prefetch", lambda given: given.replace(prefetch=True), NO_WORSE),
    Relation(
        "once more computed again",
        lambda given: given.replace(recomputations=given.recomputations + 1),
        NO_WORSE,
    ),
    Relation("more tiles for I/O", more_tiles, NO_WORSE),
    Relation("less working memory", lighter, NO_WORSE),
    Relation("three times the bytes", heavier, SAME),
    Relation("three times as slow", slower, scaled(3)),
    Relation("other numbers of classes", relabelled, SAME),
    Relation("twice as many steps", repeated, at_most(2)),
)
