"""How kernels are compiled and loaded: once for all whole numbers, and nothing without need."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from stagepack.kernels import cache, compiled, dispatchers
from stagepack.kernels.compiled import entries, inlined, inner, record, step, tiered
from stagepack.progress import Compilation, Progress, clock, compilation

njit: Any = numba.njit  # its types leave out some options
nrt: Any = importlib.import_module("numba.core.runtime._nrt_python")
allocations: Any = importlib.import_module("numba.core.runtime").rtsys.get_allocation_stats


@pytest.mark.parametrize("way", [inner, step, inlined])
def test_constants_do_not_compile_anew(
    way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    @way
    def double(value: int, factor: int) -> int:
        return factor * value

    @numba.njit
    def uses(narrow: Any) -> Any:
        return double(1, 2) + double(2, 3) + double(narrow[0], 4) + double(narrow[1], 4)

    begun: list[bool] = []
    compile_one = compilation.begin

    def begin() -> None:
        begun.append(True)
        compile_one()

    monkeypatch.setattr(compilation, "begin", begin)
    assert uses(np.array([5, 2**31 - 1], np.int32)) == 2 + 6 + 20 + 4 * (2**31 - 1)
    assert len(begun) == 1 + 2  # itself; of whole numbers of the usual width, and of narrow ones
    assert double(0.5, 2) == 1  # the interpreter runs it as it is


def test_unsigned_integers_truth_and_floats_stay_what_they_are() -> None:
    @inner
    def same(value: Any) -> Any:
        return value

    @numba.njit
    def uses() -> Any:
        return same(True), same(0.5), same(np.uint64(2**63))

    assert uses() == (True, 0.5, 2**63)


def test_what_a_part_of_a_kernel_raises_reaches_who_calls() -> None:
    @inner
    def root(value: float) -> float:
        if value < 0:
            raise ValueError("below zero")
        return float(value**0.5)

    @inner
    def sums(values: Any) -> float:
        total = 0.0
        for value in values:
            total += root(value)
        return total

    @numba.njit
    def uses(values: Any) -> float:
        return sums(values)

    assert uses(np.array([4.0, 9.0])) == 5
    with pytest.raises(ValueError, match="below zero"):
        uses(np.array([4.0, -9.0]))


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_looked_for_while_compiling(
    collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(compilation, "heard", lambda _: seen.append(gc.isenabled()))
    gc.enable() if collects else gc.disable()
    try:
        assert numba.njit(lambda value: value + 1)(1) == 2
        assert gc.isenabled() == collects
    finally:
        gc.enable()
    assert seen == [False, False]


@pytest.mark.skipif(sys.platform == "win32", reason="there, processes compile side by side")
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_kernel_that_another_process_compiles_is_waited_for(
    comes_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(dispatchers, "PATIENCE", 60.0 if comes_back else 0.0)
    path = tmp_path / "some_kernels.py"
    path.write_text(
        "from stagepack.kernels.compiled import compiled\n"
        "@compiled\ndef twice(a):\n    return a + a\n"
    )
    spec = importlib.util.spec_from_file_location("some_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.twice(1) == 2

    (lock,) = tmp_path.rglob("*.lock")
    waits = threading.Event()
    monkeypatch.setattr(compilation, "heard", lambda _: waits.set())
    found: list[float] = []
    with lock.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        asks = threading.Thread(target=lambda: found.append(module.twice(0.5)))
        asks.start()
        assert waits.wait(60)
        if comes_back:
            assert not found
        else:
            asks.join(60)
            assert found == [1.0]
    asks.join(60)
    assert found == [1.0]


def test_loading_and_keeping_machine_code_is_no_time_of_solving() -> None:
    """Whatever is compiled, a kernel of ours or not, and wherever, by numba's own events."""
    progress: Progress[int] = Progress(lambda _: 0, lambda _: (), time_limit=9)
    began, known, now = time.perf_counter(), compilation.seconds, clock()
    assert numba.njit(lambda value: 3 * value)(2) == 6
    passed, compiled = time.perf_counter() - began, compilation.seconds - known
    assert 0 < compiled <= passed
    assert 0 <= clock() - now <= passed - compiled + 0.1
    assert progress.setup_time >= compiled
    assert progress.elapsed <= passed - compiled + 0.1


def test_the_clock_stands_still_while_something_is_compiled() -> None:
    """Within one another, too, and as seen by other threads, which look meanwhile."""
    watch = Compilation()
    watch.pause()
    watch.begin()
    assert watch.seconds > 0
    watch.end()
    first = watch.seconds
    assert watch.seconds > first
    watch.resume()
    last = watch.seconds
    assert last == watch.seconds > first


