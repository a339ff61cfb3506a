"""Hostile models: the largest, smallest and strangest instances of phase scheduling."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.hostile.families import count, family, random_of
from stagepack.instances.phases import PhaseSchedule


def _phases(n: int, **more: Any) -> PhaseSchedule:
    random = random_of(n)
    options: dict[str, Any] = {
        "memory": 60_000,
        "tiles": 64,
        "io_tiles": (0, 16),
        "remote_bandwidth": 3.7,
        "host_bandwidth": 0.9,
        "tile_bandwidth": 0.3,
    }
    return PhaseSchedule.from_arrays(
        random.integers(1, 9_999, n),
        random.integers(1, 9_999, n),
        random.integers(1, 999, n + 1),
        **{**options, **more},
    )


def _training(n: int, **more: Any) -> PhaseSchedule:
    random = random_of(n + 1)
    options: dict[str, Any] = {
        "backward": random.integers(1, 9_999, n),
        "state": random.integers(1, 9_999, n),
        "update": random.integers(1, 99, n),
        "tape": random.integers(1, 99, n),
        "temporary": random.integers(1, 99, n),
        "training": True,
        "steps": 4,
        "policies": ("stash", "keep", "recompute"),
    }
    return _phases(n, **{**options, **more})


@family
def one_layer_phases(_: float) -> PhaseSchedule:
    """One layer."""
    return _phases(1)


@family
def zero_phases(share: float) -> PhaseSchedule:
    """Layers without bytes or cycles."""
    n = count(share, 2_000)
    return PhaseSchedule.from_arrays([0] * n, [0] * n, [0] * (n + 1), memory=0, tiles=2)


@family
def layers_of_many(share: float) -> PhaseSchedule:
    """20,000 layers, inference."""
    return _phases(count(share, 20_000), steps=8)


@family
def layers_that_all_fit(share: float) -> PhaseSchedule:
    """3,000 layers and no limit of memory: every range is a group."""
    return _phases(count(share, 3_000), steps=8, memory=2**50)


@family
def tiles_of_many(share: float) -> PhaseSchedule:
    """A million tiles, any number of which may be for I/O."""
    tiles = count(share, 1_000_000)
    return _phases(20, tiles=tiles, io_tiles=(0, tiles - 1), steps=8)


@family
def microbatches_free(share: float) -> PhaseSchedule:
    """A global batch with more than a thousand divisors."""
    whole = 735_134_400 if share == 1 else 12
    return _phases(
        30, memory=2**40, global_batch=whole, forward_fixed=[7] * 30, temporary_fixed=[3] * 30
    )


@family
def training_long(share: float) -> PhaseSchedule:
    """300 layers in training, every policy."""
    return _training(count(share, 300))


@family
def training_prefetch(share: float) -> PhaseSchedule:
    """100 layers in training with prefetch, sharding and few graphs."""
    n = count(share, 100)
    return _training(
        n,
        prefetch=True,
        sharding=[4] * n,
        data_parallel=4,
        gather_bandwidth=0.7,
        layer_class=np.arange(n) % 3,
        graphs=8,
        recomputations=3,
    )


@family
def training_one_group(share: float) -> PhaseSchedule:
    """60 layers in one group: what to keep and what to compute again."""
    n = count(share, 60)
    return _training(n, fixed_boundaries=[0, n], memory=600_000, recomputations=2)


@family
def skips_everywhere(share: float) -> PhaseSchedule:
    """Every layer reads the outputs of all before it, in training."""
    n = count(share, 60)
    skips = [(u, v) for u in range(-1, n) for v in range(u + 2, n)]
    return _training(n, skips=skips, memory=200_000)


@family
def skips_long(share: float) -> PhaseSchedule:
    """A U-net of 600 layers."""
    n = count(share, 600)
    return _training(n, skips=[(u, n - 1 - u) for u in range(n // 2 - 1)], memory=200_000)


@family
def remote_memory_tight(share: float) -> PhaseSchedule:
    """Remote memory that suffices for a part of the stashes only."""
    n = count(share, 60)
    return _training(n, remote_memory=25_000 * n)


@family
def nothing_fits(share: float) -> PhaseSchedule:
    """A layer that is larger than the chip, at the end of 5,000."""
    n = count(share, 5_000)
    return _phases(n, temporary=[0] * (n - 1) + [10**6], steps=8)


@family
def huge_phases(share: float) -> PhaseSchedule:
    """Figures whose sums come close to 2**62."""
    n = count(share, 40)
    random = random_of(n)
    return PhaseSchedule.from_arrays(
        random.integers(2**44, 2**45, n),
        random.integers(2**44, 2**45, n),
        random.integers(2**40, 2**41, n + 1),
        memory=2**47,
        tiles=3,
        io_tiles=(0, 2),
        remote_bandwidth=0.7,
        steps=8,
    )


@family
def steps_of_very_many(share: float) -> PhaseSchedule:
    """A billion steps of 400 layers in training, which load ahead."""
    return _training(count(share, 400), steps=10**9, prefetch=True, memory=90_000)


@family
def layers_alike(share: float) -> PhaseSchedule:
    """500 like layers of one class, few graphs, every policy: very many plans are as good."""
    n = count(share, 500)
    return PhaseSchedule.from_arrays(
        [100] * n,
        [50] * n,
        [10] * (n + 1),
        backward=[100] * n,
        tape=[20] * n,
        training=True,
        steps=4,
        policies=("stash", "keep", "recompute"),
        layer_class=[0] * n,
        graphs=4,
        memory=1_500,
        tiles=8,
        io_tiles=(0, 4),
        remote_bandwidth=2.0,
    )
