"""What users and their files rely on, written down: schemas, help, public names.

``python -m tests.snapshots`` writes it anew; the change then shows in the diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

import stagepack as sp
from stagepack.cli import COMMANDS, app, with_options
from stagepack.kinds import KINDS

FOLDER = Path(__file__).parent / "data" / "snapshots"


def snapshots() -> dict[str, str]:
    """Return all of it: names of files, and what is in them."""
    found = {
        f"schema/{kind}.json": json.dumps(_lasting(sp.schema(kind)), indent=1) for kind in KINDS
    }
    found["help/stagepack.txt"] = _help(typer.main.get_command(app))
    found |= {f"help/{name}.txt": _help(with_options(name)) for name in COMMANDS}
    found["names.txt"] = "\n".join(dir(sp))
    return {name: f"{text}\n" for name, text in found.items()}


def _lasting(schema: Any) -> Any:
    """Return a schema without what only some releases of msgspec say of keys."""
    if isinstance(schema, dict):
        return {key: _lasting(part) for key, part in schema.items() if key != "propertyNames"}
    return [_lasting(part) for part in schema] if isinstance(schema, list) else schema


def _help(command: Any) -> str:
    """Return what the help of a command says, apart from how typer lays it out."""
    panels: dict[str | None, list[str]] = {}
    for given in command.params:
        about = f"  {' '.join(_written(given))}: {given.help}"
        if given.required:
            about += " [required]"
        elif given.show_default and given.default is not None and given.default is not False:
            shown = given.default if given.show_default is True else given.show_default
            about += f" [default: {shown}]"
        panels.setdefault(given.rich_help_panel, []).append(about)
    parts = [[command.help]]
    parts += [[f"{panel or 'Arguments and options'}:", *lines] for panel, lines in panels.items()]
    parts.append([command.epilog] if command.epilog else [])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _written(given: Any) -> list[str]:
    """Return how an argument or option is written."""
    if not isinstance(given, TyperOption):
        return [given.metavar]
    return [*given.opts, *given.secondary_opts, *filter(None, [given.metavar])]


def main() -> None:
    """Write everything anew."""
    for name, text in snapshots().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
