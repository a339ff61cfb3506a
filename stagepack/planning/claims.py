"""Compares the figures in the document of a plan or a tuning with what can be recomputed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import msgspec

from stagepack.claims import check_result
from stagepack.claims.again import solved_again
from stagepack.claims.claim import PROVABLE, Claim, ResultCheck, Verdict, is_number, short
from stagepack.claims.rules import Again, Case, judged
from stagepack.contracts import JsonObject
from stagepack.instances.documents import strict
from stagepack.instances.violation import Violation
from stagepack.planning import steps
from stagepack.planning.layouts.answer import PROBLEM as LAYOUT
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.step_labels import MANY, Whole
from stagepack.planning.tuned import MEASURED, Tuning
from stagepack.result import Result, Status, Termination
from stagepack.verify import Claimed, Finding, UnprovedError, verify

FIGURES = ("objective", "gap", "seconds", "throughput", "bubble", "memory", "binds", "inside")
"""What follows from the levels of a plan."""

DERIVED = ("best", "front", "doubts", "saved", "counted")
"""What follows from the evaluations of a tuning."""

POTENTIALS = "verified: witness, potentials"
"""What shows the bound of a network in groups."""

ALWAYS = ("objective_name", "violations")
"""What a plan that breaks no rule says, with levels or without."""

ANSWERED = (Status.OPTIMAL, Status.FEASIBLE, MEASURED)
"""Statuses of evaluations that have a throughput."""

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


def check_plan(
    plan: ModelPlan, path: str | Path, *, prove: bool = False, time_limit: float | None = 10
) -> ResultCheck:
    """Check a plan that :func:`.read_plan` read from `path`, and what its document says.

    If `prove`, what evidence does not show, of a level or the whole, is solved again, by other
    code, each within `time_limit` seconds.  Bounds and statuses of the levels are verified by the
    evidence of their results, those of the whole, which speak of all stages and schedules, by the
    evidence of the plan: see :mod:`stagepack.planning.steps`.  Refuses a level that holds no result
    of its instance.
    """
    broken = plan.check()
    if broken:
        return ResultCheck(plan.name, None, broken, None)
    with strict.located(path):
        document = strict.decode(strict.load(path), JsonObject)
    layout = document if document.get("problem") == LAYOUT else None
    document = document if layout is None else document["plan"]
    broken = tuple(_false_records(plan, document))
    broken += () if layout is None else tuple(_false_of_layout(plan, layout))
    claims = list(_claims_of_levels(plan, document, prove, time_limit))
    figures = _false if plan.levels else _false_without_levels
    broken += tuple(figures(plan, document))
    case = _whole(plan, document, claims, prove, time_limit)
    claims = [*judged(case, ("bound", "proof", "status")), *claims]
    broken += tuple(_told(claim) for claim in claims if claim.verdict is Verdict.FALSE)
    claims = [claim for claim in claims if claim.verdict is not Verdict.FALSE]
    return ResultCheck(
        plan.name,
        None,
        broken,
        None if broken else plan.objective,
        tuple(claims),
        again=tuple(again.result for again in case.again),
    )


def check_tuning(tuning: Tuning, path: str | Path) -> ResultCheck:
    """Check what a tuning says of its evaluations; it holds no plans that show these."""
    with strict.located(path):
        document = strict.decode(strict.load(path), JsonObject)
    known = tuning.to_dict()
    wrong = [
        Violation(f"claim: {name}", f"{short(document[name])} is said, {short(known[name])} is so")
        for name in DERIVED
        if name in document and not _alike(document[name], known[name])
    ]
    for at, one in enumerate(tuning.evaluations):
        if one.throughput and one.bound and one.throughput > one.bound * (1 + TOLERANCE):
            detail = f"{one.throughput:,} a second where at most {one.bound:,} can be"
            wrong.append(Violation(f"claim: evaluations.{at}.bound", detail))
        if (one.throughput is None) != (one.status not in ANSWERED):
            detail = f"{one.status} is said of {short(one.throughput)} a second"
            wrong.append(Violation(f"claim: evaluations.{at}.status", detail))
        if one.values and one.throughput not in (None, statistics.median(one.values)):
            detail = f"{one.throughput:,} is said, and no median of what was measured"
            wrong.append(Violation(f"claim: evaluations.{at}.throughput", detail))
    best = None if tuning.best is None else tuning.best.throughput
    held = "a tuning holds figures, and no plans that show them"
    held = held if tuning.measured is None else "measured figures, which nothing shows"
    many = f"of {len(tuning.evaluations):,} {'plans' if tuning.measured is None else 'runs'}"
    claims = (Claim("evaluations: status", many, None, Verdict.UNVERIFIED, held),)
    return ResultCheck("tuning", None, tuple(wrong), None if wrong else best, claims)


def _told(claim: Claim) -> Violation:
    """Return a false claim, of a level or the whole, as what is wrong with a plan."""
    level, colon, name = claim.name.rpartition(": ")
    return Violation(f"{level}{colon}claim: {name}", str(replace(claim, name=name)))


def _alike(one: object, other: object) -> bool:
    """Whether two pieces of JSON data are the same, figures within the tolerance."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return _same(one, other)


