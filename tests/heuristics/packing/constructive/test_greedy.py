"""Greedy rules: valid with every option, never below the load, the same every time."""

import itertools

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.greedy import BankPairs
from stagepack.heuristics.packing.constructive.rules import BEST, FIRST, RULES, Measures, Rule
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import Banks, LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.structured import structured
from tests.packing_cases import FEATURES, random_packing

PLAIN_RULES = [rule for rule in RULES.values() if rule.name != "bank-aware"]


def random_plain(rng: np.random.Generator, n: int, longest: int = 30) -> LmemPacking:
    start = rng.integers(0, n, n)
    length = 1 + (longest * rng.random(n) ** 3).astype(np.int64)
    return LmemPacking.from_arrays(rng.integers(1, 100, n), start, start + length)


def stack_one_by_one(instance: LmemPacking, order: Array, *, tightest: bool) -> list[int]:
    """Place buffers in the order given, trying every offset: the rules' definition."""
    offsets = [-1] * instance.n
    for i in order.tolist():
        taken = sorted(
            (offsets[j], offsets[j] + int(instance.size[j]))
            for j in range(instance.n)
            if offsets[j] >= 0
            and instance.start[i] < instance.end[j]
            and instance.start[j] < instance.end[i]
        )
        gaps, at = [], 0
        for low, high in taken:
            if low - at >= instance.size[i]:
                gaps.append((low - at, at))
            at = max(at, high)
        if gaps and tightest:
            offsets[i] = min(gaps)[1]
        else:
            offsets[i] = gaps[0][1] if gaps else at
    return offsets


@pytest.mark.parametrize("rule", PLAIN_RULES, ids=lambda rule: rule.name)
def test_rules_are_valid_with_every_option(rule: Rule) -> None:
    rng = np.random.default_rng(1)
    placed = 0
    for _ in range(80):
        features = [name for name in FEATURES if name != "banks" and rng.random() < 0.3]
        if "colocated" in features and "in-place" in features:
            continue  # a block may share with another only what all its buffers may
        instance = random_packing(rng, features=features)
        blocks = Blocks.of(instance)
        offsets = greedy.place(blocks, rule)
        if offsets is None:
            assert {"fixed", "allowed", "reserved"} & set(features) or (
                {"views", "alignment"} <= set(features)
            )
            continue
        placed += 1
        assert instance.check(PackingSolution(blocks.expand(offsets))) == ()
    assert placed > 40


@pytest.mark.parametrize("rule", PLAIN_RULES, ids=lambda rule: rule.name)
def test_rules_are_valid_and_repeat_on_larger_instances(rule: Rule) -> None:
    instance = random_plain(np.random.default_rng(2), 400, longest=200)
    blocks = Blocks.of(instance)
    offsets = greedy.place(blocks, rule)
    assert offsets is not None
    assert instance.check(PackingSolution(offsets)) == ()
    assert (offsets + blocks.size).max() >= blocks.load.max()
    again = greedy.place(blocks, rule)
    assert again is not None
    assert np.array_equal(offsets, again)


@pytest.mark.parametrize("rule", ["first-fit-size", "first-fit-start", "classes"])
@pytest.mark.parametrize("tightest", [False, True])
def test_slabs_and_lists_do_what_the_definition_says(rule: str, tightest: bool) -> None:
    rng = np.random.default_rng(3)
    for n in (1, 2, 30, 200):
        instance = random_plain(rng, n, longest=150)
        blocks = Blocks.of(instance)
        order = RULES[rule].order(Measures(blocks))
        policy = BEST if tightest else FIRST
        expected = stack_one_by_one(instance, order, tightest=tightest)
        offsets = greedy.place_in_order(blocks, order, policy=policy)
        assert offsets is not None
        assert offsets.tolist() == expected
        # A range that excludes nothing makes the same instance go through the lists.
        ranged = Blocks.of(instance.replace(reserved=((1 << 40, (1 << 40) + 1),)))
        assert not greedy.whole(ranged)
        offsets = greedy.place_in_order(ranged, order, policy=policy)
        assert offsets is not None
        assert offsets.tolist() == expected


def test_pauses_change_nothing() -> None:
    instances = list(structured().values())
    random = np.random.default_rng(4)
    instances += [random_packing(random, features=[feature], n=9) for feature in FEATURES]
    for instance in instances:
        blocks = Blocks.of(instance)
        for rule in PLAIN_RULES:
            found = []
            for budget in (TUNING.greedy.budget, *range(8), 20, 50):
                tuning = TUNING.changed({"greedy": {"budget": budget}})
                offsets = greedy.place(blocks, rule, tuning=tuning)
                found.append(None if offsets is None else offsets.tolist())
            assert found == found[:1] * len(found)


