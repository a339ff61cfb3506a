"""Alternatives of layers: exact methods, enumeration, and related instances agree."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.pipeline.options import label_kernels
from stagepack.heuristics.pipeline.options.costs import UNLIMITED, Chooser
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import stage_compute, stage_memory
from stagepack.instances.pipeline.choices import broken, settled
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.methods.pipeline import METHODS
from tests.chosen_pipelines import chosen_instance, chosen_optimum

EXACT = ("dp", "auto")
ROUGH = ("equal-layers", "greedy")


def proved(result: Any) -> bool:
    return str(result.status) == "OPTIMAL"


def agree(instance: PipelinePartition, method: str, best: float | None) -> None:
    """Assert that a method finds the best value, or as much as it claims."""
    result = sp.solve(instance, method=method, time_limit=30)
    if best is None:
        assert str(result.status) == ("UNKNOWN" if method in ROUGH else "INFEASIBLE"), method
        return
    if result.solution is None:
        assert method in ROUGH
        return
    assert not instance.check(result.solution)
    assert result.objective is not None
    assert result.bound is not None
    assert result.bound <= best * (1 + 2e-9)
    assert result.objective >= best * (1 - 2e-9)
    if method not in ROUGH:
        assert math.isclose(result.objective, best, rel_tol=1e-9, abs_tol=1e-9), method
        assert proved(result)


@pytest.mark.parametrize("part", range(10))
def test_methods_agree_with_all_cuts_and_choices(part: int) -> None:
    for seed in range(50 * part, 50 * part + 50):
        instance = chosen_instance(seed, largest_n=4)
        best = chosen_optimum(instance)
        methods = ["dp"]
        if seed % 5 == 0:
            methods += ["auto", *ROUGH]
        for method in methods:
            agree(instance, method, best)


def test_huge_figures_are_counted_exactly() -> None:
    for seed in range(60):
        instance = chosen_instance(seed, largest_n=3, wide=True)
        best = chosen_optimum(instance)
        result = sp.solve(instance, method="dp", time_limit=30)
        if best is None:
            assert str(result.status) == "INFEASIBLE"
        else:
            assert result.objective is not None
            assert result.bound is not None
            assert math.isclose(result.objective, best, rel_tol=1e-9, abs_tol=1e-9)
            assert result.bound <= best * (1 + 1e-9)
            assert proved(result) or result.reason


def value(instance: PipelinePartition) -> float:
    """Return the least value, infinite where nothing fits."""
    result = sp.solve(instance, method="dp", time_limit=30)
    if str(result.status) == "INFEASIBLE":
        return math.inf
    assert proved(result)
    assert result.objective is not None
    return result.objective


def test_more_to_choose_makes_nothing_worse() -> None:
    for seed in range(100, 170):
        instance = chosen_instance(seed, largest_n=7)
        best, own = value(instance), value(instance.replace(alternatives=None))
        slack = 1 + 1e-9
        assert best <= own * slack
        first = dict([*instance.alternatives.items()][:1])
        assert best <= value(instance.replace(alternatives=first)) * slack
        layers = value(instance.replace(alternatives_per="layer"))
        assert layers <= value(instance.replace(alternatives_per="stage")) * slack
        if instance.alternatives_per == "layer":
            # What is dearer than the layer itself in everything changes nothing.
            worse = {"forward": instance.forward + 1, "stash": instance.stash + 3}
            more = {**instance.alternatives, "worse": worse}
            assert math.isclose(value(instance.replace(alternatives=more)), best, rel_tol=1e-9)


def test_names_and_order_of_alternatives_change_nothing() -> None:
    for seed in range(300, 340):
        instance = chosen_instance(seed, largest_n=6)
        turned = {f"{name}-2": one for name, one in reversed(instance.alternatives.items())}
        other = instance.replace(alternatives=turned)
        assert math.isclose(value(instance), value(other), rel_tol=1e-9)


def test_stages_cost_the_least_of_all_choices() -> None:
    for seed in range(40):
        instance = chosen_instance(seed, largest_n=4).replace(microbatches=2)
        costs = RangeCosts(instance)
        chooser = Chooser(costs, TUNING.options)
        names = [instance.own_alternative, *instance.alternatives]
        n, device = instance.n, 0
        c, flying = int(costs.device_class[device]), 2 if instance.training else 0
        given = chooser.options(c, flying)
        ends = np.full(n, n)
        table = chooser.table(given, np.full(n, UNLIMITED), UNLIMITED, ends)
        capacity = instance.cluster.devices[device].memory
        for a in range(n):
            for b in range(a + 1, n + 1):
                cheapest = None
                for chosen in product(names, repeat=b - a):
                    row = (names[0],) * a + chosen + (names[0],) * (n - b)
                    cuts = tuple(dict.fromkeys((0, a, b, n)))
                    solution = PipelineSolution(cuts, (0,) * (len(cuts) - 1), row)
                    if any(broken(instance, solution)):
                        continue
                    plain = settled(instance, solution)
                    if capacity is None or stage_memory(plain, a, b, device, 2) <= capacity:
                        cost = stage_compute(plain, a, b, device)
                        cheapest = cost if cheapest is None else min(cost, cheapest)
                if cheapest is None:
                    assert table[a, b] == UNLIMITED
                else:
                    ticks = float(cheapest) * float(costs.scale)
                    assert abs(int(table[a, b]) - ticks) <= max(costs.rounding, 1e-9 * ticks)


def deep(n: int = 40, seed: int = 0) -> PipelinePartition:
    """Return unlike layers with many trade-offs."""
    draw = np.random.default_rng(seed)
    cycles, held = draw.integers(10**5, 10**6, n), draw.integers(10**5, 10**6, n)
    return sp.PipelinePartition.from_arrays(
        cycles,
        devices=2,
        exclusive=held,
        capacity=int(held.sum() * 0.3),
        alternatives={
            "cpu": {"forward": cycles * draw.integers(2, 9, n), "exclusive": held // 7},
            "disk": {"forward": cycles * 11, "exclusive": 0},
        },
        objective="latency",
    )


def test_too_many_trade_offs_leave_a_bound_and_auto_goes_on() -> None:
    few = {"tuning": {"options": {"most_labels": 4}}}
    whole: Any = sp.solve(deep(), method="dp")
    assert proved(whole)
    cut_off: Any = sp.solve(deep(), method="dp", warm_start="greedy", options=few)
    assert cut_off.solution is not None
    assert not proved(cut_off)
    assert "trade-offs" in cut_off.reason
    assert cut_off.bound <= whole.objective <= cut_off.objective
    auto: Any = sp.solve(deep(), method="auto", options=few, time_limit=5)
    assert auto.objective is not None
    assert auto.bound is not None
    assert auto.bound <= whole.objective <= auto.objective <= cut_off.objective


def test_fills_go_on_where_they_paused() -> None:
    costs = RangeCosts(deep(8))
    tables = []
    for at_once in (1, 7, 10**6):
        tuning = TUNING.options.changed({"labels_at_once": at_once})
        chooser = Chooser(costs, tuning)
        given, n = chooser.options(0, 0), costs.n
        tables.append(chooser.table(given, np.full(n, UNLIMITED), UNLIMITED, np.full(n, n)))
    assert all((table == tables[0]).all() for table in tables)
    state, room = np.zeros(5, dtype=np.int64), chooser._room
    cost, steps = np.full((n + 1, n + 1), UNLIMITED), 0
    ends, limits = np.full(n, n), np.full(n, UNLIMITED)
    while not label_kernels.fill(1, given, limits, UNLIMITED, ends, room, state, cost):
        steps += 1
    assert steps >= n
    assert (cost == tables[0]).all()


def test_limits_keep_what_was_found() -> None:
    result: Any = sp.solve(deep(90, 3), method="dp", time_limit=0.01)
    assert result.solution is None or result.bound <= result.objective


@pytest.mark.parametrize("method", [one.name for one in METHODS])
def test_methods_know_alternatives_or_refuse_them_by_name(method: str) -> None:
    instance = deep(6)
    if method in (*EXACT, *ROUGH):
        result: Any = sp.solve(instance, method=method)
        assert result.solution is not None
        assert not instance.check(result.solution)
        return
    with pytest.raises(InputError, match=r"alternatives of layers|one stage each"):
        sp.solve(instance, method=method)


def test_what_fits_in_no_choice_is_explained() -> None:
    tight = deep(6).replace(cluster=sp.Cluster.uniform(2, memory=10_000))
    tight = tight.replace(alternatives={"cpu": {"exclusive": 9_000}})
    result = sp.solve(tight)
    assert str(result.status) == "INFEASIBLE"
    assert "whatever layers take of their alternatives" in result.reason
    assert "with 17,000 bytes more on every device" in result.reason
    enough = tight.replace(cluster=sp.Cluster.uniform(2, memory=27_000))
    assert proved(sp.solve(enough))
    alone = tight.replace(cluster=sp.Cluster.uniform(2, memory=8_999))
    assert "needs at least 9,000 bytes" in sp.solve(alone).reason


@pytest.mark.parametrize("per", ["layer", "stage"])
def test_a_rule_of_thumb_chooses_for_long_chains(per: str) -> None:
    keys = {"code": (100, range(0, 20_000, 7))}
    chain = deep(20_000).replace(alternatives_per=per, shared=keys)
    for objective in ("latency", "bottleneck"):
        instance = chain.replace(objective=objective)
        result: Any = sp.solve(instance, time_limit=0.1, options={"deterministic": True})
        assert result.solution is not None
        assert not instance.check(result.solution)
        assert result.bound <= result.objective


def test_it_finds_choices_where_only_bytes_that_add_up_count() -> None:
    found = 0
    for seed in range(120):
        instance = chosen_instance(seed, largest_n=6)
        nothing = np.zeros(instance.n, dtype=np.int64)
        if any(one.temporary.any() for one in instance.alternatives.values()):
            continue
        instance = instance.replace(temporary=nothing, carry=nothing)
        costs = RangeCosts(instance)
        chooser = Chooser(costs, TUNING.options)
        for a, b in ((0, instance.n), (0, 1), (instance.n // 2, instance.n)):
            kind = int(costs.device_class[0]), 1 if instance.training else 0
            quick, best = chooser.leaner(kind, a, b), chooser.choose(chooser.options(*kind), a, b)
            assert (quick is None) == (best is None)
            if quick is not None and best is not None:
                given = chooser.options(*kind)
                cost = [
                    sum(given.ticks[o, a + at] for at, o in enumerate(c)) for c in (quick, best)
                ]
                need = sum(given.added[o, a + at] for at, o in enumerate(quick))
                assert cost[0] >= cost[1]
                assert need <= given.capacity
                assert all(given.has[o, a + at] for at, o in enumerate(quick))
                found += 1
    assert found > 60
