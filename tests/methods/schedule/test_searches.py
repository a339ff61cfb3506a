"""Methods of pipeline schedules through the one door: agreement, certificates, hard cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagepack
from stagepack.errors import InputError
from stagepack.heuristics import effort
from stagepack.heuristics.schedule import greedy, rules
from stagepack.heuristics.schedule.effort import OFFER, RATE
from stagepack.heuristics.schedule.rules import RULES
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.reasons import reasons
from stagepack.methods.schedule import searches
from stagepack.methods.schedule.explain import conclude_infeasible, sufficient_memory
from stagepack.progress import Progress
from stagepack.result import Status, Termination
from stagepack.solve import REGISTRY, methods, solve
from tests.formulations.schedule.test_within_memory import AWKWARD
from tests.heuristics.schedule.cases import PUBLISHED
from tests.random_schedules import best, lone_microbatches, random_schedule

KIND = "pipeline-schedule"
SEARCHES = ("greedy",)


def chain(p: int, m: int, times: tuple[int, int, int], **changes: Any) -> PipelineSchedule:
    """Return p equal stages, with F that takes two units of memory and B, W that give one."""
    fields: dict[str, Any] = {
        "microbatches": m,
        "memory_forward": 2,
        "memory_backward": -1,
        "memory_weight": -1,
        "objective": "span",
    }
    columns = (np.full(p, cycles) for cycles in times)
    return PipelineSchedule.from_arrays(*columns, **{**fields, **changes})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_all_methods_agree_with_every_order(seed: int) -> None:
    instance = random_schedule(seed)
    found = best(instance)
    for info in methods(instance):
        if not info.available:
            assert info.reason
            continue
        if info.name in SEARCHES:
            continue
        result = solve(instance, info.name, time_limit=30)
        if found is None:
            assert result.solution is None
            assert result.status is Status.INFEASIBLE or not info.exact
            assert result.reason
            continue
        value = found[0]
        assert result.status is not Status.INFEASIBLE, (info.name, result.reason)
        assert result.bound is None or result.bound <= value, info.name
        assert result.objective is None or result.objective >= value, info.name
        if info.exact:
            assert (result.status, result.objective) == (Status.OPTIMAL, value), info.name


@pytest.mark.parametrize("method", SEARCHES)
def test_searches_are_never_better_than_the_optimum(method: str) -> None:
    for seed in range(3000, 3012):
        instance = random_schedule(seed)
        found = best(instance)
        if next(info for info in methods(instance) if info.name == method).available:
            result = solve(instance, method, time_limit=0.1, options={"deterministic": True})
            assert result.objective is None or found is not None
            assert found is None or result.objective is None or result.objective >= found[0]
            assert result.objective is not None or result.reason


def test_uniform_spans_are_proved() -> None:
    for limit, value in ((8, 27), (16, 24)):
        result = solve(chain(4, 8, (1, 1, 1), limit=limit))
        assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, value, value)
    for limit, value in ((16, 103), (32, 96)):
        result = solve(chain(8, 32, (1, 1, 1), limit=limit))
        assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, value, value)


@pytest.mark.parametrize(
    ("instance", "value"), PUBLISHED, ids=[instance.source for instance, _ in PUBLISHED]
)
def test_hard_cases_are_proved(instance: PipelineSchedule, value: int) -> None:
    result = solve(instance, time_limit=60)
    assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, value, value)


@pytest.mark.parametrize("objective", ["span", "makespan"])
@pytest.mark.parametrize("seed", range(2))
def test_cp_sat_alone_proves_unlike_stages(seed: int, objective: str) -> None:
    """Four unlike stages, up to twelve microbatches, nothing to start from."""
    draw = np.random.default_rng(seed)
    m = int(draw.integers(8, 13))
    instance = PipelineSchedule.from_arrays(
        *(draw.integers(5, 61, 4) for _ in range(3)),
        microbatches=m,
        latency=int(draw.integers(0, 10)),
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=int(draw.integers(8, 17)),
        objective=objective,
    )
    alone = solve(instance, "cp-sat", time_limit=60, warm_start=None)
    assert alone.status is Status.OPTIMAL
    assert solve(instance, time_limit=60).objective == alone.objective


@pytest.mark.parametrize("method", ["auto", "cp-sat", "1f1b"])
def test_memory_below_a_microbatch_names_stage_need_and_remedy(method: str) -> None:
    instance = chain(
        3, 4, (1, 1, 1), memory_forward=[2, 7, 2], limit=5, stage_names=["in", "middle", "out"]
    )
    result = solve(instance, method)
    assert (result.status, result.termination) == (Status.INFEASIBLE, Termination.PROVED)
    assert "middle needs 22 on device 1" in result.reason
    assert "the limit is 5" in result.reason
    assert "limits of 22 on device 1 would do" in result.reason
    enough = instance.replace(limit=sufficient_memory(instance))
    assert solve(enough, method).status is not Status.INFEASIBLE


def test_devices_that_keep_their_limits_only_alone() -> None:
    """Found by enumeration: each device could, all at once cannot; what would do is named."""
    for seed in range(2000):
        instance = random_schedule(seed)
        if instance.d < 2 or best(instance) is not None:
            continue
        result = solve(instance, "cp-sat")
        if "every device could keep within its limit alone" in result.reason:
            break
    else:
        pytest.fail("no such instance")
    assert result.status is Status.INFEASIBLE
    assert "would do, one microbatch after the other" in result.reason
    enough = sufficient_memory(instance)
    assert instance.limit is not None
    assert enough is not None
    assert best(instance.replace(limit=np.maximum(instance.limit, enough))) is not None


def test_one_microbatch_after_the_other_is_a_schedule() -> None:
    for seed in range(60):
        instance = random_schedule(seed, limit=None)
        timing = Timing(instance)
        start = timing.earliest(rules.one_by_one(instance, lambda _: None))
        assert start is not None
        solution = ScheduleSolution.of(instance, start)
        assert instance.check(solution) == ()
        limited = instance.replace(limit=sufficient_memory(instance))
        assert limited.check(solution) == ()
        for device in range(instance.d):
            if limited.limit is not None and limited.limit[device]:
                less = np.array(limited.limit)
                less[device] -= 1
                assert instance.replace(limit=less).check(solution)


def test_starts_of_every_kind() -> None:
    instance = chain(4, 12, (5, 6, 4), limit=10)
    start = lone_microbatches(instance)
    value = instance.evaluate(start)
    for given_start in (start, start.to_dict(), "1f1b", "zb-h1", None, "none"):
        result = solve(instance, warm_start=given_start, time_limit=60)
        assert result.objective == 193
    result = solve(instance, "cp-sat", warm_start=start, time_limit=60)
    given, tightened, *_ = result.trace.incumbents
    assert given.value == value > tightened.value
    assert [event.value for event in result.trace.warm_starts] == [tightened.value]
    wrong = ScheduleSolution.of(instance, start.start * 0)
    with pytest.raises(InputError, match="the solution given breaks"):
        solve(instance, warm_start=wrong)
    with pytest.raises(InputError, match="unknown warm start 'zb'"):
        solve(instance, warm_start="zb")
    with pytest.raises(InputError, match="zb-v: needs"):
        solve(instance, warm_start="zb-v")


@pytest.mark.parametrize("method", ["auto", "cp-sat"])
@pytest.mark.parametrize("objective", ["span", "makespan"])
def test_a_start_may_wait_without_need(method: str, objective: str) -> None:
    instance = chain(2, 3, (1, 1, 1), objective=objective)
    start = lone_microbatches(instance)
    late = ScheduleSolution.of(instance, 100 * start.start)
    assert instance.check(late) == ()
    result = solve(instance, method, warm_start=late)
    assert result.status is Status.OPTIMAL
    assert result.objective == solve(instance, method).objective


@pytest.mark.parametrize("method", ["1f1b", "greedy"])
def test_every_method_takes_the_start_it_is_given(method: str) -> None:
    instance = chain(4, 12, (5, 6, 4), limit=10)
    known = solve(instance, time_limit=60).solution
    assert known is not None
    result = solve(instance, method, warm_start=known, time_limit=0.1)
    assert result.trace.incumbents[0].source == "warm start"
    assert result.objective == 193
    wrong = ScheduleSolution.of(instance, known.start * 0)
    with pytest.raises(InputError, match="the solution given breaks"):
        solve(instance, method, warm_start=wrong)
    with pytest.raises(InputError, match="unknown warm start 'zb'"):
        solve(instance, method, warm_start="zb")


@pytest.mark.parametrize("method", SEARCHES)
def test_searches_go_on_from_the_start_they_are_given(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing of their own to start from."""
    monkeypatch.setattr(greedy.OrderSearch, "first_round", lambda *_: None)
    instance = chain(4, 12, (5, 6, 4), limit=10)
    poor = lone_microbatches(instance)
    result = solve(
        instance, method, time_limit=0.1, options={"deterministic": True}, warm_start=poor
    )
    given, tightened, better, *_ = result.trace.incumbents
    assert given.value > tightened.value > better.value
    assert "annealing" in better.source


