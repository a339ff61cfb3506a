"""Activations of networks: buffers from the liveness of tensors.

Inference runs the n blocks of a network one after the other.  A tensor lives from the block that
writes it (from the begin, if the host gives it) up to the last one that reads it, the result to
the end; inner tensors live while their block runs.

Training runs the blocks forward and, in steps n .. 2 n - 1, backward in the opposite order.  Every
tensor stays until the backward pass of the first block that reads it; what a block keeps beside
its inputs (attention scores, raw results of convolutions) until its own backward pass.  The
gradient of a tensor lives from the backward pass of the last block that reads it up to that of the
block that wrote it.  Weights and their gradients are not activations.

Sizes are rounded up to 64 bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from stagepack.instances.catalog.networks import Network
from stagepack.instances.packing.instance import LmemPacking

ALIGNMENT = 64
Row = tuple[str, int, int, int]
"""Name, bytes, [start, end) in steps."""


def activations(network: Network, *, training: bool) -> LmemPacking:
    """Return the activations of a network as buffers.

    Parameters
    ----------
    network : Network
    training : bool
        Whether a backward pass follows.
    """
    rows = _training(network) if training else _inference(network)
    rows = [row for row in rows if row[1]]
    return LmemPacking.from_arrays(
        [-(-nbytes // ALIGNMENT) * ALIGNMENT for _, nbytes, _, _ in rows],
        [start for _, _, start, _ in rows],
        [end for _, _, _, end in rows],
        ids=[name for name, _, _, _ in rows],
        name=f"activations-{network.name}",
    )


def _inference(network: Network) -> list[Row]:
    n = len(network.blocks)
    born, used = _liveness(network)
    for name in network.results or ():
        used.setdefault(name, []).append(n - 1)
    rows = [
        (name, network.tensors[name], max(0, born[name]), max(used.get(name, [n - 1])) + 1)
        for name in born
    ]
    return rows + _scratch(network, lambda block: block)


def _training(network: Network) -> list[Row]:
    n = len(network.blocks)
    born, used = _liveness(network)
    rows: list[Row] = []
    for name, writer in born.items():
        nbytes = network.tensors[name]
        readers = used.get(name, [n - 1])
        rows.append((name, nbytes, max(0, writer), 2 * n - min(readers)))
        if writer >= 0:
            rows.append((f"gradient of {name}", nbytes, 2 * n - 1 - max(readers), 2 * n - writer))
    for at, block in enumerate(network.blocks):
        kept = block.saved - sum(network.tensors[name] for name in dict.fromkeys(block.inputs))
        rows.append((f"kept by {block.name}", max(0, kept), at, 2 * n - at))
    return (
        rows
        + _scratch(network, lambda block: block)
        + [
            (f"backward {name}", nbytes, start, end)
            for name, nbytes, start, end in _scratch(network, lambda block: 2 * n - 1 - block)
        ]
    )


def _liveness(network: Network) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return which block writes each tensor (-1: the host), and which read it."""
    born: dict[str, int] = {}
    used: dict[str, list[int]] = {}
    for at, block in enumerate(network.blocks):
        for name in block.inputs:
            born.setdefault(name, -1)
            used.setdefault(name, []).append(at)
        born.update(dict.fromkeys(block.outputs, at))
    return born, used


def _scratch(network: Network, step: Callable[[int], int]) -> list[Row]:
    return [
        (f"inside {block.name}", block.scratch, step(at), step(at) + 1)
        for at, block in enumerate(network.blocks)
    ]
