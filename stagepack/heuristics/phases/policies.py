"""The non-dominated policies of every group for one microbatch size and any number of I/O tiles.

In a chain whose layers are recomputed at most once, labels along the layers of a group
(:mod:`.policies_kernels`) find each set of policies that is not dominated in time, kept bytes and
memory.  With skip connections the same labels ignore some of the live bytes.  They then yield
bounds, and candidates that are evaluated exactly; small groups are enumerated.  If layers may be
recomputed more than once, a relaxation gives bounds: dropped layers cost their forward cycles once
and only their own memory.

Cost: labels run through O(n * longest group) layers, so many of them through each at most; a
row is evaluated in O(layers and readers).  Source: own work; label setting as for shortest paths
with resources.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.phases import liveness_kernels, policies_kernels
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.policies_kernels import Visit
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.tuning import TUNING, PhasesTuning
from stagepack.instances.phases.data import Policy
from stagepack.instances.profile import Array

CODES = {
    Policy.STASH: liveness_kernels.STASH,
    Policy.KEEP: liveness_kernels.KEEP,
    Policy.RECOMPUTE: liveness_kernels.RECOMPUTE,
}
NAMES = {code: str(policy) for policy, code in CODES.items()}
NAMES[liveness_kernels.RETAIN] = str(Policy.RECOMPUTE)
COLUMNS = ("stored", "reloaded", "kept", "again", "first_peak", "last_peak")
"""Of rows, in the order in which policies are examined."""
NO_TIME = "there was no time for all policies"


@dataclass(frozen=True, eq=False)
class PolicyRows:
    """Policies of groups; int64 arrays of shape (rows,), by rising group."""

    group: Array  # index into the range costs
    # Bytes stashed in a step; those of them that are loaded again.
    stored: Array
    reloaded: Array
    kept: Array  # bytes of a step kept by a group of two phases
    again: Array  # cycles of a step computed again
    # Most bytes live in the first phase and the last one, base excluded.
    first_peak: Array
    last_peak: Array
    # Policies of one row after the other, and where those of each end.
    codes: Array
    ends: Array
    inexact: str = ""  # why a better policy may be missing; '' when none is
    thinned: bool = False  # whether more labels than were followed would tell more

    def policies(self, rows: Array) -> tuple[str, ...]:
        """Return the policies of the layers of groups, one group after the other; () if unnamed."""
        ends = self.ends[rows]
        sizes = ends - np.where(rows > 0, self.ends[rows - 1], 0)
        at = np.arange(int(sizes.sum())) + np.repeat(ends - np.cumsum(sizes), sizes)
        return tuple(NAMES[code] for code in self.codes[at].tolist()) if self.named else ()

    def retained(self, row: int) -> Array:
        """Return of which layers the output is retained, though they are computed again."""
        low = int(self.ends[row - 1]) if row else 0
        return np.asarray(self.codes[low : int(self.ends[row])] == liveness_kernels.RETAIN)

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
    most: int | None = None,
    longest: int = UNLIMITED,
    keep_going: Callable[[], bool] = lambda: True,
) -> PolicyRows:
    """Return the policies worth having for every group, for one microbatch.

    With `bounding` they are at least as good as anything that is possible, but not always possible;
    with `track` the forward phase's memory matters by itself (prefetching); with `every` they are
    all policies, not the best ones (budgets that tell them apart).  `most` labels are followed at
    each layer, if not as many as usual; labels with more than `longest` cycles of a step computed
    again are dropped.  `keep_going` is asked now and then; once it says no, rows are missing, and
    the answer says so.
    """
    instance = costs.instance
    if not instance.training:
        return _uniform(costs, None, keep_going)
    usable = [p for p in instance.policies if p is not Policy.RECOMPUTE or instance.recomputations]
    dropping = Policy.RECOMPUTE in usable
    once = not dropping or (instance.chain and instance.recomputations == 1)
    often = dropping and instance.recomputations > 1
    if instance.policies == tuple(usable[:1]) and (once or not bounding):
        doubt = "" if once else "layers may be computed again in other orders"
        return _uniform(costs, usable[0], keep_going, doubt)
    if every:
        return _exactly(costs, list(instance.policies), None, once, keep_going)
    codes = np.array([CODES[policy] for policy in usable], dtype=np.int64)
    most = costs.tuning.policies.labels if most is None else most
    rule = _Rule(codes, bounding and often, track, bounding, most, longest)
    rows = _labelled(costs, rule, keep_going)
    if bounding:
        return rows
    if not instance.chain:
        return _exactly(costs, usable or list(instance.policies), rows, not dropping, keep_going)
    doubt = "layers may be computed again more than once" if often else ""
    if rows.thinned:
        doubt = doubt or "only some of the many policies were followed"
    return dataclasses.replace(rows, inexact=rows.inexact or doubt)


def uniform(costs: RangeCosts, policy: Policy, keep_going: Callable[[], bool]) -> PolicyRows:
    """Return one row a group: the same `policy` for all layers, of no meaning in inference.

    `keep_going` is asked now and then; once it says no, rows are missing, and the answer says so.
    """
    return _uniform(costs, policy if costs.instance.training else None, keep_going)


def chosen(
    costs: RangeCosts,
    rule: Callable[[int, int], Sequence[Policy]],
    keep_going: Callable[[], bool],
) -> PolicyRows:
    """Return one row a group: the policies that `rule` gives to the layers [first, end) of each.

    `keep_going` is asked now and then; once it says no, rows are missing, and the answer says so.
    """
    given: list[list[int]] = []
    often = costs.tuning.policies.groups_at_once
    for a, b in zip(costs.first.tolist(), costs.end.tolist(), strict=True):
        if len(given) % often == often - 1 and not keep_going():
            break
        given.append([CODES[policy] for policy in rule(a, b)])
    codes = np.array(list(itertools.chain.from_iterable(given)), dtype=np.int64)
    doubt = "" if len(given) == len(costs) else NO_TIME
    return _examined(costs, np.arange(len(given)), codes, doubt, keep_going)


def _uniform(
    costs: RangeCosts, policy: Policy | None, keep_going: Callable[[], bool], inexact: str = ""
) -> PolicyRows:
    """Return one row a group: the same policy for all layers."""
    code = liveness_kernels.NONE if policy is None else CODES[policy]
    codes = np.full(int((costs.end - costs.first).sum()), code, dtype=np.int64)
    return _examined(costs, np.arange(len(costs)), codes, inexact, keep_going)


class _Rule(NamedTuple):
    """What labels follow, see :func:`find_policies`."""

    codes: Array
    relaxed: bool  # layers that are computed again more than once count once
    track: bool
    merging: bool  # of more than `most` labels alike ones become one, else some are dropped
    most: int
    longest: int


def _labelled(costs: RangeCosts, rule: _Rule, keep_going: Callable[[], bool]) -> PolicyRows:
    """Return what the labels find."""
    n = costs.n
    slots = _slots(costs)
    tables = [np.empty((0, 7), np.int64)]
    groups, policies = [np.empty(0, np.int64)], [rule.codes[:0]]
    complete, thinned = True, False
    for a in range(n):
        low, high = int(costs.start[a]), int(costs.start[a + 1])
        if low == high:
            continue
        ends = set(costs.end[low:high].tolist())
        reach = max(ends)
        walk = _Walk(costs, a, rule, slots, keep_going)
        if a < n - 1 and min(ends) < n:
            complete &= walk.run(min(reach, n - 1), False, ends)
        if reach == n:
            complete &= walk.run(n, True, ends)
        tables.append(walk.rows)
        groups.append(low + np.searchsorted(costs.end[low:high], walk.rows[:, 0]))
        policies.append(walk.policies())
        thinned |= not walk.all_followed
    keep_going()
    table, group = np.concatenate(tables), np.concatenate(groups)
    keep_going()
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
        inexact="" if complete else NO_TIME,
        thinned=thinned,
    )


def _slots(costs: RangeCosts) -> tuple[Array, Array]:
    """Return how slots are in use at each layer, and the slot of each tensor, -1: none.

    Tensors that layers after the next one read get slots while these are free; see
    :mod:`.policies_kernels`.
    """
    n = costs.n
    waiting = np.zeros((n, policies_kernels.SLOTS), dtype=np.int64)
    slot = np.full(n + 1, -1, dtype=np.int64)
    for t, readers in enumerate(costs.instance.readers):
        if t == 0 or not readers[1:]:
            continue
        until = readers[-1] + 1
        # At layer t - 1, which writes the tensor, the slot is cleared and taken.
        free = np.flatnonzero(~waiting[t:until].any(axis=0))
        if len(free):
            slot[t] = free[0]
            waiting[t:until, free[0]] = [1] + [2] * (until - t - 1)
    return waiting, slot


class _Walk:
    """Labels along the layers from one on."""

    def __init__(
        self,
        costs: RangeCosts,
        first: int,
        rule: _Rule,
        slots: tuple[Array, Array],
        keep_going: Callable[[], bool],
    ) -> None:
        self.costs, self.first, self.rule, self.keep_going = costs, first, rule, keep_going
        final = [0, 1, 2, 4, 5] if rule.track else [0, 1, 2, 4]
        self.final = np.array(final, dtype=np.int64)
        self.retaining = rule.codes
        if not costs.instance.chain and not rule.relaxed and CODES[Policy.RECOMPUTE] in rule.codes:
            self.retaining = np.append(rule.codes, liveness_kernels.RETAIN)
        self.waiting, self.slot = slots
        used = policies_kernels.SLOT + np.flatnonzero(self.waiting.any(axis=0))
        self.columns = np.array([*final, 3, 6, 7, 8, 9, 10, *used], dtype=np.int64)
        self.idle = np.array([CODES[costs.instance.policies[0]]], dtype=np.int64)
        self.skipping = np.array(
            [t for t, readers in enumerate(costs.instance.readers) if readers[1:]], dtype=np.int64
        )
        self.rows = np.empty((0, 7), np.int64)
        self.all_followed = True
        self._parents: list[Array] = []
        self._choices: list[Array] = []
        self._nodes = 0

    def run(self, reach: int, together: bool, ends: set[int]) -> bool:
        """Walk to layer `reach`, before which labels end; return whether there was time for it.

        `together`: forward and backward run in one phase, which ends there.  Groups may end at
        `ends`.
        """
        costs, layers, a = self.costs, self.costs.layers, self.first
        earlier = policies_kernels.gradients_ahead(layers, a, reach, self.skipping)
        labels = np.zeros((1, policies_kernels.COLUMNS), np.int64)
        node_of = np.full(1, -1, np.int64)
        found = [self.rows]
        for layer in range(a, reach):
            if not self.keep_going():
                return False
            end = layer + 1
            base = 2 * int(costs.weight_sums[reach if together else end] - costs.weight_sums[a])
            ahead = int(earlier[layer])
            if end in ends and (end == reach or not together):
                state = int(costs.state_sums[end] - costs.state_sums[a])
                grown = self._advance(labels, layer, False, together, base, state, ahead)
                if grown is None:
                    return False
                new, came, chose = grown
                nodes = self._add(node_of[came], chose)
                found.append(
                    np.column_stack((np.full(len(new), end), new[:, [0, 1, 2, 4, 5]], nodes))
                )
            if end < reach:
                inside = bool(layers.nbytes[end])
                grown = self._advance(labels, layer, inside, together, base, None, ahead)
                if grown is None:
                    return False
                labels, came, chose = grown
                node_of = self._add(node_of[came], chose)
                if not len(labels):
                    break
        self.rows = np.concatenate(found)
        return True

    def _advance(
        self,
        labels: Array,
        layer: int,
        inside: bool,
        together: bool,
        base: int,
        state: int | None,
        earlier: int,
    ) -> tuple[Array, Array, Array] | None:
        """Take one more layer; it ends the group where there is a `state` for its epilogue.

        Beyond `most` labels the least of alike ones is put in their place where that is safe
        (for bounds), else some are dropped.  None: there was no time.
        """
        costs, layers = self.costs, self.costs.layers
        product = int(layers.tape[layer]) + (int(layers.nbytes[layer + 1]) if inside else 0)
        codes = self.retaining if together and inside else self.rule.codes
        visit = Visit(
            first=self.first,
            layer=layer,
            inside=inside,
            together=together,
            relaxed=self.rule.relaxed,
            written=int(costs.written[layer]),
            beside=policies_kernels.beside_chain(layers, self.first, layer, self.skipping),
            earlier=earlier,
            waiting=self.waiting[layer],
            slot=int(self.slot[layer + 1]),
            base=base,
            state=state or 0,
            steps=costs.steps,
            capacity=costs.largest_capacity,
            longest=self.rule.longest,
        )
        allowed = codes if product else self.idle
        new, came, chose = policies_kernels.grow(labels, allowed, layers, visit)
        prices = costs.tuning.prices
        spend(5 * prices.look_price + prices.label_price * len(new))
        columns = self.columns if state is None else self.final
        stays = best_labels(new[:, columns], self.keep_going, costs.tuning)
        if stays is None:
            return None
        most = self.rule.most
        if len(stays) > most:
            self.all_followed = False
            if self.rule.merging:
                stays = _merge(new, stays, most)
            else:
                stays = stays[np.arange(most) * (len(stays) - 1) // (most - 1)]
        return new[stays], came[stays], chose[stays]

    def _add(self, parents: Array, choices: Array) -> Array:
        """Add nodes to the tree of policies, and return their numbers."""
        self._parents.append(parents)
        self._choices.append(choices)
        self._nodes += len(parents)
        return np.arange(self._nodes - len(parents), self._nodes)

    def policies(self) -> Array:
        """Return the policies of all rows, one after the other."""
        if not len(self.rows):
            return self.rule.codes[:0]
        ends = np.cumsum(self.rows[:, 0] - self.first)  # a node for each layer of a group
        spend(self.costs.tuning.prices.examining_price * int(ends[-1]))
        nodes = np.ascontiguousarray(self.rows[:, 6])
        parents, choices = np.concatenate(self._parents), np.concatenate(self._choices)
        return np.asarray(policies_kernels.unroll(parents, choices, nodes, ends))


def best_labels(
    labels: Array, keep_going: Callable[[], bool], tuning: PhasesTuning = TUNING
) -> Array | None:
    """Return the rows of `labels` that no other one matches or beats everywhere, by rising sum.

    Of equal rows the last one stays: with skips, where labels leave out some of what is live, those
    that drop products are possible more often than those that keep them.  O(rows * found); None
    when `keep_going`, asked now and then, says no.
    """
    total = labels[::-1].sum(axis=1, dtype=np.float64)
    order = len(labels) - 1 - np.argsort(total, kind="stable")
    rows = np.ascontiguousarray(labels[order])
    front, kept = np.empty_like(rows), np.empty(len(rows), np.int64)  # perhaps all are kept
    count = low = 0
    part = tuning.policies.comparisons_at_once
    while low < len(rows):
        if low and not keep_going():
            return None
        high = min(len(rows), low + max(1, part // max(count, math.isqrt(part))))
        count = policies_kernels.unbeaten(rows, front, kept, count, low, high)
        spend(tuning.prices.comparison_price * (high - low) * max(1, count))
        low = high
    return np.asarray(order[kept[:count]])


def _merge(labels: Array, stays: Array, most: int) -> Array:
    """Return one label of each cluster of alike ones, after lowering it to the least of these."""
    cluster = clustered(labels[stays], most)
    order = np.argsort(cluster, kind="stable")
    cuts = np.flatnonzero(np.diff(cluster[order], prepend=-1))
    found = stays[order[cuts]]
    labels[found] = np.minimum.reduceat(labels[stays[order]], cuts)
    return np.asarray(found)


def clustered(labels: Array, most: int) -> Array:
    """Return a cluster below `most` for each label, such that those of one cluster are alike.

    Halves the clusters again and again, each at the median of the column that differs most in it.
    O(labels log(labels) log(most)).
    """
    count = len(labels)
    order, cuts = np.arange(count), np.zeros(1, np.int64)
    scale = np.maximum(1, labels.max(axis=0) - labels.min(axis=0)).astype(np.float64)
    while len(cuts) < most:
        ends = np.append(cuts[1:], count)
        rows = labels[order]
        spread = np.maximum.reduceat(rows, cuts) - np.minimum.reduceat(rows, cuts)
        split = np.flatnonzero(spread.any(axis=1))[: most - len(cuts)]
        if not len(split):
            break
        widest = np.argmax(spread / scale, axis=1)
        sizes = ends - cuts
        key = rows[np.arange(count), np.repeat(widest, sizes)]
        order = order[np.lexsort((key, np.repeat(np.arange(len(cuts)), sizes)))]
        cuts = np.sort(np.append(cuts, (cuts[split] + ends[split]) // 2))
    found = np.empty(count, np.int64)
    found[order] = np.repeat(np.arange(len(cuts)), np.diff(np.append(cuts, count)))
    return found


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
    gathered, tuning, prices = 0, costs.tuning.policies, costs.tuning.prices
    often = tuning.groups_at_once
    for group in range(len(costs)):
        if gathered >= tuning.layers_at_once or group % often == often - 1:
            gathered = 0
            if not keep_going():
                complete = False
                break
        m = int(costs.end[group] - costs.first[group])
        if len(names) ** m <= tuning.most_enumerated:
            tried = every(m)
        else:
            complete = False
            tried = np.repeat(names, m).reshape(-1, m)
            if candidates is not None:
                low, high = np.searchsorted(candidates.group, [group, group + 1])
                begin = int(candidates.ends[low - 1]) if low else 0
                until = int(candidates.ends[high - 1]) if high else 0
                found = candidates.codes[begin:until].reshape(-1, m)
                tried = np.unique(np.concatenate((found, tried)), axis=0)
        gathered += tried.size
        spend(prices.look_price + prices.sorting_price * tried.size)
        groups.append(np.full(len(tried), group))
        policies.append(tried.reshape(-1))
    if not groups:
        return _uniform(costs, usable[0] if usable else None, keep_going)
    keep_going()
    doubt = "" if complete else "only some policies are tried"
    whole = np.concatenate(groups)
    keep_going()
    return _examined(costs, whole, np.concatenate(policies), doubt, keep_going)


def _examined(
    costs: RangeCosts, group: Array, codes: Array, inexact: str, keep_going: Callable[[], bool]
) -> PolicyRows:
    """Return rows with their exact costs; those that drop what may not be computed again go."""
    first, end = costs.first[group], costs.end[group]
    ends = np.cumsum(end - first)
    training = costs.instance.training
    reads_from = costs.layers.reads_from
    keep_going()
    steps = np.cumsum(end - first + reads_from[end] - reads_from[first])
    keep_going()
    parts = [np.empty((7, 0), np.int64)]
    low, part_size, prices = 0, costs.tuning.policies.layers_at_once, costs.tuning.prices
    while low < len(group):
        if low and not keep_going():
            inexact = inexact or NO_TIME
            break
        before, done = (int(ends[low - 1]), int(steps[low - 1])) if low else (0, 0)
        high = max(low + 1, int(np.searchsorted(steps, done + part_size, side="right")))
        rows = slice(low, high)
        layers = int(ends[high - 1]) - before
        reads = int(steps[high - 1]) - done - layers
        seconds = prices.examining_price * layers + prices.read_price * reads
        spend(prices.look_price + seconds)
        part = np.zeros((7, high - low), dtype=np.int64)
        liveness_kernels.examine_all(
            costs.layers, first[rows], end[rows], training, codes, ends[rows], part
        )
        parts.append(part)
        low = high
    count = low
    keep_going()
    stored, reloaded, kept, again, first_peak, last_peak, repeated = np.concatenate(parts, axis=1)
    keep_going()
    columns = stored, reloaded, kept, again, first_peak, last_peak
    found = PolicyRows(group[:count], *columns, codes, ends[:count], inexact)
    if costs.instance.recomputations or not training:
        return found
    return _restricted(found, repeated == 0)


def _restricted(rows: PolicyRows, mask: Array) -> PolicyRows:
    """Return the rows where `mask` holds."""
    where = np.flatnonzero(mask)
    lengths = np.diff(rows.ends, prepend=0)
    codes = rows.codes[: int(rows.ends[-1]) if len(rows) else 0]
    return dataclasses.replace(
        rows,
        **{name: getattr(rows, name)[where] for name in ("group", *COLUMNS)},
        codes=codes[np.repeat(mask, lengths)],
        ends=np.cumsum(lengths[where]),
    )
