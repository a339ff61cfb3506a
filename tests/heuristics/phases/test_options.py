"""The group oracle against the definition: cycles, memory, and that nothing better is missing."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagepack.heuristics.phases import options, policies
from stagepack.heuristics.phases.cycles import (
    UNLIMITED,
    Links,
    idle_times,
    on_tiles,
    phase_times,
    rooms,
    transfer,
    transfers,
)
from stagepack.heuristics.phases.options import OptionTable, ahead, assemble, group_options
from stagepack.heuristics.phases.policies import PolicyRows, find_policies
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.ranges_kernels import frontier, undominated
from stagepack.heuristics.phases.tuning import TUNING
from stagepack.instances.phases import Mode, PhaseSchedule, PhaseSolution, Policy
from stagepack.instances.phases.liveness import base_bytes, capacities, profile
from stagepack.instances.phases.modes import (
    compute_cycles,
    io_slack,
    link_rate,
    phase_time,
    rate,
    transfer_cycles,
)
from stagepack.instances.phases.traffic import timeline
from stagepack.instances.profile import Array
from tests.random_phases import random_phases

rates = st.sampled_from([1, 2, 1.5, 0.7, 11.87, 15.037593984962406, 1e-9, 3e14])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=6), rates, st.integers(0, 5))
def test_transfers_are_exact(nbytes: list[int], speed: float, times: int) -> None:
    rate = Fraction(str(speed))
    nbytes = [*nbytes, int(rate * times * rate.denominator)]  # whole numbers of cycles, too
    assume(max(nbytes) / rate < UNLIMITED)  # instances with more cycles are refused
    found = transfers(np.array(nbytes), rate)
    assert found.tolist() == [transfer_cycles(size, rate) for size in nbytes]
    assert [transfer(size, rate) for size in nbytes] == found.tolist()
    assert not transfers(np.array(nbytes), None).any()
    assert transfer(nbytes[0], None) == 0


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.one_of(st.none(), rates)] * 4), st.integers(2, 99), st.data(),
       st.one_of(st.none(), st.integers(1, 2**40)))  # fmt: skip
def test_rates_and_rooms_are_those_of_the_checker(
    given_rates: tuple[float | None, ...], tiles: int, data: st.DataObject, memory: int | None
) -> None:
    remote, host, tile, gather = given_rates
    instance = PhaseSchedule.from_arrays(
        [0], [0], [0, 0], tiles=tiles, memory=memory, remote_bandwidth=remote,
        host_bandwidth=host, tile_bandwidth=tile, gather_bandwidth=gather,
    )  # fmt: skip
    chip, links = instance.chip, Links(instance.chip)
    io_tiles = data.draw(st.integers(0, tiles - 1))
    assert links.remote(io_tiles) == link_rate(chip, remote, io_tiles)
    assert links.host(io_tiles) == link_rate(chip, host, io_tiles)
    assert links.gather == rate(gather)
    expected = capacities(instance, io_tiles)
    assert rooms(chip, io_tiles) == tuple(UNLIMITED if x is None else x for x in expected)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(Mode)), st.lists(st.integers(0, 50), min_size=4, max_size=4),
       st.integers(1, 5))  # fmt: skip
def test_times_of_many_phases_are_those_of_one(mode: Mode, parts: list[int], steps: int) -> None:
    v, load, compute, store = (np.array([part]) for part in parts)
    assert phase_times(mode, v, load, compute, store, steps)[0] == phase_time(
        mode, parts[0], parts[1], parts[2], parts[3], steps
    )
    assert idle_times(mode, load, compute, store, steps)[0] == io_slack(
        mode, parts[1], parts[2], parts[3], steps
    )
    assert on_tiles(compute, 8, 3)[0] == compute_cycles(parts[2], 8, 3)


def test_the_oracle_says_what_the_definition_says() -> None:
    """Random plans made of options cost and need what the instance's own rules say."""
    looked = 0
    for seed in range(60):
        instance = random_phases(seed, layers=(2, 6), budgets=False)
        rng = np.random.default_rng(seed)
        microbatch = int(rng.choice(instance.microbatches))
        io_tiles = int(rng.choice(instance.io_tile_choices))
        table = group_options(instance, microbatch, io_tiles)
        at, chosen = 0, []
        while at < instance.n and table.start[at] < table.start[at + 1]:
            chosen.append(int(rng.integers(table.start[at], table.start[at + 1])))
            at = int(table.end[chosen[-1]])
        if at < instance.n:
            continue
        looked += 1
        plan = assemble(table, chosen)
        assert_as_defined(instance, table, chosen, plan)
    assert looked > 20


