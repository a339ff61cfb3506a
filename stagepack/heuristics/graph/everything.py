"""Trying everything: every device for every block, for graphs of a few blocks.

The instance's own rules judge and evaluate every partition, so that whatever it knows counts:
figures of any magnitude, links that differ, stages that are not contiguous.  Of devices that are
alike and still empty only the first is tried.

Cost: devices ** blocks partitions at most, each of them O(nodes + tensors); times their orders,
where these matter.  Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, islice, permutations

import numpy as np

from stagepack.heuristics.graph.tuning import TUNING, EverythingTuning
from stagepack.instances.graph.check import check, evaluate
from stagepack.instances.graph.compact import FORBIDDEN, Compact
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.problem import Objective


def best(
    compact: Compact,
    pause: Callable[[float], object],
    tuning: EverythingTuning = TUNING.everything,
) -> tuple[GraphSolution | None] | None:
    """Return the best partition, None in its place where there is none; None: they are too many.

    `pause` is called now and then with the seconds of work since; what it raises ends the search.
    """
    instance, value = compact.instance, 0.0
    found: GraphSolution | None = None
    candidates = list(islice(_candidates(compact), tuning.most_partitions + 1))
    if len(candidates) > tuning.most_partitions:
        return None
    for at, candidate in enumerate(candidates):
        if at % tuning.often == 0:
            pause(tuning.price * min(tuning.often, len(candidates) - at))
        if check(instance, candidate):
            continue
        worth = evaluate(instance, candidate)
        if found is None or worth < value:
            found, value = candidate, worth
    return (found,)


def _candidates(compact: Compact) -> Iterator[GraphSolution]:
    """Yield all partitions that may be valid, but for the names of devices that are alike."""
    instance, shared = compact.instance, compact.objective == Objective.REPLICATED
    ordered = compact.sequence is None and (compact.contiguous or bool(compact.stash.any()))
    kinds = compact.device_class.tolist()
    allowed = np.asarray((compact.time < FORBIDDEN).all(axis=0))[kinds].T.tolist()
    alike = [-1] * len(kinds)
    if compact.sequence is None:
        alike = [
            max((e for e in range(d) if kinds[e] == c), default=-1) for d, c in enumerate(kinds)
        ]

    def placed(chosen: list[int]) -> Iterator[list[int]]:
        if len(chosen) == len(allowed):
            yield chosen
            return
        for device, may in enumerate(allowed[len(chosen)]):
            if may and (alike[device] < 0 or alike[device] in chosen):
                yield from placed([*chosen, device])

    for chosen in placed([]):
        devices, used = np.array(chosen)[compact.block_of], sorted(set(chosen))
        for order in permutations(used) if ordered else (tuple(used),):
            spare = range(len(kinds) - len(used) + 1 if shared else 1)
            for more in (each for n in spare for each in combinations_with_replacement(order, n)):
                replicas = [1 + more.count(device) for device in order] if shared else ()
                yield GraphSolution.of(instance, devices, order, replicas)
