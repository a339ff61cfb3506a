"""What binds in a plan, and what changes would buy."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.instances.tradeoffs import BESIDE, tradeoffs
from stagepack.result import Status
from tests.cli.shell import run
from tests.planning import test_inside, test_phased_graphs
from tests.planning.test_plan_model import chain

FAST = sp.Link(GBps=2**-20, idle=2)


def linked(seed: int) -> sp.PipelinePartition:
    cluster = sp.Cluster.uniform(2, memory=60, link=FAST)
    return chain(seed, microbatches=4).replace(cluster=cluster)


def planned(what: str, seed: int) -> sp.ModelPlan:
    match what:
        case "chain":
            return sp.plan_model(chain(seed))
        case "links":
            return sp.plan_model(linked(seed), split=seed % 2 == 0)
        case "phases":
            return sp.plan_model(test_inside.tight(seed), remote=test_inside.REMOTE)
        case "graph":
            return sp.plan_model(test_inside.graph(seed))
        case "graph with phases":
            return sp.plan_model(test_phased_graphs.graph(seed), remote=test_phased_graphs.REMOTE)
    cluster = sp.Cluster.uniform(2)
    return sp.plan_model(test_inside.blocks(4), cluster, microbatches=4)


WHATS = ("chain", "links", "phases", "graph", "graph with phases", "groups")


@pytest.mark.parametrize("what", WHATS)
def test_no_change_makes_a_plan_worse(what: str, tmp_path: Path) -> None:
    plan = planned(what, 0)
    assert plan.objective is not None
    # A plan of a file is explained as well as one at hand.
    plan.to_json(str(tmp_path / "plan.json"))
    found = sp.explain_plan(sp.read_plan(tmp_path / "plan.json"), time_limit=20)
    assert dict(found.critical).keys() >= {"most work", "bubble"}
    assert len(found.changes) > 1
    for change in found.changes:
        then = change.result
        assert then.check() == ()
        assert then.objective is not None
        assert then.bound is not None
        assert then.bound <= plan.objective, "the plan at hand is there with the change, too"
        assert change.saved == max(0, plan.objective - then.objective)
        assert change.most is not None
        assert change.saved <= change.most
        assert change.binds is not True or then.objective < (plan.bound or 0)
        assert then.microbatches == plan.microbatches
    phases = {bool(change.result.on_chip) for change in found.changes}
    assert (True in phases) == what.endswith("phases"), "they are there with the change, too"
    assert "planned anew" in str(found)


def test_what_binds_is_what_a_change_of_it_mends() -> None:
    """Two layers of which one fills its device: memory binds, where links take no time."""
    cluster = sp.Cluster.uniform(2, memory=10)
    model = sp.PipelinePartition.from_arrays(
        [4, 4, 12], exclusive=[5, 6, 4], cluster=cluster, microbatches=4
    )
    plan = sp.plan_model(model)
    found = {one.change: one for one in sp.explain_plan(plan).changes}
    assert found["no limit of memory"].binds
    assert found["10 % more memory"].binds
    assert found["one more device, and any may stay unused"].binds
    alone = sp.plan_model(model.replace(cluster=sp.Cluster.uniform(2)))
    assert found["no limit of memory"].result.objective == alone.objective


def test_plans_that_cannot_be_explained_are_told_of(tmp_path: Path) -> None:
    none = sp.plan_model(chain(0, capacity=1))
    found = sp.explain_plan(none)
    assert (none.status, found.changes) == (Status.INFEASIBLE, ())
    assert none.reason in str(found)
    plan = sp.plan_model(chain(1))
    with pytest.raises(sp.InputError, match="stagepack check"):
        sp.explain_plan(dataclasses.replace(plan, bound=10**9))
    given: Any = plan
    with pytest.raises(sp.InputError, match="explain_plan"):
        sp.explain(given)
    with pytest.raises(sp.InputError, match="tune"):
        sp.pareto(given)
    with pytest.raises(sp.InputError, match="to_json"):
        sp.write(given, tmp_path / "x.json")


def test_the_command_explains_plans(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    sp.plan_model(linked(1)).to_json(str(path))
    done = run("explain", path, "--json", "-t", "5")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["changes"]) == 6
    assert document["seconds"] < 10
    assert document["critical"]["most work"]
    for words, message in (
        (("explain", path, "--devices", "3"), "--devices: is said by the plan"),
        (("explain", path, "-m", "dp"), "--method: is said by the plan"),
        (("pareto", path), "stagepack tune"),
    ):
        told = run(*words)
        assert (told.returncode, message in told.stderr) == (2, True), told.stderr


def test_other_objectives_of_the_cut_are_no_change_of_a_plan() -> None:
    instance = test_inside.graph(0).replace(objective="sum")
    asked = [what.change for what in tradeoffs(instance.kind).what_ifs(instance)]
    assert BESIDE in asked
    found = sp.explain_plan(sp.plan_model(instance), time_limit=10)
    assert BESIDE not in [change.change for change in found.changes]
