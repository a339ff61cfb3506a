"""How often tuning asks a profiler of one's own, beside the whole grid and bisection.

    python -m benchmarks.profilers [--seeds 5] [--space NAME]

Spaces are simulated, so that the best of each is known: how many values fit, and how fast each
configuration is, is drawn for each seed.  A line for each space: configurations, which the grid
measures all; measurements of bisection in every point of it, and of `tune` (median, and most
of the seeds); by how much the worst answer of `tune` is below the best.  With a model, the
truth is slower than it says by a factor of 0.5 to 0.6 and holds 0.7 to 0.9 of the batch, drawn
for every point of the grid.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import stagepack as sp

Options = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """Options, and what a profiler says of them."""

    options: dict[str, list[Any]]
    monotone: tuple[str, ...]
    measure: Callable[..., float]
    make: Callable[..., sp.PipelinePartition] | None = None

    def configurations(self) -> Iterator[Options]:
        """Yield all of them."""
        for values in itertools.product(*self.options.values()):
            yield dict(zip(self.options, values, strict=True))

    def value(self, chosen: Options) -> float:
        """Return what is measured; 0 where it fails."""
        try:
            return self.measure(**chosen)
        except MemoryError:
            return 0.0


def batch_and_parts(seed: int) -> Space:
    """Return the batch, devices and the part of memory for temporaries, without a model."""
    draw = random.Random(seed)
    points = list(itertools.product((1, 2, 4), (0.3, 0.6, 1.0)))
    held = {(d, part): draw.uniform(20, 60) * d / (1.5 - part) for d, part in points}
    speed = {(d, part): d ** draw.uniform(0.6, 1) * draw.uniform(0.8, 1.2) for d, part in points}
    fixed = draw.uniform(1, 10)

    def measure(batch: int, devices: int, part: float) -> float:
        if batch > held[devices, part]:
            raise MemoryError("out of memory")
        return 100 * batch / (fixed + batch / speed[devices, part])

    options = {"batch": list(range(1, 128)), "devices": [1, 2, 4], "part": [0.3, 0.6, 1.0]}
    return Space(options, ("batch",), measure)


def two_that_rise(seed: int) -> Space:
    """Return microbatches and the batch, both better when larger, and devices."""
    draw = random.Random(seed)
    held = {devices: draw.uniform(40, 200) * devices for devices in (2, 4, 8)}
    grown = draw.uniform(0.7, 1)

    def measure(microbatches: int, batch: int, devices: int) -> float:
        if batch * (4 + microbatches**0.5) > held[devices]:
            raise MemoryError("out of memory")
        idle = (devices - 1) / (microbatches + devices - 1)
        return 100 * devices**grown * (1 - idle) * batch / (batch + 6)

    options = {
        "microbatches": [4, 8, 16, 32, 64],
        "devices": [2, 4, 8],
        "batch": list(range(1, 65)),
    }
    return Space(options, ("microbatches", "batch"), measure)


def _model(batch: int, devices: int, microbatches: int, training: bool) -> sp.PipelinePartition:
    return sp.PipelinePartition.from_arrays(
        [20 + (3 + at % 4) * batch for at in range(16)],
        devices=devices,
        microbatches=microbatches,
        training=training,
        exclusive=[10] * 16,
        temporary=[4 * batch] * 16,
        stash=[batch] * 16 if training else None,
        capacity=300,
    )


def _modelled(seed: int, training: bool) -> Space:
    """Return the batch, devices and microbatches with a model that is too kind."""
    draw = random.Random(seed)
    options: dict[str, list[Any]] = {
        "batch": list(range(1, 65)),
        "devices": [1, 2, 4, 8],
        "microbatches": [4, 16],
    }
    points = list(itertools.product(options["devices"], options["microbatches"]))
    slower = {point: draw.uniform(0.5, 0.6) for point in points}
    held = {point: draw.uniform(0.7, 0.9) for point in points}
    known: dict[tuple[int, int, int], float] = {}
    for devices, microbatches in points:
        for batch in options["batch"]:
            plan = sp.solve(
                _model(round(batch / held[devices, microbatches]), devices, microbatches, training)
            )
            if plan.solution is None:
                break
            idle = (microbatches + devices - 1) / microbatches
            load = float(_model(batch, devices, microbatches, training).evaluate(plan.solution))
            pace = 1e6 * batch / (load * idle) * slower[devices, microbatches]
            known[batch, devices, microbatches] = pace

    def measure(batch: int, devices: int, microbatches: int) -> float:
        try:
            return known[batch, devices, microbatches]
        except KeyError:
            raise MemoryError("out of memory") from None

    def make(batch: int, devices: int, microbatches: int) -> sp.PipelinePartition:
        return _model(batch, devices, microbatches, training)

    return Space(options, () if training else ("batch",), measure, make)


def inference(seed: int) -> Space:
    """Return such a space in inference, where a larger batch is better."""
    return _modelled(seed, training=False)


def training(seed: int) -> Space:
    """Return such a space in training, where nothing is declared monotone."""
    return _modelled(seed, training=True)


SPACES: dict[str, Callable[[int], Space]] = {
    "batch, devices, part": batch_and_parts,
    "microbatches and batch rise": two_that_rise,
    "inference, with a model": inference,
    "training, with a model": training,
}


def row(name: str, seeds: int) -> str:
    """Return the line of a space."""
    asked: dict[str, list[int]] = {"bisection": [], "tune": []}
    below, configurations = 0.0, 0
    for seed in range(seeds):
        space = SPACES[name](seed)
        best = max(map(space.value, space.configurations()))
        found = sp.tune(space.make, space.options, space.monotone, measure=space.measure)
        assert found.best is not None
        assert found.best.throughput is not None
        below = max(below, 1 - found.best.throughput / best)
        configurations = found.configurations
        asked["tune"].append(len(found.evaluations))
        halved = sp.tune(None, space.options, space.monotone, measure=space.measure,
                         search="bisection") if space.monotone else None  # fmt: skip
        asked["bisection"].append(len(halved.evaluations) if halved else configurations)
    figures = "".join(
        f"{statistics.median(some):9.0f}{f'({max(some)})':>7}" for some in asked.values()
    )
    return f"{name:29}{configurations:7,}{figures}{below:9.2%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="spaces of each kind")
    parser.add_argument("--space", choices=SPACES, help="only this one")
    given = parser.parse_args()
    print(f"{'space':29}{'grid':>7}{'bisection (most)':>16}{'tune (most)':>16}{'below':>9}")
    for name in [given.space] if given.space else SPACES:
        print(row(name, given.seeds), flush=True)


if __name__ == "__main__":
    main()
