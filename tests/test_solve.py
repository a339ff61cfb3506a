"""The one door: every method on the same instances, limits, interrupts, determinism, records."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from stagepack import interrupts
from stagepack.catalog import load
from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.heuristics import effort
from stagepack.instances import base
from stagepack.instances.packing import LmemPacking
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, Link
from stagepack.progress import Progress
from stagepack.result import Result, Status, Termination
from stagepack.solve import REGISTRY, methods, solve
from tests.strategies import brute_force, pipelines

solving = importlib.import_module("stagepack.solve")  # "solve" of the package is the function
EXACT = [method.name for method in REGISTRY["pipeline-partition"] if method.exact]
ENGINES = {
    "milp-interval": ("highs", "pyomo:highs"),
    "milp-assignment": ("highs", "pyomo:highs"),
    "cp-sat": ("cp-sat",),
}


def chain(n: int = 24, k: int = 4, *, seed: int = 0, **options: Any) -> PipelinePartition:
    rng = np.random.default_rng(seed)
    memory = rng.integers(10**5, 10**7, n)
    sizes = rng.integers(10**5, 10**7, n + 1)
    defaults: dict[str, Any] = {
        "cluster": Cluster.uniform(
            k,
            memory=int(memory.sum() * 1.4 / k),
            link=Link(GBps=70, idle=3000),
            host=Link(GBps=7, idle=50_000),
            clock=1_850_000_000,
        ),
        "exclusive": memory,
        "in_bytes": sizes,
        "out_bytes": sizes,
        "objective": "transfer-bounded",
        "name": "chain",
    }
    return PipelinePartition.from_arrays(rng.integers(10**5, 10**7, n), **{**defaults, **options})


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("objective", ["bottleneck", "transfer-bounded", "sum", "overlap"])
def test_every_exact_method_proves_the_same_optimum(method: str, objective: str) -> None:
    instance = chain(objective=objective)
    known = {info.name: info for info in methods(instance)}
    if not known[method].available:
        assert known[method].reason
        with pytest.raises(InputError):
            solve(instance, method)
        return
    result = solve(instance, method, time_limit=60)
    assert result.status is Status.OPTIMAL
    assert result.objective == result.bound == solve(instance, "dp").objective
    assert result.gap == 0
    assert result.solution is not None
    assert not instance.check(result.solution)
    assert result.bound_source


@given(pipelines())
@settings(max_examples=60)
def test_all_exact_methods_agree_with_brute_force(instance: PipelinePartition) -> None:
    best = brute_force(instance)
    for info in methods(instance):
        if not info.exact or not info.available:
            continue
        result = solve(instance, info.name, time_limit=30)
        if best is None:
            assert result.status is Status.INFEASIBLE, info.name
            assert result.reason
        else:
            rel = max(instance.tolerance, 1e-12)
            assert result.status in (Status.OPTIMAL, Status.FEASIBLE), info.name
            assert result.objective == pytest.approx(best, rel=rel), info.name
            assert result.bound is not None
            assert result.bound <= best * (1 + rel), info.name
            if not instance.tolerance:  # fractions may end within a solver's tolerance of it
                assert result.status is Status.OPTIMAL, info.name


@pytest.mark.parametrize(
    ("method", "engine"), [(m, e) for m, engines in ENGINES.items() for e in engines]
)
def test_engines_take_warm_starts_and_leave_a_trace(method: str, engine: str) -> None:
    instance = chain(n=40, k=5)
    start = solve(instance, "greedy").solution
    assert start is not None
    result = solve(instance, method, engine=engine, warm_start=start, time_limit=60)
    assert result.engine == engine
    assert result.trace.incumbents[0].source == "warm start"
    assert result.trace.bounds
    assert [event.value for event in result.trace.warm_starts] == [instance.evaluate(start)]
    values = [event.value for event in result.trace.incumbents]
    assert values == sorted(values, reverse=True)


def test_a_wrong_warm_start_is_refused() -> None:
    instance = chain()
    for wrong in (PipelineSolution.in_order((0, 1, 2, 3, 24)), "nonsense"):
        with pytest.raises(InputError, match="warm_start"):
            solve(instance, "cp-sat", warm_start=wrong)


def test_without_warm_start_engines_still_prove() -> None:
    instance = chain()
    for method in ENGINES:
        result = solve(instance, method, warm_start=None, time_limit=60)
        assert result.objective == solve(instance, "dp").objective
        assert not result.trace.warm_starts


def test_results_repeat_from_what_they_record() -> None:
    instance = chain()
    start = solve(instance, "greedy").solution
    for arguments in (
        {"method": "dp", "objective": "sum"},
        {"method": "cp-sat", "seed": 7, "warm_start": start},
    ):
        first = solve(instance, **arguments)
        again = solve(instance, **first.options)
        assert (again.objective, again.bound, again.solution) == (
            first.objective,
            first.bound,
            first.solution,
        )
        assert again.digest == first.digest
        assert again.versions == first.versions
        assert again.options == first.options


@pytest.mark.parametrize("method", EXACT)
def test_same_seed_same_answer(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock decides how often fast searches tell what they have, and nothing else."""
    instance = chain(n=30, k=3, objective="bottleneck")
    if any(info.name == method and not info.available for info in methods(instance)):
        pytest.skip(f"{method} does not apply")
    runs = []
    for always in (False, True):
        monkeypatch.setattr(Progress, "stale", always)
        runs.append(solve(instance, method, seed=5, time_limit=60))
    assert runs[0].solution == runs[1].solution
    assert runs[0].bound == runs[1].bound
    rare, often = ([(e.kind, e.value, e.source) for e in run.trace.incumbents] for run in runs)
    assert rare == [told for told in often if told in rare]
    assert rare[-1] == often[-1]


