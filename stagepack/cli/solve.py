"""``stagepack solve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stagepack.cli.context import instance_of
from stagepack.cli.export import export_solution, require_exportable
from stagepack.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_NOTHING,
    AsJson,
    Instance,
    Output,
    TimeLimit,
)
from stagepack.cli.output import Rescue, require_writable
from stagepack.cli.screen import (
    Spinner,
    command_line,
    figure,
    native_output_on_stderr,
    print_json,
    terminal,
    words,
    write_json,
)
from stagepack.errors import shown
from stagepack.result import Result, Status, Termination


def solve(
    instance: Instance,
    context: dict[str, Any],
    method: Annotated[str, typer.Option("-m", "--method", help="See stagepack methods.")] = "auto",
    engine: Annotated[
        str | None, typer.Option("-e", "--engine", help="highs, cp-sat, pyomo:NAME.")
    ] = None,
    time_limit: TimeLimit = 10.0,
    target: Annotated[float | None, typer.Option(help="Stop at an objective this good.")] = None,
    gap: Annotated[float, typer.Option(help="Stop at this relative gap.")] = 0.0,
    warm_start: Annotated[
        str, typer.Option(help="auto, none, a method's name, or a solution file.")
    ] = "auto",
    threads: Annotated[int, typer.Option(help="Threads of the engine.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the engine.")] = 0,
    deterministic: Annotated[
        bool, typer.Option(help="Limit by work, not by the clock: limited runs repeat exactly.")
    ] = False,
    as_json: AsJson = False,
    output: Output = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write incumbents and bounds as CSV.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            "--offsets",
            metavar="FILE",
            help="Write the solution for other tools: offsets as MiniMalloc's CSV, schedules as "
            "PyTorch's, phases as a JSON program.",
        ),
    ] = None,
) -> None:
    """Solve one instance; the answer is checked and carries a proved bound."""
    from stagepack.instances import formats
    from stagepack.solve import solve as run

    require_writable(output, trace, export)
    problem = instance_of(instance, context)
    if export is not None:
        require_exportable(problem, export)
    start: Any = warm_start
    if "/" in warm_start or warm_start.endswith((".json", ".csv")):
        start = formats.read_solution(warm_start, problem)
    with (
        native_output_on_stderr(),
        Spinner(f"solving {problem.name} with {method}", as_json) as update,
    ):
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
            on_incumbent=lambda _solution, objective, bound: update(
                f"incumbent {figure(objective)}, bound {figure(bound)}"
            ),
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
    if as_json or rescue:
        rescue.tell("the whole result")
        print_json(document or {**result.to_dict(), "command": command_line()})
    else:
        _print_result(problem, result)
    raise typer.Exit(EXIT_INPUT if rescue else _exit_code(result))


def _exit_code(result: Result[Any]) -> int:
    if result.status is Status.INFEASIBLE:
        return EXIT_INFEASIBLE
    if result.solution is not None:
        return 0
    return EXIT_INTERRUPTED if result.termination is Termination.INTERRUPTED else EXIT_NOTHING


def _print_result(problem: Any, result: Result[Any]) -> None:
    from rich.markup import escape

    from stagepack.report.kinds import face

    console, kind = terminal(), face(problem)
    engine = f" on {result.engine}" if result.engine else ""
    setup = f" (and {result.setup_time:.1f} s of setup)" if result.setup_time >= 0.1 else ""
    console.print(
        f"[bold]{escape(shown(problem.name))}[/]: {escape(kind.headline(problem))}", highlight=False
    )
    ended = "" if result.termination.value == "PROVED" else f", {words(result.termination)}"
    console.print(
        f"[bold]{result.status}[/]{ended} by {result.method}{engine} "
        f"in {result.runtime:.3f} s{setup}",
        highlight=False,
    )
    if result.objective is not None or result.bound is not None:
        source = f" ({result.bound_source})" if result.bound_source else ""
        figures = [
            f"objective {kind.worth(problem, result.objective)}",
            f"bound {kind.worth(problem, result.bound)}{source}",
            *([] if result.gap is None else [f"gap {result.gap:.2%}"]),
        ]
        fits = sum(map(len, figures)) + 3 * len(figures) <= console.width
        console.print(("   " if fits else "\n").join(figures), highlight=False, markup=False)
    if result.reason:
        console.print(result.reason, highlight=False, markup=False)
    if result.solution is not None:
        console.print(kind.solution_table(problem, result.solution, console.width))
