"""Local searches that lower a packing: annealing, cores, overlaps, and homes among memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.packing.local_search import annealing as annealing
    from stagepack.heuristics.packing.local_search import cores as cores
    from stagepack.heuristics.packing.local_search import homes as homes
    from stagepack.heuristics.packing.local_search import overlaps as overlaps
else:
    __getattr__ = on_demand(__name__)
