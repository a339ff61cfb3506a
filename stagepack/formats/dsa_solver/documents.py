"""Problem and solution documents of *dsa-solver* (github.com/tonibohnlein/dsa-solver).

Schemas: ``dsa-problem-v1.schema.json`` and ``dsa-solution-v1.schema.json`` of that repository.
:mod:`.dsa_solver.problem` says what becomes of a problem.

A solution names the problem that it is of by its name, its profile and a fingerprint: FNV-1a of 64
bits over the document as dsa-solver writes it, with sorted keys and two blanks a level
(``structured_problem.cpp``).  It covers all of the document, also what an instance does not keep.
So solutions are written for a problem document, and read by their name; whether they are right is
for the checker to say.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.dsa_solver.problem import IDENTIFIED, packing
from stagepack.formats.dsa_solver.schema import VERSION, ProblemDocument, SolutionDocument
from stagepack.formats.dsa_solver.writing import document
from stagepack.formats.known import is_dsa_solution, is_dsa_solver
from stagepack.instances.documents import keys, strict
from stagepack.instances.packing import KIND, LmemPacking, PackingSolution
from stagepack.instances.packing.problem import GIVEN
from stagepack.instances.words import Words


def parse(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return the one problem of a document."""
    if is_dsa_solution(data):
        raise InputError(
            "holds a solution of dsa-solver, no problem",
            remedy="give its problem: stagepack check PROBLEM SOLUTION",
        )
    problem = strict.decode(data, ProblemDocument)
    keys.require_single(data)
    return [packing(problem, given, file)]


def dump(instance: LmemPacking, file: str) -> bytes:
    """Return the document of an instance, if it can be said so."""
    del file  # the instance has a name
    return canonical(document(instance))


def canonical(whole: JsonObject) -> bytes:
    """Return a document as dsa-solver writes it; its fingerprints are of these bytes."""
    return f"{json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False)}\n".encode()


def fingerprint(data: bytes) -> str:
    """Return the fingerprint of a problem document, 16 hexadecimal digits."""
    whole: JsonObject = json.loads(data)
    whole.setdefault("metadata", {})
    if not whole.get("relaxed_features"):
        whole.pop("relaxed_features", None)
    value = 14695981039346656037
    for byte in canonical(whole):
        value = (value ^ byte) * 1099511628211 & 2**64 - 1
    return f"{value:016x}"


def solution(data: bytes, instance: LmemPacking) -> PackingSolution:
    """Return the placement of a solution document, for the problem of its name."""
    if not is_dsa_solution(data):
        raise InputError(
            "holds a problem of dsa-solver, no solution",
            field="placements",
            remedy="write one: stagepack solve PROBLEM -o FILE",
        )
    found = strict.decode(data, SolutionDocument)
    keys.require_single(data)
    if found.schema_version != VERSION:
        raise InputError(
            f"version {found.schema_version} is not {VERSION}, the only one known here",
            field="schema_version",
            remedy="update Stagepack",
        )
    if found.instance != instance.name:
        raise InputError(
            f"is a solution of {found.instance}, not of {instance.name}",
            field="instance",
            remedy=strict.ANOTHER,
        )
    placed = sorted(found.placements, key=lambda one: one.buffer)
    if len({one.buffer for one in placed}) != instance.n or len(placed) != instance.n:
        raise InputError(
            f"places {len(placed):,} buffers, some twice or not at all, or not the {instance.n:,} "
            f"of {instance.name}",
            field="placements",
            remedy="give each buffer one place",
        )
    memory = _memories([one.pool for one in placed], instance)
    return PackingSolution.of(instance, [one.offset for one in placed], memory)


def _memories(pools: list[int], instance: LmemPacking) -> list[int] | None:
    """Return the memory of each buffer by the ids of `pools`; None where there is one memory.

    Names of memories tell their ids, or buffers that have no choice; otherwise ids are numbers from
    0 on: see :func:`.problem.pool_names`.
    """
    if not instance.memories:
        if len(set(pools)) > 1:
            raise InputError(
                f"names several pools, and {instance.name} has one memory",
                field="placements",
                remedy=strict.ANOTHER,
            )
        return None
    told = [IDENTIFIED.fullmatch(memory.name) for memory in instance.memories]
    at = {int(one[2]): number for number, one in enumerate(told) if one is not None}
    if not at and instance.homes is not None and (instance.homes.sum(axis=1) == 1).all():
        at = dict(zip(pools, instance.homes.argmax(axis=1).tolist(), strict=True))
    at = at or dict(enumerate(range(len(told))))
    unknown = next((pool for pool in pools if pool not in at), None)
    if unknown is not None:
        raise InputError(
            f"pool {unknown} is no memory of {instance.name}",
            field="placements",
            remedy="give the problem document as instance, or a solution of this instance",
        )
    return [at[pool] for pool in pools]


def solved(instance: LmemPacking, solution: PackingSolution, *, problem: str | Path = "") -> bytes:
    """Return the solution document for the `problem` document that an instance was read from."""
    data, own, whole = require_problem(instance, problem=problem)
    ids = sorted(one.id for one in whole.problem.buffers)
    pools = sorted(whole.problem.pools, key=lambda one: one.id)
    memory = np.zeros(own.n, dtype=np.int64) if solution.memory is None else solution.memory
    tops = solution.offsets + own.size
    for number, pool in enumerate(pools):
        top = int(tops[memory == number].max(initial=0))
        if pool.capacity is not None and top > pool.capacity:
            raise InputError(
                f"reaches {top:,} in a pool of {pool.capacity:,} bytes, which dsa-solver refuses",
                field="solution",
                remedy="ask for one within the capacity: --objective fit",
            )
    violations = own.check(solution)
    if violations:
        raise InputError(
            f"is not valid for {problem}: {violations[0]}", field="solution", remedy=strict.ANOTHER
        )
    rows = zip(ids, memory.tolist(), solution.offsets.tolist(), strict=True)
    return canonical(
        {
            "schema_version": VERSION,
            "profile": whole.profile,
            "instance": whole.instance,
            "problem_fingerprint": fingerprint(data),
            "metadata": {"solver": "stagepack"},
            "placements": [
                {"buffer": buffer, "pool": pools[place].id, "offset": offset}
                for buffer, place, offset in rows
            ],
        }
    )


def require_problem(
    instance: LmemPacking, *, problem: str | Path = ""
) -> tuple[bytes, LmemPacking, ProblemDocument]:
    """Return the `problem` document of an instance: its bytes, its own instance, and decoded."""
    remedy = "name the problem document: --as dsa-solver:problem=FILE"
    if not isinstance(problem, str | Path) or not str(problem):
        raise InputError("is missing", field="problem", remedy=remedy)
    with strict.located(problem):
        data = strict.load(problem)
        if not is_dsa_solver(data):
            raise InputError("is no document of dsa-solver", field="problem", remedy=remedy)
        (own,) = parse(data, {}, instance.source)
        for column in ("size", "start", "end", "ids"):
            if not np.array_equal(getattr(own, column), getattr(instance, column)):
                raise InputError(
                    f"its buffers are not those of {instance.name}",
                    field="problem.buffers",
                    remedy="give the document of which the instance was made",
                )
        return data, own, strict.decode(data, ProblemDocument)


CONTEXTS = {KIND: GIVEN - {"period", "dim"}}
