"""Selects the instance of a command: a file or a catalog name, and the options that complete it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from stagepack import files, kinds
from stagepack.cli import completion
from stagepack.cli.options import FREEDOM, INSTANCE, MACHINE
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError
from stagepack.instances.problem import PROBLEMS, VOCABULARY, Change
from stagepack.instances.words import Parameter
from stagepack.kinds import KINDS, by_family, kind_of

CHANGED = "changed_"  # before the names of fields that an option changes once all is read
SEVERAL = re.compile(r",(?=[A-Za-z][\w.-]*=)")
"""Between the settings of one ``--set``; values may have commas, too."""
HEADINGS = {"instance": INSTANCE, "machine": MACHINE, "freedom": FREEDOM}
COMPLETED = {"objective": completion.objectives, "cluster": completion.clusters}
LETTERS = {int: "N", float: "X", str: "NAME", bool: "", list: "X,X,..."}


def _bytes(text: str) -> int:
    """Return a number of bytes: digits, 1e9, or with KiB, MiB, GiB, TiB (kB, MB, ...)."""
    try:
        return files.size_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _option(name: str, kind: type, *names: str, description: str, **how: Any) -> inspect.Parameter:
    """Return an option as a parameter of a function, as typer understands it."""
    said = f"{description[0].upper()}{description[1:]}."
    about = typer.Option(*names, help=said, **how)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, about],
    )


def _of_word(word: Parameter) -> inspect.Parameter:
    """Return the option of a word of the vocabulary."""
    kind = str if word.type is bool and word.choices else word.type
    how: JsonObject = {"metavar": word.unit.upper() or LETTERS[kind]}
    about = word.description
    if word.unit == "bytes":
        how["parser"], about = str, f"{about}: 900000000, 1e9, 16GiB"
    if word.name == "objective":
        about = "; ".join(
            f"{KINDS[kind].family}: {', '.join(known.objectives)}"
            for kind, known in PROBLEMS.items()
        )
    elif word.choices:
        about = f"{about}: {', '.join(word.choices)}"
    if word.scales:
        how["parser"] = str  # a number and its unit
    names = ["--training/--inference"] if word.name == "training" else []
    return _option(
        word.name,
        str if kind is list else kind,  # numbers with commas between
        *names,
        description=about,
        rich_help_panel=HEADINGS[word.option],
        autocompletion=COMPLETED.get(word.name),
        **how,
    )


def _of_change(change: Change) -> inspect.Parameter:
    """Return the option that changes a field of an instance once it is read."""
    return _option(
        f"{CHANGED}{change.name}",
        Path if change.read else list[str] if change.texts else list[int],
        change.option,
        description=change.description,
        metavar=change.unit.upper(),
        rich_help_panel=FREEDOM,
    )


def _changes() -> dict[str, Change]:
    """Return what can be changed once an instance is read, what several problems know once."""
    found: dict[str, Change] = {}
    for change in (change for known in PROBLEMS.values() for change in known.changes):
        if change.name in found:
            about = f"{found[change.name].description}; {change.description}"
            change = dataclasses.replace(change, description=about)
        found[change.name] = change
    return found


def _options() -> tuple[inspect.Parameter, ...]:
    """Return the options that say what a file does not, words of the vocabulary among them."""
    called = [*KINDS, *(known.family for known in KINDS.values())]
    return (
        _option(
            "kind",
            str,
            description=f"kind of problem: {', '.join(called)}",
            metavar="KIND",
            rich_help_panel=INSTANCE,
            autocompletion=completion.kinds,
        ),
        _option(
            "format",
            str,
            description="format of the file, if it cannot be told",
            metavar="NAME",
            rich_help_panel=INSTANCE,
            autocompletion=completion.formats,
        ),
        *(_of_word(word) for word in VOCABULARY.values() if word.option),
        *map(_of_change, _changes().values()),
        _option(
            "settings",
            list[str],
            "--set",
            description="any other parameters (stagepack list NAME), commas between; repeatable",
            metavar="KEY=VALUE",
            rich_help_panel=INSTANCE,
            autocompletion=completion.settings,
        ),
        _option(
            "max_bytes",
            int,
            description="refuse larger files, packed or unpacked (default 256MiB, or "
            f"${files.VARIABLE})",
            metavar="BYTES",
            parser=_bytes,
            rich_help_panel=INSTANCE,
        ),
    )


def _written(parameter: inspect.Parameter) -> str:
    """Return an option as it is written: ``--time-limit``; "" for what is none."""
    for about in get_args(parameter.annotation):
        if isinstance(about, OptionInfo):
            given = (about.default, *(about.param_decls or ()))  # typer's first is no default here
            names = [name for name in given if isinstance(name, str) and name.startswith("-")]
            names.sort(key=lambda name: not name.startswith("--"))  # long ones first
            return names[0].partition("/")[0] if names else f"--{parameter.name.replace('_', '-')}"
    return ""


def _said(options: JsonObject) -> JsonObject:
    """Return what a file does not say of its instance, as the readers understand it."""
    given = {key: value for key, value in options.items() if value not in (None, [])}
    limit = given.pop("max_bytes", None)
    if limit is not None:  # of this process and those that it starts
        os.environ[files.VARIABLE] = str(files.limit_of(limit))
    if "kind" in given:
        given["kind"] = kind_of(given["kind"], "--kind")
    settings = given.pop("settings", ())
    for setting in (one for several in settings for one in SEVERAL.split(several)):
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError(
                f"{setting[:60]!r} is not KEY=VALUE", field="--set", remedy="write --set batch=8"
            )
        word, point, name = key.partition(".")  # names stay as they are
        whole = f"{word.replace('-', '_')}{point}{name}"
        try:
            given[whole] = json.loads(value)
        except json.JSONDecodeError:
            given[whole] = value
        except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
            raise InputError(
                f"{value[:20]}... is too long a number or nested too deeply",
                field=f"--set {key}",
                remedy="give a simple value",
            ) from None
    return given


def takes_context(command: Callable[..., None], *, options: bool) -> Callable[..., None]:
    """Give `command` the options of :func:`_options`, collected in its argument `context`.

    One without that argument stays as it is.

    Without `options` none of them is said, so that they need not be made.
    """
    own = inspect.signature(command, eval_str=True)
    if "context" not in own.parameters:
        return command
    shared = _options() if options else ()

    @functools.wraps(command)
    def wrapper(**arguments: object) -> None:
        context = {option.name: arguments.pop(option.name) for option in shared}
        try:
            command(**arguments, context=_said(context))
        except InputError as error:
            if not error.file:
                said = (*own.parameters.values(), *_options())
                written = {p.name.removeprefix(CHANGED): _written(p) for p in said}
                error.field = written.get(error.field) or error.field
            raise

    parameters = [p for name, p in own.parameters.items() if name != "context"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*parameters, *shared)]
    vars(wrapper)["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _parted(context: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return what the reader is told, and fields to change once the instance is read."""
    now = {key: value for key, value in context.items() if not key.startswith(CHANGED)}
    later = {key.removeprefix(CHANGED): value for key, value in context.items() if key not in now}
    return now, later