def _whole(
    plan: ModelPlan,
    document: JsonObject,
    claims: Sequence[Claim],
    prove: bool,
    time_limit: float | None,
) -> Case:
    """Return what a plan claims of all stages and all schedules, beside what is known of it."""
    shown = {
        one.name.removesuffix(": bound"): one.detail == POTENTIALS
        for one in claims
        if one.name.endswith(": bound") and one.verdict is Verdict.CONFIRMED
    }
    whole = plan.whole(shown)
    levels = plan if plan.levels else None
    of = plan.schedule if whole is None and levels is not None else whole
    case = Case(document, of, levels, (), plan.objective, False)  # type: ignore[arg-type]
    if plan.bound is None and plan.status is not Status.INFEASIBLE:
        return case
    if whole is None:
        unknown = (
            "the document does not say of which model" if levels is None else "no rule knows it"
        )
        case.finding = Finding(False, False, None, unknown)
        return case
    proof = str(document.get("proof"))
    case.finding = verify(
        whole, plan.bound, proof, plan.evidence, time_limit=time_limit, rules=steps
    )
    if prove and not case.finding.shown:
        case.again = tuple(_again(whole, plan, time_limit))
    return case


def _again(whole: Whole, plan: ModelPlan, time_limit: float | None) -> Iterator[Again]:
    """Solve the schedules of all stages that may be shorter, by other code; yield what it shows.

    Nothing where that leaves some of them open, and none is shorter.
    """
    until = math.inf if time_limit is None else time.monotonic() + time_limit
    claimed = Claimed(None if plan.bound is None else Fraction(plan.bound), until)
    told, by = {"bound": plan.bound, "proof": plan.proof}, dict[str, None]()
    model = plan.levels[0].instance if plan.levels else plan.model
    chosen = bool(getattr(model, "alternatives", {}))  # then no choice need be as cheap
    try:
        for schedule in steps.schedules(whole, claimed, MANY, steps.MANY_LEAVES):
            if verify(schedule, plan.bound, time_limit=steps.left(claimed)).shown:
                continue
            case = Case(told, schedule, None, (), None, False)
            case.again = solved_again(case, plan.bound, steps.left(claimed))
            for again in case.again:
                value = again.result.objective
                if value is not None and (plan.bound is None or value < plan.bound):
                    if chosen:
                        return
                    method = f"{again.result.method}, of other stages"
                    yield Again(replace(again.result, method=method), "", "")
                    return
            by |= dict.fromkeys(again.result.method for again in case.again)
            if not case.settled(plan.bound):
                return
    except UnprovedError:
        return
    method = ", ".join(["schedules of all stages", *by])
    ended = Termination.PROVED
    found: Result[Any] = Result(
        status=plan.status, termination=ended, bound=plan.bound, method=method
    )
    yield Again(found, "", "")


def _false(plan: ModelPlan, document: JsonObject) -> Iterator[Violation]:
    """Yield the figures of the whole that are others."""
    known = {**plan.to_dict(), "split": plan.schedule.split}
    for name in (*FIGURES, *ALWAYS, "split"):
        said = document.get(name)
        if said is not None and not _same(said, known[name]):
            yield Violation(f"claim: {name}", f"{short(said)} is said, {short(known[name])} is so")


def _false_of_layout(plan: ModelPlan, layout: JsonObject) -> Iterator[Violation]:
    """Yield what a layout cannot say beside the plan of its copies."""
    step, least, status = (layout.get(name) for name in ("objective", "bound", "status"))
    if not is_number(step) or step < (plan.objective or 0):
        yield Violation("claim: objective", f"{short(step)} is said, its copies take longer")
    elif is_number(least) and least > step:
        yield Violation("claim: bound", f"{short(least)} is said, above a step of {short(step)}")
    elif (status == Status.OPTIMAL) != (least == step):
        yield Violation("claim: status", f"{short(status)} is said, the bound is {short(least)}")


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


def _claims_of_levels(
    plan: ModelPlan, document: JsonObject, prove: bool, time_limit: float | None
) -> Iterator[Claim]:
    for level, said in zip(plan.levels, document["levels"], strict=True):
        found = check_result(level.instance, said["result"], prove=prove, time_limit=time_limit)
        for claim in found.claims:
            if claim.name in PROVABLE or claim.verdict is Verdict.FALSE:
                yield replace(claim, name=f"{level.name}: {claim.name}")


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=TOLERANCE)
    return one == other
