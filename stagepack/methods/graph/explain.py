"""Why a graph has no feasible partition: the nodes that fit nowhere, and which limits to raise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from stagepack.heuristics.graph.linear import Hunt
from stagepack.heuristics.graph.reduction import most_held
from stagepack.heuristics.graph.staging import Found, Staging
from stagepack.heuristics.graph.tuning import TUNING, GraphTuning
from stagepack.heuristics.graph.ways import spread
from stagepack.instances.graph import Compact, Objective
from stagepack.instances.graph.compact import FORBIDDEN, UNLIMITED
from stagepack.instances.graph.data import GraphData
from stagepack.instances.profile import Array


def explain(compact: Compact, tuning: GraphTuning = TUNING) -> str:
    """Return why an instance that has no partition has none, and what would make one possible."""
    return impossible(compact) or _what_would_do(compact, tuning)


def _what_would_do(compact: Compact, tuning: GraphTuning) -> str:
    """Name the rules that no partition keeps together, and which of them to loosen, how far."""
    limited = compact.class_memory < UNLIMITED
    every, fixed = compact.exact_stages, compact.sequence is not None
    rules, remedies = [], []
    if limited.any():
        least = int(compact.class_memory[limited].min())
        rules.append(f"the memory of devices ({least:,} bytes of the smallest)")
        enough = _enough(compact, limited, tuning)
        if enough:
            remedies.append(f"{enough:,} bytes for each device ({enough - least:,} more)")
    if every:
        rules.append("the use of every device")
        if _has_partition(dataclasses.replace(compact, exact_stages=False), tuning):
            remedies.append("devices that may stay empty (empty_devices)")
    if fixed:
        rules.append("the order of devices")
        if _has_partition(dataclasses.replace(compact, sequence=None), tuning):
            remedies.append("devices in any order (device_order)")
    told = ", ".join(rules) or "which devices nodes may run on"
    would_do = ", or ".join(remedies) or "more memory, or more devices,"
    return (
        f"nodes of {most_held(compact).sum():,} bytes in all cannot be dealt out so as to keep to "
        f"all of these: {told}; {would_do} would do"
    )


def _enough(compact: Compact, limited: Array, tuning: GraphTuning) -> int:
    """Return bytes of each device with memory limits with which some partition is found, or 0.

    As few as the orders that are looked at tell; fewer may do.
    """

    def fits(memory: int) -> bool:
        room = np.where(limited, np.maximum(compact.class_memory, memory), compact.class_memory)
        return _has_partition(dataclasses.replace(compact, class_memory=room), tuning)

    low, high = int(compact.class_memory[limited].min()), int(most_held(compact).sum())
    if not fits(high):
        return 0
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _has_partition(compact: Compact, tuning: GraphTuning) -> bool:
    """Return whether some partition along a few orders fits."""
    if compact.blocks > tuning.explained_blocks:
        return False
    found: list[Found] = []
    sequence = spread(compact, tuning.ideals.most_states)
    staging = Staging.of(compact, sequence=sequence, tuning=tuning)
    Hunt(staging, lambda: None, found.append, seed=0).search(tuning.explained_orders, 0, math.inf)
    return bool(found)


def impossible(compact: Compact) -> str:
    """Return a reason that there is no partition; "" where none is plain to see.

    Looks at single nodes, then at blocks of nodes that cannot be parted, at the number of devices,
    and at their memory as a whole.  O(nodes + classes * blocks).
    """
    return (
        _homeless_node(compact)
        or _torn_block(compact)
        or _large_block(compact)
        or _few_blocks(compact)
        or _little_memory(compact)
    )


def _homeless_node(compact: Compact) -> str:
    """Name a node that may run on no device that there is."""
    instance = compact.instance
    kinds = {"accelerator": instance.accelerators > 0, "CPU": instance.cpus > 0}
    may = (instance.accelerator & kinds["accelerator"]) | (instance.cpu & kinds["CPU"])
    if may.all():
        return ""
    at = int(np.argmin(may))
    there = " and no ".join(kind for kind, has in kinds.items() if has)
    remedy = "let it run on one of them"
    if instance.accelerator[at]:
        remedy = "give an accelerator, on which it may run"
    elif instance.cpu[at]:
        remedy = "give a CPU, on which it may run"
    return f"node {instance.node_name(at)} may run on no {there}; {remedy}"


def _torn_block(compact: Compact) -> str:
    """Name nodes that have to be together, and of which no device may run all."""
    lost = (compact.time >= FORBIDDEN).any(axis=0).all(axis=0)
    if not lost.any():
        return ""
    nodes, instance = np.flatnonzero(compact.block_of == np.argmax(lost)), compact.instance
    first = {
        kind: instance.node_name(int(nodes[np.argmin(allowed[nodes])]))
        for kind, allowed in (("accelerator", instance.accelerator), ("CPU", instance.cpu))
        if not allowed[nodes].all()
    }
    who = ", ".join(f"{name} may run on no {kind}" for kind, name in first.items())
    return f"{_together(compact, nodes)} share a device, but {who}; part them, or let them run"


def _large_block(compact: Compact) -> str:
    """Name the block that exceeds every device on which it may run by the most bytes."""
    needs = compact.size + compact.stash
    may = (compact.time < FORBIDDEN).all(axis=0)
    room = np.where(may, compact.class_memory[:, None], 0).max(axis=0)
    over = needs - room
    block = int(np.argmax(over))
    if over[block] <= 0:
        return ""
    nodes = np.flatnonzero(compact.block_of == block)
    what = f"{_together(compact, nodes)} need" if len(nodes) > 1 else ""
    what = what or f"node {compact.instance.node_name(int(nodes[0]))} needs"
    return (
        f"{what} {needs[block]:,} bytes but the largest device for it has {room[block]:,}: "
        f"{over[block]:,} too many; give a device of {needs[block]:,} bytes"
    )


def _few_blocks(compact: Compact) -> str:
    """Say that there are more devices than blocks, where none may be empty."""
    # Replicas of one stage use several devices.
    if not compact.exact_stages or compact.objective == Objective.REPLICATED:
        return ""
    if compact.devices <= compact.blocks:
        return ""
    return (
        f"{compact.devices:,} devices need {compact.devices:,} stages, but the graph can be cut "
        f"into {compact.blocks:,} at most: nodes of one colour, and those between them, stay "
        "together; use fewer devices or allow empty ones (empty_devices)"
    )


def _little_memory(compact: Compact) -> str:
    """Say by how much all that only accelerators may hold exceeds them together."""
    limited = compact.class_memory < UNLIMITED
    may = (compact.time < FORBIDDEN).all(axis=0)
    held = ~(may & ~limited[:, None]).any(axis=0)
    # A block of the last stage has one microbatch in flight, all others more.
    needs = int((compact.size + compact.stash)[held].sum())
    limits = zip(compact.class_count[limited], compact.class_memory[limited], strict=True)
    room = sum(int(count) * int(memory) for count, memory in limits)
    if needs <= room:
        return ""
    count = int(compact.class_count[limited].sum())
    each = -(-needs // count)
    return (
        f"the graph needs at least {needs:,} bytes but all devices together have {room:,}: "
        f"{needs - room:,} too many; give at least {each:,} bytes each, or more devices"
    )


def _together(compact: Compact, nodes: Array) -> str:
    """Return nodes that are in one block, in words."""
    instance: GraphData = compact.instance
    colours = set(instance.colour[nodes].tolist())
    names = ", ".join(instance.node_name(int(node)) for node in nodes[:2])
    if len(nodes) > 2:
        names += ", ..."
    if len(colours) == 1:
        return f"the {len(nodes):,} nodes of colour {colours.pop()} ({names})"
    return f"{len(nodes):,} nodes that colours keep together ({names})"
