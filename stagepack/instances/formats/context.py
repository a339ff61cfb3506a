"""What a file does not say, or says differently from what is wanted: devices, objective, ..."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from stagepack.instances.catalog import clusters
from stagepack.instances.catalog.parameters import coerce
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.result import InputError

MACHINE = frozenset({"devices", "cluster", "bandwidth", "capacity", "speed"})
JOB = frozenset(
    {"training", "microbatches", "objective", "host_transfer", "fewer_stages", "free_order"}
)
PACKING = frozenset({"capacity", "objective", "alignment", "period"})
PHASES = frozenset({"capacity", "objective", "training"})
SCHEDULE = frozenset({"capacity", "objective", "microbatches", "latency", "steps"})


@dataclass(frozen=True, kw_only=True)
class Context:
    """What is said beside a file; None: nothing.

    Attributes
    ----------
    devices : int
        Number of devices.
    cluster : Cluster
        The devices and links in full (given by name or as they are).
    bandwidth : float
        GB/s (2**30 bytes a second) of every link.
    capacity : int
        Usable bytes of every device, or of the memory to pack.
    speed : list of float
        Relative speeds, one for all or one a device.
    training, microbatches, objective, host_transfer, fewer_stages, free_order
        As in :class:`stagepack.instances.pipeline.PipelinePartition`.
    unit : str
        Time unit of the instance: us, ms or ns.
    alignment : int
        Alignment of the buffers that have none of their own.
    period : int
        Lifetimes are circular modulo this.
    fixed, previous : bool
        The offsets of the file are given, or are the old placement; otherwise they are hints.
    latency, steps : int
        As in :class:`stagepack.instances.schedule.PipelineSchedule`.
    """

    devices: int | None = None
    cluster: Cluster | None = None
    bandwidth: float | None = None
    capacity: int | None = None
    speed: list[float] | None = None
    training: bool | None = None
    microbatches: int | None = None
    objective: str | None = None
    host_transfer: bool | None = None
    fewer_stages: bool | None = None
    free_order: bool | None = None
    unit: str | None = None
    alignment: int | None = None
    period: int | None = None
    fixed: bool | None = None
    previous: bool | None = None
    latency: int | None = None
    steps: int | None = None

    @classmethod
    def of(
        cls, given: Mapping[str, Any], understood: Iterable[str], what: str, kind: str
    ) -> Context:
        """Check and convert what was given; entries that are None were not.

        Parameters
        ----------
        given : mapping
        understood : iterable of str
            The names that may be given.
        what : str
            The format that is read, for messages.
        kind : str
            The problem, for the objectives it has.

        Raises
        ------
        InputError
            For a name that is not understood, or a value out of range.
        """
        known = {field.name for field in fields(cls)}
        understood = frozenset(understood)
        values: dict[str, Any] = {}
        for name, value in given.items():
            if value is None and name in known:
                continue
            if name not in understood:
                problem = (
                    f"{what} files do not understand {name!r}"
                    if name in known
                    else f"unknown option {name!r}"
                )
                raise InputError(
                    problem, field=name, remedy="known here are " + ", ".join(sorted(understood))
                )
            if name == "cluster" and isinstance(value, Cluster):
                values[name] = value
            elif name == "cluster":
                values[name] = clusters.cluster(coerce(name, value, kind))
            else:
                values[name] = coerce(name, value, kind)
        return cls(**values)

    @property
    def job(self) -> dict[str, Any]:
        """The options of an instance that were given."""
        found = {name: getattr(self, name) for name in sorted(JOB)}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def machine(self) -> dict[str, Any]:
        """The facts about the machine that were given."""
        found = {name: getattr(self, name) for name in sorted(MACHINE)}
        return {name: value for name, value in found.items() if value is not None}

    def cluster_for(self, clock: float, base: Cluster | None = None) -> Cluster:
        """Return the cluster to use: the one asked for, else `base`, changed as asked.

        Parameters
        ----------
        clock : float
            Clock in Hz in whose cycles the layers are measured.  A cluster given by name keeps
            its bandwidths and delays in seconds; its idle cycles are converted.
        base : Cluster, optional
            The cluster of the file.

        Raises
        ------
        InputError
            When no cluster is known at all, or what was given contradicts itself.
        """
        cluster = base if self.cluster is None else clusters.at_clock(self.cluster, clock)
        if cluster is None:
            if self.devices is None:
                raise InputError(
                    "the file does not say on how many devices to run",
                    field="devices",
                    remedy="give --devices N or --cluster NAME",
                )
            cluster = Cluster.uniform(self.devices, clock=clock)
        elif self.cluster is not None and self.devices not in (None, len(cluster)):
            raise InputError(
                f"{self.devices} devices but {len(cluster)} in cluster {cluster.name!r}",
                field="devices",
                remedy="give --devices or --cluster, not both",
            )
        facts = {name: value for name, value in self.machine.items() if name != "cluster"}
        return clusters.changed(cluster, **facts)


def check_cluster(cluster: Cluster) -> None:
    """Refuse figures of a cluster so extreme that times could not be computed.

    Raises
    ------
    InputError
        Naming the field.
    """
    _require_sane(cluster.clock, "cluster.clock")
    _check_link(cluster.host_recv, "cluster.host_recv")
    _check_link(cluster.host_send, "cluster.host_send")
    checked: set[tuple[Any, ...]] = set()
    for index, device in enumerate(cluster.devices):
        if device.kind not in checked:
            _check_device(device, f"cluster.devices[{index}]")
            checked.add(device.kind)


def _check_device(device: Device, where: str) -> None:
    _require_sane(device.speed, f"{where}.speed")
    _check_link(device.recv, f"{where}.recv")
    _check_link(device.send, f"{where}.send")


def _check_link(link: Link | None, where: str) -> None:
    if link is not None:
        _require_sane(link.GBps, f"{where}.GBps")
        _require_sane(max(1, link.idle), f"{where}.idle")


def _require_sane(value: float, where: str) -> None:
    if not (1e-12 <= value <= 2**60 and math.isfinite(value)):
        raise InputError(
            f"{value:.3g} is out of range" if value < 1e300 else "is out of range",
            field=where,
            remedy="give a number from 1e-12 to 1e18",
        )
