"""Pipeline partitioning: which consecutive layers run on which device.

n layers in a chain are cut into stages; each stage runs on a device of its own.  An instance is
plain arrays (one entry a layer or a cut) and a cluster; it knows no solver.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from stagepack.instances.answer import Answered
from stagepack.instances.pipeline import arrays
from stagepack.instances.pipeline.arrays import LARGEST
from stagepack.instances.pipeline.shared import SharedBytes
from stagepack.instances.pipeline.solution import PipelineSolution
from stagepack.instances.profile import Array, Cluster, Device, Lifetimes, Link, ModelProfile
from stagepack.result import InputError, Number, Result

KIND = "pipeline-partition"


class Objective(StrEnum):
    """What a partition should minimise (compute and transfer in cycles, over the stages)."""

    BOTTLENECK = "bottleneck"
    """The largest compute."""
    TRANSFER_BOUNDED = "transfer-bounded"
    """The largest compute plus the largest transfer: devices exchange after all have computed."""
    SUM = "sum"
    """The largest sum of compute and transfer: each device exchanges when it is ready."""
    OVERLAP = "overlap"
    """The largest single term of compute, receive and send: transfers hide behind compute."""


@dataclass(frozen=True)
class Variable:
    """Something used by layers `first` to `last`: no stage may end between them."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PipelinePartition(Answered[PipelineSolution]):
    """An instance of pipeline partitioning: layers, devices, and what a partition must respect.

    Use :meth:`from_arrays` or :meth:`from_profile`; the fields below are what they make.

    Attributes
    ----------
    name : str
        Name for tables and reports.
    forward, backward : ndarray, shape (n,)
        Cycles of each layer on a device of speed 1; int64, or float64 where the source has them.
    cluster : Cluster
        The k devices in pipeline order, their memory, speed and links.
    exclusive : dict of ndarray of int64, shape (n,)
        Bytes always alive, by category.
    shared : SharedBytes
        Bytes that equal layers of a stage share.
    temporary, carry, stash : ndarray of int64, shape (n,)
        Bytes alive while the layer runs; bytes carried past it; bytes kept for its backward pass,
        per microbatch in flight.
    in_bytes, out_bytes : ndarray of int64, shape (n + 1,)
        Bytes received by a stage that begins at a cut, and sent by one that ends there; the
        entries of cut 0 and cut n are exchanged with the host.
    recv_cycles, send_cycles : ndarray, shape (k, n + 1), optional
        Cycles per device and cut that replace the links' when given.
    compute_table, memory_table : ndarray, shape (n + 1, n + 1) or (k, n + 1, n + 1), optional
        Cycles and bytes of the layers [a, b) that replace the per-layer figures when given.
    variables : tuple of Variable
        Spans of layers that must stay together.
    forbidden_cuts, fixed_cuts : tuple of int
        Cuts that no boundary may use, and cuts that must be boundaries.
    training : bool
        Count backward cycles and stashes.
    microbatches : int
        Microbatches of a training step: stage i of k stashes min(microbatches, k - i) of them.
    objective : Objective
        What to minimise.
    host_transfer : bool
        Every device waits for the exchange with the host (the rule of Auto Pipeline).
    fewer_stages : bool
        Devices may stay unused; otherwise every device runs a stage.
    free_order : bool
        Stages may run on the devices in any order; otherwise in the order of the cluster.
    """

    name: str
    forward: Array
    backward: Array
    cluster: Cluster
    exclusive: dict[str, Array]
    shared: SharedBytes
    temporary: Array
    carry: Array
    stash: Array
    in_bytes: Array
    out_bytes: Array
    recv_cycles: Array | None = None
    send_cycles: Array | None = None
    compute_table: Array | None = None
    memory_table: Array | None = None
    variables: tuple[Variable, ...] = ()
    forbidden_cuts: tuple[int, ...] = ()
    fixed_cuts: tuple[int, ...] = ()
    training: bool = False
    microbatches: int = 1
    objective: Objective = Objective.BOTTLENECK
    host_transfer: bool = False
    fewer_stages: bool = False
    free_order: bool = False
    layer_names: tuple[str, ...] | None = None
    source: str = field(default="", compare=False)

    kind = KIND

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_arrays(
        cls,
        forward: Any,
        *,
        devices: int | None = None,
        cluster: Cluster | None = None,
        backward: Any = None,
        capacity: Any = None,
        speed: Any = None,
        bandwidth: float | None = None,
        clock: float = 1_000_000_000,
        exclusive: Any = None,
        shared: Mapping[str, tuple[int, Iterable[int]]] | SharedBytes | None = None,
        temporary: Any = None,
        carry: Any = None,
        stash: Any = None,
        in_bytes: Any = None,
        out_bytes: Any = None,
        recv_cycles: Any = None,
        send_cycles: Any = None,
        compute_table: Any = None,
        memory_table: Any = None,
        variables: Iterable[Variable | tuple[str, int, int]] = (),
        forbidden_cuts: Iterable[int] = (),
        fixed_cuts: Iterable[int] = (),
        training: bool = False,
        microbatches: int = 1,
        objective: Objective | str = Objective.BOTTLENECK,
        host_transfer: bool = False,
        fewer_stages: bool = False,
        free_order: bool = False,
        layer_names: Sequence[str] | None = None,
        name: str = "pipeline",
        source: str = "",
    ) -> PipelinePartition:
        """Build an instance from arrays; see the class for shapes and units.

        Parameters
        ----------
        forward : array_like, shape (n,)
            Cycles of each layer; may be None when `compute_table` is given.
        devices, capacity, speed, bandwidth, clock
            A quick cluster: `devices` devices, of `capacity` bytes and `speed` (one number or one
            a device), joined to one another and the host at `bandwidth` GB/s.
        cluster : Cluster
            Instead of these: the cluster in full.
        exclusive : array_like or dict of array_like
            Bytes of each layer, by category if a dict.
        shared : dict
            ``{key: (bytes, layers that use it)}``.
        variables : iterable of Variable or (name, first, last)

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
        if isinstance(exclusive, Mapping):
            categories = {str(key): value for key, value in exclusive.items()}
        else:
            categories = {} if exclusive is None else {"memory": exclusive}
        if not isinstance(shared, SharedBytes):
            try:
                shared = SharedBytes.of(shared or {})
            except (TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"cannot be read ({error})",
                    field="shared",
                    remedy="write {key: (bytes, [layers])}",
                ) from error
        try:
            chosen = Objective(objective)
        except ValueError:
            raise InputError(
                f"unknown objective {str(objective)!r}",
                field="objective",
                remedy="choose one of " + ", ".join(Objective),
            ) from None
        try:
            spans = tuple(v if isinstance(v, Variable) else Variable(*v) for v in variables)
        except TypeError as error:
            raise InputError(
                f"cannot be read ({error})", field="variables", remedy="write (name, first, last)"
            ) from None
        instance = cls(
            name=name,
            forward=cycles,
            backward=arrays.numbers(backward, "backward", (n,)),
            cluster=cluster,
            exclusive={
                key: arrays.whole_bytes(value, f"exclusive.{key}", (n,))
                for key, value in categories.items()
            },
            shared=shared,
            temporary=arrays.whole_bytes(temporary, "temporary", (n,)),
            carry=arrays.whole_bytes(carry, "carry", (n,)),
            stash=arrays.whole_bytes(stash, "stash", (n,)),
            in_bytes=arrays.whole_bytes(in_bytes, "in_bytes", (n + 1,)),
            out_bytes=arrays.whole_bytes(out_bytes, "out_bytes", (n + 1,)),
            recv_cycles=arrays.table(recv_cycles, "recv_cycles", (k, n + 1)),
            send_cycles=arrays.table(send_cycles, "send_cycles", (k, n + 1)),
            compute_table=arrays.table(compute_table, "compute_table", (n + 1, n + 1), k),
            memory_table=arrays.byte_table(memory_table, "memory_table", (n + 1, n + 1), k),
            variables=spans,
            forbidden_cuts=arrays.cuts(forbidden_cuts, "forbidden_cuts"),
            fixed_cuts=arrays.cuts(fixed_cuts, "fixed_cuts"),
            training=bool(training),
            microbatches=arrays.integer(microbatches, "microbatches"),
            objective=chosen,
            host_transfer=bool(host_transfer),
            fewer_stages=bool(fewer_stages),
            free_order=bool(free_order),
            layer_names=None if layer_names is None else tuple(map(str, layer_names)),
            source=source,
        )
        instance._validate()
        return instance

    @classmethod
    def from_profile(
        cls, profile: ModelProfile, cluster: Cluster, *, name: str | None = None, **options: Any
    ) -> PipelinePartition:
        """Build an instance from a model profile and a cluster.

        Carried bytes and the bytes that cross every cut follow from the tensors' lifetimes, the
        spans that must stay together from the variables.  `options` go to :meth:`from_arrays`
        (training, microbatches, objective, ...), and may replace what is derived.
        """
        layers = profile.layers
        n = len(layers)
        lifetimes = Lifetimes.of(profile)
        crossing = lifetimes.crossing()
        categories: dict[str, Array] = {}
        uses: dict[str, tuple[int, list[int]]] = {}
        spans: dict[str, tuple[int, int]] = {}
        for index, layer in enumerate(layers):
            for category, nbytes in layer.exclusive.items():
                if category not in categories:
                    categories[category] = np.zeros(n, dtype=np.int64)
                categories[category][index] = nbytes
            for key, nbytes in layer.shared.items():
                known, users = uses.setdefault(key, (nbytes, []))
                if known != nbytes:
                    raise InputError(
                        f"key {key!r} has {nbytes} bytes here and {known} elsewhere",
                        field=f"layers[{index}].shared",
                        remedy="give equal keys equal sizes",
                    )
                users.append(index)
            for variable in layer.variables:
                spans[variable] = (spans.get(variable, (index, index))[0], index)
        derived: dict[str, Any] = {
            "backward": [layer.backward for layer in layers],
            "exclusive": categories,
            "shared": uses,
            "temporary": [layer.temporary for layer in layers],
            "carry": lifetimes.carried(),
            "stash": [layer.stash for layer in layers],
            "in_bytes": crossing,
            "out_bytes": crossing,
            "variables": [(name, first, last) for name, (first, last) in spans.items()],
            "layer_names": [layer.name or f"layer {i}" for i, layer in enumerate(layers)],
        }
        return cls.from_arrays(
            [layer.forward for layer in layers],
            cluster=cluster,
            name=profile.name or "pipeline" if name is None else name,
            **{**derived, **options},
        )

    def replace(self, **changes: Any) -> PipelinePartition:
        """Return a copy with some fields changed, all validated anew as by :meth:`from_arrays`.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        known = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in changes:
            if name not in known:
                raise InputError(
                    "is no field of a pipeline partition",
                    field=name,
                    remedy="known are " + ", ".join(known),
                )
        return type(self).from_arrays(**{**known, **changes})

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields alone: what was derived from them is made anew."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    # ------------------------------------------------------------------ derived figures

    @property
    def n(self) -> int:
        """Number of layers."""
        return len(self.forward)

    @property
    def k(self) -> int:
        """Number of devices."""
        return len(self.cluster)

    @cached_property
    def cycles(self) -> Array:
        """Cycles of each layer, shape (n,): forward, plus backward when training."""
        return np.asarray(self.forward + self.backward) if self.training else self.forward

    @cached_property
    def whole(self) -> bool:
        """Whether cycles are integers (then transfers are rounded down to whole cycles too)."""
        tables = (self.compute_table, self.recv_cycles, self.send_cycles)
        return self.cycles.dtype.kind == "i" and all(
            table is None or table.dtype.kind == "i" for table in tables
        )

    @cached_property
    def tolerance(self) -> float:
        """Relative tolerance of objective values: 0 for integer cycles, else 1e-9.

        1e-9, too, for speeds without a common multiple of moderate size.
        """
        return 0.0 if self.whole and self.speed_scale else 1e-9

    @cached_property
    def speed_scale(self) -> int:
        """The least s for which integer cycles times s / speed are whole; 0: beyond 64 bits."""
        speeds = [Fraction(str(speed)) for speed in {d.speed for d in self.cluster.devices}]
        scale = 1
        for speed in speeds:
            scale = math.lcm(scale, speed.numerator)
            if scale > 2**53:
                return 0
        table = self.compute_table
        total = np.sum(self.cycles, dtype=np.float64) if table is None else table.max()
        # Beyond 2**53 ticks a fraction of cycles has no exact double.
        fits = float(total) * scale / float(min(speeds)) < 2**53
        return scale if scale == 1 or fits else 0

    @cached_property
    def allowed_cuts(self) -> Array:
        """Mask, shape (n + 1,), of the cuts where a stage may begin or end; 0 and n included."""
        crossed = np.zeros(self.n + 2, dtype=np.int64)
        if self.variables:
            np.add.at(crossed, [v.first + 1 for v in self.variables], 1)
            np.add.at(crossed, [v.last + 1 for v in self.variables], -1)
        allowed: Array = np.cumsum(crossed)[: self.n + 1] == 0
        allowed[list(self.forbidden_cuts)] = False
        allowed[[0, self.n]] = True
        return allowed

    def layer_name(self, index: int) -> str:
        """Name of a layer for messages and plots."""
        return f"layer {index}" if self.layer_names is None else self.layer_names[index]

    def device_name(self, index: int) -> str:
        """Name of a device for messages and plots."""
        return self.cluster.devices[index].name or f"device {index}"

    @cached_property
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        whole = hashlib.sha256()
        for key, value in sorted(vars(self).items()):
            if key in ("name", "source", "layer_names") or key not in self.__dataclass_fields__:
                continue
            whole.update(key.encode())
            for part in _parts(value):
                whole.update(part)
        return whole.hexdigest()[:16]

    # ------------------------------------------------------------------ what an answer is worth

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} layers, {self.k} devices, {self.objective}"

    def _answer(self) -> tuple[type[PipelineSolution], Callable[..., Iterable[Any]]]:
        from stagepack.instances.pipeline.check import shape

        return PipelineSolution, shape

    def evaluate(self, solution: PipelineSolution | Result[PipelineSolution]) -> Number:
        """Return the objective value of `solution`; see :mod:`.check`."""
        from stagepack.instances.pipeline.check import evaluate

        return evaluate(self, self.solution_in(solution))

    def check(self, solution: PipelineSolution | Result[PipelineSolution]) -> tuple[Any, ...]:
        """Return the violations of `solution`, () if it is valid; see :mod:`.check`."""
        from stagepack.instances.pipeline.check import check

        return check(self, self.solution_in(solution, shaped=False))

    def _validate(self) -> None:
        n, k = self.n, self.k
        if not 1 <= self.microbatches < 2**31:
            raise InputError(
                f"{self.microbatches} microbatches",
                field="microbatches",
                remedy="give at least one and fewer than 2**31",
            )
        total = 0.0
        for name in ("forward", "backward"):
            total += float(np.sum(getattr(self, name), dtype=np.float64))
        if total >= LARGEST:
            raise InputError(
                "the sum of all cycles exceeds 2**62", field="forward", remedy="use a coarser unit"
            )
        columns = [*self.exclusive.values(), self.temporary, self.carry, self.stash]
        columns += [self.in_bytes, self.out_bytes, self.shared.nbytes]
        factor = max(1, self.microbatches if self.training else 1)
        if sum(float(np.sum(c, dtype=np.float64)) for c in columns) * factor >= LARGEST:
            raise InputError(
                "the sum of all bytes exceeds 2**62", field="exclusive", remedy="use a coarser unit"
            )
        if self.layer_names is not None and len(self.layer_names) != n:
            raise InputError(
                f"{len(self.layer_names)} names for {n} layers",
                field="layer_names",
                remedy="give one name a layer",
            )
        for name in ("recv_cycles", "send_cycles", "compute_table", "memory_table"):
            table = getattr(self, name)
            shapes = ((k, n + 1),) if "cycles" in name else ((n + 1, n + 1), (k, n + 1, n + 1))
            if table is not None and table.shape not in shapes:
                raise InputError(
                    f"has shape {table.shape}",
                    field=name,
                    remedy=f"for {k} devices give {' or '.join(map(str, shapes))}",
                )
        self._validate_cluster()
        uses = self.shared.layer
        if len(uses) and (uses.min() < 0 or uses.max() >= n):
            raise InputError(
                f"names a layer outside 0..{n - 1}", field="shared", remedy="count layers from 0"
            )
        if len(self.shared.nbytes) and self.shared.nbytes.min() < 0:
            raise InputError("negative bytes", field="shared", remedy="give bytes >= 0")
        for variable in self.variables:
            if not 0 <= variable.first <= variable.last < n:
                raise InputError(
                    f"variable {variable.name!r} spans layers {variable.first}..{variable.last} "
                    f"of 0..{n - 1}",
                    field="variables",
                    remedy="give 0 <= first <= last < n",
                )
        for name in ("forbidden_cuts", "fixed_cuts"):
            for cut in getattr(self, name):
                if not 0 < cut < n:
                    raise InputError(
                        f"cut {cut} is not between two of the {n} layers",
                        field=name,
                        remedy=f"cuts run from 1 to {n - 1}; cut c lies before layer c",
                    )

    def _validate_cluster(self) -> None:
        cluster, n, k = self.cluster, self.n, self.k
        if k > n and not self.fewer_stages:
            raise InputError(
                f"{k} devices for {n} {'layer' if n == 1 else 'layers'}",
                field="devices",
                remedy="use at most one device a layer, or allow fewer stages",
            )
        links = {cluster.host_recv, cluster.host_send}
        for index, device in enumerate(cluster.devices):
            where = f"cluster.devices[{index}]"
            memory, speed = device.memory, device.speed
            if memory is not None and (not isinstance(memory, int) or memory < 0):
                raise InputError(f"memory {memory}", field=where, remedy="give whole bytes >= 0")
            if not 1e-9 <= speed <= 1e9:
                raise InputError(f"speed {speed}", field=where, remedy="give a speed around 1")
            links |= {device.recv, device.send}
        for link in links - {None}:
            assert link is not None
            try:
                slowest = link.idle + 2.0**62 / (link.GBps * 2**30 / cluster.clock)
                usable = link.GBps > 0 and cluster.clock > 0 and link.idle >= 0
            except (OverflowError, ZeroDivisionError):
                slowest, usable = math.inf, False
            if not usable or not math.isfinite(slowest):
                raise InputError(
                    f"{link.GBps} GB/s after {link.idle} cycles at {cluster.clock} Hz are out of "
                    "range",
                    field="cluster",
                    remedy="give bandwidths, delays and a clock of this world",
                )


