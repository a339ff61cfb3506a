from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepack.errors import InputError, StagepackError
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.estimate import estimate
from stagepack.plots import device_bars, memory_bars, plot, trace
from stagepack.report.format import byte_unit
from stagepack.report.pipeline.numbers import cycle_stacks, map_rows, memory_stacks
from stagepack.report.search import curves
from stagepack.report.style import area_colour
from tests.compare.sample import cut, network, result


@pytest.fixture(autouse=True)
def _paper() -> Iterator[None]:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def runs(instance: PipelinePartition) -> dict[str, Any]:
    return {name: result(instance, name, shift, 1e6, 0.5) for name, shift in (("a", 0), ("b", 1))}


def drawn(ax: Any, path: Path) -> Any:
    """Draw; return the picture, shape (height, width, 4)."""
    import matplotlib.image

    ax.figure.savefig(path / "plot.png")
    picture = matplotlib.image.imread(path / "plot.png")
    assert 0.02 < (picture[..., :3].min(axis=2) < 0.98).mean() < 0.9  # neither empty nor full
    return picture


@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 4), (1000, 16)])
@pytest.mark.parametrize("scale", ["cycles", "layers"])
def test_stage_map(n: int, k: int, scale: str, tmp_path: Path) -> None:
    instance = network(n, k, name="net")
    ax = plot(instance, runs(instance), scale=scale)
    drawn(ax, tmp_path)
    assert len(ax.patches) == 2 * k
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_xlabel().lower().startswith(scale[:5])
    assert ax.get_ylabel() == "Method"
    assert "net" in ax.get_title(loc="left")
    end = instance.cycles.sum() if scale == "cycles" else n
    assert ax.get_xlim() == (0, end)


def test_labels_do_not_overlap(tmp_path: Path) -> None:
    instance = network(300, 24, name="net")
    ax = plot(instance, runs(instance))
    ax.figure.savefig(tmp_path / "plot.png")
    inside = [t for t in ax.texts if t.get_ha() == "center"]
    boxes = [t.get_window_extent() for t in inside]
    assert len(boxes) > 20
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_stage_map_of_a_table_counts_layers() -> None:
    import numpy as np

    instance = PipelinePartition.from_arrays(
        None, compute_table=np.ones((5, 5), dtype=np.int64), devices=2
    )
    ax = plot(instance, cut(instance, 0))
    assert ax.get_xlabel() == "Layer"
    assert len(ax.patches) == 2


def test_bytes_of_one_sort_have_one_colour_whatever_else_there_is() -> None:
    exclusive = {"weights": [1, 1], "state": [1, 1]}
    plans = []
    for shared in ({"code": (1, [0, 1])}, {}):
        instance = PipelinePartition.from_arrays(
            [1, 1], devices=2, exclusive=exclusive, shared=shared, temporary=[1, 1]
        )
        stacks = memory_stacks(estimate(instance, cut(instance, 0)))
        plans.append({stack.name: stack.colour for stack in stacks})
    assert len(plans[0]) == len(set(plans[0].values())) == len(plans[1]) + 1
    assert plans[1].items() <= plans[0].items()


def test_unknown_scale() -> None:
    instance = network(4, 2, name="net")
    with pytest.raises(InputError, match="scale"):
        plot(instance, cut(instance, 0), scale="bytes")


@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 4), (1000, 64)])
def test_device_bars(n: int, k: int, tmp_path: Path) -> None:
    instance = network(n, k, name="net")
    figures = estimate(instance, cut(instance, 0))
    ax = device_bars(instance, cut(instance, 0))
    drawn(ax, tmp_path)
    assert len(ax.patches) == k * len(cycle_stacks(figures))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Device", "Cycles")
    tops = [p.get_y() + p.get_height() for p in ax.patches[-k:]]
    assert tops == pytest.approx([s.compute + s.transfer for s in figures.stages])


@pytest.mark.parametrize("k", [1, 4, 64])
def test_memory_bars(k: int, tmp_path: Path) -> None:
    instance = network(100, k, name="net")
    figures = estimate(instance, cut(instance, 0))
    ax = memory_bars(instance, cut(instance, 0))
    drawn(ax, tmp_path)
    assert len(ax.patches) == k * len(memory_stacks(figures))
    assert ax.get_xlabel() == "Device"
    assert ax.get_ylabel().startswith("Memory (")
    factor, _ = byte_unit(max(s.capacity or 0 for s in figures.stages))
    tops = [p.get_y() + p.get_height() for p in ax.patches[-k:]]
    assert tops == pytest.approx([s.memory / factor for s in figures.stages])
    assert len(ax.collections[0].get_segments()) == k  # the capacities


def test_memory_bars_without_memory(tmp_path: Path) -> None:
    instance = PipelinePartition.from_arrays([1, 2, 3], devices=2)
    memory_bars(instance, cut(instance, 0)).figure.savefig(tmp_path / "plot.png")


@pytest.mark.parametrize("log_time", [False, True])
def test_trace(log_time: bool, tmp_path: Path) -> None:
    instance = network(10, 4, name="net")
    ax = trace(runs(instance), log_time=log_time)
    drawn(ax, tmp_path)
    assert ax.get_xlabel() == "Time (s)"
    assert ax.get_ylabel() == "Objective: transfer-bounded"
    assert ax.get_xscale() == ("log" if log_time else "linear")
    assert len(ax.lines) == 5  # two incumbents, two bounds, one for the legend
    assert "net" in ax.get_title(loc="left")


def test_curves_end_with_the_result() -> None:
    instance = network(10, 4, name="net")
    run = result(instance, "a", 0, 1e6, 0.5)
    incumbent, bound = curves(run)
    assert (incumbent.times[-1], incumbent.values[-1]) == (0.5, run.objective)
    assert (bound.times[-1], bound.values[-1]) == (0.5, run.bound)
    assert min(incumbent.times) > 0


def test_draws_on_given_axes() -> None:
    import matplotlib.pyplot as plt

    instance = network(10, 4, name="net")
    solution = cut(instance, 0)
    _, axes = plt.subplots(2, 2)
    assert plot(instance, solution, axes[0, 0], title="t") is axes[0, 0]
    assert axes[0, 0].get_title(loc="left").startswith("t ")
    assert device_bars(instance, solution, axes[0, 1]) is axes[0, 1]
    assert memory_bars(instance, solution, ax=axes[1, 0]) is axes[1, 0]
    assert trace(result(instance, "a", 0, 1, 1), axes[1, 1]) is axes[1, 1]
    assert len(plt.get_fignums()) == 1


def test_neighbours_differ_in_colour() -> None:
    assert all(area_colour(i) != area_colour(i + 1) for i in range(100))


def test_rows_skip_runs_without_a_solution() -> None:
    instance = network(10, 4, name="net")
    run = result(instance, "a", 0, 1, 1)
    run.solution = None
    assert map_rows(instance, {"a": run, "b": cut(instance, 0)})[0].label == "b"


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    instance = network(10, 4, name="net")
    with pytest.raises(StagepackError, match=r"pip install 'stagepack\[report\]'"):
        plot(instance, cut(instance, 0))


def test_the_page_of_one_partition_says_what_its_stages_cost(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    instance = network(12, 4, name="net")
    solution = cut(instance, 0)
    plot(instance, solution, tmp_path / "one.html")
    assert '<th scope="col">Stage</th>' in (tmp_path / "one.html").read_text()
    plot(instance, {"a": solution, "b": solution}, tmp_path / "two.html")
    assert '<th scope="col">Stage</th>' not in (tmp_path / "two.html").read_text()
