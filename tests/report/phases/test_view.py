from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stagepack.errors import InputError
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.plots import plot
from stagepack.report.html import write_figure
from stagepack.report.phases import VIEW
from stagepack.report.phases import numbers as data
from stagepack.report.phases.figure import phase_charts
from tests.report.printed import printed


def six(**options: Any) -> PhaseSchedule:
    """Six layers in training, with everything that a plan may show."""
    given: dict[str, Any] = {
        "backward": [12] * 6,
        "tape": [3] * 6,
        "state": [8] * 6,
        "memory": 600,
        "tiles": 10,
        "io_tiles": (1, 3),
        "remote_bandwidth": 2,
        "host_bandwidth": 2,
        "steps": 8,
        "startup": 3,
        "training": True,
        "policies": ["stash", "recompute"],
        "prefetch": True,
        "name": "six",
    }
    return PhaseSchedule.from_arrays(
        [4] * 6, [6] * 6, [8, 8, 2, 8, 2, 8, 2], **{**given, **options}
    )


PLAN = PhaseSolution(
    boundaries=(0, 2, 4, 6),
    mode=("io_overlapped",) * 5,
    io_tiles=1,
    policy=("stash", "recompute", "stash", "recompute", "stash", "stash"),
    prefetch=(True, True, False, True, False),
)


def test_the_plan_is_valid() -> None:
    assert six().check(PLAN) == ()


def test_bands_follow_one_another_and_events_lie_within() -> None:
    instance = six()
    drawn = data.phase_bars(instance, PLAN)
    assert [band.name for band in drawn.bands] == ["F0", "F1", "FB2", "B1", "B0"]
    assert drawn.bands[0].start == 0
    assert [band.stop for band in drawn.bands[:-1]] == [band.start for band in drawn.bands[1:]]
    assert drawn.bands[-1].stop == drawn.end_time == instance.evaluate(PLAN)
    for event in drawn.events:
        band = drawn.bands[event.phase]
        assert band.start <= event.start < event.end <= band.stop
    assert {event.what for event in drawn.events} <= set(data.COLOURS)


def test_many_events_are_joined_without_losing_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data.phase_bars(six(), PLAN)
    monkeypatch.setattr(data, "FOLDED", 10)
    joined = data.phase_bars(six(steps=2000), PLAN)
    assert joined.folded
    assert not whole.folded
    assert len(joined.events) < 2000
    assert max(event.end for event in joined.events) == joined.end_time


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_a_line_a_phase_and_fits(width: int) -> None:
    instance = six()
    text = printed(VIEW.account(instance, PLAN), width)
    assert max(map(len, text.splitlines())) <= width
    names = [line.split()[0] for line in text.splitlines() if line.split()]
    assert names[-5:] == ["F0", "F1", "FB2", "B1", "B0"]
    assert "4 stash, 2 recompute" in text


def test_facts_are_json_and_lines_say_them() -> None:
    instance = six(remote_memory=5000, graphs=5, fixed_boundaries=[0, 2, 4, 6])
    given = VIEW.facts(instance)
    json.dumps(given, allow_nan=False)
    told = dict(VIEW.lines(given))
    assert told["Mode"] == "training"
    assert told["I/O tiles"] == "1 to 3"
    assert told["Phase graphs"] == "5 at most"
    assert told["Boundaries"] == "fixed to [0, 2, 4, 6]"


def test_charts_of_several_plans_have_equal_axes() -> None:
    instance = six()
    other = PhaseSolution((0, 6), ("io",), 2, policy=("stash",) * 6)
    charts, _, _ = phase_charts(instance, [PLAN, other])
    assert len({tuple(chart.layout.xaxis.range) for chart in charts}) == 1
    assert len({tuple(chart.layout.yaxis2.range) for chart in charts}) == 1
    assert len(charts[0].data) == len(charts[1].data)


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    instance = six()
    plot(instance, PLAN).figure.savefig(tmp_path / "plan.png")
    write_figure(instance, PLAN, tmp_path / "plan.html")
    assert "io_overlapped" in (tmp_path / "plan.html").read_text()
    with pytest.raises(InputError, match="one scale"):
        plot(instance, PLAN, scale="layers")
