"""How large the house is: lines of each wing and of each problem, as docs/architecture.md has them.

    python -m tests.count_lines     # writes them there

Lines are those of ``stagepack/**/*.py``.  Help is what docstrings take, those under constants
included; code is what is neither that nor empty nor a comment alone on its line.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from stagepack.kinds import KINDS

ROOT = Path(__file__).parent.parent / "stagepack"
PAGE = ROOT.parent / "docs" / "architecture.md"
GROUND = "ground floor"


def counted(path: Path) -> Counter[str]:
    """Return how many files (1), lines, lines of code and of help a file has."""
    text = path.read_text(encoding="utf-8")
    said = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = text.splitlines()
    code = [
        number
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in said
    ]
    return Counter(files=1, lines=len(lines), code=len(code), help=len(said))


def table(head: str, rows: Iterable[tuple[str, Counter[str]]]) -> str:
    """Return a table, the largest first."""
    columns = ("files", "lines", "code", "help")
    lines = [f"| {head} | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for name, found in sorted(rows, key=lambda row: -row[1]["lines"]):
        lines.append(f"| {name} | {' | '.join(f'{found[what]:,}' for what in columns)} |")
    return "\n".join(lines)


def main() -> None:
    """Write both tables into the page."""
    families = {kind.family for kind in KINDS.values()}
    wings: dict[str, Counter[str]] = {}
    problems: dict[str, Counter[str]] = {}
    for path in ROOT.rglob("*.py"):
        found, inside = counted(path), path.relative_to(ROOT).parts[:-1]
        for held, names in (
            (wings, inside[:1] or (GROUND,)),
            (problems, sorted(families & {*inside}) or ("all alike",)),
            (wings, ("together",)),
        ):
            held.setdefault(names[0], Counter()).update(found)
    text = PAGE.read_text()
    for head, rows in (("wing", wings), ("problem", problems)):
        known = rf"\| {head} \| files \|.*?\n(?=\n)"
        text, count = re.subn(known, f"{table(head, rows.items())}\n", text, flags=re.DOTALL)
        assert count == 1, head
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
