"""Run tests and a short soak with kernels that check their bounds, in a cache of their own.

    python -m tests.checked [--all] [--seconds 60] [options of pytest]

Without `--all`, the tests that run kernels most and take least.  What is interpreted is checked by
NumPy.  An index from -n to -1 counts from the end of n entries in either: that is within memory,
and no error here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

WHOLE = ("tests/instances", "tests/heuristics", "tests/methods", "tests/formulations")
LANE: tuple[str, ...] = ()
"""See `CONTRIBUTING.md`: below four minutes on two cores, most of which is compiling."""


def main() -> int:
    """Run pytest, and then the soak; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all tests: 20 minutes of CPU")
    parser.add_argument("--seconds", type=float, default=60, help="CPU time of the soak")
    given, others = parser.parse_known_args()
    tests = ["pytest", *others, *(WHOLE if given.all else LANE)]
    soak = ["benchmarks.soak_structured", "--seconds", str(given.seconds)]
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    for command in (tests, soak):
        code = subprocess.run([sys.executable, "-m", *command], env=environment).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