def test_ceiling_and_time_end_a_rule_without_an_answer() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(4), 50))
    bound = int(blocks.load.max())
    rule = RULES["classes"]
    assert greedy.place(blocks, rule, ceiling=bound - 1) is None
    assert greedy.place(blocks, rule, keep_going=lambda: False) is None
    offsets = greedy.place(blocks, rule, ceiling=2 * bound)
    assert offsets is not None
    assert (offsets + blocks.size).max() <= 2 * bound


def test_portfolio_reports_ever_lower_peaks() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(5), 300, longest=200))
    reports: list[tuple[int, str]] = []
    best = greedy.portfolio(
        blocks,
        on_solution=lambda found, name: reports.append((int((found + blocks.size).max()), name)),
    )
    assert best is not None
    peaks = [peak for peak, _ in reports]
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == (best + blocks.size).max()
    assert {name for _, name in reports} <= set(RULES)


def test_largest_first_is_far_from_optimal_on_a_staircase() -> None:
    # Large buffers that never meet leave no room below for the small long ones.
    instance = LmemPacking.from_arrays([4, 4, 3, 3], [0, 2, 1, 0], [1, 3, 3, 2])
    blocks = Blocks.of(instance)
    peaks = {}
    for rule in PLAIN_RULES:
        offsets = greedy.place(blocks, rule)
        assert offsets is not None
        peaks[rule.name] = int((offsets + blocks.size).max())
    assert peaks["first-fit-size"] == 10
    assert min(peaks.values()) == blocks.load.max() == 7


def test_bank_aware_keeps_partners_apart_and_stays_within_a_bank() -> None:
    banks = Banks(count=4, nbytes=16, pairs=np.array([[0, 1], [1, 2]]))
    instance = LmemPacking.from_arrays(
        [10, 10, 10, 10], [0, 0, 0, 0], [4, 3, 2, 1], banks=banks, objective="bank-conflicts"
    )
    blocks = Blocks.of(instance)
    offsets = greedy.place(blocks, RULES["bank-aware"], banks=BankPairs.of(blocks, banks))
    assert offsets is not None
    assert instance.check(PackingSolution(blocks.expand(offsets))) == ()
    assert offsets.tolist() == [0, 16, 32, 48]
    with pytest.raises(ValueError, match="needs banks"):
        greedy.place(blocks, RULES["bank-aware"])


def test_bank_aware_is_valid_with_every_option() -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        others = [name for name in FEATURES if name != "in-place" and rng.random() < 0.2]
        features = ["banks", *others]
        instance = random_packing(rng, features=features, objective="bank-conflicts")
        blocks = Blocks.of(instance)
        assert instance.banks is not None
        offsets = greedy.place(
            blocks, RULES["bank-aware"], banks=BankPairs.of(blocks, instance.banks)
        )
        if offsets is not None:
            violations = instance.replace(capacity=None).check(
                PackingSolution(blocks.expand(offsets))
            )
            assert violations == ()


def test_what_is_placed_already_stays() -> None:
    instance = random_plain(np.random.default_rng(7), 100)
    blocks = Blocks.of(instance)
    rule = RULES["classes"]
    order = rule.order(Measures(blocks))
    some = greedy.place_in_order(blocks, order[:40], policy=rule.policy)
    assert some is not None
    offsets = greedy.place_in_order(blocks, order[::-1], placed=some)
    assert offsets is not None
    assert np.array_equal(offsets[order[:40]], some[order[:40]])
    assert instance.check(PackingSolution(offsets)) == ()


def test_heaviest_load_is_the_greatest_below() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(8), 200, longest=300))
    expected = [
        blocks.load[first:end].max() for first, end in zip(blocks.first, blocks.end, strict=True)
    ]
    assert Measures(blocks).heaviest_load.tolist() == expected


def test_heaps_of_what_is_forbidden_count_as_work() -> None:
    n = 300
    rng = np.random.default_rng(0)
    instance = LmemPacking.from_arrays(
        [4] * n + [3] * n,
        [0] * 2 * n,
        [10] * 2 * n,
        fixed=[*range(0, 12 * n, 12), *[-1] * n],
        gaps=[(int(i), 2, 3) for i in rng.choice(n, 5, replace=False)],
    )
    blocks, asked = Blocks.of(instance), itertools.count()
    tuning = TUNING.changed({"greedy": {"budget": 1_000_000}})
    greedy.place_in_order(
        blocks, np.arange(blocks.b), keep_going=lambda: next(asked) >= 0, tuning=tuning
    )
    # Looks alone: 4 * sum of i for i below 2 n are less than a budget.
    assert next(asked) > 3


def test_meetings_are_pieces_that_share_a_section() -> None:
    instance = LmemPacking.from_arrays(
        [1] * 6, [0, 0, 2, 3, 5, 7], [2, 9, 4, 5, 7, 12], period=10, gaps=[(1, 4, 6)]
    )
    blocks = Blocks.of(instance)
    pieces = list(zip(blocks.first.tolist(), blocks.end.tolist(), strict=True))
    expected = [sum(a < end and first < b for a, b in pieces) for first, end in pieces]
    assert Measures(blocks).meetings.tolist() == expected
