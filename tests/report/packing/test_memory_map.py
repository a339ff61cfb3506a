from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.plots import plot
from stagepack.report.packing.numbers import (
    load,
    memory_map_of,
    moments,
    rectangles,
    thinned,
    wasted,
)
from tests.report.packing.samples import banked, gapped, plain, result, spilling, stacked


@pytest.fixture(autouse=True)
def _paper() -> Iterator[None]:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def rows(instance: LmemPacking) -> list[tuple[int, ...]]:
    columns = vars(rectangles(instance)).values()
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_gaps_are_left_out_and_windows_kept() -> None:
    assert rows(gapped()) == [
        (0, 0, 2, 0, 100),
        (0, 4, 6, 0, 100),
        (0, 6, 8, 20, 50),
        (0, 8, 10, 0, 100),
        (1, 2, 8, 0, 60),
    ]


def test_circular_lifetimes_are_two_rectangles() -> None:
    assert rows(banked()) == [
        (0, 0, 2, 0, 1024),
        (1, 1, 3, 0, 512),
        (2, 0, 1, 0, 2048),
        (2, 2, 4, 0, 2048),
        (3, 0, 2, 0, 256),
        (3, 3, 4, 0, 256),
    ]


def test_a_conflict_graph_lies_over_cliques() -> None:
    instance = LmemPacking.from_arrays([3, 2, 4], conflicts=[(0, 1), (1, 2)])
    found = rectangles(instance)
    both = {frozenset(found.buffer[(found.start <= k) & (k < found.end)].tolist()) for k in (0, 1)}
    assert both == {frozenset({0, 1}), frozenset({1, 2})}
    assert len(found) == 3  # the middle one spans both cliques


def test_load_is_what_the_rectangles_hold() -> None:
    for instance in (plain(), gapped(), banked()):
        given = rectangles(instance)
        times, in_use = load(instance, given, None)
        for at, time in enumerate(times.tolist()):
            alive = given[(given.start <= time) & (time < given.end)]
            assert in_use[at] == (alive.high - alive.low).sum()


def test_shared_bytes_count_once() -> None:
    instance = LmemPacking.from_arrays([8, 6, 5], [0, 2, 3], [4, 6, 7], colocated=[(0, 1)])
    times, in_use = load(instance, rectangles(instance), None)
    assert dict(zip(times.tolist(), in_use.tolist(), strict=True)) == {
        0: 8, 2: 8, 3: 13, 4: 11, 6: 5, 7: 0,
    }  # fmt: skip
    instance = LmemPacking.from_arrays([8, 6], [0, 2], [4, 6], in_place=[(0, 1)])
    for offsets, most in (([0, 0], 8), ([0, 8], 14)):
        _, in_use = load(instance, rectangles(instance), np.array(offsets))
        assert in_use.max() == most


def test_sections_are_maximal_sets_alive_together() -> None:
    given = rectangles(LmemPacking.from_arrays([1] * 4, [0, 1, 5, 2], [3, 9, 7, 4]))
    assert moments(given).tolist() == [2, 5]


def test_wasted_is_peak_less_the_load_then() -> None:
    instance = LmemPacking.from_arrays([4, 4, 4], [0, 2, 0], [4, 6, 9])
    assert wasted(instance, PackingSolution.of(instance, [0, 8, 4])) == 0
    assert wasted(instance, PackingSolution.of(instance, [0, 10, 4])) == 2
    assert wasted(instance, PackingSolution.of(instance, [4, 20, 0])) == 12


def test_sparse_times_are_compressed() -> None:
    start = np.arange(50) ** 4 * 10**6
    instance = LmemPacking.from_arrays([512] * 50, start, start + 10)
    solution = PackingSolution.of(instance, np.zeros(50))
    drawn = memory_map_of(instance, solution)
    assert drawn.scale == "sections"
    assert drawn.span == (0, 50)
    assert (drawn.right - drawn.left).tolist() == [1] * 50
    assert memory_map_of(instance, solution, "time").scale == "time"
    assert memory_map_of(plain(), stacked(plain())).scale == "time"
    with pytest.raises(InputError, match="scale"):
        memory_map_of(instance, solution, "cycles")


def test_memories_stand_above_one_another() -> None:
    instance = spilling()
    drawn = memory_map_of(instance, PackingSolution.of(instance, [0, 4096, 0], [0, 0, 1]))
    assert drawn.bases == ((0, "sram", 12288), (12288, "dram", None))
    assert drawn.low.tolist() == [0, 4096, 12288]
    assert drawn.bound is None


def test_thinned_keeps_the_extremes() -> None:
    places, values = np.arange(10001.0), np.random.default_rng(0).integers(0, 1000, 10001)
    x, y = thinned(places, values, 500)
    assert len(x) == len(y) <= 502
    assert (x[0], x[-1]) == (0, 10000)
    assert (np.diff(x) > 0).all()
    assert (y.max(), y.min()) == (values.max(), values.min())


def shown(ax: Any, path: Path) -> None:
    import matplotlib.image

    ax.figure.savefig(path / "plot.png")
    picture = matplotlib.image.imread(path / "plot.png")
    assert 0.02 < (picture[..., :3].min(axis=2) < 0.98).mean() < 0.95


@pytest.mark.parametrize("make", [plain, gapped, banked, lambda: plain(3000), spilling])
def test_memory_map(make: Any, tmp_path: Path) -> None:
    instance = make()
    solution = stacked(instance)
    if instance.memories:
        solution = PackingSolution.of(instance, solution.offsets, [0, 1, 1])
    ax = plot(instance, result(instance, solution), title="t")
    shown(ax, tmp_path)
    assert ax.get_title(loc="left") == f"t — {instance.n:,} buffers"
    assert ax.get_ylabel().startswith("Address (")
    assert len(ax.collections[0].get_paths()) == len(rectangles(instance))
    labels = [line.get_label() for line in ax.lines]
    if not instance.memories:
        assert f"peak {int(instance.size.sum()):,}" in labels
        assert any(label.startswith("load bound") for label in labels)
    if instance is not None and instance.capacity:
        assert f"capacity {instance.capacity:,}" in labels


def test_marks_fixed_and_clashing_buffers() -> None:
    instance = banked()
    drawn = memory_map_of(instance, PackingSolution.of(instance, [0, 1024, 2048, 4096]))
    assert drawn.clashing.tolist() == [True, True, False, False]
    assert memory_map_of(gapped(), stacked(gapped())).fixed.tolist() == [False, True]


@pytest.mark.parametrize("end", ["png", "svg", "pdf", "html"])
def test_writes_files(end: str, tmp_path: Path) -> None:
    instance = plain()
    plot(instance, stacked(instance), tmp_path / f"map.{end}")
    assert (tmp_path / f"map.{end}").stat().st_size > 5000


def test_refuses_what_it_cannot_draw(tmp_path: Path) -> None:
    instance = plain()
    with pytest.raises(InputError, match=r"\.svg"):
        plot(instance, stacked(instance), tmp_path / "map.txt")
    run = result(instance, stacked(instance))
    run.solution = None
    with pytest.raises(InputError, match="no solution"):
        plot(instance, run)


def test_draws_on_given_axes() -> None:
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert plot(plain(), stacked(plain()), ax=ax) is ax
    assert len(plt.get_fignums()) == 1
