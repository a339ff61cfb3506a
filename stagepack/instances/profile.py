"""What was measured or estimated of a network and of its machine: layers, tensors, clusters.

A profile knows no problem; instances are built from it
(:meth:`stagepack.instances.pipeline.PipelinePartition.from_profile`).  Everything is plain,
frozen data that reads from and writes to JSON as it stands.

Units: cycles of the cluster's clock, bytes, GB/s meaning 2**30 bytes a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Annotated, Any, overload

import msgspec
import numpy as np
import numpy.typing as npt

from stagepack.errors import InputError
from stagepack.files import in_bytes

Array = npt.NDArray[Any]
Cycles = Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Positive = Annotated[int, msgspec.Meta(gt=0)] | Annotated[float, msgspec.Meta(gt=0)]


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One direction of a link between two devices, or between a device and the host.

    A transfer of b bytes takes ``int(idle + b / (GBps * 2**30 / clock))`` cycles, the rule of
    *Auto Pipeline*.  For profiles with fractions of a time unit, it is not rounded.

    Attributes
    ----------
    GBps : number
        Bandwidth in 2**30 bytes a second.
    idle : int
        Cycles before each transfer.
    """

    GBps: Positive
    idle: Cycles = 0


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator of a pipeline.

    Attributes
    ----------
    name : str
    memory : int or None
        Usable bytes; None: no limit.
    speed : number
        A layer takes its cycles divided by this.
    recv, send : Link or None
        The links from the previous device and to the next one; None: transfers take no time.
    """

    name: str = ""
    memory: Bytes | None = None
    speed: Positive = 1
    recv: Link | None = None
    send: Link | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "memory", in_bytes(self.memory, "memory"))

    @property
    def kind(self) -> tuple[Any, ...]:
        """All properties of the device except its name."""
        return (self.memory, self.speed, self.recv, self.send)


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The devices of a pipeline, in order, and the links to the host.

    Attributes
    ----------
    devices : tuple of Device
    name : str
    clock : number
        Cycles per second, in Hz; all times of a model are counted in these cycles.
    host_recv, host_send : Link or None
        The links on which the first stage receives the inputs of the model, and the last stage
        sends its outputs; None: they take no time.
    """

    devices: Annotated[tuple[Device, ...], msgspec.Meta(min_length=1)]
    name: str = ""
    clock: Positive = 1_000_000_000
    host_recv: Link | None = None
    host_send: Link | None = None

    @classmethod
    def uniform(
        cls,
        devices: int,
        *,
        memory: int | str | None = None,
        link: Link | None = None,
        host: Link | None = None,
        clock: float = 1_000_000_000,
        name: str = "",
    ) -> Cluster:
        """Return a cluster of equal devices.

        Parameters
        ----------
        devices : int
            Number of devices.
        memory : int or str, optional
            Bytes of each device, or "16GiB"; no limit when absent.
        link : Link, optional
            Link between neighbours, in both directions; when absent, transfers take no time.
        host : Link, optional
            Link from and to the host; when absent, transfers take no time.
        clock : float
            Clock in Hz.
        name : str

        Raises
        ------
        InputError
            If `devices` is less than 1.
        """
        if devices < 1:
            raise InputError(
                f"{devices} devices", field="devices", remedy="give at least one device"
            )
        device = Device(memory=in_bytes(memory, "memory"), recv=link, send=link)
        return cls(
            devices=(device,) * devices, name=name, clock=clock, host_recv=host, host_send=host
        )

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"<Cluster: {self.name!r}, {len(self.devices)} devices>"


@dataclass(frozen=True)
class TileCounts(Sequence[int]):
    """Numbers of I/O tiles, rising, `none` perhaps and `some` others; as few numbers, however
    many.
    """

    none: bool
    some: range

    def __len__(self) -> int:
        return self.none + len(self.some)

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...

    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        if isinstance(at, slice):
            return tuple(self[i] for i in range(*at.indices(len(self))))
        place = range(len(self))[at]
        return 0 if self.none and place == 0 else self.some[place - self.none]

    def __contains__(self, count: object) -> bool:
        return (self.none and count == 0) or count in self.some


