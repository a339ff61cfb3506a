"""The command line: it says what the library says, in words, tables or JSON.

Exit codes: 0 solved (or stopped with an incumbent in hand), 1 nothing found in time, 2 bad input
or usage, 3 proved infeasible, 4 violations (``check``), 70 internal error, 130 interrupted with
nothing in hand.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from stagepack.cli.context import instance_of, instances_of, takes_context
from stagepack.cli.export import export_solution, require_exportable
from stagepack.cli.screen import (
    Cells,
    Spinner,
    command_line,
    figure,
    native_output_on_stderr,
    print_json,
    terminal,
    words,
    write_json,
)
from stagepack.result import InputError, Result, StagepackError, Status, Termination

EXIT_NOTHING, EXIT_INPUT, EXIT_INFEASIBLE, EXIT_VIOLATIONS = 1, 2, 3, 4
EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130

app = typer.Typer(
    name="stagepack",
    help="Optimal pipeline stages, schedules, phases and memory maps for neural networks on "
    "accelerators, with certificates.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INSTANCE_HELP = "A file, FILE#name for one of several in it, or a catalog name (stagepack list)."
Instance = Annotated[str, typer.Argument(metavar="INSTANCE", help=INSTANCE_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write the result here as JSON."),
]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", "-t", metavar="SECONDS", help="Seconds of solving; 0: no limit."),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log every step.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("stagepack").setLevel(level)
    if version:
        from stagepack import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


# ---------------------------------------------------------------------- solve


@app.command()
@takes_context
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

    _require_writable(output, trace, export)
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
    if output is not None or as_json:  # a million offsets take a while to write down
        document = {**result.to_dict(), "command": command_line()}
    if output is not None:
        write_json(output, document)
    if trace is not None:
        result.trace.to_csv(trace)
    if export is not None and result.solution is not None:
        export_solution(problem, result.solution, export)
    if as_json:
        print_json(document)
    else:
        _print_result(problem, result)
    raise typer.Exit(_exit_code(result))


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
        f"[bold]{escape(problem.name)}[/]: {escape(kind.headline(problem))}", highlight=False
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


# ---------------------------------------------------------------------- compare


@app.command()
@takes_context
def compare(
    context: dict[str, Any],
    instances: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INSTANCE]...", help=INSTANCE_HELP + " Default: the suite."),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("-m", "--method", help="Repeatable; default: the usual.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", "-t", metavar="SECONDS", help="Of each cell.")
    ] = 3.0,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Repeatable.")] = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Processes; 0: none of their own.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of each engine.")] = 1,
    engine: Annotated[
        str | None, typer.Option("-e", "--engine", help="For the methods that use one.")
    ] = None,
    html: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write the HTML report.")
    ] = Path("stagepack-report"),
    no_html: Annotated[bool, typer.Option("--no-html", help="Write no report.")] = False,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table.")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Run methods side by side: on the built-in suite (of a --kind), or on the instances given."""
    from stagepack.compare import compare as run
    from stagepack.report.table import comparison_table

    _require_writable(csv, output, None if no_html else html)
    if instances:
        problems = [found for source in instances for found in instances_of(source, context)]
    else:
        problems = _suite(context)
    options: dict[str, Any] = {} if engine is None else {"engine": engine}
    with native_output_on_stderr(), Cells(as_json) as on_result:
        comparison = run(
            problems,
            method or None,
            time_limit=time_limit or None,
            seeds=tuple(seeds or (0,)),
            jobs=jobs,
            threads=threads,
            on_result=on_result,
            **options,
        )
    comparison.command = command_line()
    if csv is not None:
        comparison.to_csv(csv)
    if output is not None:
        comparison.to_json(output)
    page = None if no_html else _write_report(comparison, html)
    if as_json:
        print_json(comparison.to_dict())
    else:
        console = terminal()
        console.print(comparison_table(comparison, console.width))
        if page is not None:
            typer.echo(f"report: {page}")
    if comparison.contradictions or any(row["status"] == "error" for row in comparison.rows):
        raise typer.Exit(EXIT_INTERNAL)
    found = any(result.solution is not None for result in comparison.results.values())
    if comparison.interrupted and not found:
        raise typer.Exit(EXIT_INTERRUPTED)


