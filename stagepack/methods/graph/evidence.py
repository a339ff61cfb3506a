"""Finds evidence that can be verified: flows around blocks, multipliers of linear rows, ideals.

Rows and forms are those of the verifier, which decides what a flow or multipliers show.  Cost: of a
flow, O(nets * members) for each path; of multipliers, a linear program of `verify.graph.rows`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from stagepack import solvers
from stagepack.contracts import Number
from stagepack.evidence import SEARCHED, Evidence, Proof, witness
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.linear import Array, Linear
from stagepack.methods import Settings
from stagepack.methods.evidence import take
from stagepack.progress import Progress
from stagepack.solvers import Limits
from stagepack.verify import Claimed, UnprovedError, graph
from stagepack.verify.graph import Form

Row = tuple[dict[tuple[int, int], int], float]
"""Factors of variables, and what their sum is at most."""

FINE = 2**40
"""Parts of one in which multipliers are counted that have no small common denominator."""
DENOMINATOR = 1_000
"""Largest denominator of a multiplier with which a common one is looked for."""
SLACK = 1e-9
"""Part of a value by which a linear program may be off."""


def strengthen(
    instance: GraphPartition,
    progress: Progress[GraphSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Look for evidence that others can verify, where a proof rests on a search or an engine."""
    most = settings.tuned(TUNING).evidence_size
    if not settings.proof and instance.n + len(instance.consumers) > most:
        return
    bound = None if progress.infeasible_reason is not None else progress.bound
    if bound is None and progress.infeasible_reason is None:
        return
    until = math.inf
    if settings.proof and progress.by_clock and math.isfinite(progress.remaining):
        until = time.monotonic() + progress.remaining
    claim = _claim(instance, bound, until)
    for given in _tries(instance, bound, settings.proof, until):
        if not keep_going():
            return
        with contextlib.suppress(UnprovedError):
            graph.RULES[given.data["rule"]][1](instance, given.data, claim)
            take(progress, given)
            return


def _tries(
    instance: GraphPartition, bound: Number | None, thorough: bool, until: float
) -> Iterator[Evidence]:
    """Yield evidence that may show what is known, the cheapest to verify first."""
    yield witness("work")
    if bound is not None:
        flow = around(instance, bound)
        if flow is not None:
            yield witness("cut", flow=flow)
    lined = in_line(instance)
    if thorough and bound is not None and lined:
        yield from _multiplied(instance, bound, until)
    for level in _levels(instance):
        yield Evidence(Proof.LOG, {"rule": "ideals" if thorough else "few-ideals", "light": level})
    if thorough and bound is not None and not lined:
        yield from _multiplied(instance, bound, until)


def by_work(instance: GraphPartition, bound: Number | None, most: int) -> Evidence:
    """Return the witness of a `bound` by work, or that nothing fits (None), if the rule shows it.

    Of whole figures it does, where no devices share a stage; others are rounded up to ticks by the
    compact form, not by the rule, which is asked of graphs of at most `most` nodes and readers: it
    takes 20 us for each.
    """
    evidence = witness("work")
    broken = (instance.time % 1).any() or (instance.traffic % 1).any()
    if bound is not None and not broken and instance.objective.value != "replicated":
        return evidence
    if instance.n + len(instance.consumers) > most:
        return SEARCHED
    try:
        graph.RULES["work"][1](instance, evidence.data, _claim(instance, bound))
    except UnprovedError:
        return SEARCHED
    return evidence


def in_line(instance: GraphPartition) -> bool:
    """Whether linear rows know the order of devices: without it they say little of traffic."""
    room = () if instance.capacity is None else instance.capacity.tolist()
    alike = len(set(instance.speeds.tolist())) == 1 and len(set(room)) <= 1 and not instance.cpus
    return instance.contiguous and (alike or instance.device_order.value == "fixed")


def _multiplied(instance: GraphPartition, bound: Number, until: float) -> Iterator[Evidence]:
    """Yield multipliers of linear rows, if these show a bound."""
    rows = Relaxed.of(instance, bound)
    left = None if math.isinf(until) else max(0.0, until - time.monotonic())
    solved = None if rows is None else rows.solved(Limits(time_limit=left))
    shown = None if solved is None else solved.evidence()
    if shown is not None:
        yield shown