def test_kernels_run_uncompiled_for_a_debugger() -> None:
    program = """
import stagepack as sp

chain = sp.PipelinePartition.from_arrays([3, 5, 2, 4, 1], devices=3)
assert sp.solve(chain, "dp", warm_start=None).objective == 7
buffers = sp.LmemPacking.from_arrays(
    [4, 6, 5, 4, 2, 7, 7, 8], [0, 0, 0, 1, 1, 2, 3, 4], [2, 1, 3, 2, 4, 5, 4, 5]
)
assert sp.solve(buffers, "exact", warm_start=None).objective == 17
around = buffers.replace(end=[2, 1, 3, 2, 4, 5, 4, 6], period=5, in_place=[(0, 5)])
assert sp.solve(around, "exact").status == "OPTIMAL"
"""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


class _Pair(NamedTuple):
    """Two arrays."""

    left: np.ndarray
    right: np.ndarray


def _added(rows: _Pair, times: int) -> tuple[int, bool]:
    """Write to an array, and return numbers of NumPy's."""
    for at in range(times):
        rows.left[at % 3] += rows.right[at % 3]
    return rows.left[0], rows.left[1] > 2


def _rows() -> _Pair:
    return _Pair(np.arange(3), np.array([1, 2, 2**63 - 1]))


def test_a_kernel_is_interpreted_until_its_calls_are_long_or_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add: Any = tiered(lambda rows, times: times)(_added)
    for times in (0, 5):
        rows, twin = _rows(), _rows()
        found = add(rows, times)
        with np.errstate(over="ignore"):  # as machine code, it lets integers wrap around
            assert found == _added(twin, times)
        assert tuple(map(type, found)) == (int, bool)
        assert rows.left.tolist() == twin.left.tolist()
    assert not add.dispatcher.overloads
    rows, twin = _rows(), _rows()
    many = compiled.FEW + 1
    found = add(rows, many)
    assert len(add.dispatcher.overloads) == 1
    with np.errstate(over="ignore"):
        assert found == _added(twin, many)
    assert tuple(map(type, found)) == (int, bool)
    assert rows.left.tolist() == twin.left.tolist()

    monkeypatch.setattr(compiled, "WARM_UP", 0.0)
    hot: Any = tiered(lambda rows, times: times)(_added)
    assert hot(_rows(), 0) == (0, False)
    assert len(hot.dispatcher.overloads) == 1


ADD: Any = tiered(entries)(_added)


def test_what_is_interpreted_at_first_is_compiled_into_others() -> None:
    @compiled.compiled
    def twice(rows: Any) -> Any:
        return ADD(rows, 1)[0] + ADD(rows, 1)[0]

    assert twice(_rows()) == 1 + 2


def test_entries_of_all_arrays_are_counted() -> None:
    assert entries(_rows(), 7, np.zeros((2, 3)), (np.zeros(4), 2.5)) == 3 + 3 + 1 + 6 + 4 + 1


def test_fields_of_entries_are_read_and_written_by_name_compiled_or_not() -> None:
    def moved(rows: Any) -> int:
        row = rows[1]
        row.size = row.size + rows[0].names
        return int(row.size)

    kind = record([("size", np.int64), ("names", np.int32)])
    for run in (moved, njit(moved)):
        rows = np.zeros(2, kind)
        rows["size"], rows["names"] = (3, 4), 5
        assert run(rows) == 9
        assert rows["size"].tolist() == [3, 9]


KERNELS = """
from stagepack.kernels.compiled import compiled, inlined, inner, step, tiered

@inner
def of_inner(row, at):
    return (row + 0)[at]

@step
def of_step(row, at):
    return row[at]

@inlined
def of_inlined(row, at):
    return row[at]

@compiled
def read(row, way, at):
    if way == 0:
        return of_inner(row, at)
    if way == 1:
        return of_step(row, at)
    if way == 2:
        return of_inlined(row, at)
    return row[at]

@tiered(lambda row, at: 0)
def interpreted(row, at):
    return row[at]
"""
READING = """
import numpy as np
import some_kernels as kernels

row, refused = np.arange(12)[4:8], 0
for at in (-5, 4):
    for way in range(5):
        try:
            kernels.read(row, way, at) if way < 4 else kernels.interpreted(row, at)
        except IndexError:
            refused += 1
assert kernels.read(row, 3, -1) == 7
assert not kernels.interpreted.dispatcher.overloads
print(refused, sum(kernels.read.dispatcher.stats.cache_hits.values()))
"""


