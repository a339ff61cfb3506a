"""What engines claim: exact within the range of figures that they are given, else not believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack import solvers
from stagepack.formulations import packing
from stagepack.formulations.whole import WholeProgram
from stagepack.instances.graph import GraphPartition
from stagepack.instances.pipeline import PipelinePartition
from stagepack.result import EventKind, Status
from stagepack.solvers.engine import Engine, Outcome
from tests.random_phases import random_phases


def tiny_transfers_beside_huge_cycles() -> PipelinePartition:
    """One device is forty times as fast; transfers take some cycles, layers billions of them."""
    fast = sp.Device(speed=4, memory=58, send=sp.Link(GBps=7, idle=0))
    slow = sp.Device(speed=0.1, recv=sp.Link(GBps=1, idle=8), send=sp.Link(GBps=0.5, idle=9))
    return PipelinePartition.from_arrays(
        [1_200_000_000, 1_500_000_000, 500_000_000],
        cluster=sp.Cluster(devices=(fast, slow), clock=float(2**30)),
        objective="transfer-bounded",
        in_bytes=[5, 10, 5, 0],
        out_bytes=[0, 5, 0, 0],
        variables=[("v", 1, 2)],
        free_order=True,
    )


def test_steps_few_enough_for_highs_lose_no_solution() -> None:
    instance = tiny_transfers_beside_huge_cycles()
    optimum = sp.solve(instance, "dp").objective
    result = sp.solve(instance, "milp-interval")
    assert result.objective == optimum
    assert result.bound is not None
    assert optimum is not None
    assert optimum * (1 - 1e-5) < result.bound <= optimum


def test_empty_slots_of_cp_sat_count_nine_decimals() -> None:
    link = sp.Link(GBps=0.5, idle=8)
    other = sp.Link(GBps=1.0, idle=0)
    devices = (
        sp.Device(),
        sp.Device(send=link),
        sp.Device(send=other),
        sp.Device(speed=0.1),
    )
    instance = PipelinePartition.from_arrays(
        [5, 11.841906923, 6, 24, 21, 8],
        cluster=sp.Cluster(devices=devices, clock=float(2**30)),
        objective="overlap",
        in_bytes=[0, 0, 52, 112, 154, 32, 0],
        out_bytes=[0, 0, 52, 60, 42, 32, 0],
        fewer_stages=True,
    )
    result = sp.solve(instance, "cp-sat")
    assert result.objective == pytest.approx(46.841906923, rel=1e-12)
    assert result.status is Status.OPTIMAL


def test_unlike_links_of_highs_lose_no_solution() -> None:
    instance = GraphPartition.from_arrays(
        [1.2e9, 1.1e9, 1.7e9, 0],
        accelerators=2,
        cpus=2,
        cpu_time=[2.7e9, 3.9e9, 0, 0],
        objective="forward+backward",
        speeds=[4, 2],
        bandwidth=np.array(
            [[0, 0.5, 1, 0.5], [2, 0, 8, 4], [4, 0.5, 0, 8], [0.5, 4, 1, 0]], dtype=float
        ),
        colour=[1, -1, 0, 1],
        backward=[False, False, True, True],
        producer=[1],
        consumers=[[3]],
        traffic=[1e8],
    )
    result = sp.solve(instance, "milp")
    assert result.objective == 575_000_000
    assert result.bound is not None
    assert result.bound <= 575_000_000


@pytest.mark.parametrize(
    ("size", "start", "end", "peak"),
    [
        (
            [41964, 52333, 63462, 64242, 26022, 92286, 60161, 52648, 7283, 58463, 80444, 50934,
             39815, 28493],
            [2, 8, 5, 3, 7, 3, 7, 8, 4, 3, 5, 3, 4, 9],
            [9, 10, 11, 8, 10, 4, 12, 11, 8, 8, 11, 10, 7, 12],
            452_975,
        ),
        (
            [20290, 33727, 61550, 70438, 923, 53442, 15972, 54169, 91217, 47042, 84296, 75297],
            [8, 1, 8, 9, 0, 8, 1, 7, 3, 4, 4, 0],
            [12, 2, 10, 14, 6, 14, 2, 10, 9, 10, 11, 4],
            412_006,
        ),
    ],
)  # fmt: skip
def test_no_packing_is_lost_to_a_fine_tolerance(
    size: list[int], start: list[int], end: list[int], peak: int
) -> None:
    """HiGHS called peaks of 452,976 and 608,375 optimal."""
    instance = sp.LmemPacking.from_arrays(size, start, end)
    model, engine = packing.Milp(instance), solvers.engine("highs")
    outcome = engine.solve(model.model, parameters=model.parameters)
    assert outcome.status is Status.OPTIMAL
    assert outcome.bound is not None
    assert outcome.values is not None
    assert model.lower_bound(outcome.bound, engine.tolerance) * model.frame.unit == peak
    assert instance.evaluate(model.decode(outcome.values)) == peak


def nine_decimals() -> GraphPartition:
    """Six nodes of three colours, of which all are in one cycle."""
    return GraphPartition.from_arrays(
        [17.0, 3.489956, 7.0, 7.566555, 14.873863873, 13.0],
        accelerators=3,
        objective="forward+backward",
        colour=[-1, 1, 0, 0, 1, 2],
        backward=[False, False, True, False, True, True],
        producer=[0],
        consumers=[[2, 4]],
        traffic=[0.226373],
    )


@pytest.mark.parametrize("method", ["cp-sat", "milp"])
def test_nine_decimals_are_neither_infeasible_nor_wrong(method: str) -> None:
    result = sp.solve(nine_decimals(), method)
    assert result.objective == pytest.approx(32.100236873, rel=1e-12)
    assert result.bound is not None
    assert 32.1 < result.bound <= 32.100236874
    assert "believed" not in result.reason


# ---------------------------------------------------------------------- engines that are wrong


def lying(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any], Outcome]) -> None:
    """Let CP-SAT call `answer` with what it is told of, instead of solving anything."""

    def solve(self: Engine, model: Any, **options: Any) -> Outcome:
        return answer(options)

    monkeypatch.setattr(type(solvers.engine("cp-sat")), "solve", solve)


def chain() -> PipelinePartition:
    """One of which neither the naive rules find the best partition nor the work says what it is."""
    draw = np.random.default_rng(1)
    return PipelinePartition.from_arrays(
        draw.integers(1, 30, 8).tolist(),
        devices=3,
        objective="sum",
        recv_cycles=draw.integers(0, 25, (3, 9)),
        send_cycles=draw.integers(0, 25, (3, 9)),
    )


@pytest.mark.parametrize("instance", [chain(), nine_decimals()])
def test_a_bound_above_a_known_value_is_told_and_dropped(
    monkeypatch: pytest.MonkeyPatch, instance: Any
) -> None:
    lying(monkeypatch, lambda _: Outcome(status=Status.UNKNOWN, bound=1e12))
    result = sp.solve(instance, "cp-sat")
    assert result.status is not Status.UNKNOWN
    assert result.objective is not None
    assert result.bound is None or result.bound <= result.objective
    assert "cp-sat" not in result.bound_source
    assert "not believed" in result.reason


def test_a_solution_below_a_claimed_bound_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sp.solve(chain(), "dp")
    worse = sp.solve(chain(), "greedy")
    assert worse.objective is not None
    assert found.objective is not None
    assert worse.objective > found.objective + 2
    values: dict[str, Any] = {}

    def keep(options: Any) -> Outcome:
        values.update(options)
        return Outcome(status=Status.UNKNOWN)

    lying(monkeypatch, keep)
    sp.solve(chain(), "cp-sat", warm_start=found.solution)
    hint, between = values["hint"], found.objective + 1

    def answer(options: Any) -> Outcome:
        options["on_bound"](between)
        return Outcome(status=Status.OPTIMAL, values=hint, bound=between)

    lying(monkeypatch, answer)
    result = sp.solve(chain(), "cp-sat", warm_start=worse.solution)
    assert result.objective == found.objective
    assert result.status is Status.FEASIBLE
    assert "not believed" in result.reason
    assert not [
        event
        for event in result.trace.events
        if event.kind == EventKind.BOUND and "cp-sat" in event.source
    ]


@pytest.mark.parametrize("instance", [chain(), nine_decimals()])
def test_infeasible_is_not_believed_of_what_has_a_solution(
    monkeypatch: pytest.MonkeyPatch, instance: Any
) -> None:
    lying(monkeypatch, lambda _: Outcome(status=Status.INFEASIBLE))
    result = sp.solve(instance, "cp-sat")
    assert result.status is Status.FEASIBLE
    assert "no solution although there is one" in result.reason


def test_moves_of_gigabytes_are_bounded_to_the_byte() -> None:
    """CP-SAT adds the offset of its objective in doubles: 291494853 came as 5e-6 more."""
    instance = sp.LmemPacking.from_arrays(
        [66_544_424_905, 291_494_853],
        [0, 0],
        [1, 1],
        previous=[0, 0],
        capacity=70_000_000_000,
        objective="moves",
    )
    model = packing.CpSat(instance)
    assert model.lower_bound(291494853.0000052, 0.0) == 291_494_853
    assert model.parameters == {"cp_model_presolve": False}
    result = sp.solve(instance, "cp-sat")
    assert (result.status, result.objective) == (Status.OPTIMAL, 291_494_853)


def test_figures_beyond_what_presolve_counts_leave_it_out() -> None:
    small = LinearProgram([3, 5], 2**20)
    large = LinearProgram([3, 5], 2**33)
    assert small.settings == {}
    assert large.settings == {"cp_model_presolve": False}


@pytest.mark.parametrize("seed", [20, 346])
def test_presolve_loses_no_plan_where_columns_are_not_whole(seed: int) -> None:
    """Presolve of HiGHS 1.12 lost 270 of 274, and 82 of 86 cycles: factors are at most 20."""
    instance = random_phases(seed, layers=(4, 9), one_group=True)
    best = sp.solve(instance, "dp")
    assert best.status is Status.OPTIMAL
    found = sp.solve(instance, "milp-remat", warm_start=None)
    assert (found.status, found.objective) == (Status.OPTIMAL, best.objective)


@pytest.mark.parametrize("seed", [136, 877])
def test_plans_of_models_retain_what_their_options_do(seed: int) -> None:
    """Outputs that an option retains were computed again, in memory that was not there."""
    instance = random_phases(seed, layers=(4, 9), one_group=True)
    found = sp.solve(instance, "milp", warm_start=None)
    assert found.solution is None or not instance.check(found.solution)


class LinearProgram(WholeProgram):
    """Minimise costs of which some pay for bytes."""

    def __init__(self, costs: list[int], nbytes: int) -> None:
        super().__init__()
        self.row({self.column(cost): nbytes for cost in costs}, low=nbytes)
