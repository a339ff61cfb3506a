"""The rules by which claims are checked: one for each field, in the order of `RULES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stagepack.claims.claim import Claim, Verdict, is_number, short
from stagepack.claims.every import Tried
from stagepack.contracts import Instance, JsonObject, Number, Solution, Violation
from stagepack.evidence import VERIFIABLE, Proof
from stagepack.records import fault
from stagepack.result import EventKind, Result, Status, Termination, relative_gap, slack
from stagepack.verify import Finding

UNPROVED = "cannot be recomputed from a file"


@dataclass
class Case:
    """A document beside what is known of it."""

    document: JsonObject
    instance: Instance
    solution: Solution | None
    violations: tuple[Violation, ...]
    objective: Number | None  # what a valid solution is worth
    foreign: bool  # whether the document is of another instance
    # What verifying the bound, or that nothing is feasible, came to; None where neither is said.
    finding: Finding | None = None
    again: tuple[Again, ...] = ()  # what solving again came to
    tried: Tried | None = None  # what trying every solution came to; None: they were not

    def slack(self, value: Number) -> Number:
        """Return by how much another figure may differ from `value`, and be called equal."""
        return slack(value, self.instance.tolerance)

    def above(self, one: Number, other: Number) -> bool:
        """Whether one value exceeds another by more than the instance's tolerance."""
        return bool(one - other > self.slack(other))

    def wrong(self) -> Verdict:
        """Return what to call a claim that does not hold here."""
        return Verdict.DIFFERS if self.foreign else Verdict.FALSE

    @property
    def best(self) -> Number | None:
        """The least value of a solution that is known."""
        values = [self.objective, *(again.result.objective for again in self.again)]
        values += [self.tried.best] if self.tried is not None else []
        return min((value for value in values if value is not None), default=None)

    @property
    def finder(self) -> str:
        """What found the best solution, if that is not the one in hand."""
        return (
            "enumeration"
            if self.tried is not None and self.tried.best is not None
            else "solving again"
        )

    def settled(self, bound: Number | None) -> bool:
        """Whether solving again has shown a bound, or that it is false."""
        if self.best is not None and (bound is None or self.above(bound, self.best)):
            return True
        return any(
            again.how or (again.proves(bound, self.instance.tolerance) and not again.shares)
            for again in self.again
        )


@dataclass(frozen=True)
class Again:
    """An instance solved again."""

    result: Result[Solution]
    # Which code its method shares with what made the claim, so that it cannot confirm it; "" for
    # none but the normal form of the instance.
    shares: str
    how: str  # which evidence of it shows the claim; "" for none

    def proves(self, bound: Number | None, tolerance: float) -> bool:
        """Whether it has come to a bound, too; None: to there being no solution."""
        if self.result.status is Status.INFEASIBLE or bound is None:
            return self.result.status is Status.INFEASIBLE
        own = self.result.bound
        return own is not None and bound - own <= slack(own, tolerance)


class Judgement(NamedTuple):
    """What became of a claim, what it should say as far as that can be found, and why."""

    verdict: Verdict
    recomputed: object = None
    detail: str = ""


def claims(case: Case) -> Iterator[Claim]:
    """Yield what a document claims, judged."""
    yield from judged(case, RULES)
    yield from _records(case)


def judged(case: Case, names: Iterable[str]) -> Iterator[Claim]:
    """Yield what a document claims in some fields, judged."""
    for name in names:
        rule, claimed = RULES[name], case.document.get(name)
        if name in case.document and (claimed is not None or name in NOTHING_SAYS_SOMETHING):
            found = rule(case, claimed)
            if name == "trace" and isinstance(claimed, list):
                claimed = f"{len(claimed)} events"
            if found is not None:
                yield Claim(name, claimed, found.recomputed, found.verdict, found.detail)


# ---------------------------------------------------------------------- which instance


def _digest(case: Case, claimed: object) -> Judgement | None:
    own = case.instance.digest
    if claimed == "":
        return None
    if claimed == own:
        return Judgement(Verdict.CONFIRMED, own)
    if not case.foreign:
        return Judgement(Verdict.FALSE, own, "is no digest")
    there = case.document.get("instance_fields")
    if isinstance(there, Mapping):
        why = difference(there, case.instance)
        why = why or "another instance, in no field that this version knows"
    else:
        why = "a result for another instance; the file does not say in which fields it differs"
    return Judgement(Verdict.DIFFERS, own, why)


def difference(there: Mapping[str, object], instance: Instance) -> str:
    """Say in which fields an instance is another one than that of a result (`there`), if in any."""
    here = instance.fingerprints
    return _unlike(there, here, {*there, *here})


