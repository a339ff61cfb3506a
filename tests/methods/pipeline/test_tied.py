"""Weights that several layers use: copied to the stages that use them, or kept together."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.pipeline import costs
from stagepack.instances.pipeline.check import reduction_cycles
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.methods.pipeline import METHODS
from stagepack.verify import verify
from tests.random_pipelines import optimum, random_instance, tied
from tests.structured.pipeline import SHAPES

OBJECTIVES = ("bottleneck", "transfer-bounded", "sum", "overlap", "latency")
GPT2 = sp.ModelProfile(
    layers=(
        sp.LayerProfile(name="wte", forward=5, tied={"wte": 154}, outputs=("x0",)),
        *(
            sp.LayerProfile(
                name=f"h.{at}", forward=60, exclusive={"parameters": 28},
                inputs=(f"x{at}",), outputs=(f"x{at + 1}",),
            )
            for at in range(12)
        ),
        sp.LayerProfile(name="lm_head", forward=55, tied={"wte": 154}, inputs=("x12",)),
    ),
    tensors={f"x{at}": 3 for at in range(13)},
    name="gpt2",
)  # fmt: skip
"""Twelve layers alike between an embedding and a head that share their weight."""


def two_users(**changes: Any) -> sp.PipelinePartition:
    """Return four layers, the first and the last of which use a weight of 8 bytes."""
    given: dict[str, Any] = {
        "devices": 2, "bandwidth": 1, "clock": 2.0**30, "training": True, "microbatches": 2,
        "objective": "sum", "tied": {"wte": (8, [0, 3])},
    }  # fmt: skip
    return sp.PipelinePartition.from_arrays([10, 10, 10, 10], **{**given, **changes})


# ---------------------------------------------------------------------- by hand


def test_gpt2_is_cut_where_its_weight_is_copied_and_is_one_stage_where_it_is_not() -> None:
    copied = sp.PipelinePartition.from_profile(GPT2, sp.Cluster.uniform(4))
    assert copied.allowed_cuts.all()
    assert sp.solve(copied).objective == 235  # three layers, and the head
    together = sp.PipelinePartition.from_profile(GPT2, sp.Cluster.uniform(4), tied="together")
    assert not together.allowed_cuts[1:-1].any()
    assert sp.solve(together).status == "INFEASIBLE"
    assert sp.solve(together.replace(fewer_stages=True)).objective == 780
    # One stage holds the weight once, either way.
    one = sp.PipelineSolution((0, 14), (0,))
    for instance in (copied, together):
        (stage,) = sp.estimate(instance.replace(fewer_stages=True), one).stages
        assert stage.memory == 154 + 12 * 28


def test_stages_hold_a_copy_each_and_reduce_its_gradient() -> None:
    instance = two_users()
    halves = sp.PipelineSolution((0, 2, 4), (0, 1))
    # 8 bytes come and go once a step of two microbatches.
    assert reduction_cycles(instance, 0, 2, 0) == (4, 4)
    assert instance.evaluate(halves) == 20 + 8
    assert instance.replace(microbatches=1).evaluate(halves) == 20 + 16
    assert instance.replace(objective="overlap").evaluate(halves) == 20
    assert instance.replace(objective="latency").evaluate(halves) == 40 + 16
    assert instance.replace(objective="transfer-bounded").evaluate(halves) == 20 + 8
    assert instance.replace(objective="bottleneck").evaluate(halves) == 20
    assert instance.replace(training=False).evaluate(halves) == 20
    assert [stage.memory for stage in sp.estimate(instance, halves).stages] == [8, 8]
    assert [stage.recv for stage in sp.estimate(instance, halves).stages] == [4, 4]
    proof = verify(instance, sp.solve(instance).bound, "witness", {"rule": "fill"})
    assert not proof.shown  # of the verifier, which counts no reductions
    slow = instance.replace(tied={"wte": (100, [0, 3])}, fewer_stages=True)
    assert sp.solve(slow).solution == sp.PipelineSolution((0, 4), (0,))  # 40, not 20 + 100


def test_a_stage_between_the_users_reduces_nothing() -> None:
    instance = two_users(devices=4)
    assert [reduction_cycles(instance, a, a + 1, a) for a in range(4)] == [
        (4, 4), (0, 0), (0, 0), (4, 4)
    ]  # fmt: skip


def test_gradients_alone_are_reduced_of_what_a_profile_counts() -> None:
    held = {"parameters": 4, "gradients": 5, "optimiser state": 8}
    profile = sp.ModelProfile(
        layers=tuple(sp.LayerProfile(forward=1, tied={"w": held}) for _ in range(2))
    )
    instance = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(2), training=True)
    assert instance.tied is not None
    assert instance.tied.nbytes.tolist() == [5]
    assert [stage.memory for stage in sp.estimate(instance, sp.solve(instance)).stages] == [17, 17]
    together = profile.together()
    assert [layer.exclusive for layer in together.layers] == [held, {}]
    assert [layer.variables for layer in together.layers] == [("w",), ("w",)]
    graph = sp.GraphPartition.from_profile(profile, sp.Cluster.uniform(2))
    assert graph.memory.tolist() == [17, 0]
    assert graph.colour[0] == graph.colour[1] >= 0


def test_networks_of_the_catalog_are_cut_where_weights_are_copied() -> None:
    copied = sp.load("pipeline/gpt2-small", tied="copied", training=True)
    assert copied.allowed_cuts.all()
    assert copied.reduces
    assert sp.load("pipeline/gpt2-small", tied="together").allowed_cuts.sum() == 2


# ---------------------------------------------------------------------- by trying everything


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_agrees_with_trying_everything(objective: str) -> None:
    for seed in range(500):
        instance = tied(random_instance(seed, largest_k=4), objective, seed)
        result, best = sp.solve(instance), optimum(instance)
        if best is None:
            assert result.status == "INFEASIBLE", instance.name
            continue
        assert result.objective == pytest.approx(best[0], rel=instance.tolerance, abs=0)
        assert result.bound is not None
        assert result.bound <= best[0] * (1 + instance.tolerance)
        if instance.tolerance == 0:
            assert result.status == "OPTIMAL", instance.name
        above = best[0] + 1 + 1e-6 * abs(best[0])
        assert not verify(instance, above, "witness", {"rule": "fill"}).shown
        if result.proof == "witness":  # without reductions, which only cost more
            assert verify(instance, result.bound, result.proof, result.evidence).shown


@pytest.mark.parametrize(
    "method", [one.name for one in METHODS if one.exact and one.name not in ("auto", "dp")]
)
def test_exact_methods_agree_or_refuse(method: str) -> None:
    tried = 0
    for seed in range(150):
        objective = OBJECTIVES[seed % len(OBJECTIVES)]
        instance = tied(random_instance(seed, largest_n=5), objective, seed)
        info = next(one for one in sp.methods(instance) if one.name == method)
        if instance.tolerance or not info.available:
            continue
        result, best = sp.solve(instance, method), optimum(instance)
        tried += 1
        assert result.objective == (None if best is None else best[0]) or result.bound is not None
        assert result.status != "OPTIMAL" or (best and result.objective == best[0]), instance.name
        assert result.status != "INFEASIBLE" or best is None, instance.name
    assert tried or method == "rounds"


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "placed"])
def test_structured_instances_agree(shape: str) -> None:
    for seed in range(12):
        draw = np.random.default_rng([seed, 5])
        instance = tied(SHAPES[shape](draw, int(draw.integers(2, 7))), "transfer-bounded", seed)
        result, best = sp.solve(instance), optimum(instance)
        assert result.objective == (None if best is None else best[0])


def test_copies_are_no_worse_than_layers_kept_together() -> None:
    for seed in range(100):
        given = random_instance(seed).replace(objective="bottleneck")
        copied = tied(given, "bottleneck", seed)
        assert copied.tied is not None
        spans = [(name, min(at), max(at)) for name, (_, at) in copied.tied.uses().items()]
        together = copied.replace(
            tied=None, shared=copied.shared, variables=[*given.variables, *spans]
        )
        values = [sp.solve(one).objective for one in (copied, together)]
        assert values[1] is None or (values[0] is not None and values[0] <= values[1])


def test_a_hundred_thousand_layers_are_cut() -> None:
    n = 100_000
    instance = sp.PipelinePartition.from_arrays(
        np.arange(n) % 97, devices=8, exclusive=np.ones(n, int), capacity=n // 8 + 2_000,
        tied={"wte": (1_000, [0, n - 1])}, training=True,
    )  # fmt: skip
    assert sp.solve(instance).status == "OPTIMAL"
    linked = sp.Cluster.uniform(8, link=sp.Link(GBps=1))
    longer = instance.replace(objective="sum", cluster=linked)
    for method in ("auto", "greedy", "dp", "cp-sat"):  # rules of thumb need no tables
        result = sp.solve(longer, method)
        assert (result.status, "tables of reductions" in result.reason) == (
            "FEASIBLE",
            method != "greedy",
        )
    with pytest.raises(InputError, match="tables of reductions") as refused:
        sp.solve(longer, "dp", warm_start=None)
    assert refused.value.field == "tied"


def test_tables_ask_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {one: two_users(objective=one, devices=3) for one in OBJECTIVES}
    asked = {}
    for cells in (10**6, 1):
        monkeypatch.setattr(costs, "CELLS", cells)
        for objective, instance in whole.items():
            pause = Mock()
            RangeCosts(instance, pause).fits_matrix(0, 0, pause)
            asked[objective, cells] = pause.call_count
    for objective in OBJECTIVES:
        tables = 1 + whole[objective].reduces
        assert asked[objective, 1] >= asked[objective, 10**6] + 2 * tables, objective


# ---------------------------------------------------------------------- files, and refusals


def test_files_keep_tied_weights(tmp_path: Any) -> None:
    instance = two_users(shared={"code": (3, [1, 2])}, exclusive=[1, 2, 3, 4])
    path = tmp_path / "chain.json"
    sp.write(instance, path)
    again = sp.read(path)
    assert again.digest == instance.digest
    assert again.shared.uses() == {"code": (3, [1, 2]), "wte": (8, [0, 3])}
    together = sp.read(path, tied="together")
    assert [(v.name, v.first, v.last) for v in together.variables] == [("wte", 0, 3)]
    assert together.tied is None
    uncounted = two_users(memory="exclusive")
    sp.write(uncounted, path)
    assert sp.read(path).digest == uncounted.digest
    assert uncounted.digest != instance.digest
    assert uncounted.replace(training=False).shared.names == ()
    assert instance.replace(tied=None).shared.names == ("code",)
    assert two_users(tied=None).digest == two_users(tied={}).digest


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tied": {"w": (1, [4])}}, "tied"),
        ({"tied": {"w": (-1, [0])}}, "tied"),
        ({"tied": {"w": 3}}, "tied"),
        ({"tied": {"w": (1, [0, 1])}, "shared": {"w": (2, [0, 1])}}, "tied"),
    ],
)
def test_what_is_no_tied_weight_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        two_users(**changes)
    assert refused.value.field == field


def test_variables_without_bytes_are_not_copied() -> None:
    layers = tuple(sp.LayerProfile(forward=1, variables=("v",)) for _ in range(2))
    profile, cluster = sp.ModelProfile(layers=layers), sp.Cluster.uniform(2)
    assert len(sp.PipelinePartition.from_profile(profile, cluster).variables) == 1
    with pytest.raises(InputError, match="say no bytes") as refused:
        sp.PipelinePartition.from_profile(profile, cluster, tied="copied")
    assert refused.value.field == "variables"
    with pytest.raises(InputError) as refused:
        sp.PipelinePartition.from_profile(profile, cluster, tied="shared")
    assert refused.value.field == "tied"


def test_methods_that_know_no_reduction_refuse_by_name() -> None:
    refused = {one.name: one.reason for one in sp.methods(two_users()) if not one.available}
    assert "reductions of tied weights" in refused["milp-assignment"]
    bounded = two_users(objective="transfer-bounded")
    refused = {one.name: one.reason for one in sp.methods(bounded) if not one.available}
    assert "reductions of tied weights" in refused["cp-sat"]
    assert "milp-assignment" in refused
    plain = two_users(objective="bottleneck")
    assert {one.name for one in sp.methods(plain) if not one.available} == {"rounds"}
