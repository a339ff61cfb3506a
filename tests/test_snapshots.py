"""Schemas, help and public names change only on purpose."""

from __future__ import annotations

import json

import pytest

from tests.snapshots import FOLDER, snapshots

NOW = snapshots()


@pytest.mark.parametrize("name", NOW)
def test_nothing_changes_unseen(name: str) -> None:
    path = FOLDER / name
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    assert said(name, NOW[name]) == said(name, known), (
        "if it should change: python -m tests.snapshots"
    )


def said(name: str, text: str) -> str:
    """Return a snapshot as it is; schemas without the order of what a value may be.

    Releases of msgspec list that in orders of their own.
    """
    if not text or not name.endswith(".json"):
        return text
    found = json.loads(
        text,
        object_hook=lambda one: (
            {**one, "anyOf": sorted(map(repr, one["anyOf"]))} if "anyOf" in one else one
        ),
    )
    return json.dumps(found, indent=1)


def test_nothing_is_kept_that_is_no_more() -> None:
    kept = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert kept == set(NOW)
