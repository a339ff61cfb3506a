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
        raise InputError(refusal, field="proof", remedy="ask without a proof")


def prove(
    instance: Instance, bound: Number | Result[Solution], *, time_limit: float | None = 10
) -> JsonObject | None:
    """Return a proof that no solution is worth less than a bound, for :func:`check_proof`.

    Parameters
    ----------
    instance : instance
        Of a kind that has proofs: lmem-packing.
    bound : int or Result
        The bound, or a result that has one or says that there is no solution.
    time_limit : float, optional
        Seconds to find it.

    Returns
    -------
    dict or None
        The proof as plain JSON data; None where none was found.

    Raises
    ------
    InputError
        For instances and results that have no proofs.
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
    """Replay a proof of a bound, with code that shares nothing with what found it.

    Parameters
    ----------
    instance : instance
        Of a kind that has proofs: lmem-packing.
    proof : path-like or mapping
        A file, or what :func:`prove` returned.
    time_limit : float, optional
        Seconds to replay it.

    Returns
    -------
    ProofCheck
        A wrong step is part of the answer, never an exception.

    Raises
    ------
    InputError
        For what is no proof of this instance, for one too large, and once time is over.
    """
    require_instance(instance)
    require_provable(instance)
    replay = PROBLEMS[instance.kind].part("proof").check_proof
    found: ProofCheck = replay(instance, proof, time_limit=time_limit)
    return found