def _quick_cluster(
    devices: int | None, capacity: Any, speed: Any, bandwidth: float | None, clock: float
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
    if bandwidth is not None and not 0 < bandwidth < float("inf"):
        raise InputError(f"{bandwidth} GB/s", field="bandwidth", remedy="give a positive number")
    speeds = [1] * devices if speed is None else np.broadcast_to(speed, devices).tolist()
    for value in speeds:
        if not 0 < value < float("inf"):
            raise InputError(f"speed {value}", field="speed", remedy="give positive speeds")
    if capacity is None:
        memory: list[int | None] = [None] * devices
    else:
        try:
            memory = list(map(int, np.broadcast_to(capacity, devices).tolist()))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"cannot be read ({error})",
                field="capacity",
                remedy="give bytes, one number or one a device",
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


def _parts(value: Any) -> Iterable[bytes]:
    """Yield the bytes that tell `value` from another one."""
    if isinstance(value, np.ndarray):
        yield value.dtype.str.encode()
        yield str(value.shape).encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, SharedBytes):
        for part in (value.nbytes, value.layer, value.key):
            yield from _parts(part)
    elif isinstance(value, dict):
        for key in sorted(value):
            yield str(key).encode()
            yield from _parts(value[key])
    elif isinstance(value, Cluster):
        anonymous = [msgspec.structs.replace(device, name="") for device in value.devices]
        yield msgspec.json.encode((anonymous, value.clock, value.host_recv, value.host_send))
    else:
        yield repr(value).encode()
