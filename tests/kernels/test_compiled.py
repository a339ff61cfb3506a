"""How kernels are compiled and loaded: once for all whole numbers, and nothing without need."""

from __future__ import annotations

import gc
import importlib.util
import operator
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
from numba.core import types
from numba.core.registry import cpu_target
from numba.core.runtime.context import NRTContext
from numba.core.types.functions import BaseFunction

from stagepack.kernels import compiled, compiler, dispatchers
from stagepack.kernels.compiled import entries, inlined, inner, record, step, tiered
from stagepack.progress import Compilation, Progress, clock, compilation

njit: Any = numba.njit  # its types leave out some options
nrt: Any = importlib.import_module("numba.core.runtime._nrt_python")
allocations: Any = importlib.import_module("numba.core.runtime").rtsys.get_allocation_stats
lean = pytest.mark.skipif(
    not compiler.options(compiler.Part), reason="this numba compiles in its own way"
)


@pytest.mark.parametrize("way", [inner, step, inlined])
def test_constants_and_widths_of_integers_do_not_compile_anew(way: Callable[..., Any]) -> None:
    @way
    def double(value: int, factor: int = 2) -> int:
        return factor * value

    @numba.njit
    def uses(narrow: Any) -> Any:
        return double(1) + double(2) + double(narrow[0]) + double(3, factor=4) + double(narrow[1])

    assert uses(np.array([5, 2**31 - 1], np.int32)) == 2 + 4 + 10 + 12 + 2 * (2**31 - 1)
    signatures = vars(double)["dispatcher"].nopython_signatures
    assert {signature.args[0] for signature in signatures} == {numba.int64}
    assert len(signatures) <= 2  # with and without the second argument
    assert double(0.5) == 1  # the interpreter runs it as it is


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


