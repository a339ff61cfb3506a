"""``stagepack plan``: a whole model on a cluster, and files of plans in other commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stagepack.cli import completion
from stagepack.cli.context import instance_of
from stagepack.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INPUT,
    EXIT_NOTHING,
    METHOD,
    OUTPUT,
    AsJson,
    Output,
    limit_option,
    option,
)
from stagepack.cli.output import Rescue, require_writable
from stagepack.cli.picture import draw
from stagepack.cli.screen import command_line, engines_silenced, print_json, print_parts, write_json
from stagepack.contracts import JsonObject
from stagepack.errors import InputError

if TYPE_CHECKING:
    from stagepack.planning import ModelPlan


def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A network of the catalog (bert-large), an ONNX model, or a file of layers.",
            autocompletion=completion.instances,
        ),
    ],
    context: JsonObject,
    split: Annotated[
        bool, option(METHOD, "Split the backward pass into B and W (zero bubble).", "--split")
    ] = False,
    threads: Annotated[int, option(METHOD, "Threads of the engine.", metavar="N")] = 1,
    seed: Annotated[int, option(METHOD, "Seed of the engine and of searches.", metavar="N")] = 0,
    time_limit: Annotated[float, limit_option("Seconds of each question; 0: no limit.")] = 5.0,
    as_json: AsJson = False,
    output: Output = None,
    plot: Annotated[
        Path | None,
        option(OUTPUT, "Draw the schedule: .png, .svg, .pdf or .html.", metavar="FILE"),
    ] = None,
) -> None:
    """Plan a whole model: stages, the schedule of its microbatches, addresses in each memory."""
    from stagepack.instances.types import PipelinePartition
    from stagepack.planning import plan_model
    from stagepack.planning.search import KIND

    require_writable(output, plot)
    kind = context.setdefault("kind", KIND)
    if kind != KIND:
        raise InputError(f"plans are not made of a {kind}", field="--kind", remedy="leave it out")
    partition = instance_of(_named(model), context)
    assert isinstance(partition, PipelinePartition)
    with engines_silenced():
        found = plan_model(
            partition, split=split, threads=threads, seed=seed, time_limit=time_limit or None
        )
    document = {**found.to_dict(), "command": command_line()}
    rescue = Rescue()
    rescue.attempt(lambda path: write_json(path, document), output)
    if found.levels:
        rescue.attempt(lambda path: draw_plan(found, path), plot)
    if as_json or rescue:
        rescue.tell("the whole plan")
        print_json(document)
    else:
        print_parts(found.contents())
    nothing = EXIT_INFEASIBLE if found.status == "INFEASIBLE" else EXIT_NOTHING
    raise typer.Exit(EXIT_INPUT if rescue else 0 if found.levels else nothing)


def _named(model: str) -> str:
    """Return the name of an instance: networks of the catalog may be called by themselves."""
    from stagepack.instances import catalog
    from stagepack.kinds import KINDS
    from stagepack.planning.search import KIND

    name = f"{KINDS[KIND].family}/{model}"
    known = not Path(model).exists() and name in {entry.name for entry in catalog.entries(KIND)}
    return name if known else model


def plan_in(source: str | Path) -> ModelPlan | None:
    """Return the plan that a file holds; None for other files and names."""
    from stagepack.planning.document import is_plan, read_plan

    return read_plan(source) if is_plan(source) else None


def draw_plan(found: ModelPlan, path: Path) -> None:
    """Write the picture of a plan: that of its schedule."""
    if not found.levels:
        raise InputError("holds no schedule", field="plan", remedy="plan anew")
    level = found.level("schedule")
    draw(level.instance, level.result.solution, path)
