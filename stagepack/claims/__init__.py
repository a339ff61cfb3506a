"""Checks what a result file claims against what its solution is worth.

A result says more than its solution: a value, a bound, a gap, a status, why the run stopped, and
for which instance.  Everything that follows from instance and solution is recomputed.  That a bound
is valid, and that nothing better exists, does not follow from the file: this can only be verified
by solving again, or by replaying a proof.
"""

from stagepack.claims.check import check_result
from stagepack.claims.claim import Claim, ResultCheck, Verdict
from stagepack.claims.proof import ProofCheck, check_proof, prove
from stagepack.claims.read import read_result

__all__ = [
    "Claim",
    "ProofCheck",
    "ResultCheck",
    "Verdict",
    "check_proof",
    "check_result",
    "prove",
    "read_result",
]