def test_blas_is_loaded_for_kernels_that_call_it_only() -> None:
    program = """
import sys
import numba
import numpy as np
import stagepack.kernels.dispatchers

assert numba.njit(lambda row: row.sum())(np.arange(3)) == 3
assert "scipy.linalg" not in sys.modules
assert numba.njit(lambda one, other: one @ other)(np.eye(2), np.ones(2)).sum() == 2
assert "scipy.linalg" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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


@lean
def test_types_of_operations_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    search = BaseFunction.get_call_type

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        asked.append(args)
        return search(function, context, args, kws)

    monkeypatch.setattr(BaseFunction, "get_call_type", get_call_type)
    typing = cpu_target.typing_context
    times = typing.resolve_value_type(operator.mul)
    kinds = types.int8, types.uint16  # of no kernel
    vectors = (types.int8[:],) * 2
    with compiler.quick():
        found = [times.get_call_type(typing, kinds, {}).return_type for _ in range(3)]
        arrays = [times.get_call_type(typing, vectors, {}).return_type for _ in range(2)]
    assert found == [types.int64] * 3
    assert arrays == [types.Array(types.int8, 1, "C")] * 2
    assert asked.count(kinds) == 1
    assert asked.count(vectors) == 2  # what makes arrays depends on how it is compiled
    assert BaseFunction.get_call_type is get_call_type


@lean
def test_a_part_is_machine_code_within_its_kernels_only() -> None:
    def twice(values: Any) -> Any:
        return values + values  # an array is made

    doubled: Any = inner(twice)

    def lowest(values: Any) -> Any:
        return doubled(values).min()

    least: Any = inner(lowest)

    def both(values: Any) -> Any:
        return least(values) + least(values[1:])

    kernel: Any = compiled.compiled(both)

    assert kernel(np.array([1, 3, 4])) == 2 + 6
    (whole,) = kernel.dispatcher.overloads.values()
    for part in (doubled, least):
        for made in part.dispatcher.overloads.values():
            assert made.library not in (None, whole.library)
            assert made.library.get_pointer_to_function(made.fndesc.llvm_func_name) == 0
    assert whole.library.get_pointer_to_function(whole.fndesc.llvm_func_name) > 0


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


def test_what_is_interpreted_at_first_is_compiled_into_others() -> None:
    add: Any = tiered(entries)(_added)

    @compiled.compiled
    def twice(rows: Any) -> Any:
        return add(rows, 1)[0] + add(rows, 1)[0]

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


def _swap_and_add(pair: _Pair, times: int) -> int:
    """Make no arrays, but views and tuples of those given."""
    total = 0
    for _ in range(times):
        pair = _Pair(pair.right, pair.left)
        later = pair.left[1:]
        for one in later:
            total += one
        later[0] += 1
    return total


def _chosen(values: np.ndarray, which: np.ndarray) -> int:
    """Make arrays: entries that others choose, and twice these."""
    total = 0
    for one in values[which] * 2:
        total += one
    return total


ENTRY = np.dtype([("place", np.int64), ("share", np.float64)], align=True)


def _moved(rows: Any, flags: Any, entries: Any, at: Any) -> float:
    """Read and write entries by indices of all sorts: from the end, narrow, unsigned, constant."""
    n = len(at)
    total = 0.0
    for k in range(n):
        i = at[k]
        total += rows[i, -1] + rows[-1, i] * 10 + rows[np.uint64(k), 0] * 100
        rows[i, k % 2] = k + 0.75
        flags[i] = rows[i, 0]
        flags[-1 - k] = not flags[i]
        entries[i].place = k
        entries[-1].share += entries[i].place * 0.5
    return total


@pytest.mark.parametrize("order", ["C", "F", "steps"])
@pytest.mark.parametrize("kind", [np.int64, np.int16, np.float32])
@pytest.mark.parametrize("way", [inner, step, inlined])
def test_entries_of_arrays_are_those_of_numpy(way: Any, kind: Any, order: str) -> None:
    part = way(_moved)

    def whole(rows: Any, flags: Any, entries: Any, at: Any) -> float:
        return float(part(rows, flags, entries, at))

    kernel: Any = njit(**compiler.options(compiler.Whole))(whole)
    results = []
    for run in (_moved, kernel):
        rows = np.arange(25, dtype=kind).reshape(5, 5)
        rows = np.asfortranarray(rows) if order == "F" else rows
        flags, entries = np.zeros(5, np.bool_), np.zeros(5, np.dtype((np.record, ENTRY)))
        at = np.array([1, 4, 0, 2], np.uint8)
        if order == "steps":
            rows, flags = np.repeat(rows, 2, axis=1)[:, ::2], np.zeros(10, np.bool_)[::2]
            entries, at = np.repeat(entries, 3)[::3], at[::-1]
        total = run(rows, flags, entries, at)
        results.append((total, rows.tolist(), flags.tolist(), entries.tolist()))
    assert results[0] == results[1]


class _Deep(NamedTuple):
    rows: Any
    pair: Any
    flag: bool
    share: float


@lean
def test_arrays_and_tuples_are_given_as_they_are_by_ours_alone() -> None:
    """Others' functions call ours, and ours theirs, each in its way."""

    def sums(given: _Deep, times: int, more: Any) -> float:
        pair = given.pair
        return float(
            given.rows[1, 0] * times + pair.left[0] + pair.right[-1] + more[0] * given.flag
        )

    added: Any = inner(sums)

    def foreign(given: Any, more: Any) -> Any:
        return added(given, 2, more) + given.share + np.empty(3, np.int8).size

    others: Any = njit(foreign)

    def whole(given: Any, more: Any) -> float:
        return float(others(given, more) + added(given, 3, more) + np.empty(4, np.int8).size)

    kernel: Any = njit(**compiler.options(compiler.Whole))(whole)
    given = _Deep(np.array([[1, 2], [3, 4]]), _Pair(np.array([5]), np.array([6, 7])), True, 0.5)
    more = np.array([8.0])
    ours = 3 * np.array([1, 1]) * [2, 3] + 5 + 7 + 8
    assert others(given, more) == ours[0] + 0.5 + 3
    assert kernel(given, more) == ours.sum() + 0.5 + 3 + 4
    (made,) = added.dispatcher.overloads.values()
    assert isinstance(made.fndesc.argtypes, compiler.Given)
    (theirs,) = others.overloads.values()
    assert not isinstance(theirs.fndesc.argtypes, compiler.Given)


@lean
def test_bounds_are_checked_where_a_debugger_asks() -> None:
    def entry(row: Any, at: int) -> Any:
        return row[at]

    kernel: Any = njit(boundscheck=True, **compiler.options(compiler.Whole))(entry)
    assert kernel(np.array([1, 2]), -1) == 2
    with pytest.raises(IndexError):
        kernel(np.array([1, 2]), 2)


