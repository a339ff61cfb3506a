"""Where memory is limited, nothing waits for a thread that has no room to begin."""

from __future__ import annotations

import mmap
import threading

import pytest

import stagepack as sp
from stagepack import memory
from tests.imports import ROOT


def refuse(*_: object) -> None:
    raise OSError(12, "Cannot allocate memory")


def begin(thread: threading.Thread) -> None:
    pytest.fail(f"{thread.name} would never begin")


@pytest.mark.parametrize("method", ["cp-sat", "milp"])
def test_an_engine_without_room_for_its_thread(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = sp.read(ROOT / "examples/buffers.json")
    monkeypatch.setattr(memory, "is_scarce", lambda: True)
    monkeypatch.setattr(mmap, "mmap", refuse)
    monkeypatch.setattr(threading.Thread, "start", begin)
    with pytest.raises(MemoryError):
        sp.solve(instance, method)
