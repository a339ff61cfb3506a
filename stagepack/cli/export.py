"""Solutions for other tools: what each kind of problem is exported to."""

from __future__ import annotations

from pathlib import Path

from stagepack import files
from stagepack.cli.screen import write_json
from stagepack.contracts import Instance, Solution
from stagepack.errors import InputError
from stagepack.instances.problem import PROBLEMS


def require_exportable(problem: Instance, path: Path) -> None:
    """Refuse a file that this kind of problem is not exported to, before anything is solved.

    Raises
    ------
    InputError
        For a kind that has no export, or another end of the name than it takes.
    """
    export = PROBLEMS[problem.kind].export
    if export is None:
        raise InputError(f"a {problem.kind} has none", field="--export", remedy="use -o FILE")
    if export.texts and path.suffix.lower() not in export.texts:
        raise InputError(
            f"a {problem.kind} is exported as {' or '.join(e[1:].upper() for e in export.texts)}",
            file=path,
            field="--export",
            remedy=f"end the name in {' or '.join(export.texts)}",
        )
    end = export.ending
    if not export.texts and path.suffix.lower() in (".csv", ".json") and path.suffix.lower() != end:
        raise InputError(
            f"a {problem.kind} is exported as {end[1:].upper()}",
            file=path,
            field="--export",
            remedy=f"end the name in {end}",
        )


def export_solution(problem: Instance, solution: Solution, path: Path) -> None:
    """Write a solution for other tools, checked by :func:`require_exportable`.

    Parameters
    ----------
    problem : instance
    solution : solution
    path : Path
    """
    from stagepack.instances import formats

    known = PROBLEMS[problem.kind]
    if known.export is not None and known.export.texts:
        text = known.named(known.export.texts[path.suffix.lower()])(problem, solution)
        files.write(path, text.encode(errors="replace"))
    elif known.export is not None and known.export.document:
        write_json(path, known.named(known.export.document)(problem, solution))
    else:
        formats.write_solution(problem, solution, path)
