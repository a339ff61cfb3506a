"""Several programs in one arena: what they keep is stacked, what they only work with is shared.

The programs are laid on one time axis, each after the one before, so that buffers of two of them
never meet: whether they run in this order or in any other, never two at the same time, is the same
to addresses.  A persistent buffer is alive on the whole axis.  A buffer that programs share has one
offset in all of them; where one program hands it to the next it stays alive in between.  What is
kept so is overwritten by nobody: it takes part in no colocation, and no output takes its place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.base import require_instance
from stagepack.instances.packing.data import Banks, PackingSolution, Penalties, View
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.problem import KIND
from stagepack.instances.packing.profiled import different
from stagepack.result import Result

ALIKE = ("capacity", "reserved", "memories", "segment")
"""What is of the arena: programs must agree on it."""
COLUMNS = ("size", "alignment", "fixed", "accesses", "previous", "hint")


def merge_programs(
    programs: Sequence[LmemPacking],
    together: str = "never",
    *,
    shared: Collection[str] = (),
    persistent: Collection[str] = (),
    name: str = "programs",
    **changes: Any,
) -> LmemPacking:
    """Return the packing of several programs in one arena.

    Buffers are called ``program/buffer``, in the order of the programs; :func:`split_programs`
    takes a solution apart again.

    Parameters
    ----------
    programs : sequence of LmemPacking
        With lifetimes, not circular.
    together : str
        "never": they run in any order, but never at the same time.  "after": each runs after the
        one before, and what they share is handed on.
    shared : list of str
        Ids of buffers that have one place in all programs that have a buffer of this id.
    persistent : list of str
        Ids of buffers that keep their bytes while any program runs: ``buffer`` of each program
        that has it, or ``program/buffer``.
    name : str
        Of the whole.
    **changes
        Fields of :meth:`.LmemPacking.from_arrays` for the whole, such as ``capacity``.

    Raises
    ------
    InputError
        For programs that disagree on what is of the arena, that have conflicts or a period in
        place of plain lifetimes; for names that no program, or to be shared only one, has.
    """
    if together not in ("never", "after"):
        raise InputError(
            f"is {together!r}", field="together", remedy="never (at the same time), or after"
        )
    programs = _packings(programs)
    for at, program in enumerate(programs):
        for field in ("conflicts", "period"):
            if getattr(program, field) is not None:
                raise InputError(
                    f"has {field}", field=f"programs[{at}]", remedy="give it plain lifetimes"
                )
    first = list(accumulate((program.n for program in programs), initial=0))[:-1]
    own = [_ids(program) for program in programs]
    titles = different([program.name for program in programs])
    ids = [f"{title}/{one}" for title, names in zip(titles, own, strict=True) for one in names]
    index: dict[str, list[int]] = {}
    for at, one in enumerate(chain.from_iterable(own)):
        for called in (one, ids[at]):
            index.setdefault(called, []).append(at)
    start, end, shift = _axis(programs)
    kept = _found(persistent, "persistent", index)
    start[kept], end[kept] = start.min(), end.max()
    always = set(kept)
    _found(shared, "shared", index)
    groups, handed = [], list[int]()
    for one in shared:
        group = _found([one], "shared", index)
        if len(group) < 2:
            raise InputError(
                f"{one!r} is in one program only",
                field="shared",
                remedy="give ids that buffers of several programs have",
            )
        groups.append(group)
        for before, after in pairwise(group if together == "after" else ()):
            end[before] = max(end[before], start[after])
            handed.append(before)
    gaps = [
        replace(gap, buffer=gap.buffer + at, start=gap.start + moved, end=gap.end + moved)
        for program, at, moved in zip(programs, first, shift, strict=True)
        for gap in program.gaps
        if gap.buffer + at not in always
    ]
    fields = {
        **_arena(programs, changes),
        **_relations(programs, first),
        **{key: np.concatenate([getattr(p, key) for p in programs]) for key in COLUMNS},
    }
    _require_free(fields, {*always, *(i for group in groups for i in group if handed)}, ids)
    fields["colocated"] = [*fields["colocated"], *groups]
    fields["in_place"] = [
        (i, j)
        for i, j in fields["in_place"]
        if not {i, j} & always
        and not any(a in handed and start[b] >= start[a] for a, b in ((i, j), (j, i)))
    ]
    whole = {**fields, "start": start, "end": end, "gaps": gaps, "ids": ids, "name": name}
    return LmemPacking.from_arrays(**{**whole, **changes})


def split_programs(
    programs: Sequence[LmemPacking], solution: PackingSolution | Result[PackingSolution]
) -> list[PackingSolution]:
    """Return the part of each program, in their order, of a solution of :func:`merge_programs`.

    Raises
    ------
    InputError
        For no solution, or one of another number of buffers.
    """
    found = solution.solution if isinstance(solution, Result) else solution
    programs = _packings(programs)
    ends = list(accumulate((program.n for program in programs), initial=0))
    known = isinstance(found, PackingSolution) and not found.malformed()
    if not known or len(found.offsets) != ends[-1]:
        count = len(found.offsets) if known else "no"
        raise InputError(
            f"has {count} offsets, and the programs {ends[-1]} buffers",
            field="solution",
            remedy="give a solution of these programs merged",
        )
    return [
        PackingSolution.of(
            program,
            found.offsets[low:high],
            None if found.memory is None else found.memory[low:high],
        )
        for program, (low, high) in zip(programs, pairwise(ends), strict=True)
    ]


def _require_free(fields: JsonObject, held: set[int], ids: list[str]) -> None:
    """Refuse buffers that must keep their bytes, `held`, and share them within their program."""
    for field in ("colocated", "views"):
        for one in fields[field]:
            group = (one.buffer, one.host) if field == "views" else one
            for at in held.intersection(group):
                raise InputError(
                    f"buffer {ids[at]} shares its bytes, and must keep them",
                    field=field,
                    remedy="leave it out there, or neither keep nor hand it on",
                )


def _packings(given: Sequence[LmemPacking]) -> list[LmemPacking]:
    """Return programs as a list of packings, at least one."""
    if not isinstance(given, list | tuple) or not given:
        raise InputError("is no list of programs", field="programs", remedy="give packings")
    for at, program in enumerate(given):
        require_instance(program, KIND, f"programs[{at}]", "give packings")
    return list(given)


def _ids(program: LmemPacking) -> list[str]:
    return [program.buffer_id(at) for at in range(program.n)]


def _axis(programs: Sequence[LmemPacking]) -> tuple[Any, Any, list[int]]:
    """Return lifetimes of all buffers, programs one after the other, and by how much they moved."""
    shift, now = [], 0
    for program in programs:
        low, high = int(program.start.min()), int(program.end.max())
        shift.append(now - low)
        now += high - low
    starts, ends = (
        np.concatenate([getattr(p, key) + by for p, by in zip(programs, shift, strict=True)])
        for key in ("start", "end")
    )
    return starts, ends, shift


def _found(wanted: Collection[str], field: str, index: dict[str, list[int]]) -> list[int]:
    """Return the buffers of some names, their own or with that of the program before it."""
    if isinstance(wanted, str) or not isinstance(wanted, Collection):
        raise InputError(f"{wanted!r} is no list of names", field=field, remedy="give ids")
    for name in wanted:
        if not isinstance(name, str) or name not in index:
            raise InputError(
                f"{name!r} is no buffer", field=field, remedy="name buffers by their ids"
            )
    return [at for name in wanted for at in index[name]]


def _arena(programs: Sequence[LmemPacking], changes: JsonObject) -> JsonObject:
    """Return what is of the arena, on which programs agree where it is not changed."""
    found: JsonObject = {}
    usual = not changes.keys() & {"capacity", "memories", "penalties"}
    for field in (*ALIKE, *(["objective"] if usual else [])):
        given = [getattr(program, field) for program in programs]
        if field not in changes and any(value != given[0] for value in given):
            told = " and ".join(dict.fromkeys(map(str, given)))
            raise InputError(
                f"is {told[:80]} in different programs",
                field=field,
                remedy=f"say that of the arena: {field}=",
            )
        found[field] = given[0]
    return found


def _relations(programs: Sequence[LmemPacking], first: Sequence[int]) -> JsonObject:
    """Return pairs, groups and ranges of all programs, of which each has its `first` buffer."""
    each = list(zip(programs, first, strict=True))
    found: JsonObject = {
        key: [tuple(i + at for i in group) for p, at in each for group in getattr(p, key)]
        for key in ("colocated", "in_place", "apart", "exempt")
    }
    found["exclusive"] = [i + at for p, at in each for i in p.exclusive]
    found["allowed"] = [replace(a, buffer=a.buffer + at) for p, at in each for a in p.allowed]
    found["views"] = [
        View(view.buffer + at, view.host + at, view.offset) for p, at in each for view in p.views
    ]
    if any(program.homes is not None for program in programs):
        anywhere = [np.ones((p.n, len(p.memories)), dtype=bool) for p in programs]
        found["homes"] = np.concatenate(
            [
                all_ if p.homes is None else p.homes
                for p, all_ in zip(programs, anywhere, strict=True)
            ]
        )
    priced = [(p.penalties, at) for p, at in each if p.penalties is not None]
    if priced:
        found["penalties"] = Penalties(
            np.concatenate([one.pairs + at for one, at in priced]),
            np.concatenate([one.cost for one, _ in priced]),
        )
    banked = [(p.banks, at) for p, at in each if p.banks is not None]
    if banked:
        layouts = {(one.count, one.nbytes, one.weight) for one, _ in banked}
        if len(layouts) > 1 or len(banked) < len(programs):
            raise InputError("are others in each program", field="banks", remedy="give them alike")
        count, nbytes, weight = layouts.pop()
        pairs = np.concatenate([one.pairs + at for one, at in banked])
        found["banks"] = Banks(count, nbytes, pairs, weight)
    return found