def instance_of(source: str, context: JsonObject) -> Instance:
    """Return the instance that `source` names: a file or an entry of the catalog."""
    now, later = _parted(context)
    # To minimise how little changes needs something old, to minimise a spill memories.
    old = later and any(_changes()[name].read or _changes()[name].texts for name in later)
    objective = now.pop("objective", None) if old else None
    problem = _source(source, now)
    own = {change.name: change for change in PROBLEMS[problem.kind].changes}
    changes: JsonObject = {}
    for name, value in later.items():
        change = own.get(name)
        if change is not None and change.texts:
            made = kinds.named(problem.kind, "formats", change.texts)
            changes |= made(value, problem, changes)
        elif change is not None and change.read:
            changes[name] = kinds.named(problem.kind, "formats", change.read)(value, problem)
        else:
            changes[name] = value
    if objective is not None:
        changes["objective"] = objective
    return problem.replace(**changes) if changes else problem


def instance_to_ask(source: str, context: JsonObject) -> Instance:
    """Return the instance that `source` names; refuse something old where nothing asks for it."""
    problem = instance_of(source, context)
    if context.get(f"{CHANGED}previous") is not None and problem.objective != "moves":
        raise InputError(
            f"says nothing to the objective {problem.objective}",
            field="--previous",
            remedy="give --objective moves, or solve, which asks for few moves besides",
        )
    return problem


def instances_of(source: str, context: JsonObject) -> list[Instance]:
    """Return the instance that `source` names, or all those of a file that holds several."""
    from stagepack.formats import door

    now, later = _parted(context)
    if later or not Path(source).is_file():
        return [instance_to_ask(source, context)]
    return list(door.read_all(source, **now))


def _source(source: str, context: JsonObject) -> Instance:
    from stagepack.formats import door

    if Path(source).exists():
        return door.read(source, **context)
    from stagepack import catalog

    path = source.rpartition("#")[0] or source
    names = [entry.name for entry in catalog.entries()]
    named = by_family(source)
    if named in names:
        parameters = dict(context)
        kind = parameters.pop("kind", None)
        if kind not in (None, catalog.entry(named).kind):
            raise InputError(f"is no {kind}", file=source, field="--kind", remedy="leave it out")
        if parameters.pop("format", None) is not None:
            raise InputError(
                "the catalog has no formats", file=source, field="--format", remedy="leave it out"
            )
        known: Instance = catalog.load(named, **parameters)
        return known
    if not Path(path).exists() and "." not in Path(path).name:
        import difflib

        near = [name for name in names if name.rpartition("/")[2] == source]
        near = near or difflib.get_close_matches(source, names, n=3, cutoff=0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else "see stagepack list"
        if source in KINDS or source in {kind.family for kind in KINDS.values()}:
            remedy = f"compare {source} takes its suite; stagepack list has its instances"
        raise InputError("no such file, nor an instance of the catalog", file=source, remedy=remedy)
    return door.read(source, **context)


def instance_and_solution(
    source: str, solution: Path, context: JsonObject
) -> tuple[Instance, Solution]:
    """Read both.

    `source` is a file, ``FILE#name``, or a name of the catalog, `solution` a solution or result
    file; one that cannot belong to the instance is an input error.  `context` is what the options
    say beside the instance's file.
    """
    from stagepack.formats import solutions

    problem = instance_of(source, context)
    return problem, solutions.read_solution(solution, problem)
