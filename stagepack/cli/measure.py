"""``stagepack measure``: runs the stages of a plan and compares predicted and measured times."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stagepack.cli.options import EXIT_INPUT, METHOD, AsJson, Output, option
from stagepack.cli.output import answer, require_writable
from stagepack.errors import InputError, shown


def measure(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="What `stagepack plan -o` wrote.")],
    model: Annotated[
        str,
        option(
            METHOD,
            "A function of a file that returns a PyTorch module, its inputs for a microbatch as a "
            "tuple, and, if any, those by keyword as a dictionary.",
            metavar="FILE.py:NAME",
        ),
    ],
    order: Annotated[
        list[str] | None,
        option(METHOD, "Run the order of this method, too: gpipe; repeatable.", metavar="NAME"),
    ] = None,
    repeats: Annotated[int, option(METHOD, "Steps of each order.", metavar="N")] = 3,
    depth: Annotated[
        int | None,
        option(METHOD, "How deep layers are, as for the plan's profile.", metavar="N"),
    ] = None,
    threads: Annotated[
        int | None, option(METHOD, "Threads of each process; PyTorch's own.", metavar="N")
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Run the stages of a plan, a process each: time, memory and spans beside what it said."""
    from stagepack.integrations.pytorch import require_torch
    from stagepack.planning.document import read_plan
    from stagepack.planning.measured import measure_plan

    require_writable(output, source=str(plan))
    require_torch()
    found = read_plan(plan)
    module, inputs, kwargs = _made(model)
    if threads is not None:
        import torch

        if threads < 1:
            raise InputError(f"{threads}", field="--threads", remedy="give at least 1")
        torch.set_num_threads(threads)
    measured = measure_plan(
        module, found, inputs, kwargs, orders=order or (), repeats=repeats, depth=depth
    )
    failed = answer(measured, "all figures", output, as_json=as_json)
    raise typer.Exit(EXIT_INPUT if failed else 0)


def _made(named: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the module and its inputs."""
    path, _, name = named.rpartition(":")
    file = Path(path)
    if not name.isidentifier() or file.suffix != ".py" or not file.is_file():
        raise InputError(
            f"{shown(named)} names no function of a file", field="--model", remedy="FILE.py:NAME"
        )
    sys.path.insert(0, str(file.parent.resolve()))  # the processes look there, too
    try:
        make = getattr(importlib.import_module(file.stem), name, None)
    except (ImportError, SyntaxError) as error:
        raise InputError(
            f"cannot be loaded: {error}", file=path, remedy="correct it, or run it by itself"
        ) from None
    if not callable(make):
        raise InputError(f"{file} has no {name!r}", field="--model", remedy="name a function of it")
    made = make()
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[1], tuple):
        raise InputError(
            f"{name} returns something else",
            field="--model",
            remedy="return a module, a tuple of inputs and, if any, a dictionary of those by name",
        )
    return made[0], made[1], dict(made[2]) if len(made) == 3 else {}
