"""Plans of models: safe bounds, levels that fit one another, documents that are read again."""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.pipeline.step_bound import step_bound
from stagepack.instances.packing.stage import stage_packing
from stagepack.instances.pipeline.check import stage_memory
from stagepack.planning.stages import Level
from stagepack.result import Status, Termination
from tests.cli.shell import run


def chain(seed: int, n: int = 5, k: int = 2, **changes: Any) -> sp.PipelinePartition:
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {
        "devices": k,
        "backward": rng.integers(1, 20, n),
        "exclusive": rng.integers(1, 9, n),
        "stash": rng.integers(1, 6, n),
        "in_bytes": rng.integers(1, 5, n + 1),
        "capacity": 60,
        "training": True,
        "microbatches": 3,
    }
    return sp.PipelinePartition.from_arrays(rng.integers(1, 20, n), **{**given, **changes})


def best_step(instance: sp.PipelinePartition, *, split: bool, least: int = 1) -> float:
    """Return the shortest step by trying every partition, without limits of memory."""
    found = []
    for stages in range(least, instance.k + 1):
        for cuts in itertools.combinations(range(1, instance.n), stages - 1):
            solution = sp.PipelineSolution.in_order((0, *cuts, instance.n))
            schedule = sp.PipelineSchedule.from_partition(instance, solution, split=split)
            result = sp.solve(schedule, time_limit=5)
            assert result.bound is not None
            found.append(result.bound)
    return min(found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("training", [True, False])
def test_bound_is_below_every_partition_and_schedule(seed: int, training: bool) -> None:
    free = chain(seed, n=4, capacity=None, training=training, fewer_stages=True)
    split = training and seed % 2 == 1 and min(free.backward) > 1
    bound = step_bound(free, 3, split=split)
    assert bound <= best_step(free, split=split)
    work = int(free.cycles.sum())
    assert bound >= 3 * work / 2 * (1 - 1e-6)
    assert step_bound(free, 1) >= work * (1 - 1e-6)


@pytest.mark.parametrize("fewer", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_bound_counts_what_crosses_the_cuts(training: bool, fewer: bool) -> None:
    for seed in range(4):
        free = chain(seed, n=4, k=3, capacity=None, training=training)
        slow = sp.Cluster.uniform(3, link=sp.Link(GBps=1, idle=7 + 5 * seed), clock=2**28)
        linked = free.replace(cluster=slow, fewer_stages=fewer)
        for split in {False, training and min(free.backward) > 1}:
            bound = step_bound(linked, 3, split=split)
            best = best_step(linked, split=split, least=1 if fewer else 3)
            assert step_bound(free, 3, split=split) <= bound <= best
            if not training and not fewer:
                assert bound > step_bound(free, 3)


@pytest.mark.parametrize("seed", range(5))
def test_levels_fit_one_another(seed: int) -> None:
    plan = sp.plan_model(chain(seed))
    assert plan.status in ("OPTIMAL", "FEASIBLE")
    assert plan.check() == ()
    assert plan.bound is not None
    assert plan.objective is not None
    assert plan.bound <= plan.objective == plan.level("schedule").result.objective
    assert plan.memory is not None
    assert plan.memory <= 60
    made = [one.objective for one in plan.attempts if one.objective is not None]
    assert plan.objective == min(made)


def test_inputs_of_microbatches_are_fed_back_to_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stagepack.planning.resident.affordable", lambda model: False)
    # Balanced cuts leave the second device no room for the 5 bytes that it receives.
    instance = sp.PipelinePartition.from_arrays(
        [4, 4, 4, 4], backward=[4] * 4, devices=2, exclusive=[2, 2, 2, 6], stash=[1] * 4,
        in_bytes=[0, 5, 5, 5, 0], capacity=13, training=True, microbatches=2,
    )  # fmt: skip
    plan = sp.plan_model(instance)
    assert any(one.lent for one in plan.attempts)
    assert plan.level("partition").result.solution.boundaries == (0, 3, 4)
    assert plan.check() == ()


@pytest.mark.parametrize("stash", [0, 1])
def test_terms_of_memory_mean_the_same_in_partition_and_schedule(
    stash: int, tmp_path: Path
) -> None:
    """Neither what is left out nor inputs without stashes take room in a plan."""
    instance = sp.PipelinePartition.from_arrays(
        [4, 4], backward=[4, 4], devices=2, exclusive=[5, 5], stash=[stash] * 2, capacity=5 + stash,
        in_bytes=[0, 9, 0], training=True, memory="exclusive,stash" if stash else None,
    )  # fmt: skip
    sp.write(instance, tmp_path / "chain.json")
    for given in (instance, sp.read(tmp_path / "chain.json")):
        assert given.digest == instance.digest
        plan = sp.plan_model(given.replace(microbatches=1))
        assert plan.status == "OPTIMAL"
        assert plan.memories == [5 + stash] * 2
        assert plan.check() == ()


def test_stages_that_take_no_cycles_are_passed_over() -> None:
    def layers(devices: int) -> sp.PipelinePartition:
        """Return a chain whose cheapest cuts are around a layer that does nothing."""
        return sp.PipelinePartition.from_arrays(
            [4, 0, 4, 4], backward=[8, 0, 8, 8], devices=devices, stash=[1] * 4, capacity=20,
            recv_cycles=[[0, 0, 0, 50, 0]] * devices, training=True,
        )  # fmt: skip

    plan = sp.plan_model(layers(3))
    assert plan.status == "OPTIMAL"
    assert [stage[:2] for stage in plan.level("partition").result.solution.stages] in (
        [(0, 1), (1, 3), (3, 4)],
        [(0, 2), (2, 3), (3, 4)],
    )
    assert plan.check() == ()
    with pytest.raises(sp.InputError, match="takes no forward cycles"):
        sp.plan_model(layers(4))


def test_stages_are_a_table() -> None:
    pytest.importorskip("pandas")
    plan = sp.plan_model(chain(0))
    table = plan.to_dataframe()
    assert list(table["first"]) == list(plan.level("partition").result.solution.boundaries[:-1])
    assert list(table["memory"]) == plan.memories
    assert (table["memory"] <= table["capacity"]).all()


def test_what_fits_no_device_is_proved() -> None:
    plan = sp.plan_model(chain(0, capacity=6))
    with pytest.raises(sp.InputError, match="partition"):
        plan.to_dataframe()
    assert (plan.status, plan.levels, plan.objective) == ("INFEASIBLE", (), None)
    assert "layer" in plan.reason
    assert plan.to_dict()["levels"] == []


def test_stages_keep_what_the_partition_counts() -> None:
    """At every layer the buffers alive are what the stage holds, carries and uses there."""
    instance = sp.load("pipeline/resnet-50", training=True)
    solution = sp.PipelineSolution.in_order((0, 3, 5, 11, instance.n))
    for stage in solution.stages:
        packing = stage_packing(instance, stage, 1000)
        assert packing is not None
        alive = [
            int(packing.size[(packing.start <= at) & (at < packing.end)].sum())
            for at in range(stage[1] - stage[0])
        ]
        assert max(alive) == stage_memory(instance, *stage, 0) + 1000


@pytest.mark.parametrize("split", [False, True])
def test_plans_say_what_the_backward_pass_and_the_bottleneck_are(split: bool) -> None:
    cluster = sp.Cluster.uniform(2, link=sp.Link(GBps=1))
    chain = sp.PipelinePartition.from_arrays(
        [4, 4, 4], backward=[8, 8, 8], in_bytes=[0, 9, 9, 0], out_bytes=[0, 9, 9, 0],
        cluster=cluster, training=True, microbatches=2,
    )  # fmt: skip
    plan = sp.plan_model(chain, split=split)
    said = "split into B and W" if split else "one operation, not split"
    assert f"backward pass  {said}" in str(plan)
    assert "bottleneck without transfers" in str(plan)
    assert "backward pass" not in str(sp.plan_model(chain.replace(training=False)))


def test_documents_are_read_again_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = run("plan", "bert-large", "--cluster", "ipu-pod4", "-o", path, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(path.read_text())
    assert document == json.loads(done.stdout)
    assert document["violations"] == []
    assert len(document["levels"]) == 2 + 4
    plan = sp.read_plan(path)
    assert plan.objective == document["objective"] >= document["bound"]
    assert run("check", path).returncode in (0, 5), "valid; whether its bound is verified or not"
    assert "bubble" in run("show", path).stdout

    document["levels"][0]["result"]["solution"]["boundaries"][1] -= 1
    del document["levels"][0]["result"]["digest"]
    path.write_text(json.dumps(document))
    wrong = run("check", path)
    assert wrong.returncode == 4
    assert "schedule: instance" in wrong.stdout
    path.write_text(json.dumps({**document, "version": 7}))
    newer = run("check", path)
    assert newer.returncode == 2
    assert "version 7" in newer.stderr
    assert run("check", "examples/profile.json").returncode == 2


def test_addresses_of_less_than_the_stage_keeps_are_refused() -> None:
    plan = sp.plan_model(sp.load("pipeline/resnet-50", cluster="ipu-pod4"))
    at = next(at for at, level in enumerate(plan.levels) if level.name == "stage 1")
    packing: Any = plan.levels[at].instance
    for less in (packing.replace(size=packing.size // 2), packing.replace(capacity=2**40)):
        level = Level("stage 1", less, sp.solve(less))
        altered = replace(plan, levels=(*plan.levels[:at], level, *plan.levels[at + 1 :]))
        assert [one.rule for one in altered.check()] == ["stage 1: instance"]


@pytest.mark.parametrize("level", [None, 0, 1])
def test_what_documents_say_is_what_their_levels_are_worth(
    tmp_path: Path, level: int | None
) -> None:
    path = tmp_path / "plan.json"
    sp.plan_model(chain(0)).to_json(str(path))
    assert run("check", path).returncode == 0
    document = json.loads(path.read_text())
    told = document if level is None else document["levels"][level]["result"]
    for name in ("objective", "gap", *(("memory", "bubble") if level is None else ("bound",))):
        true, told[name] = told[name], (told[name] or 0) + 1
        path.write_text(json.dumps(document))
        wrong = run("check", path)
        assert wrong.returncode == 4, name
        assert f"claim: {name}" in wrong.stdout
        told[name] = true


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ((sp.ModelProfile(layers=()),), "cluster"),
        ((chain(0), sp.Cluster.uniform(2)), "cluster"),
        ((sp.load("packing/random/planted"),), "model"),
    ],
)
def test_bad_models_are_named(given: tuple[Any, ...], field: str) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.plan_model(*given)
    assert caught.value.field == field


def test_nothing_is_asked_once_a_plan_is_proved_or_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = chain(0, k=1, capacity=None)
    plan = sp.plan_model(alone, microbatches=1)
    assert (plan.status, len(plan.attempts)) == ("OPTIMAL", 1)
    monkeypatch.setattr("stagepack.planning.tries.QUESTIONS", -1)
    over = sp.plan_model(chain(1))
    assert (over.status, over.attempts) == ("UNKNOWN", ())
    assert "time" in over.reason


def test_plans_are_pages_and_exports(tmp_path: Path) -> None:
    page, stages, orders = (tmp_path / name for name in ("p.html", "vllm.txt", "orders.csv"))
    sp.write(chain(1), tmp_path / "model.json")
    done = run("plan", tmp_path / "model.json", "--html", page, "--export", stages, "--as", "vllm")
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert [text.count(f'id="part0level{at}"') for at in range(3)] == [1, 1, 0]
    plan = sp.plan_model(chain(1))
    partition = plan.level("partition")
    sp.write_solution(partition.instance, partition.result, tmp_path / "same.txt", format="vllm")
    assert stages.read_text() == (tmp_path / "same.txt").read_text()
    written = tmp_path / "plan.json"
    plan.to_json(str(written))
    page.unlink()
    stages.unlink()
    shown = run("show", written, "--html", page, "--export", stages, "--as", "vllm")
    tables = re.findall(r"(.{20})<table", page.read_text().partition("<script")[0], re.DOTALL)
    assert tables
    assert all('class="scroll">' in before for before in tables)  # none widens a small screen
    assert shown.returncode == 0, shown.stderr
    assert page.read_text().count('id="part0level1"') == 1
    assert stages.read_text() == (tmp_path / "same.txt").read_text()
    assert run("show", tmp_path / "model.json", "--html", page).returncode == 2
    plan.export(orders)
    assert len(orders.read_text().splitlines()) == 2
    with pytest.raises(sp.InputError, match="schedule"):
        plan.export(orders, level="shedule")
    with pytest.raises(sp.InputError, match="megatron"):
        plan.export(orders, format="megaton")
    assert run("plan", tmp_path / "model.json", "--as", "vllm").returncode == 2


def test_what_a_plan_says_nothing_about_is_told(tmp_path: Path) -> None:
    chain = sp.PipelinePartition.from_arrays(
        [3, 4, 5], devices=2, training=True, backward=[1, 1, 1], stash=[1, 1, 1], microbatches=1
    )
    assert "microbatch" in chain.proviso
    assert sp.plan_model(chain).note == ""  # its schedule knows how many there are
    plan = sp.plan_model(chain.replace(training=False, backward_transfers=True))
    assert plan.note.startswith("backward_transfers counts in training only")
    assert plan.note in " ".join(str(plan).split())
    path = tmp_path / "plan.json"
    plan.to_json(str(path))
    assert sp.read_plan(path).note == plan.note


def test_what_is_said_of_a_plan_without_levels_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    made = sp.plan_model(chain(1)).to_dict()
    path.write_text(json.dumps({**made, "levels": []}))
    done = run("check", path)
    assert done.returncode == 4
    assert "claim: objective" in done.stdout
    assert "claim: status" in done.stdout
    sp.plan_model(chain(0, capacity=1)).to_json(str(path))  # proved that none fits
    assert run("check", path).returncode == 0
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": None}))
    assert run("check", path).returncode == 5, "the file does not say of which model"


@pytest.mark.parametrize("bound", ["low", [], {}, 10**400])
def test_bounds_of_plans_are_numbers(bound: object, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    whole = sp.plan_model(chain(1)).to_dict()
    inner = sp.plan_model(chain(1)).to_dict()
    whole["bound"] = bound
    inner["levels"][0]["result"]["bound"] = bound
    for document in (whole, inner):
        path.write_text(json.dumps(document))
        for command in ("show", "check"):
            done = run(command, path)
            assert done.returncode == 2, done.stderr
            assert "bound" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_plans_come_through_pipes(tmp_path: Path) -> None:
    pipe, plan = tmp_path / "pipe", sp.plan_model(chain(1))
    os.mkfifo(pipe)
    for command, word in (("check", "valid"), ("show", "cycles a step")):
        writer = threading.Thread(target=pipe.write_text, args=[json.dumps(plan.to_dict())])
        writer.start()
        done = run(command, pipe)
        writer.join()
        assert done.returncode == 0, done.stderr
        assert word in done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("command", ["check", "show"])
def test_pipes_that_give_too_much_are_not_waited_for_again(tmp_path: Path, command: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=["1234"])
    writer.start()
    done = run(command, pipe, "--max-bytes", "3")
    writer.join()
    assert done.returncode == 2
    assert "pipe: holds more, the limit is 3 bytes" in done.stderr


def test_plans_fronts_and_tunings_have_their_picture_in_notebooks(tmp_path: Path) -> None:
    plan = sp.plan_model(chain(1))
    front = sp.pareto(chain(1), "memory", points=2, time_limit=1)
    tuning = sp.tune(lambda batch: chain(batch), {"batch": [1]}, "batch", time_limit=1)
    for given in (plan, front, tuning):
        assert given._repr_html_().count('src="data:image/png') == 1
    nothing = sp.plan_model(chain(0, capacity=1))
    assert "<img" not in nothing._repr_html_()
    page = tmp_path / "plan.html"
    plan.to_html(page)  # pages draw every level by themselves
    assert "data:image/png" not in page.read_text()


def test_a_plan_says_what_it_decided_and_why_a_level_has_no_proof() -> None:
    """The stages of the best step need not have the least objective of their own."""
    plan = sp.plan_model(chain(0))
    text = " ".join(str(plan).split())
    assert "decided stages, their schedule" in text
    assert "given training, " in text
    assert "microbatches, layers in this order, devices in this order, one stage a device" in text
    cut = plan.level("partition")
    reasons = {
        Termination.TIME_LIMIT: "its time limit was reached",
        Termination.INTERRUPTED: "it was interrupted",
        Termination.TARGET: "its target was reached",
        Termination.FINISHED: "its search ended without a proof",
    }
    for termination, why in reasons.items():
        assert cut.result.objective is not None
        result = replace(cut.result, status=Status.FEASIBLE, termination=termination, bound=0)
        levels = (replace(cut, result=result), *plan.levels[1:])
        unproved = replace(plan, levels=levels)
        assert f"partition FEASIBLE, gap 100%: {why}" in " ".join(str(unproved).split())
    result = replace(result, options={})
    levels = (replace(cut, result=result), *plan.levels[1:])
    chosen = " ".join(str(replace(plan, levels=levels)).split())
    assert "chosen for the whole step, not for this value" in chosen
    free = sp.plan_model(chain(0).replace(free_order=True, fewer_stages=True))
    assert "layers in this order, at most one stage a device" in " ".join(str(free).split())


def test_the_order_of_ranks_comes_with_their_devices(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row r is what rank r does, which runs stage r: on the device that the plan chose for it."""
    devices = tuple(sp.Device(speed=speed) for speed in (1, 4, 2))
    unlike = sp.PipelinePartition.from_arrays(
        [90, 10, 10, 10, 30, 20, 60, 60], cluster=sp.Cluster(devices=devices)
    )
    sp.plan_model(unlike, microbatches=4).export(tmp_path / "order.csv")
    assert not caplog.messages
    plan = sp.plan_model(unlike.replace(free_order=True), microbatches=4)
    plan.export(tmp_path / "order.csv")
    used = ",".join(map(str, plan.level("partition").result.solution.devices))
    assert used == "2,0,1"
    assert f"run with CUDA_VISIBLE_DEVICES={used} " in caplog.text
