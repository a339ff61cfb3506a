"""Proofs as files: why no solution is better than a bound, or why there is none."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stagepack import kinds
from stagepack.claims.check import document_of, encoded
from stagepack.claims.claim import is_number
from stagepack.claims.rules import difference
from stagepack.contracts import Instance, JsonObject, Number, Solution
from stagepack.errors import InputError
from stagepack.evidence import VERIFIABLE, Evidence
from stagepack.instances.base import require_instance
from stagepack.instances.documents import keys, strict
from stagepack.result import Result, Status
from stagepack.shown import Shown
from stagepack.solve import require_time, solve
from stagepack.verify import Finding, verify

VERSION = 2

ANOTHER = "give a proof of this instance, read with the same options"


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proof as a file holds it; no `bound`: nothing is feasible."""

    problem: str
    version: int
    instance: str = ""
    digest: str
    bound: int | float | None
    proof: str
    evidence: JsonObject
    instance_fields: JsonObject = msgspec.field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class ProofCheck(Shown):
    """What verifying a proof has come to.

    Attributes
    ----------
    instance : str
        Name of the instance for which it was verified.
    bound : int or float or None
        Lower bound on every solution, if the proof is valid; None: there is no solution.
    rule : str
        By which it is verified.
    steps : int
        Number of steps of a log.
    fault : str
        What is wrong with the proof; then nothing is proved.
    """

    instance: str
    bound: Number | None
    rule: str
    steps: int = 0
    fault: str = ""

    def _line(self) -> str:
        return f"{self.instance!r}, {self.claim}: {'proved' if self.valid else 'not proved'}"

    @property
    def claim(self) -> str:
        """The claim of the proof, in words."""
        return "there is no solution" if self.bound is None else f"no solution below {self.bound:,}"

    @property
    def valid(self) -> bool:
        """Whether the proof is valid."""
        return not self.fault

    def to_dict(self) -> JsonObject:
        """Return everything as plain JSON data."""
        return {
            "instance": self.instance,
            "valid": self.valid,
            "claim": self.claim,
            "bound": self.bound if self.valid else None,
            "rule": self.rule,
            "steps": self.steps,
            "fault": self.fault or None,
        }


def prove(
    instance: Instance, bound: Number | Result[Solution], *, time_limit: float | None = 10
) -> JsonObject | None:
    """Return a proof that every solution has an objective of at least `bound`.

    :func:`check_proof` verifies it, with code that no solver uses.

    Parameters
    ----------
    instance : instance of any problem
    bound : int or float or Result
        The bound to prove; or a result with a bound, or one that is INFEASIBLE.
    time_limit : float, optional
        Seconds of a search for the proof, where the result has none.

    Returns
    -------
    dict or None
        The proof as plain JSON data; None if no proof was found.

    Raises
    ------
    InputError
        If `bound` is no number, and no result with a bound or the status INFEASIBLE.
    """
    require_instance(instance)
    time_limit = require_time(time_limit)
    known, looked = None, False
    if isinstance(bound, Result):
        infeasible = bound.status is Status.INFEASIBLE
        if bound.digest not in ("", instance.digest):
            raise InputError("is a result of another instance", field="bound", remedy=ANOTHER)
        if bound.bound is None and not infeasible:
            raise InputError("has no bound", field="bound", remedy="give one, or a result with one")
        if bound.proof in VERIFIABLE:
            known = Evidence(bound.proof, bound.evidence)
        wanted = None if infeasible else bound.bound
        looked = bool(bound.options.get("options", {}).get("proof"))  # for evidence, all the time
    elif is_number(bound):
        wanted = bound
    else:
        raise InputError(f"{bound!r} is no number", field="bound", remedy="give a number")
    known = known or _unaided(instance, wanted)
    if known is None and not looked:
        known = _found(instance, wanted, time_limit)
    if known is None:
        return None
    if not verify(instance, wanted, known.proof, known.data, time_limit=time_limit).shown:
        return None
    return {
        "problem": instance.kind,
        "version": VERSION,
        "instance": instance.name,
        "digest": instance.digest,
        "bound": wanted,
        "proof": str(known.proof),
        "evidence": known.data,
        "instance_fields": instance.fingerprints,
    }


