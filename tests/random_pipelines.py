"""Tiny random instances with every option, and their optimum by enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, Device, Link

OBJECTIVES = tuple(Objective)


def random_instance(seed: int, *, largest_n: int = 6, largest_k: int = 3) -> PipelinePartition:
    """Return an instance of at most `largest_n` layers and `largest_k` devices, options drawn."""
    draw = np.random.default_rng(seed)
    n, k = int(draw.integers(1, largest_n + 1)), int(draw.integers(1, largest_k + 1))
    fewer = k > n or draw.random() < 0.4
    floats = draw.random() < 0.15
    options: dict[str, Any] = {
        "objective": OBJECTIVES[seed % len(OBJECTIVES)],
        "fewer_stages": fewer,
        "free_order": draw.random() < 0.35,
        "host_transfer": draw.random() < 0.4,
        "in_bytes": draw.integers(0, 60, n + 1),
        "out_bytes": draw.integers(0, 60, n + 1),
        "name": f"random-{seed}",
    }
    unit = int(draw.choice([1, 1, 6, 1000]))
    divisor = float(draw.choice([8, 7]))  # with and without a common unit

    def cycles(shape: Any) -> Any:
        values = draw.integers(0, 25, shape) * unit
        return values / divisor + 0.1 if floats else values

    if draw.random() < 0.4:
        options.update(
            training=True,
            microbatches=int(draw.integers(1, 5)),
            backward=cycles(n),
            stash=draw.integers(0, 12, n),
        )
    if draw.random() < 0.4:
        options["exclusive"] = {"weights": draw.integers(0, 30, n), "code": draw.integers(0, 9, n)}
    if draw.random() < 0.4:
        options["shared"] = {
            f"key{q}": (int(draw.integers(1, 40)), draw.choice(n, int(draw.integers(1, n + 1))))
            for q in range(int(draw.integers(1, 4)))
        }
    if draw.random() < 0.4:
        options["temporary"] = draw.integers(0, 30, n)
        options["carry"] = draw.integers(0, 10, n)
    if draw.random() < 0.25 and n > 2:
        first = int(draw.integers(0, n - 1))
        options["variables"] = [("v", first, int(draw.integers(first, n)))]
    if n > 2 and draw.random() < 0.25:
        options["forbidden_cuts"] = [int(draw.integers(1, n))]
    if n > 2 and draw.random() < 0.2:
        options["fixed_cuts"] = [int(draw.integers(1, n))]
    if draw.random() < 0.15:
        options["recv_cycles"] = cycles((k, n + 1))
        options["send_cycles"] = cycles((k, n + 1))
    per_device = draw.random() < 0.5
    if draw.random() < 0.15:
        options["compute_table"] = cycles((k, n + 1, n + 1) if per_device else (n + 1, n + 1))
    if draw.random() < 0.12:
        options["memory_table"] = draw.integers(
            0, 90, (k, n + 1, n + 1) if per_device else (n + 1, n + 1)
        )
    forward, cluster = cycles(n), random_cluster(draw, k)
    if options.get("training"):
        options["backward_transfers"] = draw.random() < 0.5
    return PipelinePartition.from_arrays(forward, cluster=cluster, **options)


def random_cluster(draw: np.random.Generator, k: int) -> Cluster:
    """Return k devices: alike, or of two or three kinds of memory, speed and links."""

    def link() -> Link | None:
        if draw.random() < 0.3:
            return None
        return Link(GBps=float(draw.choice([1.0, 2.5])), idle=int(draw.integers(0, 12)))

    def device() -> Device:
        memory = None if draw.random() < 0.3 else int(draw.integers(30, 160))
        speed = draw.choice([1, 1, 2, 1.5, 0.7]).item()
        return Device(memory=memory, speed=speed, recv=link(), send=link())

    kinds = [device() for _ in range(int(draw.integers(1, 4)))]
    return Cluster(
        devices=tuple(kinds[int(draw.integers(len(kinds)))] for _ in range(k)),
        clock=float(2**30),
        host_recv=link(),
        host_send=link(),
    )


def solutions(instance: PipelinePartition) -> Iterator[PipelineSolution]:
    """Yield every valid solution, told by the instance's own checker."""
    n, k = instance.n, instance.k
    for stages in range(1, min(n, k) + 1):
        for inner in combinations(range(1, n), stages - 1):
            for devices in permutations(range(k), stages):
                solution = PipelineSolution((0, *inner, n), devices)
                if not instance.check(solution):
                    yield solution


def optimum(instance: PipelinePartition) -> tuple[Number, PipelineSolution] | None:
    """Return the best value and one solution that has it, None when there is no solution."""
    best: tuple[Number, PipelineSolution] | None = None
    for solution in solutions(instance):
        value = instance.evaluate(solution)
        if best is None or value < best[0]:
            best = value, solution
    return best
