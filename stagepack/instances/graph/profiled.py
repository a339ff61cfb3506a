"""Graph partitions made from a profile of layers and a cluster.

A node has the bytes of its layer that are always in memory (parameters, gradients, state).  Bytes
that are alive only while a layer runs, and code that equal layers share, are not sums over nodes
and are left out, but told.  All links have the least bandwidth between devices; their idle cycles
are ignored.  Training adds forward and backward cycles and counts traffic twice, since a gradient
is sent back for every tensor.  With two passes each layer is two nodes of one colour, ``id`` and
``id.backward``.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.joining import Joined
from stagepack.instances.profile import Cluster, Lifetimes, ModelProfile

FREE = 10**18
"""Bytes in a cycle where no link has a bandwidth."""


def columns(profile: ModelProfile, *, training: bool, passes: bool) -> JsonObject:
    """Return the layers of a profile as arguments of :meth:`.GraphPartition.from_arrays`.

    Nodes of the backward pass follow in `training`, if `passes` as nodes of their own.  Refuses
    what :class:`.Lifetimes` does.
    """
    lifetimes = Lifetimes.of(profile)
    layers, times = profile.layers, 1 + (training and not passes)
    readers: dict[str, list[int]] = {name: [] for layer in layers for name in layer.outputs}
    for at, layer in enumerate(layers):
        for name in dict.fromkeys(layer.inputs):
            if name in readers:
                readers[name].append(at)
    ids = _distinct([layer.name or f"layer {at}" for at, layer in enumerate(layers)])
    writers = [(at, name) for at, layer in enumerate(layers) for name in layer.outputs]
    once: JsonObject = {
        "time": [layer.forward + (layer.backward if times == 2 else 0) for layer in layers],
        "time_unit": "cycles",
        "memory": [sum(layer.exclusive.values()) for layer in layers],
        "stash": [layer.stash if training else 0 for layer in layers],
        "parameters": [layer.exclusive.get("parameters", 0) for layer in layers],
        "colour": _colours(profile),
        "producer": [at for at, _ in writers],
        "consumers": [readers[name] for _, name in writers],
        "traffic": [times * profile.tensors[name] for _, name in writers],
        "ids": ids,
        "uncounted": uncounted(profile, lifetimes, training),
    }
    return _two(profile, once) if passes else once


def uncounted(profile: ModelProfile, lifetimes: Lifetimes, training: bool) -> dict[str, int]:
    """Return the bytes that a chain of these layers counts and a graph leaves out, by term.

    `training` adds those of the backward pass; `lifetimes` are those of the `profile`.

    Of `temporary` and `carry` those of the layer that has most, of `shared` those of all keys.
    """
    keys = {key: nbytes for layer in profile.layers for key, nbytes in layer.shared.items()}
    own = (max(one.temporary, training * one.backward_temporary) for one in profile.layers)
    found = {
        "temporary": max(own),
        "carry": int(lifetimes.carried().max()),
        "shared": sum(keys.values()),
    }
    return {name: nbytes for name, nbytes in found.items() if nbytes}


def _two(profile: ModelProfile, once: JsonObject) -> JsonObject:
    """Return columns with a backward node for each layer, after all forward ones."""
    layers, n = profile.layers, len(profile.layers)
    born = {name: at for at, layer in enumerate(layers) for name in layer.outputs}
    gradients = [
        (n + at, [n + born[name]], profile.tensors[name])
        for at, layer in enumerate(layers)
        for name in dict.fromkeys(layer.inputs)
        if name in born
    ]
    fresh = max(once["colour"], default=-1) + 1
    colour = [own if own >= 0 else fresh + at for at, own in enumerate(once["colour"])]
    return {
        "time": once["time"] + [layer.backward for layer in layers],
        "time_unit": once["time_unit"],
        "memory": once["memory"] + [0] * n,
        "stash": once["stash"] + [0] * n,
        "parameters": once["parameters"] + [0] * n,
        "colour": 2 * colour,
        "backward": [False] * n + [True] * n,
        "producer": once["producer"] + [writer for writer, _, _ in gradients],
        "consumers": once["consumers"] + [read for _, read, _ in gradients],
        "traffic": once["traffic"] + [nbytes for _, _, nbytes in gradients],
        "ids": once["ids"] + [f"{name}.backward" for name in once["ids"]],
        "uncounted": once["uncounted"],
    }


def _colours(profile: ModelProfile) -> list[int]:
    """Return a colour for all layers that share variables, directly or by others; -1 for none."""
    joined = Joined[str]()
    for layer in profile.layers:
        for name in layer.variables[1:]:
            joined.join(name, layer.variables[0])
    first = [layer.variables[0] if layer.variables else None for layer in profile.layers]
    roots = [None if name is None else joined.root(name) for name in first]
    users = Counter(roots)
    several = [name for name, count in users.items() if name is not None and count > 1]
    number = {name: at for at, name in enumerate(several)}
    return [-1 if name is None else number.get(name, -1) for name in roots]


def _distinct(names: list[str]) -> list[str]:
    """Return names, those that come again with their number in the profile."""
    seen: set[str] = set()
    found = []
    for at, name in enumerate(names):
        found.append(f"{name} #{at}" if name in seen else name)
        seen.add(name)
    return found


def machine(cluster: Cluster) -> JsonObject:
    """Return a cluster, all or none of whose devices have a limit, as arguments of
    :meth:`.GraphPartition.from_arrays`.
    """
    memories = [device.memory for device in cluster.devices]
    limits = [memory for memory in memories if memory is not None]
    if limits and len(limits) < len(memories):
        raise InputError(
            "only some devices have a limit", field="capacity", remedy="give all of them one"
        )
    links = [
        Fraction(link.GBps)
        for device in cluster.devices
        for link in (device.recv, device.send)
        if link is not None
    ]
    pace = min(links) * 2**30 / Fraction(cluster.clock) if links else Fraction(FREE)
    return {
        "clock": cluster.clock,
        "accelerators": len(cluster),
        "speeds": [device.speed for device in cluster.devices],
        "capacity": limits or None,
        "bandwidth": pace.numerator if pace.denominator == 1 else float(pace),
    }
