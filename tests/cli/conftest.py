"""What tests of the command line are run on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import CHAIN


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(CHAIN))
    return path
