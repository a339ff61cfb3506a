"""Run tests and a short soak with kernels that check their bounds, in a cache of their own.

    python -m tests.checked [--all] [--seconds 60] [options of pytest]

Without `--all`, the tests in which kernels run.  What is interpreted is checked by NumPy.  An index
from -n to -1 counts from the end of n entries in either: within memory, and no error here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

WHOLE = ("tests/instances", "tests/heuristics", "tests/methods", "tests/formulations")
KINDS = ("graph", "groups", "packing", "phases", "pipeline", "schedule")
LANE = (
    "tests/heuristics",
    "tests/kernels/test_compiled.py",
    *(f"tests/instances/{kind}" for kind in KINDS),
)
"""Those of the kernels themselves; methods and models run the same ones."""


def main() -> int:
    """Run pytest, and then the soak; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all tests of these wings")
    parser.add_argument("--seconds", type=float, default=60, help="CPU time of the soak")
    given, others = parser.parse_known_args()
    tests = ["pytest", *others, *(WHOLE if given.all else LANE)]
    soak = ["benchmarks.soak_structured", "--limit", "0.05", "--seconds", str(given.seconds)]
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    for command in (tests, soak):
        code = subprocess.run([sys.executable, "-m", *command], env=environment).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
