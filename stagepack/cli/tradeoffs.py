"""``stagepack pareto`` and ``stagepack explain``: trade-offs and explanations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stagepack.cli.context import instance_to_ask
from stagepack.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INPUT,
    EXIT_NOTHING,
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
from stagepack.cli.plan import plan_in
from stagepack.cli.terminal.screen import engines_silenced
from stagepack.contracts import JsonObject
from stagepack.errors import InputError

if TYPE_CHECKING:
    from stagepack.planning import ModelPlan

SOLVES, PLANS = 10, 60
"""Seconds that an instance, and a plan, is explained within."""
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
    if plan_in(instance) is not None:
        raise InputError(
            "is a plan of a model",
            file=instance,
            remedy="plans of less memory or fewer devices: stagepack tune MODEL --over devices=2,4",
        )
    problem = instance_to_ask(instance, context)
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
        float | None,
        limit_option(
            f"Seconds of all solves together; 0: no limit. Default: {SOLVES}; of a plan {PLANS}."
        ),
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Say what binds: which layer, link, device or limit, and what a change of it would buy."""
    from stagepack.tradeoffs import explain as run

    require_writable(output, source=instance)
    held = plan_in(instance)
    limits: JsonObject = {"seed": seed, "threads": threads}
    if held is not None:
        usual = {"method": "auto", "engine": None}
        given = {"method": method, "engine": engine}
        said = [*context, *(name for name in given if given[name] != usual[name])]
        if said:
            raise InputError(
                "is said by the plan", field=f"--{said[0].replace('_', '-')}", remedy="leave it out"
            )
        limits["time_limit"] = (PLANS if time_limit is None else time_limit) or None
        raise typer.Exit(_explain_plan(held, limits, output, as_json=as_json))
    problem = instance_to_ask(instance, context)
    with engines_silenced():
        found = run(
            problem,
            method=method,
            engine=engine,
            time_limit=(SOLVES if time_limit is None else time_limit) or None,
            **limits,
        )
    failed = answer(found, "the whole explanation", output, as_json=as_json)
    raise typer.Exit(EXIT_INPUT if failed else exit_code(found.result))


def _explain_plan(
    held: ModelPlan, limits: JsonObject, output: Path | None, *, as_json: bool
) -> int:
    """Say what binds in a plan; return the exit code."""
    from stagepack.planning import explain_plan

    with engines_silenced():
        found = explain_plan(held, **limits)
    failed = answer(found, "the whole explanation", output, as_json=as_json)
    nothing = EXIT_INFEASIBLE if held.status == "INFEASIBLE" else EXIT_NOTHING
    return EXIT_INPUT if failed else 0 if held.levels else nothing
