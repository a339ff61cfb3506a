"""Random tiny phase schedules with every option, random plans, and a brute force.

The brute force relies on `evaluate` and `check` alone: it tries every plan there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.claims.every.phases import plans, space
from stagepack.instances.phases import PhaseSchedule, PhaseSolution

POLICIES = ("stash", "keep", "recompute")
MOST = 60_000


def random_phases(
    seed: int,
    *,
    layers: tuple[int, int] = (1, 4),
    training: bool | None = None,
    skips: bool | None = None,
    one_group: bool = False,
    budgets: bool = True,
    prefetch: bool | None = None,
    recomputations: tuple[int, ...] = (0, 1, 1, 1, 2),
    **fixed: Any,
) -> PhaseSchedule:
    """Return a tiny instance; the seed decides whatever is not given.

    Parameters
    ----------
    seed : int
    layers : (int, int)
        Least and most of them.
    training, skips, prefetch : bool, optional
    one_group : bool
        One phase, one step, mode compute, keep and recompute: a rematerialisation instance.
    budgets : bool
        Now and then limit remote memory and graphs.
    recomputations : tuple of int
        What is drawn from.
    **fixed
        For `from_arrays`, over everything else.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(layers[0], layers[1] + 1))
    trained = one_group or (bool(rng.integers(0, 3)) if training is None else training)
    linked = bool(rng.integers(0, 3) == 0) if skips is None else skips
    pairs = [(u, v) for v in range(n) for u in range(-1, v - 1)]
    chosen = [pair for pair in pairs if rng.integers(0, 3) == 0] if linked else []

    def column(most: int, size: int = n) -> list[int]:
        # Zeros are where mistakes hide.
        drawn = rng.integers(0, most + 1, size) * rng.integers(0, 4, size).clip(0, 1)
        return [int(value) for value in drawn]

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(0, len(values)))]

    tiles = int(rng.integers(2, 9))
    free = not one_group and rng.integers(0, 4) == 0
    given: dict[str, Any] = {
        "variables": column(12),
        "forward": column(9),
        "activations": column(10, n + 1),
        "backward": column(15),
        "state": column(8),
        "sharding": rng.choice([1, 1, 2, 3], n).tolist(),
        "update": column(4),
        "temporary": column(6),
        "tape": column(8),
        "skips": chosen,
        "layer_class": rng.integers(0, 2, n).tolist() if rng.integers(0, 2) else None,
        "tiles": tiles,
        "io_tiles": (0, min(tiles - 1, int(rng.integers(0, 3)))),
        "remote_bandwidth": one_of(None, 1, 2, 2.5, 0.7),
        "host_bandwidth": one_of(None, 1, 3),
        "tile_bandwidth": one_of(None, 1, 0.75),
        "gather_bandwidth": one_of(None, 2),
        "startup": int(rng.integers(0, 3)),
        "training": trained,
        "recomputations": int(rng.choice(recomputations)),
        "prefetch": bool(rng.integers(0, 3) == 0) if prefetch is None else prefetch,
        "name": f"random-{seed}",
    }
    some = [word for word in POLICIES if rng.integers(0, 2)] or [POLICIES[rng.integers(0, 3)]]
    given["policies"] = some if trained else ["stash"]
    if one_group:
        given |= {"policies": ["keep", "recompute"], "io_tiles": (0, 0), "prefetch": False}
        given |= {"modes": ["compute"], "fixed_boundaries": (0, n), "steps": 1}
    else:
        replicas = int(rng.choice([1, 1, 2]))
        given["data_parallel"] = replicas
        modes = [mode for mode in ("naive", "compute") if rng.integers(0, 2)]
        given["modes"] = [*(modes or ["compute"]), "io", "io_overlapped"]
        if free:
            given["global_batch"] = int(rng.choice([1, 2, 3, 4])) * replicas
            given |= {"forward_fixed": column(4), "backward_fixed": column(4)}
            given["temporary_fixed"] = column(3)
        else:
            given["microbatch"] = int(rng.integers(1, 4))
            given["steps"] = int(rng.integers(1, 5))
    clean = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in {**given, **fixed}.items()
    }
    instance = PhaseSchedule.from_arrays(**clean)
    if "memory" in fixed or rng.integers(0, 6) == 0:
        return instance
    return _limited(instance, rng, budgets)


def _limited(instance: PhaseSchedule, rng: np.random.Generator, budgets: bool) -> PhaseSchedule:
    """Return the instance with a memory, and now and then budgets, that some plans exceed."""
    from stagepack.instances.phases.plan import plan

    changes: dict[str, Any] = {}
    needs = []
    for _ in range(4):
        drawn = plan(instance, random_plan(instance, rng))
        needs.append(max(part.peak for part in drawn.phases))
        if budgets and rng.integers(0, 12) == 0:
            changes["remote_memory"] = drawn.remote_bytes
        if budgets and rng.integers(0, 12) == 0:
            changes["graphs"] = drawn.graphs
    low, high = min(needs), max(needs)
    changes["memory"] = max(1, int(rng.integers(low * 3 // 4, high + low // 2 + 2)))
    return instance.replace(**changes)


def random_plan(instance: PhaseSchedule, rng: np.random.Generator) -> PhaseSolution:
    """Return a plan with the right shape; it may need too much memory."""
    n = instance.n
    cuts = instance.fixed_boundaries
    if cuts is None:
        cuts = (0, *(c for c in range(1, n) if rng.integers(0, 2)), n)
    t = int(rng.choice(instance.io_tile_choices))
    modes = instance.modes_with(t)
    k = len(cuts) - 1
    phases = 2 * k - 1 if instance.training else k
    ahead = instance.prefetch and t > 0
    words = [word for word in instance.policies if word != "recompute" or instance.recomputations]
    return PhaseSolution(
        boundaries=cuts,
        mode=tuple(str(modes[rng.integers(0, len(modes))]) for _ in range(phases)),
        io_tiles=t,
        microbatch=int(rng.choice(instance.microbatches)),
        policy=tuple(
            str((words or instance.policies)[rng.integers(0, len(words or instance.policies))])
            for _ in range(n if instance.training else 0)
        ),
        prefetch=tuple(ahead and j < phases - 1 and bool(rng.integers(0, 2)) for j in range(phases))
        if ahead
        else (),
    )


# ---------------------------------------------------------------------- brute force


def brute_force(
    instance: PhaseSchedule, most: int = MOST
) -> tuple[int | None, PhaseSolution | None]:
    """Return the least value of a valid plan and such a plan, (None, None) when there is none.

    Raises
    ------
    OverflowError
        When there are more than `most` plans.
    """
    if space(instance) > most:
        raise OverflowError(f"{space(instance)} plans")
    best: int | None = None
    found = None
    for plan in plans(instance):
        value = instance.evaluate(plan)
        if (best is None or value < best) and not instance.check(plan):
            best, found = value, plan
    return best, found
