"""The command line: it says what the library says, in words, tables or JSON.

Exit codes: 0 solved (or stopped with an incumbent in hand), 1 nothing found in time, 2 bad input
or usage, 3 proved infeasible, 4 violations (``check``), 70 internal error, 130 interrupted with
nothing in hand.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from stagepack.result import InputError, Result, StagepackError, Status, Termination, finite

if TYPE_CHECKING:
    from rich.console import Console

EXIT_NOTHING, EXIT_INPUT, EXIT_INFEASIBLE, EXIT_VIOLATIONS = 1, 2, 3, 4
EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130

app = typer.Typer(
    name="stagepack",
    help="Optimal pipeline stages for neural networks on accelerators, with certificates.",
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


def _bytes(text: str) -> int:
    """Return a number of bytes: digits, 1e9, or with KiB, MiB, GiB, TiB (kB, MB, ...)."""
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?", str(text).strip().lower())
    try:
        assert match is not None
        value = float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " ")
        return int(match[1]) if match[1].isdigit() and not match[2] else int(value)
    except (AssertionError, ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no number of bytes; write 1e9 or 16GiB") from None


def _context(
    kind: Annotated[str | None, typer.Option(help="Kind of problem to read.")] = None,
    format: Annotated[  # noqa: A002 - the option's name
        str | None, typer.Option(help="Format of the file, if it cannot be told.")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Number of devices.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Cluster of the catalog.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="GB/s (2^30 bytes) between devices.")
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES", parser=_bytes, help="Memory of each device: 900000000, 1e9, 16GiB."
        ),
    ] = None,
    training: Annotated[
        bool | None, typer.Option("--training/--inference", help="Count backward and stashes.")
    ] = None,
    microbatches: Annotated[int | None, typer.Option(help="Microbatches of a step.")] = None,
    objective: Annotated[
        str | None, typer.Option(help="bottleneck, transfer-bounded, sum or overlap.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of times: us, ms or ns.")] = None,
    host_transfer: Annotated[
        bool | None, typer.Option(help="Every device waits for the exchange with the host.")
    ] = None,
    fewer_stages: Annotated[bool | None, typer.Option(help="Allow devices to stay unused.")] = None,
    free_order: Annotated[
        bool | None, typer.Option(help="Find the best order of unlike devices.")
    ] = None,
    fixed_cuts: Annotated[
        list[int] | None,
        typer.Option("--fix-cut", metavar="LAYER", help="A stage begins here; repeatable."),
    ] = None,
    forbidden_cuts: Annotated[
        list[int] | None,
        typer.Option("--forbid-cut", metavar="LAYER", help="No stage begins here; repeatable."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other parameter; repeatable."),
    ] = None,
) -> dict[str, Any]:
    """Return what a file does not say of its instance, as the readers understand it."""
    given = {key: value for key, value in locals().items() if key != "settings"}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError(
                f"{setting!r} is not KEY=VALUE", field="--set", remedy="write --set batch=8"
            )
        try:
            given[key.replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            given[key.replace("-", "_")] = value
    return {key: value for key, value in given.items() if value not in (None, [])}


def _takes_context(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the options of :func:`_context`, collected in its argument `context`."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(_context, eval_str=True)

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> Any:
        context = {name: arguments.pop(name) for name in shared.parameters}
        return command(**arguments, context=_context(**context))

    parameters = [p for name, p in own.parameters.items() if name != "context"]
    parameters += [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shared.parameters.values()
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _instance(source: str, context: dict[str, Any]) -> Any:
    """Return the instance that `source` names: a file or an entry of the catalog."""
    cuts = {key: context[key] for key in ("fixed_cuts", "forbidden_cuts") if key in context}
    given = {key: value for key, value in context.items() if key not in cuts}
    problem = _source(source, given)
    return problem.replace(**cuts) if cuts else problem


def _instances(source: str, context: dict[str, Any]) -> list[Any]:
    """Return the instance that `source` names, or all those of a file that holds several."""
    from stagepack.instances import formats

    cuts = {"fixed_cuts", "forbidden_cuts"} & set(context)
    if cuts or not Path(source).is_file():
        return [_instance(source, context)]
    return list(formats.read_all(source, **context))


def _source(source: str, context: dict[str, Any]) -> Any:
    from stagepack.instances import catalog, formats

    path = source.rpartition("#")[0] or source
    names = [entry.name for entry in catalog.entries()]
    if source in names and not Path(source).exists():
        parameters = dict(context)
        kind = parameters.pop("kind", None)
        if kind not in (None, catalog.entry(source).kind):
            raise InputError(f"is no {kind}", file=source, field="--kind", remedy="leave it out")
        if parameters.pop("format", None) is not None:
            raise InputError(
                "the catalog has no formats", file=source, field="--format", remedy="leave it out"
            )
        return catalog.load(source, **parameters)
    if not Path(path).exists() and "." not in Path(path).name:
        import difflib

        near = difflib.get_close_matches(source, names, n=3, cutoff=0.5)
        raise InputError(
            "no such file, nor an instance of the catalog",
            file=source,
            remedy=f"did you mean {' or '.join(near)}?" if near else "see stagepack list",
        )
    return formats.read(source, **context)


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
@_takes_context
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
) -> None:
    """Solve one instance; the answer is checked and carries a proved bound."""
    from stagepack.instances import formats
    from stagepack.solve import solve as run

    _require_writable(output, trace)
    problem = _instance(instance, context)
    start: Any = warm_start
    if "/" in warm_start or warm_start.endswith(".json"):
        start = formats.read_solution(warm_start, problem)
    with (
        _native_output_on_stderr(),
        _spinner(f"solving {problem.name} with {method}", as_json) as update,
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
                f"incumbent {_figure(objective)}, bound {_figure(bound)}"
            ),
            options={"deterministic": True} if deterministic else None,
        )
    document = {**result.to_dict(), "command": _command()}
    if output is not None:
        _write_json(output, document)
    if trace is not None:
        result.trace.to_csv(trace)
    if as_json:
        _print_json(document)
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
    from stagepack.report.table import estimate_table

    console = _console()
    engine = f" on {result.engine}" if result.engine else ""
    setup = f" (and {result.setup_time:.1f} s of setup)" if result.setup_time >= 0.1 else ""
    console.print(
        f"[bold]{problem.name}[/]: {problem.n:,} layers, {problem.k} devices, "
        f"{result.objective_name}",
        highlight=False,
    )
    ended = "" if result.termination.value == "PROVED" else f", {_words(result.termination)}"
    console.print(
        f"[bold]{result.status}[/]{ended} by {result.method}{engine} "
        f"in {result.runtime:.3f} s{setup}",
        highlight=False,
    )
    if result.objective is not None or result.bound is not None:
        gap = "" if result.gap is None else f"   gap {result.gap:.2%}"
        source = f" ({result.bound_source})" if result.bound_source else ""
        console.print(
            f"objective {_figure(result.objective)}   bound {_figure(result.bound)}{source}{gap}",
            highlight=False,
        )
    if result.reason:
        console.print(result.reason, highlight=False, markup=False)
    if result.solution is not None:
        from stagepack.instances.pipeline.estimate import estimate

        console.print(estimate_table(estimate(problem, result.solution), console.width))


# ---------------------------------------------------------------------- compare


@app.command()
@_takes_context
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
    """Run methods side by side: on the built-in suite, or on the instances given."""
    from stagepack.compare import compare as run
    from stagepack.instances import catalog
    from stagepack.report.table import comparison_table

    _require_writable(csv, output, None if no_html else html)
    if instances:
        problems = [found for source in instances for found in _instances(source, context)]
    else:
        if context:
            raise InputError(
                "the built-in suite takes no " + ", ".join(f"--{key}" for key in context),
                field="INSTANCE",
                remedy="name instances",
            )
        problems = catalog.suite()
    options: dict[str, Any] = {} if engine is None else {"engine": engine}
    with _native_output_on_stderr(), _cells(as_json) as on_result:
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
    comparison.command = _command()
    if csv is not None:
        comparison.to_csv(csv)
    if output is not None:
        comparison.to_json(output)
    page = None if no_html else _write_report(comparison, html)
    if as_json:
        _print_json(comparison.to_dict())
    else:
        console = _console()
        console.print(comparison_table(comparison, console.width))
        if page is not None:
            typer.echo(f"report: {page}")
    if comparison.contradictions or any(row["status"] == "error" for row in comparison.rows):
        raise typer.Exit(EXIT_INTERNAL)
    found = any(result.solution is not None for result in comparison.results.values())
    if comparison.interrupted and not found:
        raise typer.Exit(EXIT_INTERRUPTED)


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
@_takes_context
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
        _print_json(
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
        typer.echo(f"valid: {problem.objective} {_figure(objective)}")
    raise typer.Exit(EXIT_VIOLATIONS if violations else 0)


@app.command()
@_takes_context
def show(
    instance: Instance,
    context: dict[str, Any],
    solution: Annotated[
        Path | None, typer.Argument(help="Estimate the stages of this solution, too.")
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare the estimate with measured values (JSON, CSV)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in an instance: sizes, totals, simple bounds; and what a solution costs."""
    from stagepack.instances.pipeline.estimate import read_measured
    from stagepack.report import summary
    from stagepack.report.table import against_table, estimate_table, facts_table

    if solution is None:
        if measured is not None:
            raise InputError("needs a solution", field="--measured", remedy="name a solution file")
        problem, answer = _instance(instance, context), None
    else:
        problem, answer = _instance_and_solution(instance, solution, context)
    facts = summary.facts(problem)
    estimated = None if answer is None else summary.estimate(problem, answer)
    against = (
        None
        if estimated is None or measured is None
        else estimated.against(read_measured(measured))
    )
    if as_json:
        document: dict[str, Any] = {"instance": facts}
        if estimated is not None:
            document["estimate"] = estimated.to_dict()
        if against is not None:
            document["against"] = against
        _print_json(document)
        return
    console = _console()
    console.print(facts_table(summary.lines(problem), console.width))
    if estimated is not None:
        console.print(estimate_table(estimated, console.width))
    if against is not None:
        console.print(against_table(against, console.width))


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
        _print_json(
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
    console = _console()
    if name is None:
        console.print(catalog_table(entries, console.width))
        console.print("\nparameters of one: stagepack list NAME", highlight=False)
    else:
        console.print(f"[bold]{name}[/]: {entries[0].description}\n", highlight=False)
        console.print(parameters_table(entries[0], console.width))


@app.command()
@_takes_context
def convert(
    instance: Instance,
    target: Annotated[Path, typer.Argument(help="File to write (.json or .json.gz).")],
    context: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Read an instance in any format and write it as native JSON."""
    from stagepack.instances import formats

    problem = _instance(instance, context)
    formats.write(problem, target)
    if as_json:
        _print_json({"instance": problem.name, "written": str(target), "digest": problem.digest})
    else:
        typer.echo(f"{problem.name}: written to {target}")


@app.command()
@_takes_context
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
        found = find(_instance(instance, context))
    if as_json:
        _print_json([vars(info) for info in found])
    else:
        console = _console()
        console.print(methods_table(found, console.width))


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help="Kind of problem.")] = "pipeline-partition",
) -> None:
    """Print the JSON Schema of native files."""
    from stagepack.instances import formats

    _print_json(formats.schema(kind))


def _instance_and_solution(source: str, solution: Path, context: dict[str, Any]) -> tuple[Any, Any]:
    """Read both; a solution that cannot belong to the instance is an input error."""
    from stagepack.instances import formats

    problem = _instance(source, context)
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


# ---------------------------------------------------------------------- talking to people


def _console() -> Console:
    from rich.console import Console

    return Console(soft_wrap=False)


@contextlib.contextmanager
def _native_output_on_stderr() -> Iterator[None]:
    """Send what solvers print behind Python's back to stderr: stdout carries the answer alone."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept, errors = os.dup(1), sys.__stderr__.fileno() if sys.__stderr__ else 2
    except OSError:  # no stdout to protect
        yield
        return
    try:
        os.dup2(errors, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class _Spinner:
    """A line on stderr while something runs, if a person is watching."""

    def __init__(self, text: str, silent: bool) -> None:
        self._text, self._status = text, None
        if not silent and sys.stderr.isatty() and logging.getLogger("stagepack").level > 10:
            from rich.console import Console

            self._status = Console(stderr=True).status(text) if self._text else None

    def __enter__(self) -> Callable[[str], None]:
        if self._status is not None:
            self._status.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _update(self, news: str) -> None:
        if self._status is not None:
            self._status.update(f"{self._text}: {news}")


def _spinner(text: str, silent: bool) -> _Spinner:
    return _Spinner(text, silent)


class _Cells:
    """Progress of a comparison on stderr: a bar for a person, a line a cell for a log."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent or logging.getLogger("stagepack").level > logging.INFO
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Callable[[dict[str, Any], int, int], None]:
        return self._on_result

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _on_result(self, row: dict[str, Any], done: int, total: int) -> None:
        if self._silent:
            return
        what = f"{row['instance']} {row['method']} {row['status']}"
        if not sys.stderr.isatty():
            typer.echo(f"{done}/{total} {what}", err=True)
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, description=what)


def _cells(silent: bool) -> _Cells:
    return _Cells(silent)


def _figure(value: Any) -> str:
    from stagepack.report.format import number

    return "none" if value is None else number(value)


def _words(termination: Termination) -> str:
    return termination.value.lower().replace("_", " ")


def _command() -> str:
    return shlex.join(["stagepack", *sys.argv[1:]])


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(finite(document), indent=2, allow_nan=False))


def _write_json(path: Path, document: Any) -> None:
    from stagepack.result import write_atomically

    write_atomically(path, json.dumps(finite(document), indent=2, allow_nan=False) + "\n")


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
