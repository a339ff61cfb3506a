"""Tuning: the better search finds what the whole grid has, in fewer plans than bisection."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stagepack as sp
from stagepack import files
from stagepack.heuristics.pipeline.step_stages import least_step
from stagepack.planning import search
from stagepack.planning.claims import check_tuning
from stagepack.planning.document import read_tuning
from stagepack.planning.tuner import search as tuner
from tests.cli.shell import run

CYCLES = [5, 9, 4, 7, 6, 8]


def model(batch: int = 1, devices: int = 2, microbatches: int = 4) -> sp.PipelinePartition:
    """Return a chain that takes 10 cycles a launch besides, and some bytes for each sample."""
    return sp.PipelinePartition.from_arrays(
        [10 + batch * cycles for cycles in CYCLES], devices=devices, microbatches=microbatches,
        exclusive=[4] * 6, temporary=[3 * batch] * 6, capacity=60,
    )  # fmt: skip


OPTIONS: dict[str, Any] = {"batch": range(1, 26), "devices": [1, 2, 3], "microbatches": [2, 8]}


def test_bounds_and_bisection_find_the_best_of_the_grid() -> None:
    whole = sp.tune(model, OPTIONS, "batch", search="grid")
    assert len(whole.evaluations) == whole.configurations == 25 * 3 * 2
    bisected = sp.tune(model, OPTIONS, "batch", search="bisection")
    bounded = sp.tune(model, OPTIONS, "batch")
    assert whole.best is not None
    assert bisected.best is not None
    assert bounded.best is not None
    assert bisected.best.options == bounded.best.options == whole.best.options
    assert len(bounded.evaluations) < len(bisected.evaluations) == bisected.bisection
    assert bounded.saved <= len(bisected.evaluations) - len(bounded.evaluations)
    assert bounded.saved > 0
    for one in whole.evaluations:
        fits = 4 * 6 / one.options["devices"] + 3 * one.options["batch"] <= 60
        assert (one.throughput is not None) is fits
        if one.throughput is not None and one.bound is not None:
            assert one.throughput <= one.bound * (1 + 1e-12)
    assert whole.front[-1].options == whole.best.options


def test_what_the_limit_of_the_whole_leaves_is_told(tmp_path: Path) -> None:
    whole = sp.tune(model, OPTIONS, search="grid")
    cut = sp.tune(model, OPTIONS, total_limit=0.001)
    assert cut.best is not None
    assert whole.best is not None
    assert (whole.left, whole.most) == (0, None)
    assert len(cut.evaluations) == 1, "there is always one"
    better = [
        one
        for one in whole.evaluations
        if (one.throughput or 0) > (cut.best.throughput or 0) and one.options != cut.best.options
    ]
    assert cut.left >= len(better)
    assert (cut.most or math.inf) >= (whole.best.throughput or 0)
    if cut.left:
        assert "may be better, by" in str(cut)
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(cut.to_dict()))
    assert read_tuning(path).left == cut.left
    assert read_tuning(path).most == cut.most
    with pytest.raises(sp.InputError, match="total_limit"):
        sp.tune(model, OPTIONS, total_limit=-1)


def test_what_can_be_better_by_the_gap_at_most_is_skipped() -> None:
    exact = sp.tune(model, OPTIONS)
    near = sp.tune(model, OPTIONS, gap=0.5)
    assert exact.best is not None
    assert near.best is not None
    assert len(near.evaluations) <= len(exact.evaluations)
    assert (exact.best.throughput or 0) <= 1.5 * (near.best.throughput or 0)


def test_plans_are_made_quickly_first_and_then_those_that_may_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def unshown(instance: sp.PipelinePartition, *, time_limit: float, **_: Any) -> Any:
        batch = (int(instance.forward[0]) - 10) // CYCLES[0]
        asked.append((batch, time_limit))
        least = least_step(instance, instance.microbatches)
        late = 1.1 if time_limit >= 2 else {3: 1.5, 4: None}[batch]
        return SimpleNamespace(
            status=sp.Status.FEASIBLE if late else sp.Status.UNKNOWN,
            objective=round(late * least) if late else None,
            bound=least,
            memory=1,
            reason="",
            interrupted=False,
        )

    monkeypatch.setattr(tuner, "unshown", unshown)
    found = sp.tune(model, {"batch": [1, 2, 3, 4]}, time_limit=4)
    assert tuner.tiers(4) == [0.5, 1.0, 2.0, 4]
    # Of 4 no plan is known at first, 3 may be better; 20 questions of 4 seconds are more than 60.
    assert asked == [(4, 0.5), (4, 4), (3, 0.5), (3, 2.0)]
    assert found.best is not None
    assert found.best.options == {"batch": 4}
    assert found.left == 1
    assert found.most == pytest.approx(found.evaluations[1].bound)
    assert tuner.tiers(0.3) == [0.3]
    assert tuner.tiers(None) == [0.5, None]


@pytest.mark.parametrize("fits", [0, 1, 2, 5])
@pytest.mark.parametrize("search", ["bounds", "bisection"])
def test_the_first_and_the_last_value_are_tried(fits: int, search: str) -> None:
    def make(batch: int) -> sp.PipelinePartition:
        return model(batch).replace(exclusive={"all": [1 if batch <= fits else 100] * 6})

    found = sp.tune(make, {"batch": range(1, 6)}, "batch", search=search)
    assert (found.best.options["batch"] if found.best else 0) == fits
    if not fits:
        assert "largest device has 60" in found.evaluations[0].reason
        assert "nothing fits" in str(found)


def test_plans_are_kept_and_found_again(tmp_path: Path) -> None:
    store = tmp_path / "new"
    first = sp.tune(model, OPTIONS, "batch", store=store)
    again = sp.tune(model, OPTIONS, "batch", store=store)
    assert all(one.cached for one in again.evaluations)
    assert again.best is not None
    assert first.best is not None
    assert again.best.cycles == first.best.cycles
    torn = sorted(store.iterdir())[0]
    torn.write_text(torn.read_text()[:40])
    mended = sp.tune(model, OPTIONS, "batch", store=store)
    assert sum(not one.cached for one in mended.evaluations) == 1
    assert json.loads(torn.read_text())["figures"]
    with pytest.raises(sp.InputError, match="no store of results"):
        sp.read_store(store)
    (store / files.MARK).write_text('{"version": 2}')
    with pytest.raises(sp.InputError, match="version 2 is newer than 1"):
        sp.tune(model, OPTIONS, "batch", store=store)


def test_proofs_that_no_tuning_holds_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "verify", lambda *_, **__: pytest.fail("a proof is verified"))
    assert sp.tune(model, {"batch": [1, 2]}).best is not None


def test_several_plans_at_a_time_find_the_same() -> None:
    alone = sp.tune(model, OPTIONS, "batch")
    with ThreadPoolExecutor(2) as pool:
        together = sp.tune(model, OPTIONS, "batch", executor=pool, jobs=2)
    assert alone.best is not None
    assert together.best is not None
    assert together.best.options == alone.best.options


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (({"batch": []},), "batch"),
        (({},), "options"),
        ((OPTIONS, "size"), "monotone"),
        ((OPTIONS, ["batch", "size"]), "monotone"),
        (({"batch": [4, 1]}, "batch"), "batch"),
        (({"batch": [1, "two"]}, "batch"), "batch"),
        ((OPTIONS, "batch", "luck"), "search"),
    ],
)
def test_bad_questions_are_named(given: tuple[Any, ...], field: str) -> None:
    names = ("options", "monotone", "search")
    with pytest.raises(sp.InputError) as caught:
        sp.tune(model, **dict(zip(names, given, strict=False)))
    assert caught.value.field == field


def test_the_command_searches_options_of_a_network(tmp_path: Path) -> None:
    csv = tmp_path / "plans.csv"
    done = run(
        "tune", "bert-base", "--over", "batch=1:3", "--monotone", "batch",
        "--over", "microbatches=2,8", "--cluster", "ipu-pod4", "--json", "--csv", csv,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["best"]["microbatches"] == 8
    assert csv.read_text().startswith("batch,microbatches,status")
    wrong = run("tune", "bert-base", "--over", "batch")
    assert wrong.returncode == 2
    assert "NAME=VALUES" in wrong.stderr
    twice = run("tune", "bert-base", "--over", "batch=1", "--over", "batch=2")
    assert twice.returncode == 2
    assert "twice" in twice.stderr


class _Dying(ThreadPoolExecutor):
    """Makes one plan, then its processes are gone."""

    calls = 0

    def map(self, *given: Any, **more: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise BrokenProcessPool("A process in the process pool was terminated abruptly")
        return super().map(*given, **more)


def test_a_process_that_dies_ends_the_search_with_what_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with _Dying() as executor:
        found = sp.tune(model, OPTIONS, search="grid", executor=executor)
    assert found.interrupted
    assert len(found.evaluations) == 1
    assert found.best is not None
    assert "died" in caplog.text


def test_samples_are_counted_where_the_batch_is_an_option() -> None:
    """Nobody says otherwise how many a microbatch has: then microbatches are counted."""
    found = sp.tune(model, {"batch": [3], "devices": [2]})
    fixed = sp.tune(lambda devices: model(3, devices), {"devices": [2]})
    assert found.best is not None
    assert fixed.best is not None
    assert found.best.cycles == fixed.best.cycles
    assert found.best.throughput == pytest.approx(3 * (fixed.best.throughput or 0))
    assert "samples a second" in str(found)
    assert "samples" not in str(fixed)
    assert "microbatches a second" in str(fixed)
    assert fixed.to_dict()["counted"] == "microbatches"


def test_several_monotone_options_find_the_best_of_the_grid() -> None:
    """Both the batch and the microbatches are more the better; fewer plans than one alone takes."""

    def make(batch: int, microbatches: int, devices: int = 2) -> sp.PipelinePartition:
        much = batch + 2 * microbatches <= 14
        return model(batch, devices, microbatches).replace(
            exclusive={"all": [1 if much else 99] * 6}
        )

    options = {"microbatches": range(1, 7), "devices": [1, 2], "batch": range(1, 9)}
    whole = sp.tune(make, options, search="grid")
    alone = sp.tune(make, options, "batch", search="bisection")
    both = sp.tune(make, options, ["microbatches", "batch"], search="bisection")
    bounded = sp.tune(make, options, ["microbatches", "batch"])
    for found in (alone, both, bounded):
        assert found.best is not None
        assert whole.best is not None
        assert found.best.throughput == pytest.approx(whole.best.throughput)
    assert len(bounded.evaluations) <= len(both.evaluations) < len(alone.evaluations)
    assert both.to_dict()["monotone"] == ["microbatches", "batch"]


def test_options_that_are_not_monotone_as_declared_are_told_of() -> None:
    def make(batch: int) -> sp.PipelinePartition:
        return model(batch).replace(
            forward=[batch**2] * 6, exclusive={"all": [100 if batch == 2 else 1] * 6}
        )

    found = sp.tune(make, {"batch": range(1, 5)}, "batch", search="grid")
    assert found.doubts == (
        "batch 2 and 3: there is a plan with the larger one only",
        "batch 3 and 4: fewer samples a second with the larger one",
    )
    assert "not monotone as declared: batch 2 and 3" in str(found)
    usual = sp.tune(model, {"batch": range(1, 5)}, "batch", search="grid")
    assert usual.doubts == ()


def test_options_without_end_and_in_rows_are_read_as_they_were(tmp_path: Path) -> None:
    def make(capacity: float, speeds: tuple[float, ...]) -> sp.PipelinePartition:
        memory = None if capacity == math.inf else int(capacity)
        devices = tuple(sp.Device(memory=memory, speed=speed) for speed in speeds)
        # Declared to be better with more memory, and it is not.
        cycles = [50, 50] if capacity == math.inf else [3, 4]
        return sp.PipelinePartition.from_arrays(
            cycles, exclusive=[2, 2], cluster=sp.Cluster(devices=devices), fewer_stages=True
        )

    options: dict[str, list[Any]] = {"capacity": [9, 30, math.inf], "speeds": [(1, 1), (1, 2)]}
    found = sp.tune(make, options, "capacity", search="grid")
    assert "capacity 30 and Infinity" in " ".join(found.doubts)
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(found.to_dict()))
    again = read_tuning(path)
    assert again.options["capacity"] == (9, 30, math.inf)
    assert check_tuning(again, path).violations == ()
    assert run("check", path, "--prove").returncode == 5, "it holds no plans"
    document = found.to_dict()
    for told, field in (
        (
            {**document, "evaluations": [{**document["best"], "speeds": [1]}]},
            "evaluations.0.speeds",
        ),
        ({**document, "options": {**document["options"], "capacity": [9, None]}}, "capacity"),
        ({**document, "monotone": ["speed"]}, "monotone"),
    ):
        path.write_text(json.dumps(told))
        with pytest.raises(sp.InputError) as caught:
            read_tuning(path)
        assert field in str(caught.value)
    with pytest.raises(sp.InputError, match="no devices"):
        sp.tune(make, {"capacity": [9], "speeds": [()]})
    for wrong in ("x", math.nan, 0, math.inf):
        with pytest.raises(sp.InputError, match="batch"):
            sp.tune(model, {"batch": [1, wrong]})
    with pytest.raises(sp.InputError, match="capacity: nan; leave it out"):
        sp.tune(make, {"capacity": [9, math.nan], "speeds": [(1,)]})