def _levels(instance: GraphPartition) -> list[int]:
    """Return bytes up to which nodes that take no time may count as having none: the fewest last.

    The more do, the fewer ideals there are, but the more partitions.
    """
    held = instance.memory + instance.stash
    sizes = np.unique(held[(instance.time == 0) & (held > 0)])
    if not len(sizes) or instance.objective.value == "memory":
        return [0]
    every = [int(sizes[-1])]
    some = [int(sizes[at]) for at in (len(sizes) // 2, 0)]
    return every if instance.capacity is None else sorted({*every, *some, 0}, reverse=True)


def _claim(instance: GraphPartition, bound: Number | None, until: float = math.inf) -> Claimed:
    """Return what a bound says, None: that nothing is feasible, as the verifier takes it."""
    if bound is None:
        return Claimed(None, until)
    least = Fraction(bound)
    return Claimed(least - Fraction(instance.tolerance) * abs(least), until)


# ---------------------------------------------------------------------- flows


def around(instance: GraphPartition, bound: Number) -> list[list[int]] | None:
    """Return what tensors hand to blocks so that one of them keeps any device busy for `bound`, or
    None.
    """
    try:
        form = graph.coloured(instance, _claim(instance, bound))
    except UnprovedError:
        return None
    if not form.added or math.inf in form.least or form.limit in (math.inf, -math.inf):
        return None
    of: list[list[int]] = [[] for _ in range(form.n)]
    for j, (producer, readers, *_) in enumerate(form.nets):
        for b in {producer, *readers}:
            of[b].append(j)
    times = list(zip(*form.time, strict=True))
    for v in range(form.n):
        kinds = [(kind.pays, t) for kind, t in zip(form.kinds, times[v], strict=True)]
        paid = min((t for pays, t in kinds if pays and t is not None), default=math.inf)
        free = min((t for pays, t in kinds if not pays and t is not None), default=math.inf)
        needed = form.limit - paid
        if free >= form.limit and 0 < needed <= sum(form.nets[j].cost for j in of[v]):
            found = _Flow(form, of).into(v, int(needed))
            if found is not None:
                return found
    return None


class _Flow:
    """Time that blocks hand through tensors to one of them: the paths of Ford and Fulkerson.

    Each block has tensors, `of`.
    """

    def __init__(self, form: Form, of: list[list[int]]) -> None:
        self._form, self._of = form, of
        self._members = [sorted({p, *readers}) for p, readers, *_ in form.nets]
        rows = [row for kind, row in zip(form.kinds, form.time, strict=True) if kind.pays]
        self._left: list[float] = [
            min((t for t in column if t is not None), default=math.inf)
            for column in zip(*rows, strict=True)
        ]
        self._handed = [dict.fromkeys(members, 0) for members in self._members]
        self._room = [net.cost for net in form.nets]

    def into(self, v: int, needed: int) -> list[list[int]] | None:
        """Hand so much to a block; return by tensor what each member got, None: it is too much."""
        while needed > 0:
            path = self._path(v)
            if path is None:
                return None
            most = min(needed, *(self._most(*step) for step in path))
            most = int(min(most, self._left[path[-1][2]]))
            self._left[path[-1][2]] -= most
            for j, to, source in path:
                self._hand(j, to, source, most)
            needed -= most
        return [
            [handed[b] for b in members] if any(handed.values()) else []
            for handed, members in zip(self._handed, self._members, strict=True)
        ]

    def _most(self, j: int, to: int, source: int) -> int:
        """Return how much more a tensor can hand from one member to another."""
        handed = self._handed[j]
        return self._room[j] + max(0, -handed[to]) + max(0, handed[source])

    def _hand(self, j: int, to: int, source: int, amount: int) -> None:
        handed = self._handed[j]
        handed[to] += amount
        handed[source] -= amount
        self._room[j] = self._form.nets[j].cost - sum(max(0, a) for a in handed.values())

    def _path(self, v: int) -> list[tuple[int, int, int]] | None:
        """Return tensors, who gets and who gives, from a block to the next that has time left."""
        came: dict[int, tuple[int, int, int]] = {v: (-1, v, v)}
        waiting = deque([v])
        while waiting:
            to = waiting.popleft()
            for j in self._of[to]:
                for b in self._members[j]:
                    if b in came or not self._most(j, to, b):
                        continue
                    came[b] = (j, to, b)
                    waiting.append(b)
                    if self._left[b] > 0:
                        path = []
                        while b != v:
                            path.append(came[b])
                            b = came[b][1]
                        return path[::-1]
        return None


# ---------------------------------------------------------------------- linear rows


def row_count(compact: Compact) -> int:
    """Return about how many rows there are."""
    pins = 2 * (len(compact.net) - compact.nets)
    order = compact.devices * (compact.blocks + len(compact.after) + pins)
    loads: int = compact.devices**compact.passes
    return order + loads


@dataclass(frozen=True)
class Relaxed:
    """What linear rows say of partitions that are better than claimed."""

    bound: Number  # the claim
    form: Form
    rows: list[Row]  # those of the verifier, without what is settled
    # By which part of the limit some load exceeds it at least; negative: need not reach it.
    excess: float = 0.0
    duals: Array = field(default_factory=lambda: np.zeros(0))  # (rows,): at most 0
    unit: int = 1  # by which they are multiplied so that those of all loads add up to about 1

    @classmethod
    def of(cls, instance: GraphPartition, bound: Number) -> Relaxed | None:
        """Return the rows of a claim; None where these do not apply."""
        claim = _claim(instance, bound)
        try:
            form = graph.settled(instance, claim)
            if math.inf in form.least or not 1 < form.limit < math.inf:
                return None
            first, last = graph.places(form, claim)
            rows = [_settled(row, first, last) for row in graph.rows(form)]
        except UnprovedError:
            return None
        return cls(bound, form, rows)

    def solved(self, limits: Limits | None = None) -> Relaxed | None:
        """Solve the linear program; return None where the limits are too narrow."""
        outcome = solvers.engine("highs").solve(_program(self.form, self.rows), limits=limits)
        if outcome.duals is None or outcome.objective is None:
            return None
        scaled = outcome.duals.copy()
        scaled[list(_loads(self.form, self.rows))] /= self.form.limit
        return replace(self, excess=outcome.objective, duals=scaled, unit=int(self.form.limit))

    @property
    def value(self) -> float:
        """What all partitions reach that are better than claimed, if there are any."""
        return float(self.bound) * (1 - 1 / self.form.limit + self.excess)

    def evidence(self) -> Evidence | None:
        """Return multipliers that show the claim: numbers of rows, and how often to add these."""
        weights = {at: -Fraction(dual) for at, dual in enumerate(self.duals.tolist()) if dual < 0}
        shares = [
            (weights.get(at, Fraction(0)) * self.unit).limit_denominator(DENOMINATOR)
            for at in _loads(self.form, self.rows)
        ]
        for parts in (math.lcm(*(share.denominator for share in shares)), FINE):
            times = [[at, round(weight * self.unit * parts)] for at, weight in weights.items()]
            if _contradict(self.rows, times):
                given = [[at, count] for at, count in times if count]
                return Evidence(Proof.DUAL, {"rule": "dual", "times": given})
        return None


def raise_by_rows(
    instance: GraphPartition,
    progress: Progress[GraphSolution],
    steps: int,
    limits: Callable[[], Limits],
) -> None:
    """Raise the bound to what a linear program shows of partitions better than the one known.

    Rows are the tighter the lower the claim: duals that show one show it by those of its value.  At
    most `steps` programs are solved, each within what `limits` returns; `progress` has a solution.
    """
    known, low = progress.objective, progress.bound or 0
    claim = known
    for _ in range(steps):
        asked = None if claim is None else Relaxed.of(instance, claim)
        solved = None if asked is None else asked.solved(limits())
        if known is None or claim is None or solved is None:
            return
        high, value = claim, solved.value
        if isinstance(known, int):
            value = math.ceil(value - SLACK * value)
        value = min(value, known)
        if value > low:
            lower = Relaxed.of(instance, value)
            tighter = lower and replace(solved, form=lower.form, rows=lower.rows)
            shown = None if tighter is None else tighter.evidence()
            if shown is not None:
                progress.raise_bound(value, "linear program", shown)
                low = value
        claim = (low + high) // 2 if isinstance(known, int) else (low + high) / 2
        if not low < claim < known:
            return


def _settled(row: graph.Row, first: list[int], last: list[int]) -> Row:
    """Return the factors of the variables of a row that are not known, and what is left to them."""
    found: dict[tuple[int, int], int] = {}
    terms, most = row
    for v, s, factor in terms:
        if s >= last[v]:
            most -= factor
        elif s >= first[v]:
            found[v, s] = found.get((v, s), 0) + factor
    return found, most


def _loads(form: Form, rows: list[Row]) -> range:
    """Return the numbers of the rows that limit loads."""
    return range(len(rows) - len(form.kind) ** form.passes, len(rows))


def _program(form: Form, rows: list[Row]) -> Linear:
    """Return by which part of the limit all loads must exceed it at most, to be minimised."""
    column: dict[tuple[int, int], int] = {}
    loads = set(_loads(form, rows))
    entries: list[tuple[int, int, float]] = []
    high = []
    for at, (factors, most) in enumerate(rows):
        scale = 1 / form.limit if at in loads else 1.0
        for key, factor in factors.items():
            entries.append((at, column.setdefault(key, len(column)), factor * scale))
        high.append(float(most * scale))
    last = len(column)
    entries += [(at, last, -1.0) for at in loads]
    row, place, value = zip(*entries, strict=True)
    return Linear.of(
        cost=np.append(np.zeros(last), 1.0),
        lower=np.append(np.zeros(last), -1.0),
        upper=np.append(np.ones(last), np.inf),
        integral=np.zeros(last + 1, dtype=bool),
        row=np.array(row),
        column=np.array(place),
        value=np.array(value),
        low=np.full(len(rows), -np.inf),
        high=np.array(high),
    )


def _contradict(rows: list[Row], times: list[list[int]]) -> bool:
    """Whether no values between 0 and 1 keep to the sum of rows."""
    total: dict[tuple[int, int], int] = {}
    left: float = 0
    for at, count in times:
        factors, most = rows[at]
        left += count * most
        for key, factor in factors.items():
            total[key] = total.get(key, 0) + count * factor
    return sum(min(0, factor) for factor in total.values()) > left
