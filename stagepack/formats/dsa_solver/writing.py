"""Packings as problems of dsa-solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.dsa_solver.problem import IDENTIFIED, pool_names
from stagepack.formats.dsa_solver.schema import VERSION, Pool, Range
from stagepack.instances.packing import LmemPacking, Memory
from stagepack.instances.packing.problem import Objective

Spans = tuple[tuple[int, int], ...]
TERMS = {
    Objective.FIT: ["capacity_overflow"],
    Objective.PENALTIES: ["capacity_overflow", "reuse_cost"],
    Objective.PEAK: ["total_peak", "max_peak"],
}


def document(instance: LmemPacking) -> JsonObject:
    """Return the document of an instance; buffers and pools are numbered as they come."""
    _require_expressible(instance)
    memories = instance.memories or (Memory("memory", instance.capacity),)
    homes = np.ones((instance.n, len(memories)), bool) if instance.homes is None else instance.homes
    allowed = [np.flatnonzero(row).tolist() for row in homes]
    pools = _pools(memories, instance.reserved, allowed)
    lives = _lives(instance)
    priced = instance.penalties
    terms = TERMS[instance.objective]
    if priced is not None and instance.objective is Objective.PEAK:
        terms = ["total_peak", "reuse_cost"]
    problem: JsonObject = {
        "pools": [_pool(one) for one in pools],
        "buffers": [
            {
                "id": i,
                "name": "" if instance.ids is None else instance.ids[i],
                "size": int(instance.size[i]),
                "alignment": int(instance.alignment[i]),
                "live_intervals": [{"lower": lower, "upper": upper} for lower, upper in lives[i]],
                "allowed_pools": [pools[at].id for at in allowed[i]],
            }
            for i in range(instance.n)
        ],
        "constraints": {
            "colocations": [_pair(group[0], i) for group in instance.colocated for i in group[1:]],
            "separations": [_pair(*pair) for pair in instance.apart],
            "temporal_exclusions": [_pair(*pair) for pair in instance.exempt],
            "pinned_allocations": [
                {
                    "buffer": i,
                    "pool": pools[allowed[i][0]].id,
                    "offset": int(instance.fixed[i]),
                    "exclusive_for_all_time": i in instance.exclusive,
                }
                for i in np.flatnonzero(instance.fixed >= 0).tolist()
            ],
        },
        "objective": {"aggregation": "lexicographic", "terms": terms},
    }
    if priced is not None:
        rows = zip(priced.pairs.tolist(), priced.cost.tolist(), strict=True)
        problem["cost_model"] = {
            "reuse_penalties": [
                {**_pair(*pair), "cost": cost, "reason": "generic"} for pair, cost in rows
            ]
        }
    return {
        "schema_version": VERSION,
        "profile": _profile(problem),
        "instance": instance.name or "packing",
        "metadata": {},
        "problem": problem,
    }


def _pair(first: int, second: int) -> JsonObject:
    return {"first": first, "second": second}


def _pools(
    memories: Sequence[Memory], reserved: Spans, allowed: Sequence[Sequence[int]]
) -> list[Pool]:
    """Return the pools of memories, with the ids that their names tell, or numbers from 0 on.

    All have the `reserved` ranges; `allowed` are those that each buffer may lie in.
    """
    told = [IDENTIFIED.fullmatch(one.name) for one in memories]
    named = [(one[1], int(one[2])) for one in told if one is not None]
    plain = [(one.name, number) for number, one in enumerate(memories)]

    def pools(names: list[tuple[str, int]]) -> list[Pool]:
        return [
            Pool(
                id=number,
                name=name,
                capacity=one.capacity,
                reserved_ranges=[Range(begin=a, end=b) for a, b in (*reserved, *one.reserved)],
            )
            for (name, number), one in zip(names, memories, strict=True)
        ]

    ids = [number for _, number in named]
    fine = len(ids) == len(memories) and ids == sorted(set(ids)) and max(ids) < 2**32
    if fine and pool_names(pools(named), allowed) == [one.name for one in memories]:
        return pools(named)
    return pools(plain)


def _pool(pool: Pool) -> JsonObject:
    found: JsonObject = msgspec.to_builtins(pool)
    return {name: value for name, value in found.items() if name != "bank_geometry"}


def _lives(instance: LmemPacking) -> list[list[tuple[int, int]]]:
    """Return when each buffer is in use: its lifetime without its gaps."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(instance.n)]
    begin = instance.start.tolist()
    for gap in instance.gaps:  # by buffer and time
        if begin[gap.buffer] < gap.start:
            found[gap.buffer].append((begin[gap.buffer], gap.start))
        begin[gap.buffer] = gap.end
    for i, end in enumerate(instance.end.tolist()):
        if begin[i] < end:
            found[i].append((begin[i], end))
    return found


def _profile(problem: JsonObject) -> str:
    """Return the plainest profile that allows what a problem says."""
    limits: JsonObject = problem["constraints"]
    (pool, *others), buffers = problem["pools"], problem["buffers"]
    plain = not (others or pool["reserved_ranges"] or any(limits.values())) and all(
        one["alignment"] == 1 and len(one["live_intervals"]) == 1 for one in buffers
    )
    if not plain:
        return "pypto_structured"
    if "cost_model" not in problem:
        return "standard_dsa"
    asks = problem["objective"]["terms"] == TERMS[Objective.PENALTIES]
    return "dsa_rp_v1" if asks else "pypto_structured"


def _require_expressible(instance: LmemPacking) -> None:
    """Refuse an instance that such documents cannot say."""
    several = instance.homes is None and len(instance.memories) > 1
    pinned = instance.fixed >= 0
    free = pinned & (several if instance.homes is None else instance.homes.sum(axis=1) > 1)
    loose = [i for i in instance.exclusive if not pinned[i]]
    dead = [i for i, spans in enumerate(_lives(instance)) if not spans]
    unsaid: dict[str, Any] = {
        "objective": instance.objective not in TERMS,
        "period": instance.period is not None,
        "conflicts": instance.conflicts is not None,
        "gaps": bool(dead) or any(gap.low < gap.high for gap in instance.gaps),
        "memories": any(one.cost or one.alignment > 1 for one in instance.memories),
        "size": not instance.size.all(),
        "fixed": bool(free.any()),
        "penalties": instance.penalties is not None and instance.objective is Objective.FIT,
        "exclusive": bool(loose),
        "previous": bool((instance.previous >= 0).any()),
        "hint": bool((instance.hint >= 0).any()),
        **{
            name: bool(getattr(instance, name))
            for name in ("allowed", "in_place", "banks", "views", "segment")
        },
    }
    more = {
        "gaps": "in part of a buffer, or all its life",
        "memories": "that have costs or an alignment",
        "size": "of no bytes",
        "fixed": "in one of several memories",
        "exclusive": "without a fixed offset",
        "penalties": "that the objective does not count",
    }
    for name, there in unsaid.items():
        if there:
            raise InputError(
                "is nothing that documents of dsa-solver can say"
                + (f" {more[name]}" if name in more else ""),
                field=name,
                remedy="write a native file, or leave it out",
            )
