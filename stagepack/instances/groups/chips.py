"""Chips with lanes of local memory, each with its source; what nobody publishes is assumed.

Lanes, bytes of a lane, banks, bytes that tensors are aligned to and input channels multiplied at a
time are those of TPU-MLIR's sources (``include/tpu_mlir/Backend``); output pixels at a time those
of its profiling tools (*Cube OHOW Align*), which say 900 MHz and two cores of the BM1688, 1,000 MHz
and eight of the BM1690, and that lanes of the CV184X compute on 8 bytes at a time, not the 16 that
they align to.  Transfers in bytes a cycle are those of traces of networks published with it:
loads and stores of the BM1684X move 54 and 41, of the BM1688 within groups about 16, of the CV184X
5.7.

A core so does 4,096 multiply-accumulates a cycle on the BM1688 and 16,384 on the BM1690: twice
7.4 and eight times 33 trillion operations a second in all, sold as 16 and 256.  Of the BM1684 and
the BM1684X only the peak is published (17.6 and 32 trillion at 550 and 1,000 MHz: 16,000 a cycle,
of which 16,384 is made), so that its pixels, of the BM1684 channels too, are assumed.

Assumed of all are latencies, that transfers hide wholly beside compute, and that a network runs on
one core; of the BM1684 and the BM1690 transfers, too.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from stagepack.errors import InputError, suggest
from stagepack.instances.documents import strict
from stagepack.instances.groups.chip import GENERIC, LaneChip
from stagepack.instances.groups.problem import OperatorKind

KIB = 1024
VECTOR = tuple(
    kind
    for kind in OperatorKind
    if kind not in (OperatorKind.CONV, OperatorKind.DECONV, OperatorKind.MATMUL, OperatorKind.OTHER)
)
"""What lanes compute value by value."""
LATENCY = 250
STARTUP = 20


def _chip(
    name: str,
    geometry: tuple[int, int, int, int],
    arithmetic: tuple[int, int],
    transfers: tuple[float, float],
    vector: int = 0,
) -> LaneChip:
    """Return a chip.

    Its geometry is lanes, KiB of each, banks, and bytes aligned to; its arithmetic channels and
    pixels; its transfers bytes a cycle of loads and of stores.  A lane computes on `vector` bytes
    at a time; 0: on those that it aligns to.
    """
    lanes, kib, banks, eu_bytes = geometry
    return LaneChip(
        name=name,
        lanes=lanes,
        memory=kib * KIB,
        banks=banks,
        eu_bytes=eu_bytes,
        channels=arithmetic[0],
        pixels=arithmetic[1],
        load_rate=transfers[0],
        store_rate=transfers[1],
        load_latency=LATENCY,
        store_latency=LATENCY,
        startup=STARTUP,
        rates=dict.fromkeys(VECTOR, vector) if vector else {},
    )


CHIPS: dict[str, LaneChip] = {
    chip.name: chip
    for chip in (
        GENERIC,
        _chip("bm1684", (64, 512, 8, 128), (64, 4), (32, 32)),
        _chip("bm1684x", (64, 256, 16, 64), (64, 4), (54, 41)),
        _chip("bm1690", (64, 256, 16, 64), (64, 4), (54, 41)),
        _chip("bm1688", (32, 128, 16, 16), (32, 4), (16, 16)),
        _chip("cv184x", (8, 64, 16, 16), (16, 4), (5.7, 5.7), 8),
    )
}


ASSUMED = ("load_latency", "store_latency", "startup", "overlap", "cores")
"""Figures that are assumed of all chips of a vendor."""
UNKNOWN = {
    "bm1684": ("channels", "pixels", "load_rate", "store_rate"),
    "bm1684x": ("pixels",),
    "bm1690": ("load_rate", "store_rate"),
}
"""Figures that are assumed besides of some of its chips."""


def assumed(chip: LaneChip) -> tuple[str, ...]:
    """Return the fields of a chip of this list that nobody publishes; none of another."""
    if chip.name not in CHIPS or chip.name == GENERIC.name:
        return ()
    known = CHIPS[chip.name]
    fields = (*ASSUMED, *UNKNOWN.get(chip.name, ()))
    return tuple(field for field in fields if getattr(chip, field) == getattr(known, field))


def preset(name: str) -> LaneChip:
    """Return a chip by name; refuse an unknown one."""
    if name not in CHIPS:
        raise InputError(f"unknown chip {name!r}", field="chip", remedy=suggest(name, CHIPS))
    return CHIPS[name]


def of_file(path: str) -> LaneChip:
    """Return the chip that a JSON file describes, by its own name or that of the file."""
    chip = strict.decode_file(path, LaneChip, "chip")
    return chip if chip.name else msgspec.structs.replace(chip, name=Path(path).stem)
