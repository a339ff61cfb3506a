"""A claim with its verdict, and the summary of all claims of a result."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeGuard

from stagepack.contracts import Instance, JsonObject, Number, Solution, Violation
from stagepack.errors import shown
from stagepack.files import finite
from stagepack.result import Result
from stagepack.shown import Shown

PROVABLE = ("bound", "status")
"""Claims that need a proof."""
LONGEST_VALUE = 60  # characters of what a file claims


class Verdict(StrEnum):
    """What became of a claim."""

    CONFIRMED = "confirmed"
    FALSE = "false"
    DIFFERS = "differs"  # it may be true of the instance that it was made for
    UNVERIFIED = "unverified"


@dataclass(frozen=True)
class Claim:
    """One thing that a result says."""

    name: str  # field of the result
    # What the file says, and what is found; None where nothing can be found.
    claimed: object
    recomputed: object
    verdict: Verdict
    detail: str = ""  # why, in words

    def to_dict(self) -> JsonObject:
        """Return the claim as plain JSON data."""
        return {
            "claim": self.name,
            "claimed": finite(self.claimed),
            "recomputed": finite(self.recomputed),
            "verdict": str(self.verdict),
            "detail": self.detail or None,
        }

    def __str__(self) -> str:
        text = f"{self.name} {short(self.claimed)}: {self.verdict}"
        return f"{text}; {shown(self.detail)}" if self.detail else text


@dataclass(frozen=True, repr=False)
class ResultCheck(Shown):
    """The verdict on each claim of a document; a plain solution makes no claims.

    Attributes
    ----------
    instance : str
        Name of the instance it was checked against.
    solution : object or None
    violations : tuple of Violation
        The rules that the solution breaks.
    objective : int or float or None
        Objective value of a valid solution.
    claims : tuple of Claim
    again : tuple of Result
        The results of solving again.
    candidates : int
        How many solutions were tried, where all of them were.
    problem : instance of any problem
        The instance itself.
    """

    instance: str
    solution: Solution | None
    violations: tuple[Violation, ...]
    objective: Number | None
    claims: tuple[Claim, ...] = ()
    again: tuple[Result[Solution], ...] = ()
    candidates: int = 0
    problem: Instance | None = None

    def _line(self) -> str:
        broken = f"{len(self.violations):,} violations, {len(self.false):,} false claims"
        return f"{self.instance!r}, {'valid' if self.valid else broken}"

    @property
    def false(self) -> tuple[Claim, ...]:
        """The claims that are not true."""
        return tuple(claim for claim in self.claims if claim.verdict is Verdict.FALSE)

    @property
    def valid(self) -> bool:
        """Whether the solution breaks no rule and no claim is false."""
        return not self.violations and not self.false

    @property
    def verified(self) -> bool:
        """Whether it is valid, and bound and status are shown to be true, as far as it has any."""
        return self.valid and not self.unverified

    @property
    def unverified(self) -> tuple[Claim, ...]:
        """Bound and status, of levels too, as far as neither shown to be true nor false.

        Times and incumbents of a run are never verified, and not among these.
        """
        return tuple(
            claim
            for claim in self.claims
            if claim.name.rpartition(": ")[2] in PROVABLE and claim.verdict is Verdict.UNVERIFIED
        )

    def to_dict(self) -> JsonObject:
        """Return everything as plain JSON data."""
        document: JsonObject = {
            "instance": self.instance,
            "valid": self.valid,
            "verified": self.verified,
            "objective": self.objective,
            "violations": [{"rule": v.rule, "detail": v.detail} for v in self.violations],
            "claims": [claim.to_dict() for claim in self.claims],
        }
        if self.candidates:
            document["candidates"] = self.candidates
        if self.again:
            keys = ("method", "status", "termination", "objective", "bound", "bound_source")
            document["again"] = [
                {key: found.to_dict()[key] for key in (*keys, "proof", "solution", "runtime")}
                for found in self.again
            ]
        return document


def is_number(value: object) -> TypeGuard[Number]:
    """Whether a value can be reckoned with: no objective or time is beyond what a float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def short(value: object) -> str:
    """Return what a file says as people write it: thousands separated, the rest as in JSON."""
    if isinstance(value, int) and not isinstance(value, bool):
        return shown(f"{value:,}", LONGEST_VALUE)
    text = value if isinstance(value, str) else json.dumps(finite(value), default=str)
    return shown(text, LONGEST_VALUE)
