"""Every plan of phases: boundaries, policies, sequences, microbatches, tiles, modes, prefetching.

Left out are policies that have no effect (see :class:`.PhaseSolution`): of a layer without a tape
whose output no layer of its group reads, where no budget of graphs tells them apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

from stagepack.claims.every import MOST, TooManyError
from stagepack.instances.phases.data import PhaseData, PhaseSolution

MOST_LAYERS = 12


def candidates(instance: PhaseData, below: Fraction | None) -> Iterator[PhaseSolution]:
    """Yield all plans."""
    if space(instance) > MOST:
        raise TooManyError
    yield from plans(instance)


def space(instance: PhaseData) -> float:
    """Return how many plans there are at most."""
    if instance.n > MOST_LAYERS and instance.fixed_boundaries is None:
        return math.inf
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


def plans(instance: PhaseData) -> Iterator[PhaseSolution]:
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
                            policy,
                            again,
                            (*prefetch, False) if ahead else (),
                        )


def _boundaries(instance: PhaseData) -> list[tuple[int, ...]]:
    if instance.fixed_boundaries is not None:
        return [instance.fixed_boundaries]
    inner = range(1, instance.n)
    return [
        (0, *cuts, instance.n)
        for count in range(instance.n)
        for cuts in itertools.combinations(inner, count)
    ]


def _policies(instance: PhaseData, cuts: tuple[int, ...]) -> list[tuple[str, ...]]:
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


def _free_sequences(instance: PhaseData) -> bool:
    return (
        instance.training
        and "recompute" in instance.policies
        and instance.recomputations > 0
        and not (instance.chain and instance.recomputations == 1)
    )


def _sequences(
    instance: PhaseData, cuts: tuple[int, ...], policy: tuple[str, ...]
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
