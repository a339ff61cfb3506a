"""How large the numbers of a packing may be that the exact search counts with.

Asked before anything is searched, it loads no search.  Cost: O(blocks).  Source: own work.
"""

from __future__ import annotations

from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE
from stagepack.instances.packing.blocks import Blocks


def too_large(blocks: Blocks) -> str:
    """Return why the numbers in `blocks` are beyond the exact search, or ''."""
    highest = int(max(blocks.range_low.max(initial=0), blocks.fixed.max(initial=0)))
    if highest + float(blocks.size.sum()) + float(blocks.alignment.sum()) >= NOWHERE:
        return "the exact search counts to 2**60 bytes; use a coarser unit"
    return ""
