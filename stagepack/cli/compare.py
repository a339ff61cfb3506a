"""``stagepack compare``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stagepack import files
from stagepack.cli import completion
from stagepack.cli.context import instances_of
from stagepack.cli.options import (
    EXIT_INPUT,
    EXIT_INTERNAL,
    INSTANCE_HELP,
    METHOD,
    OUTPUT,
    AsJson,
    Output,
    end_code,
    engine_option,
    limit_option,
    method_option,
    option,
)
from stagepack.cli.output import Rescue, require_writable
from stagepack.cli.terminal.screen import (
    Cells,
    command_line,
    complain,
    engines_silenced,
    print_json,
    say,
    terminal,
)
from stagepack.contracts import Instance, JsonObject
from stagepack.errors import InputError, shown
from stagepack.kinds import kind_called

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from stagepack.compare import Comparison
    from stagepack.compare.suite import Suite

Methods = list[str] | dict[str, tuple[str, ...]] | None
PLACE = "Where to run"
SLURM_CHUNK, SLURM_MINUTES = 100, 24 * 60
REPORT, REPORT_PAGE = Path("stagepack-report"), "index.html"


def compare(
    context: JsonObject,
    instances: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INSTANCE",
            help=f"{INSTANCE_HELP} Also a kind, for its suite, or a suite in TOML. "
            "Default: a tour of seconds.",
            autocompletion=completion.instances,
        ),
    ] = None,
    method: Annotated[list[str] | None, method_option("Repeatable; default: the usual.")] = None,
    engine: Annotated[str | None, engine_option("For the methods that use one.")] = None,
    seeds: Annotated[list[int] | None, option(METHOD, "Repeatable.", "--seed", metavar="N")] = None,
    threads: Annotated[int, option(METHOD, "Threads of each engine.", metavar="N")] = 1,
    jobs: Annotated[
        int | None,
        option(
            METHOD,
            "Processes; 0: none of their own. Default: a core for each thread.",
            "-j",
            "--jobs",
            metavar="N",
        ),
    ] = None,
    dask: Annotated[
        str | None,
        option(PLACE, "Run on the workers of this Dask scheduler.", metavar="ADDRESS"),
    ] = None,
    slurm: Annotated[
        Path | None,
        option(PLACE, "Run as Slurm jobs, written to this folder that all see.", metavar="DIR"),
    ] = None,
    chunk: Annotated[
        int | None,
        option(PLACE, "Cells of a task. Default: 1; for Slurm 100.", metavar="N"),
    ] = None,
    isolate: Annotated[
        str,
        option(
            PLACE,
            "worker: in warm child processes that are watched; cell: each in its own; none.",
            metavar="NAME",
        ),
    ] = "worker",
    wall_limit: Annotated[
        float | None,
        option(
            PLACE,
            "When a cell's process is ended. Default: twice the limit and ten minutes.",
            metavar="SECONDS",
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        option(PLACE, "What a cell's process may hold: 4GiB.", metavar="BYTES"),
    ] = None,
    time_limit: Annotated[float, limit_option("Of each cell; 0: no limit.")] = 3.0,
    whole: Annotated[
        bool, option(METHOD, "The built-in suite in place of the tour: minutes.", "--all")
    ] = False,
    store: Annotated[
        Path | None,
        option(OUTPUT, "Keep results here; cells that are there are not run.", metavar="DIR"),
    ] = None,
    html: Annotated[
        Path | None,
        option(OUTPUT, "Where to write the HTML report.", metavar="DIR", show_default=str(REPORT)),
    ] = None,
    no_html: Annotated[bool, option(OUTPUT, "Write no report.", "--no-html")] = False,
    csv: Annotated[Path | None, option(OUTPUT, "Write the table.", metavar="FILE")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Run methods side by side: on one instance a problem, a suite, or the instances given."""
    suite, said = _toml(instances, context), {}
    if suite is not None:
        problems, said = suite.instances, suite.settings
        methods: Methods = method or said.get("methods")
    else:
        problems, methods = chosen(instances or (), method or None, context, whole=whole)
    limit = said.get("time_limit", time_limit or None)
    from stagepack.compare import compare as run
    from stagepack.compare.table import comparison_table

    require_writable(csv, output)
    page = None if no_html else _page(html)
    options: JsonObject = {} if engine is None else {"engine": engine}
    with contextlib.ExitStack() as stack:
        executor = _executor(stack, dask, slurm, jobs)
        stack.enter_context(engines_silenced())
        live = Cells(problems, _announcement(problems, methods, limit or 0))
        cells = stack.enter_context(live)
        comparison = run(
            problems,
            methods,
            time_limit=limit,
            seeds=tuple(seeds or said.get("seeds", (0,))),
            jobs=jobs,
            executor=executor,
            chunk=(1 if slurm is None else SLURM_CHUNK) if chunk is None else chunk,
            isolate=isolate,
            wall_limit=wall_limit,
            memory_limit=memory_limit,
            threads=said.get("threads", threads),
            store=store,
            on_start=cells.begun,
            on_result=cells.ended,
            **options,
        )
    comparison.command = command_line()
    rescue = Rescue()
    rescue.attempt(comparison.to_csv, csv)
    rescue.attempt(comparison.to_json, output)
    rescue.attempt(lambda path: comparison.to_html(path.parent), page)
    if as_json or rescue:
        rescue.tell("the whole comparison")
        print_json(comparison.to_dict())
    else:
        console = terminal()
        console.print(comparison_table(comparison, console.width))
        if page is not None:
            say(f"report: {shown(page)}")
    raise typer.Exit(_exit_code(comparison, rescue))


