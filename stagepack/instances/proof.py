"""What replaying a proof says, whichever problem it is of."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.contracts import JsonObject, Violation
from stagepack.shown import Shown


@dataclass(frozen=True, repr=False)
class ProofCheck(Shown):
    """The outcome of replaying a proof.

    Attributes
    ----------
    instance : str
        Name of the instance for which it was replayed.
    claim : str
        The claim of the proof, in words.
    bound : int
        Lower bound on every solution, if the proof is valid.
    steps : int
        Number of steps of the proof.
    violations : tuple of Violation
        Faults of the proof; if there are any, the bound is not proved.
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
        """Whether the proof is valid."""
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
