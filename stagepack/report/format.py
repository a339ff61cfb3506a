"""Formats numbers for people, in the same way in the terminal and on pages."""

from __future__ import annotations

import math
from collections.abc import Container

from stagepack.contracts import Instance, Number

NOTHING = "–"
UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def standing(status: str, objective: Number | None, instance: Instance | None) -> str:
    """Return a `status` in words: a question of fitting that is answered reads ``fits``.

    The question is the `goal` of the instance, if it has one; the `objective` answers it.  What is
    proved beyond the question keeps its name.
    """
    goal = getattr(instance, "goal", None)
    answered = goal is not None and objective is not None and objective <= goal
    return "fits" if answered and status == "FEASIBLE" else str(status)


def number(value: Number | None) -> str:
    """Return a value in full: ``1,234,567`` for integers, one to three decimals otherwise."""
    if value is None:
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) < 1:
        return f"{value:.4g}"
    return f"{value:,.3f}" if abs(value) < 1e5 else f"{value:,.1f}"


def gap(value: float | None) -> str:
    """Return a relative gap as ``1.23%``; ``0%`` only when there is none."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0%"
    if abs(value) < 0.00005:
        return "<0.01%" if value > 0 else ">-0.01%"
    return f"{value * 100:.2f}%" if abs(value) < 0.9995 else f"{value * 100:,.0f}%"


def seconds(value: float | None) -> str:
    """Return a time as ``0.012 s``, ``12.3 s``, ``1,234 s``."""
    if value is None:
        return NOTHING
    if value < 0.0005:
        return "<1 ms"
    if value < 9.9995:
        return f"{value:.3f} s"
    return f"{value:.1f} s" if value < 999.95 else f"{value:,.0f} s"


def duration(seconds: float) -> str:
    """Return a time of a machine in the unit that reads well: ``20.4 ms``, ``0.5405 ns``."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{seconds / factor:,.4g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds / 1e-9:.4g} ns"


def ratio(value: float | None) -> str:
    """Return a ratio to the best: ``1`` for the best itself, ``1.0123`` otherwise."""
    if value is None:
        return NOTHING
    if value == 1:
        return "1"
    if value < 1.00005:
        return ">1"
    if value < 10:
        return f"{value:.4f}"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def quantity(nbytes: int | None) -> str:
    """Return bytes in the unit that reads well: ``894.0 MiB``."""
    if nbytes is None:
        return "no limit"
    factor, unit = byte_unit(abs(nbytes))
    return f"{nbytes:,} B" if factor == 1 else f"{nbytes / factor:,.1f} {unit}"


def share(value: float | None) -> str:
    """Return a share as ``87.5 %``."""
    return NOTHING if value is None else f"{value * 100:.1f} %"


def plural(count: int, what: str) -> str:
    """Return ``1 layer``, ``2 layers``."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def span(first: int, end: int) -> str:
    """Return layers [first, end) as ``3–7``, one of them as ``3``."""
    return f"{first:,}–{end - 1:,}" if end - first > 1 else f"{first:,}"


def byte_unit(largest: float) -> tuple[int, str]:
    """Return (bytes per unit, name) of the unit in which `largest` bytes read well."""
    for factor, name in UNITS:
        if largest >= factor:
            return factor, name
    return 1, "B"


def byte_step(span: float, ticks: int = 8) -> int:
    """Return a distance of ticks in bytes, a power of two, that gives `span` about so many."""
    return 1 << max(0, round(math.log2(max(span, 1.0) / ticks)))


def numbered(name: str, taken: Container[str]) -> str:
    """Return a name, with a number behind it where it is `taken`."""
    label, number = name, 1
    while label in taken:
        number += 1
        label = f"{name} ({number})"
    return label
