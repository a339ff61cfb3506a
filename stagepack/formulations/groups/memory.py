"""Rectangles of time and address in one lane, for CP-SAT; time may be circular.

A buffer that is in use in positions [start, end) occupies the same units during all of them.  In
circular time of T rows, positions are folded into rows 0 to T - 1: a rectangle that crosses the end
of a turn is cut there, and a buffer in use for longer than a turn has two rectangles at all times.

Cost: one rectangle for each lifetime, up to six in circular time.  Source: ours, on CP-SAT's
rectangles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import ModuleType

    from ortools.sat.python.cp_model import CpModel, IntervalVar, IntVar, LinearExpr
    from ortools.sat.python.cp_model_helper import Literal


class Point(NamedTuple):
    """A position: a number, or an expression of one variable, with the least and the most."""

    value: LinearExpr | int
    least: int
    most: int

    @property
    def known(self) -> bool:
        """Whether it is a number."""
        return isinstance(self.value, int)


def at(position: int) -> Point:
    """Return a position that is known."""
    return Point(position, position, position)


class Memory:
    """A lane of so many `units`, into which rectangles are put.

    `cp` is CP-SAT's module, and `model` the one that is built; `rows` is T. If `circular`, time is
    a circle.
    """

    def __init__(
        self, cp: ModuleType, model: CpModel, rows: int, circular: bool, units: int
    ) -> None:
        self._cp, self._model = cp, model
        self._rows, self._circular, self._units = rows, circular, units
        self._time: list[IntervalVar] = []
        self._space: list[IntervalVar] = []
        self._heights: list[int] = []

    def always(self, address: IntVar, height: int) -> None:
        """Put in what lives all the time."""
        self._put(at(0), at(self._rows), address, height, [])

    def live(
        self,
        start: Point,
        end: Point,
        addresses: tuple[IntVar, Callable[[], IntVar]],
        height: int,
        when: Sequence[Literal],
    ) -> IntVar | None:
        """Put in what lives in [start, end), where all literals `when` hold.

        Return the second address, None where it is never there twice.  On a circle `start` lies in
        stages 0 and 1, `end` - 1 in stages 1 and 2.  `addresses` are one, and what makes another;
        `height` is in units.
        """
        address, another = addresses
        if not self._circular:
            self._put(start, end, address, height, when)
            return None
        rows, second = self._rows, None
        if end.most - start.least > rows:
            twice = self._model.new_bool_var("")
            self._model.add(end.value - start.value <= rows).only_enforce_if(~twice, *when)
            second = another()
            for place in (address, second):
                self._put(at(0), at(rows), place, height, [twice, *when])
            when = [~twice, *when]
        inner = (self._bounded(start), self._bounded(end))
        self._put(*inner, address, height, when)
        if start.least < rows:
            ahead = self._model.new_bool_var("")
            if start.most >= rows:
                self._model.add(start.value >= rows).only_enforce_if(~ahead, *when)
            else:
                self._model.add_bool_or(ahead, *(~literal for literal in when))
            self._put(start, at(rows), address, height, [ahead])
        if end.most > 2 * rows:
            behind = self._model.new_bool_var("")
            self._model.add(end.value <= 2 * rows).only_enforce_if(~behind, *when)
            shifted = Point(end.value - 2 * rows, end.least - 2 * rows, end.most - 2 * rows)
            self._put(at(0), shifted, address, height, [behind])
        return second

    def close(self, *, placed: bool) -> None:
        """Let heights fit at all times, and where rectangles are `placed`, none overlap."""
        if placed:
            self._model.add_no_overlap_2d(self._time, self._space)
        self._model.add_cumulative(self._time, self._heights, self._units)

    def _bounded(self, point: Point) -> Point:
        """Return a point as one of the second turn: counted from its start, and within it."""
        rows = self._rows
        value, least, most = point.value - rows, point.least - rows, point.most - rows
        if least >= 0 and most <= rows:
            return Point(value, least, most)
        if most <= 0 or least >= rows:
            return at(0 if most <= 0 else rows)
        bounded = self._model.new_int_var(max(least, 0), min(most, rows), "")
        if least < 0:
            self._model.add_max_equality(bounded, [value, 0])
        else:
            self._model.add_min_equality(bounded, [value, rows])
        return Point(bounded, max(least, 0), min(most, rows))

    def _put(
        self, start: Point, end: Point, address: IntVar, height: int, when: Sequence[Literal]
    ) -> None:
        """Put in a rectangle where all of some literals hold."""
        if not height:
            return
        size = end.value - start.value
        if not (start.known or end.known):
            size = self._model.new_int_var(1, max(1, end.most - start.least), "")
        if not when:
            time = self._model.new_interval_var(start.value, size, end.value, "")
            space = self._model.new_fixed_size_interval_var(address, height, "")
        else:
            present = when[0]
            if len(when) > 1:
                present = self._model.new_bool_var("")
                self._model.add_bool_or(present, *(~literal for literal in when))
            time = self._model.new_optional_interval_var(start.value, size, end.value, present, "")
            space = self._model.new_optional_fixed_size_interval_var(address, height, present, "")
        self._time.append(time)
        self._space.append(space)
        self._heights.append(height)
