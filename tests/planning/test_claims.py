"""What plans claim of all stages and all schedules, as far as work or whole networks show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.claims import ResultCheck
from stagepack.planning.claims import check_plan
from stagepack.planning.document import read_plan
from tests.planning import test_grouped
from tests.relations import groups

TWO = sp.Cluster.uniform(2)


def checked(document: dict[str, Any], tmp_path: Path) -> ResultCheck:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    return check_plan(read_plan(path), path)


def network(seed: int) -> sp.LayerGrouping:
    return groups.instance(seed).replace(timesteps="nearest", order="given")


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (sp.GraphPartition.from_arrays([3, 3, 3, 3], accelerators=2), "witness, work"),
        (
            sp.GraphPartition.from_arrays([7.5, 1, 1], accelerators=2, cpus=1, cpu_time=[9, 1, 1]),
            "log, path",
        ),
        (network(9), "log, networks"),
    ],
)
def test_whole_bounds_are_verified_and_no_more(model: Any, how: str, tmp_path: Path) -> None:
    cluster = TWO if isinstance(model, sp.LayerGrouping) else None
    document = sp.plan_model(model, cluster, microbatches=4).to_dict()
    assert document["status"] == "OPTIMAL"
    found = checked(document, tmp_path)
    assert {c.detail for c in found.claims if c.name in ("bound", "status")} == {f"verified: {how}"}
    # The bound of a lie is beyond what the levels show; so is that of a network without evidence.
    more = document["bound"] + 1
    lie = checked({**document, "bound": more, "status": "FEASIBLE", "gap": None}, tmp_path)
    assert not [c for c in lie.claims if c.name == "bound" and c.verdict == "confirmed"]
    for level in document["levels"]:
        if level["name"] == "network":
            level["result"] |= {"proof": "search"}
            unshown = checked(document, tmp_path).unverified
            assert {"bound", "status"} <= {claim.name for claim in unshown}


def test_plans_of_training_hold_the_evidence_of_their_networks(tmp_path: Path) -> None:
    plan = sp.plan_model(test_grouped.branches(), TWO, training=True, time_limit=2)
    assert checked(plan.to_dict(), tmp_path).violations == ()
    plan = sp.plan_model(network(9), TWO, training=True, microbatches=4, time_limit=2)
    assert plan.level("network backward").result.proof == "witness"
    document = plan.to_dict()
    assert checked(document, tmp_path).violations == ()
    again = read_plan(tmp_path / "plan.json").to_dict()
    assert [one["result"]["evidence"] for one in again["levels"]] == [
        one["result"]["evidence"] for one in document["levels"]
    ]
