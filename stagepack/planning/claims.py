"""Compares the figures in the document of a plan or a tuning with what can be recomputed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import msgspec

from stagepack.claims import check_result
from stagepack.claims.claim import PROVABLE, Claim, ResultCheck, Verdict, short
from stagepack.contracts import JsonObject
from stagepack.instances.documents import strict
from stagepack.instances.graph import GraphPartition
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.violation import Violation
from stagepack.planning.model_plan import NETWORKS, ModelPlan
from stagepack.planning.stages import ticks
from stagepack.planning.steps import shortest_step_is
from stagepack.planning.tuned import Tuning
from stagepack.result import Status

FIGURES = ("objective", "gap", "seconds", "throughput", "bubble", "memory", "binds", "inside")
"""What follows from the levels of a plan."""

DERIVED = ("best", "front", "doubts", "saved", "counted")
"""What follows from the evaluations of a tuning."""

OPEN = "not verified: it speaks of all stages and all schedules"

POTENTIALS = "verified: witness, potentials"
"""What shows the bound of a network in groups."""

MOST_OPERATORS = 500
"""Operators up to which stages of these are compared."""

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


def check_plan(
    plan: ModelPlan, path: str | Path, *, prove: bool = False, time_limit: float | None = 10
) -> ResultCheck:
    """Check a plan, and what its document says.

    Parameters
    ----------
    plan : ModelPlan
        As :func:`.read_plan` reads it.
    path : path-like
        Where it was read.
    prove : bool
        Whether to solve again, by other code, what evidence does not show of a level.
    time_limit : float, optional
        Seconds for each level.

    Returns
    -------
    ResultCheck
        What is wrong are its violations.  Bounds and statuses of the levels are verified by the
        evidence of their results.  That of the whole speaks of all stages and schedules: it is
        verified as far as the work of a chain or a graph shows it, see
        :mod:`stagepack.planning.steps`, or the verified bounds of whole networks in groups.

    Raises
    ------
    InputError
        Where a level holds no result of its instance.
    """
    broken, claims = plan.check(), list[Claim]()
    if not broken:
        with strict.located(path):
            document = strict.decode(strict.load(path), JsonObject)
        broken = tuple(_false_records(plan, document))
        if plan.levels:
            claims = list(_claims_of_levels(plan, document, prove, time_limit))
            false = (claim for claim in claims if claim.verdict is Verdict.FALSE)
            broken += tuple(_false(plan, document))
            broken += tuple(map(_told, false))
        else:
            broken += tuple(_false_without_levels(plan, document))
    false_ones = {one.rule for one in broken}
    claims = [
        *_of_the_whole(plan, claims),
        *(one for one in claims if one.verdict is not Verdict.FALSE),
    ]
    claims = [one for one in claims if f"claim: {one.name}" not in false_ones]
    return ResultCheck(plan.name, None, broken, None if broken else plan.objective, tuple(claims))


def check_tuning(tuning: Tuning, path: str | Path) -> ResultCheck:
    """Check what a tuning says of its evaluations; it holds no plans that show these.

    Parameters
    ----------
    tuning : Tuning
        As :func:`.read_tuning` reads it.
    path : path-like
        Where it was read.
    """
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
        if (one.throughput is None) != (one.status not in (Status.OPTIMAL, Status.FEASIBLE)):
            detail = f"{one.status} is said of {short(one.throughput)} a second"
            wrong.append(Violation(f"claim: evaluations.{at}.status", detail))
    best = None if tuning.best is None else tuning.best.throughput
    held = "a tuning holds figures, and no plans that show them"
    many = f"of {len(tuning.evaluations):,} plans"
    claims = (Claim("evaluations: status", many, None, Verdict.UNVERIFIED, held),)
    return ResultCheck("tuning", None, tuple(wrong), None if wrong else best, claims)


def _told(claim: Claim) -> Violation:
    """Return the false claim of a level as what is wrong with a plan."""
    level, _, name = claim.name.rpartition(": ")
    return Violation(f"{level}: claim: {name}", str(replace(claim, name=name)))


def _alike(one: object, other: object) -> bool:
    """Whether two pieces of JSON data are the same, figures within the tolerance."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return _same(one, other)


