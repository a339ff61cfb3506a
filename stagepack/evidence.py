"""What kind of proof a bound has, and what of it can be verified by others (ground floor)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from stagepack.contracts import JsonObject


class Proof(StrEnum):
    """What kind of proof a claim has: that no solution is better, or that there is none.

    The first three can be verified without the solver, by :mod:`stagepack.verify`.
    """

    WITNESS = "witness"
    """A moment, clique, stage, path or prefix: checked in about linear time."""
    DUAL = "dual"
    """Multipliers of a relaxation, evaluated in exact arithmetic."""
    LOG = "log"
    """The steps of a search, which can be replayed."""
    SEARCH = "search"
    """A search of ours that tried everything; nothing to replay."""
    ENGINE = "engine"
    """An engine says so."""


VERIFIABLE = (Proof.WITNESS, Proof.DUAL, Proof.LOG)
"""Kinds of proof that others can verify."""


@dataclass(frozen=True)
class Evidence:
    """Why a bound holds, or why nothing is feasible: a kind of proof, and data for the verifier.

    Of the data, JSON, ``rule`` names one of the verifier's, the rest is what that asks for.  They
    are empty where nothing can be verified.
    """

    proof: Proof
    data: JsonObject = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.proof in VERIFIABLE) != ("rule" in self.data):
            raise ValueError(f"evidence of kind {self.proof} with the data {self.data!r}")

    @property
    def rank(self) -> int:
        """How much can be seen of it: the less the better."""
        return list(Proof).index(self.proof)


SEARCHED = Evidence(Proof.SEARCH)
TOLD = Evidence(Proof.ENGINE)


def witness(rule: str, **data: object) -> Evidence:
    """Return evidence that is checked in about linear time, by a `rule` that asks for the data."""
    return Evidence(Proof.WITNESS, {"rule": rule, **data})
