"""The greedy rules: the order in which blocks are placed, and which gap they take.

A rule is an order and a choice among the gaps; :mod:`.greedy` places by it.  Cost: a sort of the
blocks.  Every rule names its source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.normal_form.meetings import Pause
from stagepack.instances.profile import Array

FIRST, BEST, TOP, BANKS = range(4)
"""Choices: the lowest gap, the tightest one, above all, where the fewest banks are shared."""

FINEST_CLASS = 5
"""Blocks of up to 2 ** 5 sections are one class: shorter slabs cost more than they save."""


PART = 2_000_000
"""Pieces that are gone through between two pauses."""


class Measures:
    """What orders are made of, for every block; int64 arrays of shape (b,)."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    @cached_property
    def sections(self) -> Array:
        """Number of sections in which the block lives."""
        return self._per_block(np.asarray(self.blocks.end - self.blocks.first))

    @cached_property
    def lifetime(self) -> Array:
        """Length of the block's life, as time is kept: from first to last moment of its pieces."""
        blocks = self.blocks
        if not blocks.linear:
            return self.sections
        return self._per_block(blocks.time[blocks.end - 1] - blocks.time[blocks.first] + 1)

    @cached_property
    def area(self) -> Array:
        """Bytes times sections, as a float: only compared."""
        blocks = self.blocks
        return self._per_block((blocks.high - blocks.low) * (blocks.end - blocks.first) * 1.0)

    @cached_property
    def start(self) -> Array:
        """First section."""
        none = np.full(len(self.blocks.size), self.blocks.sections, dtype=np.int64)
        np.minimum.at(none, self._owner, self.blocks.first)
        return none

    @cached_property
    def size(self) -> Array:
        """Bytes."""
        return self.blocks.size

    @cached_property
    def length_class(self) -> Array:
        """Logarithm to base 2 of the number of sections, rounded up."""
        longest = np.maximum(self.sections - 1, 0).astype(np.float64)
        return np.asarray(np.maximum(np.frexp(longest)[1].astype(np.int64), FINEST_CLASS))

    @cached_property
    def heaviest_load(self) -> Array:
        """Greatest load among the sections of the block; O(sections log sections)."""
        blocks = self.blocks
        found = np.zeros(len(blocks.first), dtype=np.int64)
        length = blocks.end - blocks.first
        level, width = blocks.load, 1
        while True:
            # `level` holds maxima over `width` sections; two of them cover any piece this long.
            here = (length >= width) & (length < 2 * width)
            left, right = level[blocks.first[here]], level[blocks.end[here] - width]
            found[here] = np.maximum(left, right)
            if 2 * width > blocks.sections:
                break
            level = np.maximum(level[:-width], level[width:])
            width *= 2
        most = np.zeros(len(blocks.size), dtype=np.int64)
        np.maximum.at(most, self._owner, found)
        return most

    @cached_property
    def hot(self) -> Array:
        """1 where the block lives in a section with at least 9/10 of the greatest load."""
        return np.asarray(self.heaviest_load >= 0.9 * self.blocks.load.max(), dtype=np.int64)

    @cached_property
    def meetings(self) -> Array:
        """Number of pieces that share a section with each piece, itself included; (pieces,)."""
        blocks = self.blocks
        if blocks.momentary:
            return np.asarray(np.bincount(blocks.first, minlength=blocks.sections)[blocks.first])
        most = blocks.sections + 1
        begun = np.cumsum(np.bincount(blocks.first, minlength=most))
        over = np.cumsum(np.bincount(blocks.end, minlength=most))
        return np.asarray(begun[blocks.end - 1] - over[blocks.first])

    @cached_property
    def conflicts(self) -> Array:
        """Number of pieces met by the block: its conflicts, where blocks have one piece each."""
        return self._per_block(self.meetings)

    def met(self, pause: Pause) -> Array:
        """Return :attr:`conflicts`, with a pause now and then where pieces are millions."""
        blocks = self.blocks
        if not blocks.momentary:
            return self.conflicts
        at_once = np.zeros(blocks.sections, dtype=np.int64)
        total = np.zeros(len(blocks.size), dtype=np.int64)
        parts = range(0, len(blocks.first), PART)
        for begin in parts:
            pause()
            np.add.at(at_once, blocks.first[begin : begin + PART], 1)
        for begin in parts:
            pause()
            pieces = np.arange(begin, min(begin + PART, len(blocks.first)))
            owner = np.searchsorted(blocks.piece_ptr, pieces, side="right") - 1
            np.add.at(total, owner, at_once[blocks.first[pieces]])
        return total

    @cached_property
    def _owner(self) -> Array:
        """The block of each piece."""
        return np.repeat(np.arange(len(self.blocks.size)), np.diff(self.blocks.piece_ptr))

    def _per_block(self, of_pieces: Array) -> Array:
        """Return the sum of what the pieces of each block have."""
        if (np.diff(self.blocks.piece_ptr) == 1).all():
            return of_pieces
        total = np.zeros(len(self.blocks.size), dtype=of_pieces.dtype)
        np.add.at(total, self._owner, of_pieces)
        return total


