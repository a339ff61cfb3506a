"""Lower bounds on the cycles of operators: of their compute, and of their transfers.

The parts of tensors are those that the whole network needs as one uncut group: no group computes
less, and its slices together do not either.  Loads are at least those of the operator that reads
least of a tensor.  Cores share slices.  A plan takes at least the sum over all operators of compute
or of transfers, whichever is larger.

Cost: O(operators + edges + weights).  Source: ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.groups.least_kernels import least as kernel
from stagepack.heuristics.groups.network_state import (
    END_EDGE,
    FIRST_EDGE,
    READ,
    Machine,
    Network,
)
from stagepack.instances.profile import Array


class Least(NamedTuple):
    """Least cycles, however operators are grouped and cut."""

    # int64 (n,): of every operator its compute, the loads of its weights, and the store of its
    # result where it is one of the network.
    compute: Array
    weights: Array
    kept: Array
    loads: Array  # int64 (tensors,): of a tensor, where it is loaded


def least(net: Network, machine: Machine) -> Least:
    """Return the least that every operator takes."""
    tensors, n = len(net.tensors), len(net.operators)
    met = np.zeros((tensors, 2), np.int64)
    met[:, 1] = -1
    cycles, loads = np.zeros((n, 3), np.int64), np.zeros(tensors, np.int64)
    ranges = np.zeros((tensors, 5), np.int64), np.zeros((tensors, 5), np.int64)
    kernel(net, machine, *ranges, met, cycles, loads)
    compute, weights, kept = cycles.T
    return Least(compute, weights, kept, loads)


def behind(net: Network, machine: Machine) -> Array:
    """Return the least cycles of all operators from each one on; 0 behind the last."""
    known = least(net, machine)
    n = len(known.compute)
    last = np.full(len(net.tensors), -1)
    edges = net.operators[:, END_EDGE] - net.operators[:, FIRST_EDGE]
    np.maximum.at(last, net.edges[:, READ], np.repeat(np.arange(n), edges))
    moved = known.weights + known.kept
    inputs = np.flatnonzero((last >= 0) & (np.arange(len(last)) >= n))
    np.add.at(moved, last[inputs], known.loads[inputs])
    found = np.zeros(n + 1, np.int64)
    for cycles in (known.compute, moved):
        np.maximum(found[:n], np.cumsum(cycles[::-1])[::-1], out=found[:n])
    return found
