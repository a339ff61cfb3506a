"""Instances of pipeline partitioning: construction, evaluation and checking of solutions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from stagepack import files
from stagepack.contracts import JsonObject, Number
from stagepack.errors import InputError
from stagepack.instances import arrays, clusters
from stagepack.instances.arrays import Given
from stagepack.instances.base import Answered, Rules
from stagepack.instances.pipeline.check import check, evaluate, shape, unevenness
from stagepack.instances.pipeline.choices import with_alternatives
from stagepack.instances.pipeline.data import (
    OWN,
    GraphOrder,
    PartitionData,
    PipelineSolution,
    SharedBytes,
    Variable,
    uses_of,
)
from stagepack.instances.pipeline.previous import Previous, held_by
from stagepack.instances.pipeline.problem import MEMORY, Objective
from stagepack.instances.pipeline.validate import placement_of, require, require_tied
from stagepack.instances.profile import (
    Array,
    Cluster,
    Device,
    LayerProfile,
    Lifetimes,
    Link,
    ModelProfile,
)
from stagepack.instances.words import BANDWIDTH, member


class PipelinePartition(PartitionData, Answered[PipelineSolution, Number]):
    """An instance of pipeline partitioning; use :meth:`from_arrays` or :meth:`from_profile`.

    Their arguments become the fields of the instance.
    """

    solution_type = PipelineSolution
    rules = Rules(shape, check, evaluate)
    secondary = unevenness
    """Of partitions that are as good the most even one is kept."""

    @property
    def proviso(self) -> str:
        """What the proof does not cover: more microbatches in flight, other orders of layers."""
        said = []
        stages = len(self.stage_devices)
        if self.training and self.stash.any() and self.microbatches < stages:
            said.append(
                f"memory counts {self.microbatches:,} of the {stages:,} microbatches that fill the "
                "pipeline"
            )
        if self.backward_transfers and not self.training:
            said.append("backward_transfers counts in training only: no gradients come back")
        if self.order is not None:
            tried = self.order.tried
            chosen = f", the best of {tried} tried" if tried > 1 else ""
            said.append(
                f"this holds for one order of the layers{chosen}; another order of their graph may "
                "do better: --kind graph-partition considers all of them"
            )
        return "; ".join(said)

    @classmethod
    def from_arrays(
        cls,
        forward: Given,
        *,
        devices: int | None = None,
        cluster: Cluster | None = None,
        backward: Given = None,
        capacity: Given = None,
        speed: Given = None,
        bandwidth: float | str | None = None,
        clock: float = 1_000_000_000,
        exclusive: Given | Mapping[str, Given] = None,
        shared: Mapping[str, tuple[int, Iterable[int]]] | SharedBytes | None = None,
        temporary: Given = None,
        carry: Given = None,
        stash: Given = None,
        in_bytes: Given = None,
        out_bytes: Given = None,
        recv_cycles: Given = None,
        send_cycles: Given = None,
        compute_table: Given = None,
        memory_table: Given = None,
        variables: Iterable[Variable | tuple[str, int, int]] = (),
        forbidden_cuts: Iterable[int] = (),
        fixed_cuts: Iterable[int] = (),
        training: bool = False,
        microbatches: int | None = None,
        backward_transfers: bool | None = None,
        memory: str | Iterable[str] | None = None,
        received: bool = True,
        kv_bytes: Given = None,
        tokens: int = 0,
        objective: Objective | str | None = None,
        host_transfer: bool = False,
        fewer_stages: bool = False,
        free_order: bool = False,
        stages_per_device: int = 1,
        placement: str | Iterable[int] = "loop",
        tied: Mapping[str, tuple[int, Iterable[int]]] | SharedBytes | None = None,
        previous: Iterable[int] | None = None,
        limited: Objective | str = Objective.BOTTLENECK,
        limit: Number | None = None,
        alternatives: Mapping[str, Any] | None = None,
        alternatives_per: str = "layer",
        own_alternative: str = OWN,
        recompute: str = "none",
        layer_names: Sequence[str] | None = None,
        order: GraphOrder | None = None,
        tensors: Lifetimes | None = None,
        name: str = "pipeline",
        source: str = "",
    ) -> PipelinePartition:
        """Build an instance from arrays; see :class:`.data.PartitionData` for what the fields mean.

        Parameters
        ----------
        forward : array_like, shape (n,)
            Cycles of each layer; may be None when `compute_table` is given.
        devices, capacity, speed, bandwidth, clock
            A simple cluster: the number of devices; bytes of memory and speed of each (one number,
            or one for each device); the bandwidth of all links, also to the host, in GiB/s
            (2**30 bytes a second); and the clock in Hz.
        cluster : Cluster
            The cluster, in place of these five.
        backward : array_like, shape (n,), optional
            Cycles; zeros when absent.
        exclusive : array_like or dict of array_like
            Bytes of each layer, by category if a dict.
        shared : dict
            ``{key: (bytes, layers that use it)}``.
        temporary, carry, stash : array_like of int, shape (n,), optional
            Bytes in use while the layer runs; bytes of other layers' tensors that are kept
            meanwhile; and bytes kept for its backward pass, per microbatch in flight.  Zeros when
            absent.
        in_bytes, out_bytes : array_like of int, shape (n + 1,), optional
            Bytes that a stage receives if it begins at each cut, and sends if it ends there; zeros
            when absent.
        recv_cycles, send_cycles : array_like, shape (k, n + 1), optional
            Cycles in place of those of the links.
        compute_table, memory_table : array_like, shape ([k, ]n + 1, n + 1), optional
            Cycles and bytes of the layers [a, b), for all devices or each, in place of the figures
            of the layers.
        variables : iterable of Variable or (name, first, last)
            Layers `first` to `last` (included) must be on one stage.
        forbidden_cuts, fixed_cuts : iterable of int
            Cuts that no boundary may use, and cuts that must be boundaries.
        training : bool
            Count backward cycles and stashes.
        microbatches : int, optional
            Number of microbatches of a training step; by default the number of stages, which fills
            the pipeline.
        backward_transfers : bool, optional
            Whether gradients are sent back over the links; by default in training.
        memory : str or iterable of str, optional
            The terms of memory that are counted: ``exclusive`` (or categories of it), ``shared``,
            ``temporary``, ``carry``, ``stash`` and, in schedules and plans, ``received``; also as
            one text with commas.  All when absent.
        received : bool
            False: ``received`` is not counted.
        kv_bytes : int or array_like of int, shape (n,), optional
            Bytes of KV cache that a token takes: in every layer, or in each.
        tokens : int
            Tokens whose KV cache must fit on every device.
        objective : Objective or str, optional
            What is minimised.  By default ``sum`` where bytes cross links or transfers have cycles,
            so that these count; ``bottleneck`` otherwise, and where devices have several stages.
        host_transfer, fewer_stages, free_order : bool
            Whether every device waits for the transfers of the host; whether devices may stay
            unused; whether stages may be placed on the devices in any order.
        stages_per_device : int
            How many stages each device runs.  The objective and memory count what a device holds in
            all; with `fewer_stages` any stage may be empty.
        placement : str or iterable of int
            Their devices: ``"loop"``, round after round in the order of the cluster; ``"v"``, every
            second round backwards; or the device of each stage, also as one text with commas.
        tied : dict, optional
            ``{name: (bytes, layers that use it)}`` of weights that are copied to every stage that
            uses them.  `shared` need not name them.
        previous : iterable of int, optional
            The device that holds each layer now, -1 for none; see :meth:`from_previous`.
        limited, limit : Objective or str, and int or float, optional
            The most that this objective may be where `moves` is minimised.
        alternatives : mapping of str to mapping, optional
            What layers may be instead: by name, figures in place of their own, of ``forward``,
            ``backward``, ``exclusive``, ``temporary``, ``stash`` and ``kv_bytes``, each for all
            layers or an array of shape (n,); ``layers`` are the numbers of those that have it, all
            when absent.
        alternatives_per : str
            ``"layer"``: every layer takes one by itself; ``"stage"``: all layers of a stage that
            have it take the same.
        own_alternative : str
            What it is called to take none of them.
        recompute : str
            ``"full"``: in training layers have an alternative of this name, too, which keeps only
            what crosses the cut before them, and takes the forward pass again in the backward pass.
        layer_names : sequence of str, optional
            For messages and tables.
        order : GraphOrder, optional
            The order of a graph's nodes from which the chain was made, if there are others.
        tensors : Lifetimes, optional
            Lifetimes of the tensors of which `carry` is the sum; ignored if the sum differs.
        name, source : str
            For tables and reports.

        Raises
        ------
        InputError
            Naming the field, when shapes differ, a figure is negative, NaN or infinite, or sums
            could overflow 64 bits.
        """
        if compute_table is not None and forward is None:
            forward = np.zeros(np.shape(compute_table)[-1] - 1, dtype=np.int64)
        cycles = arrays.numbers(forward, "forward")
        n = len(cycles)
        if n == 0:
            raise InputError("no layers", field="layers", remedy="give at least one layer")
        if cluster is None:
            cluster = _quick_cluster(devices, capacity, speed, bandwidth, clock)
        elif devices not in (None, len(cluster)):
            raise InputError(
                f"{devices} devices but a cluster of {len(cluster)}",
                field="devices",
                remedy="give one of the two",
            )
        k = len(cluster)
        rounds, placement = placement_of(stages_per_device, placement, k)
        if isinstance(exclusive, Mapping):
            categories = {str(key): value for key, value in exclusive.items()}
        else:
            categories = {} if exclusive is None else {"memory": exclusive}
        terms = _terms(memory, categories, memory_table)
        copied, once = _once(tied, "tied"), _once(shared, "shared")
        if not isinstance(tied, SharedBytes):  # of an instance, whose shared bytes count them
            once = once.beside(copied)
        try:
            spans = tuple(v if isinstance(v, Variable) else Variable(*v) for v in variables)
        except TypeError as error:
            raise InputError(
                f"cannot be read ({error})", field="variables", remedy="write (name, first, last)"
            ) from None
        carried = arrays.whole_bytes(carry if "carry" in terms else None, "carry", (n,))
        instance = cls(
            name=name,
            forward=cycles,
            backward=arrays.numbers(backward, "backward", (n,)),
            cluster=cluster,
            exclusive={
                key: arrays.whole_bytes(value, f"exclusive.{key}", (n,))
                for key, value in categories.items()
                if terms & {"exclusive", key}
            },
            shared=once if "shared" in terms else SharedBytes.of({}),
            carry=carried,
            **{
                term: arrays.whole_bytes(column if term in terms else None, term, (n,))
                for term, column in (("temporary", temporary), ("stash", stash))
            },
            in_bytes=arrays.whole_bytes(in_bytes, "in_bytes", (n + 1,)),
            out_bytes=arrays.whole_bytes(out_bytes, "out_bytes", (n + 1,)),
            recv_cycles=arrays.table(recv_cycles, "recv_cycles", (k, n + 1)),
            send_cycles=arrays.table(send_cycles, "send_cycles", (k, n + 1)),
            compute_table=arrays.table(compute_table, "compute_table", (n + 1, n + 1), k),
            memory_table=arrays.table(memory_table, "memory_table", (n + 1, n + 1), k, whole=True),
            variables=spans,
            forbidden_cuts=arrays.cuts(forbidden_cuts, "forbidden_cuts"),
            fixed_cuts=arrays.cuts(fixed_cuts, "fixed_cuts"),
            training=bool(training),
            microbatches=_in_flight(
                microbatches,
                (k * rounds if isinstance(placement, str) else len(placement)) if training else 1,
            ),
            backward_transfers=bool(training if backward_transfers is None else backward_transfers),
            received=bool(received) and "received" in terms,
            kv_bytes=_each(kv_bytes, n),
            tokens=arrays.integer(tokens, "tokens", 0),
            objective=member(objective or Objective.BOTTLENECK, Objective, "objective"),
            host_transfer=bool(host_transfer),
            fewer_stages=bool(fewer_stages),
            free_order=bool(free_order),
            stages_per_device=rounds,
            placement=placement,
            tied=copied if len(copied.layer) else None,
            previous=None if previous is None else tuple(map(int, previous)),
            limited=member(limited, Objective, "limited"),
            limit=limit,
            alternatives={},
            alternatives_per="layer",
            own_alternative=OWN,
            layer_names=None if layer_names is None else tuple(map(str, layer_names)),
            order=order,
            tensors=tensors if tensors is None or tensors.tell(carried) else None,
            source=source,
        )
        require(instance)
        counts = objective is None and instance.linked and not instance.placed
        if counts:
            instance = dataclasses.replace(instance, objective=Objective.SUM)
        if alternatives or recompute != "none":
            given, per = alternatives or {}, (alternatives_per, own_alternative)
            instance = with_alternatives(instance, given, per, recompute, terms)
            require(instance)
        return instance

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, all validated anew as by :meth:`from_arrays`.

        With other tied weights the memory of those before is not counted.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        if self.tied is not None and "tied" in changes and "shared" not in changes:
            kept = {
                name: use for name, use in self.shared.uses().items() if name not in self.tied.names
            }
            changes["shared"] = SharedBytes.of(kept)
        return super().replace(**changes)

    def from_previous(
        self,
        previous: Previous,
        *,
        devices: Sequence[str] | Cluster | None = None,
        limit: Number | None = None,
    ) -> PipelinePartition:
        """Return the question how few bytes have to move from a previous cut: objective `moves`.

        Devices are matched by name, so that some may be gone and others new.

        Parameters
        ----------
        previous : PipelineSolution, Result, mapping, or sequence of str or None
            The cut, or the name of the device that holds each layer, None for none.
        devices : sequence of str or Cluster, optional
            The devices of that cut, in its order; by default those of the result's instance, or of
            this one.
        limit : int or float, optional
            The most that this instance's own objective may be; of `headroom`, minus the tokens that
            must fit.

        Raises
        ------
        InputError
            For a cut of other layers or of devices without a name, and as :meth:`from_arrays`.
        """
        main = self.limited if self.objective is Objective.MOVES else self.objective
        if main is Objective.HEADROOM and limit is not None:
            tokens, limit = max(self.tokens, -int(limit)), None
        else:
            tokens = self.tokens
        return self.replace(
            objective=Objective.MOVES,
            previous=held_by(self, previous, devices),
            limited=main,
            limit=limit,
            tokens=tokens,
        )

    @classmethod
    def from_profile(
        cls,
        profile: ModelProfile,
        cluster: Cluster | str,
        *,
        name: str | None = None,
        tied: str | None = None,
        **options: Any,
    ) -> PipelinePartition:
        """Build an instance from a model profile and a cluster.

        The lifetimes of tensors give the carried bytes and the bytes that cross each cut; layers
        that use the same variable must be on one stage.  In training, a layer's temporary bytes are
        those of its forward or its backward pass, whichever are more.

        Parameters
        ----------
        profile : ModelProfile
            Layers, and the tensors between them.
        cluster : Cluster or str
            By itself, or by its name in the catalog; the layers count cycles of its clock.
        name : str, optional
            That of the profile when absent.
        tied : str, optional
            ``"copied"``: each tied weight is on every stage that uses it, as by default;
            ``"together"``: all layers that use it are on one stage.
        **options
            What :meth:`from_arrays` takes (training, microbatches, objective, ...); may replace
            what is derived.  Training is by default what the profile says of its bytes.

        Raises
        ------
        InputError
            If a shared key has two sizes, and as :class:`.Lifetimes` and :meth:`from_arrays`.
        """
        if tied is not None:
            profile = _as_tied(profile, tied)
        layers, training = profile.layers, profile.trains(options.get("training"))
        n = len(layers)
        lifetimes = Lifetimes.of(profile)
        crossing = lifetimes.crossing()
        reduced, rest = zip(*map(_reduced, layers), strict=True)
        categories: dict[str, Array] = {}
        spans: dict[str, tuple[int, int]] = {}
        for index, layer in enumerate(layers):
            for category, nbytes in layer.exclusive.items():
                if category not in categories:
                    categories[category] = np.zeros(n, dtype=np.int64)
                categories[category][index] = nbytes
            for variable in layer.variables:
                spans[variable] = (spans.get(variable, (index, index))[0], index)
        derived: JsonObject = {
            "backward": [layer.backward for layer in layers],
            "exclusive": categories,
            "shared": {
                **uses_of((layer.shared for layer in layers), "layers[{}].shared"),
                **uses_of(rest, "layers[{}].tied"),
            },
            "tied": uses_of(reduced, "layers[{}].tied"),
            "temporary": [
                max(layer.temporary, layer.backward_temporary if training else 0)
                for layer in layers
            ],
            "carry": lifetimes.carried(),
            "stash": [layer.stash for layer in layers],
            "kv_bytes": [layer.kv_bytes for layer in layers],
            "in_bytes": crossing,
            "out_bytes": crossing,
            "variables": [(name, first, last) for name, (first, last) in spans.items()],
            "layer_names": [layer.name or f"layer {i}" for i, layer in enumerate(layers)],
            "order": _order_of(layers),
            "tensors": lifetimes,
        }
        return cls.from_arrays(
            [layer.forward for layer in layers],
            cluster=clusters.cluster(cluster),
            name=profile.name or "pipeline" if name is None else name,
            **{**derived, **options, "training": training},
        )


def _as_tied(profile: ModelProfile, tied: str) -> ModelProfile:
    """Return a profile with its tied weights ``copied`` or ``together``."""
    require_tied(tied, any(layer.variables for layer in profile.layers))
    return profile.together() if tied == "together" else profile


def _reduced(layer: LayerProfile) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes of a layer's tied weights whose gradients are reduced, and the others."""
    reduced, rest = {}, {}
    for name in layer.tied:
        held = layer.held(name)
        total = sum(held.values())
        reduced[name] = held.get("gradients", held.get("parameters", total))
        if total > reduced[name]:
            rest[f"{name}, beside its gradients"] = total - reduced[name]
    return reduced, rest


