"""Methods of layer grouping."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import stagepack as sp
from stagepack.catalog import best_known, suite
from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.dp import Partition
from stagepack.instances.groups import GroupingSolution, OperatorKind
from stagepack.instances.groups.banks import bank_pairs
from stagepack.instances.groups.chips import CHIPS
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing import Banks
from stagepack.methods.groups import apart as banks_apart
from stagepack.methods.groups import searches
from stagepack.methods.groups.explain import explain
from stagepack.progress import Progress, Stopped
from tests.instances.groups.networks import CHIP, add, block, conv, grouping

RULES = ("layerwise", "greedy-tail", "dp-first-fit", "seed-order")
METHODS = [method.name for method in sp.methods("groups")]


@pytest.mark.parametrize("method", METHODS)
def test_methods_solve_a_network(method: str) -> None:
    order = "free" if method == "dag" else "given"
    timesteps = "free" if method == "cp-sat" else "nearest"
    result = sp.solve(
        sp.load("groups/squeezenet", chip="cv184x", order=order, timesteps=timesteps), method=method
    )
    assert result.solution is not None
    assert result.status is (sp.Status.FEASIBLE if method in RULES else sp.Status.OPTIMAL)


def test_the_suite_compares_all_methods() -> None:
    """Those of a free order and of free timesteps, too."""
    for name in METHODS:
        assert any(name in _usable(whole) for whole in suite("layer-grouping")), name


def _usable(whole: sp.LayerGrouping) -> list[str]:
    return [method.name for method in sp.methods(whole) if method.available]


@pytest.mark.parametrize("engine", ["highs", "cp-sat"])
def test_the_interval_model_proves_what_dp_proves(engine: str) -> None:
    """Also where groups have to be banned because their buffers cannot be placed."""
    whole = sp.load("groups/resnet50", chip="cv184x", max_group=8)
    known = sp.solve(whole, method="dp")
    result = sp.solve(whole, method="milp", engine=engine)
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == known.objective
    assert result.bound_source == f"{engine} (milp)"


def test_free_order_is_a_question_of_its_own() -> None:
    given = sp.load("groups/squeezenet", chip="cv184x")
    free = sp.load("groups/squeezenet", chip="cv184x", order="free")
    intervals = sp.solve(given)
    assert intervals.objective is not None
    with pytest.raises(sp.InputError, match="order: free lets them leave it"):
        sp.solve(given, method="dag")
    best = sp.solve(free)
    assert (best.method, best.status) == ("auto", sp.Status.OPTIMAL)
    assert best.objective is not None
    assert best.objective < intervals.objective
    assert isinstance(best.solution, sp.GroupingSolution)
    assert best.solution.order
    assert "order: free?" in str(given.check(best.solution))
    # The best of the given order is a plan, and no proof.
    same = sp.solve(free, method="dp")
    assert (same.objective, same.status) == (intervals.objective, sp.Status.FEASIBLE)
    # Where there is no other order it is.
    assert sp.solve(sp.load("groups/vgg19", order="free"), method="dp").status is best.status


def test_wide_networks_end_with_a_plan_and_a_bound() -> None:
    found = [conv(f"a{at}", "x", 8, 8, kernel=1) for at in range(40)]
    total = add("s", *(op.name for op in found), channels=8, rows=8)
    whole = grouping(
        [*found, total],
        order="free",
        timesteps="nearest",
        slicing="n-then-h",
        max_group=3,
        max_slices=2,
    )
    small = {"tuning": {"auto": {"windows_of": [20, 30]}}}
    result = sp.solve(whole, method="dag", options=small)
    assert result.status is sp.Status.FEASIBLE
    assert result.bound is not None
    assert "more than 100,000 ideals" in result.reason
    known = sp.solve(whole, method="dp")
    assert result.objective is not None
    assert known.objective is not None
    assert result.objective <= known.objective


def branches() -> sp.LayerGrouping:
    """Return four branches of two convolutions that are joined again, in any order."""
    found, ends, rows = [], [], 28
    for at, pair in enumerate([((64, 3), (16, 5)), ((32, 1), (32, 1)), ((64, 5), (32, 5)),
                               ((16, 1), (16, 1))]):  # fmt: skip
        reads = "x"
        for channels, kernel in pair:
            found.append(conv(f"{at}-{channels}-{kernel}-{reads}", reads, channels, rows, kernel))
            reads = found[-1].name
        ends.append(reads)
    joined = sp.Operator(
        name="all", kind=OperatorKind.CONCAT, inputs=tuple(ends), shape=(1, 96, rows, rows)
    )
    said: dict[str, Any] = {"order": "free", "timesteps": "nearest", "slicing": "n-then-h"}
    return grouping([*found, joined], channels=64, rows=rows, chip=CHIPS["cv184x"], **said)


def test_windows_find_what_all_ideals_prove() -> None:
    whole = branches()
    proved = sp.solve(whole, method="dag")
    assert proved.status is sp.Status.OPTIMAL
    few: dict[str, Any] = {"many_ideals": 1, "most_ideals": 1}
    found = sp.solve(whole, method="dag", options={"tuning": {"auto": few}})
    assert found.status is sp.Status.FEASIBLE
    assert "all in windows along the best" in found.reason
    assert found.objective == proved.objective
    few["windows"] = False
    without = sp.solve(whole, method="dag", options={"tuning": {"auto": few}})
    assert without.objective is not None
    assert found.objective is not None
    assert without.objective > found.objective


def test_no_order_fits() -> None:
    whole = block(standalone="needed", max_slices=1, timesteps="nearest", order="free")
    result = sp.solve(whole.replace(chip=_with(whole, 400)), method="dag")
    assert result.status is sp.Status.INFEASIBLE
    assert "a by itself needs 416 bytes in each lane" in result.reason


def test_who_does_not_fit_is_named() -> None:
    whole = block(standalone="needed", max_slices=1, timesteps="nearest")
    tight = whole.replace(chip=_with(whole, 400))
    result = sp.solve(tight)
    assert result.status is sp.Status.INFEASIBLE
    assert (
        "a by itself needs 416 bytes in each lane, whole: 16 more than there are" in result.reason
    )
    assert sp.solve(tight.replace(standalone="any")).status is sp.Status.OPTIMAL


def _with(whole: sp.LayerGrouping, memory: int) -> sp.LaneChip:
    from msgspec.structs import replace

    return replace(whole.chip, memory=memory)


def test_free_timesteps_are_not_proved_by_the_rule() -> None:
    free = block()
    result = sp.solve(free, method="dp")
    assert result.status is sp.Status.FEASIBLE
    assert sp.solve(free.replace(timesteps="nearest"), method="dp").objective == result.objective


def test_who_does_not_fit_is_named_where_there_is_no_time_to_look_at_all() -> None:
    """A clock that stops ever later: nobody, then the first operator, then what would do."""
    how: dict[str, Any] = {"standalone": "needed", "timesteps": "nearest", "max_slices": 4}
    whole = block(rows=9, **how)
    tight = whole.replace(chip=_with(whole, 64))
    told: list[str] = []
    while not told or "would do" not in told[-1]:
        left = iter([True] * len(told))
        told.append(explain(tight, partial(next, left, False)))
    named = [why for why in told if why.startswith("a by itself needs ")]
    assert {why.split(";")[0] for why in named} == {told[-1].split(";")[0]}
    assert "give more, or let it" in named[0]
    assert told[0] == "no buffers of some operator can be placed; give more local memory"


@pytest.mark.parametrize("slicing", ["n-then-h", "free"])
@pytest.mark.parametrize("slices", [1, 4, 16])
def test_the_memory_that_would_do_does_and_less_does_not(slicing: str, slices: int) -> None:
    """An operator by itself needs so many bytes, in the cut that is told."""
    how: dict[str, Any] = {"standalone": "needed", "timesteps": "nearest", "order": "given"}
    whole = block(rows=9, max_slices=slices, slicing=slicing, max_group=1, **how)
    result = sp.solve(whole.replace(chip=_with(whole, 64)))
    assert result.status is sp.Status.INFEASIBLE
    told = re.search(r"lanes of ([\d,]+) bytes would do", result.reason or "")
    assert told is not None
    memory = int(told[1].replace(",", ""))
    assert sp.solve(whole.replace(chip=_with(whole, memory))).status is sp.Status.OPTIMAL
    again = sp.solve(whole.replace(chip=_with(whole, memory - 1)))
    assert again.status is sp.Status.INFEASIBLE
    assert f"lanes of {memory:,} bytes would do" in (again.reason or "")
    assert (" along " in (again.reason or "")) == (slices > 1)


def test_a_plan_is_a_start() -> None:
    whole = sp.load("groups/squeezenet", chip="cv184x")
    first = sp.solve(whole, method="greedy-tail")
    again = sp.solve(whole, warm_start=first)
    assert again.objective is not None
    assert first.objective is not None
    assert again.objective <= first.objective
    first_plan = next(event for event in again.trace.events if event.kind == "incumbent")
    assert first_plan.source == "warm start"


@pytest.mark.parametrize("method", METHODS)
def test_there_is_a_plan_and_a_bound_before_the_clock_is_asked(method: str) -> None:
    """Every operator may run from global memory: an answer, however little time there is."""
    words = {"order": "free"} if method == "dag" else {}
    words |= {"timesteps": "free"} if method == "cp-sat" else {}
    whole = sp.load("groups/resnet50", batch=16, **words)
    result = sp.solve(whole, method, time_limit=1e-6)
    assert result.status is sp.Status.FEASIBLE
    assert result.bound is not None
    assert result.objective is not None
    assert 0 < result.bound < result.objective
    assert (method in RULES) == (f"no time for {method}" in result.reason)


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_do_not_end_have_a_plan(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator a group in the first cut that fits, where none runs by itself."""
    whole = block(standalone="needed", timesteps="nearest")

    def ends(_: Partition) -> GroupingSolution | None:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setitem(searches.RULES, rule, (ends, True, None))
        result = sp.solve(whole, rule)
    assert isinstance(result.solution, GroupingSolution)
    assert result.solution.boundaries == tuple(range(whole.n + 1))
    best = sp.solve(whole, "layerwise").objective
    assert best is not None
    assert result.objective is not None
    assert result.objective >= best
    assert f"no time for {rule}" in result.reason


