"""Digests are names: best-known values and results in people's files go by them."""

from __future__ import annotations

import hashlib

import pytest

from stagepack import catalog
from stagepack.kinds import KINDS

KNOWN = {
    "graph": "e7688a1094fc34ad",
    "groups": "70b4459d6482b448",
    "packing": "fb27363fc2921871",
    "phases": "25809fe4e41b53fc",
    "pipeline": "16ca01a3cf2be532",
    "schedule": "d4aeac238065a602",
}


def test_every_family_is_known() -> None:
    assert set(KNOWN) == {kind.family for kind in KINDS.values()}


@pytest.mark.parametrize(("family", "known"), KNOWN.items(), ids=list(KNOWN))
def test_instances_of_the_catalog_keep_their_digests(family: str, known: str) -> None:
    """One checksum a family; a changed instance, or a new one, is told by a new checksum."""
    names = sorted(entry.name for entry in catalog.entries(family))
    lines = [f"{name} {catalog.load(name).digest}" for name in names]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == known
