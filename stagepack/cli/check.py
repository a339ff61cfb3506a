"""``stagepack check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stagepack.cli.context import instance_and_solution
from stagepack.cli.options import EXIT_VIOLATIONS, AsJson, Instance
from stagepack.cli.screen import print_json
from stagepack.errors import shown


def check(
    instance: Instance,
    solution: Annotated[Path, typer.Argument(help="A solution or a result, as JSON.")],
    context: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Check a solution against an instance: 0 valid, 4 violations."""
    problem, answer = instance_and_solution(instance, solution, context)
    violations = problem.check(answer)
    objective = None if violations else problem.evaluate(answer)
    if as_json:
        print_json(
            {
                "instance": problem.name,
                "valid": not violations,
                "objective": objective,
                "violations": [
                    {"rule": violation.rule, "detail": violation.detail} for violation in violations
                ],
            }
        )
    elif violations:
        typer.echo("\n".join(map(shown, violations)))
    else:
        from stagepack.report.kinds import face

        typer.echo(f"valid: {problem.objective} {face(problem).worth(problem, objective)}")
    raise typer.Exit(EXIT_VIOLATIONS if violations else 0)
