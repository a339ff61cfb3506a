"""Compares the figures in the document of a plan with what its levels are worth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from stagepack.claims import check_result
from stagepack.claims.claim import short
from stagepack.contracts import JsonObject
from stagepack.instances.documents import strict
from stagepack.instances.violation import Violation
from stagepack.planning.model_plan import ModelPlan
from stagepack.result import Status

FIGURES = ("objective", "gap", "seconds", "throughput", "bubble", "memory", "binds", "inside")
"""What follows from the levels of a plan."""

ALWAYS = ("objective_name", "violations")
"""What a plan that breaks no rule says, with levels or without."""

TOLERANCE = 1e-9
"""Relative, of figures that are no whole numbers."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class _Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    in_flight: Count
    lent: Count
    status: Status
    objective: Count | None
    reason: str


class _Records(msgspec.Struct, frozen=True):
    """What tells of the search; it can be told from what no search says, but not recomputed."""

    attempts: list[_Attempt] | None = None
    versions: dict[str, str] | None = None


def check_plan(plan: ModelPlan, path: str | Path) -> tuple[Violation, ...]:
    """Return what is wrong with a plan and with what its document says; () for nothing.

    Parameters
    ----------
    plan : ModelPlan
        As :func:`.read_plan` reads it.
    path : path-like
        Where it was read.  Bounds, and that nothing better exists, cannot be recomputed.

    Raises
    ------
    InputError
        Where a level holds no result of its instance.
    """
    found = plan.check()
    if found:
        return found
    with strict.located(path):
        document = strict.decode(strict.load(path), JsonObject)
        searched = _false_records(plan, document)
        if not plan.levels:
            return (*_false_without_levels(plan, document), *searched)
        return (*_false(plan, document), *searched, *_false_in_levels(plan, document))


def _false(plan: ModelPlan, document: JsonObject) -> Iterator[Violation]:
    """Yield the figures of the whole that are others."""
    known = plan.to_dict()
    for name in (*FIGURES, *ALWAYS):
        said = document.get(name)
        if said is not None and not _same(said, known[name]):
            yield Violation(f"claim: {name}", f"{short(said)} is said, {short(known[name])} is so")
    proved = plan.status is Status.OPTIMAL and plan.bound != plan.objective
    if proved or plan.status not in (Status.OPTIMAL, Status.FEASIBLE):
        why = f"with a plan of {short(plan.objective)} cycles and the bound {short(plan.bound)}"
        yield Violation("claim: status", f"{plan.status} is said, {why}")


def _false_without_levels(plan: ModelPlan, document: JsonObject) -> Iterator[Violation]:
    """Yield what is said of a plan of which the document has nothing."""
    known = plan.to_dict()
    for name in ALWAYS:
        said = document.get(name, known[name])
        if said != known[name]:
            yield Violation(f"claim: {name}", f"{short(said)} is said, {short(known[name])} is so")
    for name in FIGURES:
        said = document.get(name)
        if said:
            yield Violation(f"claim: {name}", f"{short(said)} is said of a plan without levels")
    if plan.status in (Status.OPTIMAL, Status.FEASIBLE):
        yield Violation("claim: status", f"{plan.status} is said of a plan without levels")


def _false_records(plan: ModelPlan, document: JsonObject) -> Iterator[Violation]:
    """Yield what no search says of its attempts, or of versions."""
    given = {name: document[name] for name in ("attempts", "versions") if name in document}
    try:
        records = msgspec.convert(given, _Records)
    except msgspec.ValidationError as error:
        yield Violation("claim: attempts or versions", str(error).replace("`", "").lower())
        return
    reached = [one.objective for one in records.attempts or () if one.objective is not None]
    least = min(reached, default=None)
    if least is not None and (plan.objective is None or least < plan.objective):
        kept = "no plan was kept" if plan.objective is None else f"{short(plan.objective)} was kept"
        yield Violation("claim: attempts", f"one of {short(least)} cycles is said, and {kept}")


def _false_in_levels(plan: ModelPlan, document: JsonObject) -> Iterator[Violation]:
    for level, said in zip(plan.levels, document["levels"], strict=True):
        for claim in check_result(level.instance, said["result"]).false:
            yield Violation(f"{level.name}: claim: {claim.name}", str(claim))


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=TOLERANCE)
    return one == other
