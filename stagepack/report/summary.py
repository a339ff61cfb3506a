"""What is in an instance, in a few plain figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.pipeline import KIND as PIPELINE
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.check import host_cycles
from stagepack.instances.pipeline.estimate import estimate
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.report import format as as_text
from stagepack.result import InputError, finite

__all__ = ["estimate", "facts", "lines"]


def facts(instance: Any) -> dict[str, Any]:
    """Return sizes, totals and simple bounds of an instance as plain JSON data."""
    found: dict[str, Any] = {
        "name": instance.name,
        "problem": instance.kind,
        "objective": str(instance.objective),
        "digest": instance.digest,
    }
    if getattr(instance, "source", ""):
        found["source"] = instance.source
    if instance.kind == PIPELINE:
        found.update(_pipeline(instance))
    plain: dict[str, Any] = finite(found)
    return plain


def _pipeline(instance: PipelinePartition) -> dict[str, Any]:
    cluster, cycles = instance.cluster, instance.cycles
    memory = [device.memory for device in cluster.devices]
    limits = [nbytes for nbytes in memory if nbytes is not None]
    largest = int(np.argmax(cycles))
    found: dict[str, Any] = {
        "layers": instance.n,
        "devices": instance.k,
        "kinds_of_devices": len({device.kind for device in cluster.devices}),
        "cluster": cluster.name or None,
        "clock": cluster.clock,
        "training": instance.training,
        "microbatches": instance.microbatches if instance.training else None,
        "host_transfer": instance.host_transfer,
        "host_cycles": host_cycles(instance),
        "cuts": instance.n - 1,
        "allowed_cuts": int(instance.allowed_cuts[1:-1].sum()),
        "fixed_cuts": len(instance.fixed_cuts),
        "variables": len(instance.variables),
        "cycles": cycles.sum().item(),
        "largest_layer": {
            "index": largest,
            "name": instance.layer_name(largest),
            "cycles": cycles[largest].item(),
        },
        "exclusive_bytes": {name: int(col.sum()) for name, col in instance.exclusive.items()},
        "shared_bytes": int(instance.shared.nbytes.sum()),
        "shared_keys": len(instance.shared.nbytes),
        "peak_bytes": int((instance.temporary + instance.carry).max()),
        "stash_bytes": int(instance.stash.sum()) if instance.training else None,
        "capacity": None if not limits else {"least": min(limits), "most": max(limits)},
        "total_capacity": sum(limits) if len(limits) == len(memory) else None,
        "tables": instance.compute_table is not None or instance.memory_table is not None,
    }
    try:
        costs = RangeCosts(instance)
        found["compute_bound"] = costs.value(costs.compute_bound())
    except InputError:  # figures beyond the exact range: solving says so
        found["compute_bound"] = None
    return found


def lines(instance: Any) -> list[tuple[str, str]]:
    """Return the facts of an instance as (what, text) for people."""
    given = facts(instance)
    if instance.kind != PIPELINE:
        return [("Problem", given["problem"]), ("Objective", given["objective"])]
    number, quantity = as_text.number, as_text.quantity
    mode = "inference"
    if given["training"]:
        count = given["microbatches"]
        mode = f"training, {count:,} microbatch" + ("" if count == 1 else "es")
    kinds = given["kinds_of_devices"]
    devices = number(given["devices"]) + ("" if kinds == 1 else f" of {kinds} kinds")
    layer, capacity = given["largest_layer"], given["capacity"]
    found = [
        ("Problem", given["problem"]),
        ("Objective", given["objective"]),
        ("Mode", mode),
        ("Layers", number(given["layers"])),
        ("Devices", devices + (f" ({given['cluster']})" if given["cluster"] else "")),
        ("Cuts allowed", f"{number(given['allowed_cuts'])} of {number(given['cuts'])}"),
    ]
    if given["cycles"]:
        found += [
            ("Cycles", number(given["cycles"])),
            ("Largest layer", f"{layer['name']}: {number(layer['cycles'])}"),
        ]
    if given["host_cycles"]:
        found.append(("Exchange with host", f"{number(given['host_cycles'])} cycles"))
    if given["compute_bound"]:
        found.append(("Compute is at least", f"{number(given['compute_bound'])} cycles"))
    total = sum(given["exclusive_bytes"].values())
    parts = [(total, "exclusive"), (given["shared_bytes"], "shared")]
    parts += [(given["stash_bytes"] or 0, "stashed")]
    if any(nbytes for nbytes, _ in parts):
        text = ", ".join(f"{quantity(nbytes)} {what}" for nbytes, what in parts if nbytes)
        found.append(("Memory", text))
    if given["peak_bytes"]:
        found.append(("Largest working memory", f"{quantity(given['peak_bytes'])} at one layer"))
    if capacity is None:
        found.append(("Capacity", "no limit"))
    else:
        span = dict.fromkeys((quantity(capacity["least"]), quantity(capacity["most"])))
        found.append(("Capacity of a device", " to ".join(span)))
    return found
