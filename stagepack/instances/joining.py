"""Disjoint sets (union-find) with path halving, and circles.

Source: Tarjan and van Leeuwen, *Worst-case analysis of set union algorithms*, 1984.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)


class Joined(Generic[ItemT]):
    """Sets of items, each by itself until it is joined with another."""

    def __init__(self) -> None:
        self._above: dict[ItemT, ItemT] = {}

    def root(self, item: ItemT) -> ItemT:
        """Return the item that stands for the set of `item`."""
        above = self._above
        while above.setdefault(item, item) != item:
            above[item] = above[above[item]]
            item = above[item]
        return item

    def join(self, item: ItemT, other: ItemT) -> None:
        """Make one set of those of two items."""
        self._above[self.root(item)] = self.root(other)

    def sets(self, items: Iterable[ItemT]) -> list[list[ItemT]]:
        """Return items by sets, in the order in which they come."""
        found: dict[ItemT, list[ItemT]] = {}
        for item in items:
            found.setdefault(self.root(item), []).append(item)
        return list(found.values())


def circle(pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return a circle among pairs (before, after), from its least item on; [] where there is none.

    O(pairs).
    """
    sorter = TopologicalSorter[int]()
    for before, after in pairs:
        sorter.add(after, before)
    try:
        sorter.prepare()
    except CycleError as error:
        found: list[int] = error.args[1][:-1]
        least = found.index(min(found))
        return found[least:] + found[:least]
    return []
