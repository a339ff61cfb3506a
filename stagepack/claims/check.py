"""Reads what is to be checked: a result, a solution, or the file to which one was exported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stagepack.claims.again import solved_again, tried_all
from stagepack.claims.claim import ResultCheck, is_number
from stagepack.claims.rules import Case, claims, difference
from stagepack.contracts import Instance, JsonObject, Number, Solution
from stagepack.errors import InputError
from stagepack.files import finite
from stagepack.formats.solutions import refuse_instance, solution_bytes, solution_in
from stagepack.instances.base import require_instance
from stagepack.instances.documents import strict
from stagepack.instances.problem import PROBLEMS
from stagepack.result import Result, Status
from stagepack.verify import Finding, verify

CLAIMS = ("status", "termination", "objective", "bound", "gap", "violations", "digest")
"""Fields that make a document a result."""


def check_result(
    instance: Instance,
    result: str | Path | Mapping[str, object] | Result[Solution] | Solution,
    *,
    anyway: bool = False,
    prove: bool = False,
    time_limit: float | None = 10,
) -> ResultCheck:
    """Check a solution, and each claim of a result: objective, bound, status, digest, and so on.

    Parameters
    ----------
    instance : instance of any problem
    result : path-like, mapping, Result or solution
        A result or a plain solution: as a file, as JSON data, or as the object.  For some kinds of
        problem also a file that the solution was exported to.
    anyway : bool
        Whether to accept a result for another instance, and to report the differences.
    prove : bool
        Whether to solve the instance again where bound or status cannot be verified by what the
        document says, by code that shares nothing with what made the claim as far as there is any;
        else, where it is small, to try all its solutions.
    time_limit : float, optional
        Seconds for verifying, and for solving it again.

    Returns
    -------
    ResultCheck
        The verdicts.  False claims are listed in it, and raise no exception.

    Raises
    ------
    InputError
        If the document contains neither a result nor a solution, if the solution does not fit the
        instance, or, without `anyway`, if the result is for another instance.
    """
    from stagepack.solve import require_time

    require_instance(instance)
    time_limit = require_time(time_limit)
    place, data = _given(result, instance)
    with strict.located(place):
        document = document_of(data)
        exported = _exported(document, instance)
        if exported is not None:
            return exported
        refuse_instance(document)
        case = _case(document, data, instance, anyway)
        something = _claims_something(document)
        if prove and not something:
            raise InputError(
                "has no bound and no status to prove", field="--prove", remedy="give a result"
            )
    case.finding = _verified(case, time_limit)
    if prove and (case.finding is None or not case.finding.shown):
        case.again = solved_again(case, _claimed(document), time_limit)
        case.tried = tried_all(case, _claimed(document), time_limit)
    return ResultCheck(
        instance=instance.name,
        solution=case.solution,
        violations=case.violations,
        objective=case.objective,
        claims=tuple(claims(case)) if something else (),
        again=tuple(again.result for again in case.again),
        candidates=0 if case.tried is None else case.tried.count,
        problem=instance,
    )


def _given(
    result: str | Path | Mapping[str, object] | Result[Solution] | Solution, instance: Instance
) -> tuple[str | Path, bytes]:
    """Return what is to be checked as a file would hold it, and which file does."""
    if isinstance(result, str | os.PathLike):
        return result, solution_bytes(result)
    if isinstance(result, Result):
        return "", encoded(result.to_dict())
    if isinstance(result, Mapping):
        return "", encoded(dict(result))
    solution = instance.solution_in(result, "result", shaped=False)
    return "", encoded({"solution": solution.to_dict()})


def encoded(document: JsonObject) -> bytes:
    """Return a document as a file would hold it; refuse text that no file can hold."""
    try:
        return msgspec.json.encode(finite(document))
    except UnicodeEncodeError as error:
        raise InputError(
            f"has text that no file can hold ({error.reason})", remedy="give UTF-8"
        ) from None


def document_of(data: bytes) -> JsonObject:
    """Return a JSON document; an empty one for solutions in other formats."""
    if strict.first_byte(data) != b"{":
        return {}
    return strict.decode(data, JsonObject)


def _exported(document: JsonObject, instance: Instance) -> ResultCheck | None:
    """Return the check of what a solution was exported to; None for anything else."""
    known = PROBLEMS[instance.kind]
    export = known.export
    if export is None or not export.check or not export.marks.items() <= document.items():
        return None
    claimed = next((name for name in CLAIMS if name in document), None)
    if claimed is not None:
        raise InputError(
            "is claimed by results, not by programs", field=claimed, remedy="give the result itself"
        )
    broken, worth = known.named(export.check)(instance, document)
    return ResultCheck(instance.name, None, broken, None if broken else worth, problem=instance)


def _case(document: JsonObject, data: bytes, instance: Instance, anyway: bool) -> Case:
    """Return a document beside its solution, what that breaks and what it is worth."""
    foreign = _require_same(document, instance, anyway)
    if document and not _holds_solution(document):
        return Case(document, instance, None, (), None, foreign)
    solution = solution_in(data, instance, any_digest=True)
    violations = tuple(instance.check(solution))
    objective = None if violations else instance.evaluate(solution)
    return Case(document, instance, solution, violations, objective, foreign)


def _claims_something(document: Mapping[str, object]) -> bool:
    inside = "solution" in document and len(document) > 1
    return inside or any(key in document for key in CLAIMS)


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
    problem = document.get("problem")
    if problem in PROBLEMS and problem != instance.kind:
        raise InputError(
            f"is a result of {problem}, not of {instance.kind}",
            field="problem",
            remedy="give the instance that it is a result of",
        )
    if not anyway:
        there = document.get("instance_fields")
        why = difference(there, instance) if isinstance(there, Mapping) else ""
        raise InputError(
            f"is a result for another instance ({digest[:64]}, not {instance.digest})"
            + (f": {why}" if why else ""),
            field="digest",
            remedy=f"{strict.ANOTHER}, or see what differs with --anyway",
        )
    return True


def _verified(case: Case, time_limit: float | None) -> Finding | None:
    """Verify the bound of a document, or that nothing is feasible; None where neither is said."""
    bound, proof, evidence = (case.document.get(name) for name in ("bound", "proof", "evidence"))
    infeasible = case.document.get("status") == Status.INFEASIBLE
    if not infeasible and not is_number(bound):
        return None
    given = evidence if isinstance(evidence, Mapping) else {}
    least = _claimed(case.document)
    return verify(case.instance, least, str(proof), given, time_limit=time_limit)


def _claimed(document: JsonObject) -> Number | None:
    """Return the bound of a document; None where it has none: then nothing is feasible."""
    bound = document.get("bound")
    return bound if is_number(bound) else None