def test_auto_tries_the_first_list_before_it_anneals() -> None:
    """It is the optimum here, and was tried once a cooling had taken half of the time."""
    instance = stagepack.load("schedule/zero-bubble/measured-8x32")
    for limit in (0.2, 0.4):
        rule = solve(instance, "greedy", time_limit=limit, options={"deterministic": True})
        result = solve(instance, time_limit=limit, options={"deterministic": True})
        assert (result.status, result.objective) == (Status.OPTIMAL, rule.objective)


@pytest.mark.parametrize("method", ["auto", "cp-sat"])
def test_memory_within_which_there_is_no_order_is_proved_so_by_orders_alone(method: str) -> None:
    """The model with times took 8 seconds."""
    result = solve(AWKWARD, method, time_limit=2, options={"deterministic": True})
    assert result.status is Status.INFEASIBLE
    assert "no order of all operations" in result.reason


@pytest.mark.parametrize("method", ["auto", "greedy"])
def test_why_nothing_was_found_is_about_the_run(method: str) -> None:
    """It was what one rule would have needed."""
    result = solve(AWKWARD, method, time_limit=1e-6)
    assert result.status is Status.UNKNOWN
    assert result.reason
    assert "needs" not in result.reason


def test_the_loop_of_popxl_tells_its_rings() -> None:
    result = solve(chain(3, 10, (1, 1, 1)), "popxl")
    assert result.reason == (
        "slots of the stash rings: stage 0 5, stage 1 3, stage 2 none, "
        "each tensor that crosses an edge 2"
    )
    assert solve(PipelineSchedule.from_arrays([2], microbatches=6), "popxl").reason == ""