def _once(
    given: Mapping[str, tuple[int, Iterable[int]]] | SharedBytes | None, field: str
) -> SharedBytes:
    """Return what devices hold once, as it was given for a field."""
    if isinstance(given, SharedBytes):
        return given
    try:
        return SharedBytes.of(given or {})
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"cannot be read ({error})", field=field, remedy="write {key: (bytes, [layers])}"
        ) from error


def _terms(
    memory: str | Iterable[str] | None, categories: Mapping[str, Given], table: Given
) -> frozenset[str]:
    """Return the terms of memory that count."""
    if memory is None:
        return frozenset(MEMORY)
    names = [word.strip() for word in memory.split(",")] if isinstance(memory, str) else memory
    terms = frozenset(map(str, names))
    known = tuple(dict.fromkeys((*MEMORY, *categories)))
    for term in sorted(terms.difference(known)):
        raise InputError(
            f"{term!r} is no term of it", field="memory", remedy=f"choose among {', '.join(known)}"
        )
    if table is not None:
        raise InputError(
            "is given as a table, which has no terms",
            field="memory",
            remedy="leave out the terms, or the table",
        )
    return terms


def _each(kv_bytes: Given, n: int) -> Array | None:
    """Return the bytes of a token by layer, of one figure or as many; None where all are 0."""
    if kv_bytes is None:
        return None
    kv_bytes = files.in_bytes(kv_bytes, "kv_bytes")
    spread = np.broadcast_to(kv_bytes, n) if np.size(kv_bytes) == 1 else kv_bytes
    found = arrays.whole_bytes(spread, "kv_bytes", (n,))
    return found if found.any() else None


