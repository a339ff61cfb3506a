"""Structured pipelines: figures alike or zero, keys of all layers, cuts that are all forbidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagepack.instances.pipeline import PipelinePartition
from tests.random_pipelines import OBJECTIVES
from tests.structured.figures import Draw, figures, some

SMALL = 6
SIZES = (48, 64, 99, 100, 101, 500, 1_000, 4_096, 10_000)


def _shape(
    special: Callable[[Draw, int], dict[str, Any]],
) -> Callable[[Draw, int], PipelinePartition]:
    def make(draw: Draw, n: int) -> PipelinePartition:
        k = int(draw.choice([1, 2, 3, n] if n <= SMALL else [1, 2, 8, 64, min(n, 501)]))
        k = min(k, 3) if n <= SMALL else k
        given: dict[str, Any] = {
            "devices": k,
            "objective": str(draw.choice(OBJECTIVES)),
            "fewer_stages": k > n or some(draw, 0.3),
            "host_transfer": some(draw, 0.3),
            "bandwidth": 1.0,
            "clock": float(2**30),
            "in_bytes": figures(draw, n + 1),
            "out_bytes": figures(draw, n + 1),
        }
        if k <= 8:
            given["free_order"] = some(draw, 0.3)
            if some(draw, 0.3):
                given["speed"] = [1 + at % 2 for at in range(k)]
        if some(draw, 0.3):
            given |= {"training": True, "microbatches": int(draw.choice([1, 2, k, 4 * k]))}
            given |= {"backward": figures(draw, n), "stash": figures(draw, n)}
        if some(draw):
            exclusive = figures(draw, n)
            given["exclusive"] = exclusive
            total, most = int(exclusive.sum()), int(exclusive.max())
            given["capacity"] = int(draw.choice([most, total // k + most, total, 2 * total]))
        return PipelinePartition.from_arrays(
            **{"forward": figures(draw, n), **given, **special(draw, n)}
        )

    return make


def _shared(draw: Draw, n: int) -> dict[str, Any]:
    """Keys that all layers use, those at the ends, every other one, and one alone."""
    users = (range(n), {0, n - 1}, range(0, n, 2), [int(draw.integers(n))])
    return {
        "shared": {
            f"key{at}": (int(draw.integers(0, 9)), sorted(use)) for at, use in enumerate(users)
        },
        "capacity": int(draw.choice([9, 40, 2**40])),
    }


def _tables(draw: Draw, n: int) -> dict[str, Any]:
    """Costs of all ranges, which need not add up."""
    if n > 200:
        return {}
    return {"compute_table": figures(draw, (n + 1) ** 2).reshape(n + 1, n + 1)}


def _variables(draw: Draw, n: int) -> dict[str, Any]:
    """Variables that live in all layers, or each in two of them: no cut is allowed, or few are."""
    if n < 2:
        return {}
    whole = [("all", 0, n - 1)]
    pairs = [(f"v{at}", at, at + 1) for at in range(0, n - 1, int(draw.integers(2, 4)))]
    return {"variables": whole if some(draw, 0.3) else pairs}


def _cuts(draw: Draw, n: int) -> dict[str, Any]:
    """Cuts that are forbidden everywhere, or everywhere but for a few."""
    allowed = set(draw.integers(1, n + 1, int(draw.choice([0, 1, 5]))).tolist())
    return {"forbidden_cuts": [cut for cut in range(1, n) if cut not in allowed]}


def _placed(draw: Draw, n: int) -> dict[str, Any]:
    """Several stages a device, in a loop, a V or anywhere."""
    k = int(draw.integers(1, 4 if n <= SMALL else 17))
    each = int(draw.integers(2, 4 if n <= SMALL else 5))
    found: dict[str, Any] = {
        "stages_per_device": each,
        "placement": str(draw.choice(["v", "loop"])),
    }
    if some(draw, 0.2):
        table = [*range(k), *draw.integers(0, k, k * (each - 1)).tolist()]
        found = {"placement": draw.permutation(table).tolist()}
    runs = np.repeat(figures(draw, n), draw.integers(1, 5, n))[:n]
    return found | {
        "forward": runs if some(draw) else figures(draw, n),
        "devices": k,
        "speed": [1 + at % 2 for at in range(k)] if some(draw, 0.3) else 1,
        "objective": "bottleneck",
        "host_transfer": False,
        "free_order": False,
        "fewer_stages": k * each > n or some(draw),
        "temporary": figures(draw, n) if some(draw, 0.3) else None,
    }


SHAPES: dict[str, Callable[[Draw, int], PipelinePartition]] = {
    "plain": _shape(lambda draw, n: {}),
    "shared": _shape(_shared),
    "tables": _shape(_tables),
    "variables": _shape(_variables),
    "forbidden": _shape(_cuts),
    "nothing": _shape(lambda draw, n: {"forward": np.zeros(n, int)}),
    "peaks": _shape(
        lambda draw, n: {"temporary": figures(draw, n), "carry": figures(draw, n), "capacity": 1000}
    ),
    "placed": _shape(_placed),
    "unlike": _shape(lambda draw, n: {"forward": np.where(np.arange(n) == n // 2, 10**6, 1)}),
}
