"""Random tiny phase schedules with every option, random plans, and a brute force.

The brute force relies on `evaluate` and `check` alone: it tries every plan there is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

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


def space(instance: PhaseSchedule) -> int:
    """Return about how many plans there are."""
    total = 0
    for cuts in _boundaries(instance):
        k = len(cuts) - 1
        phases = 2 * k - 1 if instance.training else k
        policies = math.prod(len(choice) for choice in _policies(instance, cuts))
        if _free_sequences(instance):
            policies *= 2 ** sum((b - a) * (b - a + 1) // 2 for a, b in itertools.pairwise(cuts))
        for t in instance.io_tile_choices:
            ahead = 2 ** (phases - 1) if instance.prefetch and t else 1
            total += policies * ahead * len(instance.modes_with(t)) ** phases
    return total * len(instance.microbatches)


def plans(instance: PhaseSchedule) -> Iterator[PhaseSolution]:
    """Yield every plan, but for policies and sequences that change nothing."""
    for cuts in _boundaries(instance):
        k = len(cuts) - 1
        phases = 2 * k - 1 if instance.training else k
        choices = _policies(instance, cuts)
        for policy, t, size in itertools.product(
            itertools.product(*choices), instance.io_tile_choices, instance.microbatches
        ):
            ahead = instance.prefetch and t > 0
            flags = [[False, True]] * (phases - 1) if ahead else [[False]] * (phases - 1)
            for again in _sequences(instance, cuts, policy):
                for mode in itertools.product(*[instance.modes_with(t)] * phases):
                    for prefetch in itertools.product(*flags):
                        yield PhaseSolution(
                            cuts,
                            tuple(map(str, mode)),
                            t,
                            size,
                            tuple(map(str, policy)),
                            again,
                            (*prefetch, False) if ahead else (),
                        )


def _boundaries(instance: PhaseSchedule) -> list[tuple[int, ...]]:
    if instance.fixed_boundaries is not None:
        return [instance.fixed_boundaries]
    inner = range(1, instance.n)
    return [
        (0, *cuts, instance.n)
        for count in range(instance.n)
        for cuts in itertools.combinations(inner, count)
    ]


def _policies(instance: PhaseSchedule, cuts: tuple[int, ...]) -> list[tuple[str, ...]]:
    """Return the policies to try for each layer: one where they make no difference."""
    if not instance.training:
        return []
    found = []
    for first, end in itertools.pairwise(cuts):
        for layer in range(first, end):
            read = any(first <= v < end for v in instance.readers[layer + 1])
            matters = instance.tape[layer] or (read and instance.activations[layer + 1])
            every = tuple(map(str, instance.policies))
            found.append(every if matters or instance.graphs is not None else every[:1])
    return found


def _free_sequences(instance: PhaseSchedule) -> bool:
    return (
        instance.training
        and "recompute" in instance.policies
        and instance.recomputations > 0
        and not (instance.chain and instance.recomputations == 1)
    )


def _sequences(
    instance: PhaseSchedule, cuts: tuple[int, ...], policy: tuple[str, ...]
) -> Iterator[tuple[tuple[int, ...], ...] | None]:
    """Yield every way to compute dropped layers again; None: the canonical one."""
    if not _free_sequences(instance) or "recompute" not in policy:
        yield None
        return
    group = {layer: first for first, end in itertools.pairwise(cuts) for layer in range(first, end)}
    dropped = [
        [again for again in range(group[layer], layer + 1) if policy[again] == "recompute"]
        for layer in range(instance.n)
    ]
    runs = [
        [run for size in range(len(each) + 1) for run in itertools.combinations(each, size)]
        for each in dropped
    ]
    for again in itertools.product(*runs):
        counts = [sum(layer in run for run in again) for layer in range(instance.n)]
        if max(counts) <= instance.recomputations:
            yield again
