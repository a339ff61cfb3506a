"""Reads a result from its file and refuses it if a claim that can be checked is false."""

from __future__ import annotations

from pathlib import Path

from stagepack.claims.check import check_result, document_of
from stagepack.contracts import Instance, Solution
from stagepack.errors import InputError
from stagepack.instances.documents import strict
from stagepack.result import Result, Status, Termination


def read_result(path: str | Path, instance: Instance) -> Result[Solution]:
    """Read a result, or a solution, of an instance.

    A file with a solution alone gives a FEASIBLE result without a bound.

    Parameters
    ----------
    path : path-like
        What :meth:`.Result.to_json`, ``stagepack solve -o`` or :func:`.write_solution` wrote.
    instance : instance of any problem

    Returns
    -------
    Result
        The result, attached to `instance`.  Bounds and times are those of the file.

    Raises
    ------
    InputError
        Naming file and field: if :func:`.check_result` refuses the file, the solution breaks a
        rule, or a claim is false.
    """
    found = check_result(instance, path)
    wrong = [str(fault) for fault in (*found.violations, *found.false)]
    if wrong:
        raise InputError(wrong[0], file=path, remedy="see all of it: stagepack check")
    alone: Result[Solution] = Result(
        status=Status.FEASIBLE,
        termination=Termination.FINISHED,
        objective=found.objective,
        method="solution",
        instance=instance.name,
        kind=instance.kind,
        objective_name=str(instance.objective),
        digest=instance.digest,
    )
    with strict.located(path):
        said = document_of(strict.load(path))
        if found.solution is None and "status" not in said:
            raise InputError("holds no solution", remedy="give a solution or a result")
        known = said if "status" in said else {}
        try:
            result = Result.from_dict({**alone.to_dict(), **known}, found.solution)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"is no result ({error})", remedy="solve anew") from None
    result.objective = found.objective
    return result.of(instance)
