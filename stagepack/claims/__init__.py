"""What a result file claims, compared with what its solution is worth.

A result says more than its solution: a value, a bound, a gap, a status, why the run stopped, on
which instance.  Whatever follows from instance and solution is computed again.  That a bound is
one, and that nothing better exists, does not follow from a file: only solving again can tell, or
a proof that is replayed.
"""

from stagepack.claims.check import check_result
from stagepack.claims.claim import Claim, ResultCheck, Verdict
from stagepack.claims.proof import check_proof, prove
from stagepack.claims.read import read_result
from stagepack.instances.proof import ProofCheck

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
