"""Refuses sizes whose products or sums could exceed 64 bits; errors name the size.

Kernels use 64-bit integers without overflow checks.  Their values never exceed the bounds computed
here: each operator as a whole, with its inputs, weights and output, times the possible number of
slices.
"""

from __future__ import annotations

import math

from stagepack.errors import InputError
from stagepack.instances.groups.chip import aligned, exact
from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.operators import AXES, H, Shape, W, compute_cycles, macs, pace
from stagepack.instances.groups.problem import OperatorKind, Slicing
from stagepack.instances.words import LARGEST

COPIES = 3
"""Places that a buffer may need at once: a stage each for what passes through the table."""

RANGES = 2**22
"""Ranges of all tensors of a group, one for every slice."""
CUTS = 2**16
"""Ways to cut a group."""

ROUND = "round it to fewer digits"
NINE_DIGITS = 1e-9


def refuse_large(whole: GroupingData) -> None:
    """Refuse an instance whose bytes or cycles could exceed 2**62, by what is too large."""
    _rates(whole)
    moved = [_tensor(whole, at) for at in range(len(whole.tensors))]
    held, cycles = sum(moved), 0
    for at, operator in enumerate(whole.operators):
        place, sources, full = f"operators[{at}]", whole.sources(at), operator.full
        _below(macs(operator, sources), f"{operator.name} multiplies", f"{place}.shape")
        for axis in (H, W) if operator.kind == OperatorKind.INTERPOLATE else ():
            steps = 4 * full[axis] * sources[0][axis]
            _below(steps, f"{operator.name}: steps of its grid", f"{place}.shape")
        known = pace(operator, sources, whole.chip)
        plane = math.prod(known.plane or full[H:]) * known.times
        _below(plane, f"{operator.name}: work of a plane by its rate, as a fraction", "chip.rates")
        compute = compute_cycles(operator, sources, full, whole.chip)
        _below(compute, f"{operator.name} computes", f"{place}.passes")
        if operator.cycles is not None:
            product = operator.cycles * _values(full)
            _below(product, f"{operator.name}: cycles times values", f"{place}.cycles")
        room = operator.buffer * _values(full)
        _below(room, f"{operator.name}: working bytes times values", f"{place}.buffer")
        loads = [_weight(whole, at, number) for number in range(len(operator.weights))]
        held += sum(loads) + aligned(operator.buffer, whole.chip.eu_bytes)
        read = [moved[tensor] for tensor in dict.fromkeys(whole.reads[at])]
        cycles += compute + _cycles(whole, [*read, *loads, moved[at]])
    _below(COPIES * held, "all bytes together", "operators")
    _below((most_slices(whole) + 2) * cycles, "all cycles of all slices", "operators")
    _ways(whole)


def most_slices(whole: GroupingData) -> int:
    """Return how many slices a group may have at most."""
    found = 1
    for axis in range(len(AXES)):
        found *= max(tensor.shape[axis] for tensor in whole.tensors)
    return min(found, whole.max_slices)


def _ways(whole: GroupingData) -> None:
    """Refuse more slices than ranges of a group, or ways to cut one, can be kept for."""
    longest = min(whole.n, whole.max_group)
    read = sorted(len(reads) for reads in whole.reads)
    tensors = min(sum(read[-longest:]) + longest, len(whole.tensors))
    n, c, _, h, w = (max(tensor.shape[axis] for tensor in whole.tensors) for axis in range(5))
    sizes = (n, h) if whole.slicing == Slicing.N_THEN_H else (n, c, h, w)

    def fits(most: int) -> bool:
        if tensors * min(max(sizes), most) > RANGES:
            return False
        return whole.slicing == Slicing.N_THEN_H or _cuts(sizes, most) <= CUTS

    if fits(whole.max_slices):
        return
    least, most = 1, whole.max_slices
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    raise InputError(
        f"{whole.max_slices:,} slices of groups of {tensors:,} tensors are more than can be tried",
        field="max_slices",
        remedy=f"give at most {least:,}",
    )


