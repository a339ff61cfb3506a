"""Methods of phase scheduling: each does what it says, exact ones agree, bounds are safe."""

from __future__ import annotations

from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.enumerate import Pairs
from stagepack.instances.phases import KIND, PhaseSchedule, PhaseSolution, Policy
from stagepack.instances.violation import Violation
from stagepack.methods.phases import explain
from stagepack.methods.phases.searches import Choices
from stagepack.progress import Progress
from stagepack.result import Result, Status
from tests.random_phases import brute_force, random_phases

SIX = PhaseSchedule.from_arrays(
    [4] * 6, [6] * 6, [8, 8, 2, 8, 2, 8, 2], steps=8, memory=30, modes=["compute"],
    remote_bandwidth=2, host_bandwidth=2,
)  # fmt: skip
RULES = ("greedy-head", "layer-per-phase", "keep-all", "sqrt-checkpoint")
COLUMNS = ("dp", "enumerate", "milp", "cp-sat")


def solved(instance: PhaseSchedule, method: str, **options: Any) -> Result[PhaseSolution]:
    return sp.solve(instance, method, time_limit=20, **options)


def available(instance: PhaseSchedule) -> list[str]:
    return [info.name for info in sp.methods(instance) if info.available]


def test_six_layers_by_every_method() -> None:
    values = {name: solved(SIX, name).objective for name in available(SIX)}
    assert values.pop("greedy-head") == 404
    assert values.pop("layer-per-phase") == 564
    assert set(values) == {"auto", *COLUMNS}
    assert set(values.values()) == {356}
    result = solved(SIX, "auto")
    assert result.status is Status.OPTIMAL
    assert result.solution is not None
    assert result.solution.boundaries == (0, 2, 6)


