"""What commands write: files, checked before a run starts and never lost, and exports for tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stagepack import files
from stagepack.cli.terminal.screen import (
    command_line,
    complain,
    print_json,
    print_parts,
    write_json,
)
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError
from stagepack.instances.problem import PROBLEMS

if TYPE_CHECKING:
    from rich.console import RenderableType


def require_writable(*targets: Path | None, source: str = "") -> None:
    """Refuse what cannot be written, or is named twice, before anything is solved.

    `source`, what is read, perhaps as FILE#name, is never written over.
    """
    seen: set[str] = set()
    sources = {os.path.realpath(file) for file in (source, source.rpartition("#")[0]) if file}
    for target in targets:
        if target is None:
            continue
        if str(target) == "-":
            remedy = "name a file; --json prints to stdout"
            raise InputError("is no file", file=target, remedy=remedy)
        files.require_writable(target)
        place = os.path.realpath(target)
        if place in seen and (not os.path.exists(place) or os.path.isfile(place)):
            raise InputError(
                "is named for two outputs", file=target, remedy="give each a file of its own"
            )
        if place in sources and os.path.isfile(place):
            raise InputError(
                "is a file that the command reads", file=target, remedy="name another file"
            )
        seen.add(place)


def apart(output: Path | None, *, as_json: bool) -> Path | None:
    """Return the file that gets JSON; none where it is stdout, which has one document already."""
    return None if as_json and output is not None and files.is_stdout(output) else output


class Rescue:
    """Notes which files could not be written, so that the answer goes to stdout instead."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def attempt(self, write: Callable[[Path], object], target: Path | None) -> None:
        """Write a file, if one is asked for; a failure ends nothing but this."""
        try:
            if target is not None:
                write(target)
        except InputError as error:
            self.failures.append(str(error))
        except (KeyboardInterrupt, MemoryError, OSError) as error:
            self.failures.append(f"an output was not written ({type(error).__name__})")

    def __bool__(self) -> bool:
        return bool(self.failures)

    def tell(self, what: str) -> None:
        """Say on stderr what failed, and that `what` is on stdout."""
        for failure in self.failures:
            complain(f"error: {failure}")
        if self.failures:
            complain(f"{what} is on stdout instead")


class Findings(Protocol):
    """What a command found: for scripts, and for people."""

    def to_dict(self) -> JsonObject:
        """Return plain JSON data."""
        ...

    def contents(self) -> Sequence[RenderableType]:
        """Return what is printed."""
        ...


def answer(
    found: Findings,
    what: str,
    output: Path | None,
    *others: tuple[Callable[[Path], object], Path | None],
    as_json: bool,
) -> Rescue:
    """Write what was found where it is asked for, print it, and return what could not be written.

    `output` gets the JSON of what was `found`, and each of `others` is a way to write a file, and
    where.  `what` is said to be on stdout in full where a file could not be written; `as_json`
    prints JSON.
    """
    document = {**found.to_dict(), "command": command_line()}
    output = apart(output, as_json=as_json)
    rescue = Rescue()
    for write, target in ((lambda path: write_json(path, document), output), *others):
        rescue.attempt(write, target)
    if as_json or rescue:
        rescue.tell(what)
        print_json(document)
    else:
        print_parts(found.contents(), outputs=(output, *(target for _, target in others)))
    return rescue


@dataclass(frozen=True)
class Form:
    """How a solution is written: for which tool, "" for the usual, and what the tool is told."""

    tool: str = ""
    options: JsonObject = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None, **options: object) -> Form:
        """Read ``TOOL:KEY=VALUE,...``, or nothing; what is said besides, if it is true, counts."""
        tool, _, rest = (text or "").partition(":")
        said: JsonObject = {key: value for key, value in options.items() if value}
        for pair in filter(None, rest.split(",")):
            key, equals, value = pair.partition("=")
            if not equals or not key:
                raise InputError(
                    f"{pair[:60]!r} is not KEY=VALUE",
                    field="--as",
                    remedy="write --as megatron:ranks=4",
                )
            said[key.replace("-", "_")] = value
        return cls(tool, said)

    def beside(self, problem: Instance, source: str) -> Form:
        """Return the same of a problem from the file `source`: that is its `model` or `problem`."""
        known = PROBLEMS[problem.kind].tools.get(self.tool)
        if known is None or not Path(source).is_file():
            return self
        said = {name: source for name in ("model", "problem") if name in known.options}
        return Form(self.tool, {**said, **self.options})


def require_exportable(problem: Instance, path: Path, form: Form, *, planned: bool = False) -> None:
    """Refuse a file that this kind of `problem` is not exported to, before anything is solved.

    `planned`: the stages written are those of a plan, perhaps on fewer devices.
    """
    if form.tool:
        from stagepack.formats.solutions import require_expressible, require_tool

        refuse = require_tool if planned else require_expressible
        refuse(problem, form.tool, form.options)
        return
    export = PROBLEMS[problem.kind].export
    if export is None:
        tools = PROBLEMS[problem.kind].tools
        raise InputError(
            f"a {problem.kind} is exported for a tool" if tools else f"a {problem.kind} has none",
            field="--export",
            remedy=f"name it: --as {', '.join(tools)}" if tools else "use -o FILE",
        )
    if export.texts and path.suffix.lower() not in export.texts:
        raise InputError(
            f"a {problem.kind} is exported as {' or '.join(e[1:].upper() for e in export.texts)}",
            file=path,
            field="--export",
            remedy=f"end the name in {' or '.join(export.texts)}",
        )
    for name in set(form.options) - set(export.options):
        raise InputError(
            f"a {problem.kind} is exported without", field=f"--{name}", remedy="leave it out"
        )
    for name, tool in PROBLEMS[problem.kind].tools.items():
        if tool.ending and path.suffix.lower() == tool.ending:
            raise InputError(
                f"{tool.ending} is how files of another tool end",
                file=path,
                field="--export",
                remedy=f"name it: --as {name}",
            )
    end = export.ending
    if not export.texts and path.suffix.lower() in (".csv", ".json") and path.suffix.lower() != end:
        raise InputError(
            f"a {problem.kind} is exported as {end[1:].upper()}",
            file=path,
            field="--export",
            remedy=f"end the name in {end}",
        )


def export_solution(problem: Instance, solution: Solution, path: Path, form: Form) -> None:
    """Write a solution of a `problem` for other tools, checked by :func:`require_exportable`."""
    from stagepack.formats import solutions

    known = PROBLEMS[problem.kind]
    if form.tool:
        solutions.write_solution(problem, solution, path, format=form.tool, **form.options)
    elif known.export is not None and known.export.texts:
        text = known.named(known.export.texts[path.suffix.lower()])(problem, solution)
        files.write(path, text.encode(errors="replace"))
    elif known.export is not None and known.export.document:
        write_json(path, known.named(known.export.document)(problem, solution))
    else:
        solutions.write_solution(problem, solution, path, **form.options)
