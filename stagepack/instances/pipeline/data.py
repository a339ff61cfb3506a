"""Pipeline partitioning: which consecutive layers run on which device.

n layers in a chain are cut into stages; each stage runs on a device of its own.  An instance is
plain arrays (one entry a layer or a cut) and a cluster; it knows no solver.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Self

import msgspec
import numpy as np

from stagepack.contracts import Number, cached
from stagepack.errors import InputError
from stagepack.instances.arrays import freeze
from stagepack.instances.base import digest_of
from stagepack.instances.documents import strict
from stagepack.instances.pipeline.problem import KIND, Objective
from stagepack.instances.profile import Array, Cluster, Lifetimes
from stagepack.shown import ShownSolution, some

CYCLES = ("forward", "backward")
BYTES = ("temporary", "stash", "kv_bytes")
FIGURES = (*CYCLES, "exclusive", *BYTES)
"""What an alternative may say of layers."""
OWN = "own"
PER = ("layer", "stage")


@dataclass(frozen=True, eq=False)
class Alternative:
    """Figures of the layers that take it; where a layer has it not, they are the layer's own."""

    layers: Array  # bool, shape (n,): the layers that have it
    # `forward`, `backward`: ndarray, shape (n,): cycles of each layer on a device of speed 1.
    forward: Array
    backward: Array
    # dict of int64, shape (n,): bytes of each layer that are always in the memory of its device, by
    # category.
    exclusive: dict[str, Array]
    # `temporary`, `stash`, `kv_bytes`: int64, shape (n,): bytes in use while the layer runs, kept
    # for its backward pass, and taken by a token.
    temporary: Array
    stash: Array
    kv_bytes: Array

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def held(self) -> Array:
        """Bytes of each layer that are always in memory, of all categories."""
        return sum(self.exclusive.values(), np.zeros(len(self.layers), dtype=np.int64))

    def parts(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


Uses = dict[str, tuple[int, list[int]]]
"""Bytes of each key, and the layers that use it."""


def uses_of(layers: Iterable[Mapping[str, int]], field: str) -> Uses:
    """Return what layers share, given the bytes of each key of each.

    Messages name `field`, where a layer says it, with ``{}`` for its number.
    """
    uses: Uses = {}
    for at, shared in enumerate(layers):
        for key, nbytes in shared.items():
            known, users = uses.setdefault(key, (nbytes, []))
            if known != nbytes:
                raise InputError(
                    f"key {key!r} has {nbytes} bytes here and {known} elsewhere",
                    field=field.format(at),
                    remedy="give equal keys equal sizes",
                )
            users.append(at)
    return uses


@dataclass(frozen=True, eq=False)
class SharedBytes:
    """Bytes a device holds once for all its layers with the same key."""

    names: tuple[str, ...]  # the keys
    nbytes: Array  # int64, shape (keys,): bytes of each key
    # `layer`, `key`: int64, shape (uses,): layer `layer[u]` needs key `key[u]`; sorted by layer, no
    # pair twice.
    layer: Array
    key: Array

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def of(cls, uses: Mapping[str, tuple[int, Iterable[int]]]) -> SharedBytes:
        """Build from ``{key: (bytes, layers)}``."""
        pairs = sorted(
            {(int(layer), k) for k, (_, layers) in enumerate(uses.values()) for layer in layers}
        )
        both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(
            names=tuple(uses),
            nbytes=np.array([nbytes for nbytes, _ in uses.values()], dtype=np.int64),
            layer=both[:, 0].copy(),
            key=both[:, 1].copy(),
        )

    def beside(self, other: SharedBytes) -> SharedBytes:
        """Return these keys and those of `other`, which replace keys of the same name."""
        own, more = self.uses(), other.uses()
        for name in set(own).intersection(more):
            if own[name] != more[name]:
                raise InputError(
                    f"{name!r} is also shared, of other bytes or by other layers",
                    field="tied",
                    remedy="give it there alone, or another name",
                )
        return SharedBytes.of({**own, **more}) if more else self

    def uses(self) -> Uses:
        """Return the bytes of each key, and the layers that use it."""
        found: Uses = {
            name: (nbytes, [])
            for name, nbytes in zip(self.names, self.nbytes.tolist(), strict=True)
        }
        users = [layers for _, layers in found.values()]
        for layer, key in zip(self.layer.tolist(), self.key.tolist(), strict=True):
            users[key].append(layer)
        return found

    def previous(self) -> Array:
        """Return, shape (uses,), the previous layer with the same key, or -1."""
        order = np.lexsort((self.layer, self.key))
        layer, key = self.layer[order], self.key[order]
        before = np.full(len(order), -1, dtype=np.int64)
        again = key[1:] == key[:-1]
        before[1:][again] = layer[:-1][again]
        previous = np.empty_like(before)
        previous[order] = before
        return previous


LATER: dict[str, object] = {
    "backward_transfers": False,
    "received": True,
    "kv_bytes": None,
    "tokens": 0,
    "stages_per_device": 1,
    "placement": "loop",
    "tied": None,
    "previous": None,
    "limited": Objective.BOTTLENECK,
    "limit": None,
    "alternatives": {},
    "alternatives_per": "layer",
    "own_alternative": OWN,
}
"""Fields that instances did not have at first, and what they were then: digests stay."""


@dataclass(frozen=True)
class Variable:
    """A variable used by layers `first` to `last`, which must be in one stage."""

    name: str
    first: int
    last: int


class GraphOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chain is one of many topological orders of a graph, and so is its optimum.

    Attributes
    ----------
    edges : int
        Pairs of layers of which one reads what the other writes; where layers are stages of a
        graph, of its nodes.
    loose : int
        Neighbours in the chain that could change places; likewise.
    tried : int
        Orders among which this one was chosen; 1: it was given.
    """

    edges: Annotated[int, msgspec.Meta(ge=0)]
    loose: Annotated[int, msgspec.Meta(ge=1)]
    tried: Annotated[int, msgspec.Meta(ge=1)] = 1

    def __str__(self) -> str:
        chosen = "" if self.tried == 1 else f", the best of {self.tried} tried"
        return f"one of many of a graph{chosen}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PartitionData:
    """An instance of pipeline partitioning: layers, devices, and what a partition must respect.

    Use :meth:`from_arrays` or :meth:`from_profile`; the fields below are what they make.

    All figures are in cycles of the cluster's clock on a device of speed 1, int64, or float64 where
    the source has them, and in bytes, int64.  The entries of cut 0 and cut n, of bytes and of
    `recv_cycles` and `send_cycles`, are the exchange with the host, whichever devices run stages;
    given such cycles already include what `backward_transfers` double.  `shared` counts the memory
    of weights that are `tied`, too; in training a stage with some of a weight's layers, but not
    all, receives and sends its gradient once a step, of which a microbatch bears its share.
    `alternatives` and the fields about them are those of :mod:`.choices`; a stage of a schedule
    keeps what it has `received`, see `kept_bytes`.
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
    backward_transfers: bool = False
    received: bool = True
    kv_bytes: Array | None = None
    tokens: int = 0
    objective: Objective = Objective.BOTTLENECK
    host_transfer: bool = False
    fewer_stages: bool = False
    free_order: bool = False
    stages_per_device: int = 1
    placement: str | tuple[int, ...] = "loop"
    tied: SharedBytes | None = None
    previous: tuple[int, ...] | None = None
    limited: Objective = Objective.BOTTLENECK
    limit: Number | None = None
    alternatives: dict[str, Alternative] = field(default_factory=dict)
    alternatives_per: str = "layer"
    own_alternative: str = OWN
    layer_names: tuple[str, ...] | None = None
    order: GraphOrder | None = None
    tensors: Lifetimes | None = field(default=None, compare=False)
    source: str = field(default="", compare=False)

    kind = KIND

    @property
    def n(self) -> int:
        """Number of layers."""
        return len(self.forward)

    @property
    def k(self) -> int:
        """Number of devices."""
        return len(self.cluster)

    @property
    def placed(self) -> bool:
        """Whether stages are placed on devices otherwise than one on each, in order."""
        return self.stages_per_device > 1 or self.placement != "loop"

    @cached_property
    def stage_devices(self) -> tuple[int, ...]:
        """The device of each stage, empty ones included."""
        if not isinstance(self.placement, str):
            return self.placement
        there, back = tuple(range(self.k)), tuple(range(self.k - 1, -1, -1))
        rounds = (there, back if self.placement == "v" else there)
        return sum((rounds[at % 2] for at in range(self.stages_per_device)), ())

    def slots_of(self, solution: PipelineSolution) -> list[int]:
        """Return the number of each stage of a valid solution among all, empty ones included."""
        table, found = self.stage_devices, [-1]
        if self.free_order:
            return list(range(len(solution.devices)))
        for device in solution.devices:
            found.append(table.index(device, found[-1] + 1))
        return found[1:]

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

    @cached
    def tolerance(self) -> float:
        """Relative tolerance of objective values: 0 for integer cycles, else 1e-9.

        1e-9, too, for speeds without a common multiple of moderate size.  Bytes and tokens are
        whole whatever cycles are.
        """
        counted = self.objective in (Objective.MOVES, Objective.HEADROOM)
        return 0.0 if counted else self.rounding

    @property
    def rounding(self) -> float:
        """Relative tolerance of cycles."""
        return 0.0 if self.whole and self.speed_scale else 1e-9

    @cached_property
    def reduces(self) -> bool:
        """Whether gradients of tied weights are reduced in a time that the objective counts."""
        if self.tied is None or not (self.training and self.objective.counts_transfers):
            return False
        links = any(device.recv or device.send for device in self.cluster.devices)
        return links and len(np.unique(self.tied.key)) < len(self.tied.key)

    @cached_property
    def unreduced(self) -> Self:
        """The same chain, of which no gradients of tied weights are reduced: costs add up."""
        return replace(self, tied=None)

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
        for one in self.alternatives.values():
            total = total + np.sum(one.forward + one.backward, dtype=np.float64)
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

    @property
    def trips(self) -> int:
        """How often the links move what crosses a cut: there, and back as a gradient."""
        return 2 if self.training and self.backward_transfers else 1

    @property
    def linked(self) -> bool:
        """Whether transfers between devices take time: bytes cross links, or there are tables."""
        if self.recv_cycles is not None or self.send_cycles is not None:
            return True
        inside = slice(1, self.n)
        moved = self.in_bytes[inside].any() or self.out_bytes[inside].any()
        return bool(moved) and any(device.recv or device.send for device in self.cluster.devices)

    def taken(self, solution: PipelineSolution) -> tuple[str, ...]:
        """Return the alternative of each layer in a `solution`, by name."""
        return solution.choices or (self.own_alternative,) * self.n

    @cached_property
    def kept_bytes(self) -> Array:
        """Bytes, shape (n + 1,), that a stage which begins at a cut keeps of what it receives.

        For each microbatch in flight, as long as its stashes: in schedules and plans.  Partitions
        do not count them, so that of two stages with one end the longer never needs less.
        """
        counts = self.training and self.received and bool(self.stash.any())
        return self.in_bytes if counts else np.zeros_like(self.in_bytes)

    def cached_bytes(self, tokens: int) -> Array:
        """Bytes, shape (n,), of the KV cache of so many tokens in each layer."""
        return np.zeros(self.n, dtype=np.int64) if self.kv_bytes is None else tokens * self.kv_bytes

    def layer_name(self, index: int) -> str:
        """Name of a layer for messages and plots."""
        return f"layer {index}" if self.layer_names is None else self.layer_names[index]

    def device_name(self, index: int) -> str:
        """Name of a device for messages and plots."""
        return self.cluster.devices[index].name or f"device {index}"

    @cached
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        return digest_of(self, _parts, LATER)

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} layers, {self.k} devices, {self.objective}"


