"""``stagepack import``: makes an instance of any kind from the model of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stagepack.cli.context import instance_of
from stagepack.cli.listing import write_instance
from stagepack.cli.options import OUTPUT, AsJson, option
from stagepack.cli.output import require_writable
from stagepack.contracts import JsonObject
from stagepack.errors import InputError


def import_model(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="An ONNX model; its weights need not be there."),
    ],
    context: JsonObject,
    output: Annotated[
        Path,
        option(
            OUTPUT,
            "File to write: .json or .json.gz.",
            "-o",
            "--output",
            metavar="FILE",
        ),
    ],
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", help="Samples of a batch; those of the model where left out."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a network's model and write it as an instance."""
    require_writable(output, source=str(model))
    if not model.is_file():
        raise InputError("no such file", file=model, remedy="name an ONNX model")
    if batch is not None:
        context = {**context, "batch": batch}
    write_instance(instance_of(str(model), context), output, None, as_json)
