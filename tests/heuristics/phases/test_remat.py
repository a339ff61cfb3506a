"""Labels along the layers of one group against all plans, and their parts."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.formulations.phases.remat import Step
from stagepack.heuristics.phases.remat import NONE, Found, Labels, layers_of
from stagepack.heuristics.phases.tuning import TUNING
from stagepack.instances.phases import PhaseSchedule, PhaseSolution, Policy
from tests.random_phases import brute_force, random_phases

MANY = 10**6


def step_of(instance: PhaseSchedule) -> Step:
    return Step(instance, 0, 1, instance.modes_with(0)[0])


def plan_of(step: Step, found: Found) -> PhaseSolution:
    policy = [
        Policy.RECOMPUTE if layer in found.dropped else step.idle_policy(layer)
        for layer in range(step.n)
    ]
    return step.plan(policy, None if step.instance.chain else list(found.recompute))


def compare(seed: int, *, skips: bool, layers: int) -> bool:
    """Compare with all plans; return whether the best one was found and proved."""
    instance = random_phases(
        seed, layers=(2, layers), one_group=True, skips=skips, recomputations=(1,)
    )
    try:
        best, _ = brute_force(instance, 5_000)
    except OverflowError:
        return False
    step = step_of(instance)
    if step.infeasible:
        assert best is None
        return True
    values = []
    for retaining in (False, True)[: 1 if instance.chain else 2]:
        labels = Labels(step, retaining=retaining)
        found = labels.search(NONE, MANY)
        assert found.complete
        assert labels.bound <= found.bound == found.again
        if found.again < NONE:
            plan = plan_of(step, found)
            if not instance.check(plan):
                values.append(instance.evaluate(plan))
                assert values[-1] == step.time(found.again)
    # The last search leaves out no plan.
    if best is None:
        return found.bound >= NONE
    assert step.time(labels.bound) <= step.time(found.bound) <= best, seed
    return bool(values) and min(values) == best == step.time(found.bound)


@pytest.mark.parametrize(("skips", "layers"), [(False, 7), (True, 5)], ids=["chain", "skips"])
def test_against_all_plans(skips: bool, layers: int) -> None:
    seeds = range(80)
    right = sum(compare(seed, skips=skips, layers=layers) for seed in seeds)
    # Of some there are too many plans to try them all.
    assert right >= (30 if skips else len(seeds))


def instance_with_skips(layers: int) -> PhaseSchedule:
    sizes = [3 + (5 * at) % 7 for at in range(layers + 1)]
    skips = [(at, at + 2) for at in range(0, layers - 2, 3)]
    return PhaseSchedule.from_arrays(
        [0] * layers,
        [2 + (3 * at) % 5 for at in range(layers)],
        sizes,
        backward=[4] * layers,
        tape=[at % 3 for at in range(layers)],
        skips=skips,
        training=True,
        policies=["keep", "recompute"],
        fixed_boundaries=(0, layers),
        memory=sizes[0] + int(0.7 * sum(sizes)),
    )


def test_few_labels_bound_what_many_find() -> None:
    step = step_of(instance_with_skips(16))
    labels = Labels(step, retaining=True)
    best = labels.search(NONE, MANY)
    assert best.complete
    assert 0 < best.again < NONE
    for most in (1, 3, 10, 30):
        few = labels.search(NONE, most)
        assert labels.bound <= few.bound <= best.again <= few.again


def test_labels_that_cannot_win_are_left_out() -> None:
    labels = Labels(step_of(instance_with_skips(16)), retaining=True)
    best = labels.search(NONE, MANY).again
    assert labels.search(best + 1, MANY).again == best
    beaten = labels.search(best, MANY)
    assert (beaten.again, beaten.bound, beaten.complete) == (NONE, NONE, True)


def test_coarse_completions_are_safe() -> None:
    step = step_of(instance_with_skips(14))
    fine = Labels(step, retaining=True)
    best = fine.search(NONE, MANY)
    few = TUNING.changed({"remat": {"levels": 16, "entries": 2_000}})
    coarse = Labels(step, retaining=True, tuning=few)
    assert coarse.unit > 1
    assert coarse.longest < fine.longest
    assert coarse.bound <= fine.bound
    assert coarse.search(NONE, MANY).again == best.again


def test_no_time_proves_nothing() -> None:
    labels = Labels(step_of(instance_with_skips(12)), retaining=True)
    found = labels.search(NONE, MANY, lambda: False)
    assert (found.again, found.bound, found.complete) == (NONE, labels.bound, False)


def test_sets_of_layers() -> None:
    assert list(layers_of(0)) == []
    assert list(layers_of(1 << 90 | 5)) == [0, 2, 90]


def test_time_is_asked_while_completions_are_found() -> None:
    """A table of 64 million entries was filled without a question."""
    asked: list[int] = []

    def going() -> bool:
        asked.append(len(asked))
        return True

    step = step_of(instance_with_skips(16))
    whole = Labels(step, retaining=True, keep_going=going)
    assert len(asked) == 1
    often = TUNING.changed({"remat": {"entries_at_once": 1}})
    parts = Labels(step, retaining=True, keep_going=going, tuning=often)
    assert len(asked) == 1 + 16
    assert np.array_equal(whole.least.kept, parts.least.kept)
    assert np.array_equal(whole.least.dropped, parts.least.dropped)
    assert np.array_equal(whole.least.runs, parts.least.runs)
