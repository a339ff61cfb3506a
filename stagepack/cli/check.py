"""``stagepack check``: checks a solution against its instance, and a result against its claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from stagepack.cli.terminal.live import Solving
from stagepack.cli.terminal.screen import engines_silenced, print_json, say
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, shown

if TYPE_CHECKING:
    from stagepack.planning import ModelPlan

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
        float, limit_option("Seconds of --prove, and of --proof; 0: no limit.", CLAIMS)
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Check a solution, a program or a whole result: 0 valid, 4 not, 5 bound not verified."""
    from stagepack.claims import check_proof, check_result
    from stagepack.report.shown import check_lines, proof_lines

    held = plan_in(instance) if solution is None and proof is None else None
    if held is not None:
        raise typer.Exit(_check_plan(held, instance, as_json))
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
    valid = found.valid and (replayed is None or replayed.valid)
    if as_json:
        replay = {} if replayed is None else {"replayed": replayed.to_dict()}
        print_json(found.to_dict() | replay)
    else:
        lines = check_lines(found) + ([] if replayed is None else proof_lines(replayed))
        if valid and replayed is not None and found.objective == replayed.bound:
            lines.append("optimal: the proof leaves nothing better")
        say("\n".join(lines))
    if not valid:
        raise typer.Exit(EXIT_VIOLATIONS)
    raise typer.Exit(EXIT_UNVERIFIED if found.unverified else 0)


def _check_plan(held: ModelPlan, path: str, as_json: bool) -> int:
    """Check a plan of a model level by level, and what it says; return the exit code."""
    from stagepack.planning.claims import check_plan

    violations = check_plan(held, path)
    if as_json:
        print_json({"plan": held.name, "violations": list(map(str, violations))})
    else:
        lines = list(map(str, violations)) or [f"valid: {held.name}, {len(held.levels)} levels"]
        say("\n".join(map(shown, lines)))
    return EXIT_VIOLATIONS if violations else 0
