"""Problems of dsa-solver as packings.

Buffers and pools come by ascending id, so that a solution, which names no buffer, can be read.

- One pool is the memory of a plain instance, several are its memories.  Names of these end with the
  id, ``Vec (1)``, where a buffer has a choice and ids are other numbers than 0, 1, ...
- Colocated buffers are one allocation there, as large as the largest of them: they get its size.
- Penalties of a pair with itself or within one allocation cost nothing there, and are left out.
  So are all where the objective does not ask for them.  Those of a pair add up.
- A pair that is separated is so even if it is excluded in time, too.
- Solutions keep capacities whatever the objective, so that ``capacity_overflow`` says nothing.  A
  plain instance for the least peak does not: its peak tells whether all fits.
- ``bank_cost`` is refused: no file says which buffers should not share a bank.  The geometry of
  banks is left out, for it keeps no buffer from anywhere.
- Its peak of a pool counts reserved ranges, ours counts buffers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.dsa_solver.schema import VERSION, Pair, Pool, Problem, ProblemDocument
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.instance import aligned
from stagepack.instances.packing.problem import Objective
from stagepack.instances.packing.validate import groups
from stagepack.instances.words import Words

HERE = "problem.constraints"
IDENTIFIED = re.compile(r"(.*) \(([0-9]{1,10})\)")
"""The name of a memory that tells the id of its pool."""


@dataclass(frozen=True)
class Index:
    """Where the things with some ids are, by ascending id."""

    what: str
    at: Mapping[int, int]

    @classmethod
    def of(cls, ids: Sequence[int], what: str) -> Index:
        """Return where the ids of a list are, each there once; `what` is called so."""
        at = {one: place for place, one in enumerate(sorted(ids))}
        if len(at) < len(ids):
            twice = next(n for n, one in enumerate(ids) if one in ids[:n])
            raise InputError(
                f"{ids[twice]} comes twice",
                field=f"problem.{what}s[{twice}].id",
                remedy=f"give each {what} an id of its own",
            )
        return cls(what, at)

    def __call__(self, one: int, where: str) -> int:
        """Return the place of an id that the field `where` names."""
        if one not in self.at:
            raise InputError(
                f"{one} is no {self.what}", field=where, remedy=f"name a {self.what} by its id"
            )
        return self.at[one]

    def pairs(self, pairs: Sequence[Pair], where: str, *, unlike: bool) -> list[tuple[int, int]]:
        """Return `pairs` by place, the lower first; `unlike`: refuse one of a thing with itself.

        `where` is the field that errors name.
        """
        found = []
        for entry, pair in enumerate(pairs):
            field = f"{where}[{entry}]"
            first, second = self(pair.first, f"{field}.first"), self(pair.second, f"{field}.second")
            if first == second and unlike:
                raise InputError(
                    f"pairs {self.what} {pair.first} with itself",
                    field=field,
                    remedy="name two",
                )
            found.append((min(first, second), max(first, second)))
        return found


def packing(document: ProblemDocument, given: Words, file: str) -> LmemPacking:
    """Return the instance of a document, changed as is `given` beside the `file`."""
    if document.schema_version != VERSION:
        raise InputError(
            f"version {document.schema_version} is not {VERSION}, the only one known here",
            field="schema_version",
            remedy="update Stagepack" if document.schema_version > VERSION else "correct it",
        )
    problem = document.problem
    buffer = Index.of([one.id for one in problem.buffers], "buffer")
    pool = Index.of([one.id for one in problem.pools], "pool")
    columns, allowed = _columns(problem, pool)
    n = len(columns["size"])
    columns |= _constraints(problem, buffer, pool, columns["size"], allowed)
    columns["alignment"] = aligned(columns["alignment"], n, given)
    single = len(pool.at) == 1
    priced = _penalties(problem, buffer, columns["colocated"], n)
    objective, asked = _objective(problem, single=single, priced=bool(priced))
    objective = Objective(given.get("objective", objective))
    ordering = document.metadata.get("lifetime_ordering")
    return LmemPacking.from_arrays(
        **columns,
        **_room(problem, allowed, given),
        penalties=priced if asked or objective is Objective.PENALTIES else None,
        segment=given.get("segment"),
        objective=objective,
        name=document.instance,
        source=file,
        lifetimes=f"in [lower, upper){f', {ordering}' if ordering else ''}",
    )


def _columns(problem: Problem, pool: Index) -> tuple[JsonObject, list[list[int]]]:
    """Return what buffers say of themselves, and the memories that each may live in."""
    for at, buffer in enumerate(problem.buffers):
        for entry, one in enumerate(buffer.live_intervals):
            if one.lower >= one.upper:
                raise InputError(
                    f"[{one.lower}, {one.upper}) is empty",
                    field=f"problem.buffers[{at}].live_intervals[{entry}]",
                    remedy="give lower < upper",
                )
    places = {
        buffer.id: sorted(
            {
                pool(one, f"problem.buffers[{at}].allowed_pools[{entry}]")
                for entry, one in enumerate(buffer.allowed_pools)
            }
        )
        for at, buffer in enumerate(problem.buffers)
    }
    buffers = sorted(problem.buffers, key=lambda one: one.id)
    named = any(one.name for one in buffers)
    return {
        "size": [one.size for one in buffers],
        "alignment": [one.alignment for one in buffers],
        "lives": [[(part.lower, part.upper) for part in one.live_intervals] for one in buffers],
        "ids": [one.name or str(one.id) for one in buffers] if named else None,
    }, [places[one.id] for one in buffers]


def _constraints(
    problem: Problem, buffer: Index, pool: Index, size: list[int], allowed: list[list[int]]
) -> JsonObject:
    """Return the rules beside lifetimes; colocated buffers get one `size`, pinned ones a pool."""
    given = problem.constraints
    together = buffer.pairs(given.colocations, f"{HERE}.colocations", unlike=False)
    colocated = groups(together, "colocated", len(size))
    for group in colocated:
        largest = max(size[i] for i in group)
        for i in group:
            size[i] = largest
    apart = buffer.pairs(given.separations, f"{HERE}.separations", unlike=True)
    exempt = buffer.pairs(given.temporal_exclusions, f"{HERE}.temporal_exclusions", unlike=True)
    fixed = [-1] * len(size)
    exclusive = []
    for at, pinned in enumerate(given.pinned_allocations):
        where = f"{HERE}.pinned_allocations[{at}]"
        which = buffer(pinned.buffer, f"{where}.buffer")
        home = pool(pinned.pool, f"{where}.pool")
        if fixed[which] >= 0 or home not in allowed[which]:
            raise InputError(
                f"buffer {pinned.buffer} "
                + ("is pinned twice" if fixed[which] >= 0 else "may not lie in this pool"),
                field=where,
                remedy="leave one out" if fixed[which] >= 0 else "allow the pool",
            )
        fixed[which], allowed[which] = pinned.offset, [home]
        exclusive += [which] if pinned.exclusive_for_all_time else []
    return {
        "colocated": colocated,
        "apart": apart,
        "exempt": sorted(set(exempt) - set(apart)),
        "fixed": fixed,
        "exclusive": exclusive,
    }


def _penalties(
    problem: Problem, buffer: Index, colocated: Sequence[Sequence[int]], n: int
) -> list[tuple[int, int, int]]:
    """Return what pairs cost, of buffers that are not one allocation."""
    if problem.cost_model is None:
        return []
    allocation = list(range(n))
    for group in colocated:
        for i in group:
            allocation[i] = group[0]
    given = problem.cost_model.reuse_penalties
    pairs = buffer.pairs(given, "problem.cost_model.reuse_penalties", unlike=False)
    return [
        (i, j, penalty.cost)
        for (i, j), penalty in zip(pairs, given, strict=True)
        if allocation[i] != allocation[j] and penalty.cost
    ]


def _objective(problem: Problem, *, single: bool, priced: bool) -> tuple[Objective, bool]:
    """Return the objective that terms ask for, and whether they ask for penalties at all.

    Of a `single` pool the largest peak is the only one; where nothing is `priced` all reuse is
    free.
    """
    terms: list[str] = list(problem.objective.terms)
    if "bank_cost" in terms:
        raise InputError(
            "bank_cost: no file says which buffers should not share a bank",
            field="problem.objective.terms",
            remedy="leave it out, or say which in a native file (banks)",
        )
    if single:
        terms = ["total_peak" if term == "max_peak" else term for term in terms]
    asked = [term for term in dict.fromkeys(terms) if term != "capacity_overflow"]
    if not priced:
        asked = [term for term in asked if term != "reuse_cost"]
    if not asked:
        limited = all(pool.capacity is not None for pool in problem.pools)
        return (Objective.FIT if limited else Objective.PEAK), False
    peaks = ["total_peak", "max_peak"]
    if asked in ([peaks[0]], peaks, [peaks[0], "reuse_cost"]):
        return Objective.PEAK, "reuse_cost" in asked
    if asked in (["reuse_cost"], ["reuse_cost", peaks[0]], ["reuse_cost", *peaks]):
        return Objective.PENALTIES, True
    raise InputError(
        f"{', then '.join(asked)} is no order that is known here",
        field="problem.objective.terms",
        remedy="give reuse_cost and total_peak in either order, or total_peak, then max_peak",
    )


def _room(problem: Problem, allowed: list[list[int]], given: Words) -> dict[str, Any]:
    """Return the memory of one pool, or several memories and where each buffer may live."""
    pools = sorted(problem.pools, key=lambda one: one.id)
    reserved = [[(span.begin, span.end) for span in one.reserved_ranges] for one in pools]
    if len(pools) == 1:
        capacity = given.get("capacity", pools[0].capacity)
        return {"capacity": capacity, "reserved": reserved[0]}
    return {
        "capacity": given.get("capacity"),
        "memories": [
            (name, one.capacity, 0, spans)
            for name, one, spans in zip(pool_names(pools, allowed), pools, reserved, strict=True)
        ],
        "homes": dict(enumerate(allowed)),
    }


def pool_names(pools: Sequence[Pool], allowed: Sequence[Sequence[int]]) -> list[str]:
    """Return a name of its own for each pool, with its id where nothing else would tell that.

    `allowed` are the pools, by index, that each buffer may lie in: one without a choice tells its
    pool.
    """
    names = [pool.name or str(pool.id) for pool in pools]
    numbered = [pool.id for pool in pools] == list(range(len(pools)))
    unclear = max(map(len, allowed)) > 1 and not numbered
    if unclear or len(set(names)) < len(names) or any(map(IDENTIFIED.fullmatch, names)):
        names = [f"{pool.name} ({pool.id})" for pool in pools]
    return names
