"""Kernel of the lower bounds on each operator, over all groups and cuts in which it may run.

Cost and source: see :mod:`.least`.
"""

from __future__ import annotations

from stagepack.heuristics.groups.group_kernels import compute
from stagepack.heuristics.groups.growth_kernels import ceil, moved, reads
from stagepack.heuristics.groups.network_state import (
    CHANNELS,
    END_EDGE,
    END_WEIGHT,
    FIRST_EDGE,
    FIRST_WEIGHT,
    READ,
    READERS,
    VALUE_BYTES,
    VALUES,
    WIDTH,
    C,
    Machine,
    Network,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered

AXES = 5


@tiered(entries)
def least(
    net: Network,
    machine: Machine,
    start: Array,
    length: Array,
    met: Array,
    cycles: Array,
    loads: Array,
) -> None:
    """Go from the last operator to the first, as if all were one group in one slice.

    All arrays are int64.  `start` and `length`, (tensors, 5), are room for ranges, lengths 0 at
    first; `met`, (tensors, 2), for how many operators read a tensor, and the last of them that was
    met, 0 and -1 at first.  `cycles`, (n, 3), gets of every operator those of its compute, its
    weights, and its result, if it is one; `loads`, (tensors,), the cycles in which a tensor is
    loaded for that operator which reads the least of it.
    """
    for k in range(len(net.operators) - 1, -1, -1):
        # Fewer readers than it has were met: the network itself is the other one.
        result = met[k, 0] < net.tensors[k, READERS]
        values = net.tensors[k, WIDTH]
        for axis in range(AXES):
            values *= net.tensors[k, axis]
            if result:
                start[k, axis], length[k, axis] = 0, net.tensors[k, axis]
        if result:
            # Cores share slices: each moves its part at the same time.
            nbytes = ceil(values, machine.cores)
            cycles[k, 2] = moved(nbytes, machine.store_latency, machine.store)
        # All that its readers need, as they were met before.
        box = length[k]
        work = compute(net, machine, k, box[0], box[1], box[2], box[3], box[4])
        cycles[k, 0] = ceil(work, machine.cores)
        for weight in range(net.operators[k, FIRST_WEIGHT], net.operators[k, END_WEIGHT]):
            share = ceil(net.weights[weight, CHANNELS] * box[1], net.tensors[k, C])
            nbytes = share * net.weights[weight, VALUES] * net.weights[weight, VALUE_BYTES]
            cycles[k, 1] += moved(ceil(nbytes, machine.cores), machine.load_latency, machine.load)
        for edge in range(net.operators[k, FIRST_EDGE], net.operators[k, END_EDGE]):
            tensor = net.edges[edge, READ]
            nbytes = net.tensors[tensor, WIDTH]
            for axis in range(AXES):
                size = net.tensors[tensor, axis]
                first, count = reads(net, k, edge, axis, start[k, axis], length[k, axis], size)
                nbytes *= count
                # The hull of what several readers need.
                if length[tensor, axis] > 0:
                    end = max(start[tensor, axis] + length[tensor, axis], first + count)
                    first = min(first, start[tensor, axis])
                    count = end - first
                start[tensor, axis], length[tensor, axis] = first, count
            fewest = moved(ceil(nbytes, machine.cores), machine.load_latency, machine.load)
            # Readers may be in different groups, each of which loads its own part.
            if met[tensor, 0] == 0 or fewest < loads[tensor]:
                loads[tensor] = fewest
            if met[tensor, 1] != k:
                met[tensor, 0], met[tensor, 1] = met[tensor, 0] + 1, k
