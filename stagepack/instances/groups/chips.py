"""Chips with lanes of local memory, each with its source; what nobody publishes is assumed.

Lanes, bytes of a lane, banks and bytes computed at a time are those of TPU-MLIR's sources
(``lib/Backend``), transfers in bytes a cycle those of traces of compiled networks that were
published with it: loads and stores of the BM1684X move 54 and 41, of the BM1688 within groups
about 16, of the CV184X 5.7.  Assumed are: transfers of the BM1684 and the BM1690, latencies of all,
and how many multiply-accumulates a lane does in a cycle, which follow from the vendor's peak
figures for 8-bit integers (17.6 trillion operations a second for the BM1684, 32 for the BM1684X, 16
for the BM1688) at 550, 1,000 and 900 MHz and are rounded to powers of 2.
"""

from __future__ import annotations

from stagepack.errors import InputError, suggest
from stagepack.instances.groups.chip import GENERIC, LaneChip

KIB = 1024
LATENCY = 250
STARTUP = 20


def _chip(
    name: str,
    geometry: tuple[int, int, int, int],
    arithmetic: tuple[int, int],
    rates: tuple[float, float],
) -> LaneChip:
    """Return a chip.

    Parameters
    ----------
    name : str
    geometry : (int, int, int, int)
        Lanes, KiB of each, banks, bytes computed at a time.
    arithmetic : (int, int)
        Channels and pixels.
    rates : (float, float)
        Bytes a cycle of loads and of stores.
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
        load_rate=rates[0],
        store_rate=rates[1],
        load_latency=LATENCY,
        store_latency=LATENCY,
        startup=STARTUP,
    )


CHIPS: dict[str, LaneChip] = {
    chip.name: chip
    for chip in (
        GENERIC,
        _chip("bm1684", (64, 512, 8, 128), (64, 4), (32, 32)),
        _chip("bm1684x", (64, 256, 16, 64), (64, 4), (54, 41)),
        _chip("bm1690", (64, 256, 16, 64), (64, 8), (54, 41)),
        _chip("bm1688", (32, 128, 16, 16), (32, 4), (16, 16)),
        _chip("cv184x", (8, 64, 16, 16), (16, 4), (5.7, 5.7)),
    )
}


ASSUMED = ("channels", "pixels", "load_latency", "store_latency", "startup")
"""What is assumed of all chips of a vendor,"""
UNMEASURED = dict.fromkeys(("bm1684", "bm1690"), ("load_rate", "store_rate"))
"""and what besides of some."""


def assumed(chip: LaneChip) -> tuple[str, ...]:
    """Return the fields of a chip of this list that nobody publishes; none of another."""
    if chip.name not in CHIPS or chip.name == GENERIC.name:
        return ()
    known = CHIPS[chip.name]
    fields = (*ASSUMED, *UNMEASURED.get(chip.name, ()))
    return tuple(field for field in fields if getattr(chip, field) == getattr(known, field))


def preset(name: str) -> LaneChip:
    """Return a chip by name.

    Raises
    ------
    InputError
        For an unknown one.
    """
    if name not in CHIPS:
        raise InputError(f"unknown chip {name!r}", field="chip", remedy=suggest(name, CHIPS))
    return CHIPS[name]
