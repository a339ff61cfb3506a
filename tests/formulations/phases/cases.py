"""Small random instances of recomputation, and the best plan by trying all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from stagepack.instances.phases import PhaseSchedule, PhaseSolution


def random_remat(seed: int, *, largest: int = 4) -> PhaseSchedule:
    """Return a small training instance of one group, skips and policies by chance."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, largest + 1))
    twice = bool(rng.random() < 0.3) and n <= 3
    skips = (
        [(u, v) for u in range(n) for v in range(u + 2, n) if rng.random() < 0.5]
        if rng.random() < 0.7
        else []
    )
    policies = [("keep", "recompute"), ("keep", "recompute", "stash"), ("recompute", "stash")][
        int(rng.choice(3, p=[0.5, 0.4, 0.1]))
    ]
    paging = "stash" in policies
    io_tiles = int(rng.integers(0, 3)) if paging else 0
    modes = ("io", "io_overlapped") if io_tiles else ("compute",)
    instance = PhaseSchedule.from_arrays(
        variables=rng.integers(0, 3, n),
        state=rng.integers(0, 3, n),
        forward=rng.integers(1, 12, n),
        backward=rng.integers(1, 12, n),
        activations=rng.integers(0, 10, n + 1),
        tape=rng.integers(0, 8, n) * (rng.random() < 0.7),
        temporary=rng.integers(0, 8, n) * (rng.random() < 0.5),
        skips=skips,
        tiles=4 if io_tiles else 1,
        io_tiles=(io_tiles, io_tiles),
        remote_bandwidth=2 if paging else None,
        tile_bandwidth=0.75 if io_tiles else None,
        steps=int(rng.integers(1, 4)),
        modes=modes,
        training=True,
        policies=policies,
        recomputations=2 if twice else 1,
        fixed_boundaries=(0, n),
    )
    # A limit between what keeping everything needs and what the least plans need.
    most = 2 * int(instance.variables.sum() + instance.activations.sum() + instance.tape.sum())
    share = float(rng.uniform(0.35, 0.9))
    return instance.replace(memory=int((most + 8) * share) * (2 if io_tiles else 1))


def plans(instance: PhaseSchedule, io_tiles: int, mode: str) -> Iterator[PhaseSolution]:
    """Yield every plan of one group, valid or not."""
    n = instance.n
    stages: list[list[tuple[str, tuple[int, ...]]]] = []
    for layer in range(n):
        options: list[tuple[str, tuple[int, ...]]] = [
            (policy, ()) for policy in ("keep", "stash") if policy in instance.policies
        ]
        if "recompute" in instance.policies:
            for times in range(instance.recomputations + 1):
                options += [
                    ("recompute", chosen)
                    for chosen in itertools.combinations(range(layer, n), times)
                ]
        stages.append(options)
    canonical = instance.chain and instance.recomputations == 1
    for choice in itertools.product(*stages):
        if canonical and any(chosen != () for _, chosen in choice):
            continue
        yield PhaseSolution(
            boundaries=(0, n),
            mode=(mode,),
            io_tiles=io_tiles,
            microbatch=1,
            policy=tuple(policy for policy, _ in choice),
            recompute=None
            if canonical
            else tuple(
                tuple(layer for layer in range(n) if stage in choice[layer][1])
                for stage in range(n)
            ),
        )


def best(instance: PhaseSchedule, io_tiles: int, mode: str) -> PhaseSolution | None:
    """Return the best plan, None when there is none."""
    found = [plan for plan in plans(instance, io_tiles, mode) if not instance.check(plan)]
    return min(found, key=instance.evaluate, default=None)