def _parts(value: object) -> Iterable[bytes]:
    """Yield the bytes that tell `value` from another one."""
    if isinstance(value, np.ndarray):
        yield value.dtype.str.encode()
        yield str(value.shape).encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Alternative):
        yield from _parts(value.parts())
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


@dataclass(frozen=True, repr=False)
class PipelineSolution(ShownSolution):
    """Stage j is the layers [boundaries[j], boundaries[j + 1]) on device devices[j].

    `choices` are the alternatives that layers take, by name; none where all have their own figures.
    """

    boundaries: tuple[int, ...]
    devices: tuple[int, ...]
    choices: tuple[str, ...] = ()

    @classmethod
    def in_order(cls, boundaries: Iterable[int]) -> PipelineSolution:
        """Return the partition with these boundaries on devices 0, 1, 2, ..."""
        cuts = tuple(int(cut) for cut in boundaries)
        return cls(cuts, tuple(range(len(cuts) - 1)))

    @classmethod
    def of(cls, instance: Any, boundaries: Iterable[int]) -> PipelineSolution:
        """Return the solution of `instance` with these boundaries, on devices 0, 1, 2, ..."""
        return cls.in_order(boundaries)

    @classmethod
    def from_dict(cls, data: Any, instance: Any = None) -> PipelineSolution:
        """Read ``{"boundaries": [0, ..., n], "devices": [...]}``; devices default to 0, 1, ...

        Parameters
        ----------
        data : mapping
            What :meth:`to_dict` makes.
        instance : PipelinePartition, optional
            What it should be a solution of.

        Raises
        ------
        InputError
            When a field is missing, unknown or no list of integers; with an instance, when it
            ends elsewhere or names a device that there is not.
        """
        cuts = data.get("boundaries") if isinstance(data, Mapping) else None
        if isinstance(cuts, list | tuple) and data.get("devices") is None:
            data = {**data, "devices": list(range(len(cuts) - 1))}
        answer = strict.convert(data, cls)
        if instance is not None:
            strict.require_end(answer.boundaries, instance)
            if any(not 0 <= device < instance.k for device in answer.devices):
                raise InputError(
                    f"names a device outside 0..{instance.k - 1}",
                    field="devices",
                    remedy=strict.ANOTHER,
                )
        return answer

    def to_dict(self) -> dict[str, Any]:
        """Return the solution as JSON data."""
        found = {"boundaries": list(self.boundaries), "devices": list(self.devices)}
        return {**found, "choices": list(self.choices)} if self.choices else found

    def _line(self) -> str:
        chosen = f", choices {some(self.choices)}" if self.choices else ""
        return f"boundaries {some(self.boundaries)}, devices {some(self.devices)}{chosen}"

    def malformed(self) -> str:
        """Return the name of a field that is not a list of integers, or ''."""
        for name in ("boundaries", "devices"):
            values = getattr(self, name)
            if not isinstance(values, tuple | list):
                return name
            if not all(hasattr(kind, "__index__") for kind in set(map(type, values))):
                return name
        texts = isinstance(self.choices, tuple | list)
        return "" if texts and {*map(type, self.choices)} <= {str} else "choices"

    @property
    def stages(self) -> list[tuple[int, int, int]]:
        """Triples (first layer, end, device), one for each stage."""
        return list(zip(self.boundaries, self.boundaries[1:], self.devices, strict=False))
