"""Several memories: enumeration, structured cases, relations, reasons, and who refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.evidence import Proof
from stagepack.formulations import packing as formulations
from stagepack.instances.packing import LmemPacking, Memory, Objective, PackingSolution
from stagepack.methods import packing as methods
from stagepack.result import Result, Status
from stagepack.verify import verify
from tests.packing_cases import FEATURES, brute_force, random_packing

OBJECTIVES = [
    objective
    for objective in (Objective.PEAK, Objective.FIT, Objective.SPILL, Objective.PENALTIES)
    if objective in methods.TABLE.known
]
EXACT = ("auto", "cp-sat", "milp")


def random_case(seed: int, pinned: bool = False) -> LmemPacking | None:
    """Return a random packing with memories; None where options contradict one another.

    Parameters
    ----------
    seed : int
    pinned : bool
        Each buffer has one home.
    """
    rng = np.random.default_rng(seed)
    share = float(rng.choice([0.0, 0.2, 0.4]))
    some = [name for name in FEATURES if name != "banks" and rng.random() < share]
    try:
        objective, n = OBJECTIVES[seed % len(OBJECTIVES)], int(rng.integers(3, 6))
        instance = random_packing(rng, features=["memories", *some], objective=objective, n=n)
        if pinned:
            at = rng.integers(0, len(instance.memories), instance.n)
            for group in instance.colocated:
                at[list(group)] = at[group[0]]
            homes = at[:, None] == np.arange(len(instance.memories))
            instance = instance.replace(homes=homes)
    except InputError:
        return None
    return instance


def agree(instance: LmemPacking, method: str, seed: int) -> None:
    """Require the answer of an enumeration."""
    best = brute_force(instance)
    result = sp.solve(instance, method=method, time_limit=20)
    if best is None:
        assert result.status is Status.INFEASIBLE, seed
        assert result.reason
    elif instance.objective is Objective.FIT:
        assert result.solution is not None, seed
        assert result.bound is not None
        assert result.bound <= instance.evaluate(best), seed
    else:
        assert result.status is Status.OPTIMAL, (seed, result.reason)
        assert result.objective == instance.evaluate(best), seed
    checked = sp.check_result(instance, result)
    assert not checked.false, seed
    if result.proof == "witness":
        named = {claim.name: claim.verdict for claim in checked.claims}
        assert named.get("bound", named["status"]) == "confirmed", (seed, result.evidence)


def taken(instance: LmemPacking, method: str) -> bool:
    """Tell whether a method takes an instance."""
    one = next(one for one in methods.METHODS if one.name == method)
    return not (one.unsupported(instance) or one.declines(instance))


@pytest.mark.parametrize("method", EXACT)
def test_random_memories_against_the_enumeration(method: str) -> None:
    for seed in range(5000, 5024):
        instance = random_case(seed)
        if instance is None or not taken(instance, method):
            continue
        agree(instance, method, seed)


def test_random_memories_without_a_choice() -> None:
    for seed in range(6000, 6030):
        instance = random_case(seed, pinned=True)
        if instance is not None:
            agree(instance, "auto", seed)


# ---------------------------------------------------------------------- structured cases


def peaks(instance: LmemPacking, result: Result[PackingSolution]) -> tuple[int, ...]:
    """Return the peak of each memory of an answer."""
    assert result.solution is not None
    return sp.measure(instance, result.solution).peaks


def layers(n: int = 24, **options: Any) -> LmemPacking:
    """Return a chain of n buffers, each alive with the next, in a small and a large memory."""
    size = [16 * (1 + 7 * i % 5) for i in range(n)]
    start = list(range(n))
    memories = [("fast", 160), ("slow", 10**6)]
    given: dict[str, Any] = {"memories": memories, "objective": "peak", **options}
    return LmemPacking.from_arrays(size, start, [at + 2 for at in start], **given)


def one_home(instance: LmemPacking, at: list[int]) -> LmemPacking:
    return instance.replace(homes=np.array(at)[:, None] == np.arange(len(instance.memories)))


def test_each_memory_apart_is_the_instance_of_that_memory() -> None:
    instance = one_home(layers(), [i % 3 > 0 for i in range(24)])
    result = sp.solve(instance)
    assert result.status is Status.OPTIMAL
    for index, peak in enumerate(peaks(instance, result)):
        assert instance.homes is not None
        alone = instance.within(
            index, np.flatnonzero(instance.homes[:, index]).tolist(), objective="peak"
        )
        assert sp.solve(alone).objective == peak
    assert result.proof == "witness"
    assert not sp.check_result(instance, result).false


def test_pins_at_an_offset_in_one_memory() -> None:
    fixed = np.full(24, -1)
    fixed[[3, 4]] = 96, 16
    instance = layers(fixed=fixed, homes={3: "fast", 4: "fast"}, objective="fit")
    result = sp.solve(instance)
    assert result.solution is not None
    assert result.solution.offsets[[3, 4]].tolist() == [96, 16]
    assert result.solution.memory is not None
    assert result.solution.memory[[3, 4]].tolist() == [0, 0]


def test_a_capacity_that_the_peak_alone_ignores_is_kept() -> None:
    """One memory's objective `peak` does not enforce a capacity; of several it is a rule."""
    size, start, end = [4, 4, 6], [0, 1, 2], [2, 3, 4]
    at = [[True, False]] * 3
    for capacity, status in ((10, Status.OPTIMAL), (9, Status.INFEASIBLE)):
        instance = LmemPacking.from_arrays(
            size, start, end, memories=[("a", capacity), ("b", 50)], homes=np.array(at),
            objective="peak",
        )  # fmt: skip
        assert sp.solve(instance).status is status


