"""Who imports whom in the package: read for the walls of the house, and for the picture of it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "stagepack"


def wing(module: str) -> str:
    """Return the wing of a module: the folder or file right below the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def modules() -> dict[str, Path]:
    """Return the file of every module."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("stagepack", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(name: str) -> frozenset[str]:
    """Return our modules that a module imports, wherever in it and be it for types alone.

    Those that it loads by a name that is written there count, too.
    """
    ours: set[str] = set()
    known = modules()
    for node in ast.walk(ast.parse(known[name].read_text())):
        if isinstance(node, ast.Import):
            ours.update(a.name for a in node.names if a.name.split(".")[0] == "stagepack")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} uses a relative import"
            if node.module and node.module.split(".")[0] == "stagepack":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    ours.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            told = node.args[0]
            if isinstance(told, ast.Constant) and told.value in known:
                ours.add(told.value)
    return frozenset(ours - {name})


def wings() -> dict[str, set[str]]:
    """Return the other wings that each wing imports."""
    found: dict[str, set[str]] = {}
    for name in modules():
        others = {wing(other) for other in imports(name)} - {wing(name)}
        found.setdefault(wing(name), set()).update(others)
    return found
