"""``stagepack report``: writes one page about any number of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagepack.cli import completion
from stagepack.cli.context import instance_of
from stagepack.cli.options import OUTPUT, AsJson, option
from stagepack.cli.output import require_writable
from stagepack.cli.picture import require_pages
from stagepack.cli.plan import plan_in
from stagepack.cli.terminal.screen import print_json, say
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, shown

if TYPE_CHECKING:
    from stagepack.contracts import Instance

PAGE = Path("stagepack-report.html")
ALONE = "name its solution or result after it"
BEFORE = "name its instance before it: stagepack report INSTANCE RESULT"
ANSWERS = ("solution", "status", "termination")
"""Fields of results, which no instance has."""


def report(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="A plan, a tuning, a store of results; an instance (or a name of the catalog) "
            "with its solutions or results after it.",
            autocompletion=completion.instances,
        ),
    ],
    context: JsonObject,
    output: Annotated[
        Path, option(OUTPUT, "The page.", "-o", "--output", metavar="FILE", show_default=True)
    ] = PAGE,
    as_json: AsJson = False,
) -> None:
    """Write one page of all that is given: results, plans, tunings, what is in stores."""
    from stagepack.report.pages import report as write

    for source in sources:
        require_writable(output, source=source)
    require_pages("stagepack report")
    found = _found(sources, context)
    write(found, output)
    if as_json:
        print_json({"written": str(output), "shown": len(found)})
    else:
        say(f"{len(found)} shown in {shown(output)}")


def _found(sources: list[str], context: JsonObject) -> list[object]:
    """Return what is shown, in order."""
    from stagepack.claims import read_result
    from stagepack.compare.results import read_store
    from stagepack.planning.document import is_tuning, read_tuning

    found: list[object] = []
    instance: Instance | None = None
    waits = ""  # the instance that has no solution so far
    for source in sources:
        path = Path(source)
        whole: Any = None
        if path.is_dir():
            whole = read_store(path)
        elif is_tuning(path):
            whole = read_tuning(path)
        else:
            whole = plan_in(path)
        if whole is not None:
            _require_answered(waits)
            found.append(whole)
            instance = None
        elif path.exists() and (waits or _is_answer(path)):
            if instance is None:
                raise InputError("needs its instance", file=source, remedy=BEFORE)
            found.append(read_result(path, instance))
            waits = ""
        else:
            _require_answered(waits)
            instance, waits = instance_of(source, context), source
    _require_answered(waits)
    return found


def _require_answered(source: str) -> None:
    if source:
        raise InputError("is an instance without a solution", file=source, remedy=ALONE)


def _is_answer(path: Path) -> bool:
    """Whether a file is a result or a solution by its fields."""
    from stagepack.claims.check import document_of
    from stagepack.formats.native import refuse_account
    from stagepack.instances.documents import strict
    from stagepack.instances.problem import PROBLEMS

    data = strict.load(path)
    with strict.located(path):
        fields = document_of(data).keys()
        refuse_account(fields)
    shapes = [known.solution_fields for known in PROBLEMS.values()]
    return "version" not in fields and (
        any(name in fields for name in ANSWERS) or any(fields >= set(shape) for shape in shapes)
    )
