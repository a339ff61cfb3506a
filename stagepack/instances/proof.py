"""What replaying a proof says, whichever problem it is of."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.contracts import JsonObject, Violation
from stagepack.shown import Shown


@dataclass(frozen=True, repr=False)
class ProofCheck(Shown):
    """What came of a proof that was replayed.

    Attributes
    ----------
    instance : str
        Name of the instance it was replayed on.
    claim : str
        What it says, in words.
    bound : int
        What every solution is worth at least, if the proof is right.
    steps : int
        Steps of the proof.
    violations : tuple of Violation
        What is wrong with it; nothing else of it can be relied on.
    """

    instance: str
    claim: str
    bound: int
    steps: int
    violations: tuple[Violation, ...] = ()

    def _line(self) -> str:
        return f"{self.instance!r}, {self.claim}: {'proved' if self.valid else 'not proved'}"

    @property
    def valid(self) -> bool:
        """Whether the proof is right."""
        return not self.violations

    def to_dict(self) -> JsonObject:
        """Return everything as plain JSON data."""
        return {
            "instance": self.instance,
            "valid": self.valid,
            "claim": self.claim,
            "bound": self.bound if self.valid else None,
            "steps": self.steps,
            "violations": [{"rule": v.rule, "detail": v.detail} for v in self.violations],
        }