def test_reserved_ranges_and_alignment_of_memories_are_kept_by_spilling() -> None:
    memories = [
        Memory("fast", 64, 1, ((16, 24),), 8),
        Memory("slow", 512, 5, ((0, 32),), 16),
    ]
    instance = layers(memories=memories, objective="spill", homes={0: "slow", 5: "fast"})
    for method in ("spill-by-value", "cp-sat", "auto"):
        result = sp.solve(instance, method=method, time_limit=10)
        assert result.solution is not None, method
        assert instance.check(result.solution) == ()
    assert sp.solve(instance).status is Status.OPTIMAL


# ---------------------------------------------------------------------- relations


def test_relations_of_memories_and_homes() -> None:
    """One more home or byte never costs; the order of memories, or one by name, says nothing."""
    for seed in range(7000, 7030):
        instance = random_case(seed)
        if instance is None or instance.objective is Objective.FIT:
            continue
        m, n = len(instance.memories), instance.n
        worth = value(instance)
        wider = instance.replace(homes=None)
        assert value(wider) <= worth, seed
        larger = [
            Memory(x.name, x.capacity and x.capacity + 4, x.cost, x.reserved, x.alignment)
            for x in instance.memories
        ]
        assert value(instance.replace(memories=larger)) <= worth, seed
        homes = np.ones((n, m), dtype=bool) if instance.homes is None else instance.homes
        turned = instance.replace(memories=instance.memories[::-1], homes=homes[:, ::-1])
        assert value(turned) == worth, seed


def value(instance: LmemPacking) -> float:
    """Return the optimum; infinite where nothing fits."""
    result = sp.solve(instance, time_limit=20)
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE), result.reason
    return np.inf if result.objective is None else result.objective


def test_one_memory_by_name_is_the_instance_without() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        some = [name for name in ("alignment", "gaps", "reserved") if rng.random() < 0.5]
        alone = random_packing(rng, features=some, objective="fit", n=6)
        named = alone.replace(capacity=None, memories=[("only", alone.capacity)])
        one, other = sp.solve(alone), sp.solve(named)
        assert (one.solution is None) == (other.solution is None), seed
        free = alone.replace(capacity=None, objective="peak")
        assert value(free) == value(free.replace(memories=[("only", None)])), seed


