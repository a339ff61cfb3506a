"""Where a plot goes: to a file, on given axes, or on a figure of its own."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from stagepack.instances.answer import require_instance
from stagepack.instances.pipeline.estimate import Estimate, estimate
from stagepack.result import InputError


def target(path: Any, ax: Any = None) -> tuple[Path | None, Any]:
    """Return the file and the axes that were given; axes may stand in the place of the file.

    Raises
    ------
    InputError
        For what is neither.
    """
    if path is not None and not isinstance(path, str | os.PathLike):
        if ax is not None:
            raise _neither(path, "path", "name the file to write")
        path, ax = None, path
    if ax is not None and not hasattr(ax, "add_collection"):
        raise _neither(ax, "path", "name the file to write, or give axes of matplotlib")
    return (None if path is None else Path(path)), ax


def _neither(given: Any, field: str, remedy: str) -> InputError:
    return InputError(
        f"a {type(given).__name__} is no path and no axes", field=field, remedy=remedy
    )


def figures_of(
    instance: Any, solution: Any, path: Any, ax: Any
) -> tuple[Estimate, Path | None, Any]:
    """Return the estimate of a solution, and where to draw it.

    An estimate may stand in the place of the instance, as it did once, axes after it.
    """
    if isinstance(instance, Estimate):
        warnings.warn(
            "bars take the instance and the solution, not their estimate",
            DeprecationWarning,
            stacklevel=3,
        )
        return instance, *target(solution if path is None else path, ax)
    require_instance(instance, "pipeline-partition")
    return estimate(instance, solution), *target(path, ax)
