"""Colours, the same in all pictures.

The colours are Paul Tol's *light* scheme for areas, on which black text is readable, and his
*bright* scheme for lines.  People with any common colour blindness can distinguish them.  Two lines
are darker than in the original, so that all have a contrast of at least three to one to white.
Areas are paler than that; they get an outline in `MUTED`, unless there are too many of them.
"""

from __future__ import annotations

AREAS = (
    "#77aadd",
    "#ee8866",
    "#44bb99",
    "#eedd88",
    "#ffaabb",
    "#99ddff",
    "#bbcc33",
    "#d3c5e5",
)
LINES = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#aa3377",
    "#b8860b",
    "#3399b5",
    "#555555",
    "#de7a00",
)
STYLES: tuple[tuple[int, tuple[int, ...]], ...] = ((0, ()), (0, (5, 2)), (0, (1, 2)))
"""Dashes as matplotlib has them: none, long ones, dots."""
PAGE = "#ffffff"
INK = "#222222"
MUTED = "#6b7280"
GRID = "#e3e6ea"
CAPACITY = "#aa3377"
DARK = {
    PAGE: "#171c21",
    INK: "#e4e7eb",
    MUTED: "#a3adb9",
    GRID: "#3a434d",
    "#2f6fb0": "#7db4ea",
    "#aa3377": "#e07ab4",
    "#4477aa": "#77aadd",
    "#228833": "#55bb66",
    "#555555": "#b0b0b0",
    "#f3f4f6": "#2b333c",
}
"""What the page, lines, axes and text become in dark schemes; areas keep their colours."""


def area_colour(index: int) -> str:
    """Return the colour of stage or category `index`; neighbours always differ."""
    return AREAS[index % len(AREAS)]


def line_colour(index: int) -> str:
    """Return the colour of curve `index`."""
    return LINES[index % len(LINES)]


def line_style(index: int) -> tuple[int, tuple[int, ...]]:
    """Return the dashes of curve `index`, which tell those of one colour apart."""
    return STYLES[index // len(LINES) % len(STYLES)]


def tint(colour: str, share: float, other: str = PAGE) -> str:
    """Return a colour with a `share` of an `other`, white by default."""
    pairs = ((int(colour[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(own + (new - own) * share):02x}" for own, new in pairs)
