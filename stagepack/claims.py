"""What a result file claims, compared with what its solution is worth.

A result says more than its solution: a value, a bound, a gap, a status, why the run stopped, on
which instance.  Whatever follows from instance and solution is computed again.  That a bound is
one, and that nothing better exists, does not follow from a file: only solving again can tell.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeGuard

import msgspec

from stagepack.contracts import Instance, JsonObject, Number, Solution, Violation
from stagepack.errors import InputError, shown
from stagepack.files import finite
from stagepack.instances.answer import require_instance
from stagepack.instances.documents import strict
from stagepack.instances.formats.solutions import solution_in
from stagepack.instances.problem import PROBLEMS
from stagepack.records import fault
from stagepack.result import Result, Status, Termination, relative_gap
from stagepack.shown import Shown

CLAIMS = ("status", "termination", "objective", "bound", "gap", "violations", "digest")
"""Fields that make a document a result."""
UNPROVED = "cannot be recomputed from a file"
LONGEST_VALUE = 60  # characters of what a file claims


class Verdict(StrEnum):
    """What became of a claim."""

    CONFIRMED = "confirmed"
    FALSE = "false"
    DIFFERS = "differs"  # it may be true of the instance that it was made for
    UNVERIFIED = "unverified"


@dataclass(frozen=True)
class Claim:
    """One thing that a result says.

    Attributes
    ----------
    name : str
        Field of the result.
    claimed, recomputed : object
        What the file says, and what is found; None where nothing can be found.
    verdict : Verdict
    detail : str
        Why, in words.
    """

    name: str
    claimed: object
    recomputed: object
    verdict: Verdict
    detail: str = ""

    def to_dict(self) -> JsonObject:
        """Return the claim as plain JSON data."""
        return {
            "claim": self.name,
            "claimed": finite(self.claimed),
            "recomputed": finite(self.recomputed),
            "verdict": str(self.verdict),
            "detail": self.detail or None,
        }

    def __str__(self) -> str:
        text = f"{self.name} {_short(self.claimed)}: {self.verdict}"
        return f"{text}; {shown(self.detail)}" if self.detail else text


@dataclass(frozen=True, repr=False)
class ResultCheck(Shown):
    """What a document says, claim by claim; a plain solution claims nothing.

    Attributes
    ----------
    instance : str
        Name of the instance it was checked against.
    solution : object or None
    violations : tuple of Violation
        The rules that the solution breaks.
    objective : int or float or None
        What a valid solution is worth.
    claims : tuple of Claim
    proof : Result or None
        What solving again found.
    problem : instance of any problem
        What it was checked against.
    """

    instance: str
    solution: Solution | None
    violations: tuple[Violation, ...]
    objective: Number | None
    claims: tuple[Claim, ...] = ()
    proof: Result[Solution] | None = None
    problem: Instance | None = None

    def _line(self) -> str:
        broken = f"{len(self.violations):,} violations, {len(self.false):,} false claims"
        return f"{self.instance!r}, {'valid' if self.valid else broken}"

    @property
    def false(self) -> tuple[Claim, ...]:
        """The claims that are not true."""
        return tuple(claim for claim in self.claims if claim.verdict is Verdict.FALSE)

    @property
    def valid(self) -> bool:
        """Whether the solution breaks no rule and no claim is false."""
        return not self.violations and not self.false

    def to_dict(self) -> JsonObject:
        """Return everything as plain JSON data."""
        document: JsonObject = {
            "instance": self.instance,
            "valid": self.valid,
            "objective": self.objective,
            "violations": [{"rule": v.rule, "detail": v.detail} for v in self.violations],
            "claims": [claim.to_dict() for claim in self.claims],
        }
        if self.proof is not None:
            found = self.proof.to_dict()
            keys = ("status", "termination", "objective", "bound", "bound_source", "solution")
            document["proof"] = {key: found[key] for key in (*keys, "method", "runtime")}
        return document


def check_result(
    instance: Instance,
    result: str | Path | Mapping[str, object] | Result[Solution] | Solution,
    *,
    anyway: bool = False,
    prove: bool = False,
    time_limit: float | None = 10,
) -> ResultCheck:
    """Compare every claim of a result with what instance and solution say.

    Parameters
    ----------
    instance : instance of any problem
    result : path-like, mapping, Result or solution
        A result or a plain solution: a file, its document, or the object; or what the solution
        was exported to, where the problem can check that.
    anyway : bool
        Take a result for another instance, too, and say what differs.
    prove : bool
        Solve again, and compare bound and status with what is found.
    time_limit : float, optional
        Seconds of solving again.

    Returns
    -------
    ResultCheck
        False claims are part of the answer, never an exception.

    Raises
    ------
    InputError
        For a document that holds neither result nor solution, a solution that cannot belong to
        the instance, and (but for `anyway`) a result for another instance.
    """
    place: str | Path = ""
    require_instance(instance)
    if not isinstance(result, str | os.PathLike | Mapping | Result):
        result = {"solution": instance.solution_in(result, "result", shaped=False).to_dict()}
    if isinstance(result, Result):
        data = msgspec.json.encode(result.to_dict())
    elif isinstance(result, Mapping):
        data = msgspec.json.encode(finite(dict(result)))
    else:
        place, data = result, strict.load(result)
    with strict.located(place):
        document = _document(data)
        known = PROBLEMS[instance.kind]
        export = known.export
        if export is not None and export.check and export.marks.items() <= document.items():
            broken, worth = known.named(export.check)(instance, document)
            value = None if broken else worth
            return ResultCheck(instance.name, None, broken, value, problem=instance)
        foreign = _require_same(document, instance, anyway)
        solution = None
        if not document or _holds_solution(document):
            solution = solution_in(data, instance, any_digest=True)
        violations = () if solution is None else instance.check(solution)
        valid = solution is not None and not violations
        objective = instance.evaluate(solution) if valid else None
        case = _Case(document, instance, solution, tuple(violations), objective, foreign)
        if prove and not case.claims_something:
            raise InputError("claims nothing to prove", field="--prove", remedy="give a result")
    if prove:
        case.proof = _solved_again(case, time_limit)
    return ResultCheck(
        instance=instance.name,
        solution=solution,
        violations=case.violations,
        objective=objective,
        claims=tuple(_claims(case)) if case.claims_something else (),
        proof=case.proof,
        problem=instance,
    )


def _document(data: bytes) -> JsonObject:
    """Return a JSON document; an empty one for solutions in other formats."""
    if strict.first_byte(data) != b"{":
        return {}
    return strict.decode(data, JsonObject)


def _holds_solution(document: Mapping[str, object]) -> bool:
    if document.get("solution") is not None or not any(key in document for key in CLAIMS):
        return True
    # One that has a field of a solution holds its solution itself.
    return any(key in document for known in PROBLEMS.values() for key in known.solution_fields)


def _require_same(document: Mapping[str, object], instance: Instance, anyway: bool) -> bool:
    """Return whether a result is for another instance; refuse it unless it is wanted."""
    digest = document.get("digest")
    if not isinstance(digest, str) or digest in ("", instance.digest):
        return False
    if not anyway:
        there = document.get("instance_fields")
        why = _difference(there, instance) if isinstance(there, Mapping) else ""
        raise InputError(
            f"is a result for another instance ({digest[:64]}, not {instance.digest})"
            + (f": {why}" if why else ""),
            field="digest",
            remedy=f"{strict.ANOTHER}, or see what differs with --anyway",
        )
    return True


@dataclass
class _Case:
    """A document beside what is known of it."""

    document: JsonObject
    instance: Instance
    solution: Solution | None
    violations: tuple[Violation, ...]
    objective: Number | None
    foreign: bool
    proof: Result[Solution] | None = field(default=None)

    @property
    def claims_something(self) -> bool:
        inside = "solution" in self.document and len(self.document) > 1
        return inside or any(key in self.document for key in CLAIMS)

    def slack(self, value: float) -> float:
        tolerance = float(self.instance.tolerance)
        return tolerance * max(1.0, abs(value)) if tolerance else 0

    def above(self, one: Number, other: Number) -> bool:
        """Whether one value exceeds another by more than the instance's tolerance."""
        return bool(one - other > self.slack(other))

    def wrong(self) -> Verdict:
        """Return what to call a claim that does not hold here."""
        return Verdict.DIFFERS if self.foreign else Verdict.FALSE

    @property
    def best(self) -> Number | None:
        """The least value of a solution that is known."""
        values = [self.objective, self.proof.objective if self.proof else None]
        return min((value for value in values if value is not None), default=None)


