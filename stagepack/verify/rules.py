"""What verifying is: a claim, the rules that may show it, and what is found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stagepack import kinds
from stagepack.contracts import Instance, Number
from stagepack.evidence import VERIFIABLE, Proof

AT_ONCE = 4096
"""Elementary steps, of some 100 ns, between two looks at the clock."""


class UnprovedError(Exception):
    """Raised by a rule: the evidence does not show the claim, and why."""


class OutOfTimeError(UnprovedError):
    """Raised by :meth:`Claimed.step`: nothing is known of the claim."""


@dataclass(frozen=True)
class Claimed:
    """What is to be shown."""

    # Every solution has an objective of at least this; None: there is no solution.
    bound: Fraction | None
    until: float  # when to give up, on :func:`time.monotonic`

    def step(self, count: int) -> None:
        """Look at the clock once in so many steps; `count` numbers them."""
        if count % AT_ONCE == 0 and time.monotonic() > self.until:
            raise OutOfTimeError("it takes longer to verify than the limit (-t)")


def exact(value: object) -> Fraction:
    """Return a number of some evidence; of a text the exponent could be of any size."""
    if not isinstance(value, int | float):
        raise UnprovedError(f"{value!r} is no number")
    return Fraction(value)


def defined(kind: str, *module: str) -> Any:
    """Return a module of a problem's instances, where their checker asks what things cost, too."""
    return kinds.part(kind, "instances", *module)


Rule = Callable[[Any, Mapping[str, Any], Claimed], None]
"""``rule(instance, evidence, claimed)`` raises :class:`UnprovedError` unless the claim is shown."""

Rules = dict[str, tuple[Proof, Rule]]
"""The rules of a problem by name, and which kind of proof each is: `RULES` of its module, where
`UNAIDED` names those that need no evidence, in the order in which they are tried."""


@dataclass(frozen=True)
class Finding:
    """What verifying a claim has come to."""

    shown: bool  # whether the claim is true
    # Whether the evidence that was given does not show it.  The claim may be true all the same.
    false: bool
    proof: Proof | None  # the kind of the argument that shows it
    detail: str  # the rule that shows it, or why it is open

    @property
    def how(self) -> str:
        """The kind of proof and the rule that show it, in words."""
        return f"{self.proof}, {self.detail.replace('-', ' ')}"


def verify(
    instance: Instance | Any,
    bound: Number | None,
    proof: str | None = None,
    evidence: Mapping[str, object] | None = None,
    *,
    time_limit: float | None = None,
    rules: Any = None,
) -> Finding:
    """Verify that no solution is better than a `bound`, or, of None, that there is none.

    In `time_limit` seconds.  The `evidence` of a result, and its kind of `proof`, are looked at
    first.  Where they show nothing, the rules that need none are tried.  Evidence that is wrong or
    malformed is found false, and raises no exception.  Of floats the instance's tolerance is part
    of the claim: no objective is below the bound by more.  `rules` are of what is no problem of its
    own; by default those of the problem.
    """
    until = float("inf") if time_limit is None else time.monotonic() + time_limit
    least = None
    if bound is not None:
        least = Fraction(bound)
        least -= Fraction(instance.tolerance) * abs(least)
    claimed = Claimed(least, until)
    try:
        home = kinds.part(instance.kind, "verify") if rules is None else rules
    except ModuleNotFoundError:
        return Finding(False, False, None, f"nothing verifies proofs of {instance.kind}")
    false, why = False, "there is no evidence"
    if proof in VERIFIABLE:
        why = _fault(home.RULES, instance, dict(evidence or {}), claimed)
        if not why:
            name = str((evidence or {})["rule"])
            return Finding(True, False, home.RULES[name][0], name)
        false = time.monotonic() <= until  # a wrong one, not one for which time was too short
    for name in home.UNAIDED:
        if not _fault(home.RULES, instance, {"rule": name}, claimed):
            return Finding(True, false, home.RULES[name][0], name)
    return Finding(False, false, None, why)


def _fault(
    rules: Rules,
    instance: Instance,
    evidence: Mapping[str, Any],
    claimed: Claimed,
) -> str:
    """Return why evidence does not show a claim; "" where it does."""
    name = evidence.get("rule")
    if not isinstance(name, str) or name not in rules:
        return "it names no rule" if name is None else f"no rule is called {name!r}"
    try:
        rules[name][1](instance, evidence, claimed)
    except UnprovedError as open_:
        return f"{name}: {open_}"
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
        return f"{name}: malformed evidence ({type(fault).__name__}: {fault})"
    return ""
