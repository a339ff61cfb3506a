"""A previous cut of a chain: which device holds each layer, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagepack.errors import InputError
from stagepack.instances.pipeline.check import shape
from stagepack.instances.pipeline.data import PartitionData, PipelineSolution
from stagepack.instances.profile import Cluster
from stagepack.result import Result
from stagepack.shown import some

Previous = PipelineSolution | Result[PipelineSolution] | Mapping[str, object] | Sequence[str | None]
"""A cut, or the name of the device that holds each layer, None for none."""


def names_of(cluster: Cluster) -> list[str]:
    """Return the names of devices, each once: those without one by number, others with theirs."""
    found: list[str] = []
    for at, device in enumerate(cluster.devices):
        name = device.name or f"device {at}"
        found.append(f"{name} #{at}" if name in found else name)
    return found


def held_by(
    instance: PartitionData, previous: Previous, devices: Sequence[str] | Cluster | None = None
) -> list[int]:
    """Return the device of an instance that holds each layer, -1 for none.

    `previous` and `devices` are as :meth:`.PipelinePartition.from_previous` takes them.
    """
    now = {name: at for at, name in enumerate(names_of(instance.cluster))}
    held = _holders(instance, previous, devices)
    if any(held) and not now.keys() & set(held):
        raise InputError(
            f"is on {some(sorted({name for name in held if name}))}, none of which is a device of "
            f"{instance.name}",
            field="previous",
            remedy=f"name the devices as here: {some(now)}",
        )
    return [now.get(name or "", -1) for name in held]


def _holders(
    instance: PartitionData,
    previous: Previous,
    devices: Sequence[str] | Cluster | None,
) -> list[str | None]:
    """Return the name of the device that holds each layer."""
    remedy = "give the previous cut of these layers"
    if devices is None and isinstance(previous, Result):
        known = previous.problem
        devices = known.cluster if isinstance(known, PartitionData) else None
    if isinstance(previous, Result):
        if previous.solution is None:
            raise InputError("holds no cut", field="previous", remedy=remedy)
        previous = previous.solution
    if isinstance(previous, Mapping):
        previous = PipelineSolution.from_dict(previous)
    if not isinstance(previous, PipelineSolution):
        held = _all_names(previous, "previous", f"{remedy}, or a device's name for each")
        if len(held) != instance.n:
            raise InputError(
                f"names devices of {len(held):,} layers, of {instance.n:,}",
                field="previous",
                remedy=remedy,
            )
        return held
    cuts = previous.boundaries
    cut = not previous.malformed() and len(previous.devices) == len(cuts) - 1
    if not cut or any(broken.rule == "boundaries" for broken in shape(instance, previous)):
        raise InputError(
            f"[{some(cuts)}] is no cut of {instance.n:,} layers", field="previous", remedy=remedy
        )
    most = max(previous.devices)
    if devices is None:
        devices = instance.cluster
        if not any(device.name for device in devices.devices):  # then numbers are names
            devices = [f"device {at}" for at in range(max(most + 1, instance.k))]
    if isinstance(devices, Cluster):
        devices = names_of(devices)
    names = _all_names(devices, "devices", "give a cluster, or the names of its devices")
    if most >= len(names) or min(previous.devices) < 0:
        raise InputError(
            f"has a stage on device {most}, of {len(names)} named",
            field="previous",
            remedy="give the names of the devices of that cut, in its order (devices)",
        )
    return [names[device] for first, end, device in previous.stages for _ in range(first, end)]


def _all_names(given: object, field: str, remedy: str) -> list[str | None]:
    """Return a row of names; refuse what is none, as what a `field` says."""
    if not isinstance(given, list | tuple):
        raise InputError(f"{str(given)[:40]!r} is no row of names", field=field, remedy=remedy)
    if not all(one is None or isinstance(one, str) for one in given):
        raise InputError("holds what is no name", field=field, remedy=remedy)
    return list(given)