def _claims(case: _Case) -> list[Claim]:
    made = [
        _digest(case),
        *_labels(case),
        _violations(case),
        _objective(case),
        _bound(case),
        _gap(case),
        _status(case),
        _termination(case),
        _trace(case),
        *_records(case),
    ]
    return [claim for claim in made if claim is not None]


def _number(value: object) -> TypeGuard[Number]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# ---------------------------------------------------------------------- which instance


def _digest(case: _Case) -> Claim | None:
    claimed, own = case.document.get("digest"), case.instance.digest
    if claimed in (None, ""):
        return None
    if claimed == own:
        return Claim("digest", claimed, own, Verdict.CONFIRMED)
    if not case.foreign:
        return Claim("digest", claimed, own, Verdict.FALSE, "is no digest")
    return Claim("digest", claimed, own, Verdict.DIFFERS, _elsewhere(case))


def _elsewhere(case: _Case) -> str:
    """Say in which fields the instance of a result is another one."""
    there = case.document.get("instance_fields")
    if not isinstance(there, Mapping):
        return "a result for another instance; the file does not say in which fields it differs"
    words = _difference(there, case.instance)
    return words or "another instance, in no field that this version knows"


def _difference(there: Mapping[str, object], instance: Instance) -> str:
    """Say in which fields an instance is another one than that of a result; "" for none."""
    here = instance.fingerprints
    return _unlike(there, here, {*there, *here})


