"""``stagepack show`` and ``stagepack plot``: instances and solutions in text and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stagepack.cli import completion
from stagepack.cli.context import instance_and_solution, instance_of
from stagepack.cli.options import OUTPUT, As, AsJson, Instance, Solution, option
from stagepack.cli.output import Form, export_solution, require_exportable, require_writable
from stagepack.cli.picture import draw, require_drawable, require_pages
from stagepack.cli.plan import draw_plan, plan_in
from stagepack.cli.terminal.screen import complain, print_json, print_parts, say
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from stagepack.contracts import Instance as Problem
    from stagepack.contracts import Solution as Answer
    from stagepack.planning import ModelPlan


def show(
    instance: Instance,
    context: JsonObject,
    solution: Annotated[
        Path | None,
        typer.Argument(metavar="SOLUTION", help="Show what this solution amounts to, too."),
    ] = None,
    measured: Annotated[
        Path | None,
        option(OUTPUT, "Compare the estimate with measured values (JSON, CSV).", metavar="FILE"),
    ] = None,
    html: Annotated[
        Path | None,
        option(OUTPUT, "Write the page of a solution, or of a plan of a model.", metavar="FILE"),
    ] = None,
    export: Annotated[
        Path | None,
        option(OUTPUT, "Write a solution, or a plan, for other tools.", metavar="FILE"),
    ] = None,
    as_: As = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in an instance: sizes, totals, simple bounds; and what a solution costs."""
    from stagepack.report import summary
    from stagepack.report.table import facts_table
    from stagepack.report.view import view

    held = plan_in(instance) if solution is None else None
    form = Form.of(as_)
    require_writable(html, export, source=instance)
    if html is not None:
        require_pages()
    if form.tool and export is None:
        raise InputError("needs a file", field="--as", remedy="name it: --export FILE")
    if held is not None:
        _show_plan(held, html, export, form, as_json)
        return
    if solution is None:
        for name, given in (("--html", html), ("--export", export)):
            if given is not None:
                raise InputError("needs a solution", field=name, remedy="name it, or give a plan")
        if measured is not None:
            raise InputError("needs a solution", field="--measured", remedy="name a solution file")
        problem, answer = instance_of(instance, context), None
    else:
        problem, answer = instance_and_solution(instance, solution, context)
        _write(problem, answer, solution, html, export, form.beside(problem, instance))
    kind = view(problem.kind)
    facts = summary.facts(problem)
    against = None if measured is None else kind.against(problem, answer, measured)
    if as_json:
        document: JsonObject = {"instance": facts}
        if answer is not None:
            document.update(kind.solution_facts(problem, answer))
        if against is not None:
            document["against"] = against
        print_json(document)
        return
    parts: list[RenderableType] = [facts_table(summary.lines(problem, facts))]
    if answer is not None:
        parts.append(kind.account(problem, answer))
    if against is not None:
        parts.append(kind.against_sheet(against))
    print_parts(parts)


def _show_plan(
    held: ModelPlan, html: Path | None, export: Path | None, form: Form, as_json: bool
) -> None:
    """Show a plan, and write its page and its levels for other tools."""
    if html is not None:
        held.to_html(html)
    if export is not None:
        held.export(export, format=form.tool or None, **form.options)
    if as_json:
        print_json(held.to_dict())
    else:
        print_parts(held.contents())


def _write(
    problem: Problem,
    answer: Answer,
    solution: Path,
    html: Path | None,
    export: Path | None,
    form: Form,
) -> None:
    """Write the page of a solution, and the solution for other tools; it must be valid."""
    from stagepack.claims import read_result
    from stagepack.report.pages import report

    if html is None and export is None:
        return
    violations = problem.check(answer)
    if violations:
        raise InputError(
            f"breaks {violations[0]}", field="SOLUTION", remedy="see all of it: stagepack check"
        )
    if export is not None:
        require_exportable(problem, export, form)
        export_solution(problem, answer, export, form)
    if html is not None:
        report(read_result(solution, problem), html)


def plot(
    instance: Instance,
    context: JsonObject,
    output: Annotated[
        Path,
        option(OUTPUT, "The picture: .png, .svg, .pdf or .html.", "-o", "--output", metavar="FILE"),
    ],
    solution: Solution = None,
    scale: Annotated[
        str | None,
        option(
            OUTPUT,
            "Pipelines: cycles, layers. Packings: auto, time, sections.",
            metavar="NAME",
            autocompletion=completion.scales,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a solution: stages, graphs, groups, phases, schedules, memory; .html is interactive."""
    require_writable(output)
    if solution is None:
        held = plan_in(instance)
        if held is None:
            raise InputError("is missing", field="SOLUTION", remedy="name a solution or a plan")
        draw_plan(held, output)
        say(f"{shown(held.name)}: drawn in {shown(output)}")
        return
    problem, answer = instance_and_solution(instance, solution, context)
    require_drawable(problem.kind, output, "--output")
    violations = problem.check(answer)
    if violations:
        complain(f"warning: the solution breaks {violations[0]} (stagepack check)")
    draw(problem, answer, output, scale)
    if as_json:
        print_json({"instance": problem.name, "written": str(output)})
    else:
        say(f"{shown(problem.name)}: drawn in {shown(output)}")