def _unlike(there: Mapping[str, object], here: Mapping[str, object], names: Iterable[str]) -> str:
    words = []
    unlike = {name for name in names if there.get(name) != here.get(name)}
    unlike -= {name for name in unlike if "." in name and name not in there}  # an older file
    for name in sorted(unlike):
        whole, dot, _ = name.partition(".")
        named = f"{whole}.name"
        if named in unlike - {name} if dot else any(f"{name}." in part for part in unlike):
            continue  # the name says it all, or the parts do
        one, other = there.get(name), here.get(name)
        hidden = any(isinstance(value, str) and value.startswith("#") for value in (one, other))
        figures = f"is {short(one)} there, {short(other)} here"
        words.append(f"{name} differs" if hidden else f"{name} {figures}")
    return "; ".join(words)


def _problem(case: Case, claimed: object) -> Judgement:
    return _label(case, claimed, case.instance.kind)


def _objective_name(case: Case, claimed: object) -> Judgement:
    return _label(case, claimed, str(case.instance.objective))


def _label(case: Case, claimed: object, own: str) -> Judgement:
    """Judge a word that the instance has, too."""
    if claimed == own:
        return Judgement(Verdict.CONFIRMED, own)
    return Judgement(case.wrong(), own, f"the instance says {own}")


# ---------------------------------------------------------------------- what a solution is worth


def _violations(case: Case, claimed: object) -> Judgement:
    own = [str(violation) for violation in case.violations]
    if claimed == own:
        return Judgement(Verdict.CONFIRMED, own)
    if case.solution is None:
        return Judgement(Verdict.FALSE, own, "there is no solution that breaks a rule")
    broken = ", ".join(dict.fromkeys(one.rule for one in case.violations))
    detail = f"the solution breaks {broken or 'no rule'}"
    return Judgement(case.wrong(), own, detail)


def _objective(case: Case, claimed: object) -> Judgement | None:
    own = case.objective
    if case.solution is None:
        missing = Judgement(Verdict.FALSE, None, "there is no solution that is worth it")
        return None if claimed is None else missing
    if own is None:
        return Judgement(case.wrong(), None, "the solution is not valid")
    if is_number(claimed) and abs(claimed - own) <= case.slack(own):
        return Judgement(Verdict.CONFIRMED, own)
    verdict = case.wrong() if is_number(claimed) else Verdict.FALSE
    return Judgement(verdict, own, f"the solution is worth {short(own)}")


def _bound(case: Case, claimed: object) -> Judgement:
    best = case.best
    if not is_number(claimed):
        return Judgement(Verdict.FALSE, None, "is no number")
    if best is not None and case.above(claimed, best):
        whose = "the solution is" if best == case.objective else f"{case.finder} found one"
        return Judgement(case.wrong(), best, f"no lower bound: {whose} worth {short(best)}")
    return _shown(case, claimed)


def _shown(case: Case, bound: Number | None) -> Judgement:
    """Judge that nothing is below a bound, or feasible, by who verified it or solved again."""
    if case.finding is not None and case.finding.shown:
        return Judgement(Verdict.CONFIRMED, bound, f"verified: {case.finding.how}")
    why = UNPROVED if case.finding is None else case.finding.detail
    for again in case.again:
        by = again.result.method
        if again.how:
            return Judgement(Verdict.CONFIRMED, bound, f"verified: {again.how}, found by {by}")
        if again.proves(bound, case.instance.tolerance):
            if not again.shares:
                return Judgement(Verdict.CONFIRMED, bound, f"{by} proved it, too, by other code")
            why = f"{by} proved it, too, which verifies nothing: {again.shares}; {why}"
        elif again.result.bound is not None:
            why = f"{by} proved no more than {short(again.result.bound)}; {why}"
    if case.tried is not None and case.tried.best is None:
        many = f"by enumeration of {case.tried.count:,} candidates"
        return Judgement(Verdict.CONFIRMED, bound, many)
    return Judgement(Verdict.UNVERIFIED, None, why)


