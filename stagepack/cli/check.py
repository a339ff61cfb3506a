"""``stagepack check``: a solution against its instance, a result against what it claims."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagepack.cli.context import instance_of
from stagepack.cli.live import Search
from stagepack.cli.options import (
    CLAIMS,
    EXIT_VIOLATIONS,
    AsJson,
    Instance,
    Solution,
    limit_option,
    option,
)
from stagepack.cli.screen import engines_silenced, print_json
from stagepack.errors import InputError, shown

if TYPE_CHECKING:
    from stagepack.claims import ResultCheck


def check(
    instance: Instance,
    solution: Solution,
    context: dict[str, Any],
    anyway: Annotated[
        bool, option(CLAIMS, "Take a result for another instance: what differs?", "--anyway")
    ] = False,
    prove: Annotated[
        bool, option(CLAIMS, "Solve again to judge what a file cannot show: bounds.", "--prove")
    ] = False,
    time_limit: Annotated[float, limit_option("Seconds of --prove; 0: no limit.", CLAIMS)] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Check a solution, or every claim of a result: 0 valid, 4 violations or false claims."""
    from stagepack.claims import check_result

    if time_limit < 0:
        raise InputError(f"{time_limit}", field="--time-limit", remedy="give 0 or more")
    problem = instance_of(instance, context)
    with engines_silenced(), Search(problem.name, "solving again" if prove else "checking"):
        found = check_result(
            problem, solution, anyway=anyway, prove=prove, time_limit=time_limit or None
        )
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo("\n".join(_lines(problem, found)))
    raise typer.Exit(0 if found.valid else EXIT_VIOLATIONS)


def _lines(problem: Any, found: ResultCheck) -> list[str]:
    """Say what is wrong, claim by claim, and sum up the rest."""
    from stagepack.claims import Verdict
    from stagepack.report.format import standing
    from stagepack.report.view import view

    lines = [shown(violation) for violation in found.violations]
    for verdict in (Verdict.FALSE, Verdict.DIFFERS):
        lines += [str(claim) for claim in found.claims if claim.verdict is verdict]
    if found.valid and found.objective is not None:
        worth = view(problem.kind).worth(problem, found.objective)
        lines.append(f"valid: {problem.objective} {worth}")
    counts = Counter(claim.verdict for claim in found.claims)
    if counts:
        lines.append("claims: " + ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v]))
    open_ones = [c for c in found.claims if c.verdict is Verdict.UNVERIFIED]
    if open_ones and found.proof is None:
        names = ", ".join(claim.name for claim in open_ones)
        lines.append(f"{names}: cannot be recomputed from a file; --prove solves again")
    if found.proof is not None:
        lines += [str(claim) for claim in open_ones if claim.name in ("bound", "status")]
        value, bound = (
            "none" if figure is None else view(problem.kind).worth(problem, figure)
            for figure in (found.proof.objective, found.proof.bound)
        )
        proof = found.proof
        status = standing(proof.status, proof.objective, problem)
        lines.append(f"solved again: {status}, objective {value}, bound {bound}")
    return lines
