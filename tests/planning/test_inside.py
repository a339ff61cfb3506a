"""What is inside the stages of plans: phases, groups, and stages of graphs as they are."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.graph.step_bound import longest_chain, step_bound
from stagepack.heuristics.pipeline.step_stages import least_step
from stagepack.instances.groups.stage import stage_groups
from stagepack.instances.phases.chips import at_clock
from stagepack.planning import Level, read_plan
from stagepack.planning.graphs import Graphs
from stagepack.planning.phased import Phased
from stagepack.planning.stages import Structure
from stagepack.planning.tries import expressed
from tests.cli.shell import run

REMOTE = sp.Chip(remote_bandwidth=2, startup=3)
LIMITS = {"time_limit": 5.0, "seed": 0, "threads": 1}


def tight(seed: int, *, training: bool = False, n: int = 4, k: int = 2) -> sp.PipelinePartition:
    """Return a chain whose layers fit a device one or two at a time."""
    rng = np.random.default_rng(seed)
    return sp.PipelinePartition.from_arrays(
        rng.integers(5, 20, n),
        devices=k,
        backward=rng.integers(5, 20, n),
        exclusive={"parameters": rng.integers(10, 20, n), "vertex state": rng.integers(0, 3, n)},
        stash=rng.integers(1, 4, n),
        temporary=rng.integers(0, 4, n),
        in_bytes=rng.integers(1, 4, n + 1),
        out_bytes=rng.integers(1, 4, n + 1),
        capacity=62 if training else 36,
        training=training,
        microbatches=2,
        name="tight",
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_stages_that_do_not_fit_run_in_phases(seed: int, training: bool, tmp_path: Path) -> None:
    model = tight(seed, training=training, n=8 if training else 6)
    plan = sp.plan_model(model, remote=REMOTE)
    assert plan.check() == ()
    inside = [level.instance.kind for level in plan.levels[2:]]
    assert inside
    assert set(inside) == {"phase-schedule"}
    assert sp.plan_model(model).status == "INFEASIBLE"
    assert plan.memory is not None
    assert plan.memory <= (62 if training else 36)
    # What is written is read, and checked, again.
    path = tmp_path / "plan.json"
    plan.to_json(str(path))
    again = sp.read_plan(path)
    assert again.check() == ()
    assert (again.objective, again.bundle) == (plan.objective, plan.bundle)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_with_phases_are_below_all_partitions_and_bundles(seed: int, training: bool) -> None:
    model = tight(seed, training=training)
    search = Phased("", 2, False, LIMITS, model=model, chip=REMOTE)
    first = sp.solve(search.free)
    made: list[float] = []
    for bundle, cut in itertools.product((1, 2), range(1, model.n)):
        solution = sp.PipelineSolution.in_order((0, cut, model.n))
        level = Level("partition", search.free, expressed(search.free, solution, first))
        given = search._inside(level, bundle, 0)
        if given is not None:
            made.append(sp.solve(given.schedule()).objective or 0)
    plan = sp.plan_model(model, remote=REMOTE)
    assert plan.bound is not None
    assert plan.bound <= min(made)
    assert plan.objective is not None
    assert plan.objective <= min(made)


def test_variables_that_stay_beside_phases_save_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tight(5, n=6)
    plan = sp.plan_model(model, remote=REMOTE)
    at = next(at for at, level in enumerate(plan.levels) if level.name.startswith("stage"))
    phases: Any = plan.levels[at].instance
    assert phases.variables.min() == 0 < phases.variables.max()
    # Bytes that stay are not there for phases.
    chip = msgspec.structs.replace(phases.chip, memory=phases.chip.memory + 1)
    more = phases.replace(chip=chip)
    level = Level(plan.levels[at].name, more, sp.solve(more))
    altered = replace(plan, levels=(*plan.levels[:at], level, *plan.levels[at + 1 :]))
    assert f"{level.name}: instance" in [one.rule for one in altered.check()]
    monkeypatch.setattr("stagepack.planning.loading.PARTS", ())
    loaded = sp.plan_model(model, remote=REMOTE)
    assert plan.objective is not None
    assert loaded.objective is not None
    assert plan.objective < loaded.objective


def test_a_layer_too_large_for_any_phase_is_proved() -> None:
    plan = sp.plan_model(tight(0).replace(temporary=[0, 40, 0, 0]), remote=REMOTE)
    assert plan.status == "INFEASIBLE"
    assert "layer 1" in plan.reason


def test_phases_of_another_stage_are_refused(tmp_path: Path) -> None:
    plan = sp.plan_model(tight(1, n=6), remote=REMOTE)
    document = plan.to_dict()
    stage = next(level for level in document["levels"] if level["name"] == "stage 0")
    stage["instance"]["layers"]["forward"][0] += 1
    del stage["result"]["digest"]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    wrong = run("check", path)
    assert wrong.returncode == 4
    assert "stage 0: instance: it is not that of the stage" in wrong.stdout


def test_chips_of_another_clock_take_as_many_seconds() -> None:
    chip = sp.Chip(remote_bandwidth=10, startup=500, clock=1_000_000_000, tile_bandwidth=4)
    faster = at_clock(chip, 2e9)
    assert (faster.remote_bandwidth, faster.tile_bandwidth) == (5, 2)
    assert (faster.startup, faster.clock) == (1000, 2e9)


# ---------------------------------------------------------------------- groups


def blocks(operators: int = 6) -> sp.LayerGrouping:
    found = sp.load("groups/random/blocks", operators=operators, channels=32, rows=8, chip="cv184x")
    assert isinstance(found, sp.LayerGrouping)
    return found


def test_stages_on_chips_with_local_memory_have_groups(tmp_path: Path) -> None:
    network = blocks()
    plan = sp.plan_model(network, sp.Cluster.uniform(2), microbatches=4)
    assert plan.check() == ()
    assert plan.bound is not None
    # All partitions, each stage with its best groups.
    made = []
    for cut in range(1, network.n):
        parts = range(cut), range(cut, network.n)
        took = [sp.solve(stage_groups(network, part, "")) for part in parts]
        assert all(one.status == "OPTIMAL" for one in took)
        first, second = (one.objective or 0 for one in took)
        made.append(first + second + 3 * max(first, second))
    assert plan.bound <= min(made)
    assert plan.objective is not None
    assert plan.objective <= 1.1 * min(made)
    path, page = tmp_path / "plan.json", tmp_path / "plan.html"
    plan.to_json(str(path))
    assert sp.read_plan(path).check() == ()
    plan.to_html(page)
    assert "network" in page.read_text()


def test_a_stage_reads_and_stores_what_others_write_and_read() -> None:
    network = blocks()
    stage = stage_groups(network, (2, 3), "")
    names = [op.name for op in network.operators]
    assert [op.name for op in stage.operators] == names[2:4]
    written, read = set(names[2:4]), {name for op in stage.operators for name in op.inputs}
    assert {given.name for given in stage.inputs} == read - written
    later = {name for op in network.operators[4:] for name in op.inputs}
    assert set(stage.outputs) == written & later
    assert stage_groups(network, range(network.n), "").digest == network.replace(outputs=()).digest


# ---------------------------------------------------------------------- graphs


def graph(seed: int, **changes: Any) -> sp.GraphPartition:
    """Return two branches and what joins them, there and back."""
    rng = np.random.default_rng(seed)
    n = 6
    ahead = [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5)]
    back = [(n + v, n + u) for u, v in ahead]
    given: dict[str, Any] = {
        "time": rng.integers(2, 20, 2 * n),
        "traffic": rng.integers(1, 3, 2 * n),
        "accelerators": 2,
        "colour": [*range(n), *range(n)],
        "backward": [False] * n + [True] * n,
        "memory": rng.integers(1, 9, 2 * n),
        "stash": [*rng.integers(1, 4, n), *([0] * n)],
        "capacity": 70,
        "microbatches": 4,
        "time_unit": "us",
    }
    return sp.GraphPartition.from_edges(
        2 * n, [*ahead, (n - 1, 2 * n - 1), *back], **{**given, **changes}
    )


@pytest.mark.parametrize("seed", range(2))
def test_graphs_are_planned_as_they_are(seed: int, tmp_path: Path) -> None:
    model = graph(seed)
    plan = sp.plan_model(model)
    assert plan.status in ("OPTIMAL", "FEASIBLE")
    assert plan.check() == ()
    assert plan.objective is not None
    assert plan.bound is not None
    assert plan.seconds == pytest.approx(plan.objective / 1e6)
    made, any_answer = [], sp.solve(model)
    for chosen in itertools.product(range(2), repeat=6):
        solution = sp.GraphSolution.of(model, (*chosen, *chosen))
        if model.check(solution):
            continue
        level = Level("partition", model, expressed(model, solution, any_answer))
        made.append(int(Structure(level, {}, 4).schedule().work.max()))
    assert made
    assert step_bound(model, 4) <= min(made) <= plan.objective
    path = tmp_path / "plan.json"
    plan.to_json(str(path))
    shown = run("show", path)
    assert "node" in shown.stdout, shown.stderr
    assert run("check", path).returncode in (0, 5)


@pytest.mark.parametrize(("seed", "split"), [(0, False), (1, True)])
def test_no_stages_of_a_graph_are_faster_than_those_of_its_longest_path(
    seed: int, split: bool
) -> None:
    model = graph(seed)
    chain = longest_chain(model)
    assert chain is not None
    least, any_answer = least_step(chain, 4, split=split), sp.solve(model)
    made = []
    for chosen in itertools.product(range(2), repeat=6):
        solution = sp.GraphSolution.of(model, (*chosen, *chosen))
        if not model.check(solution):
            level = Level("partition", model, expressed(model, solution, any_answer))
            schedule = Structure(level, {}, 4, split=split).schedule()
            made.append(sp.solve(schedule, time_limit=2).objective)
    found = [objective for objective in made if objective is not None]
    assert found
    assert min(found) >= least


def test_the_bound_of_a_graph_that_is_a_path_rises_with_its_microbatches() -> None:
    n = 6
    ahead = [(u, u + 1) for u in range(n - 1)]
    back = [(n + v, n + u) for u, v in ahead]
    model = sp.GraphPartition.from_edges(
        2 * n, [*ahead, (n - 1, 2 * n - 1), *back], time=[1] * n + [2] * n, accelerators=3,
        colour=[*range(n)] * 2, backward=[False] * n + [True] * n, stash=[1] * n + [0] * n,
        microbatches=3,
    )  # fmt: skip
    for microbatches in (1, 3, 7):  # two nodes a device: all wait for two of them
        plan = sp.plan_model(model, microbatches=microbatches)
        assert plan.status == "OPTIMAL"
        assert plan.bound == plan.objective == 6 * (microbatches + 2)


def test_stages_of_graphs_are_balanced_without_transfers_too() -> None:
    """Transfers of 40 between three operators of 10: a pipeline takes 30 + 80 + 7 * 10."""
    model = sp.GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[10] * 3, traffic=[40] * 3, accelerators=3, bandwidth=1
    )
    plan = sp.plan_model(model, microbatches=8)
    assert plan.check() == ()
    assert plan.objective == 180


def test_graphs_without_transfers_are_asked_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = Graphs.ask

    def noted(self: Graphs, instance: Any) -> Any:
        if isinstance(instance, sp.GraphPartition):
            asked.append(instance.digest)
        return ask(self, instance)

    monkeypatch.setattr(Graphs, "ask", noted)
    model = sp.GraphPartition.from_edges(
        4, [(0, 1), (0, 2), (1, 3), (2, 3)], time=[10, 7, 8, 9], accelerators=2
    )
    assert sp.plan_model(model, microbatches=3).check() == ()
    assert asked
    assert len(set(asked)) == len(asked)


def test_graphs_of_a_cluster_are_planned_in_seconds(tmp_path: Path) -> None:
    """The cycles of a graph are those of the cluster's clock, from files as well."""
    layers = tuple(
        sp.LayerProfile(name=f"l{at}", forward=1000, inputs=(f"t{at}",), outputs=(f"t{at + 1}",))
        for at in range(3)
    )
    profile = sp.ModelProfile(layers=layers, tensors={f"t{at}": 8 for at in range(4)})
    cluster = sp.Cluster.uniform(2, clock=2_000_000_000)
    model = sp.GraphPartition.from_profile(profile, cluster)
    plan = sp.plan_model(model, microbatches=4)
    assert plan.objective is not None
    assert plan.seconds == plan.objective / 2e9
    assert plan.throughput == 4 / plan.seconds
    plan.to_json(str(tmp_path / "plan.json"))
    assert read_plan(tmp_path / "plan.json").seconds == plan.seconds
    assert model.replace(clock=1e9).digest == model.digest  # it changes no answer
    for unit, clock in (("cycles", 0), ("us", 5)):
        with pytest.raises(sp.InputError, match="clock"):
            model.replace(time_unit=unit, clock=clock)


