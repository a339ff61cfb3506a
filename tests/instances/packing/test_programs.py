"""Several programs in one arena, judged moment by moment and byte by byte."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats import door
from tests.instances.packing.moments import held
from tests.packing_cases import random_packing

FEATURES = ("gaps", "alignment", "colocated", "in-place", "lives", "exempt", "apart")
Place = tuple[int, int]
"""Program and buffer."""


def in_use(
    programs: list[sp.LmemPacking], shared: set[int], persistent: set[Place], after: bool
) -> dict[Place, dict[Place, set[int]]]:
    """Return the bytes above its offset that each buffer holds, by program and moment.

    Buffers of number 0 of the programs `shared` are one.
    """
    clock = [
        (p, t) for p, one in enumerate(programs) for t in range(one.start.min(), one.end.max())
    ]
    found = {}
    for p, program in enumerate(programs):
        for i in range(program.n):
            whole = set(range(program.size[i]))
            uses = {(p, t): used for t, used in held(program, i).items()}
            if (p, i) in persistent:
                uses = dict.fromkeys(clock, whole)
            elif after and i == 0 and p in shared and p < max(shared):
                heir = min(other for other in shared if other > p)
                end, begin = (p, program.end[0]), (heir, programs[heir].start[0])
                uses |= {at: whole for at in clock if end <= at < begin}
            found[p, i] = uses
    return found


def fits(
    programs: list[sp.LmemPacking],
    offsets: list[np.ndarray[Any, Any]],
    uses: dict[Place, dict[Place, set[int]]],
    shared: set[int],
    kept: list[set[int]],
    handed: set[int],
) -> bool:
    """Tell whether all rules are kept, by buffers `kept` and programs whose first is `handed`."""
    if len({int(offsets[p][0]) for p in shared}) > 1:
        return False
    for (p, i), (q, j) in combinations(uses, 2):
        program, distance = programs[p], int(offsets[q][j] - offsets[p][i])
        mine = p == q
        if i == j == 0 and {p, q} <= shared:
            continue
        if mine and any({i, j} <= set(group) for group in (*program.colocated, *program.exempt)):
            if any({i, j} <= set(group) for group in program.colocated) and distance:
                return False
            continue
        born = [int(program.start[i]), int(programs[q].start[j])]
        over = i == 0 and p in handed and born[1] >= born[0]  # a result in the place of what stays
        if mine and (i, j) in program.in_place and not (distance or over or {i, j} & kept[p]):
            continue
        apart = mine and (i, j) in program.apart
        one, other = uses[p, i], uses[q, j]
        if apart and -program.size[j] < distance < program.size[i] and program.size[[i, j]].all():
            return False
        if any(one[t] & {byte + distance for byte in other[t]} for t in one.keys() & other.keys()):
            return False
    return all((o % p.alignment == 0).all() for p, o in zip(programs, offsets, strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_merged_programs_are_right_where_each_moment_is(seed: int) -> None:
    rng = np.random.default_rng([45, seed])
    programs = []
    for at in range(int(rng.integers(2, 4))):
        chosen = [name for name in FEATURES if rng.random() < 0.3]
        one = random_packing(rng, features=chosen, n=int(rng.integers(2, 4)))
        ids = [f"s{i}" if i == 0 else f"{at}.{i}" for i in range(one.n)]
        programs.append(one.replace(ids=ids, name=f"p{at % 2}", capacity=None))
    shared = set(range(len(programs))) if rng.random() < 0.6 else set()
    persistent = {(p, i) for p, one in enumerate(programs) for i in range(1, one.n)
                  if rng.random() < 0.2 and not any(i in g for g in one.colocated)}  # fmt: skip
    after = bool(rng.random() < 0.5)
    if after and any(0 in group for one in programs for group in one.colocated):
        shared = set()
    kept = [{i for q, i in persistent if q == p} for p in range(len(programs))]
    handed = shared - {max(shared, default=0)} if after else set()
    merged = sp.merge_programs(
        programs,
        "after" if after else "never",
        shared=["s0"] if shared else [],
        persistent=[f"{p}.{i}" for p, i in persistent],
    )
    uses = in_use(programs, shared, persistent, after)
    start = np.cumsum(merged.size * merged.alignment.max()) - merged.size
    tried = [-(-start // merged.alignment) * merged.alignment]
    if not (merged.apart or merged.exempt):
        tried = [sp.solve(merged, "greedy-by-size").solution.offsets]
    tried += [rng.integers(0, 12, merged.n) for _ in range(30)]
    for _ in range(30):  # near what is right
        near = tried[0].copy()
        near[rng.integers(merged.n)] += rng.integers(-2, 3)
        tried.append(np.maximum(near, 0))
    for offsets in tried:
        solution = sp.PackingSolution.of(merged, offsets)
        parts = [part.offsets for part in sp.split_programs(programs, solution)]
        assert (merged.check(solution) == ()) == fits(programs, parts, uses, shared, kept, handed)


def two() -> list[sp.LmemPacking]:
    """Return two programs: a kept buffer each, and scratch."""
    return [
        sp.LmemPacking.from_arrays([10, 4, 6], [0, 1, 2], [2, 3, 4], ids=["state", "in", "out"],
                                   name="listen"),
        sp.LmemPacking.from_arrays([20, 6, 3], [5, 5, 6], [6, 7, 9], ids=["state", "out", "in"],
                                   name="speak"),
    ]  # fmt: skip


def test_persistent_parts_stack_and_scratch_is_shared() -> None:
    merged = sp.merge_programs(two(), persistent=["state"], capacity="48B", name="both")
    assert merged.ids is not None
    assert merged.ids[0] == "listen/state"
    result = sp.solve(merged)
    assert result.status is sp.Status.FEASIBLE or result.objective == 40
    least = sp.solve(merged.replace(objective="peak"))
    assert least.objective == 10 + 20 + max(4 + 6, 6 + 3)
    for program, part in zip(two(), sp.split_programs(two(), least), strict=True):
        assert program.check(part) == ()


@pytest.mark.parametrize("seed", range(25))
def test_what_is_always_there_goes_to_the_top_for_nothing(seed: int) -> None:
    rng = np.random.default_rng([47, seed])
    base = random_packing(rng, n=int(rng.integers(4, 7)))
    always = rng.permutation(base.n)[: int(rng.integers(1, 3))]
    merged = sp.merge_programs([base], persistent=[str(i) for i in always])
    peak = sp.solve(merged).objective
    assert peak is not None
    fixed = np.full(base.n, -1)
    fixed[always] = peak - np.cumsum(merged.size[always])
    top = merged.replace(fixed=fixed, capacity=int(peak), objective="fit")
    assert sp.solve(top).objective == peak


def test_what_is_handed_on_stays(tmp_path: Any) -> None:
    never = sp.merge_programs(two(), shared=["out"])
    after = sp.merge_programs(two(), "after", shared=["out"])
    assert never.end[2] == after.end[2] == 4  # at once
    third = two()[0].replace(name="again", ids=["a", "b", "c"])
    programs = [two()[0], third, two()[1]]
    after = sp.merge_programs(programs, "after", shared=["out"])
    assert (after.start[2], after.end[2], after.start[7]) == (2, 8, 8)
    door.write(after, tmp_path / "all.json")
    assert door.read(tmp_path / "all.json").digest == after.digest


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"together": "always"}, "together: is 'always'"),
        ({"shared": ["nobody"]}, "shared: 'nobody' is no buffer"),
        ({"shared": ["listen/out"]}, "shared: 'listen/out' is in one program only"),
        ({"persistent": ["nobody"]}, "persistent: 'nobody' is no buffer"),
        ({"programs": []}, "programs: is no list of programs"),
        ({"programs": [two()[0], 3]}, r"programs\[1\]: an int is no instance"),
        ({"programs": [two()[0].replace(period=9)]}, r"programs\[0\]: has period"),
        (
            {"programs": [two()[0].replace(conflicts=[(0, 1)])]},
            r"programs\[0\]: has conflicts; give it plain lifetimes",
        ),
        (
            {"programs": [two()[0], two()[1].replace(capacity=9, objective="peak")]},
            "capacity: is None and 9 in different programs; say that of the arena: capacity=",
        ),
        (
            {"programs": [two()[0], two()[1].replace(banks=sp.Banks(2, 99, np.zeros((0, 2))))]},
            "banks: are others in each program",
        ),
    ],
)
def test_what_does_not_go_together_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.merge_programs(**{"programs": two(), **given})


def test_solutions_of_something_else_are_not_split() -> None:
    with pytest.raises(InputError, match="has 2 offsets, and the programs 6 buffers"):
        sp.split_programs(two(), sp.PackingSolution(np.zeros(2, dtype=np.int64)))
