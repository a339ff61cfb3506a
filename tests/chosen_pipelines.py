"""Tiny random chains whose layers have alternatives, and their optimum by enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from tests.random_pipelines import asked, random_instance, solutions

TABLES = ("compute_table", "memory_table")


def chosen_instance(seed: int, *, largest_n: int = 5, wide: bool = False) -> PipelinePartition:
    """Return a random instance with one to three alternatives, of few layers or of all.

    Some have equal layers, ties, zeros, alternatives that nobody takes, and latency to minimise.
    """
    draw = np.random.default_rng([seed, 3])
    given = random_instance(seed, largest_n=largest_n, wide=wide)
    if any(getattr(given, name) is not None for name in TABLES):
        given = given.replace(compute_table=None, memory_table=None)
    n = given.n
    if draw.random() < 0.3:
        alike: dict[str, Any] = {"forward": np.repeat(given.forward[:1], n)}
        alike["stash"] = np.repeat(given.stash[:1], n)
        given = given.replace(**alike)
    if draw.random() < 0.25:
        given = asked(given, "latency", seed)
    even = draw.random() < 0.4
    size = None if even else n

    def cycles(usual: Any) -> Any:
        kind = draw.random()
        if kind < 0.2:
            return usual
        return usual + draw.integers(0, 30, size) * (1.25 if kind < 0.3 else 1)

    def nbytes(usual: Any) -> Any:
        kind = draw.random()
        if kind < 0.15:
            return np.zeros_like(usual)
        if kind < 0.3:
            return usual + draw.integers(0, 20, size)
        return usual // int(draw.integers(1, 4))

    found = {}
    for name in ("full", "cpu", "disk")[: int(draw.integers(1, 4))]:
        figures: dict[str, Any] = {"forward": cycles(given.forward)}
        if given.training:
            figures["backward"] = cycles(given.backward)
            figures["stash"] = nbytes(given.stash)
        if draw.random() < 0.8:
            held = sum(given.exclusive.values(), np.zeros(n, dtype=np.int64))
            figures["exclusive"] = nbytes(held)
        if draw.random() < 0.5:
            figures["temporary"] = nbytes(given.temporary) + draw.integers(0, 9)
        if given.kv_bytes is not None:
            figures["kv_bytes"] = nbytes(given.kv_bytes)
        if draw.random() < 0.3:
            figures["layers"] = np.unique(draw.integers(0, n, n))
        found[name] = figures
    per = "stage" if draw.random() < 0.3 else "layer"
    return given.replace(alternatives=found, alternatives_per=per, own_alternative="none")


def chosen_optimum(instance: PipelinePartition) -> Number | None:
    """Return the least value of all cuts and choices that are valid; None: there is none."""
    return min(map(instance.evaluate, chosen_solutions(instance)), default=None)


def chosen_solutions(instance: PipelinePartition) -> Iterator[PipelineSolution]:
    """Yield all cuts and choices that are valid."""
    own = instance.own_alternative
    devices = tuple(msgspec.structs.replace(d, memory=None) for d in instance.cluster.devices)
    cluster = msgspec.structs.replace(instance.cluster, devices=devices)
    for cut in list(solutions(instance.replace(alternatives=None, cluster=cluster))):
        for choices in product(
            *(
                [own, *(name for name, one in instance.alternatives.items() if one.layers[at])]
                for at in range(instance.n)
            )
        ):
            solution = PipelineSolution(cut.boundaries, cut.devices, choices)
            if not instance.check(solution):
                yield solution
