"""Proofs of bounds: written to a file, and replayed independently of the solver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from stagepack import kinds
from stagepack.contracts import Instance, JsonObject, Number, Solution
from stagepack.errors import InputError
from stagepack.instances.answer import require_instance
from stagepack.instances.arrays import integer
from stagepack.instances.problem import PROBLEMS
from stagepack.instances.proof import ProofCheck
from stagepack.result import Result
from stagepack.solve import require_time


def require_provable(instance: Instance, result: Result[Solution] | None = None) -> None:
    """Refuse instances, and results, of which nothing can be proved step by step.

    Raises
    ------
    InputError
    """
    if not PROBLEMS[instance.kind].proofs:
        proved = ", ".join(kind for kind, problem in PROBLEMS.items() if problem.proofs)
        raise InputError(
            f"{instance.kind} has no proofs", field="proof", remedy=f"only {proved} has"
        )
    refusal = kinds.part(instance.kind, "methods", "proof").refusal(instance, result)
    if refusal:
        raise InputError(refusal, field="proof", remedy="leave out the proof")


def prove(
    instance: Instance, bound: Number | Result[Solution], *, time_limit: float | None = 10
) -> JsonObject | None:
    """Return a proof that every solution has an objective of at least `bound`.

    :func:`check_proof` verifies it, with code that the search does not use.

    Parameters
    ----------
    instance : instance
        Of a kind that has proofs: lmem-packing.
    bound : int or Result
        The bound to prove; or a result with a bound, or one that is INFEASIBLE.
    time_limit : float, optional
        Seconds of the search for the proof.

    Returns
    -------
    dict or None
        The proof as plain JSON data; None if no proof was found.

    Raises
    ------
    InputError
        If this kind of problem has no proofs, or the result has neither a bound nor the status
        INFEASIBLE.
    """
    require_instance(instance)
    result = bound if isinstance(bound, Result) else None
    require_provable(instance, result)
    time_limit = require_time(time_limit)
    writer = kinds.part(instance.kind, "methods", "proof")
    wanted = integer(bound, "bound") if result is None else writer.bound_of(instance, result)
    writer.load(instance)
    until = None if time_limit is None else time.monotonic() + time_limit
    found: JsonObject | None = writer.prove(
        instance, wanted, lambda: until is None or time.monotonic() < until
    )
    return found


def check_proof(
    instance: Instance,
    proof: str | Path | Mapping[str, object],
    *,
    time_limit: float | None = None,
) -> ProofCheck:
    """Verify a proof of a bound step by step, with code that the search does not use.

    Parameters
    ----------
    instance : instance
        Of a kind that has proofs: lmem-packing.
    proof : path-like or mapping
        A file, or what :func:`prove` returned.
    time_limit : float, optional
        Seconds of the verification.

    Returns
    -------
    ProofCheck
        Whether the proof is valid.  Wrong steps are listed in it, and raise no exception.

    Raises
    ------
    InputError
        If it is no proof for this instance, or is too large, or the time limit is reached.
    """
    require_instance(instance)
    require_provable(instance)
    time_limit = require_time(time_limit)
    if not isinstance(proof, str | Path | Mapping):
        raise InputError(f"{proof!r}", field="proof", remedy="give a file, or its document")
    replay = PROBLEMS[instance.kind].part("proof").check_proof
    found: ProofCheck = replay(instance, proof, time_limit=time_limit)
    return found
