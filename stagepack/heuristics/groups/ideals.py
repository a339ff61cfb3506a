"""Ideals of a network: sets of operators that contain every operator whose output they read.

A plan is a chain of ideals from the empty set to all operators; each step adds a group.  The groups
that can be part of such a chain are exactly the convex sets of the network with an acyclic
quotient: no path leaves a group and enters it again.  The number of ideals depends on the branches
of a network: a chain of n operators has n + 1, blocks of four branches have a few hundred each, and
p parallel operators have 2^p.

An ideal is an integer with bit k for operator k.  The operators outside an ideal take at least the
cycles of their compute, and at least those of their transfers: weights, tensors from elsewhere
(once each), and results.

Cost: O(ideals * operators that can run next) steps over the readers of one.  Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.least import least
from stagepack.heuristics.groups.network import machine, network
from stagepack.heuristics.groups.tuning import TUNING, PathsTuning
from stagepack.instances.groups import LayerGrouping
from stagepack.progress import Stopped


class Left(NamedTuple):
    """Least cycles of what is not in an ideal."""

    compute: int
    transfers: int


class Network:
    """Who reads whom, as sets of bits, and what every operator takes at least."""

    def __init__(self, instance: LayerGrouping, tuning: PathsTuning = TUNING.paths) -> None:
        self.n, self.tuning = instance.n, tuning
        self.before = [0] * self.n
        for at, given in enumerate(instance.reads):
            for tensor in given:
                self.before[at] |= (1 << tensor) if tensor < self.n else 0
        self.readers = [sum(1 << at for at in t.readers) for t in instance.tensors]
        self.reads = [tuple(dict.fromkeys(given)) for given in instance.reads]
        self.lone = sum(1 << at for at in range(self.n) if instance.alone(at))
        known = least(network(instance), machine(instance))
        self.compute, self.weights = known.compute.tolist(), known.weights.tolist()
        self.kept, self.loads = known.kept.tolist(), known.loads.tolist()

    def all_left(self) -> Left:
        """Return the least cycles of all operators."""
        moved = sum(self.weights) + sum(self.kept) + sum(self.loads[self.n :])
        return Left(sum(self.compute), moved)

    def after(self, left: Left, ideal: int, k: int) -> Left:
        """Return what is left once operator `k` has joined an ideal.

        `left` is what was left before, `ideal` the one with k.
        """
        moved = left.transfers - self.weights[k] - self.kept[k] + self.loads[k]
        for tensor in self.reads[k]:
            if not self.readers[tensor] & ~ideal:
                moved -= self.loads[tensor]
        return Left(left.compute - self.compute[k], moved)

    def freed(self, ideal: int, k: int) -> int:
        """Return the operators that may join an ideal since operator k has, as bits."""
        found = 0
        rest = self.readers[k]
        while rest:
            reader = rest.bit_length() - 1
            rest ^= 1 << reader
            if not self.before[reader] & ~ideal:
                found |= 1 << reader
        return found


Lattice = dict[int, Left]
"""Ideals by size, the fewest operators first, and what is left beside each."""


def lattice(network: Network, most: int, keep_going: Callable[[], bool]) -> Lattice | None:
    """Return all ideals; None where they are more than `most`.

    `keep_going` is asked several times a second; :class:`.Stopped` is raised once it says no.
    """
    found: Lattice = {0: network.all_left()}
    first = sum(1 << k for k, before in enumerate(network.before) if not before)
    level, often = {0: first}, network.tuning.ideals_at_once
    while level:
        larger: dict[int, int] = {}
        for at, (ideal, ready) in enumerate(level.items()):
            if at % often == 0:
                spend(network.tuning.listing_price * min(often, len(level) - at))
                if not keep_going():
                    raise Stopped
            rest = ready
            while rest:
                k = (rest & -rest).bit_length() - 1
                rest &= rest - 1
                grown = ideal | 1 << k
                if grown not in larger:
                    larger[grown] = ready ^ 1 << k | network.freed(grown, k)
                    found[grown] = network.after(found[ideal], grown, k)
            if len(found) > most:
                return None
        level = larger
    return found


def chains(network: Network, orders: Iterable[Sequence[int]]) -> Lattice:
    """Return the ideals that some topological orders pass through."""
    found: Lattice = {0: network.all_left()}
    for order in orders:
        ideal = 0
        for k in order:
            grown = ideal | 1 << k
            if grown not in found:
                found[grown] = network.after(found[ideal], grown, k)
            ideal = grown
    return _by_size(found)


def around(
    network: Network, order: Sequence[int], stops: Sequence[int], first: int, most: int
) -> tuple[Lattice, int]:
    """Return some ideals of an order, all others of a window along it, and where that ends.

    `order` is a topological one, and `stops` how many operators are in the ideals of it that are
    wanted, with 0 and all.  `first` operators come before the window, which may have `most` ideals;
    it has one operator at least.
    """
    along = list(chains(network, [order]).items())
    window = dict(along[first : first + 1])
    end = first
    for k in order[first:]:
        more = {}
        for ideal, left in window.items():
            if not network.before[k] & ~ideal:
                more[ideal | 1 << k] = network.after(left, ideal | 1 << k, k)
        if end > first and len(window) + len(more) > most:
            break
        window |= more
        end += 1
    spend(network.tuning.listing_price * (len(along) + len(window)))
    return _by_size(window | {along[at][0]: along[at][1] for at in stops}), end


def _by_size(found: Lattice) -> Lattice:
    """Return ideals with the fewest operators first."""
    return dict(sorted(found.items(), key=lambda pair: pair[0].bit_count()))
