"""Local searches that lower a packing: annealing, windows of time, cores, overlaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.packing.local_search import annealing as annealing
    from stagepack.heuristics.packing.local_search import cores as cores
    from stagepack.heuristics.packing.local_search import overlaps as overlaps
else:
    __getattr__ = on_demand(__name__)
