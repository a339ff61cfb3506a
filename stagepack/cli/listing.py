"""``stagepack list``, ``methods``, ``schema`` and ``convert``."""

from __future__ import annotations

import inspect
import operator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import stagepack
from stagepack import files
from stagepack.cli import completion
from stagepack.cli.context import instance_and_solution, instance_of
from stagepack.cli.options import EXIT_INPUT, OUTPUT, AsJson, Instance, option
from stagepack.cli.output import Form, Rescue, export_solution, require_writable
from stagepack.cli.terminal.screen import print_json, say, terminal
from stagepack.contracts import Instance as Problem
from stagepack.contracts import JsonObject, Solution
from stagepack.errors import InputError, a, shown
from stagepack.instances.problem import PROBLEMS
from stagepack.kinds import KINDS, by_family, kind_called

if TYPE_CHECKING:
    from stagepack.catalog import Entry

CLUSTERS = "clusters"
"""What lists devices and links."""


def catalog(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One entry, to see its parameters for --set; a kind or the beginning of names, "
            "to see what is there; clusters, to see devices and links.",
            autocompletion=completion.entries,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the catalog of instances, the parameters of one entry, or devices and links."""
    from stagepack import catalog

    if name == CLUSTERS:
        _list_clusters(as_json)
        return
    from stagepack.report.table import catalog_table, parameters_table

    entries = catalog.entries()
    if name is not None:
        entries = _under(name, entries) or [catalog.entry(name)]
    one = name is not None and entries[0].name == by_family(name)
    if as_json:
        print_json(
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
    console = terminal()
    if not one:
        console.print(catalog_table(entries))
        console.print("\nparameters of one: stagepack list NAME", highlight=False)
        family = entries[0].name.partition("/")[0]
        if name is not None and len(entries) < len(catalog.entries(family)):
            console.print(f"all of {family}: stagepack list {family}", highlight=False)
    else:
        console.print(f"[bold]{entries[0].name}[/]: {entries[0].description}\n", highlight=False)
        console.print(parameters_table(entries[0]))


def _list_clusters(as_json: bool) -> None:
    """List devices and links by name, with their figures and where these are from."""
    from stagepack.instances import accelerators, clusters
    from stagepack.report.table import clusters_table

    if as_json:
        print_json(
            {
                "clusters": clusters.names(),
                "accelerators": {
                    name: vars(known) for name, known in accelerators.ACCELERATORS.items()
                },
                "links": {
                    name: {"bandwidth": rate, "latency": latency, "source": source}
                    for name, (rate, latency, source) in accelerators.LINKS.items()
                },
                "achieved": accelerators.ACHIEVED,
            }
        )
        return
    for table in clusters_table():
        terminal().print(table)
    said = ", ".join(clusters.names()[:5])
    say(f"clusters: 4xh100, 2x8xh100 (two nodes), h100:4+a100-80:4, 8xl40s@pcie4/ib-ndr, {said}")


def _under(name: str, entries: list[Entry]) -> list[Entry]:
    """Return the entries whose names begin with `name`, a kind or some first parts of theirs."""
    above = by_family(f"{name.rstrip('/')}/")
    return [entry for entry in entries if entry.name.startswith(above)]


def convert(
    instance: Instance,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="File to write: .json or .json.gz for native files, .csv for MiniMalloc's, "
            "with the solution of a graph .dot or .graphml.",
        ),
    ],
    context: JsonObject,
    to: Annotated[
        str | None,
        option(
            OUTPUT,
            "Format to write; by default that of TARGET's ending.",
            "--to",
            metavar="NAME",
            autocompletion=completion.writers,
        ),
    ] = None,
    solution: Annotated[
        Path | None,
        option(
            OUTPUT,
            "Write what follows from this solution, such as the problem to solve next.",
            "--solution",
            metavar="FILE",
        ),
    ] = None,
    becomes: Annotated[
        str | None,
        option(
            OUTPUT,
            "The problem that the stages of a solution are, to cut or to schedule next; or a tool "
            "to write them for.",
            "--as",
            metavar="KIND|TOOL",
            autocompletion=completion.becoming,
        ),
    ] = None,
    cycles: Annotated[
        float | None,
        option(
            OUTPUT,
            "Cycles of a unit of time in what the stages of a graph make; schedules round up to "
            "whole ones.",
            "--cycles",
            metavar="N",
        ),
    ] = None,
    split: Annotated[
        bool | None,
        option(
            OUTPUT,
            "Split the backward pass of a schedule into B and W, half each; by default it is.",
            "--split/--no-split",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read an instance in any format and write it, or what its solution makes, in another one."""
    require_writable(target)
    said = {name: it for name, it in (("cycles", cycles), ("split", split)) if it is not None}
    if solution is None:
        if becomes is not None:
            raise InputError("needs a solution", field="--as", remedy="name one: --solution FILE")
        _refuse(said)
        problem = instance_of(instance, context)
    else:
        problem, answer = instance_and_solution(instance, solution, context)
        known = PROBLEMS[problem.kind]
        form = Form.of(becomes).beside(problem, instance)
        texts = {} if known.export is None else known.export.texts
        if form.tool in known.tools or (not form.tool and target.suffix.lower() in texts):
            _refuse(said)
            export_solution(problem, answer, target, form)
            _tell_written(problem, target, as_json)
            return
        problem = _made_of(problem, answer, becomes, said)
    write_instance(problem, target, to, as_json)
    halved = solution is not None and split is None and "W" in getattr(problem, "kinds", ())
    if halved and not as_json:
        say("its backward pass is split into B and W; --no-split keeps it whole")


def write_instance(problem: Problem, target: Path, to: str | None, as_json: bool) -> None:
    """Write an instance to the `target` and say so, `as_json` or not; to stdout where that fails.

    `to` is the format, where it is not that of the target's ending.
    """
    from stagepack.formats import door

    try:
        data = door.dump(problem, target, to)
    except InputError as error:
        error.field = "--to" if error.field == "format" else error.field
        raise
    rescue = Rescue()
    rescue.attempt(lambda path: files.write(path, data), target)
    if rescue:
        rescue.tell("the instance")
        typer.echo(door.dump(problem, "instance.json"), nl=False)
        raise typer.Exit(EXIT_INPUT)
    _tell_written(problem, target, as_json)


def _refuse(said: JsonObject) -> None:
    """Refuse options for what the stages of a solution make, where they make nothing."""
    if said:
        name, value = next(iter(said.items()))
        raise InputError(
            "is for stages that become a problem",
            field=f"--no-{name}" if value is False else f"--{name}",
            remedy="name their partition and it: --solution FILE --as KIND",
        )


def _made_of(problem: Problem, answer: Solution, becomes: str | None, said: JsonObject) -> Problem:
    """Return the instance of another kind that a solution makes, with the options that were given.

    `becomes` is the other kind, `said` are options by name, of what makes it.
    """
    known = PROBLEMS[problem.kind].becomes
    kind = None if becomes is None else kind_called(becomes)
    if kind is None or kind not in known:
        words = [*known, *PROBLEMS[problem.kind].tools]
        remedy = "choose " + " or ".join(words) if words else "leave out --solution"
        told = "is missing" if becomes is None else f"{becomes}: not made of {a(problem.kind)}"
        raise InputError(told, field="--as", remedy=remedy)
    maker = operator.attrgetter(known[kind])(stagepack)
    taken = inspect.signature(maker).parameters
    for name in said:
        if name not in taken:
            told = f"{problem.kind} counts cycles" if name == "cycles" else "is for schedules"
            raise InputError(told, field=f"--{name}", remedy="leave it out")
    made: Problem = maker(problem, answer, **said)
    return made


def _tell_written(problem: Problem, target: Path, as_json: bool) -> None:
    if as_json:
        print_json({"instance": problem.name, "written": str(target), "digest": problem.digest})
    else:
        say(f"{shown(problem.name)}: written to {shown(target)}")


def methods(
    context: JsonObject,
    instance: Annotated[
        str | None,
        typer.Argument(
            metavar="INSTANCE",
            help="An instance, to see which methods can solve it; or a kind.",
            autocompletion=completion.entries,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, and which of them can solve an instance."""
    from stagepack.report.table import methods_table
    from stagepack.solve import REGISTRY
    from stagepack.solve import methods as find

    named = context.get("kind") if instance is None else kind_called(instance)
    if instance is None or (named is not None and not Path(instance).exists()):
        found = [info for kind in REGISTRY if named in (None, kind) for info in find(kind)]
    else:
        found = find(instance_of(instance, context))
    if as_json:
        print_json([vars(info) for info in found])
    else:
        terminal().print(methods_table(found))


def schema(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="Kind of problem: " + ", ".join(KINDS) + ".",
            autocompletion=completion.kinds,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of native files."""
    from stagepack.formats import native

    if kind is None:
        raise InputError("is missing", field="KIND", remedy="choose one of " + ", ".join(KINDS))
    print_json(native.schema(kind))
