"""The picture of the house, drawn from the imports: ``python -m tests.draw_house``.

Every wing is a box on its floor; a line goes down from a wing to each that it imports.  All stand
on the ground floor, to which no lines are drawn.
"""

from __future__ import annotations

import itertools

from tests.imports import ROOT, wings
from tests.test_house import FLOORS, GROUND

PICTURE = ROOT / "docs" / "architecture.svg"
LEFT_OUT = {"__init__", "__main__"}  # the public names, which are everybody's
WIDTH, FLOOR_HEIGHT, BOX = 760, 82, 34
INK, LINE, FILL, GROUND_FILL = "#222222", "#8fa7c4", "#e4edf7", "#eeeeee"


def _boxes() -> dict[str, tuple[float, float, float]]:
    """Return left edge, top and width of the box of every wing, by floors from the top down."""
    shown = [name for name in FLOORS if name not in LEFT_OUT]
    levels = sorted({FLOORS[name] for name in shown}, reverse=True)
    boxes: dict[str, tuple[float, float, float]] = {}
    for level, floor in enumerate(levels):
        names = sorted(name for name in shown if FLOORS[name] == floor)
        for place, name in enumerate(names, 1):
            width = 26 + 8.2 * len(name)
            middle = WIDTH * place / (len(names) + 1)
            boxes[name] = (middle - width / 2, 16 + level * FLOOR_HEIGHT, width)
    return boxes


def drawing() -> str:
    """Return the picture as SVG."""
    boxes = _boxes()
    parts = []
    for name, others in sorted(wings().items()):
        for other in sorted(others - GROUND):
            if name in boxes and other in boxes:
                (left, top, width), (to, below, across) = boxes[name], boxes[other]
                start, end = top + BOX, below
                if top == below:  # neighbours on one floor
                    start = end = top + BOX / 2
                parts.append(
                    f'<line x1="{left + width / 2:.0f}" y1="{start:.0f}" '
                    f'x2="{to + across / 2:.0f}" y2="{end:.0f}" stroke="{LINE}"/>'
                )
    for name, (left, top, width) in boxes.items():
        fill = GROUND_FILL if name in GROUND else FILL
        parts.append(
            f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{BOX}" rx="4" '
            f'fill="{fill}" stroke="{INK}"/>'
            f'<text x="{left + width / 2:.0f}" y="{top + 22:.0f}" text-anchor="middle" '
            f'font-family="monospace" font-size="14" fill="{INK}">{name}</text>'
        )
    height = max(top for _, top, _ in boxes.values()) + BOX + 16
    body = itertools.chain(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}">',
            '<rect width="100%" height="100%" fill="white"/>',
        ],
        parts,
        ["</svg>", ""],
    )
    return "\n".join(body)


if __name__ == "__main__":
    PICTURE.write_text(drawing())
