"""Structured schedules: chains, stars, stages apart, all on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagepack.instances.schedule import PipelineSchedule, least_memory
from tests.structured.figures import Draw, figures, some

SMALL = 4
SIZES = (16, 64, 400, 1_500, 5_000, 10_000, 20_000)
"""Of operations."""
MOST_STAGES = 10_000


def _shape(
    edges: Callable[[int], Any], devices: Callable[[int], Any], *, wide: bool = True
) -> Callable[[Draw, int], PipelineSchedule]:
    """`wide`: many stages and few microbatches, not few and many."""

    def make(draw: Draw, n: int) -> PipelineSchedule:
        kinds = int(draw.integers(1, 4))
        stages, m = n, int(draw.choice([1, 1, 2]))
        if n > SMALL:
            few = int(draw.choice([1, 2, 4, 16, 64]))
            stages, m = max(1, n // kinds // few), few
            if not wide:
                stages, m = m, stages
        stages = min(stages, MOST_STAGES)
        return _with_memory(draw, stages, kinds, m, edges(stages), devices(stages))

    return make


def _with_memory(
    draw: Draw, p: int, kinds: int, m: int, edges: Any, devices: Any
) -> PipelineSchedule:
    """Return it with memory that is free, ample, or just enough."""
    cycles = [figures(draw, p, 1) for _ in range(kinds)]
    taken = figures(draw, p)
    given: dict[str, Any] = {"memory_forward": taken}
    if kinds == 2:
        given["memory_backward"] = -taken
    if kinds == 3:
        back = -(taken // 2) if some(draw) else np.zeros_like(taken)
        given |= {"memory_backward": back, "memory_weight": -taken - back}
    instance = PipelineSchedule.from_arrays(
        *cycles,
        microbatches=m,
        devices=np.unique(devices, return_inverse=True)[1].reshape(-1),
        edges=edges,
        latency=int(draw.choice([0, 0, 1, 1000])),
        objective=str(draw.choice(["makespan", "span"])),
        optimizer=int(draw.choice([0, 0, 5])),
        **given,
    )
    if some(draw, 0.6):
        slack = int(draw.choice([0, 0, 1, int(taken.sum()) * m]))
        instance = instance.replace(limit=np.maximum(least_memory(instance) + slack, 0))
    return instance


def _chain(p: int) -> Any:
    return [(s, s + 1) for s in range(p - 1)]


def _own(p: int) -> Any:
    return np.arange(p)


SHAPES: dict[str, Callable[[Draw, int], PipelineSchedule]] = {
    "chain": _shape(_chain, _own),
    "microbatches": _shape(_chain, _own, wide=False),
    "one-device": _shape(_chain, np.zeros),
    "vee": _shape(_chain, lambda p: np.minimum(np.arange(p), np.arange(p)[::-1])),
    "rounds": _shape(_chain, lambda p: np.arange(p) % max(1, p // 2), wide=False),
    "star": _shape(lambda p: [(0, s) for s in range(1, p)], _own),
    "roots": _shape(lambda p: [(s, p - 1) for s in range(p - 1)], _own),
    "apart": _shape(lambda _: [], _own),
    "apart-on-two": _shape(lambda _: [], lambda p: np.arange(p) % 2),
    "two-chains": _shape(lambda p: [(s, s + 1) for s in range(p - 1) if s != p // 2 - 1], _own),
    "against": _shape(lambda p: [(s + 1, s) for s in range(p - 1)], _own),
    "tree": _shape(lambda p: [((s - 1) // 2, s) for s in range(1, p)], lambda p: np.arange(p) % 4),
}