def test_mnist_runs_in_seven_phases() -> None:
    instance = sp.load("phases/mnist")
    result = solved(instance, "layer-per-phase")
    assert result.solution is not None
    assert [phase.name for phase in result.solution.phases(instance)] == [
        "F0", "F1", "F2", "FB3", "B2", "B1", "B0",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_all_methods_on_random_instances(seed: int) -> None:
    instance = random_phases(seed, layers=(1, 3))
    try:
        value, _ = brute_force(instance, 3000)
    except OverflowError:
        pytest.skip("too many plans to try them all")
    for info in sp.methods(instance):
        if not info.available:
            continue
        result = solved(instance, info.name)
        if value is None:
            assert result.objective is None, info.name
            assert result.status in (Status.INFEASIBLE, Status.UNKNOWN)
            continue
        assert result.status is not Status.INFEASIBLE, info.name
        assert result.bound is None or result.bound <= value, info.name
        assert result.objective is None or result.objective >= value, info.name
        if result.status is Status.OPTIMAL:
            assert result.objective == value, info.name
        elif info.exact:  # says why it proves nothing
            assert result.reason, info.name


def plain(seed: int, **fixed: Any) -> PhaseSchedule:
    """Return an instance on which all exact methods prove their answer."""
    given: dict[str, Any] = {"skips": False, "recomputations": (1,), "budgets": False, **fixed}
    return random_phases(seed, layers=(3, 5), **given)


@pytest.mark.parametrize("prefetch", [False, True])
def test_exact_methods_agree(prefetch: bool) -> None:
    statuses = set()
    for seed in range(12):
        instance = plain(seed, prefetch=prefetch)
        one = instance.replace(microbatch=1, global_batch=2 * instance.data_parallel,
                               forward_fixed=[0] * instance.n, backward_fixed=[0] * instance.n,
                               temporary_fixed=[0] * instance.n)  # fmt: skip
        names = [name for name in COLUMNS if name in available(one)]
        results = {name: solved(one, name) for name in names}
        values = {(r.status, r.objective, r.bound) for r in results.values()}
        assert len(values) == 1, results
        status = values.pop()[0]
        assert status in (Status.OPTIMAL, Status.INFEASIBLE)
        statuses.add(status)
    assert Status.OPTIMAL in statuses


def test_one_group_by_both_models_of_recomputation() -> None:
    for seed in range(6):
        instance = random_phases(seed, layers=(3, 5), one_group=True)
        results = [solved(instance, name) for name in ("auto", "milp-remat", "cp-sat")]
        assert len({(r.status, r.objective) for r in results}) == 1
        assert results[0].status in (Status.OPTIMAL, Status.INFEASIBLE)


def test_budget_of_graphs_is_met_and_proved() -> None:
    instance = PhaseSchedule.from_arrays(
        [4] * 6, [6] * 6, [8, 8, 2, 8, 2, 8, 2], steps=8, memory=30, modes=["compute"],
        remote_bandwidth=2, host_bandwidth=2, layer_class=[0, 1, 0, 1, 0, 1], graphs=1,
    )  # fmt: skip
    result = solved(instance, "auto")
    best, _ = brute_force(instance)
    assert best is not None
    assert best > 356
    assert (result.status, result.objective) == (Status.OPTIMAL, best)
    alone = solved(instance, "enumerate")
    assert alone.bound == 356
    assert alone.status is not Status.OPTIMAL


def test_prefetching_pays() -> None:
    instance = PhaseSchedule.from_arrays(
        [40] * 4, [60] * 4, [8] * 5, steps=4, memory=300, remote_bandwidth=2, host_bandwidth=2,
        tiles=8, io_tiles=(2, 2), prefetch=True,
    )  # fmt: skip
    results = [solved(instance, name) for name in ("dp", "milp", "cp-sat")]
    assert len({r.objective for r in results}) == 1
    best = results[0].solution
    assert best is not None
    assert any(best.prefetch)
    without = solved(instance.replace(prefetch=False), "dp").objective
    assert without is not None
    assert results[0].objective is not None
    assert results[0].objective < without


def test_infeasible_says_what_would_do() -> None:
    instance = SIX.replace(memory=11)
    for name in available(instance):  # the rules as well: nothing is run for it
        result = solved(instance, name)
        assert result.status is Status.INFEASIBLE, name
        assert "layer 0 alone needs 20 bytes" in result.reason
        assert "20 bytes of memory would do" in result.reason


TIGHT = PhaseSchedule.from_arrays(
    [5, 5], [1, 1], [0, 4, 0], tape=[6, 6], steps=4, memory=30, training=True,
    policies=["keep"], modes=["compute"],
)  # fmt: skip
"""Each layer fits, but what the first one keeps leaves no room for the second."""


def test_no_room_for_all_says_what_would_do() -> None:
    for name in ("auto", "enumerate", "milp", "cp-sat"):
        result = solved(TIGHT, name)
        assert result.status is Status.INFEASIBLE, name
        assert result.reason.startswith("no plan keeps within 30 bytes of memory; it would be")
        enough = int(result.reason.split("feasible with ")[1].split()[0])
        assert solved(TIGHT.replace(memory=enough), name).status is Status.OPTIMAL
        assert solved(TIGHT.replace(memory=enough - 1), name).status is Status.INFEASIBLE
    rule = solved(TIGHT, "greedy-head")
    assert (rule.status, rule.reason) == (Status.UNKNOWN, "greedy-head finds no plan that fits")


def test_reasons_do_not_promise_what_budgets_forbid() -> None:
    one = SIX.replace(memory=30, graphs=1, fixed_boundaries=(0, 2, 6))
    result = solved(one, "auto")
    assert result.status is Status.INFEASIBLE
    assert "no plan keeps within 30 bytes of memory and 1 phase graphs" in result.reason
    assert "2 phase graphs would do" in result.reason
    assert solved(one.replace(graphs=2), "auto").status is Status.OPTIMAL
    both = TIGHT.replace(graphs=1, fixed_boundaries=(0, 1, 2))
    reason = solved(both, "milp").reason
    assert "; without the budgets it would be feasible with " in reason


def test_a_proof_outlives_the_search_for_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(explain, "enough_memory", interrupted)
    result = solved(TIGHT, "enumerate")
    assert result.status is Status.INFEASIBLE
    assert result.reason == "no plan keeps within 30 bytes of memory"
    monkeypatch.undo()
    hasty = {"tuning": {"rules": {"patience": 0}}}
    assert sp.solve(TIGHT, "enumerate", options=hasty).reason == result.reason


def test_methods_say_what_they_do_not_take() -> None:
    reasons = {info.name: info.reason for info in sp.methods(SIX) if not info.available}
    assert set(reasons) == {"keep-all", "sqrt-checkpoint", "milp-remat"}
    pairs = SIX.replace(io_tiles=(0, 2), tiles=4, modes=["compute", "io"])
    with pytest.raises(InputError, match="use enumerate"):
        solved(pairs, "dp")
    assert "enumerate" in available(pairs)
    trained = SIX.replace(training=True, policies=["recompute"])
    reasons = {info.name: info.reason for info in sp.methods(trained) if not info.available}
    assert {"keep-all", "sqrt-checkpoint"} <= set(reasons)


def test_warm_starts() -> None:
    start = solved(SIX, "greedy-head").solution
    assert start is not None
    for wanted in (start, start.to_dict(), "layer-per-phase", "dp", None, "auto"):
        result = solved(SIX, "milp", warm_start=wanted)
        assert (result.status, result.objective) == (Status.OPTIMAL, 356)
    first = next(e for e in solved(SIX, "milp", warm_start=start).trace.events
                 if e.kind == "incumbent")  # fmt: skip
    assert (first.value, first.source) == (404, "warm start")
    bad = PhaseSolution((0, 6), ("compute",))
    with pytest.raises(InputError, match="breaks memory"):
        solved(SIX, "milp", warm_start=bad)
    with pytest.raises(InputError, match="unknown warm start"):
        solved(SIX, "milp", warm_start="milp")
    trained = TIGHT.replace(memory=None, policies=["recompute"])
    for method in ("auto", "enumerate", "dp", "milp", "cp-sat"):
        with pytest.raises(InputError, match="sqrt-checkpoint: nothing is computed again"):
            solved(SIX, method, warm_start="sqrt-checkpoint")
        with pytest.raises(InputError, match="neither kept nor stashed"):
            solved(trained, method, warm_start="sqrt-checkpoint")
        with pytest.raises(InputError, match="unknown warm start 'nonsense'"):
            solved(SIX, method, warm_start="nonsense")


def sources(instance: PhaseSchedule, method: str, **options: Any) -> set[str]:
    events = solved(instance, method, **options).trace.events
    return {event.source for event in events if event.kind == "incumbent"}


def test_rules_run_when_asked_for_only() -> None:
    assert "greedy-head" in sources(SIX, "auto")
    assert sources(SIX, "auto", warm_start=None) == {"enumerate"}
    assert sources(SIX, "milp", warm_start=None) == {"highs (milp)"}


@pytest.mark.parametrize("method", ["milp-remat", "cp-sat"])
def test_models_start_from_the_exact_search(method: str) -> None:
    """But its bounds are not theirs: what they prove they prove by themselves."""
    instance = random_phases(8, layers=(6, 6), one_group=True, skips=True)
    result = solved(instance, method)
    assert result.status is Status.OPTIMAL
    assert "enumerate" in {event.source for event in result.trace.incumbents}
    assert {event.source for event in result.trace.bounds} <= {
        "work bound", f"{result.engine} ({method})"
    }  # fmt: skip
    assert solved(instance, method, warm_start=None).objective == result.objective


def test_an_inexact_choice_keeps_its_own_bound_only() -> None:
    progress: Progress[PhaseSolution] = Progress(SIX.evaluate, SIX.check)
    choices = Choices(Pairs(SIX, progress), {"one": 10, "other": 20})
    assert choices.raised("one", 15) == 15
    assert choices.raised("one", 25) == 20  # the other one, whose model proves nothing
    assert choices.raised("other", 5) == 20
    choices.conclude()
    assert progress.infeasible_reason is None
    assert choices.raised("one", UNLIMITED) == 20
    assert choices.raised("other", UNLIMITED) is None
    choices.pairs.instance = TIGHT
    choices.conclude()
    assert progress.infeasible_reason is not None


def test_rules_are_no_better_than_the_optimum() -> None:
    """With work for limit: how busy the machine is does not matter."""
    instance = sp.load("phases/gpt2-small")
    by_work = {"deterministic": True}
    best = sp.solve(instance, time_limit=60, options=by_work)
    assert best.status is Status.OPTIMAL
    assert best.objective is not None
    for name in RULES:
        result = sp.solve(instance, name, time_limit=60, options=by_work)
        assert result.bound is not None
        assert result.bound <= best.objective
        assert result.objective is None or result.objective >= best.objective


def test_same_seed_same_answer() -> None:
    instance = plain(4).replace(policies=[str(p) for p in Policy])
    for name in available(instance):
        first, second = solved(instance, name, seed=3), solved(instance, name, seed=3)
        assert first.solution == second.solution
        assert first.bound == second.bound


def test_registered() -> None:
    names = [info.name for info in sp.methods(KIND)]
    assert names == ["auto", *RULES, "dp", "enumerate", "milp", "milp-remat", "cp-sat"]


def test_runs_limited_by_work_repeat() -> None:
    instance = sp.load("phases/gpt2-small")
    runs = [sp.solve(instance, time_limit=0.1, options={"deterministic": True}) for _ in range(2)]
    first, second = (
        [(event.kind, event.value, event.source) for event in run.trace.events] for run in runs
    )
    assert first == second
    assert runs[0].solution == runs[1].solution
    assert str(runs[0].termination) == "TIME_LIMIT"


@pytest.mark.parametrize("method", ["layer-per-phase", "enumerate"])
def test_no_plan_is_checked_twice(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a method must look at, since budgets are not searched, is not looked at again."""
    checked: list[PhaseSolution] = []  # all stay alive, so that no two share an identity
    check = PhaseSchedule.check

    def noted(self: PhaseSchedule, solution: PhaseSolution) -> tuple[Violation, ...]:
        checked.append(solution)
        return check(self, solution)

    monkeypatch.setattr(PhaseSchedule, "check", noted)
    assert solved(SIX.replace(remote_memory=10**6), method, warm_start=None).solution is not None
    assert checked
    assert len({id(solution) for solution in checked}) == len(checked)


@pytest.mark.parametrize("budget", [{"remote_memory": 50}, {"graphs": 1}])
def test_labels_do_not_claim_to_search_budgets(budget: dict[str, int]) -> None:
    instance = PhaseSchedule.from_arrays([1, 2], [3, 4], [1, 1, 1])
    claims = [{one.name: one.exact for one in sp.methods(given)} for given in
              (instance, instance.replace(**budget))]  # fmt: skip
    assert [(one["dp"], one["enumerate"], one["auto"]) for one in claims] == [
        (True, True, True),
        (False, False, True),
    ]


def test_a_plan_that_no_option_beats_is_proved() -> None:
    """Options that cannot beat it are dropped: that none is left says no more than that."""
    instance = sp.load("phases/random/chain-remat", layers=48, seed=1)
    options = {"tuning": {"auto": {"retention": False}}}
    result = sp.solve(instance, time_limit=60, options=options)
    assert result.status is Status.OPTIMAL
    assert result.objective == sp.solve(instance, time_limit=60).objective
