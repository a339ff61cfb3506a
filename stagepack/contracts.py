"""The interface that the instances and solutions of every problem provide.

Code that is independent of the problem (runs, results, methods, reports, comparisons) uses these
types only.  The classes of a problem need not inherit from them; they provide the same attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

Number = int | float
JsonObject = dict[str, Any]
"""Plain JSON data: what is in files, and what prints with ``--json``."""
SolutionT = TypeVar("SolutionT")
FoundT = TypeVar("FoundT", covariant=True)
if TYPE_CHECKING:
    cached = property
else:
    cached = functools.cached_property
    """A property that is found once; Pyright takes no cached one for what a protocol asks for."""


class Solution(Protocol):
    """An answer to an instance."""

    def to_dict(self) -> JsonObject:
        """Return the solution as plain JSON data."""

    def malformed(self) -> str:
        """Return the name of an invalid field, or ""."""


class Violation(Protocol):
    """One rule that a solution breaks; it prints as one line."""

    @property
    def rule(self) -> str:
        """Its name."""

    @property
    def detail(self) -> str:
        """What breaks it, by how much."""


class Instance(Protocol):
    """An instance of a problem."""

    @property
    def kind(self) -> str:
        """The problem."""

    @property
    def name(self) -> str:
        """Name for tables and reports."""

    @property
    def source(self) -> str:
        """The file or catalog entry it was made from."""

    @property
    def digest(self) -> str:
        """Fingerprint of everything on which the answer depends."""

    @property
    def fingerprints(self) -> Mapping[str, object]:
        """The fields on which the answer depends; long ones as a checksum."""

    @property
    def objective(self) -> str:
        """What to minimise."""

    @property
    def tolerance(self) -> float:
        """Relative tolerance of objective values: 0 for integer data."""

    # Of solutions of its own, which those who know no problem cannot name.
    def evaluate(self, solution: Any, /) -> Number:
        """Return the objective value of a solution."""

    def check(self, solution: Any, /) -> tuple[Violation, ...]:
        """Return the rules that a solution breaks."""

    def solution_in(self, given: Any, field: str = "solution", *, shaped: bool = True) -> Any:
        """Return the solution that `given` is, or that it holds as a result of this instance.

        Parameters
        ----------
        given : solution or Result
            As the caller was given it.
        field : str
            Name of the argument, for messages.
        shaped : bool
            Whether its shape must be right, too, so that it can be evaluated.

        Raises
        ------
        InputError
            For anything else, and for a result without a solution or of another instance.
        """

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""


class InstanceOf(Instance, Protocol[FoundT]):
    """An instance, and of which class its solutions are."""

    def solution_in(self, given: Any, field: str = "solution", *, shaped: bool = True) -> FoundT:
        """Take `given`, `field` and `shaped` as any :class:`Instance` does."""
