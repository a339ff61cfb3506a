"""GPUs, TPUs and links by name, with the figures of public datasheets, and clusters of them.

``4xh100`` are four in a node, ``2x8xh100`` two nodes of eight, ``h100:4+a100-80:4`` one node after
another; ``@pcie5`` names the link within nodes, ``@nvlink4/ib-ndr`` also that between them.  Behind
a last ``@``, a JSON file replaces figures by others, such as measured ones (:class:`Figures`).

Devices are where the chain puts them: device i sends to device i + 1 over the link within its node,
or, if it is the last there, over that between nodes.  Bandwidths are of one direction.  The host is
behind PCIe.  A datasheet's GB is 10**9 bytes; devices have some more, which is left to the
driver, the context and buffers of communication.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, NoReturn

import msgspec

from stagepack.errors import InputError
from stagepack.instances.documents import strict
from stagepack.instances.profile import Cluster, Device, Link, Positive

CLOCK = 1_000_000_000
"""Times are in nanoseconds."""
ACHIEVED = 0.5
"""Share of the peak FLOP/s that layers are taken to reach.

An assumption, between what is published of whole training steps: 38 to 43 % (Llama 3 405B on 8,192
to 16,384 H100; Dubey et al., *The Llama 3 Herd of Models*, 2024, table 4) and 42 to 56 % (GPT of 22
billion to a trillion on A100; Korthikanti et al., 2022, table 5).
"""
MOST = 65_536

NEAR, BUS, FAR = 3.4, 5.7, 14.0
"""Microseconds before a message over NVLink or its like, PCIe, and a network.

Source: NVIDIA, *NCCL 2.28.7*, ``src/graph/tuning.cc``, rings with the protocol Simple.
"""


class Wire(NamedTuple):
    """A link: GB/s in one direction, and microseconds before a message."""

    rate: float
    latency: float
    source: str


LINKS = {
    "nvlink3": Wire(300, NEAR, "NVIDIA A100 datasheet: NVLink 600 GB/s, both directions"),
    "nvlink-h800": Wire(
        160, NEAR, "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, section 3.2.2"
    ),
    "nvlink4": Wire(450, NEAR, "NVIDIA H100 datasheet: NVLink 900 GB/s, both directions"),
    "nvlink5": Wire(900, NEAR, "NVIDIA DGX B200 datasheet: NVLink 1.8 TB/s a GPU, both directions"),
    "infinity-fabric": Wire(
        64, NEAR, "AMD Instinct MI300X datasheet: links of 128 GB/s, both directions"
    ),
    "ici-v5e": Wire(50, NEAR, "Google Cloud TPU v5e: 1,600 Gbit/s a chip on four links"),
    "pcie4": Wire(31.508, BUS, "PCI Express 4.0: 16 GT/s, 16 lanes, 128b/130b"),
    "pcie5": Wire(63.015, BUS, "PCI Express 5.0: 32 GT/s, 16 lanes, 128b/130b"),
    "ib-hdr": Wire(25, FAR, "InfiniBand HDR: 200 Gbit/s a port, one port a device"),
    "ib-ndr": Wire(50, FAR, "InfiniBand NDR: 400 Gbit/s a port, one port a device"),
}  # fmt: skip


@dataclass(frozen=True)
class Accelerator:
    """A device by name."""

    memory: int  # bytes
    tflops: float  # dense bf16 products with 32-bit sums at the peak, 10**12 operations a second
    bandwidth: int  # of its memory, 10**9 bytes a second
    # `near`, `far`, `host`: links within a node, between nodes and to the host.
    near: str
    far: str
    host: str
    source: str
    # Shares of the peak that products reach, those of experts, and those of pairs of tokens.
    products: float = ACHIEVED
    experts: float = ACHIEVED
    attention: float = ACHIEVED
    reads: float = 1.0  # share of the bandwidth of its memory that is reached
    launch: float = 0.0  # microseconds of each layer beside them in a pass, such as for kernels


GB = 10**9
ACCELERATORS = {
    "a100-40": Accelerator(
        40 * GB, 312, 1555, "nvlink3", "ib-hdr", "pcie4", "NVIDIA A100 datasheet, 2021: SXM 40 GB"
    ),
    "a100-80": Accelerator(
        80 * GB, 312, 2039, "nvlink3", "ib-hdr", "pcie4", "NVIDIA A100 datasheet, 2021: SXM 80 GB"
    ),
    "h100": Accelerator(
        80 * GB, 989.5, 3350, "nvlink4", "ib-ndr", "pcie5",
        "NVIDIA H100 datasheet, 2023: SXM, half of 1,979 with sparsity",
    ),
    "h800": Accelerator(
        80 * GB, 989.5, 3350, "nvlink-h800", "ib-ndr", "pcie5",
        "as H100; its links: DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, section 3.2.2",
    ),
    "h200": Accelerator(
        141 * GB, 989.5, 4800, "nvlink4", "ib-ndr", "pcie5",
        "NVIDIA H200 datasheet, 2024: SXM, half of 1,979 with sparsity",
    ),
    "b200": Accelerator(
        180 * GB, 2250, 8000, "nvlink5", "ib-ndr", "pcie5",
        "NVIDIA DGX B200 datasheet, 2024: an eighth of 1,440 GB and 64 TB/s; a quarter of "
        "72 PFLOP/s FP8 with sparsity, by eight",
    ),
    "l40s": Accelerator(
        48 * GB, 362, 864, "pcie4", "ib-hdr", "pcie4",
        "NVIDIA L40S datasheet, 2023: 362.05, 733 with sparsity",
    ),
    "rtx-4090": Accelerator(
        24 * GB, 165.2, 1008, "pcie4", "ib-hdr", "pcie4",
        "NVIDIA Ada GPU Architecture, 2022, appendix A: RTX 4090, bf16 with FP32 accumulate",
    ),
    "mi300x": Accelerator(
        192 * GB, 1307.4, 5300, "infinity-fabric", "ib-ndr", "pcie5",
        "AMD Instinct MI300X datasheet, 2023",
    ),
    "tpu-v5e": Accelerator(
        16 * GB, 197, 819, "ici-v5e", "ici-v5e", "pcie4", "Google Cloud documentation: TPU v5e"
    ),
}  # fmt: skip
PART = re.compile(r"(?:(?:([0-9]+)x)?([0-9]+)x)?([a-z][a-z0-9-]*?)(?::([0-9]+))?")


FILE = ".json"
"""How names of files end that hold figures."""
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class DeviceFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Figures of an accelerator that replace those of its name, in the same units."""

    memory: Annotated[int, msgspec.Meta(ge=1, le=2**60)] | None = None
    tflops: Positive | None = None
    bandwidth: Positive | None = None
    products: Share | None = None
    experts: Share | None = None
    attention: Share | None = None
    reads: Share | None = None
    launch: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None


class LinkFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Figures of a link that replace those of its name."""

    rate: Positive | None = None
    latency: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of figures, by the names of accelerators and links; all others stay as they are."""

    devices: dict[str, DeviceFigures] = {}
    links: dict[str, LinkFigures] = {}

    @classmethod
    def read(cls, path: str) -> Figures:
        """Return the figures of a file; refuse names that are not known."""
        found = strict.decode_file(path, cls, "cluster")
        for held, known in ((found.devices, ACCELERATORS), (found.links, LINKS)):
            for name in held.keys() - known.keys():
                _refuse(f"{path}: unknown name {name!r}", known)
        return found

    def of(self, name: str) -> Accelerator:
        """Return an accelerator with its figures."""
        return replace(ACCELERATORS[name], **_said(self.devices.get(name)))

    def link(self, name: str) -> Wire:
        """Return a link with its figures."""
        return LINKS[name]._replace(**_said(self.links.get(name)))


def _said(figures: msgspec.Struct | None) -> Mapping[str, Any]:
    """Return the figures that are said."""
    return {} if figures is None else {k: v for k, v in msgspec.structs.asdict(figures).items()
                                       if v is not None}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """Some equal devices of a node, what each is, and links: inside, to other nodes and host."""

    name: str
    devices: int
    of: Accelerator
    near: Wire
    far: Wire
    host: Wire


def names() -> tuple[str, ...]:
    """Return how clusters of accelerators are named, ``Nx`` before each."""
    return tuple(f"Nx{name}" for name in ACCELERATORS)