def _in_flight(microbatches: int | None, usual: int) -> int:
    return usual if microbatches is None else arrays.integer(microbatches, "microbatches")


def _order_of(layers: Sequence[LayerProfile]) -> GraphOrder | None:
    """Return that layers are one order of many; None where every layer reads the one before it.

    None, too, where no layer reads what another one writes: nothing is said of their graph then.
    """
    writer = {tensor: at for at, layer in enumerate(layers) for tensor in layer.outputs}
    sources = [{writer[name] for name in layer.inputs if name in writer} for layer in layers]
    edges = sum(map(len, sources))
    loose = sum(at not in read for at, read in enumerate(sources[1:]))
    return GraphOrder(edges=edges, loose=loose) if edges and loose else None


def _quick_cluster(
    devices: int | None,
    capacity: Given,
    speed: Given,
    bandwidth: float | str | None,
    clock: float,
) -> Cluster:
    if devices is not None:
        devices = arrays.integer(devices, "devices")
    if devices is None or devices < 1:
        raise InputError(
            "the number of devices is missing" if devices is None else f"{devices} devices",
            field="devices",
            remedy="give at least one device, or a cluster",
        )
    if not 0 < clock < float("inf"):
        raise InputError(f"{clock} Hz", field="clock", remedy="give a positive frequency")
    if isinstance(bandwidth, str):
        bandwidth = float(BANDWIDTH.of(bandwidth))
    if bandwidth is not None and not 0 < bandwidth < float("inf"):
        raise InputError(f"{bandwidth} GiB/s", field="bandwidth", remedy="give a positive number")
    speeds = [1] * devices if speed is None else np.broadcast_to(speed, devices).tolist()
    for value in speeds:
        if not 0 < value < float("inf"):
            raise InputError(f"speed {value}", field="speed", remedy="give positive speeds")
    if capacity is None:
        memory: list[int | None] = [None] * devices
    else:
        try:
            told = files.in_bytes(capacity, "capacity")
            memory = list(map(int, np.broadcast_to(told, devices).tolist()))
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"cannot be read: {str(capacity)[:40]}",
                field="capacity",
                remedy=f"give whole bytes: one number, or one for each of {devices} devices",
            ) from None
        if min(m for m in memory if m is not None) < 0:
            raise InputError("negative capacity", field="capacity", remedy="give bytes >= 0")
    link = None if bandwidth is None else Link(GBps=bandwidth)
    return Cluster(
        devices=tuple(
            Device(memory=m, speed=s, recv=link, send=link)
            for m, s in zip(memory, speeds, strict=True)
        ),
        clock=clock,
        host_recv=link,
        host_send=link,
    )
