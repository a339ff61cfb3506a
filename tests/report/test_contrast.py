"""Lines and outlines stand out from the page, light or dark, three to one (WCAG 2.2, 1.4.11)."""

from __future__ import annotations

import base64
import dataclasses
import re

import numpy as np
import pytest

import stagepack as sp
from stagepack.compare.curves import PICTURES, draw
from stagepack.report import style
from stagepack.report.figures import BORDER
from stagepack.report.pages import picture
from tests.imports import ROOT

STATIC = ROOT / "stagepack/report/static"
LIGHT, DARK = re.findall(r"--page: (#\w+)", (STATIC / "page.css").read_text())
MARKS = (*style.LINES, style.CAPACITY, style.INK, str(BORDER["color"]))


def luminance(colour: str) -> float:
    digits = colour[1:] * (2 if len(colour) == 4 else 1)
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(part * share for part, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_dark_pictures_have_the_colour_of_dark_pages() -> None:
    assert style.DARK[style.PAGE] == DARK


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#fff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)


@pytest.mark.parametrize("colour", sorted(set(MARKS)))
def test_lines_and_outlines_stand_out_from_both_pages(colour: str) -> None:
    assert contrast(colour, LIGHT) >= 3
    assert contrast(style.DARK.get(colour, colour), DARK) >= 3


@pytest.mark.parametrize("colour", style.AREAS)
def test_names_are_read_on_areas_and_areas_seen_on_dark_pages(colour: str) -> None:
    assert contrast(style.INK, colour) >= 4.5
    assert contrast(colour, DARK) >= 3


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("profile", "greedy"),
        ("graph", "equal-work"),
        ("schedule", "auto"),
        ("phases", "greedy-head"),
        ("groups", "layerwise"),
        ("buffers", "first-fit-size"),
    ],
)
def test_areas_of_pictures_are_outlined(name: str, method: str) -> None:
    collections = pytest.importorskip("matplotlib.collections")
    colours = pytest.importorskip("matplotlib.colors")
    instance = sp.read(ROOT / "examples" / f"{name}.json")
    drawn = sp.plot(instance, sp.solve(instance, method)).figure
    edges = [
        colours.to_hex(colour)
        for ax in drawn.axes
        for shape in (*ax.patches, *ax.collections)
        if not isinstance(shape, collections.LineCollection)
        for colour in colours.to_rgba_array(shape.get_edgecolor())
        if colour[3] and np.max(shape.get_linewidth()) > 0
    ]
    assert edges
    assert min(contrast(colour, "#ffffff") for colour in edges) >= 3


def curves(pictures: str) -> list[str]:
    """Return the pictures of fronts, tunings and stores as on pages, with both schemes."""
    instance = sp.read(ROOT / "examples/profile.json")
    if pictures == "front":
        front = sp.pareto(instance)
        point = front.points[0]
        unproved = dataclasses.replace(point, y=point.y + 9, proved=False)
        drawn = [dataclasses.replace(front, points=(point, unproved)).plot()]
    elif pictures == "tuning":
        changes = {"microbatches": [2, 4, 8]}
        tuning = sp.tune(lambda microbatches: instance.replace(microbatches=microbatches), changes)
        drawn = [tuning.plot()]
    else:
        steps = {f"method {at}": ((0.1 * at, 0.5), (1.0, 1.0)) for at in range(8)}
        drawn = [draw(what, steps) for what in PICTURES]
    return [base64.b64decode(picture(ax).split(",")[1]).decode() for ax in drawn]


@pytest.mark.parametrize("pictures", ["front", "tuning", "store"])
def test_curves_stand_out_from_both_pages(pictures: str) -> None:
    pytest.importorskip("matplotlib")
    for text in curves(pictures):
        used = {*re.findall(r"(?:fill|stroke): (#\w{6})", text.split("</style>")[-1])}
        marks = used - {style.PAGE, style.GRID}
        assert marks
        for colour in marks:
            assert contrast(colour, LIGHT) >= 3
            assert contrast(style.DARK.get(colour, colour), DARK) >= 3
        written = re.findall(r"<!-- (.*?) -->", text)  # letters are drawn as paths
        assert not any(re.match(r"[a-z-]+ \(|(throughput|bytes|seconds)\b", it) for it in written)
