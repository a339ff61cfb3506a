"""ONNX resizes: those that repeat or skip rows and columns, and interpolations."""

from __future__ import annotations

from collections.abc import Sequence

from stagepack.contracts import JsonObject
from stagepack.instances.groups import OperatorKind
from stagepack.instances.groups.problem import Coordinates, Interpolation

Shape = tuple[int, ...]
COORDINATES = {
    "half_pixel": Coordinates.HALF_PIXEL,
    "half_pixel_symmetric": Coordinates.HALF_PIXEL,  # alike where scales are those of the sizes
    "pytorch_half_pixel": Coordinates.PYTORCH_HALF_PIXEL,
    "align_corners": Coordinates.ALIGN_CORNERS,
    "asymmetric": Coordinates.ASYMMETRIC,
}
HALVES = (Coordinates.HALF_PIXEL, Coordinates.PYTORCH_HALF_PIXEL)
ROUNDED = ("round_prefer_floor", "round_prefer_ceil")
OLD = 10
"""The last version of operators in which resizes say no coordinates: these are asymmetric."""


def resized(
    said: JsonObject, opset: int, old: Shape, new: Shape, scales: Sequence[float] | None
) -> tuple[OperatorKind, JsonObject] | None:
    """Return the kind of a resize and its fields, by what its node `said`; None: it stands alone.

    `old` and `new` are the shapes of its input and its output.  Positions follow from `scales`,
    empty where they are not known, or where these are None from the sizes.  `opset`: version of
    operators.
    """
    exact = scales is None or (
        len(scales) == len(old)
        and all(a * scale == b for a, b, scale in zip(old, new, scales, strict=True))
    )
    words = {name: value.decode() for name, value in said.items() if isinstance(value, bytes)}
    usual = "half_pixel" if opset > OLD else "asymmetric"
    grid = COORDINATES.get(words.get("coordinate_transformation_mode", usual))
    mode = words.get("mode", "nearest")
    if len(old) != 4 or old[:2] != new[:2] or grid is None or said.get("antialias"):
        return None
    if mode == "nearest":
        return _nearest(words, opset, old, new, grid)
    if not exact:
        return None
    way = Interpolation.CUBIC if mode == "cubic" else Interpolation.LINEAR
    return OperatorKind.INTERPOLATE, {"interpolation": way, "coordinates": grid}


def _nearest(
    words: dict[str, str], opset: int, old: Shape, new: Shape, grid: Coordinates
) -> tuple[OperatorKind, JsonObject] | None:
    """Return what repeats every row and column as often, or takes one of as many."""
    (tall, wide), (rows, columns) = old[2:], new[2:]
    rounding = words.get("nearest_mode", ROUNDED[0] if opset > OLD else "floor")
    if tall % rows == wide % columns == 0 and grid != Coordinates.ALIGN_CORNERS:
        step = tall // rows, wide // columns
        return OperatorKind.POOL, {"kernel": step, "stride": step}
    repeats = rounding in ROUNDED if grid in HALVES else rounding == "floor"
    if rows % tall == columns % wide == 0 and repeats and grid != Coordinates.ALIGN_CORNERS:
        return OperatorKind.UPSAMPLE, {"scale": (rows // tall, columns // wide)}
    return None
