"""The compiled filling of devices is warmed up within its arrays."""

from __future__ import annotations

import pytest

from stagepack.heuristics.pipeline import fill_kernels
from stagepack.kernels import compiled


def test_the_kernel_is_loaded_with_room_for_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted, what is beyond an array is an error."""
    monkeypatch.setattr(compiled, "compiled", lambda function: function)
    assert fill_kernels.load_fill.__wrapped__() is fill_kernels.fill
