"""What commands share: arguments, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXIT_NOTHING, EXIT_INPUT, EXIT_INFEASIBLE, EXIT_VIOLATIONS = 1, 2, 3, 4
EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130

INSTANCE_HELP = "A file, FILE#name for one of several in it, or a catalog name (stagepack list)."
Instance = Annotated[str, typer.Argument(metavar="INSTANCE", help=INSTANCE_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write the result here as JSON."),
]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", "-t", metavar="SECONDS", help="Seconds of solving; 0: no limit."),
]