def _executor(
    stack: contextlib.ExitStack, address: str | None, folder: Path | None, jobs: int | None
) -> Executor | None:
    """Return the cluster that was named, until the stack is left; None for this machine."""
    if address is not None and folder is not None:
        raise InputError(
            "cannot be used together with --dask", field="--slurm", remedy="leave out --dask"
        )
    if address is None and folder is None:
        return None
    from stagepack.compare import clusters

    if address is not None:
        return stack.enter_context(clusters.dask(address))
    assert folder is not None
    files.require_directory(folder)
    most: JsonObject = {} if jobs is None else {"slurm_array_parallelism": jobs}
    executor = clusters.Slurm(folder, timeout_min=SLURM_MINUTES, **most)
    stack.callback(executor.shutdown, cancel_futures=True)
    return executor


def _toml(sources: list[str] | None, context: JsonObject) -> Suite | None:
    """Return the suite that a file in TOML says; None where none is named."""
    from stagepack.compare.suite import read_suite

    named = [source for source in sources or () if source.endswith(".toml")]
    if not named:
        return None
    if len(sources or ()) > 1 or context:
        raise InputError(
            "says all of its instances", file=named[0], remedy="name nothing else beside it"
        )
    return read_suite(named[0])


def chosen(
    sources: list[str] | tuple[()],
    methods: list[str] | None,
    context: JsonObject,
    *,
    whole: bool,
) -> tuple[dict[str, Instance], Methods]:
    """Return the instances by label, and the methods: those of the tour where nothing is asked.

    `sources` are files, names of the catalog and kinds, `methods` those that were named, `context`
    what was said besides; `whole`: the whole suite was asked for.
    """
    from stagepack.catalog import tour
    from stagepack.compare.run import labels

    if sources and whole:
        raise InputError(
            "runs the whole suite", field="--all", remedy="leave it out, or name no instances"
        )
    if sources:
        return labels([found for source in sources for found in _named(source, context)]), methods
    if whole or context:
        return labels(_suite(context)), methods
    stops = tour()
    found = labels([instance for instance, _ in stops])
    return found, methods or dict(zip(found, (own for _, own in stops), strict=True))


def _announcement(problems: dict[str, Instance], methods: Methods, limit: float) -> str:
    """Return what will run, in a line."""
    what = f"{len(problems):,} instance{'s' * (len(problems) != 1)}"
    most = f"at most {limit:g} s each" if limit else "no time limit"
    if isinstance(methods, dict):
        runs = sum(map(len, methods.values()))
        return (
            f"a tour: {what}, one a problem, {runs} runs of {most}; some ten seconds the "
            "first time, while kernels are compiled, then seconds (the whole suite: --all)"
        )
    return f"comparing methods on {what}, {most}"


def _exit_code(comparison: Comparison, rescue: Rescue) -> int:
    if comparison.contradictions or any(row["status"] == "error" for row in comparison.rows):
        return EXIT_INTERNAL
    if rescue or comparison.unkept:
        return EXIT_INPUT
    found = any(result.solution is not None for result in comparison.results.values())
    return end_code(found=found, interrupted=True) if comparison.interrupted else 0


def _named(source: str, context: JsonObject) -> list[Instance]:
    """Return what `source` names: the suite of a kind, a file's instances or one of the catalog."""
    kind = kind_called(source)
    if kind is None or Path(source).exists():
        return instances_of(source, context)
    if context.get("kind") not in (None, kind):
        raise InputError(f"is another kind than {source}", field="--kind", remedy="leave it out")
    return _suite({**context, "kind": kind})


def _suite(context: JsonObject) -> list[Instance]:
    """Return the built-in suite, or its instances of one kind."""
    from stagepack import catalog

    others = [key for key in context if key != "kind"]
    if others:
        raise InputError(
            "the built-in suite takes no " + ", ".join(f"--{key}" for key in others),
            field="INSTANCE",
            remedy="name instances",
        )
    found = catalog.suite(context.get("kind"))
    if not found:
        raise InputError(
            f"the suite has no {context['kind']!r}", field="--kind", remedy="name instances"
        )
    return found


def _page(directory: Path | None) -> Path | None:
    """Return the page to write; None where nobody asked for it and it cannot be made."""
    try:
        from stagepack.cli.picture import require_pages

        require_pages()
    except InputError as error:
        if directory is not None:
            raise
        complain(f"no report: it {error.problem} ({error.remedy})")
        return None
    directory = directory or REPORT
    files.require_directory(directory, REPORT_PAGE)
    return directory / REPORT_PAGE
