"""``stagepack check``: checks a solution against its instance, and a result against its claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from stagepack.cli.context import instance_of
from stagepack.cli.options import (
    CLAIMS,
    EXIT_UNVERIFIED,
    EXIT_VIOLATIONS,
    SOLUTION_HELP,
    AsJson,
    Instance,
    limit_option,
    option,
)
from stagepack.cli.plan import plan_in
from stagepack.cli.terminal.screen import Solving, engines_silenced, print_json, say
from stagepack.contracts import JsonObject
from stagepack.errors import InputError

if TYPE_CHECKING:
    from stagepack.claims import ProofCheck, ResultCheck

INSTANCE_ITSELF = "Left out where INSTANCE holds one: a .tflite model with a plan, offsets, a plan."


def check(
    instance: Instance,
    context: JsonObject,
    solution: Annotated[
        Path | None,
        typer.Argument(metavar="[SOLUTION]", help=f"{SOLUTION_HELP} {INSTANCE_ITSELF}"),
    ] = None,
    anyway: Annotated[
        bool, option(CLAIMS, "Take a result for another instance: what differs?", "--anyway")
    ] = False,
    prove: Annotated[
        bool,
        option(CLAIMS, "Solve again, by other code, what cannot be verified.", "--prove"),
    ] = False,
    proof: Annotated[
        Path | None,
        option(
            CLAIMS,
            "Replay a proof of a bound, written by solve --proof, beside the solution or alone.",
            metavar="FILE",
        ),
    ] = None,
    time_limit: Annotated[
        float, limit_option("Seconds of verifying, and of --prove; 0: no limit.", CLAIMS)
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Check a solution, a program or a whole result: 0 valid, 4 not, 5 bound not verified."""
    from stagepack.claims import check_proof, check_result
    from stagepack.report.checks import proof_lines

    if solution is None and proof is None:
        with engines_silenced():
            whole = _whole(instance, prove, time_limit or None)
        if whole is not None:
            _tell(whole, as_json=as_json)
    problem = instance_of(instance, context)
    replayed = None
    if proof is not None:
        with Solving(problem.name, "replaying"):
            replayed = check_proof(problem, proof, time_limit=time_limit or None)
        if solution is None:
            if as_json:
                print_json(replayed.to_dict())
            else:
                say("\n".join(proof_lines(replayed)))
            raise typer.Exit(0 if replayed.valid else EXIT_VIOLATIONS)
    if solution is None:
        solution = Path(instance)
        if not solution.is_file():
            raise InputError("is missing", field="SOLUTION", remedy="name a solution or a result")
    with engines_silenced(), Solving(problem.name, "solving again" if prove else "checking"):
        found = check_result(
            problem, solution, anyway=anyway, prove=prove, time_limit=time_limit or None
        )
    _tell(found, replayed, as_json=as_json)


def _whole(path: str, prove: bool, time_limit: float | None) -> ResultCheck | None:
    """Check what needs no instance beside it: a plan of a model, or a tuning; None for others."""
    from stagepack.planning.claims import check_plan, check_tuning
    from stagepack.planning.document import is_tuning, read_tuning

    plan = plan_in(path)
    if plan is not None:
        return check_plan(plan, path, prove=prove, time_limit=time_limit)
    return check_tuning(read_tuning(path), path) if is_tuning(path) else None


def _tell(found: ResultCheck, replayed: ProofCheck | None = None, *, as_json: bool) -> NoReturn:
    """Print what a check came to, and end with its exit code."""
    from stagepack.report.checks import check_lines, proof_lines

    valid = found.valid and (replayed is None or replayed.valid)
    optimal = valid and replayed is not None and found.objective == replayed.bound
    if as_json:
        replay = {} if replayed is None else {"replayed": replayed.to_dict()}
        print_json(found.to_dict() | replay)
    else:
        lines = check_lines(found) + ([] if replayed is None else proof_lines(replayed))
        say("\n".join([*lines, *(["optimal: the proof leaves nothing better"] if optimal else [])]))
    if not valid:
        raise typer.Exit(EXIT_VIOLATIONS)
    raise typer.Exit(EXIT_UNVERIFIED if found.unverified and not optimal else 0)
