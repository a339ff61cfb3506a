"""``stagepack solve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stagepack.cli import completion
from stagepack.cli.context import instance_of
from stagepack.cli.export import export_solution, require_exportable
from stagepack.cli.live import Search
from stagepack.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_NOTHING,
    LIMITS,
    METHOD,
    OUTPUT,
    AsJson,
    Instance,
    Output,
)
from stagepack.cli.output import Rescue, require_writable
from stagepack.cli.picture import draw, require_drawable
from stagepack.cli.screen import (
    command_line,
    engines_silenced,
    print_json,
    terminal,
    write_json,
)
from stagepack.result import Result, Status, Termination


def solve(
    instance: Instance,
    context: dict[str, Any],
    method: Annotated[
        str,
        typer.Option(
            "-m",
            "--method",
            metavar="NAME",
            help="See stagepack methods.",
            rich_help_panel=METHOD,
            autocompletion=completion.methods,
        ),
    ] = "auto",
    engine: Annotated[
        str | None,
        typer.Option(
            "-e",
            "--engine",
            metavar="NAME",
            help="highs, cp-sat, pyomo:NAME.",
            rich_help_panel=METHOD,
            autocompletion=completion.engines,
        ),
    ] = None,
    warm_start: Annotated[
        str,
        typer.Option(
            metavar="START",
            help="auto, none, a method's name, or a solution file.",
            rich_help_panel=METHOD,
            autocompletion=completion.warm_starts,
        ),
    ] = "auto",
    threads: Annotated[
        int, typer.Option(metavar="N", help="Threads of the engine.", rich_help_panel=METHOD)
    ] = 1,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the engine.", rich_help_panel=METHOD)
    ] = 0,
    time_limit: Annotated[
        float,
        typer.Option(
            "-t",
            "--time-limit",
            metavar="SECONDS",
            help="Seconds of solving; 0: no limit.",
            rich_help_panel=LIMITS,
        ),
    ] = 10.0,
    target: Annotated[
        float | None,
        typer.Option(metavar="VALUE", help="At an objective this good.", rich_help_panel=LIMITS),
    ] = None,
    gap: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="At this relative gap: 0.01 is 1 %.", rich_help_panel=LIMITS
        ),
    ] = 0.0,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            metavar="",
            help="Limit by work, not by the clock: limited runs repeat exactly.",
            rich_help_panel=LIMITS,
            show_default=False,
        ),
    ] = False,
    as_json: AsJson = False,
    output: Output = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the solution: .png, .svg, .pdf, or .html, which is interactive.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write incumbents and bounds as CSV.", rich_help_panel=OUTPUT
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            "--offsets",
            metavar="FILE",
            help="Write the solution for other tools: offsets as MiniMalloc's CSV, schedules as "
            "PyTorch's, phases as a JSON program.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Solve one instance; the answer is checked and carries a proved bound."""
    from stagepack.instances import formats
    from stagepack.solve import solve as run

    require_writable(output, plot, trace, export)
    problem = instance_of(instance, context)
    if export is not None:
        require_exportable(problem, export)
    if plot is not None:
        require_drawable(problem, plot, "--plot")
    start: Any = warm_start
    if "/" in warm_start or warm_start.endswith((".json", ".csv")):
        start = formats.read_solution(warm_start, problem)
    with engines_silenced(), Search(problem.name, method) as search:
        result = run(
            problem,
            method,
            engine=engine,
            time_limit=time_limit or None,
            target=target,
            gap=gap,
            warm_start=start,
            threads=threads,
            seed=seed,
            on_incumbent=search.incumbent,
            on_bound=search.bound,
            options={"deterministic": True} if deterministic else None,
        )
    document: dict[str, Any] = {}
    rescue = Rescue()
    if output is not None or as_json:  # a million offsets take a while to write down
        document = {**result.to_dict(), "command": command_line()}
    if output is not None:
        with rescue:
            write_json(output, document)
    if trace is not None:
        with rescue:
            result.trace.to_csv(trace)
    if export is not None and result.solution is not None:
        with rescue:
            export_solution(problem, result.solution, export)
    if plot is not None and result.solution is not None:
        with rescue:
            draw(problem, result.solution, plot)
    if as_json or rescue:
        rescue.tell("the whole result")
        print_json(document or {**result.to_dict(), "command": command_line()})
    else:
        from stagepack.report.shown import contents

        terminal().print(*contents(result.of(problem)), sep="\n")
    raise typer.Exit(EXIT_INPUT if rescue else _exit_code(result))


def _exit_code(result: Result[Any]) -> int:
    if result.status is Status.INFEASIBLE:
        return EXIT_INFEASIBLE
    if result.solution is not None:
        return 0
    return EXIT_INTERRUPTED if result.termination is Termination.INTERRUPTED else EXIT_NOTHING
