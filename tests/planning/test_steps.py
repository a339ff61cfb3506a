"""Steps of plans: never called longer than the shortest that enumeration finds."""

from __future__ import annotations

import itertools
import random

import pytest

import stagepack as sp
from stagepack.planning.steps import shortest_step_is


def drawn(seed: int) -> sp.PipelinePartition:
    rng = random.Random(seed)
    n, k = rng.randint(3, 5), rng.randint(2, 3)
    nbytes = [rng.randint(0, 40) for _ in range(n + 1)]
    return sp.PipelinePartition.from_arrays(
        [rng.randint(1, 9) for _ in range(n)],
        backward=[rng.randint(1, 9) for _ in range(n)],
        devices=k,
        training=rng.random() < 0.7,
        microbatches=rng.randint(1, 3),
        exclusive=[rng.randint(0, 5) for _ in range(n)],
        stash=[rng.randint(1, 6) for _ in range(n)],
        capacity=rng.choice([None, rng.randint(20, 60)]),
        in_bytes=nbytes,
        out_bytes=nbytes,
        bandwidth=rng.choice([None, 2**-30 * 10e9]),
        fewer_stages=rng.random() < 0.5,
    )


def shortest(chain: sp.PipelinePartition, *, split: bool) -> int | None:
    """Return the least step of all stages, each with its best schedule."""
    found = []
    for stages in range(1 if chain.fewer_stages else chain.k, chain.k + 1):
        for cuts in itertools.combinations(range(1, chain.n), stages - 1):
            solution = sp.PipelineSolution.in_order((0, *cuts, chain.n))
            if chain.check(solution):
                continue
            try:
                schedule = sp.PipelineSchedule.from_partition(chain, solution, split=split)
            except sp.InputError:  # no room for what stages hold
                continue
            result = sp.solve(schedule, time_limit=20)
            if result.objective is not None:
                assert result.status == "OPTIMAL"
                found.append(int(result.objective))
    return min(found, default=None)


@pytest.mark.parametrize("seed", [*range(16), 1068, 1099, 1116, 1118])
@pytest.mark.parametrize("split", [False, True])
def test_no_step_is_called_longer_than_it_is(seed: int, split: bool) -> None:
    chain = drawn(seed)
    if split and (not chain.training or chain.backward.min() < 2):
        pytest.skip("there is nothing to split")
    least = shortest(chain, split=split)
    if least is None:
        pytest.skip("nothing fits")
    shown = [
        bound
        for bound in range(1, least + 3)
        if shortest_step_is(chain, chain.microbatches, bound, split=split, resident=True)
    ]
    assert shown == list(range(1, len(shown) + 1)), "what holds for a bound holds for lower ones"
    assert shown
    assert shown[-1] <= least
    assert shown[-1] >= 0.6 * least
