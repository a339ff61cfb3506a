"""Instances of graph partitioning: construction, evaluation and checking of solutions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from stagepack.contracts import Number, cached
from stagepack.errors import InputError
from stagepack.instances import arrays, clusters
from stagepack.instances.arrays import Given
from stagepack.instances.base import Answered, Rules
from stagepack.instances.graph import profiled, validate
from stagepack.instances.graph.check import check, evaluate, shape
from stagepack.instances.graph.data import GraphData, GraphSolution
from stagepack.instances.graph.levels import table_of
from stagepack.instances.graph.problem import DeviceOrder, Objective
from stagepack.instances.graph.ticking import ticking
from stagepack.instances.profile import Cluster, ModelProfile
from stagepack.instances.words import member

Weight = Given | Mapping[Any, Number] | Callable[..., Number]
"""Figures by position, by node, or from a function of a node."""


class GraphPartition(GraphData, Answered[GraphSolution, Number]):
    """An instance of graph partitioning; use :meth:`from_arrays` or :meth:`from_edges`."""

    solution_type = GraphSolution
    rules = Rules(shape, check, evaluate)

    @cached
    def tolerance(self) -> float:
        """Relative tolerance of objective values: 0 for integers with a common unit, else 1e-9."""
        if self.objective == Objective.MEMORY:
            return 0.0
        return 0.0 if self.whole and ticking(self).exact else 1e-9

    @property
    def proviso(self) -> str:
        """What the proof leaves out: microbatches in flight, a missing pass, other bytes, busy CPUs."""
        m, most, said = self.microbatches, self.devices, []
        if self.objective == Objective.LATENCY:
            said += ["CPUs are taken to do any number of nodes at once"] if self.cpus else []
        elif self.stash.any() and m < most:
            said.append(f"memory counts {m:,} of the {most:,} microbatches that fill the pipeline")
        elif self.objective == Objective.FORWARD_BACKWARD and not self.backward.any():
            said.append(
                "no node is of the backward pass, so that forward+backward is the same as sum"
            )
        if self.uncounted and (self.capacity is not None or self.objective == Objective.MEMORY):
            terms = ", ".join(f"{name} {nbytes:,}" for name, nbytes in self.uncounted.items())
            said.append(f"not counted: {terms} bytes at most, which --kind pipeline counts")
        return "; ".join(said)

    @classmethod
    def from_arrays(
        cls,
        time: Given,
        *,
        accelerators: int,
        producer: Given = None,
        consumers: Given = None,
        consumer_ptr: Given = None,
        traffic: Given = None,
        cpus: int = 0,
        cpu_time: Given = None,
        accelerator: Given = None,
        cpu: Given = None,
        memory: Given = None,
        stash: Given = None,
        parameters: Given = None,
        colour: Given = None,
        backward: Given = None,
        speeds: Given = 1,
        capacity: Given = None,
        bandwidth: Given = None,
        levels: Iterable[tuple[int, Number]] | None = None,
        device_order: DeviceOrder | str = DeviceOrder.ANY,
        empty_devices: bool = True,
        contiguous: bool = True,
        microbatches: int = 1,
        objective: Objective | str = Objective.SUM,
        ids: Iterable[str] | None = None,
        names: Iterable[str] | None = None,
        time_unit: str = "",
        clock: Number | None = None,
        name: str = "graph",
        source: str = "",
        uncounted: Mapping[str, int] | None = None,
    ) -> Self:
        """Build an instance from arrays.

        Parameters
        ----------
        time : array_like, shape (n,)
            Time of each node on an accelerator of speed 1.
        accelerators, cpus : int
            Numbers of devices; accelerators are 0, 1, ..., CPUs come after them.
        producer : array_like of int, shape (t,)
            The node that writes each tensor.
        consumers : array_like of int, or t lists of int
            The nodes that read each tensor: as t lists, or as one array with `consumer_ptr`, where
            tensor i is read by ``consumers[consumer_ptr[i]:consumer_ptr[i + 1]]``.
        consumer_ptr : array_like of int, shape (t + 1,), optional
            Where the readers of each tensor begin in `consumers`, if these are one array.
        traffic : array_like, shape (t,)
            Size of each tensor, in bytes or whatever a bandwidth is a number of in a unit of time;
            zeros when absent.
        cpu_time : array_like, shape (n,), optional
            Time of each node on a CPU; without it, no node may run on a CPU.
        accelerator, cpu, backward : array_like of bool, shape (n,), optional
            Whether each node may run on accelerators and on CPUs (by default on both), and whether
            it belongs to the backward pass.
        memory, stash, parameters : array_like of int, shape (n,), optional
            Bytes held where the node is, kept there for each microbatch in flight, and exchanged by
            replicas of its stage; zeros when absent.
        colour : array_like of int, shape (n,), optional
            Nodes of one colour share a device; -1 for none.
        speeds, capacity : array_like, shape (accelerators,), optional
            What times are divided by, and bytes (no limit when absent; a CPU has none): one number
            for all accelerators, or one each.
        bandwidth : number or array_like, shape (devices, devices), optional
            Traffic in a unit of time, from row to column where links are unlike; 1 when absent.
        levels : iterable of (int, number), optional
            In place of `bandwidth`, from the innermost level on: (devices in a group, bandwidth
            between them).
        device_order, objective : str
            Words of :class:`DeviceOrder` and :class:`Objective`.
        empty_devices, contiguous : bool
            Whether devices may have no nodes; whether data flow from earlier stages to later ones
            alone.
        microbatches : int
            In flight at most: the i-th of K stages keeps the stashes of min(microbatches, K - i).
        ids, names : iterable of str, optional
            `ids` name the nodes in solutions and must be unique; `names` are for people.
        time_unit : str
            Unit of the times, for people: "cycles".
        clock : float, optional
            Cycles per second, if times are cycles of a known clock; plans then tell seconds, too.
        name, source : str
            For tables and reports.
        uncounted : dict of str to int, optional
            Terms of memory that the source has and `memory` leaves out, and their bytes: answers
            within a capacity tell them.

        Raises
        ------
        InputError
            Naming the field: wrong shapes, negative numbers, sums beyond 64 bits, unknown nodes,
            cycles.
        """
        times = arrays.numbers(time, "time")
        n, (k, others) = len(times), validate.devices(accelerators, cpus)
        if n == 0:
            raise InputError("no nodes", field="time", remedy="give at least one node")
        sources, ends, targets = validate.tensors(n, producer, consumers, consumer_ptr)
        on_accelerator = validate.flags(accelerator, "accelerator", n, True)
        on_cpu = validate.flags(cpu, "cpu", n, cpu_time is not None)
        instance = cls(
            name=str(name),
            time=validate.where(on_accelerator, times),
            cpu_time=validate.where(on_cpu, arrays.numbers(cpu_time, "cpu_time", (n,))),
            accelerator=on_accelerator,
            cpu=on_cpu,
            memory=arrays.whole_bytes(memory, "memory", (n,)),
            stash=arrays.whole_bytes(stash, "stash", (n,)),
            parameters=arrays.whole_bytes(parameters, "parameters", (n,)),
            colour=validate.colours(colour, n),
            backward=validate.flags(backward, "backward", n, False),
            producer=sources,
            consumer_ptr=ends,
            consumers=targets,
            traffic=arrays.numbers(traffic, "traffic", (len(sources),)),
            accelerators=k,
            cpus=others,
            speeds=validate.speeds(speeds, k),
            capacity=validate.capacity(capacity, k),
            bandwidth=validate.bandwidth(bandwidth, levels, k + others),
            device_order=member(device_order, DeviceOrder, "device_order"),
            empty_devices=bool(empty_devices),
            contiguous=bool(contiguous),
            microbatches=arrays.integer(microbatches, "microbatches"),
            objective=member(objective, Objective, "objective"),
            ids=arrays.names(ids, "ids", n, "node", unique=True),
            names=arrays.names(names, "names", n, "node"),
            time_unit=validate.time_unit(time_unit),
            clock=validate.clock(clock, time_unit),
            source=str(source),
            uncounted=dict(uncounted or {}),
        )
        validate.instance(instance)
        return instance

    @classmethod
    def from_edges(
        cls,
        nodes: int | Iterable[Hashable],
        edges: Iterable[tuple[Any, Any]],
        *,
        time: Weight,
        traffic: Weight = None,
        edge_traffic: Given | Mapping[Any, Number] | Callable[[Any, Any], Number] = None,
        **options: Any,
    ) -> Self:
        """Build an instance from nodes and the edges between them.

        Parameters
        ----------
        nodes : int, or iterable
            How many, or their names, which edges and solutions use.
        edges : iterable of (node, node)
            Who writes, and who reads.
        time : array_like, mapping, or function of a node
            Of a node on an accelerator.
        traffic : array_like, mapping, or function of a node
            Size of each node's output, which all its successors read.
        edge_traffic : array_like, mapping of edges, or function of two nodes
            In place of `traffic`: the size of each edge's own tensor.
        **options
            Other arguments of :meth:`from_arrays`; those with one value per node may also be
            mappings or functions of a node.

        Raises
        ------
        InputError
            As :meth:`from_arrays`, and if an edge names an unknown node.
        """
        known: Sequence[Any] = range(nodes) if isinstance(nodes, int) else list(nodes)
        pairs = validate.edges(edges, known)
        given = {"time": time, **options}
        figures = {
            name: validate.by_node(value, name, known)
            for name, value in given.items()
            if name in PER_NODE
        }
        validate.require_count(figures["time"], "time", len(known))
        if not isinstance(nodes, int):
            figures.setdefault("ids", [str(node) for node in known])
        if edge_traffic is None:
            pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
            sources = np.arange(len(known))
            first = np.searchsorted(pairs[:, 0], np.arange(len(known) + 1))
            amounts: Any = validate.by_node(traffic, "traffic", known)
        elif traffic is None:
            sources, first, amounts = pairs[:, 0], np.arange(len(pairs) + 1), edge_traffic
            named = [(known[u], known[v]) for u, v in pairs.tolist()]
            if callable(edge_traffic):
                amounts = [edge_traffic(u, v) for u, v in named]
            elif isinstance(edge_traffic, Mapping):
                amounts = validate.by_node(edge_traffic, "edge_traffic", named)
        else:
            raise InputError("is given beside edge_traffic", field="traffic", remedy="give one")
        return cls.from_arrays(
            producer=sources,
            consumers=pairs[:, 1],
            consumer_ptr=first,
            traffic=amounts,
            **{**options, **figures},
        )

    @classmethod
    def from_profile(
        cls,
        profile: ModelProfile,
        cluster: Cluster | str,
        *,
        training: bool | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Build an instance from a model profile and a cluster; see :mod:`.profiled`.

        Parameters
        ----------
        profile : ModelProfile
            Layers, and the tensors between them.
        cluster : Cluster or str
            By itself, or by its name in the catalog; the layers count cycles of its clock.
        training : bool, optional
            Whether to count backward passes and stashes, by default what the profile says of its
            bytes.  In training, there are as many microbatches as accelerators by default.  With
            the objective ``forward+backward``, backward passes are separate nodes.
        name : str, optional
            That of the profile when absent.
        **options
            What :meth:`from_arrays` takes; may replace what is derived.

        Raises
        ------
        InputError
            As :meth:`from_arrays`, and for what :class:`.Lifetimes` refuses.
        """
        training = profile.trains(training)
        profile = profile.together()
        passes = training and options.get("objective") == Objective.FORWARD_BACKWARD
        derived = profiled.columns(profile, training=training, passes=passes)
        derived |= profiled.machine(clusters.cluster(cluster))
        if training:
            derived["microbatches"] = derived["accelerators"]
        title = profile.name or "graph" if name is None else name
        return cls.from_arrays(**{**derived, "name": title, **options})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, all validated anew as by :meth:`from_arrays`.

        With another number of devices, what was the same for all of them stays so; `levels` stand
        for a bandwidth as there.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        if "accelerators" in changes:
            for name in ("speeds", "capacity"):
                figures = getattr(self, name)
                if figures is not None and len(np.unique(figures)) == 1:
                    changes.setdefault(name, figures[0].item())
        if changes.get("levels") is not None and changes.get("bandwidth") is None:
            devices = (changes.get(name, getattr(self, name)) for name in ("accelerators", "cpus"))
            changes["bandwidth"] = table_of(changes.pop("levels"), sum(devices))
        return super().replace(**changes)


PER_NODE = (
    "time", "cpu_time", "accelerator", "cpu", "memory", "stash", "parameters", "colour", "backward",
    "names",
)  # fmt: skip