KERNELS = """
from stagepack.kernels.compiled import compiled, copied, inlined, inner, step, tiered

@inner
def of_inner(row, at):
    return (row + 0)[at]

@step
def of_step(row, at):
    return row[at]

@inlined
def of_inlined(row, at):
    return row[at]

@copied
def of_copied(row, at):
    return row[at]

@compiled
def read(row, way, at):
    if way == 0:
        return of_inner(row, at)
    if way == 1:
        return of_step(row, at)
    if way == 2:
        return of_inlined(row, at)
    if way == 3:
        return of_copied(row, at)
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
    for way in range(6):
        try:
            kernels.read(row, way, at) if way < 5 else kernels.interpreted(row, at)
        except IndexError:
            refused += 1
assert kernels.read(row, 4, -1) == 7
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
    assert told == [["2", "0"], ["12", "0"], ["2", "1"], ["12", "1"]]


@lean
def test_arrays_are_counted_only_where_some_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are given belong to the caller; those that are made are freed."""
    counted: list[object] = []
    count: Any = NRTContext.incref

    def counting(*given: Any) -> None:
        counted.append(given)
        count(*given)

    monkeypatch.setattr(NRTContext, "incref", counting)
    way: dict[str, Any] = {**compiler.options(compiler.Part), "no_cpython_wrapper": True}
    swap = njit(no_cfunc_wrapper=True, **way)(_swap_and_add)
    array = types.int64[::1]
    swap.compile((types.NamedUniTuple(array, 2, _Pair), types.int64))
    assert not counted
    choose = njit(no_cfunc_wrapper=True, **way)(_chosen)
    choose.compile((array, array))
    assert counted


def test_arrays_that_kernels_make_are_freed_and_those_given_are_kept() -> None:
    way = compiler.options(compiler.Whole)
    swap, choose = njit(**way)(_swap_and_add), njit(**way)(_chosen)
    given, twin = (_Pair(np.arange(4), np.arange(10, 14)) for _ in range(2))
    assert swap(given, 5) == _swap_and_add(twin, 5)
    assert [one.tolist() for one in given] == [one.tolist() for one in twin]
    assert sys.getrefcount(given.left) == sys.getrefcount(twin.left)
    which = np.array([3, 1])
    nrt.memsys_enable_stats()
    try:
        before = allocations()
        assert choose(given.left, which) == _chosen(given.left, which)
        after = allocations()
    finally:
        nrt.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0


def _shifted(values: np.ndarray, _: int) -> Any:
    """Write entries over those that they are read from."""
    values[1:] = values[:-1]
    return values[-1]


def _shifted_by(values: np.ndarray, places: int) -> Any:
    values[places:] = values[:-places]
    return values[-1]


def _without_fractions(values: np.ndarray, at: int) -> Any:
    return values.imag[at] + values.real[at]


def _refused(values: np.ndarray, most: int) -> Any:
    if values[0] > most:
        raise ValueError(values[0])
    return values[0]


@pytest.mark.parametrize("kernel", [_shifted, _shifted_by, _without_fractions, _refused])
def test_kernels_that_need_memory_in_passing_are_compiled(
    kernel: Callable[[np.ndarray, int], Any],
) -> None:
    fast = njit(**compiler.options(compiler.Whole))(kernel)
    given, twin = np.arange(3, 11), np.arange(3, 11)
    nrt.memsys_enable_stats()
    try:
        before = allocations()
        assert fast(given, 5) == kernel(twin, 5)
        after = allocations()
    finally:
        nrt.memsys_disable_stats()
    assert given.tolist() == twin.tolist()
    assert after.alloc - before.alloc == after.free - before.free


@pytest.mark.parametrize(
    ("version", "ways"),
    [("0.61.0", 1), ("0.68.1", 1), ("0.69.0", 0), ("1.0.0", 0), ("0+unknown", 0)],
)
def test_a_numba_that_was_not_tried_compiles_in_its_own_way(
    version: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba, "__version__", version)
    assert len(compiler.options(compiler.Part)) == ways
    search = BaseFunction.get_call_type
    with compiler.quick():
        assert (BaseFunction.get_call_type is search) == (not ways)
    assert BaseFunction.get_call_type is search


@pytest.mark.parametrize("name", ["kernels.py", "compiler.py"])
def test_code_of_other_kernels_or_another_compiler_is_not_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "stagepack" / "instances"
    home.mkdir(parents=True)
    for file in (*dispatchers.COMPILERS, "kernels.py"):
        (home / file).write_text("")
    monkeypatch.setattr(dispatchers, "__file__", str(home / "dispatchers.py"))
    before = dispatchers.sources.__wrapped__()
    (home / name).write_text("OTHER = 1\n")
    assert dispatchers.sources.__wrapped__() != before