def _unaided(instance: Instance, bound: Number | None) -> Evidence | None:
    """Return the rule that shows a bound by itself, if any does."""
    found = verify(instance, bound, time_limit=1)
    if not found.shown or found.proof is None:
        return None
    return Evidence(found.proof, {"rule": found.detail})


def _found(instance: Instance, bound: Number | None, time_limit: float | None) -> Evidence | None:
    """Search for evidence of a bound: for itself, where the problem can, or by solving."""
    search = getattr(kinds.part(instance.kind, "methods"), "prove", None)
    if search is not None:
        until = math.inf if time_limit is None else time.monotonic() + time_limit
        found: Evidence | None = search(instance, bound, lambda: time.monotonic() < until)
        return found
    result: Result[Solution] = solve(instance, time_limit=time_limit, options={"proof": True})
    if result.proof not in VERIFIABLE:
        return None
    if not verify(instance, bound, result.proof, result.evidence, time_limit=time_limit).shown:
        return None
    return Evidence(result.proof, result.evidence)


def _fault(found: Finding) -> str:
    """Return what is wrong with the evidence of a proof; "" for nothing."""
    if found.shown and found.false:
        return f"its evidence does not show it; {found.how} does"
    return "" if found.shown else found.detail


def _refuse_others(document: JsonObject) -> None:
    """Refuse a result, an instance, and a proof of another version in the place of a proof."""
    anew = "write one: stagepack solve INSTANCE --proof FILE"
    if "status" in document or "solution" in document:
        raise InputError(
            "is a result, no proof",
            remedy=f"check it: stagepack check INSTANCE RESULT; or {anew}",
        )
    version = document.get("version")
    if not {"evidence", "bound"} & document.keys():
        raise InputError("holds no proof", remedy=anew)
    if version != VERSION:
        raise InputError(
            f"is {version!r}, not {VERSION}, the only one read", field="version", remedy=anew
        )


def check_proof(
    instance: Instance,
    proof: str | Path | Mapping[str, object],
    *,
    time_limit: float | None = None,
) -> ProofCheck:
    """Verify a proof of a bound, with code that no solver uses: :mod:`stagepack.verify`.

    Parameters
    ----------
    instance : instance of any problem
    proof : path-like or mapping
        A file, or what :func:`prove` returned.
    time_limit : float, optional
        Seconds of the verification.

    Returns
    -------
    ProofCheck
        Whether the proof is valid.  What is wrong with it is said there, and raises no exception.

    Raises
    ------
    InputError
        If it is no proof for this instance, or the time limit is reached.
    """
    require_instance(instance)
    time_limit = require_time(time_limit)
    place: str | Path = ""
    if isinstance(proof, Mapping):
        bound = proof.get("bound")
        if bound is not None and not is_number(bound):
            raise InputError(f"{bound!r} is no number", field="bound", remedy="give one, or None")
        data = encoded(dict(proof))
    elif isinstance(proof, str | Path):
        place, data = os.fspath(proof), strict.load(proof)
    else:
        raise InputError(f"{proof!r}", field="proof", remedy="give a file, or its document")
    with strict.located(place):
        _refuse_others(document_of(data))
        document = strict.decode(data, Document)
        keys.require_single(data)
        for field, said, own in (
            ("problem", document.problem, instance.kind),
            ("digest", document.digest, instance.digest),
        ):
            if said != own:
                why = difference(document.instance_fields, instance)
                why = f": {why}" if document.instance_fields and field == "digest" else ""
                raise InputError(f"is {said!r}, not {own!r}{why}", field=field, remedy=ANOTHER)
        if document.proof not in VERIFIABLE:
            kinds_of = ", ".join(VERIFIABLE)
            raise InputError(f"is {document.proof!r}", field="proof", remedy=f"known: {kinds_of}")
        found = verify(
            instance, document.bound, document.proof, document.evidence, time_limit=time_limit
        )
        if not (found.shown or found.false) and document.proof in VERIFIABLE:
            raise InputError("takes longer to verify than the limit", remedy="raise -t")
    steps = document.evidence.get("steps")
    return ProofCheck(
        instance=instance.name,
        bound=document.bound,
        rule=found.detail if found.shown else str(document.evidence.get("rule")),
        steps=len(steps) if isinstance(steps, list) and not found.false else 0,
        fault=_fault(found),
    )