@pytest.mark.parametrize(
    "method", ["layerwise", "greedy-tail", "dp-first-fit", "dp", "milp", "dag"]
)
def test_runs_that_work_ends_repeat_and_have_a_bound(method: str) -> None:
    order = "free" if method == "dag" else "given"
    whole = sp.load("groups/densenet121", chip="cv184x", order=order, timesteps="nearest")
    one, other = (
        sp.solve(whole, method, time_limit=0.05, options={"deterministic": True}) for _ in range(2)
    )
    assert one.termination is not sp.Termination.PROVED
    assert (one.objective, one.bound) == (other.objective, other.bound)
    assert one.solution == other.solution
    if method in ("dp", "milp", "dag"):
        assert one.bound is not None
        assert one.objective is not None
        assert 0 < one.bound < one.objective


# ---------------------------------------------------------------------- banks


def crowded(banks: int, memory: int = 4096) -> sp.LayerGrouping:
    """Return a convolution, whose input, weights and result are reached at the same time."""
    chip = structs.replace(CHIP, banks=banks, memory=memory)
    said: dict[str, Any] = {"timesteps": "nearest", "standalone": "needed", "max_slices": 1}
    return grouping([conv("a", "x", 8, 8)], chip=chip, **said)


@pytest.mark.parametrize("method", ["auto", "dp", *RULES[:3]])
def test_as_few_pairs_share_a_bank_as_can_be(method: str) -> None:
    """Three buffers in two banks: two of them share one; in three banks none do."""
    apart, together = (sp.solve(crowded(banks), method) for banks in (4, 2))
    assert (crowded(4).secondary(apart.solution), apart.reason) == (0, "")
    assert crowded(2).secondary(together.solution) == 1
    assert "in one bank: 1, the fewest with these groups and timesteps" in together.reason


