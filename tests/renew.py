"""Writes anew all that is made of the package and kept in files: ``python -m tests.renew``.

That is what type checkers are told of the kinds; schemas, help and public names; the picture of the
house; and the tables of its lines.  Tests compare all but the last with what they are made of.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = ("tests.tell_types", "tests.snapshots", "tests.draw_house", "tests.count_lines")
"""Modules that write, each in a process of its own: it knows what those before it have written."""


def main() -> None:
    """Write everything."""
    for part in PARTS:
        subprocess.run([sys.executable, "-m", part], check=True)


if __name__ == "__main__":
    main()