def test_graphs_in_training_have_both_passes(tmp_path: Path) -> None:
    """Asked for by name or file, the backward pass has nodes of its own."""
    path = tmp_path / "plan.json"
    done = run(
        "plan", "squeezenet", "--kind", "graph", "--training", "--devices", "2", "--split",
        "-o", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plan = read_plan(path)
    assert plan.level("partition").instance.objective == "forward+backward"
    assert plan.schedule.backward is not None
    assert plan.schedule.weight is not None
    once = graph(0).replace(backward=[False] * 12, stash=[1] * 12)
    assert "both passes of a node run at once" in sp.plan_model(once).note


def test_a_backward_pass_that_does_not_lead_back_is_told_of() -> None:
    """Gradients go the way of the activations: only all on one device have a schedule."""
    model = sp.GraphPartition.from_edges(
        4, [(0, 1), (2, 3)], time=[5] * 4, colour=[0, 1] * 2, backward=[False] * 2 + [True] * 2,
        accelerators=2, empty_devices=False,
    )  # fmt: skip
    plan = sp.plan_model(model)
    assert plan.status == "UNKNOWN"
    assert "backward pass" in plan.reason


def test_graphs_that_fit_no_device_are_proved() -> None:
    plan = sp.plan_model(graph(0, capacity=3))
    assert plan.status == "INFEASIBLE"
    assert plan.reason


@pytest.mark.parametrize("training", [False, True])
def test_layers_of_a_profile_are_cut_as_the_graph_that_they_are(training: bool) -> None:
    layers = (
        sp.LayerProfile(forward=4, backward=8, inputs=("x",), outputs=("a",)),
        sp.LayerProfile(forward=9, backward=18, inputs=("a",), outputs=("b",)),
        sp.LayerProfile(forward=9, backward=18, inputs=("a",), outputs=("c",)),
        sp.LayerProfile(forward=4, backward=8, inputs=("b", "c"), outputs=("y",)),
    )
    profile = sp.ModelProfile(layers=layers, tensors=dict.fromkeys("xabcy", 1))
    cluster = sp.Cluster.uniform(2)
    plan = sp.plan_model(profile, cluster, microbatches=4, graph=True, training=training)
    assert plan.check() == ()
    cut = plan.level("partition").instance
    assert isinstance(cut, sp.GraphPartition)
    assert cut.n == (8 if training else 4)
    assert not plan.schedule.latency.any()  # there are no links


def test_layers_of_the_catalog_are_cut_as_graphs() -> None:
    words = "resnet-50", "--kind", "graph", "--cluster", "ipu-pod4", "--json", "-t", "0.5"
    done = run("plan", *words)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["levels"][0]["instance"]
    assert said["problem"] == "graph-partition"
    assert said["accelerators"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("random/planted", "--kind", "packing"), "--kind"),
        (("squeezenet", "--local", "bm1684x"), "--cluster"),
        (("squeezenet", "--local", "bm1", "--devices", "2"), "--local: unknown chip"),
        (("bert-large", "--remote", "gc2"), "gc200"),
        (("random/branchy", "--kind", "graph", "--local", "bm1684x"), "--local"),
        (("random/branchy", "--kind", "graph", "--remote", "gc200"), "remote"),
        (("packing/random/planted",), "is an lmem-packing, of which no plan is made"),
        (("bert-large", "--local", "bm1684x", "--devices", "2"), "resnet50"),
        (("bert-larg", "--kind", "graph"), "bert-large"),
        (("bert-large", "--split"), "--split: there is no backward pass"),
    ],
)
def test_what_does_not_go_together_is_named(arguments: tuple[str, ...], message: str) -> None:
    done = run("plan", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_names_and_files_say_what_is_planned(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    sp.write(graph(1), path)
    for model in (path, "graph/random/branchy"):
        done = run("plan", model, "--json", "-t", "0.1")
        assert done.returncode == 0, done.stderr
        first = json.loads(done.stdout)["levels"][0]["instance"]
        assert first["problem"] == "graph-partition"
