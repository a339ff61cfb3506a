"""Shared settings: one fixed Hypothesis profile, and where the public data lie."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")

# What a shell starts in the background ignores Ctrl-C, and so would all that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public benchmark instances; tests skip where it is absent."""
    root = Path(__file__).parent.parent
    folder = Path(os.environ.get("STAGEPACK_DATA", root / ".." / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no public instances at {folder}: set STAGEPACK_DATA")
    return folder


@pytest.fixture(autouse=True)
def _figures_closed() -> Iterator[None]:
    """Let go of the figures of a test, which pyplot would keep."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_collection_finish() -> None:
    """Look for garbage less often, and not among the modules and tests that stay to the end.

    Every worker knows thousands of tests: going through them all again and again takes a tenth of
    its time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give the tests of a file to one worker: two would compile the same kernels side by side."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)
