"""Plans that are written by hand, or altered, are never called proved where they are not."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.claims import ResultCheck
from stagepack.contracts import JsonObject
from stagepack.evidence import Proof
from stagepack.planning import Level, ModelPlan, steps
from stagepack.planning.claims import check_plan
from stagepack.planning.document import read_plan
from stagepack.planning.stages import Structure
from stagepack.planning.step_labels import Whole
from stagepack.planning.steps import RULES, schedules
from stagepack.planning.tries import expressed
from stagepack.result import Status
from stagepack.verify import Claimed, UnprovedError, verify
from tests.cli.shell import run
from tests.planning import test_steps
from tests.planning.test_claims import network
from tests.planning.test_grouped import branches
from tests.verify.mutations import mutated

PART = {"rule": "part", "proof": "log", "evidence": {"rule": "ideals"}}
SAID: list[tuple[str | None, JsonObject]] = [
    (None, {}),
    ("engine", {}),
    ("search", {}),
    ("oath", {}),
    ("log", PART),
    ("log", {"rule": "path", "path": [0]}),
    *((str(proof), {"rule": rule}) for rule, (proof, _) in RULES.items()),
]


def worst(whole: Whole) -> JsonObject | None:
    """Return the plan with the longest step as if it were proved; None: all are as long."""
    found: dict[int, JsonObject] = {}
    for solution in test_steps.solutions(whole.model):
        first = sp.solve(whole.model)
        cut = Level("partition", whole.model, expressed(whole.model, solution, first))
        given = Structure(cut, {}, whole.microbatches, split=whole.split)
        try:
            timed = sp.solve(given.schedule())
        except sp.InputError:
            continue
        if timed.objective is not None:
            value = int(timed.objective)
            levels = (cut, Level("schedule", given.schedule(), timed))
            plan = ModelPlan(
                "", Status.OPTIMAL, levels, value, "", whole.microbatches, split=whole.split
            )
            found[value] = plan.to_dict()
    return found[max(found)] if len(found) > 1 else None


def checked(document: JsonObject, path: Path, *, prove: bool = False) -> ResultCheck | None:
    """Return what a check finds; None where the document is refused."""
    path.write_text(json.dumps(document))
    try:
        return check_plan(read_plan(path), path, prove=prove, time_limit=20)
    except sp.InputError:
        return None


def nothing_fits(document: JsonObject, whole: Whole) -> JsonObject:
    """Return a document that says of a model that nothing fits."""
    plan = ModelPlan(
        "", Status.INFEASIBLE, (), None, "", whole.microbatches, model=whole.model,
        split=whole.split,
    )  # fmt: skip
    return {**document, **plan.to_dict()}


def test_tables_beside_a_network_say_nothing_of_its_groups(tmp_path: Path) -> None:
    plan = sp.plan_model(network(0), sp.Cluster.uniform(2), microbatches=4)
    assert (plan.status, plan.evidence) == (Status.FEASIBLE, {"rule": "networks"})
    cut = plan.level("partition")
    table = np.full((plan.partition.n + 1,) * 2, 9 * (plan.objective or 0))
    model = plan.partition.replace(compute_table=table)
    solved = expressed(model, cut.result.solution, sp.solve(model))
    levels = (Level("partition", model, solved), *plan.levels[1:])
    forged = replace(plan, levels=levels, bound=plan.objective, status=Status.OPTIMAL)
    whole = forged.whole({"network": True})
    assert whole is not None
    for bound, shown in ((plan.bound, True), (plan.objective, False)):
        assert verify(whole, bound, "log", plan.evidence, rules=steps).shown == shown
    found = checked(forged.to_dict(), tmp_path / "lie.json")
    assert found is not None
    assert "tables" in str(found.violations)


def test_a_plan_of_another_split_is_refused(tmp_path: Path) -> None:
    model = sp.PipelinePartition.from_arrays(
        [2, 3, 4], backward=[4, 6, 8], cluster=sp.Cluster.uniform(2), training=True
    )
    for split in (False, True):
        document = sp.plan_model(model, microbatches=3, split=split).to_dict()
        for said in (False, True):
            found = checked({**document, "split": said}, tmp_path / "plan.json")
            assert found is not None
            assert ("claim: split" in str(found.violations)) == (said != split)


@pytest.mark.parametrize("make", [test_steps.chain, test_steps.graph])
def test_what_is_written_by_hand_is_not_verified(make: Any, tmp_path: Path) -> None:
    wholes = (make(seed) for seed in range(40))
    wholes = (one for one in wholes if getattr(one.model, "contiguous", True))  # see `schedules`
    lies = ((whole, lie) for whole in wholes if (lie := worst(whole)) is not None)
    whole, lie = next(lies)
    for proof, evidence in SAID:
        for document in (lie, nothing_fits(lie, whole)):
            forged = {**document, "proof": proof, "evidence": evidence}
            found = checked(forged, tmp_path / "lie.json")
            assert found is not None
            assert not found.verified, (proof, evidence, found.claims)
    for document in (lie, nothing_fits(lie, whole)):
        found = checked(document, tmp_path / "lie.json", prove=True)
        assert found is not None
        assert not found.valid, "solving all schedules again finds a shorter one"
        assert run("check", tmp_path / "lie.json", "--prove").returncode == 4


def test_altered_plans_are_verified_where_they_are_true_only(tmp_path: Path) -> None:
    rng, path, verified, refused = random.Random(0), tmp_path / "plan.json", 0, 0
    for seed in range(24):
        whole = (test_steps.chain, test_steps.graph)[seed % 2](seed)
        least = test_steps.shortest(whole)
        given: dict[str, Any] = {"microbatches": whole.microbatches, "split": whole.split}
        document = sp.plan_model(whole.model, time_limit=1, **given).to_dict()
        for _ in range(10):
            said = {name: document[name] for name in ("proof", "evidence")}
            altered = {**document, **mutated(said, rng)}
            if rng.random() < 0.7 and document["bound"] is not None:
                altered["bound"] += rng.choice([-1, 0, 1, 1, 2, document["bound"]])
            if rng.random() < 0.3:
                altered["status"] = rng.choice(list(Status))
            altered["gap"] = None
            found = checked(altered, path)
            if found is None or not found.verified:
                refused += 1
                continue
            verified += 1
            bound, status = altered["bound"], altered["status"]
            assert bound is None or least is None or bound <= least
            assert status != "OPTIMAL" or altered["objective"] == least
            assert status != "INFEASIBLE" or least is None
    assert min(verified, refused) > 20


def test_what_nothing_verifies_is_said_to_be_open(tmp_path: Path) -> None:
    """Groups of a graph are in any order: no rule knows them, and all methods ask one code."""
    two, path = sp.Cluster.uniform(2), tmp_path / "plan.json"
    plan = sp.plan_model(branches(), two, graph=True, time_limit=1)
    assert plan.proof == "search"
    assert "; search)" in str(plan)
    plan.to_json(str(path))
    told = checked(plan.to_dict(), path, prove=True)
    assert told is not None
    assert told.valid
    assert {"bound"} <= {claim.name for claim in told.unverified}
    assert run("check", path).returncode == 5
    document = sp.plan_model(test_steps.chain(0).model, microbatches=1).to_dict()
    again = checked({**document, "proof": "search", "evidence": {}}, path, prove=True)
    assert again is not None
    assert again.verified, "rules that need no evidence show it"


def written(model: Any, solution: Any, microbatches: int, **given: Any) -> ModelPlan:
    """Return a plan of some stages as if it were proved."""
    cut = Level("partition", model, expressed(model, solution, sp.solve(model)))
    schedule = Structure(cut, {}, microbatches, **given).schedule()
    timed = sp.solve(schedule)
    value = None if timed.objective is None else int(timed.objective)
    levels = (cut, Level("schedule", schedule, timed))
    evidence: JsonObject = {"rule": "schedules"}
    return ModelPlan(
        "", Status.OPTIMAL, levels, value, "", microbatches, proof=Proof.LOG, evidence=evidence,
        **given,
    )  # fmt: skip


def test_devices_with_links_of_their_own_are_not_alike(tmp_path: Path) -> None:
    cluster = sp.Cluster(devices=(sp.Device(), sp.Device()), clock=1)
    model = sp.PipelinePartition.from_arrays(
        [10, 10], cluster=cluster, free_order=True, training=False, microbatches=1,
        recv_cycles=[[0, 1, 0], [0, 100, 0]], send_cycles=[[0, 0, 0], [0, 0, 0]],
    )  # fmt: skip
    lie = written(model, sp.PipelineSolution((0, 1, 2), (0, 1)), 1)
    found = checked(lie.to_dict(), tmp_path / "lie.json", prove=True)
    assert lie.objective == 120 > (sp.plan_model(model, microbatches=1).objective or 0)
    assert found is not None
    assert not found.valid


def test_bundles_hold_all_microbatches() -> None:
    model = sp.PipelinePartition.from_arrays([10], devices=1, training=False, microbatches=1)
    lie = written(model, sp.PipelineSolution((0, 1), (0,)), 3, bundle=2)
    assert [one.rule for one in lie.check()] == ["bundle"]


def test_memory_of_a_chip_is_said_once() -> None:
    cluster = sp.Cluster(devices=(sp.Device(memory=6), sp.Device(memory=6)), clock=1)
    model = sp.PipelinePartition.from_arrays(
        [5, 5], backward=[5, 5], cluster=cluster, stash=[5, 5], training=True, microbatches=1
    )
    lie = written(model, sp.PipelineSolution((0, 1, 2), (0, 1)), 4, on_chip=(100, 100))
    assert [one.rule for one in lie.check()] == ["on_chip"]


def test_stages_without_a_schedule_are_no_proof_that_nothing_fits(tmp_path: Path) -> None:
    model = sp.PipelinePartition.from_arrays([10, 0], devices=2, training=False, microbatches=1)
    assert sp.solve(model).status is Status.OPTIMAL
    plan = ModelPlan("", Status.INFEASIBLE, (), None, "", 1, model=model)
    for proof, evidence in SAID:
        forged = {**plan.to_dict(), "proof": proof, "evidence": evidence}
        found = checked(forged, tmp_path / "lie.json")
        assert found is not None
        assert not found.verified, (proof, evidence)


def test_names_of_like_devices_matter_where_stages_are_not_contiguous() -> None:
    graph = sp.load("graph/random/layered").replace(contiguous=False)
    with pytest.raises(UnprovedError, match="names"):
        next(schedules(Whole(graph, 1), Claimed(None, math.inf), 10, 10))


def test_a_plan_beside_an_instance_is_no_claim_about_it(tmp_path: Path) -> None:
    instance = sp.PipelinePartition.from_arrays([3, 4, 5], devices=2)
    sp.write(instance, tmp_path / "chain.json")
    sp.plan_model(instance).to_json(str(tmp_path / "plan.json"))
    done = run("check", tmp_path / "chain.json", tmp_path / "plan.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "give it alone: stagepack check FILE" in done.stderr
