"""No text of a picture lies on another one, on another panel, or outside, whatever is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.plots import device_bars, group_rows, memory_bars, plot, trace
from tests.report.boxes import faults

pyplot = pytest.importorskip("matplotlib.pyplot")

SHORT = "net"
LONG = "a-network-with-a-name-that-says-everything-about-it-" * 4
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "packing-one": ("packing/random/planted", {"buffers": 1}, "first-fit-size"),
    "packing": ("packing/random/planted", {"buffers": 60}, "first-fit-size"),
    "packing-many": ("packing/random/powerlaw", {"buffers": 2000}, "first-fit-size"),
    "pipeline": ("pipeline/bert-large", {}, "greedy"),
    "pipeline-one": ("pipeline/random/bert-like", {"layers": 1, "devices": 1}, "greedy"),
    "pipeline-many": ("pipeline/random/heterogeneous", {"layers": 300, "devices": 48}, "greedy"),
    "schedule": ("schedule/uniform", {}, "1f1b"),
    "schedule-few": ("schedule/uniform", {"devices": 2, "microbatches": 2}, "1f1b"),
    "schedule-many": ("schedule/uniform", {"devices": 24, "microbatches": 64}, "1f1b"),
    "schedule-limited": ("schedule/zero-bubble/small", {}, "1f1b"),
    "phases": ("phases/six-layers", {}, "greedy-head"),
    "groups": ("groups/squeezenet", {"chip": "cv184x"}, "dp"),
    "groups-one": ("groups/squeezenet", {}, "dp"),
    "groups-many": ("groups/densenet121", {"chip": "cv184x"}, "greedy-tail"),
    "groups-lone": ("groups/random/blocks", {"operators": 1}, "layerwise"),
    "phases-network": ("phases/bert-base", {}, "greedy-head"),
}


@pytest.fixture(scope="module", params=list(CASES))
def solved(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    name, parameters, method = CASES[request.param]
    instance = sp.load(name, **parameters)
    return instance, sp.solve(instance, method, time_limit=5)


@pytest.mark.parametrize("name", [SHORT, LONG], ids=["short", "long"])
def test_pictures_of_solutions(solved: tuple[Any, Any], name: str) -> None:
    instance, result = solved
    assert result.solution is not None
    named = instance.replace(name=name)
    ax = plot(named, result.solution)
    assert faults(ax.figure) == []


@pytest.mark.parametrize("name", [SHORT, LONG], ids=["short", "long"])
def test_pictures_of_runs(solved: tuple[Any, Any], name: str) -> None:
    _, result = solved
    assert faults(trace({name: result, "other": result}, title=name).figure) == []


@pytest.mark.parametrize("name", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize(("layers", "devices"), [(1, 1), (12, 4), (200, 40)])
def test_pictures_of_stages(layers: int, devices: int, name: str) -> None:
    instance = sp.load("pipeline/random/bert-like", layers=layers, devices=devices)
    instance = instance.replace(name=name)
    found = {m: sp.solve(instance, m, time_limit=5) for m in ("greedy", "equal-layers")}
    found = {m: result for m, result in found.items() if result.solution is not None}
    answer = next(iter(found.values()))
    for draw, shown in ((plot, found), (device_bars, answer), (memory_bars, answer)):
        assert faults(draw(instance, shown).figure) == []


@pytest.mark.parametrize("name", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("chip", ["cv184x", "bm1684x"])
def test_pictures_of_single_groups(chip: str, name: str) -> None:
    instance = sp.load("groups/squeezenet", chip=chip).replace(name=name)
    answer = sp.solve(instance, "dp")
    for group in range(answer.solution.groups):
        assert faults(group_rows(instance, answer, group=group).figure) == []


@pytest.mark.parametrize("size", [(6.0, 4.5), (12.0, 14.0)])
def test_maps_in_figures_of_other_sizes(size: tuple[float, float]) -> None:
    instance = sp.load("packing/random/planted", buffers=60).replace(name=LONG)
    ax = pyplot.figure(figsize=size, layout="constrained").add_subplot()
    plot(instance, sp.solve(instance, "first-fit-size"), ax)
    assert faults(ax.figure) == []


@pytest.mark.parametrize("times", [10**6, 10**12, 10**16])
def test_late_times_of_a_map_do_not_overlap(times: int) -> None:
    instance = sp.load("packing/random/planted", buffers=20)
    late = instance.replace(start=instance.start * times, end=instance.end * times)
    ax = plot(late, sp.solve(late, "first-fit-size"), scale="time")
    assert faults(ax.figure) == []
    assert len(ax.get_xticks()) >= 2


def test_letters_that_the_font_does_not_have_are_no_warning(
    recwarn: pytest.WarningsRecorder, tmp_path: Path
) -> None:
    packing = sp.LmemPacking.from_arrays([4], [0], [3], ids=["張量"])
    result = sp.solve(packing)
    sp.plot(packing, result, tmp_path / "map.png")
    assert "<img" in result._repr_html_()
    assert not list(recwarn)
