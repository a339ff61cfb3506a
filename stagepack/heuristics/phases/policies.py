"""Policies worth having for every group of one microbatch, whatever the number of I/O tiles.

In a chain whose layers are computed again at most once, labels run along the layers of a group
(:mod:`.policies_kernels`): every set of policies that is best for some price of time, kept bytes
and memory is found.  With skips the same labels, which then leave out some of what is live, bound
what is possible and give candidates that are examined exactly; small groups are enumerated.  Where
layers may be computed again more than once there is a relaxed version for bounds: dropped layers
cost their forward cycles once and the memory of nothing but themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.phases import liveness_kernels, policies_kernels
from stagepack.heuristics.phases.liveness_kernels import REPEATED
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.instances.phases.instance import Policy
from stagepack.instances.profile import Array

CODES = {
    Policy.STASH: liveness_kernels.STASH,
    Policy.KEEP: liveness_kernels.KEEP,
    Policy.RECOMPUTE: liveness_kernels.RECOMPUTE,
}
NAMES = {code: str(policy) for policy, code in CODES.items()}
MOST_LABELS = 600
"""Labels followed at each layer; more are thinned out, and the answer says so."""
MOST_ENUMERATED = 243
"""Policies tried for a group one by one, where no rule finds the best ones."""
AT_ONCE = 4096
"""Rows between two looks at the clock."""


@dataclass(frozen=True, eq=False)
class PolicyRows:
    """Policies of groups; int64 arrays of shape (rows,), by rising group.

    Attributes
    ----------
    group : ndarray
        Index into the range costs.
    stored, reloaded : ndarray
        Bytes stashed in a step; those of them that are loaded again.
    kept : ndarray
        Bytes of a step kept by a group of two phases.
    again : ndarray
        Cycles of a step computed again.
    first_peak, last_peak : ndarray
        Most bytes live in the first phase and the last one, base excluded.
    codes, ends : ndarray
        Policies of one row after the other, and where those of each end.
    inexact : str
        Why a better policy may be missing; '' when none is.
    """

    group: Array
    stored: Array
    reloaded: Array
    kept: Array
    again: Array
    first_peak: Array
    last_peak: Array
    codes: Array
    ends: Array
    inexact: str = ""

    def policy(self, row: int) -> tuple[str, ...]:
        """Return the policies of the group's layers, () in inference."""
        low = int(self.ends[row - 1]) if row else 0
        codes = self.codes[low : int(self.ends[row])].tolist()
        return tuple(NAMES[code] for code in codes if code != liveness_kernels.NONE)

    @property
    def named(self) -> bool:
        """Whether the policies have names: those that cost nothing have none."""
        return not (len(self.codes) and self.codes[0] == liveness_kernels.NONE)

    def __len__(self) -> int:
        return len(self.group)


def find_policies(
    costs: RangeCosts,
    *,
    bounding: bool = False,
    track: bool = False,
    every: bool = False,
    keep_going: Callable[[], bool] = lambda: True,
) -> PolicyRows:
    """Return the policies worth having for every group.

    Parameters
    ----------
    bounding : bool
        For bounds: at least as good as anything that is possible, not always possible.
    track : bool
        The forward phase's memory matters by itself (prefetching).
    every : bool
        All policies, not the best ones (budgets that tell them apart).
    keep_going : callable
        Asked now and then; once it says no, rows are missing, and the answer says so.
    """
    instance = costs.instance
    if not instance.training:
        return _uniform(costs, None)
    usable = [p for p in instance.policies if p is not Policy.RECOMPUTE or instance.recomputations]
    dropping = Policy.RECOMPUTE in usable
    once = not dropping or (instance.chain and instance.recomputations == 1)
    often = dropping and instance.recomputations > 1
    if instance.policies == tuple(usable[:1]) and (once or not bounding):
        return _uniform(
            costs, usable[0], "" if once else "layers may be computed again in other orders"
        )
    if every:
        return _exactly(costs, list(instance.policies), None, once, keep_going)
    codes = np.array([CODES[policy] for policy in usable], dtype=np.int64)
    rows = _labelled(costs, codes, bounding and often, track, bounding, keep_going)
    if bounding:
        return rows
    if not instance.chain:
        return _exactly(costs, usable or list(instance.policies), rows, not dropping, keep_going)
    if often and not rows.inexact:
        return _with_doubt(rows, "layers may be computed again more than once")
    return rows


def ideal(costs: RangeCosts) -> PolicyRows:
    """Return one row a group, for bounds: products cost nothing but memory when they are used."""
    if not costs.instance.training:
        return _uniform(costs, None)
    codes = np.array([liveness_kernels.NONE], dtype=np.int64)
    return _labelled(costs, codes, True, False, True, lambda: True)


def uniform(costs: RangeCosts, policy: Policy) -> PolicyRows:
    """Return one row a group: the same policy for all layers (none in inference)."""
    return _uniform(costs, policy if costs.instance.training else None)


def chosen(costs: RangeCosts, rule: Callable[[int, int], Sequence[Policy]]) -> PolicyRows:
    """Return one row a group: the policies that `rule` gives for the layers [first, end)."""
    pairs = zip(costs.first.tolist(), costs.end.tolist(), strict=True)
    given = [[CODES[policy] for policy in rule(a, b)] for a, b in pairs]
    codes = np.array(list(itertools.chain.from_iterable(given)), dtype=np.int64)
    return _examined(costs, np.arange(len(costs)), codes, "", lambda: True)


def _with_doubt(rows: PolicyRows, inexact: str) -> PolicyRows:
    return dataclasses.replace(rows, inexact=inexact)


