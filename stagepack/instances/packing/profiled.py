"""A profile of layers as the columns of a packing: buffers from the liveness of tensors.

Inference runs the n layers one after the other.  A tensor lives from the layer that writes it (from
the begin, if the host gives it) up to the last one that reads it, the result to the end; inner
tensors live while their layer runs.

Training runs the layers forward and, in steps n .. 2 n - 1, backward in the opposite order.  Every
tensor stays until the backward pass of the first layer that reads it; what a layer keeps beside
its inputs (attention scores, raw results of convolutions) until its own backward pass.  The
gradient of a tensor lives from the backward pass of the last layer that reads it up to that of the
layer that wrote it.  Weights and their gradients are no activations: on a device they are one
buffer, with state and code, that is there all the time.

Sizes are rounded up to 64 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagepack.contracts import JsonObject
from stagepack.instances.profile import Cluster, Lifetimes, ModelProfile, inner_bytes

ALIGNMENT = 64
HELD = "held by the layers"
Row = tuple[str, int, int, int]
"""Name, bytes, [start, end) in steps."""


def columns(profile: ModelProfile, cluster: Cluster | None, *, training: bool) -> JsonObject:
    """Return what a network keeps as arguments of :meth:`.LmemPacking.from_arrays`.

    The first device of a `cluster` is the memory, which holds what layers hold for good, too.
    Refuses what :class:`.Lifetimes` does, in `training` of both passes.
    """
    Lifetimes.of(profile)
    rows = _training(profile) if training else _inference(profile)
    machine: JsonObject = {}
    if cluster is not None:
        steps = len(profile.layers) * (1 + training)
        rows.insert(0, (HELD, _held(profile), 0, steps))
        capacity = cluster.devices[0].memory
        machine = {"capacity": capacity, "objective": "peak" if capacity is None else "fit"}
    rows = [row for row in rows if row[1]]
    return {
        "size": [-(-nbytes // ALIGNMENT) * ALIGNMENT for _, nbytes, _, _ in rows],
        "start": [start for _, _, start, _ in rows],
        "end": [end for _, _, _, end in rows],
        "ids": different([name for name, _, _, _ in rows]),
        **machine,
    }


def different(names: Sequence[str]) -> list[str]:
    """Return names of which none comes twice."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _held(profile: ModelProfile) -> int:
    """Return the bytes that layers hold for good, on one device."""
    shared = {key: nbytes for layer in profile.layers for key, nbytes in layer.shared.items()}
    return sum(shared.values()) + sum(sum(layer.exclusive.values()) for layer in profile.layers)


def _inference(profile: ModelProfile) -> list[Row]:
    n = len(profile.layers)
    born, used = _liveness(profile)
    for name in profile.results or ():
        used.setdefault(name, []).append(n - 1)
    rows = [
        (name, profile.tensors[name], max(0, born[name]), max(used.get(name, [n - 1])) + 1)
        for name in born
    ]
    return rows + _inner(profile, lambda layer: layer)


def _training(profile: ModelProfile) -> list[Row]:
    n = len(profile.layers)
    born, used = _liveness(profile)
    rows: list[Row] = []
    for name, writer in born.items():
        nbytes = profile.tensors[name]
        readers = used.get(name, [n - 1])
        rows.append((name, nbytes, max(0, writer), 2 * n - min(readers)))
        if writer >= 0:
            rows.append((f"gradient of {name}", nbytes, 2 * n - 1 - max(readers), 2 * n - writer))
    for at, layer in enumerate(profile.layers):
        kept = layer.stash - sum(profile.tensors[name] for name in dict.fromkeys(layer.inputs))
        rows.append((f"kept by {layer.name}", max(0, kept), at, 2 * n - at))
    return (
        rows
        + _inner(profile, lambda layer: layer)
        + [
            (f"backward {name}", nbytes, start, end)
            for name, nbytes, start, end in _inner(profile, lambda layer: 2 * n - 1 - layer)
        ]
    )


def _liveness(profile: ModelProfile) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return which layer writes each tensor (-1: the host), and which read it."""
    born: dict[str, int] = {}
    used: dict[str, list[int]] = {}
    for at, layer in enumerate(profile.layers):
        for name in layer.inputs:
            born.setdefault(name, -1)
            used.setdefault(name, []).append(at)
        born.update(dict.fromkeys(layer.outputs, at))
    return born, used


def _inner(profile: ModelProfile, step: Callable[[int], int]) -> list[Row]:
    return [
        (f"inside {layer.name}", nbytes, step(at), step(at) + 1)
        for at, (layer, nbytes) in enumerate(zip(profile.layers, inner_bytes(profile), strict=True))
    ]