# ---------------------------------------------------------------------- what people read


def test_the_reason_names_the_memory_what_is_missing_and_another_home() -> None:
    size, start, end = [40, 30, 30, 10], [0, 0, 1, 0], [2, 2, 3, 3]
    homes = {0: "fast", 1: "fast", 2: "fast"}
    instance = LmemPacking.from_arrays(
        size, start, end, memories=[("fast", 90), ("slow", 50)], homes=homes
    )
    result = sp.solve(instance)
    assert result.status is Status.INFEASIBLE
    assert "give fast 10 bytes more, or allow buffer 1 in slow" in result.reason
    assert result.proof == "witness"
    assert not sp.check_result(instance, result).false


def test_what_only_a_search_refutes_says_in_which_memory() -> None:
    from tests.packing_cases import tight

    given = tight()
    homes = np.zeros((given.n, 2), dtype=bool)
    homes[:, 0] = True
    instance = given.replace(memories=[("fast", 16), ("slow", 20)], homes=homes, objective="fit")
    result = sp.solve(instance)
    assert result.status is Status.INFEASIBLE
    assert result.reason.startswith("fast: ")
    assert "a capacity of 17 would do, 1 more" in result.reason
    assert "or allow buffer" in result.reason
    assert "in slow" in result.reason


def test_a_buffer_without_a_memory_is_named() -> None:
    instance = LmemPacking.from_arrays(
        [8, 99], [0, 0], [1, 1], ids=["a", "b"], memories=[("x", 10), ("y", 20)]
    )
    result = sp.solve(instance)
    assert result.status is Status.INFEASIBLE
    assert "buffer b of 99 bytes fits in none of its memories: x (10), y (20)" in result.reason
    assert not sp.check_result(instance, result).false


def test_what_is_no_proof_of_memories_is_not_taken_for_one() -> None:
    size, start, end = [40, 30, 20], [0, 0, 0], [2, 2, 2]
    given = LmemPacking.from_arrays(
        size, start, end, memories=[("fast", 90), ("slow", 50)], homes={0: "fast", 1: "fast"},
        objective="peak",
    )  # fmt: skip
    honest = [{"memories": [0], "moment": 0}]
    both = [{"memories": [0, 1], "moment": 0}]

    def shown(bound: int | None, sets: list[dict[str, object]]) -> bool:
        return (
            verify(given, bound, Proof.WITNESS, {"rule": "memories", "sets": sets}).proof
            is not None
        )

    assert shown(70, honest)
    assert shown(90, both)
    assert not shown(91, both)
    assert not shown(140, honest * 2)
    assert not shown(160, honest + both)
    assert not shown(None, honest)
    assert not shown(91, [{"memories": [0, 1], "moment": 5}])


def test_every_other_method_refuses_several_memories_by_name() -> None:
    instance = layers()
    for method in methods.METHODS:
        if method.name in ("auto", "cp-sat", "milp", "spill-by-value"):
            assert not method.unsupported(instance), method.name
            continue
        with pytest.raises(InputError, match=f"method {method.name}: "):
            sp.solve(instance, method=method.name)
    own = layers(memories=[Memory("a", 500, alignment=4), Memory("b", 500)])
    with pytest.raises(InputError, match="milp: takes no memories with reserved ranges"):
        sp.solve(own, method="milp")


def test_a_start_that_is_given_is_no_worse_than_the_answer() -> None:
    instance = layers(objective="peak")
    first = sp.solve(instance, method="spill-by-value")
    pinned = one_home(instance, [0] * 4 + [1] * 20)
    for case in (instance, pinned):
        start = sp.solve(case, method="spill-by-value").solution or first.solution
        result = sp.solve(case, warm_start=start)
        assert result.objective is not None
        assert start is not None
        assert result.objective <= case.evaluate(start)