def test_addresses_that_no_time_is_left_to_check_are_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 10^4 operators in groups the check went on for 0.7 s beyond the limit."""
    monkeypatch.setattr(banks_apart, "checking", lambda *_: 1e9)
    result = sp.solve(crowded(4), "greedy-tail", time_limit=5)
    assert "no time to check addresses with fewer pairs in one bank" in result.reason
    assert crowded(4).secondary(result.solution) > 0


@pytest.mark.parametrize("method", ["dp", "dp-first-fit"])
def test_what_the_rule_for_banks_leaves_is_searched(method: str) -> None:
    """VGG-19 on the BM1688: by the rule 14 pairs share a bank, where none has to."""
    whole = sp.load("groups/vgg19", chip="bm1688")
    result = sp.solve(whole, method, time_limit=None)
    assert whole.secondary(result.solution) == 0
    assert result.reason == ""


def test_pairs_that_were_not_searched_are_not_proved() -> None:
    nothing = {"tuning": {"banks": {"share": 0}}}
    result = sp.solve(crowded(2), "layerwise", options=nothing)
    assert "in one bank: 1, at least 0 with these groups" in result.reason


def test_pairs_of_a_group_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Timetable] = []

    def counted(table: Timetable) -> list[tuple[int, int]]:
        found.append(table)
        return bank_pairs(table)

    monkeypatch.setattr(banks_apart, "bank_pairs", counted)
    result = sp.solve(crowded(2), "layerwise")
    assert result.solution is not None
    assert len(found) == result.solution.groups


def test_rules_keep_the_time_in_which_their_first_plan_is_checked() -> None:
    slow = {"tuning": {"check": {"alone_price": 10.0}}}
    result = sp.solve(block(), "layerwise", time_limit=5, options=slow)
    assert result.termination is sp.Termination.TIME_LIMIT
    assert result.solution == GroupingSolution.from_global_memory(block().n)


@pytest.mark.parametrize(("banks", "memory"), [(2, 4096), (3, 4096), (4, 1600), (6, 2400)])
def test_the_fewest_pairs_are_those_of_a_linear_model(banks: int, memory: int) -> None:
    chip = structs.replace(CHIP, memory=memory, banks=banks)
    whole = block(chip=chip, timesteps="nearest", standalone="needed", max_slices=2)
    result = sp.solve(whole, "dp", time_limit=None)
    least = 0
    for _, table in result.solution.timetables(whole):
        assert table is not None
        pairs = np.array(bank_pairs(table), dtype=np.int64).reshape(-1, 2)
        problem = packing(table).replace(
            objective="bank-conflicts", banks=Banks(banks, whole.chip.bank_bytes, pairs)
        )
        linear = sp.solve(problem, "milp", engine="highs", time_limit=60)
        assert linear.status is sp.Status.OPTIMAL
        assert linear.objective is not None
        least += int(linear.objective) // problem.conflict_weight
    assert whole.secondary(result.solution) == least
    assert not least or f": {least}, the fewest" in result.reason


def test_a_full_lane_may_have_a_smaller_last_bank() -> None:
    """Its last bytes are of that bank; CP-SAT was told that there is nothing behind even banks."""
    whole = crowded(5, 416)
    result = sp.solve(whole, "dp")
    assert result.solution is not None
    assert max(result.solution.timetable(whole, 0).load_bytes()) == 416
    assert "the fewest with these groups" in result.reason


def test_banks_are_searched_though_the_plan_is_proved_and_setup_is_that_of_the_run() -> None:
    pairs = np.array([(0, 1)], dtype=np.int64)
    table = GroupingSolution((0, 1), ((1, 1, 1, 1),)).timetable(crowded(2), 0)
    problem = packing(table).replace(objective="bank-conflicts", banks=Banks(2, 2048, pairs))
    whole = Progress[GroupingSolution](lambda _: 1, lambda _: (), time_limit=60)
    whole.offer(GroupingSolution.from_global_memory(1), "rule")
    whole.raise_bound(1, "rule")
    inner = banks_apart.Fewest(problem, whole)
    assert whole.proved
    assert inner.keep_going()
    with inner.setup("loading"):
        pass
    assert whole.setup_time == inner.setup_time > 0
    whole.interrupt()
    assert not inner.keep_going()


def test_the_order_of_the_seed_beside_the_exact_placement() -> None:
    """Never fewer cycles; it crosses few banks, and leaves what CP-SAT parts."""
    whole = sp.load("groups/inception-v1", chip="cv184x")
    rule, exact = sp.solve(whole, "seed-order"), sp.solve(whole, "dp")
    assert rule.objective is not None
    assert exact.objective is not None
    assert rule.objective >= exact.objective
    assert whole.secondary(rule.solution) > whole.secondary(exact.solution)


def test_best_known_values_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are told; those over orders and timesteps as given are proved anew."""
    monkeypatch.setattr(searches, "spread", lambda *_: None)
    for whole in suite("layer-grouping"):
        known = best_known(whole)
        assert known is not None
        assert known.name == whole.source
        assert (known.objective, known.proved) == ("cycles", True)
        if whole.order == "given" and whole.timesteps == "nearest":
            result = sp.solve(whole, "dp", time_limit=None)
            assert (result.status, result.objective) == (sp.Status.OPTIMAL, known.value)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("order", ["given", "free"])
def test_no_rule_takes_the_time_of_another(
    name: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never ends leaves the others, and the exact search, enough."""
    whole = sp.load("groups/squeezenet", chip="cv184x", order=order)
    known = sp.solve(whole)
    _, *rest = searches.RULES[name]

    def endless(partition: Partition) -> None:
        while True:
            spend(1e-3)
            partition.look()

    monkeypatch.setitem(searches.RULES, name, (endless, *rest))
    result = sp.solve(whole, time_limit=4, options={"deterministic": True})
    assert (result.status, result.objective) == (known.status, known.objective)


@pytest.mark.parametrize("limit", [0.1, 0.4, 1.6])
@pytest.mark.parametrize("name", RULES)
def test_auto_is_not_above_what_a_rule_finds_in_a_part_of_the_time(name: str, limit: float) -> None:
    for whole in map(sp.load, ("groups/densenet121", "groups/inception-v1")):
        deterministic = {"deterministic": True}
        rule = sp.solve(whole, name, time_limit=limit / 4, options=deterministic).objective
        best = sp.solve(whole, time_limit=limit, options=deterministic).objective
        assert rule is not None
        assert best is not None
        assert best <= rule
