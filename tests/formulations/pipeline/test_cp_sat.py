"""What is particular to the CP-SAT model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formulations.pipeline import CpSat
from stagepack.formulations.pipeline import cp_sat as module
from stagepack.formulations.pipeline.frame import furthest_ends
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array, Cluster, Device, Link
from tests.formulations.engines import solve
from tests.random_pipelines import optimum, random_instance


def test_thousands_of_layers_stay_small() -> None:
    draw = np.random.default_rng(0)
    cycles = draw.integers(1000, 9000, 3000)
    instance = PipelinePartition.from_arrays(
        cycles, devices=16, exclusive=cycles, capacity=int(cycles.sum()) // 8
    )
    formulation = CpSat(RangeCosts(instance))
    assert len(formulation.model.proto.variables) < 100
    assert len(formulation.model.proto.constraints) < 200
    even = PipelineSolution.in_order(np.linspace(0, 3000, 17).astype(int))
    assert len(formulation.hint(even)) == len(formulation.model.proto.variables)


def test_what_fits_is_found_once_for_like_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def ends(costs: RangeCosts, device_class: int, stashes: int, most: int) -> Array:
        asked.append((device_class, stashes))
        return furthest_ends(costs, device_class, stashes, most)

    monkeypatch.setattr(module, "furthest_ends", ends)
    instance = PipelinePartition.from_arrays(
        [3, 1, 4] * 20, devices=12, speed=[1, 2] * 6, exclusive=[1] * 60, capacity=9
    )
    formulation = CpSat(RangeCosts(instance))
    assert len(asked) == 2
    # Hints are looked up in the window of each cut.
    even = PipelineSolution.in_order(range(0, 61, 5))
    values = formulation.hint(even)
    assert values[formulation.C.index] == formulation.costs.largest_compute(even) / formulation.unit


def test_costs_are_divided_by_their_gcd() -> None:
    instance = PipelinePartition.from_arrays([2 * 10**15, 10**15, 3 * 10**15], devices=2)
    formulation = CpSat(RangeCosts(instance))
    assert formulation.unit == 10**15
    answer = solve(formulation)
    assert answer.objective == 3
    assert formulation.lower_bound(answer.bound) == 3 * 10**15


def test_costs_beyond_the_exact_range_get_a_coarser_unit() -> None:
    instance = PipelinePartition.from_arrays([2**54, 1, 2**54, 3], devices=2)
    formulation = CpSat(RangeCosts(instance), upper=2**54 + 3)
    assert not formulation.exact
    answer = solve(formulation)
    assert answer.values is not None
    value = instance.evaluate(formulation.decode(answer.values))
    assert value - 2 * formulation.unit <= formulation.lower_bound(answer.bound) <= 2**54 + 3


@pytest.mark.parametrize("bits", [20, 34, 44, 52])
def test_large_costs_of_chosen_devices_survive_presolve(bits: int) -> None:
    # Seeds for which a model in exact ticks of 34 bits was called infeasible.
    for seed in (159, 205, 709, 943, 1110, 1200, 1300):
        draw = np.random.default_rng(seed)
        top = 2**bits // 20
        base = random_instance(seed)
        n = base.n
        cluster = Cluster(
            devices=tuple(
                Device(memory=d.memory, speed=d.speed, recv=Link(GBps=1.0), send=Link(GBps=1.0))
                for d in base.cluster.devices
            ),
            clock=float(2**30),
        )
        instance = base.replace(
            cluster=cluster,
            forward=draw.integers(1, top, n),
            backward=np.zeros(n, dtype=np.int64),
            in_bytes=draw.integers(1, top, n + 1),
            out_bytes=draw.integers(1, top, n + 1),
            objective=["transfer-bounded", "sum", "overlap"][seed % 3],
        )
        best = optimum(instance)
        assert best is not None
        formulation = CpSat(RangeCosts(instance))
        answer = solve(formulation)
        assert answer.values is not None
        value = instance.evaluate(formulation.decode(answer.values))
        assert value == pytest.approx(best[0], rel=1e-8)
        bound = formulation.costs.value(formulation.lower_bound(answer.bound))
        assert best[0] * (1 - 1e-8) <= bound <= best[0] * (1 + 1e-15)


def test_too_large_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_TABLE", 10)
    table = np.ones((7, 7), dtype=np.int64)
    instance = PipelinePartition.from_arrays(None, devices=3, compute_table=table)
    with pytest.raises(InputError, match="10 tuples"):
        CpSat(RangeCosts(instance))


def test_a_solution_outside_the_model_has_no_hint() -> None:
    instance = PipelinePartition.from_arrays([5, 1, 1, 5], devices=2)
    formulation = CpSat(RangeCosts(instance), upper=6)
    with pytest.raises(ValueError, match="not in the model"):
        formulation.hint(PipelineSolution.in_order([0, 1, 4]))


def test_the_bound_stays_exact_where_steps_grow_coarse() -> None:
    instance = PipelinePartition.from_arrays([2**43 - 1, 2**40], devices=2)
    formulation = CpSat(RangeCosts(instance))
    assert not formulation.exact
    steps = -(-(2**43 - 1) // formulation.unit)
    assert formulation.lower_bound(float(steps)) == 2**43 - 1
    assert formulation.lower_bound(-np.inf) <= 2**43 - 1


def test_one_thread_chooses_the_largest_stage_from_a_list(data_dir: Path) -> None:
    """Eight partitions, but 2**40 steps between the bound and the optimum."""
    instance = sp.read(data_dir / "mends" / "float-10x3.json")
    result = sp.solve(instance, "cp-sat", warm_start=None, options={"deterministic": True})
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == pytest.approx(707.23)