def _unlike(there: Mapping[str, object], here: Mapping[str, object], names: Iterable[str]) -> str:
    words = []
    unlike = {name for name in names if there.get(name) != here.get(name)}
    unlike -= {name for name in unlike if "." in name and name not in there}  # an older file
    for name in sorted(unlike):
        whole, dot, _ = name.partition(".")
        named = f"{whole}.name"
        if named in unlike - {name} if dot else named in there:
            continue  # the name says it all, or the parts do
        one, other = there.get(name), here.get(name)
        hidden = any(isinstance(value, str) and value.startswith("#") for value in (one, other))
        figures = f"is {_short(one)} there, {_short(other)} here"
        words.append(f"{name} differs" if hidden else f"{name} {figures}")
    return "; ".join(words)


def _labels(case: _Case) -> list[Claim]:
    """Kind and objective: words that the instance has, too."""
    found = []
    for name, own in (
        ("problem", case.instance.kind),
        ("objective_name", str(case.instance.objective)),
    ):
        claimed = case.document.get(name)
        if claimed is None:
            continue
        if claimed == own:
            found.append(Claim(name, claimed, own, Verdict.CONFIRMED))
        else:
            found.append(Claim(name, claimed, own, case.wrong(), f"the instance says {own}"))
    return found


# ---------------------------------------------------------------------- what a solution is worth


