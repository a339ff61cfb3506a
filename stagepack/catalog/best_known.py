"""Best known values of fixed instances, with their sources.

If a value is proved optimal, no method may report a better one, and every exact method must reach
it.  Instances are identified by their digests, so a changed instance is a different one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagepack.contracts import Instance, Number


@dataclass(frozen=True)
class BestKnown:
    """The best `value` known of one instance, and whether it is `proved` optimal.

    The name is that of the catalog, with its parameters, or ``FILE`` or ``FILE#name`` of a public
    data set; the `source` says who says so, or how it was proved.
    """

    name: str
    digest: str
    objective: str
    value: Number
    proved: bool
    source: str


def _recorded() -> Iterator[BestKnown]:
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            value, proved = json.loads(row["value"]), row["proved"] == "yes"
            yield BestKnown(**{**row, "value": value, "proved": proved})


BEST_KNOWN = tuple(_recorded())
"""The lines of ``best_known.csv``, beside this file."""


def best_known(instance: Instance) -> BestKnown | None:
    """Return what is known of exactly this instance, or None."""
    digest = instance.digest
    for known in BEST_KNOWN:
        if known.digest == digest:
            return known
    return None
