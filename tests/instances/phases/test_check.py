"""The checker and the evaluator, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.plan import plan
from tests.instances.phases.examples import two_groups, two_layers, unet


def rules(instance: PhaseSchedule, solution: PhaseSolution) -> list[str]:
    return [violation.rule for violation in instance.check(solution)]


# ---------------------------------------------------------------------- times


@pytest.mark.parametrize(("cut", "time"), [(2, 356), (3, 404)])
def test_packing_from_the_head_is_not_best(cut: int, time: int) -> None:
    instance = PhaseSchedule.from_arrays(
        [4] * 6,
        [6] * 6,
        [8, 8, 2, 8, 2, 8, 2],
        memory=30,
        remote_bandwidth=2,
        host_bandwidth=2,
        steps=8,
        modes=["compute"],
    )
    solution = PhaseSolution((0, cut, 6), ("compute",) * 2)
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == time
    four = PhaseSolution((0, 4, 6), ("compute",) * 2)
    (violation,) = instance.check(four)
    assert violation.rule == "memory"
    assert "layers 0 to 3) needs 32 bytes" in violation.detail
    assert "2 too many" in violation.detail


@pytest.mark.parametrize(
    ("policy", "cycles", "peaks"),
    [
        # V, L, C, S, E of F0, FB1, B0.
        ("stash", [(5, 2, 7, 6, 0), (10, 7, 27, 7, 19), (5, 8, 14, 0, 11)], [28, 62, 38]),
        ("keep", [(5, 2, 7, 4, 0), (10, 7, 27, 7, 19), (5, 6, 14, 0, 11)], [31, 68, 41]),
        ("recompute", [(5, 2, 7, 4, 0), (10, 7, 27, 7, 19), (5, 6, 21, 0, 11)], [28, 62, 46]),
    ],
)
def test_two_layers_by_hand(policy: str, cycles: Any, peaks: Any) -> None:
    instance, solution = two_layers(), two_groups(policy)
    assert instance.check(solution) == ()
    drawn = plan(instance, solution)
    parts = [part.cycles for part in drawn.phases]
    assert [
        (c.variables + c.gather, c.load, c.compute, c.store, c.epilogue) for c in parts
    ] == cycles
    assert [part.peak for part in drawn.phases] == peaks
    times = [1 + v + 2 * (load + c + store) + e for v, load, c, store, e in cycles]
    assert [part.time for part in drawn.phases] == times
    assert instance.evaluate(solution) == sum(times) == drawn.time
    most = max(peaks)
    assert instance.replace(memory=most).check(solution) == ()
    short = instance.replace(memory=most - 1).check(solution)
    assert [violation.rule for violation in short] == ["memory"]
    assert f"needs {most} bytes" in short[0].detail
    assert "1 too many" in short[0].detail


def test_naive_loads_variables_in_every_step() -> None:
    instance = two_layers()
    slow = two_groups(mode=("naive", "compute", "compute"))
    assert instance.evaluate(slow) == instance.evaluate(two_groups()) + 5


def test_a_stash_that_later_groups_read_anyway_is_stored_once() -> None:
    # Layer 1 is in the first group and reads x_1; so does layer 2, of the second group.
    instance = PhaseSchedule.from_arrays(
        [0] * 3,
        [1] * 3,
        [0, 8, 2, 1],
        skips=[(0, 2)],
        remote_bandwidth=1,
        training=True,
        modes=["compute"],
    )
    solution = PhaseSolution((0, 2, 3), ("compute",) * 3, policy=("stash",) * 3)
    first, last, back = (part.cycles for part in plan(instance, solution).phases)
    assert first.store == 8 + 2
    assert last.load == 8 + 2
    assert last.store == 8 + 2  # both gradients
    assert back.load == 8 + 8 + 2  # the stash, and both gradients
    assert back.store == 0


def test_a_gradient_of_several_groups_is_loaded_and_stored_again() -> None:
    instance = PhaseSchedule.from_arrays(
        [0] * 3,
        [1] * 3,
        [0, 8, 2, 1],
        skips=[(0, 2)],
        remote_bandwidth=1,
        training=True,
        modes=["compute"],
    )
    solution = PhaseSolution((0, 1, 2, 3), ("compute",) * 5, policy=("stash",) * 3)
    parts = {part.phase.name: part.cycles for part in plan(instance, solution).phases}
    assert parts["FB2"].store == 8 + 2
    assert parts["B1"].load == 8 + 2 + 8  # x_1, dy of x_2, what FB2 has stored of dx_1
    assert parts["B1"].store == 8
    assert parts["B0"].load == 8


def test_sharded_variables_are_gathered_and_gradients_scattered() -> None:
    plain = two_layers(gather_bandwidth=3)
    sharded = two_layers(gather_bandwidth=3, sharding=[2, 3])
    one = [part.cycles for part in plan(plain, two_groups()).phases]
    two = [part.cycles for part in plan(sharded, two_groups()).phases]
    assert [(c.variables, c.gather) for c in one] == [(5, 0), (10, 0), (5, 0)]
    # ceil(10 / 2) = 5 bytes, then 5 more; ceil(20 / 3) = 7 bytes, then 13 more.
    assert [(c.variables, c.gather) for c in two] == [(3, 2), (4, 5), (3, 2)]
    # scatter 5, state ceil(2/2), update 3, variables and state ceil((7+2)/2).
    assert two[1].epilogue == 5 + 1 + 3 + 5


def test_prefetching_hides_what_the_loop_leaves_time_for() -> None:
    instance = two_layers(
        prefetch=True, tiles=10, io_tiles=(0, 2), modes=["io", "io_overlapped"], memory=1000
    )
    plans = {
        flags: two_groups(mode=("io",) * 3, io_tiles=1, prefetch=flags)
        for flags in [(False,) * 3, (True, False, False), (True, True, False)]
    }
    assert all(instance.check(p) == () for p in plans.values())
    times = [instance.evaluate(p) for p in plans.values()]
    # C of F0 is ceil(7 * 10 / 9) = 8 in two steps: all ten cycles of FB1's variables are hidden.
    assert times[0] - times[1] == 10
    assert times[1] - times[2] == 5
    held = [[part.peak for part in plan(instance, p).phases] for p in plans.values()]
    assert [after - before for before, after in zip(held[0], held[2], strict=True)] == [20, 10, 0]


# ---------------------------------------------------------------------- memory on I/O tiles


def test_overlapped_loops_buffer_a_set_more_of_inputs_and_outputs() -> None:
    instance = two_layers(tiles=10, io_tiles=(0, 5), modes=["io", "io_overlapped"], memory=200)
    solution = two_groups(mode=("io_overlapped",) * 3, io_tiles=1)
    drawn = plan(instance, solution)
    # F0: x_0 in, x_1 and the tape out; FB1: x_1 in, dx_1 out, its tape both; B0: all in.
    assert [part.buffer_bytes for part in drawn.phases] == [6 + 11, 13 + 13, 6 + 11]
    assert [v.rule for v in instance.check(solution)] == ["io-memory"]
    assert rules(instance, replace(solution, io_tiles=2)) == []
    assert rules(instance, replace(solution, mode=("io",) * 3)) == []
    once = two_layers(steps=1, tiles=10, io_tiles=(0, 5), modes=["io_overlapped"], memory=200)
    assert plan(once, solution).phases[1].buffer_bytes == 0


# ---------------------------------------------------------------------- named violations


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"boundaries": (0, 2)}, "mode"),
        ({"boundaries": (0, 2, 1)}, "boundaries"),
        ({"boundaries": (1, 2)}, "boundaries"),
        ({"boundaries": (0, 1, 1, 2)}, "boundaries"),
        ({"boundaries": ()}, "boundaries"),
        ({"mode": ("compute", "magic", "compute")}, "mode"),
        ({"mode": ("compute", "io", "compute")}, "mode"),
        ({"io_tiles": 7}, "io-tiles"),
        ({"io_tiles": -1}, "io-tiles"),
        ({"microbatch": 3}, "microbatch"),
        ({"policy": ("stash",)}, "policy"),
        ({"policy": ("stash", "hope")}, "policy"),
        ({"prefetch": (True,)}, "prefetch"),
        ({"prefetch": (True, False, False)}, "prefetch"),
        ({"recompute": ((), (), ())}, "recompute"),
        ({"recompute": ((0,), ())}, "recompute"),
        ({"policy": ("recompute", "stash"), "recompute": ((), ())}, "recompute"),
    ],
)
def test_violations_have_names(changes: Any, rule: str) -> None:
    assert rule in rules(two_layers(), two_groups(**changes))


def test_limits_of_the_instance() -> None:
    solution = two_groups()
    assert rules(two_layers(fixed_boundaries=(0, 2)), solution) == ["fixed-boundaries"]
    assert rules(two_layers(policies=["keep"]), solution) == ["policy", "policy"]
    assert rules(two_layers(modes=["naive"]), solution) == ["mode"] * 3
    drawn = plan(two_layers(), solution)
    assert drawn.graphs == 3
    assert rules(two_layers(graphs=2), solution) == ["graphs"]
    assert rules(two_layers(graphs=3), solution) == []
    # Variables and state 40; x_1 and dx_1 share rows of 8, tapes 3 and 5; two steps.
    assert drawn.remote_bytes == 40 + 2 * (2 * 8 + 3 + 5)
    assert rules(two_layers(remote_memory=drawn.remote_bytes), solution) == []
    assert rules(two_layers(remote_memory=drawn.remote_bytes - 1), solution) == ["remote-memory"]


def test_prefetching_needs_io_tiles_and_a_next_phase() -> None:
    allowed = two_layers(prefetch=True, tiles=4, io_tiles=(0, 1), modes=["compute", "io"])
    assert rules(allowed, two_groups(prefetch=(True, False, False))) == ["prefetch"]
    last = two_groups(mode=("io",) * 3, io_tiles=1, prefetch=(False, False, True))
    assert "prefetch" in rules(allowed, last)


def test_layers_of_one_class_share_graphs() -> None:
    four = PhaseSchedule.from_arrays(
        [1] * 4, [1] * 4, [1] * 5, layer_class=[0, 1, 1, 2], training=True, modes=["compute"]
    )
    solution = PhaseSolution((0, 1, 2, 3, 4), ("compute",) * 7, policy=("stash",) * 4)
    assert plan(four, solution).graphs == 5
    other = replace(solution, mode=("compute", "naive", *("compute",) * 5))
    assert plan(four.replace(modes=["naive", "compute"]), other).graphs == 6


# ---------------------------------------------------------------------- recomputation


def test_the_order_in_a_chain_follows_from_the_policies() -> None:
    instance = two_layers(fixed_boundaries=(0, 2))
    solution = PhaseSolution((0, 2), ("compute",), policy=("recompute", "recompute"))
    # Backward of layer 1 reads x_1 and its own tape: both layers run again before it.
    assert solution.canonical_recompute(instance, (0, 2), solution.policy) == ((), (0, 1))
    assert instance.check(solution) == ()
    assert rules(instance, replace(solution, recompute=((), (0, 1)))) == []
    assert rules(instance, replace(solution, recompute=((0,), (1,)))) == ["recompute"]
    assert rules(two_layers(recomputations=0), solution) == ["recompute", "recompute"]


def test_a_long_skip_may_be_kept_for_a_while_or_computed_twice() -> None:
    instance = unet()
    keep = PhaseSolution((0, 4), ("compute",), policy=("keep",) * 4)
    once = replace(keep, policy=("recompute", *("keep",) * 3), recompute=((), (0,), (), ()))
    twice = replace(once, recompute=((), (0,), (), (0,)))
    assert [rules(instance, p) for p in (keep, once, twice)] == [[], [], []]
    assert [instance.evaluate(p) for p in (keep, once, twice)] == [12, 13, 14]
    held = [dict(plan(instance, p).phases[0].memory) for p in (keep, once, twice)]
    # x_0, x_2 and three gradients; x_1 where it is kept, not where it will be computed again.
    rest = 1 + 20 + (10 + 20 + 30)
    assert [moments["backward of layer 2"] for moments in held] == [rest + 10, rest, rest]
    # Layer 3 reads x_1 going back: kept until then, or computed again for it.
    assert len({moments["backward of layer 3"] for moments in held}) == 1


@pytest.mark.parametrize(
    "again",
    [
        ((), (), (), ()),  # never
        ((0,), (0,), (0,), ()),  # three times
        ((), (0, 0), (), ()),  # twice at once
        ((), (1,), (), ()),  # layer 1 is kept
        ((3,), (), (), (0,)),  # a later layer
    ],
)
def test_sequences_that_cannot_be(again: Any) -> None:
    solution = PhaseSolution(
        (0, 4), ("compute",), policy=("recompute", *("keep",) * 3), recompute=again
    )
    assert set(rules(unet(), solution)) == {"recompute"}


def test_a_tensor_must_be_there_when_it_is_used() -> None:
    # In a backward phase nothing of a dropped layer exists before it is computed again.
    instance = unet(fixed_boundaries=None, policies=["recompute", "stash"])
    solution = PhaseSolution(
        (0, 3, 4),
        ("compute",) * 3,
        policy=("recompute", "recompute", "stash", "stash"),
        recompute=((), (0,), (1,), ()),
    )
    found = instance.check(solution)
    assert {violation.rule for violation in found} == {"recompute"}
    assert any("x1 is not there for the recompute of layer 1" in v.detail for v in found)
    right = replace(solution, recompute=((), (), (0, 1), ()))
    assert instance.check(right) == ()
