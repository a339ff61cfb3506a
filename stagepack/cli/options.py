"""What commands share: arguments, groups of options, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stagepack.cli import completion

EXIT_NOTHING, EXIT_INPUT, EXIT_INFEASIBLE, EXIT_VIOLATIONS = 1, 2, 3, 4
EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130

# Groups of options in the help.
METHOD = "How to solve"
LIMITS = "When to stop"
CLAIMS = "How far to go"
OUTPUT = "Output"
INSTANCE = "What the file does not say, or should say otherwise"
MACHINE = "The machine and its work"
FREEDOM = "What the solution may do"

INSTANCE_HELP = "A file, FILE#name for one of several in it, or a catalog name (stagepack list)."
Instance = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE",
        help=INSTANCE_HELP,
        autocompletion=completion.instances,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON document instead of text.",
        metavar="",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the result here as JSON.",
        rich_help_panel=OUTPUT,
    ),
]