def _uniform(costs: RangeCosts, policy: Policy | None, inexact: str = "") -> PolicyRows:
    """Return one row a group: the same policy for all layers."""
    code = liveness_kernels.NONE if policy is None else CODES[policy]
    codes = np.full(int((costs.end - costs.first).sum()), code, dtype=np.int64)
    return _examined(costs, np.arange(len(costs)), codes, inexact, lambda: True)


def _labelled(
    costs: RangeCosts,
    codes: Array,
    relaxed: bool,
    track: bool,
    merging: bool,
    keep_going: Callable[[], bool],
) -> PolicyRows:
    """Return what the labels find."""
    instance, n = costs.instance, costs.n
    idle = CODES[instance.policies[0]]
    skipping = np.array(
        [t for t, readers in enumerate(instance.readers) if readers[1:]], dtype=np.int64
    )
    rows, groups, policies = [np.empty((0, 7), np.int64)], [np.empty(0, np.int64)], [codes[:0]]
    complete = True
    for a in range(n):
        low, high = int(costs.start[a]), int(costs.start[a + 1])
        if low == high:
            continue
        if not keep_going():
            complete = False
            break
        wanted = costs.end[low:high]
        reach = int(wanted[-1])
        for together in (False, True):
            if (together and reach < n) or (not together and int(wanted[0]) == n):
                continue
            found, parents, choices, all_followed = policies_kernels.explore(
                costs.layers,
                a,
                reach if together or reach < n else n - 1,
                together,
                costs.steps,
                codes,
                idle,
                skipping,
                costs.written,
                costs.weight_sums,
                costs.state_sums,
                costs.largest_capacity,
                relaxed,
                track,
                MOST_LABELS,
                merging,
            )
            complete &= all_followed or merging
            index = np.searchsorted(wanted, found[:, 0])
            there = wanted[np.minimum(index, len(wanted) - 1)] == found[:, 0]
            found = found[there]
            rows.append(found)
            groups.append(low + index[there])
            lengths = found[:, 0] - a
            policies.append(
                policies_kernels.unroll(parents, choices, found[:, 6], np.cumsum(lengths))
            )
    # By layer first and by end then, the groups rise; the last group of a layer comes at the end.
    table, group = np.concatenate(rows), np.concatenate(groups)
    return PolicyRows(
        group=group,
        stored=table[:, 1],
        reloaded=table[:, 1],
        kept=table[:, 3],
        again=table[:, 2],
        first_peak=table[:, 5],
        last_peak=table[:, 4],
        codes=np.concatenate(policies),
        ends=np.cumsum(costs.end[group] - costs.first[group]),
        inexact="" if complete else "only some of the many policies were followed",
    )


def _exactly(
    costs: RangeCosts,
    usable: list[Policy],
    candidates: PolicyRows | None,
    complete: bool,
    keep_going: Callable[[], bool],
) -> PolicyRows:
    """Return exact costs: all policies of small groups, candidates and single ones of others."""
    names = np.array([CODES[policy] for policy in usable], dtype=np.int64)

    @functools.cache
    def every(m: int) -> Array:
        return np.array(list(itertools.product(names.tolist(), repeat=m)), dtype=np.int64)

    groups: list[Array] = []
    policies: list[Array] = []
    for group in range(len(costs)):
        m = int(costs.end[group] - costs.first[group])
        if len(names) ** m <= MOST_ENUMERATED:
            tried = every(m)
        else:
            complete = False
            tried = np.repeat(names, m).reshape(-1, m)
            if candidates is not None:
                low, high = np.searchsorted(candidates.group, [group, group + 1])
                begin = int(candidates.ends[low - 1]) if low else 0
                until = int(candidates.ends[high - 1]) if high else 0
                tried = np.concatenate((candidates.codes[begin:until].reshape(-1, m), tried))
        groups.append(np.full(len(tried), group))
        policies.append(tried.reshape(-1))
    if not groups:
        return _uniform(costs, usable[0] if usable else None)
    doubt = "" if complete else "only some policies are tried"
    return _examined(costs, np.concatenate(groups), np.concatenate(policies), doubt, keep_going)


def _examined(
    costs: RangeCosts, group: Array, codes: Array, inexact: str, keep_going: Callable[[], bool]
) -> PolicyRows:
    """Return rows with their exact costs; those that drop what may not be computed again go."""
    first, end = costs.first[group], costs.end[group]
    ends = np.cumsum(end - first)
    training = costs.instance.training
    parts = [np.empty((7, 0), np.int64)]
    count = 0
    for low in range(0, len(group), AT_ONCE):
        if low and not keep_going():
            inexact = inexact or "there was no time for all policies"
            break
        rows = slice(low, low + AT_ONCE)
        parts.append(
            liveness_kernels.examine_all(
                costs.layers, first[rows], end[rows], training, codes, ends[rows]
            )
        )
        count = min(len(group), low + AT_ONCE)
    values = np.concatenate(parts, axis=1)
    found = PolicyRows(
        group[:count], *values[:REPEATED], codes=codes, ends=ends[:count], inexact=inexact
    )
    if costs.instance.recomputations or not training:
        return found
    return _restricted(found, values[REPEATED] == 0)


def _restricted(rows: PolicyRows, mask: Array) -> PolicyRows:
    """Return the rows where `mask` holds."""
    where = np.flatnonzero(mask)
    lengths = np.diff(rows.ends, prepend=0)
    codes = rows.codes[: int(rows.ends[-1]) if len(rows) else 0]
    return PolicyRows(
        group=rows.group[where],
        stored=rows.stored[where],
        reloaded=rows.reloaded[where],
        kept=rows.kept[where],
        again=rows.again[where],
        first_peak=rows.first_peak[where],
        last_peak=rows.last_peak[where],
        codes=codes[np.repeat(mask, lengths)],
        ends=np.cumsum(lengths[where]),
        inexact=rows.inexact,
    )