def test_runs_with_a_limit_of_work_repeat() -> None:
    rng = np.random.default_rng(3)
    start, size = rng.integers(0, 60, 120), 16 * rng.integers(1, 40, 120)
    homes = rng.random((120, 3)) < 0.8
    homes[:, 2] = True
    instance = LmemPacking.from_arrays(
        size, start, start + rng.integers(1, 20, 120), homes=homes, objective="peak",
        memories=[("a", 2500), ("b", 4000), ("c", None)],
    )  # fmt: skip
    options = {"deterministic": True}
    one, other = (sp.solve(instance, time_limit=1, options=options) for _ in range(2))
    assert one.objective == other.objective
    assert one.solution == other.solution


def test_python_takes_memories_and_homes() -> None:
    offsets, result = sp.pack(
        [4, 4, 4], [0, 0, 0], [1, 1, 1], memories=[("fast", "4B"), ("slow", 8)], homes={1: "fast"}
    )
    assert offsets is not None
    assert result.solution is not None
    assert result.solution.memory is not None
    assert result.solution.memory.tolist() == [1, 0, 1]


def test_one_memory_is_not_refuted_by_what_is_said_of_several() -> None:
    instance = LmemPacking.from_arrays([2, 3], [0, 0], [1, 1])
    everything = {"memories": [], "moment": 0}
    for bound in (None, 6):
        evidence = {"rule": "memories", "sets": [everything, everything]}
        found = verify(instance, bound, "witness", evidence)
        assert (found.shown, found.false) == (False, True)


def test_views_that_the_alignment_of_a_memory_cannot_have_live_in_another() -> None:
    instance = LmemPacking.from_arrays(
        [3, 3, 6, 4, 4],
        [0, 2, 3, 0, 2],
        [4, 4, 6, 1, 6],
        memories=[Memory("odd", 7), Memory("even", 10, alignment=2)],
        views=[(0, 2, 0), (1, 2, 3)],
        exclusive=[2],
        segment=8,
        alignment=[1, 2, 1, 2, 1],
        objective="fit",
    )
    sp.solve(instance, method="spill-by-value")  # which fails no check
    for method in ("auto", "cp-sat"):
        assert sp.solve(instance, method=method).solution is not None


def test_penalties_in_a_memory_without_an_end() -> None:
    """Groups that are aligned to 3, 4 and 5 lie 60 bytes apart."""
    for others in ((), (Memory("tiny", 1),)):
        instance = LmemPacking.from_arrays(
            [2] * 6,
            [0, 1, 2] * 2,
            [1, 2, 3] * 2,
            alignment=[3, 4, 5] * 2,
            colocated=[(0, 1, 2), (3, 4, 5)],
            penalties=[(0, 4, 1)],
            objective="penalties",
            memories=[Memory("endless", None), *others],
        )
        result = sp.solve(instance)
        assert (result.status, result.objective) == (Status.OPTIMAL, 0)


def test_what_is_reserved_in_a_memory_without_an_end_is_no_end_to_models() -> None:
    instance = LmemPacking.from_arrays(
        [3, 4],
        [0, 0],
        [1, 1],
        objective="peak",
        memories=[Memory("high", None, reserved=((0, 100),), alignment=8), Memory("tiny", 2)],
    )
    assert not formulations.CpSat(instance).infeasible
    for method in ("auto", "cp-sat"):
        result = sp.solve(instance, method=method)
        assert (result.status, result.objective) == (Status.OPTIMAL, 115)


def test_every_memory_that_lacks_bytes_is_named() -> None:
    crowded = LmemPacking.from_arrays(
        [3, 3, 3, 4], [0] * 4, [1] * 4, memories=[("near", 5), ("far", 4)],
        homes={0: ["near"], 1: ["near"], 2: ["far"], 3: ["far"]},
    )  # fmt: skip
    assert "lacks 3 bytes, too" in sp.solve(crowded).reason
