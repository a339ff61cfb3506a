"""What checks of results and of proofs found, in words."""

from __future__ import annotations

from collections import Counter

from stagepack.claims import ProofCheck, ResultCheck, Verdict
from stagepack.contracts import Number, Violation
from stagepack.errors import LONGEST, shown
from stagepack.report import format as as_text
from stagepack.report.view import view
from stagepack.shown import FEW


def told(found: object) -> str:
    """Return the lines that tell what a check found."""
    if isinstance(found, ResultCheck):
        return "\n".join(check_lines(found))
    return "\n".join(proof_lines(found)) if isinstance(found, ProofCheck) else repr(found)


def proof_lines(found: ProofCheck) -> list[str]:
    """Say what is proved, or what is wrong."""
    how = as_text.plural(found.steps, "step") + " replayed" if found.steps else found.rule
    if found.valid:
        return [f"proved: {found.claim}; {how}"]
    return [shown(found.fault, LONGEST), f"not proved: {found.claim}"]


def check_lines(found: ResultCheck) -> list[str]:
    """Say what is wrong, claim by claim, and sum up the rest."""
    problem = found.problem
    lines = _violations(found)
    for verdict in (Verdict.FALSE, Verdict.DIFFERS):
        lines += [str(claim) for claim in found.claims if claim.verdict is verdict]
    kind = None if problem is None else view(problem.kind)

    def value_of(figure: Number | None) -> str:
        if figure is None:
            return "none"
        return as_text.number(figure) if kind is None else kind.worth(problem, figure)

    if found.valid and found.objective is not None:
        name = f"{shown(found.instance)}, worth" if problem is None else problem.objective
        lines.append(f"valid: {name} {value_of(found.objective)}")
    # Times and incumbents of a run are never verified, and need not be.
    told = [c for c in found.claims if c.verdict is not Verdict.UNVERIFIED]
    counts = Counter(claim.verdict for claim in (*told, *found.unverified))
    if counts:
        lines.append("claims: " + ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v]))
    if found.valid and found.unverified:
        names = " and ".join(claim.name for claim in found.unverified)
        held = "no solution" if found.solution is None and problem is not None else "solution valid"
        lines.append(f"{held}; {names} not verified")
    lines += map(str, found.unverified)
    if found.candidates:
        lines.append(f"enumeration: {found.candidates:,} candidates tried")
    if found.unverified and not found.again and problem is not None:
        lines.append("--prove solves again, by other code")
    for again in found.again:
        value, bound = value_of(again.objective), value_of(again.bound)
        status = as_text.standing(again.status, again.objective, problem)
        by = again.engine or again.bound_source  # what the method came to by
        by = again.method + (f" ({by})" if by else "")
        lines.append(f"solved again by {by}: {status}, objective {value}, bound {bound}")
    return lines


def _violations(found: ResultCheck) -> list[str]:
    """Return a few violations of every rule, and how many more of it there are."""
    by_rule: dict[str, list[Violation]] = {}
    for violation in found.violations:
        by_rule.setdefault(violation.rule, []).append(violation)
    lines = []
    for rule, broken in by_rule.items():
        lines += [shown(violation, LONGEST) for violation in broken[:FEW]]
        if len(broken) > FEW:
            lines.append(f"{rule}: and {len(broken) - FEW:,} more")
    return lines
