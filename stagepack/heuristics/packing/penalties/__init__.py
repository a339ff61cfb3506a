"""Packings in which some pairs of blocks may share addresses at a cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.packing.penalties import cliques as cliques
    from stagepack.heuristics.packing.penalties import pairs as pairs
    from stagepack.heuristics.packing.penalties import placing as placing
else:
    __getattr__ = on_demand(__name__)