def test_never_worse_than_its_start() -> None:
    instance = chain(6, 40, (7, 11, 5), limit=14, latency=2)
    best_rule = min(
        result.objective
        for name in ("1f1b", "zb-h1", "zb-h2")
        if (result := solve(instance, name)).objective is not None
    )
    result = solve(instance, time_limit=0.5)
    assert result.objective is not None
    assert result.objective <= best_rule
    assert result.bound is not None


def test_a_rule_beyond_the_limit_says_by_how_much() -> None:
    result = solve(chain(4, 8, (1, 1, 1), limit=8), "gpipe")
    assert result.status is Status.UNKNOWN
    assert result.reason == "gpipe needs 16 on device 0, 8 more than the limit of 8"


@pytest.mark.parametrize("method", ["auto", "greedy", "cp-sat"])
def test_runs_limited_by_work_repeat(method: str) -> None:
    draw = np.random.default_rng(5)
    instance = PipelineSchedule.from_arrays(
        *(draw.integers(5, 61, 5) for _ in range(3)),
        microbatches=10,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=11,
        objective="span",
    )
    runs = [
        solve(instance, method, time_limit=0.2, options={"deterministic": True}) for _ in range(2)
    ]
    assert runs[0].objective == runs[1].objective
    assert runs[0].bound == runs[1].bound
    assert runs[0].solution == runs[1].solution


def test_inference_and_bidirectional_pipelines() -> None:
    inference = PipelineSchedule.from_arrays([3, 5, 2], microbatches=6, latency=1)
    result = solve(inference)
    assert (result.status, result.objective) == (Status.OPTIMAL, 3 + 1 + 6 * 5 + 1 + 2)
    both_ways = PipelineSchedule.from_arrays(
        [1] * 4, [2] * 4, devices=[0, 1, 1, 0], edges=[(0, 1), (2, 3)], microbatches=4
    )
    result = solve(both_ways, "cp-sat")
    assert result.status is Status.OPTIMAL
    assert result.objective == 4 * 2 * (1 + 2)  # no device waits