def assert_as_defined(
    instance: PhaseSchedule, table: OptionTable, chosen: list[int], plan: PhaseSolution
) -> None:
    options = [table.option(number) for number in chosen]
    phases, figures = plan.phases(instance), instance.at(plan.microbatch)
    order = [(option, 0) for option in options]
    order += [(option, 1) for option in reversed(options) if len(option.times) > 1]
    took = timeline(instance, plan)
    bases = base_bytes(instance, figures, phases)
    for index, (option, part) in enumerate(order):
        phase = phases[index]
        assert (phase.first, phase.end) == (option.first, option.end)
        assert option.times[part] == took[index].time
        assert 0 <= option.hideable[part] <= took[index].variables
        outer = sum(o.kept for o in options[: phase.group])
        loaded = order[index + 1][0].variables[0] if phase.prefetch else 0
        need = max(size for _, size in profile(instance, figures, phase, bases[index]))
        assert option.needs[part] + outer + loaded == need
    assert plan.prefetch in ((), ahead(table, chosen))
    memory = [v.rule for v in instance.check(plan)]
    fits = all(
        option.needs[part] + sum(o.kept for o in options[: phases[i].group]) <= table.capacity
        for i, (option, part) in enumerate(order)
    )
    assert (memory == []) == fits


@pytest.mark.parametrize("seed", range(12))
def test_no_better_policy_is_missing_in_a_chain(seed: int) -> None:
    """Whatever the policies, some option is at least as good in cycles, bytes kept and memory."""
    instance = random_phases(seed, layers=(3, 5), training=True, skips=False, prefetch=False,
                             recomputations=(1,), budgets=False)  # fmt: skip
    instance = instance.replace(policies=["stash", "keep", "recompute"])
    for io_tiles in instance.io_tile_choices:
        microbatch = instance.microbatches[0]
        costs = RangeCosts(instance, microbatch)
        table = OptionTable(costs, find_policies(costs), io_tiles)
        every = OptionTable(costs, find_policies(costs, every=True), io_tiles, ("remote",))
        assert not table.inexact
        assert len(every) >= len(table)
        for number in range(len(every)):
            same = (table.first == every.first[number]) & (table.end == every.end[number])
            assert (
                same
                & (table.time <= every.time[number])
                & (table.kept <= every.kept[number])
                & ((table.need <= every.need[number]) | ~table.kept.any())
            ).any()


@pytest.mark.parametrize("seed", range(12))
def test_bounding_rows_are_at_least_as_good_as_anything(seed: int) -> None:
    instance = random_phases(seed, layers=(3, 5), training=True, skips=True, prefetch=False,
                             recomputations=(1, 2), budgets=False, memory=10**6)  # fmt: skip
    few = TUNING.changed({"policies": {"labels": 4}})  # so that labels are merged
    costs = RangeCosts(instance, instance.microbatches[0], tuning=few)
    real = find_policies(costs, every=True)

    def needs(rows: PolicyRows) -> Array:
        return np.asarray(costs.steps * rows.kept + rows.last_peak)

    rows = find_policies(costs, bounding=True)
    for at in range(len(real)):
        assert (
            (rows.group == real.group[at])
            & (rows.stored <= real.stored[at])
            & (rows.kept <= real.kept[at])
            & (rows.again <= real.again[at])
            & (needs(rows) <= needs(real)[at])
        ).any()


def test_budgets_keep_all_policies_and_modes() -> None:
    instance = PhaseSchedule.from_arrays(
        [1, 1], [1, 1], [1, 1, 1], tape=[1, 1], backward=[1, 1], steps=2, training=True,
        policies=list(Policy), tiles=4, io_tiles=(1, 1),
    )  # fmt: skip
    few = group_options(instance, 1, 1)
    many = group_options(instance, 1, 1, distinguish=["graphs"])
    pairs = Counter((option.first, option.end) for option in many)
    assert sum((option.first, option.end) == (0, 2) for option in few) == 1
    assert pairs == {(0, 1): 3 * 2 * 2, (0, 2): 3 * 3 * 2, (1, 2): 3 * 2}
    assert len({option.graphs for option in many if option.end == 1}) == pairs[0, 1]
    assert sum(1 for _ in many) == len(many)