@pytest.mark.parametrize("method", ["dp", "bisect"])
def test_the_clock_does_not_say_where_a_run_limited_by_work_stops(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = chain(n=200, k=4, objective="bottleneck")
    found = set()
    for pace in (0, 1):  # seconds that pass from one look at the clock to the next
        clock = itertools.count(step=pace)
        monkeypatch.setattr("stagepack.progress.time.perf_counter", clock.__next__)
        options = {"deterministic": True}
        result = solve(instance, method, gap=0.5, warm_start=None, options=options)
        assert result.solution is not None
        found.add(result.objective)
    assert len(found) == 1


def interrupted(method: str) -> PipelinePartition:
    """Return a chain that a method solves: `rounds` those of several stages a device."""
    placed: dict[str, Any] = {}
    if method == "rounds":
        placed = {"stages_per_device": 2, "placement": "v"}
    return chain(n=60, k=5, objective="bottleneck", **placed)


def hard() -> PipelinePartition:
    """Return an instance that no model solves in a moment."""
    rng = np.random.default_rng(2)
    kinds = rng.integers(60, 140, 12).tolist()
    return PipelinePartition.from_arrays(
        rng.integers(10**6, 10**8, 400),
        devices=12,
        speed=[kind / 100 for kind in kinds],
        free_order=True,
    )


@pytest.mark.parametrize("method", ["cp-sat"])
def test_a_time_limit_returns_incumbent_and_bound(method: str) -> None:
    result = solve(hard(), method, time_limit=2)
    assert result.status is Status.FEASIBLE
    assert result.termination is Termination.TIME_LIMIT
    assert result.objective is not None
    assert result.bound is not None
    assert 0 < result.bound < result.objective
    assert result.runtime < 60


def test_target_and_gap_end_a_run() -> None:
    instance = hard()
    start = solve(instance, "greedy").objective
    assert start is not None
    assert solve(instance, "cp-sat", target=start).termination is Termination.TARGET
    assert solve(instance, "cp-sat", gap=0.9).termination is Termination.TARGET


def test_ctrl_c_returns_the_incumbent() -> None:
    threading.Timer(1.5, signal.raise_signal, (signal.SIGINT,)).start()
    began = time.perf_counter()
    result = solve(hard(), "cp-sat", time_limit=120)
    assert time.perf_counter() - began < 60
    assert result.termination is Termination.INTERRUPTED
    assert result.status is Status.FEASIBLE
    assert result.bound is not None


@pytest.mark.parametrize("method", EXACT)
def test_ctrl_c_at_the_first_incumbent_keeps_it_and_a_safe_bound(method: str) -> None:
    instance = interrupted(method)
    optimum = solve(instance).objective
    assert optimum is not None

    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    result = solve(instance, method, on_incumbent=press)
    assert result.termination in (Termination.INTERRUPTED, Termination.PROVED)
    assert result.objective is not None
    assert result.bound is not None
    assert result.bound <= optimum <= result.objective


class OwnError(Exception):
    """What a caller's function raises."""


@pytest.mark.parametrize("callback", ["on_incumbent", "on_bound"])
@pytest.mark.parametrize("method", EXACT)
def test_what_a_callback_raises_comes_out_with_what_was_found(method: str, callback: str) -> None:
    """The solution was lost, after an hour perhaps."""
    told: list[Any] = []

    def fail(*news: Any) -> None:
        told.append(news)
        raise OwnError("enough")

    given: Any = {callback: fail}
    with pytest.raises(OwnError, match="enough") as caught:
        solve(interrupted(method), method, **given)
    assert len(told) == 1
    result = getattr(caught.value, "partial_result")  # noqa: B009  declared by no class
    assert isinstance(result, Result)
    assert result.status in (Status.FEASIBLE, Status.OPTIMAL, Status.UNKNOWN)
    if callback == "on_incumbent":
        assert (result.solution, result.objective) == told[0][:2]
    else:
        assert (result.bound, result.bound_source) == told[0]
    assert any("partial_result" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    "name",
    [
        "pipeline/vgg-16",
        "packing/above-load",
        "schedule/uniform",
        "phases/six-layers",
        "groups/examples/balanced-rows",
        "graph/vgg19",
    ],
)
def test_whatever_a_callback_raises_comes_out(name: str) -> None:
    """What methods catch themselves, too."""
    for error in (InputError("mine"), ValueError("mine"), StopIteration("mine"), MemoryError()):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            solve(load(name), on_incumbent=fail)
        assert caught.value is error
        assert getattr(error, "partial_result").solution is not None  # noqa: B009


def test_ctrl_c_waits_where_what_is_raised_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    monkeypatch.setattr(interrupts, "ECHO", 0.0)

    def notify() -> None:  # as LLVM calls one when it has compiled something
        signal.raise_signal(signal.SIGINT)

    compiled = ctypes.CFUNCTYPE(None)(notify)
    ended = False
    with interrupts.Interruptible(Progress(lambda _: 0, lambda _: ())):
        signal.raise_signal(signal.SIGINT)
        compiled()
        time.sleep(1.5)
        ended = True
    assert (ended, lost) == (False, [])
    # Nor does any signal come later: one that was put off came two seconds after the run.
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)


