"""``stagepack pareto`` and ``stagepack explain``: what can be had for what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stagepack.cli.context import instance_of
from stagepack.cli.options import (
    EXIT_INPUT,
    METHOD,
    OUTPUT,
    AsJson,
    Instance,
    Output,
    Seed,
    Threads,
    engine_option,
    exit_code,
    limit_option,
    method_option,
    option,
)
from stagepack.cli.output import answer, require_writable
from stagepack.cli.screen import engines_silenced
from stagepack.contracts import JsonObject

Engine = Annotated[str | None, engine_option("highs, cp-sat, pyomo:NAME.")]
Method = Annotated[str, method_option("See stagepack methods.")]


def pareto(
    instance: Instance,
    context: JsonObject,
    x: Annotated[
        str,
        option(METHOD, "What is limited: memory, devices, remote-memory.", "-x", metavar="NAME"),
    ] = "memory",
    points: Annotated[int, option(METHOD, "Most points.", metavar="N")] = 32,
    method: Method = "auto",
    engine: Engine = None,
    threads: Threads = 1,
    seed: Seed = 0,
    time_limit: Annotated[
        float, limit_option("Seconds of all solves together; 0: no limit.")
    ] = 60.0,
    as_json: AsJson = False,
    output: Output = None,
    csv: Annotated[Path | None, option(OUTPUT, "Write the points.", metavar="FILE")] = None,
    plot: Annotated[
        Path | None, option(OUTPUT, "Draw the front: .png, .svg or .pdf.", metavar="FILE")
    ] = None,
) -> None:
    """Find what the objective costs in memory, or devices: the exact front, each point proved."""
    from stagepack.report.canvas import require_picture
    from stagepack.tradeoffs import pareto as run

    require_writable(output, csv, plot, source=instance)
    if plot is not None:
        require_picture(plot)
    problem = instance_of(instance, context)
    with engines_silenced():
        front = run(
            problem,
            x,
            points=points,
            method=method,
            engine=engine,
            threads=threads,
            seed=seed,
            time_limit=time_limit or None,
        )
    files = (front.to_csv, csv), (front.plot, plot)
    failed = answer(front, "the whole front", output, *files, as_json=as_json)
    raise typer.Exit(EXIT_INPUT if failed else exit_code(front.result))


def explain(
    instance: Instance,
    context: JsonObject,
    method: Method = "auto",
    engine: Engine = None,
    threads: Threads = 1,
    seed: Seed = 0,
    time_limit: Annotated[
        float, limit_option("Seconds of all solves together; 0: no limit.")
    ] = 10.0,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Say what binds: which layer, link, device or limit, and what a change of it would buy."""
    from stagepack.tradeoffs import explain as run

    require_writable(output, source=instance)
    problem = instance_of(instance, context)
    with engines_silenced():
        found = run(
            problem,
            method=method,
            engine=engine,
            threads=threads,
            seed=seed,
            time_limit=time_limit or None,
        )
    failed = answer(found, "the whole explanation", output, as_json=as_json)
    raise typer.Exit(EXIT_INPUT if failed else exit_code(found.result))