def _proof(case: Case, claimed: object) -> Judgement:
    """Judge the kind of a proof, by its evidence."""
    if claimed not in tuple(Proof):
        return Judgement(Verdict.FALSE, None, "is no kind of proof: " + ", ".join(Proof))
    finding = case.finding
    if finding is None:
        return Judgement(Verdict.FALSE, None, "there is no bound that it proves")
    if claimed not in VERIFIABLE:
        if finding.proof is not None:
            return Judgement(Verdict.CONFIRMED, str(finding.proof), f"even a {finding.proof}")
        return Judgement(Verdict.UNVERIFIED, None, "leaves nothing to verify")
    if finding.false and not finding.shown:
        return Judgement(case.wrong(), None, f"its evidence does not show it: {finding.detail}")
    if finding.false:
        detail = f"its evidence does not show it; {finding.how} does"
        return Judgement(case.wrong(), str(finding.proof), detail)
    if finding.proof is None:
        return Judgement(Verdict.UNVERIFIED, None, finding.detail)
    if VERIFIABLE.index(Proof(str(claimed))) < VERIFIABLE.index(finding.proof):
        return Judgement(case.wrong(), str(finding.proof), f"what shows it is a {finding.proof}")
    return Judgement(Verdict.CONFIRMED, str(finding.proof))


def _gap(case: Case, claimed: object) -> Judgement:
    bound = case.document.get("bound")
    value = case.document.get("objective") if case.objective is None else case.objective
    if not is_number(value) or not is_number(bound) or not is_number(value - bound):
        return Judgement(Verdict.FALSE, None, "it takes an objective and a bound")
    own = relative_gap(value, bound)
    assert own is not None
    margin = float(case.instance.tolerance) + 1e-9 * max(1.0, abs(own))
    if is_number(claimed) and abs(claimed - own) <= margin:
        return Judgement(Verdict.CONFIRMED, own)
    detail = f"objective {short(value)} and bound {short(bound)} make {own:.6g}"
    if own < -margin:
        detail = f"the bound {short(bound)} is above the objective {short(value)}: it is no bound"
    return Judgement(case.wrong(), own, detail)


# ---------------------------------------------------------------------- what is known, and why


def _status(case: Case, claimed: object) -> Judgement:
    least = None if case.objective is None else str(Status.FEASIBLE)
    if claimed not in tuple(Status):
        return Judgement(Verdict.FALSE, least, "is no status: " + ", ".join(Status))
    if claimed in (Status.INFEASIBLE, Status.UNKNOWN):
        if case.solution is not None:
            valid = "a valid solution" if least else "a solution"
            verdict = case.wrong() if least else Verdict.FALSE
            return Judgement(verdict, least, f"the file holds {valid}")
        if claimed == Status.UNKNOWN:
            return Judgement(Verdict.CONFIRMED)
        return _infeasible(case)
    if case.solution is None:
        return Judgement(Verdict.FALSE, None, "the file holds no solution")
    if case.objective is None:
        return Judgement(case.wrong(), None, "the solution is not valid")
    if claimed == Status.FEASIBLE:
        return Judgement(Verdict.CONFIRMED, least)
    return _optimal(case, case.objective, least)


def _infeasible(case: Case) -> Judgement:
    for again in case.again:
        if again.result.solution is not None:
            value = short(again.result.objective)
            detail = f"solving again found a solution worth {value}"
            return Judgement(case.wrong(), str(again.result.status), detail)
    if case.tried is not None and case.tried.best is not None:
        detail = f"enumeration found a solution worth {short(case.tried.best)}"
        return Judgement(case.wrong(), str(Status.FEASIBLE), detail)
    if is_number(case.document.get("bound")):
        return Judgement(case.wrong(), None, "there is a bound, on solutions that are not there")
    return _shown(case, None)._replace(recomputed=None)


def _optimal(case: Case, objective: Number, least: str | None) -> Judgement:
    bound = case.document.get("bound")
    if not is_number(bound):
        return Judgement(Verdict.FALSE, least, "there is no bound that proves it")
    if case.above(objective, bound):
        detail = f"the bound {short(bound)} is below the value {short(objective)}"
        return Judgement(case.wrong(), least, detail)
    if case.best is not None and case.above(objective, case.best):
        better = f"{case.finder} found a solution worth {short(case.best)}"
        return Judgement(case.wrong(), least, better)
    shown = _shown(case, bound)
    open_ = shown.verdict is Verdict.UNVERIFIED
    return shown._replace(recomputed=least if open_ else str(Status.OPTIMAL))


def _termination(case: Case, claimed: object) -> Judgement:
    status = case.document.get("status")
    if claimed not in tuple(Termination):
        return Judgement(Verdict.FALSE, None, "is none: " + ", ".join(Termination))
    proved = status in (Status.OPTIMAL, Status.INFEASIBLE)
    if claimed == Termination.PROVED:
        if not proved:
            return Judgement(Verdict.FALSE, None, f"but the status is {short(status)}")
        return _status(case, status)._replace(recomputed=None)
    goal, value = getattr(case.instance, "goal", None), case.objective
    met = goal is not None and value is not None and value <= goal
    if proved and not (claimed == Termination.TARGET and met):
        detail = f"a run that ends {short(status)} ends PROVED"
        return Judgement(Verdict.FALSE, str(Termination.PROVED), detail)
    if claimed != Termination.TARGET:
        return Judgement(Verdict.UNVERIFIED, None, "why a run ended " + UNPROVED)
    return Judgement(Verdict.CONFIRMED, str(claimed)) if met else _target(case)


