"""Which instance is meant: a file or a catalog name, and the options that complete it."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from stagepack import files
from stagepack.cli import completion
from stagepack.cli.options import FREEDOM, INSTANCE, MACHINE
from stagepack.errors import InputError
from stagepack.kinds import by_family, kind_of


def _bytes(text: str) -> int:
    """Return a number of bytes: digits, 1e9, or with KiB, MiB, GiB, TiB (kB, MB, ...)."""
    try:
        return files.size_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _context(
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Kind of problem: pipeline-partition, pipeline-schedule, phase-schedule, "
            "lmem-packing; or pipeline, schedule, phases, packing.",
            rich_help_panel=INSTANCE,
            autocompletion=completion.kinds,
        ),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        str | None,
        typer.Option(
            metavar="NAME",
            help="Format of the file, if it cannot be told.",
            rich_help_panel=INSTANCE,
            autocompletion=completion.formats,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Pipelines: bottleneck, transfer-bounded, sum, overlap. "
            "Schedules: makespan, span. Packings: peak, fit, bank-conflicts, moves, spill.",
            rich_help_panel=INSTANCE,
            autocompletion=completion.objectives,
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            parser=_bytes,
            help="Memory of each device, or to pack into: 900000000, 1e9, 16GiB.",
            rich_help_panel=INSTANCE,
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(metavar="UNIT", help="Unit of times: us, ms or ns.", rich_help_panel=INSTANCE),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other parameter (stagepack list NAME); repeatable.",
            rich_help_panel=INSTANCE,
            autocompletion=completion.settings,
        ),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(metavar="N", help="Number of devices.", rich_help_panel=MACHINE)
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Cluster of the catalog, for example ipu-pod8.",
            rich_help_panel=MACHINE,
            autocompletion=completion.clusters,
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            metavar="GB/S",
            help="Between devices, in 2^30 bytes a second.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    microbatches: Annotated[
        int | None,
        typer.Option(metavar="N", help="Microbatches of a step.", rich_help_panel=MACHINE),
    ] = None,
    training: Annotated[
        bool | None,
        typer.Option(
            "--training/--inference",
            metavar="",
            help="Count backward and stashes.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    host_transfer: Annotated[
        bool | None,
        typer.Option(
            metavar="",
            help="Every device waits for the exchange with the host.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    fixed_cuts: Annotated[
        list[int] | None,
        typer.Option(
            "--fix-cut",
            metavar="LAYER",
            help="A stage begins here; repeatable.",
            rich_help_panel=FREEDOM,
        ),
    ] = None,
    forbidden_cuts: Annotated[
        list[int] | None,
        typer.Option(
            "--forbid-cut",
            metavar="LAYER",
            help="No stage begins here; repeatable.",
            rich_help_panel=FREEDOM,
        ),
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Old placement (result or CSV): buffers of equal names should stay in place.",
            rich_help_panel=FREEDOM,
        ),
    ] = None,
    fewer_stages: Annotated[
        bool | None,
        typer.Option(metavar="", help="Devices may stay unused.", rich_help_panel=FREEDOM),
    ] = None,
    free_order: Annotated[
        bool | None,
        typer.Option(
            metavar="", help="Unlike devices may take any order.", rich_help_panel=FREEDOM
        ),
    ] = None,
) -> dict[str, Any]:
    """Return what a file does not say of its instance, as the readers understand it."""
    options = {key: value for key, value in locals().items() if key != "settings"}
    given = {key: value for key, value in options.items() if value not in (None, [])}
    if kind is not None:
        given["kind"] = kind_of(kind, "--kind")
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError(
                f"{setting[:60]!r} is not KEY=VALUE", field="--set", remedy="write --set batch=8"
            )
        try:
            given[key.replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            given[key.replace("-", "_")] = value
        except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
            raise InputError(
                f"{value[:20]}... is too long a number or nested too deeply",
                field=f"--set {key}",
                remedy="give a simple value",
            ) from None
    return given


def _limit(
    max_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            parser=_bytes,
            help="Refuse larger files, packed or unpacked (default 256MiB, or "
            "$STAGEPACK_MAX_BYTES).",
            rich_help_panel=INSTANCE,
        ),
    ] = None,
) -> None:
    """Let this process and those that it starts read files of so many bytes."""
    if max_bytes is not None:
        os.environ[files.VARIABLE] = str(files.limit_of(max_bytes))


def takes_context(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the options of :func:`_context`, collected in its argument `context`."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(_context, eval_str=True)
    limit = inspect.signature(_limit, eval_str=True)

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> Any:
        _limit(**{name: arguments.pop(name) for name in limit.parameters})
        context = {name: arguments.pop(name) for name in shared.parameters}
        return command(**arguments, context=_context(**context))

    parameters = [p for name, p in own.parameters.items() if name != "context"]
    parameters += [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in (*shared.parameters.values(), *limit.parameters.values())
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def instance_of(source: str, context: dict[str, Any]) -> Any:
    """Return the instance that `source` names: a file or an entry of the catalog."""
    later = {"fixed_cuts", "forbidden_cuts"} & set(context)
    if isinstance(context.get("previous"), Path):
        later |= {"previous", "objective"} & set(context)  # to minimise moves needs something old
    problem = _source(source, {key: context[key] for key in context if key not in later})
    changes = {key: context[key] for key in later}
    if "previous" in later:
        from stagepack.instances import formats

        changes["previous"] = formats.read_previous(context["previous"], problem)
    return problem.replace(**changes) if changes else problem


def instances_of(source: str, context: dict[str, Any]) -> list[Any]:
    """Return the instance that `source` names, or all those of a file that holds several."""
    from stagepack.instances import formats

    later = {"fixed_cuts", "forbidden_cuts", "previous"} & set(context)
    if later or not Path(source).is_file():
        return [instance_of(source, context)]
    return list(formats.read_all(source, **context))


def _source(source: str, context: dict[str, Any]) -> Any:
    from stagepack.instances import catalog, formats

    path = source.rpartition("#")[0] or source
    names = [entry.name for entry in catalog.entries()]
    named = by_family(source)
    if named in names and not Path(source).exists():
        parameters = dict(context)
        kind = parameters.pop("kind", None)
        if kind not in (None, catalog.entry(named).kind):
            raise InputError(f"is no {kind}", file=source, field="--kind", remedy="leave it out")
        if parameters.pop("format", None) is not None:
            raise InputError(
                "the catalog has no formats", file=source, field="--format", remedy="leave it out"
            )
        return catalog.load(named, **parameters)
    if not Path(path).exists() and "." not in Path(path).name:
        import difflib

        near = difflib.get_close_matches(source, names, n=3, cutoff=0.5)
        raise InputError(
            "no such file, nor an instance of the catalog",
            file=source,
            remedy=f"did you mean {' or '.join(near)}?" if near else "see stagepack list",
        )
    return formats.read(source, **context)


def instance_and_solution(source: str, solution: Path, context: dict[str, Any]) -> tuple[Any, Any]:
    """Read both; a solution that cannot belong to the instance is an input error."""
    from stagepack.instances import formats

    problem = instance_of(source, context)
    return problem, formats.read_solution(solution, problem)
