"""Solutions for other tools: what each kind of problem is exported to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stagepack.cli.screen import write_json
from stagepack.result import InputError

EXPORTS = {"lmem-packing": ".csv", "pipeline-schedule": ".csv", "phase-schedule": ".json"}
"""What solutions are exported to, by kind of problem."""


def require_exportable(problem: Any, path: Path) -> None:
    """Refuse a file that this kind of problem is not exported to, before anything is solved."""
    end = EXPORTS.get(problem.kind)
    if end is None:
        raise InputError(f"a {problem.kind} has none", field="--export", remedy="use -o FILE")
    if path.suffix.lower() in (".csv", ".json") and path.suffix.lower() != end:
        raise InputError(
            f"a {problem.kind} is exported as {end[1:].upper()}",
            file=path,
            field="--export",
            remedy=f"end the name in {end}",
        )


def export_solution(problem: Any, solution: Any, path: Path) -> None:
    """Write a solution for other tools."""
    from stagepack.instances import formats

    if problem.kind == "phase-schedule":
        from stagepack.instances.phases.program import program

        write_json(path, program(problem, solution))
    else:
        formats.write_solution(problem, solution, path)
