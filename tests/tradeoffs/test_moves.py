"""From a previous cut: the fewest bytes that move, by hand and by trying everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.cuts import read_previous
from stagepack.instances.pipeline.previous import held_by
from stagepack.tradeoffs.moves import share_of
from stagepack.verify import verify
from tests.cli import shell
from tests.imports import ROOT
from tests.random_pipelines import moved, optimum, random_instance

BEFORE = sp.PipelineSolution((0, 2, 3, 5, 8), (0, 1, 2, 3))
"""Layers on devices a, b, c and d."""


def chain(devices: str = "abcd", **changes: Any) -> sp.PipelinePartition:
    """Return eight layers of unlike cycles and bytes on devices of these names."""
    cluster = sp.Cluster(devices=tuple(sp.Device(name=name) for name in devices))
    given: dict[str, Any] = {"cluster": cluster, "exclusive": [10, 20, 30, 40, 50, 60, 70, 80]}
    return sp.PipelinePartition.from_arrays([5, 3, 8, 2, 7, 4, 6, 1], **{**given, **changes})


# ---------------------------------------------------------------------- by hand


def test_a_failed_device_moves_its_layers_and_few_others() -> None:
    left = chain("abd")
    best, moves, limit = sp.recut(left, BEFORE, devices=list("abcd"))
    assert (best.objective, limit) == (16, 16)
    assert moves is not None
    # Layers 3 and 4 were on c, and layer 2 leaves b, which takes them: all others would cost more.
    assert (moves.status, moves.objective) == ("OPTIMAL", 120)
    assert moves.solution == sp.PipelineSolution((0, 3, 5, 8), (0, 1, 2))
    _, moves, limit = sp.recut(left, BEFORE, 0.3, devices=list("abcd"))
    assert moves is not None
    assert limit == 20
    assert moves.objective == 90  # d takes those of c
    assert left.evaluate(moves.solution) == 20
    assert "90 bytes" in str(moves)


def test_nothing_moves_where_the_cut_in_place_is_good_enough() -> None:
    instance = chain()
    result = sp.solve(instance)
    _, moves, _ = sp.recut(instance, result)
    assert moves is not None
    assert (moves.objective, moves.solution) == (0, result.solution)


def test_more_devices_take_layers_from_those_that_hold_them() -> None:
    _, moves, _ = sp.recut(chain("xabcd"), BEFORE, 1.0, devices=list("abcd"))
    assert moves is not None
    assert moves.objective == 10  # x runs the first layer
    unnamed = chain(cluster=sp.Cluster.uniform(3))
    assert held_by(unnamed, BEFORE) == [0, 0, 1, 2, 2, -1, -1, -1]


def test_shared_keys_and_tied_weights_move_once() -> None:
    instance = chain(tied={"wte": (100, [0, 7])}, shared={"code": (7, range(8))})
    still = instance.from_previous(BEFORE)
    assert still.evaluate(BEFORE) == 0
    assert still.evaluate(sp.PipelineSolution((0, 2, 3, 7, 8), (0, 1, 2, 3))) == 60 + 70
    other = sp.PipelineSolution((0, 1, 3, 5, 8), (3, 1, 2, 0))
    free = still.replace(free_order=True)
    assert free.evaluate(other) == 10 + 20 + 60 + 70 + 80  # 0 and 3 have the weight, and the code
    fresh = instance.from_previous([None] * 8)
    assert fresh.evaluate(BEFORE) == 360 + 200 + 4 * 7
    assert sp.solve(fresh).objective == 360 + 200 + 4 * 7


def test_of_headroom_so_many_tokens_fit() -> None:
    instance = chain(
        kv_bytes=1, objective="headroom",
        cluster=sp.Cluster.uniform(4, memory=240),
    )  # fmt: skip
    best, moves, limit = sp.recut(instance, BEFORE, 0.5)
    assert best.objective is not None
    assert moves is not None
    assert moves.solution is not None
    asked = moves.problem
    assert isinstance(asked, sp.PipelinePartition)
    assert limit == -asked.tokens
    assert asked.tokens == -(best.objective // 2)
    assert instance.evaluate(moves.solution) <= -asked.tokens


def test_limits_that_are_fractions_are_met_exactly() -> None:
    for speed in (3, 7, 0.7):
        instance = chain(cluster=sp.Cluster(devices=(sp.Device(speed=speed),) * 3))
        best, moves, limit = sp.recut(instance, BEFORE)
        assert moves is not None
        assert moves.status == "OPTIMAL"
        assert instance.evaluate(moves.solution) == best.objective == limit


def test_a_hundred_thousand_layers() -> None:
    n = 100_000
    instance = sp.PipelinePartition.from_arrays(
        np.arange(n) % 97, devices=8, exclusive=np.arange(n) % 89
    )
    result = sp.solve(instance)
    fewer = instance.replace(cluster=sp.Cluster.uniform(7))
    _, moves, limit = sp.recut(fewer, result, 0.01)
    assert moves is not None
    assert limit is not None
    assert moves.status == "OPTIMAL"
    assert fewer.evaluate(moves.solution) <= limit
    linked = fewer.replace(
        cluster=sp.Cluster.uniform(7, link=sp.Link(GBps=1)),
        in_bytes=np.full(n + 1, 100), out_bytes=np.full(n + 1, 100), objective="sum",
    )  # fmt: skip
    question = linked.from_previous(result, limit=2 * limit)
    with pytest.raises(InputError, match="have tables") as refused:
        sp.solve(question)
    assert refused.value.field == "limited"


@pytest.mark.parametrize("method", ["auto", "dp", "cp-sat"])
def test_limits_that_get_lost_beside_other_figures_are_refused(method: str) -> None:
    """Nothing is called infeasible because ticks are coarser than the limit is exact."""
    links: dict[str, Any] = {
        "bandwidth": 1.0,
        "clock": 2.0**30,
        "in_bytes": [0, 10**12, 0],
        "objective": "overlap",
    }
    instance = sp.PipelinePartition.from_arrays(
        [1 / 7, 1 / 3], devices=1, exclusive=[1, 1], previous=[0, -1], **links
    )
    question = instance.replace(objective="moves", limited="overlap", limit=10 / 21)
    with pytest.raises(InputError) as refused:
        sp.solve(question, method)
    assert refused.value.field == "limit"
    assert sp.solve(question.replace(limit=10**9), method).objective == 1


def test_what_cannot_be_limited_is_refused_before_anything_is_solved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stagepack.tradeoffs.moves.solve", None)
    with pytest.raises(InputError, match="moves within a limit on latency are not known"):
        sp.recut(chain(objective="latency"), BEFORE)


@pytest.mark.parametrize("method", ["auto", "cp-sat"])
def test_everything_may_have_to_move_although_each_device_holds_something(method: str) -> None:
    """A device that ran all layers would move less than all of them, and none has room for all."""
    k = 18  # of which a free order has too many choices for other searches
    instance = sp.PipelinePartition.from_arrays(
        [1] * k,
        devices=k,
        capacity=range(10, 10 + k),
        exclusive=range(10, 10 + k),
        previous=[(layer + 1) % k for layer in range(k)],
        objective="moves",
        free_order=True,
    )
    result = sp.solve(instance, method)
    assert (result.status, result.objective) == ("OPTIMAL", sum(range(10, 10 + k)))


# ---------------------------------------------------------------------- by trying everything


@pytest.mark.parametrize("method", ["dp", "cp-sat"])
def test_agrees_with_trying_everything(method: str) -> None:
    tried = 0
    for seed in range(500 if method == "dp" else 200):
        given = random_instance(seed, largest_k=4)
        instance = moved(given, seed)
        info = next(one for one in sp.methods(instance) if one.name == method)
        if not info.available:
            assert instance.limited == "transfer-bounded"
            continue
        tried += 1
        result, best = sp.solve(instance, method), optimum(instance)
        if method == "cp-sat" and "tolerance" in result.reason:  # of figures too large for it
            assert best is not None
            assert result.bound is not None
            assert result.bound <= best[0] <= (result.objective or 0)
            continue
        assert result.termination == "PROVED", instance.name
        assert result.objective == (None if best is None else best[0]), instance.name
        if best is not None:
            assert not verify(instance, best[0], "witness", {"rule": "fill"}).shown
    assert tried > 100


def test_more_tolerance_moves_no_more() -> None:
    for seed in range(60):
        instance = random_instance(seed, largest_k=4)
        instance = instance.replace(exclusive=instance.exclusive or {"weights": [1] * instance.n})
        if not any(column.any() for column in instance.exclusive.values()):
            continue
        held = np.random.default_rng([seed, 6]).integers(0, instance.k, instance.n)
        names = [f"device {at}" for at in held]
        found = [sp.recut(instance, names, share).moves for share in (0, 0.1, 1)]
        values = [one.objective for one in found if one is not None and one.objective is not None]
        assert values == sorted(values, reverse=True)
        assert len(values) in (0, 3)


# ---------------------------------------------------------------------- files, and refusals


def test_previous_cuts_are_read_from_results_solutions_and_lists(tmp_path: Path) -> None:
    path, left = tmp_path / "cut.json", chain("abd")
    held = [0, 0, 1, -1, -1, 2, 2, 2]
    said = {"solution": BEFORE.to_dict(), "device_names": list("abcd"), "status": "OPTIMAL"}
    path.write_text(json.dumps(said))
    assert read_previous(path, left) == held
    path.write_text(json.dumps([*"aab", None, None, *"ddd"]))
    assert read_previous(path, left) == held
    path.write_text(json.dumps(BEFORE.to_dict()))
    assert read_previous(path, chain()) == [0, 0, 1, 2, 2, 3, 3, 3]
    with pytest.raises(InputError, match="has a stage on device 3, of 3 named") as refused:
        read_previous(path, left)
    assert refused.value.field == "previous"
    for cuts, devices in (([0, 3], [0]), ([0, 3, 8], [0])):
        path.write_text(json.dumps({"boundaries": cuts, "devices": devices}))
        with pytest.raises(InputError, match="no cut of 8 layers"):
            read_previous(path, left)
    path.write_text(json.dumps(["a"]))
    with pytest.raises(InputError, match="1 layers, of 8"):
        read_previous(path, left)


def test_files_keep_the_question(tmp_path: Path) -> None:
    instance = chain().from_previous(BEFORE, limit=12.5)
    path = tmp_path / "moves.json"
    sp.write(instance, path)
    again = sp.read(path)
    assert again.digest == instance.digest
    assert (again.previous, again.limit, again.limited) == (instance.previous, 12.5, "bottleneck")
    assert chain().digest == chain(previous=None).digest


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"objective": "moves"}, "previous"),
        ({"objective": "moves", "previous": [0] * 8, "exclusive": None}, "exclusive"),
        ({"previous": [0] * 7}, "previous"),
        ({"previous": [4] * 8}, "previous"),
        ({"previous": [-2] * 8}, "previous"),
        ({"limit": -1}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"limited": "fastest"}, "limited"),
        ({"objective": "moves", "previous": [0] * 8, "limited": "latency", "limit": 3}, "limited"),
        ({"objective": "moves", "previous": [0] * 8, "stages_per_device": 2}, "objective"),
    ],
)
def test_what_moves_need_is_said(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        chain(**changes)
    assert refused.value.field == field


def test_methods_refuse_by_name() -> None:
    instance = chain().from_previous(BEFORE, limit=20)
    refused = {one.name for one in sp.methods(instance) if not one.available}
    assert refused == {one.name for one in sp.methods(instance)} - {"auto", "dp", "cp-sat"}
    bounded = chain(objective="transfer-bounded").from_previous(BEFORE, limit=20)
    reasons = {one.name: one.reason for one in sp.methods(bounded)}
    assert "limit on transfer-bounded" in reasons["cp-sat"]


def test_a_cut_beyond_the_limit_is_none() -> None:
    instance = chain().from_previous(BEFORE, limit=10)
    (violation,) = instance.check(BEFORE)
    assert (violation.rule, violation.detail) == ("limit", "bottleneck is 11, and may be 10")
    result = sp.solve(instance)
    assert result.status == "INFEASIBLE"
    assert "bottleneck of 10 or less" in result.reason


def test_tolerances_are_shares() -> None:
    assert [share_of(text) for text in ("5%", "0.05", "0", " 12.5 % ")] == [0.05, 0.05, 0, 0.125]
    for text in ("-1%", "5%%", "much", "", "inf"):
        with pytest.raises(InputError):
            share_of(text)
    with pytest.raises(InputError):
        sp.recut(chain(), BEFORE, -0.1)


@pytest.mark.parametrize("command", ["plan", "explain", "compare", "pareto -x memory"])
def test_commands_that_ask_for_no_moves_refuse_a_previous_cut(command: str, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps(["gpu0"] * 6))
    name, *others = command.split()
    said = shell.run(name, ROOT / "examples/tied.json", "--previous", before, *others)
    assert (said.returncode, "--previous: says nothing" in said.stderr) == (2, True)
