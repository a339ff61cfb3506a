"""Constructive heuristics: rules, dives, valleys, and the choice among several memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.packing.constructive import conflicts as conflicts
    from stagepack.heuristics.packing.constructive import dive as dive
    from stagepack.heuristics.packing.constructive import greedy as greedy
    from stagepack.heuristics.packing.constructive import rules as rules
    from stagepack.heuristics.packing.constructive import spill as spill
    from stagepack.heuristics.packing.constructive import stack as stack
    from stagepack.heuristics.packing.constructive import valleys as valleys
else:
    __getattr__ = on_demand(__name__)