def _violations(case: _Case) -> Claim | None:
    if "violations" not in case.document or case.solution is None:
        return None
    claimed = case.document["violations"]
    own = [str(violation) for violation in case.violations]
    if claimed == own:
        return Claim("violations", claimed, own, Verdict.CONFIRMED)
    detail = f"the solution breaks {own[0]}" if own else "the solution breaks no rule"
    return Claim("violations", claimed, own, case.wrong(), detail)


def _objective(case: _Case) -> Claim | None:
    if "objective" not in case.document:
        return None
    claimed, own = case.document["objective"], case.objective
    name = "objective"
    if case.solution is None:
        if claimed is None:
            return None
        return Claim(name, claimed, None, Verdict.FALSE, "there is no solution that is worth it")
    if case.violations:
        return Claim(name, claimed, None, case.wrong(), "the solution is not valid")
    if not _number(claimed):
        return Claim(name, claimed, own, Verdict.FALSE, f"the solution is worth {_short(own)}")
    assert own is not None
    if abs(claimed - own) <= case.slack(own):
        return Claim(name, claimed, own, Verdict.CONFIRMED)
    return Claim(name, claimed, own, case.wrong(), f"the solution is worth {_short(own)}")


def _bound(case: _Case) -> Claim | None:
    claimed, best = case.document.get("bound"), case.best
    if claimed is None:
        return None
    if not _number(claimed):
        return Claim("bound", claimed, None, Verdict.FALSE, "is no number")
    if best is not None and case.above(claimed, best):
        known = best != case.objective
        whose = "solving again found one" if known else "the solution is"
        detail = f"no lower bound: {whose} worth {_short(best)}"
        return Claim("bound", claimed, best, case.wrong(), detail)
    if case.proof is not None:
        proved = case.proof.bound
        if case.proof.status is Status.INFEASIBLE:
            return Claim("bound", claimed, None, Verdict.CONFIRMED, "nothing is feasible")
        if proved is not None and not case.above(claimed, proved):
            detail = f"solving again proved {_short(proved)} ({case.proof.bound_source})"
            return Claim("bound", claimed, proved, Verdict.CONFIRMED, detail)
        detail = f"solving again proved no more than {_short(proved)}"
        return Claim("bound", claimed, proved, Verdict.UNVERIFIED, detail)
    return Claim("bound", claimed, None, Verdict.UNVERIFIED, UNPROVED)


def _gap(case: _Case) -> Claim | None:
    claimed, bound = case.document.get("gap"), case.document.get("bound")
    if claimed is None:
        return None
    value = case.document.get("objective") if case.objective is None else case.objective
    if not _number(value) or not _number(bound):
        return Claim("gap", claimed, None, Verdict.FALSE, "it takes an objective and a bound")
    own = relative_gap(value, bound)
    assert own is not None
    margin = float(case.instance.tolerance) + 1e-9 * max(1.0, abs(own))
    if _number(claimed) and abs(claimed - own) <= margin:
        return Claim("gap", claimed, own, Verdict.CONFIRMED)
    detail = f"objective {_short(value)} and bound {_short(bound)} make {own:.6g}"
    return Claim("gap", claimed, own, case.wrong(), detail)


# ---------------------------------------------------------------------- what is known, and why


def _status(case: _Case) -> Claim | None:
    claimed = case.document.get("status")
    if claimed is None:
        return None
    verdict, recomputed, detail = _judged_status(case, claimed)
    return Claim("status", claimed, recomputed, verdict, detail)


def _judged_status(case: _Case, claimed: object) -> tuple[Verdict, str | None, str]:
    least = None if case.solution is None or case.violations else str(Status.FEASIBLE)
    if claimed not in tuple(Status):
        return Verdict.FALSE, least, "is no status: " + ", ".join(Status)
    if claimed in (Status.INFEASIBLE, Status.UNKNOWN):
        if case.solution is not None:
            valid = "a valid solution" if least else "a solution"
            return (case.wrong() if least else Verdict.FALSE), least, f"the file holds {valid}"
        if claimed == Status.UNKNOWN:
            return Verdict.CONFIRMED, None, ""
        return _judged_infeasible(case)
    if case.solution is None:
        return Verdict.FALSE, None, "the file holds no solution"
    if least is None:
        return case.wrong(), None, "the solution is not valid"
    if claimed == Status.FEASIBLE:
        return Verdict.CONFIRMED, least, ""
    return _judged_optimal(case, least)


