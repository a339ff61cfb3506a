"""Tiny random instances with every option, and their optimum by enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

import msgspec
import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.methods.pipeline import TABLE
from tests import wide_figures

OBJECTIVES = TABLE.known[:4]
"""Objectives of the dearest stage; others are tested by themselves, see `asked`."""


def random_instance(
    seed: int, *, largest_n: int = 6, largest_k: int = 3, wide: bool = False
) -> PipelinePartition:
    """Return an instance of at most `largest_n` layers and `largest_k` devices, options drawn.

    `wide`: with figures that strain what engines compute exactly (:mod:`.wide_figures`).
    """
    draw = np.random.default_rng([seed, 1] if wide else seed)
    style = wide_figures.style_of(draw) if wide else ""
    factor = int(draw.choice([1, 10**3, 10**6, 10**9])) if wide else 1

    def nbytes(high: int, size: Any, low: int = 0) -> Any:
        if not wide:
            return draw.integers(low, high, size)
        return np.maximum(low, wide_figures.nbytes(draw, size, high, factor))

    n, k = int(draw.integers(1, largest_n + 1)), int(draw.integers(1, largest_k + 1))
    fewer = k > n or draw.random() < 0.4
    floats = draw.random() < 0.15
    options: dict[str, Any] = {
        "objective": OBJECTIVES[seed % len(OBJECTIVES)],
        "fewer_stages": fewer,
        "free_order": draw.random() < 0.35,
        "host_transfer": draw.random() < 0.4,
        "in_bytes": nbytes(60, n + 1),
        "out_bytes": nbytes(60, n + 1),
        "name": f"random-{seed}",
    }
    unit = int(draw.choice([1, 1, 6, 1000]))
    divisor = float(draw.choice([8, 7]))  # with and without a common unit

    def cycles(shape: Any) -> Any:
        if wide:
            return wide_figures.figures(draw, shape, style)
        values = draw.integers(0, 25, shape) * unit
        return values / divisor + 0.1 if floats else values

    if draw.random() < 0.4:
        options.update(
            training=True,
            microbatches=int(draw.integers(1, 5)),
            backward=cycles(n),
            stash=nbytes(12, n),
        )
    if draw.random() < 0.4:
        options["exclusive"] = {"weights": nbytes(30, n), "code": nbytes(9, n)}
    if draw.random() < 0.4:
        options["shared"] = {
            f"key{q}": (int(nbytes(40, None, 1)), draw.choice(n, int(draw.integers(1, n + 1))))
            for q in range(int(draw.integers(1, 4)))
        }
    if draw.random() < 0.4:
        options["temporary"] = nbytes(30, n)
        options["carry"] = nbytes(10, n)
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
        options["memory_table"] = nbytes(90, (k, n + 1, n + 1) if per_device else (n + 1, n + 1))
    forward, cluster = cycles(n), random_cluster(draw, k, factor, wide)
    if options.get("training"):
        options["backward_transfers"] = draw.random() < 0.5
    return PipelinePartition.from_arrays(forward, cluster=cluster, **options)


def asked(given: PipelinePartition, objective: str, seed: int) -> PipelinePartition:
    """Return an instance that is asked for latency or headroom, with a KV cache.

    Parameters
    ----------
    given : PipelinePartition
        For headroom, where its devices have no limit they get one, and it does not train.
    objective : str
    seed : int
        Of bytes and tokens.
    """
    draw = np.random.default_rng([seed, 2])
    each = draw.integers(0, 4, given.n)
    each[draw.integers(given.n)] = 1
    tokens = int(draw.integers(0, 6)) if draw.random() < 0.4 else 0
    changes: dict[str, Any] = {"kv_bytes": each, "tokens": tokens}
    if objective == "headroom":
        devices = tuple(
            msgspec.structs.replace(one, memory=120 if one.memory is None else one.memory)
            for one in given.cluster.devices
        )
        changes["cluster"] = msgspec.structs.replace(given.cluster, devices=devices)
        changes["training"] = False
    return given.replace(objective=objective, **changes)


def random_cluster(
    draw: np.random.Generator, k: int, factor: int = 1, wide: bool = False
) -> Cluster:
    """Return k devices: alike, or of two or three kinds of memory, speed and links.

    Parameters
    ----------
    draw : Generator
    k : int
    factor : int
        What bytes are multiplied by.
    wide : bool
        Whether speeds and links may be far apart.
    """
    speeds, links = ([1, 1, 2, 1.5, 0.7], [1.0, 2.5])
    if wide:
        speeds, links = ([1, 1, 2, 4, 0.5, 0.1, 3, 1.7], [0.5, 1.0, 2.5, 7.0])

    def link() -> Link | None:
        if draw.random() < 0.3:
            return None
        return Link(GBps=float(draw.choice(links)), idle=int(draw.integers(0, 12)))

    def device() -> Device:
        memory = None if draw.random() < 0.3 else factor * int(draw.integers(30, 160))
        speed = draw.choice(speeds).item()
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


def tied(given: PipelinePartition, objective: str, seed: int) -> PipelinePartition:
    """Return an instance whose layers share weights, mostly in training.

    Parameters
    ----------
    given : PipelinePartition
    objective : str
    seed : int
        Of the weights: none, small and huge ones, of one layer, of some, and of all.
    """
    draw = np.random.default_rng([seed, 3])
    weights = {
        f"weight{at}": (
            int(draw.choice([0, 1, 20, 60, 10**6])),
            sorted(draw.choice(given.n, int(draw.integers(1, given.n + 1)), replace=False)),
        )
        for at in range(int(draw.integers(1, 4)))
    }
    microbatches = int(draw.integers(1, 5))
    training = bool(draw.random() < 0.85)
    return given.replace(
        objective=objective, tied=weights, training=training, microbatches=microbatches
    )


def moved(given: PipelinePartition, seed: int) -> PipelinePartition:
    """Return the question of the fewest moves from some cut, within some limit.

    Parameters
    ----------
    given : PipelinePartition
        What is limited is its objective.
    seed : int
        Of the cut, which may be none of this instance, the bytes and the limit.
    """
    draw = np.random.default_rng([seed, 4])
    nbytes = draw.integers(0, 3, given.n) * int(draw.choice([1, 7, 10**9]))
    nbytes[draw.integers(given.n)] += 1
    given = given.replace(exclusive={"weights": nbytes})
    held = draw.integers(-1, given.k, given.n)
    held = np.sort(held) if draw.random() < 0.7 else held
    best, limit = optimum(given), None
    if best is not None and draw.random() < 0.9:
        limit = float(draw.choice([0.9, 1, 1, 1.05, 1.2, 2])) * best[0]
        whole = isinstance(best[0], int)
        limit = int(limit) if whole and draw.random() < 0.5 else limit
    return given.replace(
        objective="moves", previous=held.tolist(), limited=given.objective, limit=limit
    )
