from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, earliest
from stagepack.plots import plot
from stagepack.report.html import write_figure
from stagepack.report.schedule import VIEW
from stagepack.report.schedule.figure import schedule_charts
from stagepack.report.schedule.numbers import device_label, limits, schedule_bars
from tests.report.printed import printed


def looped(**options: Any) -> PipelineSchedule:
    """Four stages, looped over two devices."""
    given: dict[str, Any] = {
        "microbatches": 2,
        "devices": [0, 1, 0, 1],
        "memory_forward": 3,
        "memory_backward": -3,
        "limit": [12, 90],
        "latency": 1,
        "name": "looped",
    }
    return PipelineSchedule.from_arrays([2] * 4, [4] * 4, **{**given, **options})


def all_forward_first(instance: PipelineSchedule) -> ScheduleSolution:
    operations = instance.operations
    order = np.lexsort(
        (
            operations.microbatch,
            np.where(operations.kind == 0, operations.stage, -operations.stage),
            operations.kind,
        )
    )
    found = earliest(
        instance, [order[operations.device[order] == device] for device in range(instance.d)]
    )
    assert found is not None
    assert instance.check(found) == ()
    return found


def test_bars_are_the_operations_and_memory_is_what_they_hold() -> None:
    instance = looped()
    solution = all_forward_first(instance)
    drawn = schedule_bars(instance, solution)
    assert drawn.end_time == max(drawn.end) == instance.evaluate(solution)
    assert (drawn.end - drawn.start == instance.operations.duration).all()
    assert sorted(set(drawn.tint[drawn.stage >= 2].tolist())) == [1]  # second of their device
    for times, values in drawn.memory:
        assert values.max() == 12
        assert values[-1] == 0
        assert (np.diff(times) > 0).all()
    # 90 is far above all that is used; a limit of some devices alone says whose it is.
    assert limits(instance, drawn) == {12: "limit of device 0: 12"}
    assert device_label(instance, 1) == "device 1 (stages 1, 3)"


def test_names_stand_on_the_lines_of_their_devices() -> None:
    drawn = schedule_bars(looped(), all_forward_first(looped()))
    points = drawn.labels([12])
    for (time, value), (times, values) in zip(points, drawn.memory, strict=True):
        assert value == values[np.searchsorted(times, time, side="right") - 1] > 0
    assert len(set(points)) == len(points)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_a_line_a_device_and_fits(width: int) -> None:
    instance = looped()
    text = printed(VIEW.account(instance, all_forward_first(instance)), width)
    lines = [line for line in text.splitlines() if line.startswith("device ")]
    assert len(lines) == 1 + instance.d
    assert max(map(len, text.splitlines())) <= width
    assert "12" in lines[1]


def test_a_long_name_costs_no_column() -> None:
    instance = looped(device_names=["a name far too long for any table of figures", "b"])
    text = printed(VIEW.account(instance, all_forward_first(instance)), 80)
    assert max(map(len, text.splitlines())) <= 80
    for column in ("span", "share", "memory"):
        assert column in text


def test_memory_columns_show_only_where_memory_is_used() -> None:
    instance = looped(memory_forward=0, memory_backward=0, limit=None)
    text = printed(VIEW.account(instance, all_forward_first(instance)), 120)
    assert "memory" not in text
    assert "limit" not in text


def test_facts_are_json_and_lines_say_them() -> None:
    instance = looped(steps=3, post_validation=True, optimizer=5)
    given = VIEW.facts(instance)
    json.dumps(given, allow_nan=False)
    told = dict(VIEW.lines(given))
    assert told["Mode"] == "training, backward fused"
    assert told["Optimiser step"] == "5 cycles, with post-validation"
    assert told["Memory limit"] == "12 to 90"
    assert given["bound"] <= instance.evaluate(all_forward_first(instance))


def test_charts_of_several_solutions_have_equal_axes() -> None:
    instance = looped()
    early = all_forward_first(instance)
    late = ScheduleSolution.of(instance, np.asarray(early.start) + 7)
    charts, _, _ = schedule_charts(instance, [early, late])
    ranges = {tuple(chart.layout.xaxis.range) for chart in charts}
    assert ranges == {(0, instance.evaluate(late))}
    assert len(charts[0].data) == len(charts[1].data)


def test_numbers_of_operations_of_a_kind_fit_together() -> None:
    pytest.importorskip("matplotlib")
    instance = PipelineSchedule.from_arrays([2], [6], microbatches=40)
    solution = all_forward_first(instance)
    shown = plot(instance, solution).figure.axes[0].texts
    assert [label.get_text() for label in shown] == [str(i) for i in range(40)], "of B's only"
    chart = schedule_charts(instance, [solution])[0][0]
    assert all(bars.meta["together"] for bars in chart.data if bars.type == "bar")


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    instance = looped()
    solution = all_forward_first(instance)
    figure = plot(instance, solution).figure
    assert [len(axes.collections) for axes in figure.axes] == [1, 0]
    figure.savefig(tmp_path / "chart.png")
    write_figure(instance, solution, tmp_path / "chart.html")
    assert "of microbatch" in (tmp_path / "chart.html").read_text()
    with pytest.raises(InputError, match="one scale"):
        plot(instance, solution, scale="layers")


def test_one_cycle_is_no_cycles() -> None:
    lines = dict(
        VIEW.lines(VIEW.facts(PipelineSchedule.from_arrays([1, 1], [1, 2], microbatches=2)))
    )
    assert (lines["Forward"], lines["Backward"]) == ("1 cycle", "1 to 2 cycles")