def _judged_infeasible(case: _Case) -> tuple[Verdict, str | None, str]:
    if case.proof is None:
        return Verdict.UNVERIFIED, None, UNPROVED
    found = str(case.proof.status)
    if case.proof.solution is not None:
        value = _short(case.proof.objective)
        return case.wrong(), found, f"solving again found a solution worth {value}"
    if case.proof.status is Status.INFEASIBLE:
        return Verdict.CONFIRMED, found, "solving again proved it"
    return Verdict.UNVERIFIED, found, "solving again ended without a proof"


def _judged_optimal(case: _Case, least: str) -> tuple[Verdict, str | None, str]:
    objective, bound = case.objective, case.document.get("bound")
    assert objective is not None
    if not _number(bound):
        return Verdict.FALSE, least, "there is no bound that proves it"
    if case.above(objective, bound):
        detail = f"the bound {_short(bound)} is below the value {_short(objective)}"
        return case.wrong(), least, detail
    if case.proof is None:
        return Verdict.UNVERIFIED, None, UNPROVED
    if case.best is not None and case.above(objective, case.best):
        return case.wrong(), least, f"solving again found a solution worth {_short(case.best)}"
    proved = case.proof.bound
    if proved is not None and not case.above(objective, proved):
        return Verdict.CONFIRMED, str(Status.OPTIMAL), "solving again proved it"
    return Verdict.UNVERIFIED, least, f"solving again proved no more than {_short(proved)}"


def _termination(case: _Case) -> Claim | None:
    claimed, status = case.document.get("termination"), case.document.get("status")
    if claimed is None:
        return None
    name = "termination"
    if claimed not in tuple(Termination):
        return Claim(name, claimed, None, Verdict.FALSE, "is none: " + ", ".join(Termination))
    proved = status in (Status.OPTIMAL, Status.INFEASIBLE)
    if claimed == Termination.PROVED:
        if not proved:
            return Claim(name, claimed, None, Verdict.FALSE, f"but the status is {_short(status)}")
        verdict, _, detail = _judged_status(case, status)
        return Claim(name, claimed, None, verdict, detail)
    goal, value = getattr(case.instance, "goal", None), case.objective
    met = goal is not None and value is not None and value <= goal
    if proved and not (claimed == Termination.TARGET and met):
        detail = f"a run that ends {_short(status)} ends PROVED"
        return Claim(name, claimed, str(Termination.PROVED), Verdict.FALSE, detail)
    if claimed != Termination.TARGET:
        return Claim(name, claimed, None, Verdict.UNVERIFIED, "why a run ended " + UNPROVED)
    return _reached(case, met)


def _reached(case: _Case, met: bool) -> Claim:
    """Judge TARGET: a goal of the instance, or the target or gap that the run was given."""
    options, name, claimed = case.document.get("options"), "termination", str(Termination.TARGET)
    if met:
        return Claim(name, claimed, claimed, Verdict.CONFIRMED)
    value, bound = case.objective, case.document.get("bound")
    if value is None:
        return Claim(name, claimed, None, case.wrong(), "no valid solution reaches a target")
    if not isinstance(options, Mapping):
        return Claim(name, claimed, None, Verdict.UNVERIFIED, "the file does not name the target")
    target, gap = options.get("target"), options.get("gap")
    reached = _number(target) and value <= target
    if _number(bound) and _number(gap) and gap > 0:
        own = relative_gap(value, bound)
        reached |= own is not None and own <= gap
    if reached:
        return Claim(name, claimed, claimed, Verdict.CONFIRMED)
    return Claim(name, claimed, None, case.wrong(), f"{_short(value)} reaches no target")


