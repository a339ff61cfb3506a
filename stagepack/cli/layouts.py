"""``stagepack plan --global-batch``: how a model of Hugging Face lies on accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import typer

from stagepack.cli.options import EXIT_INFEASIBLE, EXIT_INPUT, end_code
from stagepack.cli.output import Form, answer
from stagepack.cli.terminal.screen import engines_silenced
from stagepack.contracts import JsonObject
from stagepack.errors import InputError


def choose(
    model: str,
    context: JsonObject,
    global_batch: int,
    others: Mapping[str, object],
    limits: JsonObject,
    output: Path | None,
    export: Path | None,
    as_: str | None,
    *,
    as_json: bool,
) -> NoReturn:
    """Choose a layout, print it, and end.

    `model` is a file, `context` what is said of it, `global_batch` the samples of a step, `limits`
    those of the search; none of `others`, options that choose no layouts, may be given.  `output`,
    `export`, `as_` and `as_json` are those of the command.
    """
    from stagepack.planning.layouts import plan_layout

    for name, value in others.items():
        if value:
            raise InputError("does not go with --global-batch", field=name, remedy="leave it out")
    if not Path(model).is_file():
        raise InputError(
            "is no file", file=model, remedy="give the config.json of a model of Hugging Face"
        )
    tool = Form.of(as_).tool
    if (export is None) != (not tool):
        raise InputError(
            "go together",
            field="--export and --as",
            remedy="write --export FILE --as megatron, torchtitan or vllm",
        )
    given = {name: value for name, value in context.items() if name != "kind" and value is not None}
    cluster: Any = given.pop("cluster", None)
    if cluster is None:
        raise InputError("is missing", field="--cluster", remedy="name one, such as 2x8xh100")
    with engines_silenced():
        found = plan_layout(model, cluster, global_batch=global_batch, **limits, **given)

    def exported(path: Path) -> None:
        found.export(path, as_=tool)

    made = found.plan is not None
    files = (exported, export if made else None)
    failed = answer(found, "the whole layout", output, files, as_json=as_json)
    ended = end_code(found=made, interrupted=found.interrupted)
    ended = EXIT_INFEASIBLE if found.status == "INFEASIBLE" else ended
    raise typer.Exit(EXIT_INPUT if failed else ended)
