"""LMEM packing without a solver.

``constructive`` places one block after another, ``local_search`` lowers a given packing, and
``exact_search`` finds the lowest packing or proves that there is none.  Bounds from windows of time
are based on it.  ``relocation`` moves few bytes of an old placement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.packing import bounds as bounds
    from stagepack.heuristics.packing import homes as homes
    from stagepack.heuristics.packing import memory_bounds as memory_bounds
    from stagepack.heuristics.packing import relocation as relocation
    from stagepack.heuristics.packing import window_bounds as window_bounds
else:
    __getattr__ = on_demand(__name__)
