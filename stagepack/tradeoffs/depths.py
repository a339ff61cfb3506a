"""How many copies of each buffer a memory has room for: the depth of buffering that gains most.

A buffer of depth d is a ring of d copies, one behind the other, each at a multiple of its
alignment.  More copies never fit where fewer do not, so that a choice of depths that does not fit
rules out all above it.  Choices are tried in the order of what they gain at most (best first,
buffer by buffer), pruned by the bytes alive at each moment and by what is known not to fit; whether
one fits is asked of the packing itself.  The first that fits is the best, unless a better one
stayed undecided.  Cost: few packings where the bytes alive decide, up to one for each choice at
worst.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.instances.base import require_instance
from stagepack.instances.packing import KIND, LmemPacking, PackingSolution
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST
from stagepack.interrupts import Interrupts
from stagepack.result import Status
from stagepack.solve import require_number, require_time, solve
from stagepack.stopping import heeding

SHARE = 3
"""One packing may take the time that is left, divided by this."""


@dataclass(frozen=True)
class DepthChoice:
    """The depths found, and what is known about better ones.

    Attributes
    ----------
    status : Status
        OPTIMAL: no other choice that fits gains more.  INFEASIBLE: not even one copy of each fits.
    depths : dict of str to int
        Copies of each buffer that has options; {} without an answer.
    gain, bound : int or float or None
        What they gain together, and what no choice exceeds.
    instance : LmemPacking
        The packing with these depths: sizes are those of the rings.
    solution : PackingSolution or None
        Where all lies; a ring begins at the offset of its buffer.
    solves : int
        How many packings were solved.
    """

    status: Status
    depths: dict[str, int]
    gain: Number | None
    bound: Number
    instance: LmemPacking
    solution: PackingSolution | None
    solves: int


def choose_depths(
    instance: LmemPacking,
    options: Mapping[str, Sequence[float]],
    *,
    time_limit: float | None = 10,
    **settings: Any,
) -> DepthChoice:
    """Choose how many copies some buffers have, within the capacity, for the largest gain.

    Parameters
    ----------
    instance : LmemPacking
        With a capacity, and one copy of each buffer.
    options : mapping of str to sequence of float
        By id of a buffer what 1, 2, 3, ... copies gain.
    time_limit : float, optional
        Seconds for all packings together; None: as long as it takes.
    **settings
        As for :func:`solve`, for each packing: ``method``, ``seed``, ``threads``, ...

    Raises
    ------
    InputError
        For options of no buffer, gains that are no numbers, an instance without a capacity, and
        buffers that share their bytes with others (colocated, in place, views, parts in gaps).
    """
    require_instance(instance, KIND)
    require_time(time_limit)
    if not isinstance(options, Mapping):
        raise InputError(
            f"{options!r} is no mapping", field="options", remedy="give {buffer: [gains]}"
        )
    search = _Search(instance.replace(objective="fit"), options, time_limit, settings)
    with heeding(settings.get("stop")), search.interrupts:
        return search.run()


class _Search:
    """Best first over levels: of each option its depths that gain more than fewer copies do."""

    def __init__(
        self,
        instance: LmemPacking,
        options: Mapping[str, Sequence[float]],
        time_limit: float | None,
        settings: dict[str, Any],
    ) -> None:
        self.instance, self.settings = instance, settings
        self.end = None if time_limit is None else time.monotonic() + time_limit
        ids = {instance.buffer_id(at): at for at in range(instance.n)}
        levels = {name: _levels(name, gains) for name, gains in options.items()}
        for name in options:
            if name not in ids:
                raise InputError(
                    "is no buffer", field=f"options.{name}", remedy="name buffers by their ids"
                )
            _require_own(instance, ids[name], name)
        # What can gain most is decided first.
        self.names = sorted(options, key=lambda name: levels[name][0][1] - levels[name][-1][1])
        self.at = [ids[name] for name in self.names]
        self.levels = [levels[name] for name in self.names]
        self.bytes = [
            [_ring(instance, at, depth) for depth, _ in level]
            for at, level in zip(self.at, self.levels, strict=True)
        ]
        self.alive, self.room = _loads(instance, self.at)
        self.misfits: list[tuple[int, ...]] = []
        self.undecided: list[tuple[int, ...]] = []
        self.best: tuple[tuple[int, ...], LmemPacking, PackingSolution] | None = None
        self.solves = 0
        self.interrupts = Interrupts()

    def run(self) -> DepthChoice:
        """Return the best choice."""
        least = (0,) * len(self.names)
        start = self._optimistic(())
        if start is None or (not self._fits(least) and self.misfits):
            return self._answer(least, Status.INFEASIBLE, self._gain(least))
        self._grow(least)
        bound = start
        heap: list[tuple[Fraction, int, tuple[int, ...]]] = [(-start, 0, ())]
        while heap:
            worth, _, chosen = heapq.heappop(heap)
            bound = -worth
            if (self.best and bound <= self._gain(self.best[0])) or self._late():
                break
            if len(chosen) == len(self.names):
                if self._fits(chosen):
                    break
                continue
            for level in range(len(self.levels[len(chosen)])):
                child = (*chosen, level)
                gain = None if self._misfit(child) else self._optimistic(child)
                if gain is not None:  # of those that promise as much, the one that is further
                    heapq.heappush(heap, (-gain, -len(child), child))
        else:
            bound = self._gain(least)
        bound = max([bound, *(self._gain(one) for one in self.undecided if not self._misfit(one))])
        if self.best is None:
            return self._answer(least, Status.UNKNOWN, bound)
        gain = self._gain(self.best[0])
        known = Status.OPTIMAL if bound <= gain else Status.FEASIBLE
        return self._answer(self.best[0], known, max(bound, gain))

    def _grow(self, chosen: tuple[int, ...]) -> None:
        """Add copies as long as they fit, those first that gain most for their bytes."""
        steps = sorted(
            (
                Fraction(self.bytes[i][at] - self.bytes[i][at - 1])
                / (level[at][1] - level[at - 1][1]),
                i,
                at,
            )
            for i, level in enumerate(self.levels)
            for at in range(1, len(level))
        )
        for _, i, at in steps:
            if chosen[i] == at - 1 and not self._late():
                more = (*chosen[:i], at, *chosen[i + 1 :])
                if (
                    not self._misfit(more)
                    and self._optimistic(more) is not None
                    and self._fits(more)
                ):
                    chosen = more

    def _gain(self, chosen: tuple[int, ...]) -> Fraction:
        return sum((self.levels[i][at][1] for i, at in enumerate(chosen)), Fraction(0))

    def _optimistic(self, chosen: tuple[int, ...]) -> Fraction | None:
        """Return the most that can be gained from a choice for some buffers on; None: no room.

        Each other buffer has as many copies as would fit if the rest had one each.
        """
        gain, room = self._gain(chosen), self.room
        if room is None:
            rest = self.levels[len(chosen) :]
            return gain + sum((level[-1][1] for level in rest), Fraction(0))
        for i, at in enumerate(chosen):
            room = room - self.alive[i] * (self.bytes[i][at] - self.bytes[i][0])
        if (room < 0).any():
            return None
        for i in range(len(chosen), len(self.names)):
            free = int(room[self.alive[i]].min(initial=LARGEST))
            fitting = [
                level[1]
                for level, size in zip(self.levels[i], self.bytes[i], strict=True)
                if size - self.bytes[i][0] <= free
            ]
            gain += fitting[-1]
        return gain

    def _misfit(self, chosen: tuple[int, ...]) -> bool:
        """Whether something is known not to fit that has no more copies of any buffer."""
        whole = (*chosen, *(0,) * (len(self.names) - len(chosen)))
        return any(all(a <= b for a, b in zip(known, whole, strict=True)) for known in self.misfits)

    def _late(self) -> bool:
        return self.interrupts.asked or (self.end is not None and time.monotonic() >= self.end)

    def _fits(self, chosen: tuple[int, ...]) -> bool:
        """Whether a choice is seen to fit; keep it where it is better, and what it tells."""
        if self.best is not None and chosen == self.best[0]:
            return True
        if chosen in self.undecided or self._misfit(chosen):
            return False
        size = self.instance.size.copy()
        for i, at in enumerate(chosen):
            size[self.at[i]] = self.bytes[i][at]
        whole = self.instance.replace(size=size)
        left = None if self.end is None else max(1e-3, (self.end - time.monotonic()) / SHARE)
        self.solves += 1
        found = solve(whole, time_limit=left, **self.settings)
        if found.solution is None or whole.check(found.solution):
            (self.misfits if found.status is Status.INFEASIBLE else self.undecided).append(chosen)
            return False
        if self.best is None or self._gain(chosen) > self._gain(self.best[0]):
            self.best = chosen, whole, found.solution
        return True

    def _answer(self, chosen: tuple[int, ...], status: Status, bound: Fraction) -> DepthChoice:
        """Return what is known of a choice, the best where there is one."""
        depths = {
            name: self.levels[i][at][0]
            for i, (name, at) in enumerate(zip(self.names, chosen, strict=True))
        }
        _, instance, solution = self.best or (chosen, self.instance, None)
        gain = None if solution is None else _number(self._gain(chosen))
        return DepthChoice(
            status,
            {} if solution is None else depths,
            gain,
            _number(bound),
            instance,
            solution,
            self.solves,
        )


def _number(value: Fraction) -> Number:
    return int(value) if value.denominator == 1 else float(value)


def _levels(name: str, gains: Sequence[float]) -> list[tuple[int, Fraction]]:
    """Return depths that gain more than all smaller ones, the first among them, with their gain."""
    field = f"options.{name}"
    if isinstance(gains, str) or not isinstance(gains, Sequence) or not gains:
        raise InputError("is no list of gains", field=field, remedy="give [of 1 copy, of 2, ...]")
    found: list[tuple[int, Fraction]] = []
    for depth, gain in enumerate(gains, 1):
        number = require_number(gain, field, "gains")
        if number is None or not math.isfinite(number):
            raise InputError(f"{gain!r} is no gain", field=field, remedy="give numbers")
        if not found or Fraction(number) > found[-1][1]:
            found.append((depth, Fraction(number)))
    return found


def _require_own(instance: LmemPacking, at: int, name: str) -> None:
    """Refuse copies of a buffer that shares its bytes with others."""
    shared = {
        "colocated": instance.colocated,
        "in_place": instance.in_place,
        "views": [(view.buffer, view.host) for view in instance.views],
        "gaps": [(gap.buffer,) for gap in instance.gaps if gap.high > gap.low],
    }
    for field, groups in shared.items():
        if any(at in group for group in groups):
            raise InputError(
                "shares its bytes, or a part of them, and has no copies",
                field=f"options.{name}",
                remedy=f"leave it out here or in {field}",
            )


def _ring(instance: LmemPacking, at: int, depth: int) -> int:
    """Return the bytes of so many copies, each at a multiple of the alignment."""
    step = math.lcm(int(instance.alignment[at]), *(one.alignment for one in instance.memories))
    size = int(instance.size[at])
    return size + (depth - 1) * -(-size // step) * step


def _loads(instance: LmemPacking, buffers: Sequence[int]) -> tuple[Array, Array | None]:
    """Return when some buffers are alive, and the bytes that all leave free at each such moment.

    No bytes where buffers may overlap although they are alive together.
    """
    ends = [gap.end for gap in instance.gaps]
    moments = np.unique(np.concatenate([instance.start, np.array(ends, dtype=np.int64)]))
    alive = (instance.start[:, None] <= moments) & (moments < instance.end[:, None])
    for gap in instance.gaps:
        alive[gap.buffer] &= (moments < gap.start) | (gap.end <= moments)
    others = (instance.conflicts, instance.period)
    overlapping = (instance.colocated, instance.in_place, instance.exempt, instance.views)
    if instance.capacity is None or any(overlapping) or any(one is not None for one in others):
        return alive[list(buffers)], None
    return alive[list(buffers)], instance.capacity - instance.size @ alive
