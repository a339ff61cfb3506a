"""Tiny random instances with several stages a device, and their optimum by enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution


def random_placed(seed: int) -> PipelinePartition:
    """Return an instance of a few layers, two to four stages a device, options drawn."""
    draw = np.random.default_rng([seed, 7])
    each, k = int(draw.integers(2, 5)), int(draw.integers(1, 4))
    k = min(k, 6 // each)
    stages = each * k
    fewer = bool(draw.random() < 0.5)
    n = int(draw.integers(2 if fewer else stages, 8))
    options: dict[str, Any] = {"stages_per_device": each, "placement": "v" if seed % 3 else "loop"}
    if seed % 4 == 0:
        table = [*range(k), *draw.integers(0, k, stages - k).tolist()]
        options = {"placement": draw.permutation(table).tolist()}
    cycles: Any = draw.integers(0, 25, n) * int(draw.choice([1, 6]))
    if draw.random() < 0.15:
        cycles = cycles / 7 + 0.1
    if draw.random() < 0.3:
        options["speed"] = draw.choice([1, 2, 1.5], k).tolist()
    if draw.random() < 0.6:
        options["exclusive"] = draw.integers(0, 30, n)
        options["capacity"] = draw.integers(20, 160, k).tolist()
        if draw.random() < 0.4:
            options["temporary"] = draw.integers(0, 30, n)
            options["carry"] = draw.integers(0, 10, n)
        if draw.random() < 0.3:
            options["shared"] = {
                f"key{q}": (int(draw.integers(1, 40)), draw.choice(n, int(draw.integers(1, n + 1))))
                for q in range(2)
            }
        if draw.random() < 0.4:
            options["stash"] = draw.integers(0, 12, n)
            options |= {"training": True, "microbatches": int(draw.integers(1, 6))}
    for name in ("forbidden_cuts", "fixed_cuts"):
        if n > stages and draw.random() < 0.2:
            options[name] = [int(draw.integers(1, n))]
    return PipelinePartition.from_arrays(
        cycles, devices=k, fewer_stages=fewer, name=f"placed-{seed}", **options
    )


def solutions(instance: PipelinePartition) -> Iterator[PipelineSolution]:
    """Yield every valid solution, all cuts tried, told by the instance's own checker."""
    table, n = instance.stage_devices, instance.n
    for inner in combinations_with_replacement(range(n + 1), len(table) - 1):
        cuts = (0, *inner, n)
        stages = [(b, d) for a, b, d in zip(cuts, cuts[1:], table, strict=False) if a < b]
        if len(stages) == len(table) or instance.fewer_stages:
            ends, devices = zip(*stages, strict=True)
            solution = PipelineSolution((0, *ends), devices)
            if not instance.check(solution):
                yield solution


def optimum(instance: PipelinePartition) -> Number | None:
    """Return the least objective, None when there is no solution."""
    return min(map(instance.evaluate, solutions(instance)), default=None)