@dataclass(frozen=True)
class Rule:
    """An order and a choice among gaps."""

    name: str  # by which the method is called
    # Measures by which blocks are ordered, ascending, the most important first.
    keys: Callable[[Measures], tuple[Array, ...]]
    policy: int  # which gap: one of the kernels' FIRST, BEST, TOP, BANKS
    # What it does, and where it is from.
    description: str
    source: str
    # Whether long blocks come before short ones, so that the rule carries to millions.
    scalable: bool = False

    def order(self, measures: Measures, keep_going: Callable[[], bool] | None = None) -> Array:
        """Return the blocks in the order of this rule; ties by index.

        Once `keep_going` says no, the order is left as it is: whoever places by it asks, too.
        """
        order = np.arange(len(measures.size))
        for key in reversed(self.keys(measures)):
            if keep_going is not None and not keep_going():
                break
            order = order[np.argsort(key[order], kind="stable")]
        return order


def _rules() -> dict[str, Rule]:
    """Return all rules, those that did best on the benchmark instances first."""
    folklore = "folklore of dynamic storage allocation"
    tflite = "Pisarchyk and Lee 2020 (arXiv 2001.03288), TensorFlow Lite"
    xla = "XLA, GlobalDecreasingSizeBestFitHeap"
    here = "this package"
    rules = [
        Rule(
            "best-fit-lifetime",
            lambda m: (-m.sections, -m.size),
            BEST,
            "longest lifetime (in sections) first, tightest gap",
            folklore,
            scalable=True,
        ),
        Rule(
            "hot-classes",
            lambda m: (-m.hot, -m.length_class, -m.area),
            FIRST,
            "blocks of nearly full sections first, long classes before short, by area",
            here,
            scalable=True,
        ),
        Rule(
            "classes",
            lambda m: (-m.length_class, -m.area),
            FIRST,
            "long classes before short, by area within a class, lowest gap",
            here,
            scalable=True,
        ),
        Rule(
            "best-fit-heaviest",
            lambda m: (-m.heaviest_load, -m.sections, -m.area),
            BEST,
            "blocks of the heaviest sections first, the longer and larger before, tightest gap",
            here,
        ),
        Rule(
            "greedy-by-size",
            lambda m: (-m.size, m.start),
            BEST,
            "largest first, tightest gap",
            tflite,
        ),
        Rule(
            "greedy-by-breadth",
            lambda m: (-m.heaviest_load, -m.size, m.start),
            BEST,
            "blocks of the heaviest sections first, the larger before, tightest gap",
            tflite,
        ),
        Rule(
            "xla-spatial",
            lambda m: (-m.size, -m.lifetime, m.start),
            BEST,
            "largest first, the longer before, tightest gap",
            xla,
        ),
        Rule(
            "xla-temporal",
            lambda m: (-m.lifetime, -m.size, m.start),
            BEST,
            "longest lifetime first, the larger before, tightest gap",
            xla,
        ),
        Rule(
            "first-fit-lifetime-size",
            lambda m: (-m.lifetime, -m.size),
            FIRST,
            "longest lifetime first, the larger before, lowest gap",
            "TPU-MLIR, allocation of local memory",
        ),
        Rule(
            "first-fit-lifetime",
            lambda m: (-m.sections,),
            FIRST,
            "longest lifetime (in sections) first, lowest gap",
            folklore,
            scalable=True,
        ),
        Rule("first-fit-area", lambda m: (-m.area,), FIRST, "largest area first", folklore),
        Rule("best-fit-area", lambda m: (-m.area,), BEST, "largest area first", folklore),
        Rule("first-fit-size", lambda m: (-m.size,), FIRST, "largest first", folklore),
        Rule("first-fit-start", lambda m: (m.start, -m.size), FIRST, "earliest first", folklore),
        Rule("best-fit-start", lambda m: (m.start, -m.size), BEST, "earliest first", folklore),
        Rule(
            "greedy-by-conflicts",
            lambda m: (-m.conflicts, -m.size),
            TOP,
            "most conflicts first, on top of all it meets",
            "TVM, unified static memory planner",
        ),
        Rule(
            "bank-aware",
            lambda m: (-m.lifetime, -m.size),
            BANKS,
            "longest lifetime first, where fewest partners share its banks, within one bank",
            "TPU-MLIR, allocation of local memory",
        ),
    ]
    return {rule.name: rule for rule in rules}


RULES = _rules()
