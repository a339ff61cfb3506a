"""Groups inside stages: of chains and graphs, forward and backward."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stagepack as sp
from benchmarks.soak_plans import network
from stagepack.instances.groups import Operator, OperatorKind, Source
from stagepack.instances.groups.backward import backward, weight_cycles, with_stash
from stagepack.instances.groups.problem import Order
from stagepack.instances.groups.stage import (
    as_chain,
    as_graph,
    stage_backward,
    stage_groups,
    training_bound,
)
from stagepack.planning import Level
from stagepack.planning.stages import Structure
from stagepack.planning.tries import expressed
from tests.cli.shell import run
from tests.instances.groups.networks import CHIP, add, conv


def branches() -> sp.LayerGrouping:
    """Return a convolution, two beside one another, their sum, and a pooling."""
    return sp.LayerGrouping.from_arrays(
        [
            conv("first", "image", 8, 6, padding=(1, 1, 1, 1)),
            conv("left", "first", 8, 6),
            conv("right", "first", 8, 6, kernel=1),
            add("sum", "left", "right", channels=8, rows=6),
            Operator(
                name="pool", kind=OperatorKind.POOL, inputs=("sum",), shape=(1, 8, 3, 3),
                kernel=(2, 2), stride=(2, 2),
            ),
        ],
        [Source(name="image", shape=(1, 8, 6, 6))],
        chip=CHIP,
        name="branches",
    )  # fmt: skip


def test_the_backward_pass_of_branches_is_known() -> None:
    found = backward(branches())
    told = [(op.name, str(op.kind), op.inputs, op.shape) for op in found.network.operators]
    whole = (1, 8, 6, 6)
    assert told == [
        ("pool backward", "other", ("pool loss", "sum", "pool"), whole),
        ("sum backward 0", "elementwise", ("pool backward", "left", "right"), whole),
        ("sum backward 1", "elementwise", ("pool backward", "left", "right"), whole),
        ("right backward", "deconv", ("sum backward 1",), whole),
        ("left backward", "deconv", ("sum backward 0",), whole),
        ("first gradient", "elementwise", ("right backward", "left backward"), whole),
        ("right weights", "other", ("sum backward 1", "first"), (1, 8, 8, 1)),
        ("left weights", "other", ("sum backward 0", "first"), (1, 8, 72, 1)),
        ("first weights", "other", ("first gradient", "image"), (1, 8, 72, 1)),
    ]
    assert found.of == (4, 3, 3, 2, 1, 0, 2, 1, 0)
    names = [tensor.name for tensor in branches().tensors]
    assert {names[at] for at in found.stash} == {"image", "first", "left", "right", "sum", "pool"}
    stored = with_stash(branches(), found.stash)
    assert stored.outputs == ("first", "left", "right", "sum", "pool")


def summed() -> sp.LayerGrouping:
    """Return the same, where it is said that the sum is one."""
    network = branches()
    operators = list(network.operators)
    operators[3] = msgspec.structs.replace(operators[3], adds=True)
    return network.replace(operators=operators)


def test_gradients_go_through_sums_as_they_are() -> None:
    found = backward(summed())
    reads = {op.name: op.inputs for op in found.network.operators}
    assert reads["left backward"] == reads["right backward"] == ("pool backward",)
    assert summed().digest == branches().digest
    # A stage of nothing else has its turn all the same.
    plan = sp.plan_model(summed(), sp.Cluster.uniform(5), microbatches=2, training=True, split=True)
    assert plan.check() == ()
    assert plan.levels
    assert "stage 3 backward" not in [level.name for level in plan.levels]


@pytest.mark.parametrize(
    ("operator", "reads", "made"),
    [
        ({"kind": "upsample", "scale": (2, 2), "shape": (1, 8, 12, 12)}, 1, "pool"),
        ({"kind": "deconv", "kernel": (2, 2), "stride": (2, 2), "shape": (1, 8, 12, 12)}, 1,
         "conv"),
        ({"kind": "global-pool", "shape": (1, 8, 1, 1)}, 1, "elementwise"),
        ({"kind": "rows", "whole": "c", "shape": (1, 8, 6, 6)}, 1, "elementwise"),
        ({"kind": "matmul", "shape": (1, 8, 6, 6)}, 2, "matmul"),
        ({"kind": "concat", "shape": (1, 16, 6, 6)}, 2, "other"),
        ({"kind": "interpolate", "shape": (1, 8, 9, 9)}, 1, "other"),
        ({"kind": "conv", "kernel": (1, 1), "groups": 8, "shape": (1, 16, 6, 6)}, 1, "other"),
    ],
)  # fmt: skip
def test_every_kind_leads_gradients_on(operator: dict[str, Any], reads: int, made: str) -> None:
    before = [conv("a", "image", 8, 6), conv("b", "image", 8, 6)]
    kind = OperatorKind(operator["kind"])
    last = Operator(**{**operator, "kind": kind, "name": "last", "inputs": ("a", "b")[:reads]})
    network = sp.LayerGrouping.from_arrays(
        [*before[:reads], last], [Source(name="image", shape=(1, 8, 6, 6))], chip=CHIP
    )
    found = backward(network)
    led = [op for op, of in zip(found.network.operators, found.of, strict=True) if of == reads]
    assert [str(op.kind) for op in led] == [made] * reads
    assert all(op.shape == (1, 8, 6, 6) for op in led)
    # It is a network like others, and has a plan.
    assert sp.solve(found.network).status == "OPTIMAL"


@pytest.mark.parametrize(("graph", "split"), [(False, False), (False, True), (True, False)])
def test_no_partition_of_a_step_of_training_is_below_the_bound(graph: bool, split: bool) -> None:
    network, cluster = branches(), sp.Cluster.uniform(2)
    plan = sp.plan_model(network, cluster, microbatches=3, training=True, graph=graph, split=split)
    assert plan.check() == ()
    back = backward(network)
    stored = with_stash(network, back.stash)
    made: list[float] = []
    known: dict[str, sp.Result[Any]] = {}
    model: Any = (as_graph if graph else as_chain)(network, cluster, back)
    any_answer = sp.solve(model)
    for chosen in itertools.product(range(2), repeat=network.n):
        place = np.array(chosen)
        if graph:
            solution: Any = sp.GraphSolution.of(model, np.tile(place, 2))
        elif (np.diff(place) < 0).any() or len(set(chosen)) < 2:
            continue
        else:
            cuts = (0, int(np.count_nonzero(place == 0)), network.n)
            solution = sp.PipelineSolution.in_order(cuts)
        if model.check(solution):
            continue
        cut = Level("partition", model, expressed(model, solution, any_answer))
        inside = {}
        bare = Structure(cut, {}, 3, split=split)
        for at in range(len(bare.places)):
            members, name = bare.operators(at)
            parts = stage_groups(stored, members, name), stage_backward(back, members, name)
            for behind, part in enumerate(parts):
                if part is not None:
                    took = known.get(part.digest) or sp.solve(part)
                    known[part.digest] = took
                    assert took.status == "OPTIMAL"
                    inside[at, bool(behind)] = Level(name, part, took)
        made.append(sp.solve(Structure(cut, inside, 3, split=split).schedule()).objective or 0)
    assert len(made) >= 4
    assert plan.bound is not None
    assert plan.bound <= min(made)
    assert plan.objective is not None
    assert plan.objective <= 1.05 * min(made)


def test_a_network_that_is_a_graph_has_any_groups() -> None:
    network = branches()
    plan = sp.plan_model(network, sp.Cluster.uniform(2), microbatches=2, graph=True)
    assert plan.check() == ()
    assert plan.level("partition").instance.kind == "graph-partition"
    whole: Any = plan.level("network").instance
    assert whole.order == Order.FREE
    parts: list[Any] = [one.instance for one in plan.levels if one.name.startswith("stage")]
    names = [op.name for part in parts for op in part.operators]
    assert sorted(names) == sorted(op.name for op in network.operators)


def test_stages_that_are_guessed_and_do_not_fit_are_passed_over() -> None:
    """Two microbatches in flight have no room beside the first stage of the guess."""
    plan = sp.plan_model(
        network(np.random.default_rng(52231)),
        sp.Cluster.uniform(2, memory=2**14),
        microbatches=4,
        graph=True,
        training=True,
        split=True,
        time_limit=0.2,
    )
    assert plan.levels
    assert plan.check() == ()


def test_gradients_of_weights_are_w_where_the_pass_is_split() -> None:
    plan = sp.plan_model(
        branches(), sp.Cluster.uniform(2), microbatches=2, training=True, split=True
    )
    schedule = plan.schedule
    assert schedule.weight is not None
    assert schedule.backward is not None
    for at in range(2):
        level = plan.level(f"stage {at} backward")
        part: Any = level.instance
        weights = weight_cycles(part)
        assert schedule.weight[at] == max(1, weights)
        assert schedule.backward[at] == max(1, (level.result.objective or 0) - weights)


@pytest.mark.parametrize("graph", [False, True])
def test_what_is_altered_in_a_plan_of_training_is_found(graph: bool, tmp_path: Path) -> None:
    plan = sp.plan_model(
        branches(), sp.Cluster.uniform(2), microbatches=2, training=True, graph=graph
    )
    path = tmp_path / "plan.json"
    plan.to_json(str(path))
    assert sp.read_plan(path).check() == ()
    for name in ("network backward", "stage 1 backward", "stage 0"):
        document = plan.to_dict()
        level = next(level for level in document["levels"] if level["name"] == name)
        level["instance"]["operators"][0]["dtype_bytes"] = 2
        del level["result"]["digest"]
        path.write_text(json.dumps(document))
        with contextlib.suppress(sp.InputError):
            rules = [one.rule for one in sp.read_plan(path).check()]
            assert any(rule.startswith(name.partition(" backward")[0]) for rule in rules)
    less = tuple(level for level in plan.levels if level.name != "stage 1 backward")
    rules = [str(one) for one in replace(plan, levels=less).check()]
    assert any("the other pass has no groups" in one for one in rules)


def test_stashes_take_the_memory_of_devices() -> None:
    network = branches()
    room = sp.plan_model(network, sp.Cluster.uniform(2), microbatches=4, training=True)
    assert room.memory is not None
    tight = sp.plan_model(
        network, sp.Cluster.uniform(2, memory=room.memory - 1), microbatches=4, training=True
    )
    if tight.levels:
        assert tight.check() == ()
        assert tight.memory is not None
        assert tight.memory < room.memory
    none = sp.plan_model(network, sp.Cluster.uniform(2, memory=600), microbatches=4, training=True)
    assert none.status == "INFEASIBLE"
    assert none.reason


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 2), (3, 5), (4, 1), (1, 7)])
def test_the_bound_of_a_row_is_that_of_the_best_shares(devices: int, microbatches: int) -> None:
    rng = np.random.default_rng(devices)
    whole, least = 1e6, np.inf
    for _ in range(2000):
        own = rng.dirichlet(np.ones(devices)) * whole
        before = np.concatenate(([0], np.cumsum(own)[:-1]))
        least = min(least, float((before + microbatches * own).max()))
    bound = training_bound(whole, microbatches, devices, split=False)
    assert bound <= least + 1
    assert bound >= 0.7 * least


def test_a_graph_of_operators_is_planned_by_name() -> None:
    done = run(
        "plan", "random/blocks", "--set", "operators=4", "--set", "rows=8", "--local", "cv184x",
        "--kind", "graph", "--devices", "2", "--training", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    names = [level["name"] for level in document["levels"]]
    assert names[:4] == ["partition", "schedule", "network", "network backward"]
    assert document["violations"] == []
