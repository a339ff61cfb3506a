"""Exports of solutions for other tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stagepack import files
from stagepack.cli.terminal.screen import write_json
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError
from stagepack.instances.problem import PROBLEMS


@dataclass(frozen=True)
class Form:
    """How a solution is written: for which tool, "" for the usual, and what the tool is told."""

    tool: str = ""
    options: JsonObject = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None, **options: object) -> Form:
        """Read ``TOOL:KEY=VALUE,...``, or nothing; what is said besides, if it is true, counts.

        Raises
        ------
        InputError
            For what is no KEY=VALUE.
        """
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
        """Return the same of a problem read from `source`: models with plans begin as that file."""
        known = PROBLEMS[problem.kind].tools.get(self.tool)
        if known is None or "model" not in known.options or not Path(source).is_file():
            return self
        return Form(self.tool, {"model": source, **self.options})


def require_exportable(problem: Instance, path: Path, form: Form, *, planned: bool = False) -> None:
    """Refuse a file that this kind of problem is not exported to, before anything is solved.

    Parameters
    ----------
    problem : instance
    path : Path
    form : Form
    planned : bool
        The stages written are those of a plan, perhaps on fewer devices.

    Raises
    ------
    InputError
        For a kind that has no export, or another end of the name than it takes; for a tool that
        reads no such solutions, or takes none of this instance.
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
    """Write a solution for other tools, checked by :func:`require_exportable`.

    Parameters
    ----------
    problem : instance
    solution : solution
    path : Path
    form : Form
    """
    from stagepack.formats import solutions

    known = PROBLEMS[problem.kind]
    if form.tool:
        solutions.write_solution(problem, solution, path, as_=form.tool, **form.options)
    elif known.export is not None and known.export.texts:
        text = known.named(known.export.texts[path.suffix.lower()])(problem, solution)
        files.write(path, text.encode(errors="replace"))
    elif known.export is not None and known.export.document:
        write_json(path, known.named(known.export.document)(problem, solution))
    else:
        solutions.write_solution(problem, solution, path, **form.options)
