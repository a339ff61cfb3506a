"""Look for answers that cannot both be true: ``python -m tests.relations graph --seeds 0 1000``."""

from __future__ import annotations

import argparse
import time

from tests.relations.sweep import KINDS, Sweep, methods


def main() -> None:
    """Print what is wrong, and what was looked at."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 100))
    parser.add_argument("--methods", nargs="*", default=())
    parser.add_argument("--relation", default="", help="only those whose names contain this")
    given = parser.parse_args()
    for kind in given.kinds:
        for method in given.methods or methods(kind):
            began, sweep, count = time.process_time(), Sweep(kind, method), 0
            for trouble in sweep.wrong(range(*given.seeds), given.relation):
                print(f"{kind}: {trouble}", flush=True)
                count += 1
            took = time.process_time() - began
            print(
                f"{kind} {method}: {sweep.answers} answers, {count} wrong, {took:.1f} s", flush=True
            )


main()