def _trace(case: _Case) -> Claim | None:
    """Judge a trace: incumbents fall to the objective, bounds rise to the bound."""
    claimed = case.document.get("trace")
    if claimed in (None, []):
        return None
    summary = f"{len(claimed)} events" if isinstance(claimed, list) else claimed

    def claim(verdict: Verdict, detail: str) -> Claim:
        return Claim("trace", summary, None, verdict, detail)

    sides: dict[str, list[Number]] = {"incumbent": [], "bound": [], "warm-start": []}
    last: Number = 0
    for event in claimed if isinstance(claimed, list) else [None]:
        given = event if isinstance(event, Mapping) else {}
        kind, value, when = given.get("kind"), given.get("value"), given.get("time")
        if kind not in tuple(sides) or not _number(value):
            return claim(Verdict.FALSE, "an event without kind or value")
        if not _number(when) or when < last:
            return claim(
                Verdict.FALSE, f"events follow each other in time; {_short(when)} does not"
            )
        last = when
        sides[kind].append(value)
    incumbents, bounds = sides["incumbent"], sides["bound"]
    if sorted(set(incumbents), reverse=True) != incumbents or sorted(set(bounds)) != bounds:
        return claim(Verdict.FALSE, "incumbents fall and bounds rise; these do not")
    for name, values in (("objective", incumbents), ("bound", bounds)):
        end = case.document.get(name)
        if values and _number(end) and abs(values[-1] - end) > case.slack(end):
            return claim(Verdict.FALSE, f"its last {name} is {_short(values[-1])}, not {end}")
    if bounds and case.best is not None and case.above(bounds[-1], case.best):
        return claim(case.wrong(), f"a bound above {_short(case.best)}, which is reached")
    return claim(Verdict.UNVERIFIED, "incumbents and times are not kept with their solutions")


# ---------------------------------------------------------------------- the run


def _records(case: _Case) -> list[Claim]:
    """Name what cannot be true of any run, or is said of another instance; the rest is open."""
    found, instance = [], case.instance
    for name, claimed in case.document.items():
        verdict, detail = Verdict.FALSE, fault(instance.kind, name, claimed)
        if not detail and name == "instance" and claimed != instance.name:
            verdict, detail = Verdict.DIFFERS, f"the instance is called {_short(instance.name)}"
        elif not detail and name == "instance_fields" and not case.foreign:
            detail = _unlike(claimed, instance.fingerprints, claimed)
        elif not detail and name == "options":
            detail = _contradicted(claimed, case.document)
        if detail:
            found.append(Claim(name, claimed, None, verdict, detail))
    return found


def _contradicted(options: Mapping[str, object], document: Mapping[str, object]) -> str:
    """Say where the options of a run are not those that the rest of the result tells of."""
    told = {"method": document.get("method"), "objective": document.get("objective_name")}
    return "; ".join(
        f"{name} is {_short(options[name])} there, {_short(own)} in the result"
        for name, own in told.items()
        if own is not None and options.get(name, own) != own
    )


# ---------------------------------------------------------------------- solving again


def _solved_again(case: _Case, time_limit: float | None) -> Result[Solution]:
    """Solve from the solution in hand, as far as it is valid."""
    from stagepack.solve import solve

    known = case.solution is not None and not case.violations
    start = case.solution if known else "auto"
    again: Result[Solution] = solve(case.instance, time_limit=time_limit, warm_start=start)
    return again


def _short(value: object) -> str:
    """Return what a file says as people write it: thousands separated, the rest as in JSON."""
    if isinstance(value, int) and not isinstance(value, bool):
        return shown(f"{value:,}", LONGEST_VALUE)
    text = value if isinstance(value, str) else json.dumps(finite(value), default=str)
    return shown(text, LONGEST_VALUE)
