"""What needs a package that is not installed says so."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.integrations.executorch import plan


def test_packages_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> object:
        return None if name in ("torch", "executorch") else known(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(
        InputError, match=r"torch: this needs PyTorch; pip install 'stagepack\[torch\]'"
    ):
        sp.profile_model(object(), ())
    graph: Any = None
    with pytest.raises(
        InputError,
        match=r"this needs ExecuTorch; pip install 'stagepack\[executorch\]'",
    ):
        plan(16, [], graph, graph)
