"""``stagepack results``: shows the contents of a store of results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stagepack import files
from stagepack.cli.options import EXIT_INPUT, EXIT_VIOLATIONS, OUTPUT, AsJson, option
from stagepack.cli.output import Rescue, require_writable
from stagepack.cli.picture import require_pages
from stagepack.cli.terminal.screen import print_json, print_parts
from stagepack.errors import InputError


def results(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="A folder that compare --store has written.")
    ],
    where: Annotated[
        list[str] | None,
        option(
            "Which cells",
            "Only these: method=auto, status=OPTIMAL; repeatable.",
            metavar="COLUMN=VALUE",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        option("Which cells", "An earlier store: what became worse? Then exit 4.", metavar="STORE"),
    ] = None,
    csv: Annotated[Path | None, option(OUTPUT, "Write the cells.", metavar="FILE")] = None,
    parquet: Annotated[
        Path | None, option(OUTPUT, "Write the cells as Parquet.", metavar="FILE")
    ] = None,
    profile: Annotated[
        Path | None, option(OUTPUT, "Draw performance profiles.", metavar="FILE")
    ] = None,
    cactus: Annotated[
        Path | None, option(OUTPUT, "Draw who is done within which time.", metavar="FILE")
    ] = None,
    ratio: Annotated[
        Path | None, option(OUTPUT, "Draw ratios to the best known.", metavar="FILE")
    ] = None,
    gap: Annotated[
        Path | None, option(OUTPUT, "Draw the mean gap to the best over time.", metavar="FILE")
    ] = None,
    integral: Annotated[
        Path | None, option(OUTPUT, "Draw primal integrals.", metavar="FILE")
    ] = None,
    html: Annotated[Path | None, option(OUTPUT, "Write a page of all that.", metavar="DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the results of a store: figures of each method, profiles, and what became worse."""
    from stagepack.compare.results import changes_sheet, read_store, require_parquet
    from stagepack.report.canvas import require_picture

    pictures = {
        "profile": profile, "cactus": cactus, "ratio": ratio, "gap": gap, "integral": integral,
    }  # fmt: skip
    require_writable(csv, parquet, *pictures.values())
    if parquet is not None:
        require_parquet(parquet)
    for picture in filter(None, pictures.values()):
        require_picture(picture)
    if html is not None:
        files.require_directory(html, "index.html")
        require_pages()
    wanted = dict(map(_wanted, where or ()))
    found = read_store(store).where(**wanted)
    changes = [] if against is None else found.against(read_store(against).where(**wanted))
    rescue = Rescue()
    rescue.attempt(found.to_csv, csv)
    rescue.attempt(found.to_parquet, parquet)
    for what, file in pictures.items():
        rescue.attempt(partial(found.plot, what=what), file)
    rescue.attempt(found.to_html, html)
    if as_json or rescue:
        rescue.tell("all of it")
        print_json({**found.to_dict(), "changes": [vars(change) for change in changes]})
    else:
        print_parts([*found.contents(), *([changes_sheet(changes)] if changes else [])])
    worse = any(change.worse for change in changes)
    raise typer.Exit(EXIT_INPUT if rescue else EXIT_VIOLATIONS if worse else 0)


def _wanted(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"{text[:60]!r} is not COLUMN=VALUE", field="--where",
                         remedy="write --where method=auto")  # fmt: skip
    return name, value