def test_methods_are_registered_with_their_reasons() -> None:
    names = [method.name for method in REGISTRY[KIND]]
    assert names[0] == "auto"
    assert set(RULES) < set(names)
    assert {"greedy", "cp-sat"} < set(names)
    reasons = {info.name: info.reason for info in methods(chain(4, 8, (1, 1, 1)))}
    assert "V" in reasons["zb-v"]
    assert reasons["zb-h2"] == ""
    assert "microbatches" in reasons["popxl"]


@pytest.mark.parametrize("method", ["gpipe", "1f1b", "greedy", "auto", "cp-sat"])
def test_large_instances_have_a_schedule_however_little_time(method: str) -> None:
    """1,000 stages, 40 microbatches; for searches a limit that all rules break."""
    instance = chain(1000, 40, (5, 6, 4), limit=4000 if "1" in method or method == "gpipe" else 60)
    result = solve(instance, method, time_limit=1e-3)
    assert result.termination is Termination.TIME_LIMIT
    assert result.status is Status.FEASIBLE
    assert result.bound is not None


def test_many_stages_on_one_device_have_a_schedule() -> None:
    """Whether memory suffices was asked in the cube of the stages of a device."""
    p = 400
    instance = chain(p, 4, (1, 1, 1), devices=[0] * p, limit=4 * p, objective="makespan")
    result = solve(instance, "greedy", time_limit=60)
    assert (result.status, result.objective) == (Status.OPTIMAL, 12 * p)


def test_little_memory_has_a_schedule_with_as_many_in_flight_as_fit() -> None:
    """It was one microbatch after the other, 85 times the bound, and did not say so."""
    instance = chain(200, 100, (5, 6, 4), limit=40, objective="makespan")
    result = solve(instance, "auto", time_limit=1e-3)
    assert result.trace.incumbents[0].source == "gpipe in groups that fit"
    assert result.objective is not None
    assert result.objective < 100 / 20 * 200 * 15 * 1.5
    assert "times its bound" in result.reason


def test_a_first_schedule_of_many_operations_takes_a_few_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It got the shortest spans, which take a pass for every device, when time was over, too."""
    instance = chain(100, 5, (5, 6, 4), limit=4)
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    with effort.counting():
        searches._plain(instance, progress, quick=True)
        steps = effort.spent() * RATE - OFFER
    assert progress.solution is not None
    assert steps < 20 * (len(instance.operations) + instance.operations.arcs)


def test_a_rule_without_time_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of operations got better times than there was time for."""
    instance = chain(3, 4, (5, 6, 4))
    for name in ("best", "good"):
        monkeypatch.delattr(Timing, name)
    with pytest.raises(AttributeError):
        solve(instance, "gpipe")
    result = solve(instance, "gpipe", time_limit=1e-6)
    assert (result.status, result.termination) == (Status.FEASIBLE, Termination.TIME_LIMIT)


def test_gpipe_in_groups() -> None:
    """Each device in groups of the least that fits."""
    looks: list[int] = []
    instance = chain(4, 8, (1, 1, 1), limit=[6, 9, 7, 9], devices=[2, 0, 3, 1])
    order = rules.in_groups(instance, looks.append)
    assert order is not None
    assert Timing(instance).fits(order)
    assert Timing(instance).best(order) is not None
    operations = instance.operations
    kinds = "".join("FBW"[kind] for kind in operations.kind[order[:24]])
    assert kinds == "FFFBWBWBWFFFBWBWBWFFBWBW"
    assert operations.stage[order[::24]].tolist() == [1, 3, 0, 2]
    assert len(looks) > 4
    shared = chain(4, 8, (1, 1, 1), devices=[0, 0, 1, 1], limit=9)
    assert rules.in_groups(shared, looks.append) is None
    assert rules.in_groups(chain(4, 8, (1, 1, 1), limit=1), looks.append) is None


@pytest.mark.parametrize("limit", [0.25, 1.0])
@pytest.mark.parametrize("method", SEARCHES)
def test_work_stands_for_the_limit(method: str, limit: float) -> None:
    """Neither a fraction of the time given nor many times it."""
    spent: list[float] = []
    instance = chain(8, 24, (5, 7, 3), limit=14, latency=3, objective="makespan")

    def spend(seconds: float) -> None:
        counted(seconds)
        spent[:] = [effort.spent()]

    counted = effort.spend
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(effort, "spend", spend)
        result = solve(
            instance, method, time_limit=limit, options={"deterministic": True}, target=0
        )
    assert result.termination is Termination.TIME_LIMIT
    assert limit <= spent[0] <= 1.3 * limit


