"""How long devices take that exchange data in a group: rings, trees, and all with all.

A group has two levels: `inner` devices in each of `outer` nodes, with a line near and one far; each
device has a port of its own to either.  A message of S bytes takes ``latency + S / bandwidth``.

- **All-gather**, and reduce-scatter alike: of S bytes that each has afterwards (had before), a ring
  of k passes on S / k in each of k - 1 steps.  Over two levels, nodes first exchange the parts of
  like devices, of S / inner bytes, then devices of a node the whole.
- **All-reduce**: a reduce-scatter and an all-gather; between nodes, if that is faster, up and down
  a binary tree (2 ceil(log2 outer) latencies, twice the bytes).
- **All-to-all**: S bytes of each device go to all of the group in equal parts.  Those for the own
  node and those for others pass at once, over unlike lines; the slower counts.

Sources: Thakur et al., *Optimization of Collective Communication Operations in MPICH*, 2005
(alpha-beta costs of rings and trees); NVIDIA, *NCCL 2.28.7*, ``src/graph/tuning.cc`` (latencies).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagepack.instances.accelerators import GB, Node, Wire


@dataclass(frozen=True)
class Line:
    """What a message waits for: bytes in a nanosecond, and nanoseconds before the first one."""

    rate: float
    latency: float

    @classmethod
    def of(cls, wire: Wire) -> Line:
        """Return the line of a link."""
        return cls(wire.rate * GB / 1e9, 1000 * wire.latency)

    def ring(self, devices: int, nbytes: float) -> float:
        """Return the nanoseconds in which `devices` gather `nbytes` in a ring."""
        return (devices - 1) * (self.latency + nbytes / devices / self.rate)


@dataclass(frozen=True)
class Group:
    """Devices that exchange data: `inner` in each of `outer` nodes, over the lines near and far."""

    inner: int
    outer: int
    near: Line
    far: Line

    @classmethod
    def of(cls, nodes: Sequence[Node], size: int, stride: int = 1) -> Group:
        """Return the group of `size` devices of some `nodes`, each `stride` behind the one before.

        Of unlike nodes, it has as many in each as divide all; of unlike lines the slowest count.
        """
        near, far = (
            Line.of(min(wires, key=lambda wire: wire.rate))
            for wires in ({node.near for node in nodes}, {node.far for node in nodes})
        )
        room = math.gcd(*(node.devices for node in nodes)) if len(nodes) > 1 else nodes[0].devices
        inner = math.gcd(size, room // stride) if room % stride == 0 else 1
        inner = size if len(nodes) == 1 else inner
        return cls(inner, size // inner, near, far)

    @property
    def size(self) -> int:
        """Number of its devices."""
        return self.inner * self.outer

    def all_gather(self, nbytes: float) -> float:
        """Return the nanoseconds after which each has `nbytes`, of each an equal part."""
        return self.far.ring(self.outer, nbytes / self.inner) + self.near.ring(self.inner, nbytes)

    def all_reduce(self, nbytes: float) -> float:
        """Return the nanoseconds after which each has the sum of `nbytes` of all."""
        part = nbytes / self.inner
        ups = (self.outer - 1).bit_length()  # levels of a tree of that many nodes
        tree = 2 * (ups * self.far.latency + (ups > 0) * part / self.far.rate)
        between = min(2 * self.far.ring(self.outer, part), tree)
        return between + 2 * self.near.ring(self.inner, nbytes)

    def all_to_all(self, nbytes: float) -> float:
        """Return the nanoseconds in which each sends equal parts of `nbytes` to all."""
        own, others = self.inner - 1, self.size - self.inner
        inside = (own > 0) * self.near.latency + nbytes * own / self.size / self.near.rate
        outside = (others > 0) * self.far.latency + nbytes * others / self.size / self.far.rate
        return max(inside, outside)
