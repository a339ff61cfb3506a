"""Compiled access to the fields of a label, which are packed into words.

A slot of a net has a bit for each stage and one above them; a slot of an anchor has bits enough for
a stage.  The plan says in which word each slot lies and how far it is shifted; no field lies in two
words.  Cost: O(1).  Source: see :mod:`.sweeps`.
"""

from __future__ import annotations

from stagepack.heuristics.graph.frontier.label_state import Plan
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step


@step
def anchor(plan: Plan, word: Array, slot: int) -> int:
    """Return the stage that the `slot` of an anchor holds in the `word` array of a label."""
    field: int = (word[plan.anchor_word[slot]] >> plan.anchor_shift[slot]) & plan.anchor_mask
    return field


@step
def set_anchor(plan: Plan, word: Array, slot: int, stage: int) -> None:
    """Let the `slot` of an anchor hold a `stage` in the `word` array of a label."""
    at, shift = plan.anchor_word[slot], plan.anchor_shift[slot]
    # Cleared first: fields share a word, and stages are written over one another.
    word[at] = (word[at] & ~(plan.anchor_mask << shift)) | (stage << shift)


@step
def net(plan: Plan, word: Array, slot: int) -> int:
    """Return what the `slot` of a net holds in `word`: stages as bits, above them whether cut."""
    field: int = (word[plan.net_word[slot]] >> plan.net_shift[slot]) & ((2 << plan.stages) - 1)
    return field


@step
def set_net(plan: Plan, word: Array, slot: int, field: int) -> None:
    """Let the `slot` of a net hold a `field` in `word`."""
    at, shift = plan.net_word[slot], plan.net_shift[slot]
    word[at] = (word[at] & ~(((2 << plan.stages) - 1) << shift)) | (field << shift)


@step
def lowest(bits: int) -> int:
    """Return the lowest of some bits, of which one is set."""
    at = 0
    # Bit by bit: stages are few.
    while not (bits >> at) & 1:
        at += 1
    return at
