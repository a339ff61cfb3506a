"""``stagepack serving``: what a model serves on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stagepack.cli.context import CHANGED
from stagepack.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INPUT,
    METHOD,
    OUTPUT,
    AsJson,
    Output,
    end_code,
    limit_option,
    option,
)
from stagepack.cli.output import answer, require_writable
from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.result import Status

AROUND = ("kind", "format", "max_bytes")
"""Words about files of other kinds."""


def serving(
    model: Annotated[str, typer.Argument(metavar="CONFIG", help="A config.json of Hugging Face.")],
    context: JsonObject,
    tokens_each: Annotated[
        int | None,
        option(
            METHOD, "Tokens of a sample, generated ones included.", "--context", metavar="TOKENS"
        ),
    ] = None,
    batches: Annotated[
        str | None,
        option(METHOD, "Samples that stages compute at a time: 1,8,32.", metavar="N,N,..."),
    ] = None,
    time_limit: Annotated[float, limit_option("Seconds in all; 0: no limit.")] = 20.0,
    as_json: AsJson = False,
    output: Output = None,
    csv: Annotated[Path | None, option(OUTPUT, "Write the points.", metavar="FILE")] = None,
) -> None:
    """Say how fast a model generates tokens, for how many samples, and how many fit."""
    from stagepack.planning.serving import plan_serving

    require_writable(output, csv, source=model)
    words = {key: value for key, value in context.items() if key not in AROUND}
    changed = next((key for key in words if key.startswith(CHANGED)), None)
    if changed is not None:
        raise InputError(
            "is no question here", field=changed.removeprefix(CHANGED), remedy="leave it out"
        )
    cluster = words.pop("cluster", None)
    if cluster is None:
        raise InputError(
            "is missing", field="--cluster", remedy="name the devices: --cluster 4xh100"
        )
    found = plan_serving(
        model,
        cluster,
        context=tokens_each,
        batches=None if batches is None else _numbers(batches),
        time_limit=time_limit or None,
        **words,
    )
    failed = answer(found, "all of it", output, (found.to_csv, csv), as_json=as_json)
    if failed:
        raise typer.Exit(EXIT_INPUT)
    if found.status is Status.INFEASIBLE:
        raise typer.Exit(EXIT_INFEASIBLE)
    raise typer.Exit(end_code(found=bool(found.points), interrupted=False))


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{text[:40]!r} is no list of numbers", field="--batches", remedy="write 1,8,32"
        ) from None