def test_bounds_are_checked_in_a_cache_of_its_own(tmp_path: Path) -> None:
    """What numba keeps for one way is not taken for the other, nor written over."""
    (tmp_path / "some_kernels.py").write_text(KERNELS)
    root = str(Path(__file__).parents[2])
    told = []
    for checks in ("0", "1", "0", "1"):
        paths = {"PYTHONPATH": os.pathsep.join((root, str(tmp_path)))}
        own = {"NUMBA_BOUNDSCHECK": checks, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, "-c", READING],
            capture_output=True,
            text=True,
            env={**os.environ, **paths, **own},
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.split())
    assert told == [["2", "0"], ["10", "0"], ["2", "1"], ["10", "1"]]


@pytest.mark.parametrize("left", [0, 40])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_what_is_cut_off_in_the_cache_is_made_anew(tmp_path: Path, kind: str, left: int) -> None:
    """As a full disk leaves it: a run ended with 130 and no word, or with an internal error."""
    (tmp_path / "some_kernels.py").write_text(KERNELS)
    root, cache = str(Path(__file__).parents[2]), tmp_path / "cache"
    own = {"PYTHONPATH": os.pathsep.join((root, str(tmp_path))), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", READING]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **own})
        assert done.returncode == 0, done.stderr
        kept = [*cache.rglob(f"*.{kind}")]
        assert kept
        for path in kept:
            path.write_bytes(path.read_bytes()[:left])


def test_arrays_that_kernels_make_are_freed_and_those_given_are_kept() -> None:
    @inner
    def twice(values: Any) -> Any:
        return values + values

    @compiled.compiled
    def lowest(pair: _Pair, which: np.ndarray) -> int:
        return int(twice(pair.left)[which].min() + pair.right[0])

    given, which = _Pair(np.arange(4), np.arange(10, 14)), np.array([3, 1])
    assert lowest(given, which) == 2 + 10
    held = sys.getrefcount(given.left)
    nrt.memsys_enable_stats()
    try:
        before = allocations()
        assert lowest(given, which) == 2 + 10
        after = allocations()
    finally:
        nrt.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0
    now = sys.getrefcount(given.left)
    assert now == held


def test_nothing_of_numba_is_replaced_nor_set_for_others() -> None:
    """A user's own kernels are compiled, and kept, as if there were none of ours."""
    program = """
import numba
from numba.core.datamodel import ArgPacker

own = numba.config.CACHE_DIR
import numpy as np
from stagepack.heuristics.random_kernels import *
from stagepack.kernels.compiled import compiled
from stagepack.instances.graph.components_kernels import strong_components

strong_components(np.array([0, 1, 2]), np.array([1, 0]))
assert numba.config.CACHE_DIR == own
assert numba.core.datamodel.ArgPacker is ArgPacker
assert numba.njit(lambda one, other: one @ other)(np.eye(2), np.ones(2)).sum() == 2
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["kernels.py", "compiled.py"])
def test_code_of_other_kernels_or_compiled_otherwise_is_not_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "stagepack" / "kernels"
    home.mkdir(parents=True)
    for file in (*cache.COMPILERS, "kernels.py"):
        (home / file).write_text("")
    monkeypatch.setattr(cache, "__file__", str(home / "cache.py"))
    monkeypatch.setattr(cache, "sources", cache.sources.__wrapped__)
    find: Any = cache.folder_of.__wrapped__
    before = find("", False)
    assert before == find("", False)
    assert before.is_relative_to(home.parent)
    (home / name).write_text("OTHER = 1\n")
    after = find("", False)
    assert after != before
    assert after.is_dir()
    assert not before.exists()
    assert find(str(tmp_path / "own"), False).is_relative_to(tmp_path / "own")


def test_kernels_are_kept_for_a_user_where_the_package_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "stagepack" / "kernels"
    home.mkdir(parents=True)
    for file in cache.COMPILERS:
        (home / file).write_text("")
    (home.parent / "__pycache__").write_text("no folder")
    monkeypatch.setattr(cache, "__file__", str(home / "cache.py"))
    monkeypatch.setattr(cache, "_user_cache", lambda: tmp_path / "user")
    find: Any = cache.folder_of.__wrapped__
    assert find("", False).is_relative_to(tmp_path / "user")
    (tmp_path / "user").rename(tmp_path / "moved")
    (tmp_path / "user").write_text("no folder either")
    assert find("", False) is None
