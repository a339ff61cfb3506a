"""Where the texts and panels of a picture lie, in pixels: what overlaps, what hangs out."""

from __future__ import annotations

import itertools
from typing import Any

SLACK = 1.5  # pixels


def faults(figure: Any) -> list[str]:
    """Return what is wrong with a layout: texts on texts, on other panels, or out of the figure."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    found: list[str] = []
    texts = list(_texts(figure, renderer))
    for (one, _, a), (other, _, b) in itertools.combinations(texts, 2):
        if _shared(a, b):
            found.append(f"{one!r} lies on {other!r}")
    panels = list(_panels(figure))
    for name, home, box in texts:
        if not (
            figure.bbox.x0 - SLACK <= box.x0
            and figure.bbox.y0 - SLACK <= box.y0
            and box.x1 <= figure.bbox.x1 + SLACK
            and box.y1 <= figure.bbox.y1 + SLACK
        ):
            found.append(f"{name!r} hangs out")
        found += [
            f"{name!r} lies on another panel"
            for ax in panels
            if ax is not home and _shared(box, ax.get_window_extent(renderer))
        ]
    for one_ax, other_ax in itertools.combinations(panels, 2):
        if _shared(one_ax.get_window_extent(renderer), other_ax.get_window_extent(renderer)):
            found.append("panels overlap")
    return found


def _panels(figure: Any) -> Any:
    for ax in figure.axes:
        yield ax
        yield from ax.child_axes


def _texts(figure: Any, renderer: Any) -> Any:
    """Yield (text, its axes, box); a legend is one text."""
    from matplotlib.legend import Legend
    from matplotlib.text import Text

    seen: set[int] = set()
    for ax in _panels(figure):
        legends = [child for child in ax.get_children() if isinstance(child, Legend)]
        inside = {id(text) for legend in legends for text in legend.findobj(Text)}
        for legend in legends:
            yield (
                f"legend of {ax.get_ylabel() or ax.get_xlabel()}",
                ax,
                legend.get_window_extent(renderer),
            )
        others = {id(t) for child in ax.child_axes for t in child.findobj(Text)} | inside
        for text in ax.findobj(Text):
            if id(text) in others | seen or not text.get_visible() or not text.get_text().strip():
                continue
            seen.add(id(text))
            box = text.get_window_extent(renderer)
            clip = text.get_clip_box()  # a flag that is set without a box clips nothing
            if clip is not None and not box.overlaps(clip):
                continue
            if box.width > 0 and _drawn(text, ax):
                yield text.get_text(), ax, box


def _drawn(text: Any, ax: Any) -> bool:
    """Tell whether a tick's label is drawn: those beyond the limits are not."""
    for axis in (ax.xaxis, ax.yaxis):
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        for tick in ticks:
            if text in (tick.label1, tick.label2):
                low, high = sorted(axis.get_view_interval())
                return bool(low <= tick.get_loc() <= high) and tick.get_visible()
    return True


def _shared(a: Any, b: Any) -> bool:
    return bool(
        min(a.x1, b.x1) - max(a.x0, b.x0) > SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > SLACK
    )