def _cuts(sizes: tuple[int, ...], most: int) -> int:
    """Return the number of ways to cut axes of some sizes, or one above `CUTS`."""
    if len(sizes) == 1:
        return min(sizes[0], most)
    found = 0
    for parts in range(1, min(sizes[0], most) + 1):
        found += _cuts(sizes[1:], most // parts)
        if found > CUTS:
            break
    return found


def _rates(whole: GroupingData) -> None:
    """Refuse rates and parts that 64-bit integers cannot stand for, to nine digits."""
    chip = whole.chip
    named = {"chip.load_rate": chip.load_rate, "chip.store_rate": chip.store_rate}
    named |= {"chip.overlap": chip.overlap, "overlap_limit": whole.overlap_limit or 0}
    named |= {f"chip.rates.{kind}": rate for kind, rate in chip.rates.items()}
    for field, given in named.items():
        close = given < LARGEST and math.isclose(exact(given), given, rel_tol=NINE_DIGITS)
        if not close or exact(given).numerator >= LARGEST:
            none = ", or 0" if "overlap" in field else ""  # rates are positive
            raise InputError(
                f"{given} is no fraction of integers below 2**62",
                field=field,
                remedy="use a coarser unit" if given > 1 else f"use a finer unit{none}",
            )
    again = exact(whole.overlap_limit or 0)
    size = max(max(tensor.shape[H], tensor.shape[W]) for tensor in whole.tensors)
    most = max(again.numerator, again.denominator * min(size, whole.max_slices))
    _below(size * most, "rows that are read again, as a fraction", "overlap_limit", ROUND)


def _tensor(whole: GroupingData, at: int) -> int:
    """Return the bytes of a tensor, whole, as if every plane began at a multiple of `eu_bytes`."""
    tensor = whole.tensors[at]
    n, c, d, h, w = tensor.shape
    plane = aligned(h * w * tensor.dtype_bytes, whole.chip.eu_bytes)
    place = f"operators[{at}]" if at < whole.n else f"inputs[{at - whole.n}]"
    return _below(n * c * d * plane, f"bytes of {tensor.name}", f"{place}.shape")


def _weight(whole: GroupingData, at: int, number: int) -> int:
    """Return the bytes of a weight, in global or in local memory, whichever are more."""
    weight = whole.operators[at].weights[number]
    plane = aligned(weight.values * weight.dtype_bytes, whole.chip.eu_bytes)
    given = aligned((weight.lane_bytes or 0) * weight.channels, whole.chip.eu_bytes)
    name = f"bytes of {whole.operators[at].name}.w{number}"
    return _below(max(weight.channels * plane, given), name, f"operators[{at}].weights[{number}]")


def _cycles(whole: GroupingData, moved: list[int]) -> int:
    """Return the cycles in which so many bytes are moved, each at the slower rate."""
    chip, found = whole.chip, 0
    for load, rate in ((True, chip.load_rate), (False, chip.store_rate)):
        field = "chip.load_rate" if load else "chip.store_rate"
        most = _below(
            max(moved) * exact(rate).denominator, "bytes by the rate, as a fraction", field, ROUND
        )
        hidden = most * exact(chip.overlap).numerator
        _below(hidden, "cycles by the overlap, as a fraction", "chip.overlap", ROUND)
        latency = chip.load_latency if load else chip.store_latency
        width, cycles = exact(rate).as_integer_ratio()
        found += sum(latency - (-nbytes * cycles // width) for nbytes in moved)
    return found


def _values(shape: Shape) -> int:
    """Return how many values a shape has."""
    n, c, d, h, w = shape
    return n * c * d * h * w


def _below(count: int, what: str, field: str, remedy: str = "use a coarser unit") -> int:
    """Return a count that stays below 2**62."""
    if count >= LARGEST:
        raise InputError(f"{what}: beyond 2**62", field=field, remedy=remedy)
    return count