def nodes(text: str) -> tuple[Node, ...]:
    """Return the nodes that a name says, in order; () for a name of another form.

    What has the form and names no accelerator or link that is known is refused with those that are.
    """
    devices, _, behind = text.partition("@")
    links, file = behind, ""
    if behind.endswith(FILE):
        links, _, file = behind.rpartition("@")
    devices, links = devices.lower(), links.lower()
    parts = [PART.fullmatch(part) for part in devices.split("+")]
    if not all(part and (part[2] or part[4] or part[3] in ACCELERATORS) for part in parts):
        return ()
    chosen = _links(links) if links else None
    figures = Figures.read(file) if file else Figures()
    found: list[Node] = []
    for part in filter(None, parts):
        name, count = part[3], int(part[4] or part[2] or 1)
        if name not in ACCELERATORS:
            _refuse(f"unknown accelerator {name!r}", ACCELERATORS)
        if part[4] and part[2]:
            _refuse(f"{part[0]!r} counts devices twice", ["4xh100", "h100:4", "2x8xh100"])
        of = figures.of(name)
        wires = map(figures.link, (*(chosen or (of.near, of.far)), of.host))
        found += [Node(name, count, of, *wires)] * int(part[1] or 1)
        if not 1 <= count <= MOST or not 1 <= sum(node.devices for node in found) <= MOST:
            _refuse(f"{part[0]!r} is not 1 to {MOST:,} devices", ["4xh100", "2x8xh100"])
    return tuple(found)


def slowest(found: Sequence[Node], width: int = 1) -> list[Node]:
    """Return the node of the slowest device of each `width` in a row, which are one stage."""
    flat = [node for node in found for _ in range(node.devices)]
    rows = (flat[at : at + width] for at in range(0, len(flat), width))
    return [min(row, key=lambda node: node.of.tflops) for row in rows]


def cluster(name: str, found: Sequence[Node], width: int = 1) -> Cluster:
    """Return the cluster called `name` of the nodes that were `found`, its devices in their order;
    speeds are those of products.

    Every `width` devices in a row are one stage, with the memory and the speed of the least of
    them; each sends to the one so far behind it.  Between nodes of unlike links the slower counts.
    """
    flat = [(at, node) for at, node in enumerate(found) for _ in range(node.devices)]
    rows = [flat[at : at + width] for at in range(0, len(flat), width)]
    between = [_between(*rows) for rows in pairwise(rows)]
    ends = flat[0][1], flat[-1][1]
    links = [ends[0].near, *between, ends[1].near]  # ends alike: what counts there is the host's
    kinds = [node.of for node in slowest(found, width)]
    first = kinds[0].tflops
    many = [
        f"{at}" if width == 1 else f"{at}-{at + width - 1}" for at in range(0, len(flat), width)
    ]
    return Cluster(
        name=name,
        clock=CLOCK,
        host_recv=_link(ends[0].host),
        host_send=_link(ends[1].host),
        devices=tuple(
            Device(
                name=f"{row[0][1].name} {where}",
                memory=min(node.of.memory for _, node in row),
                speed=1 if kind.tflops == first else kind.tflops / first,
                recv=_link(links[at]),
                send=_link(links[at + 1]),
            )
            for at, (row, kind, where) in enumerate(zip(rows, kinds, many, strict=True))
        ),
    )


def _between(row: Sequence[tuple[int, Node]], after: Sequence[tuple[int, Node]]) -> Wire:
    """Return the link between two stages, of pairs of devices the slowest."""
    used = {
        one.near if at == to else min(one.far, other.far, key=lambda wire: wire.rate)
        for (at, one), (to, other) in zip(row, after, strict=True)
    }
    return min(used, key=lambda wire: wire.rate)


def _links(text: str) -> tuple[str, str]:
    """Return the links within nodes and between them that stand behind an ``@``."""
    near, _, far = text.partition("/")
    for link in (near, far or near):
        if link not in LINKS:
            _refuse(f"unknown link {link!r}", LINKS)
    return near, far or near


def _link(wire: Wire) -> Link:
    return Link(GBps=wire.rate * GB / 2**30, idle=round(wire.latency * CLOCK / 1e6))


def _refuse(problem: str, known: Iterable[str]) -> NoReturn:
    remedy = "choose one of " + ", ".join(known)
    raise InputError(problem, field="cluster", remedy=remedy)
