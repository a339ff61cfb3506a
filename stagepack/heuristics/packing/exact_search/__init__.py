"""Branch and bound over canonical packings: least peaks, or proofs that nothing fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.packing.exact_search import address_ranges as address_ranges
    from stagepack.heuristics.packing.exact_search import canonical as canonical
    from stagepack.heuristics.packing.exact_search import components as components
    from stagepack.heuristics.packing.exact_search import exact as exact
    from stagepack.heuristics.packing.exact_search import exact_general as exact_general
    from stagepack.heuristics.packing.exact_search import exact_state as exact_state
    from stagepack.heuristics.packing.exact_search import portfolio as portfolio
    from stagepack.heuristics.packing.exact_search import rigid as rigid
else:
    __getattr__ = on_demand(__name__)