@pytest.mark.parametrize(
    "instance",
    [
        PipelineSchedule.from_arrays([1], microbatches=1),
        PipelineSchedule.from_arrays([1], [1], [1], microbatches=1, limit=0),
        chain(1, 1, (1, 1, 1), limit=2),
        chain(3, 1, (1, 2, 3), limit=2, latency=10**9),
        chain(3, 5, (1, 2, 3), limit=2, latency=10**9, objective="makespan"),
        chain(3, 4, (1, 1, 1), devices=[0, 0, 0], limit=6),
        chain(4, 3, (1, 2, 1), devices=[0, 1, 1, 0], edges=[(0, 1), (2, 3)], limit=6),
        chain(4, 3, (1, 2, 1), edges=[(0, 1), (0, 2), (1, 3), (2, 3)], limit=8),
        chain(4, 3, (1, 2, 1), edges=[], microbatches=[1, 2, 3, 1], limit=8),
    ],
    ids=["lone", "no memory", "one", "far", "far spans", "one device", "two ways", "DAG", "apart"],
)  # fmt: skip
def test_strange_instances(instance: PipelineSchedule) -> None:
    """Every method ends by itself with the same optimum, or says what it lacks."""
    optimum = solve(instance, "cp-sat")
    assert optimum.status is Status.OPTIMAL
    for info in methods(instance):
        if not info.available:
            assert info.reason
            continue
        result = solve(instance, info.name, time_limit=2, options={"deterministic": True})
        if result.objective is None:
            assert result.reason
        else:
            assert optimum.objective is not None
            assert result.objective >= optimum.objective
            assert result.bound is not None
            assert result.bound <= optimum.objective
    assert solve(instance).objective == optimum.objective


def test_a_reason_names_few_devices_and_counts_the_rest() -> None:
    p = 40
    given = PipelineSchedule.from_arrays(
        [1] * p, [1] * p, microbatches=2, memory_forward=[2] * p, memory_backward=[-2] * p, limit=1
    )
    reason = solve(given).reason
    assert reason.count("raise the limit") == 1
    assert "device 1, device 2, device 3, device 4 and 35 more" in reason
    assert len(reason) < 600


class Ending(Progress[ScheduleSolution]):
    """A progress whose time is over when it has been asked so often."""

    def __init__(self, instance: PipelineSchedule, questions: int) -> None:
        super().__init__(instance.evaluate, instance.check)
        self.left = questions

    def stop_reason(self) -> Termination | None:
        self.left -= 1
        return super().stop_reason() if self.left >= 0 else Termination.TIME_LIMIT


@pytest.mark.parametrize("devices", [None, [0] * 6 + [1] * 6])
def test_a_reason_is_what_time_allows_to_find(devices: list[int] | None) -> None:
    """Whenever the clock ends the search for what would do, the first device is told in full."""
    given = PipelineSchedule.from_arrays(
        [1] * 12,
        [1] * 12,
        microbatches=[2, 2, 2, 3, 3, 3, 5, 5, 5, 7, 7, 7],
        edges=[],
        devices=devices,
        memory_forward=2,
        memory_backward=-2,
        limit=1,
    )
    lacking, said = reasons(given), []
    for most in range(40):
        progress = Ending(given, most)
        conclude_infeasible(given, progress, "memory", lacking)
        assert progress.infeasible_reason is not None
        said.append(progress.infeasible_reason)
        assert said[-1].startswith(lacking[0])
        assert progress.left >= -3, "no loop goes on after the end"
    whole = solve(given).reason
    if devices is not None:  # stages of a device are compared, with a question for each
        assert "1 other devices lack memory, too" in said[0]
    assert "would do" not in said[0]
    assert said[-1] == whole
    assert "would do, one microbatch after the other" in whole
    assert len(set(said)) == (2 if devices is None else 3)


@pytest.mark.parametrize("method", ["auto", "cp-sat"])
def test_models_that_take_longer_to_load_than_is_left_are_not_begun(method: str) -> None:
    instance = chain(2, 2_000, (5, 6, 4), limit=None, latency=2)
    result = solve(
        instance, method, time_limit=0.5, options={"deterministic": True}, warm_start=None
    )
    assert not any("CpSat" in event.source for event in result.trace.events)
    if method == "cp-sat":
        assert "to load 12,000 operations" in result.reason
    else:
        assert result.solution is not None
