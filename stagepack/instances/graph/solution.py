"""Graph partitions as solutions: the device of each node, and the order of stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stagepack.contracts import JsonObject
from stagepack.errors import InputError, suggest
from stagepack.instances.documents import strict
from stagepack.instances.graph.data import GraphData
from stagepack.instances.profile import Array
from stagepack.instances.words import Words
from stagepack.shown import ShownSolution, some

FEW_IDS = 1000  # among which a misspelt one is looked for


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
        instance : GraphData
        assignment : array_like of int, shape (n,)
        order, replicas : iterable of int
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
    known = set(ids)
    extra = next((str(key) for key in given if key not in known), None)
    if extra is not None:
        raise InputError(
            f"is no node of {instance.name}",
            field=f"assignment.{extra}",
            remedy=suggest(extra, ids) if len(ids) <= FEW_IDS else strict.ANOTHER,
        )
    missing = next((key for key in ids if key not in given), None)
    if missing is not None:
        raise InputError("is missing", field=f"assignment.{missing}", remedy="name every node")
    devices = [given[key] for key in ids]
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
