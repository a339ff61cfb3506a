"""Arguments, groups of options and exit codes that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from stagepack.cli import completion
from stagepack.errors import InputError
from stagepack.result import SHORTEST, Result, Status, Termination

EXIT_NOTHING, EXIT_INPUT, EXIT_INFEASIBLE, EXIT_VIOLATIONS = 1, 2, 3, 4
EXIT_UNVERIFIED, EXIT_STOPPED = 5, 6
EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130

# Groups of options in the help.
METHOD = "How to solve"
LIMITS = "When to stop"
CLAIMS = "How far to go"
OUTPUT = "Output"
INSTANCE = "What the file does not say, or should say otherwise"
MACHINE = "The machine and its work"
FREEDOM = "What the solution may do"


EVERYTHING = "--help-all"
FIRST = frozenset((
    "kind", "objective", "devices", "cluster", "capacity", "settings", "method", "methods",
    "time_limit", "output", "plot", "over", "remote", "local", "html", "store", "jobs", "prove",
))  # fmt: skip
"""Arguments that most people say: all that the help of a command with many options shows."""
FEW = 14
"""Options that the help of a command shows without choosing."""


class Command(TyperCommand):
    """A command in whose help flags have no type, and of many options only the first are shown."""

    def get_params(self, ctx: Any) -> Any:
        """Return arguments and options, those for help among them."""
        everything = TyperOption(
            param_decls=[EVERYTHING],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_everything,
            help=f"Show all {len(self._options())} options, by topic.",
            hidden=len(self._options()) <= FEW,
        )
        return bare([*super().get_params(ctx), everything])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, in which ``--x`` and ``--no-x`` are one name, ``--[no-]x``.

        Beside each other the longest pair is cut on a terminal of 80 columns.
        """
        brief = len(self._options()) > FEW and EVERYTHING not in ctx.meta
        as_made = [(one, dict(vars(one))) for one in self._options()]
        try:
            for one in self._options():
                name = one.opts[0].removeprefix("--")
                if len(one.opts) == 1 and one.secondary_opts == [f"--no-{name}"]:
                    one.opts, one.secondary_opts = [f"--[no-]{name}"], []
                if brief:
                    one.rich_help_panel = None
                    one.hidden = not one.required and one.name not in FIRST
            super().format_help(ctx, formatter)
        finally:
            for one, before in as_made:
                vars(one).update(before)

    def _options(self) -> list[Any]:
        return [one for one in self.params if isinstance(one, TyperOption)]


def _show_everything(context: Any, parameter: Any, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        context.meta[EVERYTHING] = True
        typer.echo(context.get_help())
        raise typer.Exit


def bare(parameters: Any) -> Any:
    """Return parameters, the flags among them without a type."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def option(panel: str, about: str, *names: str, metavar: str = "", **more: Any) -> Any:
    """Return an option of a command.

    `panel` is its group in the help, `about` what it does.  It is written as `names` say, by
    default as its argument is called; `metavar` stands for its value, nothing for a flag that is
    not set by default.  `more` is as for ``typer.Option``.
    """
    if names and not metavar:
        more.setdefault("show_default", False)
    return typer.Option(*names, metavar=metavar, help=about, rich_help_panel=panel, **more)


def limit_option(about: str, panel: str = LIMITS) -> Any:
    """Return the option that limits the time."""
    return option(panel, about, "-t", "--time-limit", metavar="SECONDS", callback=_seconds)


def _seconds(value: float | None) -> float | None:
    if value is not None and not (value == 0 or SHORTEST <= value < math.inf):
        least = f", at least {SHORTEST:g}" if 0 < value < SHORTEST else ""
        raise InputError(f"{value:g}", field="-t", remedy=f"give seconds{least}, or 0 for no limit")
    return value


def method_option(about: str) -> Any:
    """Return the option that names a method."""
    return option(
        METHOD, about, "-m", "--method", metavar="NAME", autocompletion=completion.methods
    )  # fmt: skip


def engine_option(about: str) -> Any:
    """Return the option that names an engine."""
    return option(
        METHOD, about, "-e", "--engine", metavar="NAME", autocompletion=completion.engines
    )  # fmt: skip


INSTANCE_HELP = "A file, FILE#name for one of several in it, or a catalog name (stagepack list)."
Instance = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE",
        help=INSTANCE_HELP,
        autocompletion=completion.instances,
    ),
]
SOLUTION_HELP = "A solution, or a result that holds one: JSON, or CSV of a packing or a schedule."
Solution = Annotated[
    Path | None,
    typer.Argument(metavar="SOLUTION", help=f"{SOLUTION_HELP} None for a plan of a model."),
]
Threads = Annotated[int, option(METHOD, "Threads of the engine.", metavar="N")]
Seed = Annotated[int, option(METHOD, "Seed of the engine and of searches.", metavar="N")]
As = Annotated[
    str | None,
    option(
        OUTPUT,
        "Tool that --export is for, perhaps with options of it: megatron:ranks=4.",
        "--as",
        metavar="TOOL[:KEY=VALUE,...]",
        autocompletion=completion.tools,
    ),
]
AsJson = Annotated[bool, option(OUTPUT, "Print one JSON document instead of text.", "--json")]
Output = Annotated[
    Path | None,
    option(OUTPUT, "Write the result here as JSON.", "-o", "--output", metavar="FILE"),
]


def exit_code(result: Result[Any]) -> int:
    """Return the exit code of a command that solved something."""
    if result.status is Status.INFEASIBLE:
        return EXIT_INFEASIBLE
    stopped = result.termination is Termination.INTERRUPTED
    return end_code(found=result.solution is not None, interrupted=stopped)


def end_code(*, found: bool, interrupted: bool) -> int:
    """Return the exit code of what ended with something in hand, or nothing, by itself or not."""
    if found:
        return EXIT_STOPPED if interrupted else 0
    return EXIT_INTERRUPTED if interrupted else EXIT_NOTHING
