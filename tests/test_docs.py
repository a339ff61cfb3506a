"""The documents speak of what is there: files, commands, the picture of the house."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagepack.kinds import KINDS
from tests.draw_house import PICTURE, drawing
from tests.imports import PACKAGE, ROOT

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
ROOMS = (ROOT, PACKAGE, PACKAGE / "instances", PACKAGE / "instances" / "formats")
EXAMPLES = ("toy", "<family>")  # folders that a reader is to make


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"`([\w./*-]+(?:\.(?:py|csv|md|json)|/))`", text))
    for name in sorted(named):
        if any(example in name for example in EXAMPLES):
            continue
        known = [*ROOMS, *(PACKAGE / "instances" / kind.family for kind in KINDS.values())]
        assert any(any(room.glob(name.rstrip("/"))) for room in known), name
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / link).exists(), link


def test_the_picture_shows_the_imports() -> None:
    assert PICTURE.read_text() == drawing(), "run python -m tests.draw_house"
