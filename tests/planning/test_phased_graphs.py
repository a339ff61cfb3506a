"""Plans of graphs on devices with remote memory: phases inside their stages."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.planning import Level
from stagepack.planning.loading import divisors
from stagepack.planning.phased_graphs import PhasedGraphs
from stagepack.planning.tries import expressed
from tests.cli.shell import run

REMOTE = sp.Chip(remote_bandwidth=2, startup=3, tiles=8, io_tiles=(1, 3), io_tiles_optional=True)
AHEAD = [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5)]
N = 6


def graph(seed: int, *, training: bool = False, **changes: Any) -> sp.GraphPartition:
    """Return two branches and what joins them, of which two devices have no room for all."""
    rng = np.random.default_rng(seed)
    times, traffic = rng.integers(2, 40, 2 * N), rng.integers(1, 3, 2 * N)
    memory, stash = rng.integers(5, 12, N), rng.integers(1, 3, N)
    given: dict[str, Any] = {
        "accelerators": 2,
        "bandwidth": 2,
        "time_unit": "us",
        "microbatches": 2,
        "capacity": 20 if training else 24,
    }
    if not training:
        given |= {"time": times[:N], "traffic": traffic[:N], "memory": memory}
        return sp.GraphPartition.from_edges(N, AHEAD, **{**given, **changes})
    back = [(N + v, N + u) for u, v in AHEAD]
    given |= {
        "time": times,
        "traffic": traffic,
        "memory": [*(memory // 2), *([0] * N)],
        "stash": [*stash, *([0] * N)],
        "colour": [*range(N)] * 2,
        "backward": [False] * N + [True] * N,
    }
    edges = [*AHEAD, (N - 1, 2 * N - 1), *back]
    return sp.GraphPartition.from_edges(2 * N, edges, **{**given, **changes})


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_bounds_are_below_all_partitions_and_bundles(
    seed: int, training: bool, tmp_path: Path
) -> None:
    model = graph(seed, training=training)
    plan = sp.plan_model(model, microbatches=2, remote=REMOTE)
    assert plan.check() == ()
    assert plan.objective is not None
    assert plan.bound is not None
    search = PhasedGraphs("", 2, False, {"time_limit": 5.0}, model=model, chip=REMOTE)
    first, made, phased = search.ask(search.free), [], 0
    for chosen in itertools.product(range(2), repeat=N):
        solution = sp.GraphSolution.of(model, chosen * (1 + training))
        if search.free.check(solution):
            continue
        level = Level("partition", search.free, expressed(search.free, solution, first))
        for bundle in divisors(2):
            given = search._inside(level, bundle, 0)
            if given is not None:
                phased += bool(given.inside)
                value = sp.solve(given.schedule()).objective
                assert value is not None
                assert value >= search._bound(bundle, False)
                made.append(value)
    assert phased
    assert plan.bound <= min(made)
    path = tmp_path / "plan.json"
    plan.to_json(str(path))
    again = sp.read_plan(path)
    assert again.check() == ()
    assert again.memories == plan.memories


def test_stages_that_do_not_fit_run_in_phases(tmp_path: Path) -> None:
    model = graph(0)
    assert sp.plan_model(model).status == "INFEASIBLE"
    plan = sp.plan_model(model, remote=REMOTE)
    names = [level.name for level in plan.levels if level.instance.kind == "phase-schedule"]
    assert names
    assert max(plan.memories) <= 24
    plan.to_html(tmp_path / "plan.html")
    assert "phase-schedule" in json.dumps(plan.to_dict())
    document = plan.to_dict()
    phases = next(level for level in document["levels"] if level["name"] == names[0])
    phases["instance"]["layers"]["forward"][0] += 1
    del phases["result"]["digest"]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    wrong = run("check", path)
    assert wrong.returncode == 4
    assert f"{names[0]}: instance: it is not that of the stage" in wrong.stdout


def test_a_node_too_large_for_any_phase_is_proved() -> None:
    plan = sp.plan_model(graph(0, memory=[5, 5, 25, 5, 5, 5]), remote=REMOTE)
    assert plan.status == "INFEASIBLE"
    assert plan.reason.startswith("2 does not fit 24 bytes")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bandwidth": 1}, "traffic: is in no bytes"),
        ({"stash": [1] * N}, "both passes are one node"),
    ],
)
def test_what_phases_do_not_know_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(sp.InputError, match=message):
        sp.plan_model(graph(0, **changes), remote=REMOTE)


def test_backward_nodes_need_their_forward_nodes() -> None:
    model = graph(0, training=True, colour=[*range(N), *range(N - 1), -1])
    with pytest.raises(sp.InputError, match="of no node's colour"):
        sp.plan_model(model, remote=REMOTE)


def test_the_shell_plans_graphs_with_phases() -> None:
    words = ("--remote", "gc200", "--microbatches", "2", "--capacity", "6000000", "-t", "0.3")
    done = run("plan", "graph/resnet50", *words)
    assert done.returncode == 0, done.stderr
    assert " phases" in done.stdout