def _of_the_whole(plan: ModelPlan, levels: Sequence[Claim]) -> Iterator[Claim]:
    """Yield what a plan claims of all stages and all schedules, beside the claims of its levels."""
    if plan.bound is not None:
        yield Claim("bound", plan.bound, None, *_shown(plan, plan.bound, levels))
    if plan.status is Status.OPTIMAL and plan.objective is not None:
        yield Claim("status", str(plan.status), None, *_shown(plan, plan.objective, levels))
    elif plan.status is Status.INFEASIBLE:
        yield Claim("status", str(plan.status), None, Verdict.UNVERIFIED, OPEN)


def _shown(plan: ModelPlan, bound: int, levels: Sequence[Claim]) -> tuple[Verdict, str]:
    """Return whether no plan takes fewer cycles a step, as far as work shows it."""
    whole = plan.levels[0].instance if plan.levels else None
    if any(isinstance(level.instance, LayerGrouping) for level in plan.levels):
        if bound <= _least_of_networks(plan, levels):
            return Verdict.CONFIRMED, "verified: the groups of the whole network"
    elif isinstance(whole, GraphPartition):
        if bound <= math.ceil(_least_of_graph(whole, plan.microbatches) * ticks(whole)):
            return Verdict.CONFIRMED, "verified: witness, work of the graph"
    elif isinstance(whole, PipelinePartition) and shortest_step_is(
        whole, plan.microbatches, bound, split=plan.schedule.split, resident=not plan.on_chip
    ):
        return Verdict.CONFIRMED, "verified: log, labels of all stages"
    return Verdict.UNVERIFIED, OPEN


def _least_of_graph(instance: GraphPartition, microbatches: int) -> Fraction:
    """Return units of time that every step of a graph takes.

    Some device does its share of the work of all microbatches, and some all of any node.
    """
    fastest = max(map(Fraction, map(str, instance.speeds.tolist())), default=Fraction(1))
    columns = (instance.time, instance.accelerator, instance.cpu_time, instance.cpu)
    least = [
        min(
            [Fraction(t) / fastest] * may + [Fraction(c)] * (other and instance.cpus > 0), default=0
        )
        for t, may, c, other in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return max(Fraction(sum(least)) / instance.devices, *map(Fraction, least)) * microbatches


def _least_of_networks(plan: ModelPlan, levels: Sequence[Claim]) -> int:
    """Return the least step by the potentials of whole networks on one chip, as far as verified.

    The groups of all stages are a plan of the networks, if these may have any order that stages
    may: together they take as long at least, and some device its share of all microbatches.  Of a
    chain, a stage takes what potentials rise along it.  In inference a microbatch passes all
    stages, and the busiest one works on the others.
    """
    whole: Any = plan.levels[0].instance
    graph, once, longest = isinstance(whole, GraphPartition), 0, 0
    verified = {one.name for one in levels if one.detail == POTENTIALS}
    inside = [one for one in plan.levels if isinstance(one.instance, LayerGrouping)]
    given = not graph and all(_in_order(one.instance) for one in inside)
    devices: int = whole.devices if graph else whole.k
    for level in inside:
        known = level.name in NETWORKS and f"{level.name}: bound" in verified
        if known and (given or not _in_order(level.instance)):
            potentials = level.result.evidence["potentials"]
            once += potentials[-1] - potentials[0]
            if given and level.name == NETWORKS[0]:
                longest = _longest_stage(potentials, whole.allowed_cuts.tolist(), devices)
    longest = max(longest, -(-once // devices))
    if graph or whole.training:
        return plan.microbatches * longest
    return once + (plan.microbatches - 1) * longest


def _longest_stage(potentials: list[int | None], cuts: list[bool], stages: int) -> int:
    """Return the least that potentials rise along the longest of so many stages."""
    if len(potentials) > MOST_OPERATORS:
        return 0
    known = [(b, p) for b, p in enumerate(potentials) if p is not None and cuts[b]]
    reached: dict[int, int] = {0: 0}
    for _ in range(stages):
        before = [(a, p, reached[a]) for a, p in known if a in reached]
        for b, p in reversed(known):
            ways = [max(longest, p - q) for a, q, longest in before if a < b]
            reached |= {b: min(*ways, reached.get(b, ways[0]))} if ways else {}
    return reached.get(len(potentials) - 1, 0)


def _in_order(instance: Any) -> bool:
    return bool(instance.order == "given")


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