def test_the_table_has_only_what_fits() -> None:
    instance = random_phases(3, layers=(4, 4), budgets=False).replace(memory=40)
    for io_tiles in instance.io_tile_choices:
        table = group_options(instance, instance.microbatches[0], io_tiles)
        capacity, _ = capacities(instance, io_tiles)
        assert table.capacity == capacity
        assert all(max(option.needs) <= table.capacity for option in table)


def test_options_are_told_apart_by_known_words_only() -> None:
    with pytest.raises(ValueError, match="not by"):
        group_options(random_phases(0), 3, 0, distinguish=["prefetch"])


def test_no_time_leaves_rows_that_others_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option table that is cut short has too many options, never too few."""
    often = TUNING.changed({"options": {"comparisons_at_once": 1}})
    instance = random_phases(7, layers=(5, 5), training=True, skips=False, budgets=False,
                             prefetch=False, recomputations=(1,), memory=10**6)  # fmt: skip
    instance = instance.replace(policies=list(Policy))
    costs = RangeCosts(instance, instance.microbatches[0], tuning=often)
    rows = find_policies(costs, every=True)
    whole = OptionTable(costs, rows, 0)
    blocks: list[object] = []

    def compare(*arguments: Any) -> None:
        blocks.append(arguments)
        undominated(*arguments)

    monkeypatch.setattr(options, "undominated", compare)
    cut = OptionTable(costs, rows, 0, keep_going=lambda: len(blocks) < 2)
    assert len(blocks) == 2
    assert len(cut) > len(whole)
    columns = ("first", "end", "time", "kept", "need")
    found = [
        set(zip(*(getattr(table, name).tolist() for name in columns), strict=True))
        for table in (whole, cut)
    ]
    assert found[0] <= found[1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=14), st.integers(1, 14))
def test_undominated_rows(found: list[tuple[int, int, int, int]], step: int) -> None:
    rows = sorted(found)  # the first is the group
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    stays = np.ones(len(rows), dtype=bool)
    begin = np.searchsorted(table[:, 0], table[:, 0]).astype(np.int64)
    for low in range(0, len(rows), step):
        undominated(table, begin, stays, low, min(len(rows), low + step))
    for i, row in enumerate(rows):
        better = [
            other
            for j, other in enumerate(rows)
            if other[0] == row[0]
            and all(a <= b for a, b in zip(other, row, strict=True))
            and (other != row or j < i)
        ]
        assert stays[i] == (not better)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=14), st.integers(1, 40))
def test_best_labels(rows: list[tuple[int, int, int]], comparisons: int) -> None:
    labels = np.array(rows, dtype=np.int64).reshape(-1, 3)
    tuning = TUNING.changed({"policies": {"comparisons_at_once": comparisons}})
    found = policies.best_labels(labels, lambda: True, tuning)
    assert found is not None
    stopped = policies.best_labels(labels, lambda: False, tuning)
    left = [rows[i] for i in found]
    assert len(set(left)) == len(left)
    assert set(left) == {
        row for row in rows
        if not any(o != row and all(a <= b for a, b in zip(o, row, strict=True)) for o in rows)
    }  # fmt: skip
    assert stopped is None or comparisons >= len(rows)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=30), st.integers(2, 8))
def test_clusters_hold_alike_labels(rows: list[tuple[int, int, int]], most: int) -> None:
    labels = np.array(rows, dtype=np.int64)
    cluster = policies.clustered(labels, most)
    distinct = len(set(rows))
    assert set(cluster.tolist()) == set(range(len(set(cluster.tolist()))))
    assert min(distinct, 2) <= len(set(cluster.tolist())) <= most
    if len(set(cluster.tolist())) < most:  # nothing was left to part
        for number in set(cluster.tolist()):
            assert len({rows[i] for i in np.flatnonzero(cluster == number)}) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=12))
def test_frontier_of_labels(labels: list[tuple[int, int, int]]) -> None:
    state, kept, cycles = (np.array(column, dtype=np.int64) for column in
                           (zip(*labels, strict=True) if labels else ([], [], [])))  # fmt: skip
    stays = frontier(state, kept, np.lexsort((kept, cycles, state)))
    left = [labels[i] for i in np.flatnonzero(stays)]
    for label in labels:
        assert any(a[0] == label[0] and a[1] <= label[1] and a[2] <= label[2] for a in left)
    for one, other in itertools.permutations(left, 2):
        assert not (one[0] == other[0] and one[1] <= other[1] and one[2] <= other[2])
