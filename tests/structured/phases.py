"""Structured phase schedules: chains, nets of skips, figures that are zero or alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.profile import Array
from tests.random_phases import POLICIES
from tests.structured.figures import Draw, some
from tests.structured.figures import figures as drawn

SMALL = 4
SIZES = (6, 9, 64, 243, 512, 600, 1_000, 4_096)
MOST_SKIPS = 3_000


def _shape(
    skips: Callable[[int], Any], most: int = 10**9, *, zeros: bool = False, **fixed: Any
) -> Callable[[Draw, int], PhaseSchedule]:
    def make(draw: Draw, n: int) -> PhaseSchedule:
        n = min(n, most)

        def figures(size: int) -> Array:
            return drawn(draw, size) * (not zeros)

        training = some(draw, 0.6)
        given: dict[str, Any] = {
            "variables": figures(n),
            "forward": figures(n),
            "activations": figures(n + 1),
            "temporary": figures(n),
            "skips": [pair for pair in skips(n) if pair[1] - pair[0] > 1][:MOST_SKIPS],
            "tiles": int(draw.integers(2, 5)),
            "io_tiles": (0, int(draw.integers(0, 2))),
            "microbatch": 1,
            "steps": int(draw.choice([1, 2, 9])),
            "training": training,
        }
        for name, values in (("remote", (1, 2.5)), ("host", (1, 3)), ("tile", (1, 0.75))):
            if some(draw):
                given[f"{name}_bandwidth"] = float(draw.choice(values))
        if training:
            given |= {name: figures(n) for name in ("backward", "state", "update", "tape")}
            given["policies"] = [word for word in POLICIES if some(draw, 0.7)] or ["stash"]
            given["prefetch"] = some(draw, 0.2)
        if some(draw, 0.2):
            given["fixed_boundaries"] = (0, n) if some(draw) else range(n + 1)
        return _with_memory(draw, PhaseSchedule.from_arrays(**{**given, **fixed}))

    return make


def _with_memory(draw: Draw, instance: PhaseSchedule) -> PhaseSchedule:
    """Return it with memory for nothing, for its largest layer about, for a part, or for all."""
    sums = instance.variables + instance.activations[1:] + instance.activations[:-1]
    sums = sums + instance.temporary + (instance.tape if instance.training else 0)
    most, total = int(sums.max()), int(sums.sum())
    tiles = instance.chip.tiles
    memory = int(draw.choice([0, most, 2 * most + 1, 3 * most, most + total // 3, 4 * total + 1]))
    return instance.replace(memory=-(-memory // max(1, tiles - 1)))


def _unet(n: int) -> Any:
    return [(u, n - 1 - u) for u in range(n // 2)]


SHAPES: dict[str, Callable[[Draw, int], PhaseSchedule]] = {
    "chain": _shape(lambda n: []),
    "chain-again": _shape(lambda n: [], recomputations=2),
    "u-net": _shape(_unet, 300),
    "residual": _shape(lambda n: [(u, u + 2) for u in range(-1, n - 2)], 300),
    "input-read-by-all": _shape(lambda n: [(-1, v) for v in range(1, n)], 300),
    "last-reads-all": _shape(lambda n: [(u, n - 1) for u in range(-1, n - 2)], 300),
    "complete": _shape(lambda n: [(u, v) for v in range(n) for u in range(-1, v - 1)], 40),
    "nothing": _shape(lambda n: [], zeros=True),
    "one-group": _shape(lambda n: [], 64, modes=["compute"], steps=1, io_tiles=(0, 0)),
}
