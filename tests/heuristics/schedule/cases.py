"""Schedules of the literature, and how a search is run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from stagepack import catalog
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.methods import Settings, counted
from stagepack.progress import Progress, Stopped


def zero_bubble(p: int, m: int, f: int, b: int, w: int, limit: int | None) -> PipelineSchedule:
    """F takes 2 units of memory, B and W give back one each; the longest span counts."""
    return PipelineSchedule.from_arrays(
        [f] * p,
        [b] * p,
        [w] * p,
        microbatches=m,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=limit,
        objective="span",
    )


FOUR: PipelineSchedule = catalog.load("schedule/zero-bubble/measured-4x12")
EIGHT: PipelineSchedule = catalog.load("schedule/zero-bubble/measured-8x32")
"""Two profiles that the authors of zero bubble left with a gap."""


def _published() -> list[tuple[PipelineSchedule, int]]:
    """Return every schedule of the catalog whose least value is known, and that."""
    found = []
    for known in catalog.BEST_KNOWN:
        name, *settings = known.name.split()
        if name.startswith("schedule/"):
            assert known.proved
            parameters = dict(setting.split("=") for setting in settings)
            found.append((catalog.load(name, **parameters), int(known.value)))
    assert len(found) >= 6
    return found


PUBLISHED = _published()


def vee(d: int, m: int, limit: int | None = None) -> PipelineSchedule:
    """Two stages a device in the shape of a V, all of one cycle."""
    return PipelineSchedule.from_arrays(
        [1] * 2 * d,
        [1] * 2 * d,
        [1] * 2 * d,
        microbatches=m,
        devices=[*range(d), *reversed(range(d))],
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=limit,
        objective="span",
    )


def looped(d: int, rounds: int, m: int) -> PipelineSchedule:
    """Several rounds of stages over the devices, F of one cycle and B of two."""
    p = d * rounds
    return PipelineSchedule.from_arrays(
        [1] * p, [2] * p, microbatches=m, devices=[s % d for s in range(p)]
    )


def run(
    search: Callable[[PipelineSchedule, Progress[Any], Settings], None],
    instance: PipelineSchedule,
    *,
    seed: int = 0,
    time_limit: float = 20.0,
    deterministic: bool = False,
) -> Progress[ScheduleSolution]:
    """Return what a search reported; with `deterministic`, in one round."""
    progress: Progress[ScheduleSolution] = Progress(
        instance.evaluate, instance.check, time_limit=None if deterministic else time_limit
    )
    settings = Settings(seed=seed, deterministic=deterministic, time_limit=time_limit)
    with contextlib.suppress(Stopped):
        counted(search)(instance, progress, settings)
    return progress
