"""What buffers have to do with one another: every method, on instances as networks have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formulations import packing as formulations
from stagepack.instances.packing import Banks, LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import METHODS
from stagepack.verify import verify
from tests.packing_cases import Random, brute_force, random_packing

EXACT = ("auto", "exact", "cp-sat")


def chain(rng: Random) -> LmemPacking:
    """Return a chain of layers, with pairs far apart in time that must keep apart."""
    n = 6
    far = [(i, j) for j in range(n) for i in range(j - 1) if rng.random() < 0.4]
    return LmemPacking.from_arrays(
        rng.integers(1, 6, n), np.arange(n), np.arange(n) + 2, apart=far, exclusive=[n - 1]
    )


def concatenation(rng: Random) -> LmemPacking:
    """Return a host that three views fill at different times, beside what its parts are made of."""
    parts = rng.integers(1, 4, 3)
    at = np.concatenate([[0], np.cumsum(parts)])
    size = [*parts, at[3], *rng.integers(1, 5, 3)]
    return LmemPacking.from_arrays(
        size,
        [0, 2, 3, 4, 0, 1, 3],
        [4, 4, 4, 6, 2, 4, 5],
        views=[(i, 3, int(at[i])) for i in range(3)],
        alignment=rng.choice([1, 2], 7) if rng.random() < 0.5 else 1,
    )


def branches(rng: Random) -> LmemPacking:
    """Return two branches of which one is taken, beside what is alive in both."""
    exempt = [(i, j) for i in (0, 1, 2) for j in (3, 4, 5)]
    start = rng.integers(0, 3, 7)
    end = start + rng.integers(1, 4, 7)
    return LmemPacking.from_arrays(rng.integers(1, 6, 7), start, end, exempt=exempt)


def modes(rng: Random) -> LmemPacking:
    """Return three modes with two buffers each, and one that some modes use together."""
    of = [0, 0, 1, 1, 2, 2, int(rng.integers(0, 3))]
    exempt = [(i, j) for j in range(7) for i in range(j) if of[i] != of[j]]
    return LmemPacking.from_arrays(rng.integers(1, 6, 7), [0] * 7, [2] * 7, exempt=exempt[1:])


def pages(rng: Random) -> LmemPacking:
    """Return buffers of 40, 24, 64 and 8 KiB in pages of 64 KiB, in units of 8 KiB."""
    size = rng.choice([5, 3, 8, 1], 6)
    start = rng.integers(0, 3, 6)
    return LmemPacking.from_arrays(size, start, start + rng.integers(1, 4, 6), segment=8)


SHAPES = (chain, concatenation, branches, modes, pages)


@pytest.mark.parametrize("make", SHAPES)
def test_agrees_with_trying_everything(make: Callable[[Random], LmemPacking]) -> None:
    for seed in range(4):
        instance = make(np.random.default_rng(seed))
        best = brute_force(instance)
        value = None if best is None else instance.evaluate(best)
        for method in METHODS:
            if method.unsupported(instance) or method.declines(instance):
                continue
            if method.name == "milp" and seed:
                continue
            seconds = 10 if method.exact else 0.1
            result: sp.Result[Any] = sp.solve(instance, method=method.name, time_limit=seconds)
            assert result.solution is None or value is not None
            if value is None:
                assert result.status == "INFEASIBLE" or not method.exact
            elif method.exact:
                assert (result.objective, result.bound) == (value, value)
            else:
                assert result.objective is not None
                assert result.objective >= value >= (result.bound or 0)
            if result.bound is not None and result.evidence:
                shown = verify(instance, result.bound, result.proof, result.evidence)
                assert not shown.false


def value(instance: LmemPacking) -> float:
    """Return the least peak; infinite where nothing fits."""
    result: sp.Result[Any] = sp.solve(instance, time_limit=10)
    assert result.status in ("OPTIMAL", "INFEASIBLE")
    return float("inf") if result.objective is None else float(result.objective)


def cases(count: int) -> Iterator[tuple[Random, LmemPacking]]:
    for seed in range(count):
        rng = np.random.default_rng(seed)
        features = [f for f in ("alignment", "gaps", "circular", "conflicts") if rng.random() < 0.2]
        yield rng, random_packing(rng, features=features, n=6)


def test_who_is_kept_apart_never_lowers_the_peak_and_who_is_exempt_never_raises_it() -> None:
    for rng, instance in cases(15):
        instance = instance.replace(capacity=None)
        known = value(instance)
        pairs = [(i, j) for j in range(6) for i in range(j) if rng.random() < 0.3]
        segment = int(instance.size.max()) + int(rng.integers(0, 4))
        assert value(instance.replace(apart=pairs)) >= known
        assert value(instance.replace(exclusive=[int(rng.integers(6))])) >= known
        assert value(instance.replace(segment=segment)) >= known
        assert value(instance.replace(exempt=pairs)) <= known
        order = rng.permutation(6)
        related = instance.replace(apart=pairs[:2], exempt=pairs[2:], segment=segment)
        assert value(related.select(order.tolist())) == value(related)


def test_what_says_nothing_new_changes_nothing() -> None:
    for _, instance in cases(20):
        if instance.gaps:
            continue
        known = value(instance)
        ptr, other = Blocks.of(instance).neighbours()
        meet = [(i, int(j)) for i in range(6) for j in other[ptr[i] : ptr[i + 1]] if i < j]
        assert value(instance.replace(apart=meet)) == known
        size = instance.size.copy()
        size[1] = size[0]
        together = instance.replace(size=size, colocated=[(0, 1)])
        assert value(instance.replace(size=size, views=[(1, 0, 0)])) == value(together)


def test_views_that_alignments_cannot_have_fit_nowhere() -> None:
    given: dict[str, Any] = {"alignment": [4, 2, 4], "views": [(1, 0, 2), (2, 0, 4)]}
    fine = LmemPacking.from_arrays([16, 2, 4], [0, 0, 0], [1, 1, 1], **given)
    assert sp.solve(fine).objective == 16
    lifted: sp.Result[Any] = sp.solve(fine.replace(alignment=[1, 2, 1], views=[(1, 0, 3)]))
    assert (lifted.objective, lifted.solution.offsets[1] % 2) == (21, 0)
    result: sp.Result[Any] = sp.solve(fine.replace(views=[(1, 0, 1), (2, 0, 4)]))
    assert result.status == "INFEASIBLE"
    assert "alignments of buffers 0, 1, 2 contradict their views" in result.reason
    wide: sp.Result[Any] = sp.solve(LmemPacking.from_arrays([9], [0], [1], segment=8))
    assert (wide.status, wide.proof) == ("INFEASIBLE", "witness")
    assert "buffer 0 has 9 bytes, more than a segment" in wide.reason


def test_reasons_name_who_is_kept_apart() -> None:
    instance = LmemPacking.from_arrays(
        [4, 4, 1], [0, 2, 0], [1, 3, 1], capacity=7, ids=["a", "b", "c"], apart=[(0, 1)]
    )
    result: sp.Result[Any] = sp.solve(instance)
    assert result.status == "INFEASIBLE"
    assert "buffers b, a" in result.reason or "buffers a, b" in result.reason
    assert "kept apart" in result.reason
    found: sp.Result[Any] = sp.solve(
        LmemPacking.from_arrays([5, 5, 5, 3], [0] * 4, [1, 1, 1, 2], segment=8, capacity=20)
    )
    assert "within segments of 8" in found.reason


def test_separations_of_many_are_few_sections() -> None:
    n = 250
    rng = np.random.default_rng(0)
    group = rng.integers(0, 25, n)
    apart = [(i, j) for j in range(n) for i in range(j) if group[i] == group[j] or j - i < 10]
    instance = LmemPacking.from_arrays(
        rng.integers(1, 99, n), np.arange(n), np.arange(n) + 3, apart=apart
    )
    blocks = Blocks.of(instance)
    assert blocks.sections - blocks.timed < len(apart) / 4
    heaviest = max(int(instance.size[group == g].sum()) for g in range(25))
    assert blocks.load.max() >= heaviest
    found = sp.solve(instance, time_limit=5)
    assert instance.check(found.solution) == ()


def test_a_view_lies_inside_its_host_on_the_map() -> None:
    from stagepack.report.packing import numbers

    instance = LmemPacking.from_arrays(
        [3, 8, 4], [1, 0, 0], [2, 4, 4], views=[(0, 1, 4)], exempt=[(1, 2)]
    )
    solution = PackingSolution.of(instance, [4, 0, 0])
    assert instance.check(solution) == ()
    drawn = numbers.rectangles(instance)
    assert drawn.buffer.tolist() == [1, 2, 0]
    assert numbers.load(instance, drawn, solution.offsets)[1].max() == 8


def test_reserved_bytes_come_on_top_of_what_is_held_not_of_what_alignment_leaves() -> None:
    """Views of other alignments leave bytes unused below them, where something is reserved."""
    instance = LmemPacking.from_arrays(
        [3, 4, 2, 1],
        [4, 0, 2, 0],
        [7, 3, 3, 1],
        alignment=[2, 1, 3, 3],
        gaps=[(0, 5, 6, 2, 3), (1, 2, 3, 1, 1), (2, 2, 3, 0, 1)],
        fixed=[-1, -1, -1, 0],
        reserved=[(1, 3)],
        banks=Banks(3, 4, np.array([[1, 3], [2, 3]]), 3),
        views=[(0, 1, 1), (2, 1, 0)],
        objective="bank-conflicts",
    )
    result: sp.Result[Any] = sp.solve(instance, method="cp-sat")
    assert (result.status, result.objective) == ("OPTIMAL", 13)


def test_moving_what_has_no_bytes_costs_nothing() -> None:
    instance = LmemPacking.from_arrays(
        [0, 2, 2], [0, 0, 0], [1, 1, 1], previous=[1, -1, -1], capacity=4, objective="moves"
    )
    for model in (formulations.CpSat, formulations.Milp):
        assert model(instance, lower=0).worth(0) == 0


def test_evidence_is_what_the_verifier_accepts() -> None:
    """Not another of the same rule, nor that of a bound where nothing fits."""
    instance = LmemPacking.from_arrays(
        [4, 1, 3, 2, 2, 2],
        [1, 1, 3, 0, 4, 3],
        [4, 3, 5, 1, 5, 5],
        alignment=[4, 2, 3, 3, 1, 3],
        exclusive=[2],
        exempt=[(0, 1), (0, 3), (0, 5), (1, 3), (1, 4), (2, 4), (2, 5), (3, 5)],
    )
    result: sp.Result[Any] = sp.solve(instance, method="portfolio")
    assert not sp.check_result(instance, result).false
    full = LmemPacking.from_arrays(
        [5, 5],
        [0, 0],
        [1, 1],
        capacity=11,
        reserved=[(3, 4)],
        penalties=[(0, 1, 1)],
        objective="penalties",
    )
    result = sp.solve(full)
    assert result.status == "INFEASIBLE"
    assert not sp.check_result(full, result).false


def test_segments_below_a_far_address_are_refused_by_name() -> None:
    far = LmemPacking.from_arrays([8, 8], [0, 0], [1, 1], fixed=[2**40, -1], segment=64)
    with pytest.raises(InputError, match=r"segments of 64 bytes .* give lower addresses"):
        sp.solve(far, time_limit=1)


def test_more_exemptions_than_are_looked_at_are_refused_by_name() -> None:
    n = 2_002
    many = LmemPacking.from_arrays(
        np.full(n, 8), np.arange(n), np.arange(n) + 2, exempt=[(i, i + 1) for i in range(n - 1)]
    )
    with pytest.raises(InputError, match=r"exempt: 2,002 buffers .* give conflicts"):
        sp.solve(many, time_limit=1)