class Chip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chip with remote memory, on which models that exceed its own memory run in phases.

    Rates are in bytes per cycle of `clock`.  They may be fractions, which are exactly what their
    decimal text says (0.1 is a tenth).  A rate of None means that the transfer takes no cycles.

    Attributes
    ----------
    memory : int or None
        Bytes of on-chip memory, divided equally among `tiles` tiles; None: no limit.
    tiles : int
        Number of tiles.
    io_tiles : (int, int)
        Smallest and largest number of tiles that may be reserved for input and output.
    io_tile_step : int
        Distance between allowed numbers of I/O tiles, from the smallest on.
    io_tiles_optional : bool
        Whether zero I/O tiles are allowed, too, if the smallest number is above 0.
    remote_bandwidth, host_bandwidth : number or None
        Between the chip and remote (streaming) memory, and the host.
    tile_bandwidth : number or None
        Rate of one I/O tile; None: unlimited.
    gather_bandwidth : number or None
        Rate at which a replica gathers the shards of the others (and scatters gradients).
    startup : int
        Cycles before each phase.
    clock : number
        In Hz, to turn cycles into seconds.
    """

    memory: Bytes | None = None
    tiles: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 1
    io_tiles: tuple[int, int] = (0, 0)
    io_tile_step: Annotated[int, msgspec.Meta(ge=1)] = 1
    io_tiles_optional: bool = False
    remote_bandwidth: Positive | None = None
    host_bandwidth: Positive | None = None
    tile_bandwidth: Positive | None = None
    gather_bandwidth: Positive | None = None
    startup: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    clock: Positive = 1_000_000_000
    name: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "memory", in_bytes(self.memory, "memory"))

    @property
    def io_tile_choices(self) -> TileCounts:
        """Every allowed number of I/O tiles, rising."""
        least, most = self.io_tiles
        some = range(least or self.io_tile_step, most + 1, self.io_tile_step)
        return TileCounts(least == 0 or self.io_tiles_optional, some)


class LayerProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of one layer.

    Attributes
    ----------
    forward, backward : int or float
        Cycles of one microbatch on a device of speed 1.
    exclusive : dict
        Bytes that are always in the memory of the layer's device, by category (parameters, ...).
    shared : dict
        Bytes that a device holds once for all its layers with the same key (code of equal layers).
    temporary : int
        Bytes alive only while the layer runs.
    backward_temporary : int
        Bytes alive only while its backward pass runs (training only), without the stash.
    stash : int
        Bytes kept for the backward pass, per microbatch in flight (training only).
    kv_bytes : int
        Bytes of KV cache that a token takes.
    variables : tuple of str
        Names of the variables used; all layers that use the same variable belong to one stage.
    tied : dict
        Bytes of the weights that other layers use, too, by name: a number, or by category as in
        `exclusive`, where they are not.  A chain has a copy on every stage that uses such a weight.
    inputs, outputs : tuple of str
        Tensors read and written, by the names of :attr:`ModelProfile.tensors`.
    """

    name: str = ""
    forward: Cycles = 0
    backward: Cycles = 0
    exclusive: dict[str, Bytes] = {}
    shared: dict[str, Bytes] = {}
    temporary: Bytes = 0
    backward_temporary: Bytes = 0
    stash: Bytes = 0
    kv_bytes: Bytes = 0
    variables: tuple[str, ...] = ()
    tied: dict[str, Bytes | dict[str, Bytes]] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def held(self, name: str) -> dict[str, int]:
        """Return the bytes of a tied weight by category."""
        held = self.tied[name]
        return held if isinstance(held, dict) else {"parameters": held}


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of all layers of a model, and the sizes of the tensors between them.

    Attributes
    ----------
    layers : tuple of LayerProfile
        In execution order.
    tensors : dict of str to int
        Bytes of each tensor.  Tensors that no layer writes come from the host.
    results : tuple of str, or None
        Names of the tensors that are sent to the host; None: the outputs of the last layer.
    name : str
    training : bool, optional
        Whether `exclusive` has the bytes of gradients and optimiser state, so that instances made
        of it are of training; None: not said.
    """

    layers: Annotated[tuple[LayerProfile, ...], msgspec.Meta(min_length=1)]
    tensors: dict[str, Bytes] = {}
    results: tuple[str, ...] | None = None
    name: str = ""
    training: bool | None = None

    def __repr__(self) -> str:
        return f"<ModelProfile: {self.name!r}, {len(self.layers)} layers>"

    def trains(self, asked: bool | None) -> bool:
        """Return whether an instance is of training, as `asked`, or else as the bytes are.

        Refuses training with bytes of inference, and conversely.
        """
        if self.training is None or asked is None or bool(asked) == self.training:
            return bool(self.training if asked is None else asked)
        counts = "has" if self.training else "has not"
        raise InputError(
            f"is {asked}, but the profile {counts} the bytes of gradients and optimiser state",
            field="training",
            remedy=f"profile_model(..., training={asked}), or leave it out here",
        )

    def together(self) -> ModelProfile:
        """Return the same with tied weights as variables, whose bytes the first user has."""
        layers, seen = [], set[str]()
        for layer in self.layers:
            exclusive = dict(layer.exclusive)
            for name in filter(lambda name: name not in seen, layer.tied):
                for category, nbytes in layer.held(name).items():
                    exclusive[category] = exclusive.get(category, 0) + nbytes
            seen |= layer.tied.keys()
            variables = tuple(dict.fromkeys((*layer.variables, *layer.tied)))
            layers.append(
                msgspec.structs.replace(layer, exclusive=exclusive, variables=variables, tied={})
            )
        return msgspec.structs.replace(self, layers=tuple(layers)) if seen else self


def inner_bytes(profile: ModelProfile) -> list[int]:
    """Return the temporary bytes of each layer without its outputs and its last-used inputs.

    The temporary bytes of a profile include these tensors.
    """
    last = {tensor: at for at, layer in enumerate(profile.layers) for tensor in layer.inputs}
    found = []
    for at, layer in enumerate(profile.layers):
        ending = [tensor for tensor in dict.fromkeys(layer.inputs) if last[tensor] == at]
        around = sum(profile.tensors[tensor] for tensor in (*layer.outputs, *ending))
        found.append(max(0, layer.temporary - around))
    return found


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes of tensors along a chain of n layers."""

    n: int  # number of layers
    # int64, shape (tensors,): the layer that writes each tensor, in [-1, n); -1: the host.
    born: Array
    # int64, shape (tensors,): the last layer that reads each tensor, in [-1, n]; n: it is sent to
    # the host.
    last_use: Array
    nbytes: Array  # int64, shape (tensors,): bytes of each tensor
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for array in (self.born, self.last_use, self.nbytes):
            array.setflags(write=False)

    @classmethod
    def of(cls, profile: ModelProfile) -> Lifetimes:
        """Return the lifetimes of the tensors of `profile`.

        A tensor without a size, or that is written twice or read before it is written, is refused.
        """
        n = len(profile.layers)
        born: dict[str, int] = {}
        last_use: dict[str, int] = {}
        for index, layer in enumerate(profile.layers):
            for tensor in layer.outputs:
                if tensor in born:
                    raise InputError(
                        f"tensor {tensor!r} is written twice",
                        field=f"layers[{index}].outputs",
                        remedy="give every write a name of its own",
                    )
                born[tensor] = index
        for index, layer in enumerate(profile.layers):
            for tensor in layer.inputs:
                if born.setdefault(tensor, -1) >= index:
                    raise InputError(
                        f"tensor {tensor!r} is read before layer {born[tensor]} writes it",
                        field=f"layers[{index}].inputs",
                        remedy="list the layers in execution order",
                    )
                last_use[tensor] = index
        results = profile.layers[-1].outputs if profile.results is None else profile.results
        for tensor in results:
            born.setdefault(tensor, -1)
            last_use[tensor] = n
        for tensor in born:
            if tensor not in profile.tensors:
                raise InputError(
                    f"tensor {tensor!r} has no size", field="tensors", remedy="add its bytes"
                )
        if sum(profile.tensors[tensor] for tensor in born) > 2**62:
            raise InputError(
                "all tensors together exceed 2**62 bytes", field="tensors", remedy="check the sizes"
            )
        return cls(
            n=n,
            born=np.array(list(born.values()), dtype=np.int64),
            last_use=np.array([last_use.get(t, born[t]) for t in born], dtype=np.int64),
            nbytes=np.array([profile.tensors[t] for t in born], dtype=np.int64),
            names=tuple(born),
        )

    def crossing(self) -> Array:
        """Return the bytes that cross each cut, shape (n + 1,); each tensor counts once per cut.

        Cut c lies between layers c - 1 and c.  Cut 0 is crossed by what the host sends, cut n by
        what is sent to the host.  O(tensors + n).
        """
        delta = np.zeros(self.n + 2, dtype=np.int64)
        live = self.last_use > self.born
        np.add.at(delta, self.born[live] + 1, self.nbytes[live])
        np.add.at(delta, self.last_use[live] + 1, -self.nbytes[live])
        return np.cumsum(delta)[: self.n + 1]

    @property
    def passing(self) -> Lifetimes:
        """The tensors that are kept across at least one layer, which :meth:`carried` counts."""
        across = self.last_use > self.born + 1
        return Lifetimes(
            n=self.n,
            born=self.born[across],
            last_use=self.last_use[across],
            nbytes=self.nbytes[across],
            names=tuple(compress(self.names, across.tolist())),
        )

    def tell(self, carry: Array) -> bool:
        """Whether `carry`, shape (layers,), is the sum of these tensors, or is all zeros."""
        return self.n == len(carry) and (not carry.any() or np.array_equal(carry, self.carried()))

    def carried(self) -> Array:
        """Return the bytes that are written before each layer and read after it, shape (n,).

        A device keeps them while the layer runs; Auto Pipeline calls them ``mem_intermediate``.
        """
        delta = np.zeros(self.n + 2, dtype=np.int64)
        across = self.last_use > self.born + 1
        np.add.at(delta, self.born[across] + 1, self.nbytes[across])
        np.add.at(delta, self.last_use[across], -self.nbytes[across])
        return np.cumsum(delta)[: self.n]