def test_on_incumbent_hears_of_every_improvement() -> None:
    heard: list[tuple[Number, Any]] = []
    result = solve(
        chain(),
        "cp-sat",
        on_incumbent=lambda solution, objective, _bound: heard.append((objective, solution)),
    )
    assert heard[-1] == (result.objective, result.solution)
    assert [objective for objective, _ in heard] == [e.value for e in result.trace.incumbents]


def test_deterministic_limits_by_work() -> None:
    runs = [
        solve(hard(), "cp-sat", time_limit=1, options={"deterministic": True}) for _ in range(2)
    ]
    assert runs[0].solution == runs[1].solution
    assert runs[0].bound == runs[1].bound


def test_infeasible_is_a_result() -> None:
    instance = PipelinePartition.from_arrays(
        [1, 1, 1], devices=2, capacity=10, exclusive=[4, 11, 4]
    )
    for info in methods(instance):
        if not info.available:
            continue
        result = solve(instance, info.name)
        assert result.solution is None
        assert result.reason
        # The probes of greedy-repair prove that nothing fits, though never that a plan is best.
        if info.exact or info.name == "greedy-repair":
            assert result.status is Status.INFEASIBLE
            assert "layer 1" in result.reason
            assert "1 too many" in result.reason
        else:
            assert result.status is Status.UNKNOWN


