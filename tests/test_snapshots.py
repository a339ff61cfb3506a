"""Schemas, help and public names change only on purpose."""

from __future__ import annotations

import pytest

from tests.snapshots import FOLDER, snapshots

NOW = snapshots()


@pytest.mark.parametrize("name", NOW)
def test_nothing_changes_unseen(name: str) -> None:
    path = FOLDER / name
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    assert NOW[name] == known, "if it should change: python -m tests.snapshots"


def test_nothing_is_kept_that_is_no_more() -> None:
    kept = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert kept == set(NOW)
