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


QUICK = (
    "claims/test_every.py", "cli/test_help.py",
    "formats/test_foreign.py", "formats/test_layer_table.py", "formats/test_native.py",
    "formulations/groups/test_cp_sat.py", "formulations/packing/test_against_enumeration.py",
    "heuristics/graph/test_everything.py", "heuristics/groups/test_dp.py",
    "heuristics/pipeline/test_bisect.py", "heuristics/schedule/test_timing.py",
    "instances/graph/test_compact.py", "instances/packing/test_check.py",
    "instances/pipeline/test_ranges.py", "instances/schedule/test_timing.py", "test_docs.py",
    "test_files.py", "test_house.py", "test_kinds.py", "test_names.py", "test_readme.py",
    "test_result.py", "test_shown.py", "test_snapshots.py", "verify/test_rules.py",
)  # fmt: skip
"""Files of the quick lane, ``-m quick``: the house, its words, and of every wing what is small."""


def _is_quick(path: Path) -> bool:
    return path.relative_to(Path(__file__).parent).as_posix() in QUICK


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Load none of the other files where the quick ones are asked for."""
    asked = config.getoption("markexpr") == "quick" and collection_path.suffix == ".py"
    return True if asked and not _is_quick(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the quick lane."""
    if _is_quick(item.path):
        item.add_marker(pytest.mark.quick)


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