def _target(case: Case) -> Judgement:
    """Judge TARGET by the target or gap that the run was given."""
    value, bound = case.objective, case.document.get("bound")
    options = case.document.get("options")
    if value is None:
        return Judgement(case.wrong(), None, "no valid solution reaches a target")
    if not isinstance(options, Mapping):
        return Judgement(Verdict.UNVERIFIED, None, "the file does not name the target")
    target, gap = options.get("target"), options.get("gap")
    reached = is_number(target) and value <= target
    if is_number(bound) and is_number(gap) and gap > 0:
        own = relative_gap(value, bound)
        reached |= own is not None and own <= gap
    if reached:
        return Judgement(Verdict.CONFIRMED, str(Termination.TARGET))
    return Judgement(case.wrong(), None, f"{short(value)} reaches no target")


def _trace(case: Case, claimed: object) -> Judgement | None:
    """Judge a trace: incumbents fall to the objective, bounds rise to the bound."""
    if claimed == []:
        return None
    told: dict[str, list[Number]] = {str(kind): [] for kind in EventKind}
    last: Number = 0
    for event in claimed if isinstance(claimed, list) else [None]:
        given = event if isinstance(event, Mapping) else {}
        kind, value, when = given.get("kind"), given.get("value"), given.get("time")
        if kind not in tuple(told) or not is_number(value):
            return Judgement(Verdict.FALSE, None, "an event without kind or value")
        if not is_number(when) or when < last:
            detail = f"events follow each other in time; {short(when)} does not"
            return Judgement(Verdict.FALSE, None, detail)
        last = when
        told[kind].append(value)
    incumbents, bounds = told[EventKind.INCUMBENT], told[EventKind.BOUND]
    if sorted(set(incumbents), reverse=True) != incumbents or sorted(set(bounds)) != bounds:
        return Judgement(Verdict.FALSE, None, "incumbents fall and bounds rise; these do not")
    for name, values in (("objective", incumbents), ("bound", bounds)):
        end = case.document.get(name)
        if values and is_number(end) and abs(values[-1] - end) > case.slack(end):
            detail = f"its last {name} is {short(values[-1])}, not {end}"
            return Judgement(Verdict.FALSE, None, detail)
    if bounds and case.best is not None and case.above(bounds[-1], case.best):
        return Judgement(case.wrong(), None, f"a bound above {short(case.best)}, which is reached")
    detail = "incumbents and times are not kept with their solutions"
    return Judgement(Verdict.UNVERIFIED, None, detail)


# ---------------------------------------------------------------------- the run


def _records(case: Case) -> Iterator[Claim]:
    """Name what cannot be true of any run, or is said of another instance; the rest is open."""
    instance = case.instance
    for name, claimed in case.document.items():
        verdict, detail = Verdict.FALSE, fault(instance.kind, name, claimed)
        if not detail and name == "instance" and claimed != instance.name:
            verdict, detail = Verdict.DIFFERS, f"the instance is called {short(instance.name)}"
        elif not detail and name == "instance_fields" and not case.foreign:
            detail = _unlike(claimed, instance.fingerprints, claimed)
        elif not detail and name == "options":
            detail = _contradicted(claimed, case.document)
        if detail:
            yield Claim(name, claimed, None, verdict, detail)


def _contradicted(options: Mapping[str, object], document: Mapping[str, object]) -> str:
    """Say where the options of a run are not those that the rest of the result tells of."""
    told = {"method": document.get("method"), "objective": document.get("objective_name")}
    return "; ".join(
        f"{name} is {short(options[name])} there, {short(own)} in the result"
        for name, own in told.items()
        if own is not None and options.get(name, own) != own
    )


RULES: dict[str, Callable[[Case, object], Judgement | None]] = {
    "digest": _digest,
    "problem": _problem,
    "objective_name": _objective_name,
    "violations": _violations,
    "objective": _objective,
    "bound": _bound,
    "proof": _proof,
    "gap": _gap,
    "status": _status,
    "termination": _termination,
    "trace": _trace,
}
"""Who judges which field of a result."""
NOTHING_SAYS_SOMETHING = ("violations", "objective")
"""Fields whose null is a claim, too."""