def _suite(context: dict[str, Any]) -> list[Any]:
    """Return the built-in suite, or its instances of one kind."""
    from stagepack.instances import catalog

    others = [key for key in context if key != "kind"]
    if others:
        raise InputError(
            "the built-in suite takes no " + ", ".join(f"--{key}" for key in others),
            field="INSTANCE",
            remedy="name instances",
        )
    problems = catalog.suite()
    kind = context.get("kind")
    found = [problem for problem in problems if kind in (None, problem.kind)]
    if not found:
        kinds = dict.fromkeys(problem.kind for problem in problems)
        raise InputError(
            f"the suite has no {kind!r}",
            field="--kind",
            remedy="choose one of " + ", ".join(kinds),
        )
    return found


def _write_report(comparison: Any, directory: Path) -> Path | None:
    try:
        page: Path = comparison.to_html(directory)
    except InputError:
        raise
    except StagepackError as missing:
        typer.echo(f"no report: {missing}", err=True)
        return None
    return page


# ---------------------------------------------------------------------- the rest


@app.command()
@takes_context
def check(
    instance: Instance,
    solution: Annotated[Path, typer.Argument(help="A solution or a result, as JSON.")],
    context: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Check a solution against an instance: 0 valid, 4 violations."""
    problem, answer = _instance_and_solution(instance, solution, context)
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
        typer.echo("\n".join(map(str, violations)))
    else:
        from stagepack.report.kinds import face

        typer.echo(f"valid: {problem.objective} {face(problem).worth(problem, objective)}")
    raise typer.Exit(EXIT_VIOLATIONS if violations else 0)


@app.command()
@takes_context
def show(
    instance: Instance,
    context: dict[str, Any],
    solution: Annotated[
        Path | None, typer.Argument(help="Show what this solution amounts to, too.")
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare the estimate with measured values (JSON, CSV)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in an instance: sizes, totals, simple bounds; and what a solution costs."""
    from stagepack.report import summary
    from stagepack.report.kinds import face
    from stagepack.report.table import facts_table

    if solution is None:
        if measured is not None:
            raise InputError("needs a solution", field="--measured", remedy="name a solution file")
        problem, answer = instance_of(instance, context), None
    else:
        problem, answer = _instance_and_solution(instance, solution, context)
    kind = face(problem)
    facts = summary.facts(problem)
    against = None if measured is None else kind.against(problem, answer, measured)
    if as_json:
        document: dict[str, Any] = {"instance": facts}
        if answer is not None:
            document.update(kind.solution_facts(problem, answer))
        if against is not None:
            document["against"] = against
        print_json(document)
        return
    console = terminal()
    console.print(facts_table(summary.lines(problem, facts), console.width))
    if answer is not None:
        console.print(kind.solution_table(problem, answer, console.width))
    if against is not None:
        from stagepack.report.pipeline import against_table

        console.print(against_table(against, console.width))


@app.command()
@takes_context
def plot(
    instance: Instance,
    solution: Annotated[Path, typer.Argument(help="A solution or a result, as JSON.")],
    context: dict[str, Any],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The picture: .png, .svg, .pdf or .html."
        ),
    ],
    scale: Annotated[
        str | None,
        typer.Option(help="Pipelines: cycles, layers. Packings: auto, time, sections."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a solution: map of stages or memory, chart of a schedule; .html is interactive."""
    from stagepack.report.kinds import face

    _require_writable(output)
    problem, answer = _instance_and_solution(instance, solution, context)
    violations = problem.check(answer)
    if violations:
        typer.echo(f"warning: the solution breaks {violations[0]} (stagepack check)", err=True)
    if output.suffix.lower() == ".html":
        from stagepack.report.html import write_figure

        write_figure(problem, answer, output, scale)
    else:
        from stagepack.plots.style import save

        save(face(problem).picture(problem, answer, scale).figure, output)
    if as_json:
        print_json({"instance": problem.name, "written": str(output)})
    else:
        typer.echo(f"{problem.name}: drawn in {output}")


@app.command("list")
def list_(
    name: Annotated[
        str | None, typer.Argument(help="One entry, to see its parameters for --set.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the catalog of instances, or the parameters of one entry."""
    from stagepack.instances import catalog
    from stagepack.report.table import catalog_table, parameters_table

    entries = [catalog.entry(name)] if name is not None else catalog.entries()
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "kind": entry.kind,
                    "description": entry.description,
                    "parameters": entry.parameters,
                }
                for entry in entries
            ]
        )
        return
    console = terminal()
    if name is None:
        console.print(catalog_table(entries, console.width))
        console.print("\nparameters of one: stagepack list NAME", highlight=False)
    else:
        console.print(f"[bold]{name}[/]: {entries[0].description}\n", highlight=False)
        console.print(parameters_table(entries[0], console.width))


