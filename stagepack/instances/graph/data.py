"""Graph partitioning: which operators of a graph run on which device.

Operators, the nodes, write tensors that others read.  Each runs on one device; a tensor that is
read on another device crosses the boundaries of both.  Devices are accelerators, numbered first,
and CPUs, which wait for no traffic: it loads the accelerator at its other end alone.  An instance
is plain arrays; it knows no solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stagepack.contracts import JsonObject, Number, cached
from stagepack.errors import InputError
from stagepack.instances.base import digest_of
from stagepack.instances.documents import strict
from stagepack.instances.graph.problem import KIND, DeviceOrder, Objective
from stagepack.instances.profile import Array
from stagepack.instances.words import Words
from stagepack.shown import ShownSolution, some


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GraphData:
    """An instance of graph partitioning; :meth:`.GraphPartition.from_arrays` says what fields mean.

    Times, traffic, speeds and bandwidths are int64, or float64 where the source has fractions;
    times are 0 where a node may not run.  Readers of a tensor rise, and `bandwidth` is a table only
    where links are unlike.
    """

    name: str
    time: Array
    cpu_time: Array
    accelerator: Array
    cpu: Array
    memory: Array
    stash: Array
    parameters: Array
    colour: Array
    backward: Array
    producer: Array
    consumer_ptr: Array
    consumers: Array
    traffic: Array
    accelerators: int
    cpus: int
    speeds: Array
    capacity: Array | None
    bandwidth: Number | Array
    device_order: DeviceOrder = DeviceOrder.ANY
    empty_devices: bool = True
    contiguous: bool = True
    microbatches: int = 1
    objective: Objective = Objective.SUM
    ids: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    time_unit: str = field(default="", compare=False)
    clock: Number | None = field(default=None, compare=False)
    source: str = field(default="", compare=False)
    uncounted: Mapping[str, int] = field(default_factory=dict, compare=False)

    kind = KIND

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.time)

    @property
    def devices(self) -> int:
        """Number of accelerators and CPUs."""
        return self.accelerators + self.cpus

    @property
    def uniform(self) -> bool:
        """Whether all links are of one bandwidth."""
        return not isinstance(self.bandwidth, np.ndarray)

    @property
    def traffic_unit(self) -> str:
        """What traffic is counted in: "time" where links pass 1 of it in a unit of time.

        Else "bytes", or "" where there are fractions of whatever it is.
        """
        if self.uniform and self.bandwidth == 1:
            return "time"
        return "bytes" if self.traffic.dtype.kind == "i" else ""

    @cached_property
    def edges(self) -> Array:
        """Pairs (producer, consumer) of every tensor, shape (edges, 2)."""
        pairs = np.repeat(self.producer, np.diff(self.consumer_ptr)), self.consumers
        return np.column_stack(pairs)

    @cached_property
    def precedence(self) -> Array:
        """Pairs (u, v), shape (pairs, 2): the stage of u is not after that of v.

        Edges of the forward pass; those of the backward pass, turned round, where the colour of one
        of their ends has no forward node, and nothing else says where its stage is.
        """
        if not self.backward.any():
            return self.edges
        u, v = self.edges.T
        forward = self.edges[~self.backward[u] & ~self.backward[v]]
        coloured = self.colour >= 0
        _, colour = np.unique(self.colour, return_inverse=True)
        paired = np.bincount(colour[~self.backward & coloured], minlength=colour.max() + 1) > 0
        alone = ~(coloured & paired[colour])
        turned = self.backward[u] & self.backward[v] & (alone[u] | alone[v])
        return np.concatenate((forward, self.edges[turned][:, ::-1]))

    @cached_property
    def whole(self) -> bool:
        """Whether all figures that loads are made of are integers."""
        return all(a.dtype.kind == "i" for a in (self.time, self.cpu_time, self.traffic))

    def node_id(self, index: int) -> str:
        """Name of a node in solutions."""
        return str(index) if self.ids is None else self.ids[index]

    def node_name(self, index: int) -> str:
        """Name of a node for messages: its id, and what people call it."""
        name = self.node_id(index)
        label = "" if self.names is None else self.names[index]
        return f"{name} ({label})" if label and label != name else name

    def device_name(self, index: int) -> str:
        """Name of a device for messages and tables."""
        accelerators = self.accelerators
        return f"device {index}" if index < accelerators else f"CPU {index - accelerators}"

    @cached
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        return digest_of(self, _parts)

    def _line(self) -> str:
        devices = f"{self.accelerators} accelerators" + (f", {self.cpus} CPUs" * bool(self.cpus))
        return f"{self.name!r}, {self.n} nodes, {devices}, {self.objective}"


def _parts(value: object) -> Iterator[bytes]:
    """Yield the bytes that tell a value from another one."""
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    else:
        yield str(value).encode()


@dataclass(frozen=True, eq=False, repr=False)
class GraphSolution(ShownSolution):
    """A partition of a graph: the device of each node.

    Attributes
    ----------
    assignment : ndarray of int64, shape (n,)
        Device of each node.
    order : tuple of int
        The devices that have nodes, in the order of their stages.  If empty, the order follows from
        the graph; where it is not determined, the lowest number comes first.
    replicas : tuple of int
        Number of devices on which each stage runs; empty: one each.
    ids : tuple of str, optional
        Names of the nodes, for :meth:`to_dict`.
    """

    assignment: Array
    order: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    ids: tuple[str, ...] | None = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphSolution):
            return NotImplemented
        return (
            np.array_equal(self.assignment, other.assignment)
            and self.order == other.order
            and self.replicas == other.replicas
        )

    def __hash__(self) -> int:
        return hash((self.assignment.tobytes(), self.order, self.replicas))

    @classmethod
    def of(
        cls,
        instance: GraphData,
        assignment: npt.ArrayLike,
        order: Iterable[int] = (),
        replicas: Iterable[int] = (),
    ) -> GraphSolution:
        """Return the solution of `instance` with these devices, one for each node.

        Parameters
        ----------
        assignment : array_like of int, shape (n,)
            The device of each node.
        order, replicas : iterable of int
            Devices in the order of their stages, and on how many each of these runs.
        """
        devices = np.array(assignment, dtype=np.int64)
        return cls(devices, tuple(map(int, order)), tuple(map(int, replicas)), instance.ids)

    @classmethod
    def from_dict(cls, data: object, instance: GraphData) -> GraphSolution:
        """Read ``{"assignment": {id: device}, "order": [...], "replicas": [...]}``.

        Raises
        ------
        InputError
            When a node is missing or unknown, or a device is no integer.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("assignment"), Mapping):
            raise InputError(
                "is missing or no object",
                field="assignment",
                remedy='write {"assignment": {id: device}}',
            )
        strict.require_fields(data, ("assignment", "order", "replicas"))
        devices = _devices(data["assignment"], instance)
        lists = [_integers(data.get(name), name) for name in ("order", "replicas")]
        return cls.of(instance, devices, *lists)

    def to_dict(self) -> JsonObject:
        """Return the solution as JSON data; empty fields are left out."""
        ids = self.ids or tuple(map(str, range(len(self.assignment))))
        found: JsonObject = {
            "assignment": dict(zip(ids, self.assignment.tolist(), strict=True)),
            "order": list(self.order),
            "replicas": list(self.replicas),
        }
        return {name: value for name, value in found.items() if value or name == "assignment"}

    def malformed(self) -> str:
        """Return the name of an invalid field, or ""."""
        devices = self.assignment
        if not isinstance(devices, np.ndarray) or devices.dtype.kind != "i" or devices.ndim != 1:
            return "assignment"
        for name in ("order", "replicas"):
            given = getattr(self, name)
            if not isinstance(given, tuple) or not all(isinstance(one, int) for one in given):
                return name
        return ""

    def _line(self) -> str:
        return f"{len(self.assignment):,} nodes, devices {some(self.assignment)}"


def _devices(given: Words, instance: GraphData) -> list[int]:
    """Return the devices of nodes by id, in the order of the nodes."""
    ids = instance.ids or tuple(map(str, range(instance.n)))
    devices = strict.by_id(given, "assignment", ids, "node", instance.name)
    for at, device in enumerate(devices):
        if isinstance(device, bool) or not isinstance(device, int) or abs(device) >= 2**31:
            raise InputError(
                f"{device!r} is no device",
                field=f"assignment.{ids[at]}",
                remedy=f"give a number from 0 to {instance.devices - 1}",
            )
    return devices


def _integers(given: Any, name: str) -> list[int]:
    """Return a list of integers, an empty one for none."""
    if given is None:
        return []
    wrong = not isinstance(given, list | tuple) or any(
        isinstance(one, bool) or not isinstance(one, int) or abs(one) >= 2**31 for one in given
    )
    if wrong:
        raise InputError("is no list of integers", field=name, remedy="give one, or leave it out")
    return list(given)