@pytest.mark.parametrize("method", ["auto", "equal-layers", "greedy", "greedy-repair", "dp"])
def test_what_ends_with_nothing_says_why(method: str) -> None:
    result = solve(PipelinePartition.from_arrays([3, 1, 2], devices=2), method, time_limit=1e-9)
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.TIME_LIMIT)
    assert result.reason == "time was over before anything that fits was found"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"method": "dpp"}, "method"),
        ({"engine": "nonsense", "method": "cp-sat"}, "engine"),
        ({"engine": "highs", "method": "dp"}, "engine"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": float("nan")}, "time_limit"),
        ({"time_limit": True}, "time_limit"),
        ({"gap": -1}, "gap"),
        ({"gap": None}, "gap"),
        ({"on_incumbent": 3}, "on_incumbent"),
        ({"on_bound": "told"}, "on_bound"),
        ({"threads": 0}, "threads"),
        ({"seed": -1}, "seed"),
        ({"options": {"colour": 1}}, "options"),
        ({"objective": "speed"}, "objective"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        solve(chain(), **arguments)
    assert caught.value.field == field


def test_numbers_of_numpy_are_taken_and_recorded_as_python_s_own() -> None:
    given: dict[str, Any] = {"time_limit": np.float32(8), "target": np.int64(8), "seed": np.int8(3)}
    options = solve(chain(), **given).options
    assert [repr(options[name]) for name in given] == ["8.0", "8", "3"]


def test_auto_takes_the_engines_of_models_alone() -> None:
    schedule = load("schedule/uniform")
    with pytest.raises(InputError, match="'highs' does not fit method auto, which runs on cp-sat"):
        solve(schedule, engine="highs")


def test_things_that_are_no_instance() -> None:
    name: Any = "pipeline/bert-large"
    with pytest.raises(InputError, match="not an instance"):
        solve(name)
    a_class: Any = PipelinePartition
    for ask in (solve, methods):
        with pytest.raises(InputError, match="class PipelinePartition is not an instance"):
            ask(a_class)
    with pytest.raises(InputError, match="pipeline-partition"):
        methods("no-such-kind")


def test_results_pickle() -> None:
    result = solve(chain())
    again: Result[Any] = pickle.loads(pickle.dumps(result))
    assert again.to_json() == result.to_json()


def test_a_million_layers() -> None:
    rng = np.random.default_rng(0)
    instance = PipelinePartition.from_arrays(rng.integers(1, 1000, 10**6), devices=64)
    result = solve(instance, "bisect")
    assert result.status is Status.OPTIMAL


def test_what_no_run_needs_costs_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        called = getattr(owner, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            counts[name] += 1
            return called(*arguments, **keywords)

        monkeypatch.setattr(owner, name, call)

    instance = chain()
    packing = LmemPacking.from_arrays([1, 2], [0, 0], [1, 1])
    solve(packing, "greedy-by-size")  # loads what there is to load
    for owner, name in (
        (base, "_checksum"),
        (threading.Thread, "start"),
        (PipelinePartition, "check"),
    ):
        counted(owner, name)
    for _ in range(2):
        result = solve(instance, "greedy")
        solve(packing, "greedy-by-size")
    assert counts == {"check": 2}  # once for each answer
    assert result.problem is not None
    assert result.instance_fields == result.problem.fingerprints
    assert pickle.loads(pickle.dumps(result)).instance_fields == result.instance_fields
    assert counts["_checksum"] > 0


def test_a_run_that_ends_by_itself_says_so_whatever_work_was_counted_before() -> None:
    instance = load("packing/above-load")
    effort.spend(1e6)  # as heuristics do that are called directly
    result = solve(instance, "portfolio", time_limit=1.0, options={"deterministic": True})
    assert result.termination is Termination.FINISHED