@app.command()
@takes_context
def convert(
    instance: Instance,
    target: Annotated[Path, typer.Argument(help="File to write (.json or .json.gz).")],
    context: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Read an instance in any format and write it as native JSON."""
    from stagepack.instances import formats

    problem = instance_of(instance, context)
    formats.write(problem, target)
    if as_json:
        print_json({"instance": problem.name, "written": str(target), "digest": problem.digest})
    else:
        typer.echo(f"{problem.name}: written to {target}")


@app.command()
@takes_context
def methods(
    context: dict[str, Any],
    instance: Annotated[
        str | None, typer.Argument(help="An instance, to see which methods can solve it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, and which of them can solve an instance."""
    from stagepack.report.table import methods_table
    from stagepack.solve import REGISTRY
    from stagepack.solve import methods as find

    if instance is None:
        found = [info for kind in REGISTRY for info in find(kind)]
    else:
        found = find(instance_of(instance, context))
    if as_json:
        print_json([vars(info) for info in found])
    else:
        console = terminal()
        console.print(methods_table(found, console.width))


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help="Kind of problem.")] = "pipeline-partition",
) -> None:
    """Print the JSON Schema of native files."""
    from stagepack.instances import formats

    print_json(formats.schema(kind))


def _instance_and_solution(source: str, solution: Path, context: dict[str, Any]) -> tuple[Any, Any]:
    """Read both; a solution that cannot belong to the instance is an input error."""
    from stagepack.instances import formats

    problem = instance_of(source, context)
    return problem, formats.read_solution(solution, problem)


def _require_writable(*targets: Path | None) -> None:
    """Refuse what cannot be written before anything is solved."""
    for target in targets:
        if target is None:
            continue
        place = target if target.is_dir() else target.parent
        while not place.exists() and place != place.parent and target.suffix == "":
            place = place.parent
        writable = place.is_dir() and os.access(place, os.W_OK)
        if not writable or (target.exists() and not os.access(target, os.W_OK)):
            raise InputError("cannot be written", file=target, remedy="choose a writable place")


def main() -> NoReturn:
    """Run the command line; every failure becomes one line and an exit code."""
    # Typer has a Click of its own in some versions and the real one in others.
    usage_error: Any = typer.BadParameter.__base__
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # -q and -v may stand anywhere, before or after the command.
        arguments = sys.argv[1:]
        loudness = [word for word in arguments if word in ("-q", "--quiet", "-v", "--verbose")]
        rest = [word for word in arguments if word not in loudness]
        code = app(args=[*loudness, *rest], standalone_mode=False)
    except InputError as error:
        code = _fail(f"error: {error}", EXIT_INPUT)
    except typer.Abort:
        code = EXIT_INTERRUPTED
    except usage_error as error:
        code = _fail(f"error: {error.format_message()}", EXIT_INPUT)
    except KeyboardInterrupt:
        code = _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        code = 0
    except OSError as error:
        code = _fail(f"error: stdout: cannot be written ({error.strerror})", EXIT_INPUT)
    except Exception as error:
        logging.getLogger("stagepack").debug("traceback", exc_info=True)
        code = _fail(f"internal error: {type(error).__name__}: {error}", EXIT_INTERNAL)
    _leave(code if isinstance(code, int) else 0)


def _leave(code: int) -> NoReturn:
    """End with `code`, at once even when a cancelled solver still winds down in its thread."""
    engine = sys.modules.get("stagepack.solvers.engine")
    if engine is not None and engine.left_behind():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _fail(line: str, code: int) -> int:
    with contextlib.suppress(OSError):
        typer.echo(" ".join(line.split()), err=True)
    return code
