"""Optional libraries for pictures and pages; everything else works without them."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

from stagepack import memory
from stagepack.errors import InputError

Axes = Any
"""Those of matplotlib, which is there when something is drawn, and not before."""
Figure = Any
"""One of matplotlib or plotly."""
Target = str | os.PathLike[str] | Axes | None
"""Where to draw: a file, or axes in its place; None: on a figure of its own."""


def extra(module: str, who: str = "the report needs") -> ModuleType:
    """Return a module of a library of the extra ``report``; `who` needs it, for the message.

    Where there is no room for it, MemoryError is raised.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if memory.ran_out(error):
            raise MemoryError from error
        library = module.partition(".")[0]
        raise InputError(f"{who} {library}", remedy="pip install 'stagepack[report]'") from error
