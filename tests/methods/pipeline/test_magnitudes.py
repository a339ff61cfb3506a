"""Numbers of every size: exact methods agree with enumeration, or refuse by name."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.progress import Progress
from stagepack.result import Status
from tests.random_pipelines import optimum

EXACT = ("dp", "dp-reference", "bisect", "milp-interval", "milp-assignment", "cp-sat")
MAGNITUDES = (1e-300, 1e-12, 1e-9, 1.0, 1e9, 1e17)


def instance_of(seed: int, magnitude: float, mixed: bool, **options: Any) -> sp.PipelinePartition:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 7))
    k = int(draw.integers(1, min(n, 3) + 1))

    def cycles(*shape: int) -> Any:
        values = draw.random(shape) * magnitude
        return values * 10.0 ** draw.integers(-6, 1, shape) if mixed else values

    if options["objective"] != "bottleneck":
        options.update(recv_cycles=cycles(k, n + 1), send_cycles=cycles(k, n + 1))
    return sp.PipelinePartition.from_arrays(cycles(n), devices=k, **options)


@pytest.mark.parametrize("method", EXACT)
@given(
    st.integers(0, 2**31),
    st.sampled_from(MAGNITUDES),
    st.booleans(),
    st.sampled_from(("bottleneck", "transfer-bounded", "sum", "overlap")),
    st.sampled_from(("auto", None)),
)
@settings(max_examples=25)
def test_floats_of_all_magnitudes_are_proved(
    method: str, seed: int, magnitude: float, mixed: bool, objective: str, start: str | None
) -> None:
    instance = instance_of(seed, magnitude, mixed, objective=objective)
    best = optimum(instance)
    assert best is not None
    if not sp_available(instance, method):
        return
    result = sp.solve(instance, method, warm_start=start)
    assert result.objective == pytest.approx(best[0], rel=2e-9, abs=0)
    assert result.bound is not None
    assert result.bound <= best[0] * (1 + 1e-9)
    # Where one figure dwarfs the objective, the bound may say so instead.
    assert result.status is Status.OPTIMAL or result.reason


def sp_available(instance: sp.PipelinePartition, method: str) -> bool:
    return next(m for m in sp.methods(instance) if m.name == method).available


def test_nothing_below_the_unit_counts_as_zero() -> None:
    # Of two cuts, one is 25 % worse: both are far below 1e-9.
    instance = sp.PipelinePartition.from_arrays([3e-12, 1e-12, 4e-12], devices=2)
    bad = sp.PipelineSolution.in_order((0, 1, 3))
    progress: Progress[Any] = Progress(
        instance.evaluate, instance.check, tolerance=instance.tolerance
    )
    progress.offer(bad, "test")
    progress.raise_bound(4e-12, "test")
    assert not progress.proved
    assert sp.solve(instance, "dp", warm_start=bad).objective == pytest.approx(4e-12)


def test_long_sums_of_floats_keep_their_last_digits() -> None:
    cycles = np.random.default_rng(0).random(300_000) * 1e-10
    instance = sp.PipelinePartition.from_arrays(cycles, devices=7)
    costs = RangeCosts(instance)
    assert costs.rounding
    whole = costs.value(int(costs.prefix[0, -1]))
    assert whole == pytest.approx(instance.evaluate(sp.PipelineSolution((0, instance.n), (0,))),
                                  rel=1e-14)  # fmt: skip
    assert sp.solve(instance, "bisect").status is Status.OPTIMAL


def test_floats_beyond_the_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"compute_table: exceeds 2\*\*62"):
        sp.PipelinePartition.from_arrays(None, devices=1, compute_table=np.full((3, 3), 1e300))
    slow = sp.PipelinePartition.from_arrays([1e18, 2e18], devices=2, speed=[1e-9, 1e9])
    assert sp.solve(slow, "dp").objective == pytest.approx(1e27)


FORCED = (37983851624326248, 55602954427923128, 54414950759115752, 8303093564813567,
          38523442409513720, 55026256793701656, 12347068209984634, 25568984559323324,
          43966341488270352, 45504360552687128, 27815318104166872, 39371125541165312,
          41239153608892368, 21770180814131968, 40200632230236192)  # fmt: skip


@pytest.mark.parametrize("method", ["milp-assignment", "milp-interval"])
def test_integers_beyond_doubles_are_refused_or_proved(method: str) -> None:
    instance = sp.PipelinePartition.from_arrays(FORCED, devices=6, objective="transfer-bounded")
    best = sp.solve(instance, "dp").objective
    assert best is not None
    refused = []
    for start in ("auto", None, "dp"):
        try:
            result = sp.solve(instance, method, warm_start=start)
        except InputError as error:
            refused.append(str(error))
            continue
        assert result.bound is not None
        assert result.bound <= best == result.objective
    assert all("2**53" in words and "use dp" in words for words in refused)
    # A common divisor costs nothing.
    even = sp.PipelinePartition.from_arrays([5 * 2**55, 3 * 2**55, 2**55], devices=2)
    assert sp.solve(even, method).status is Status.OPTIMAL


def test_range_costs_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = sp.PipelinePartition.from_arrays(range(1, 30), devices=4)
    digest, size = instance.digest, len(pickle.dumps(instance))
    built = []
    begin = RangeCosts.__init__

    def counted(self: RangeCosts, *args: Any) -> None:
        built.append(self)
        begin(self, *args)

    monkeypatch.setattr(RangeCosts, "__init__", counted)
    for method in ("auto", "dp", "greedy"):
        sp.solve(instance, method)
    assert len(built) == 1
    assert instance.digest == digest
    assert len(pickle.dumps(instance)) == size
    again = pickle.loads(pickle.dumps(instance))
    assert again.digest == digest
    assert sp.solve(again, "dp").objective == sp.solve(instance, "dp").objective


def test_too_many_orders_are_refused_in_a_few_words() -> None:
    speeds = (1 + np.arange(20_000) / 100_000).tolist()
    instance = sp.PipelinePartition.from_arrays(
        np.ones(20_000), devices=20_000, speed=speeds, free_order=True
    )
    reason = next(m for m in sp.methods(instance) if m.name == "dp").reason
    assert "too many" in reason
    assert len(reason) < 200
