"""Compiled list scheduling of pipeline operations, with lookahead in memory and in time.

The device that can decide first starts its best operation after which everything can be finished.
Cost: O(log d + stages of a device) an operation, unless memory is unusual.  Source: see
:mod:`.greedy`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step, tiered

F, B, W = range(3)

LEVEL = 3
"""Steps of a level of the tree that finds who decides next."""


class Shop(NamedTuple):
    """Stages and devices; int64 arrays."""

    # (p,): of each stage: its device, its first operation, its microbatches.
    device: Array
    base: Array
    microbatches: Array
    # (p, 3): cycles and change of memory by F, B, W; a kind that is missing takes no cycles.
    duration: Array
    delta: Array
    # (p + 1,), (edges,), (edges,): producers of stage s are entries in_first[s] .. in_first[s + 1]
    # - 1.
    in_first: Array
    in_stage: Array
    in_lag: Array
    # Consumers, likewise.
    out_first: Array
    out_stage: Array
    out_lag: Array
    # (d + 1,), (p,): stages of each device, producers before consumers.
    own_first: Array
    own_stage: Array
    # (p,): the same stages, those of one chain together; where, in `part_stage`, the chain of each
    # entry ends.
    part_stage: Array
    part_end: Array
    limit: Array  # (d,): FAR: no limit
    plain: Array  # (d,): 1: one stage, whose F alone takes memory: any F that fits is safe
    kinds: int  # kinds of operations, 1 to 3


class Plan(NamedTuple):
    """A list schedule under way; int64 arrays."""

    # (n,): what each device runs: order[ptr[d] : ptr[d + 1]], and the end of each operation.  There
    # is a place for each: `done` counts what is placed, and stops at the microbatches.
    order: Array
    end: Array
    done: Array  # (p, 3): operations that have been placed, by stage and kind
    # (p, 3): of the next F and B of each stage: on how many of its edges what it waits for has been
    # placed, and when the last of these results is there.
    met: Array
    latest: Array
    # (d,): of each device: where its next operation goes in `order`, memory, and when it is free.
    place: Array
    held: Array
    free: Array
    # (l,), (2 l,): when each device can decide again, l a power of two, FAR beyond the devices; a
    # tree whose nodes 2 v and 2 v + 1 lie below v, and that has in each node the device of the
    # least turn below it, of equal ones the first.
    turn: Array
    first: Array
    work: Array  # (1,): steps of all loops so far


class Policy(NamedTuple):
    """What a list schedule prefers; int64 arrays."""

    cap: Array  # (p,): F's of a stage that may be ahead of its B's
    debt: Array  # (p,): B's of a stage that may be ahead of its W's before W comes first
    rank: Array  # (p, 3): of the operations that could start, the one of highest rank does
    # (p, 3): cycles for which the device rather stays idle than start this operation, when another
    # of higher rank would be held up by it.
    wait: Array
    strict: Array  # (d,): 1: where an F lacks only memory, W comes before all


@step
def _ready(shop: Shop, plan: Plan, s: int, k: int) -> int:
    """Return when the next operation k of stage s could start; FAR: not known."""
    i = plan.done[s, k]
    ready = 0
    if k > F:  # B waits for F of its stage, and W for B
        if plan.done[s, k - 1] <= i:
            return FAR
        ready = plan.end[shop.base[s] + (k - 1) * shop.microbatches[s] + i]
    if k == W:
        return ready
    # `met` counts arrivals since the last operation of the kind: no edge is looked at here.
    edges = shop.in_first if k == F else shop.out_first
    if plan.met[s, k] < edges[s + 1] - edges[s]:
        return FAR
    latest: int = plan.latest[s, k]
    return max(ready, latest)


@step
def _look_back(
    shop: Shop, plan: Plan, s: int, k: int, first: Array, stage: Array, lag: Array
) -> None:
    """Set what the next operation k of stage s has met on its edges, first to lag."""
    i = plan.done[s, k]
    plan.met[s, k] = plan.latest[s, k] = 0
    plan.work[0] += first[s + 1] - first[s]
    for edge in range(first[s], first[s + 1]):
        a = stage[edge]
        if plan.done[a, k] > i:  # others will tell, see `_tell`
            plan.met[s, k] += 1
            arrives = plan.end[shop.base[a] + k * shop.microbatches[a] + i] + lag[edge]
            plan.latest[s, k] = max(plan.latest[s, k], arrives)


@step
def _tell(
    shop: Shop, plan: Plan, v: int, s: int, k: int, now: int, ways: tuple[Array, ...]
) -> None:
    """Let operation v, k of stage s, be met on its edges; who lacks no other may think again.

    `ways` are its edges to them, and how many each of them waits on.
    """
    first, stage, lag, waits = ways
    i = plan.done[s, k] - 1
    plan.work[0] += first[s + 1] - first[s]
    for edge in range(first[s], first[s + 1]):
        b = stage[edge]
        # It still waits for an earlier one; `_look_back` will find this one.
        if plan.done[b, k] < i:
            continue
        plan.met[b, k] += 1
        plan.latest[b, k] = max(plan.latest[b, k], plan.end[v] + lag[edge])
        # Only the last arrival wakes: with edges between all stages each would wake all devices.
        if plan.met[b, k] == waits[b + 1] - waits[b]:
            other = shop.device[b]
            _set(plan, other, max(plan.free[other], now))


@step
def _safe(shop: Shop, d: int, s: int, k: int, done: Array, held: int, work: Array) -> bool:
    """Whether, after the next operation k of stage s, memory suffices to finish everything.

    The banker's test: the microbatches can be finished one after another, the oldest first, each
    in the order F.., B W, B W, .. of the stages of the device.  As all devices keep to the same
    order of microbatches, none waits for ever.  What takes nothing only leaves more to the others.
    """
    room = shop.limit[d] - held
    if shop.delta[s, k] > room:
        return False
    if shop.plain[d] == 1 or shop.delta[s, k] <= 0:
        return True
    own = shop.own_stage[shop.own_first[d] : shop.own_first[d + 1]]
    # As if it had run; undone at the end.
    done[s, k] += 1
    room -= shop.delta[s, k]
    # Microbatches that have begun and are not done, and one more.
    low, high = FAR, 0
    for a in own:
        low = min(low, done[a, shop.kinds - 1])
        high = max(high, done[a, F])
    fine = True
    for i in range(low, high + 1):
        begin = shop.own_first[d]
        while fine and begin < shop.own_first[d + 1]:
            end = shop.part_end[begin]
            work[0] += 1 + (end - begin) // 2  # measured: half a step each
            if i < shop.microbatches[shop.part_stage[begin]]:
                # All F's of the chain that are missing, then all that gives back, the last first.
                for at in range(begin, end):
                    a = shop.part_stage[at]
                    if done[a, F] <= i:
                        room -= shop.delta[a, F]
                        fine = fine and room >= 0
                for at in range(end - 1, begin - 1, -1):
                    a = shop.part_stage[at]
                    for kind in range(1, shop.kinds):
                        if done[a, kind] <= i:
                            room -= shop.delta[a, kind]
                            fine = fine and room >= 0
            begin = end
        if not fine:
            break
    done[s, k] -= 1
    return fine


@step
def _choose(shop: Shop, policy: Policy, plan: Plan, d: int, now: int) -> tuple[int, int, int]:
    """Return (stage, kind, now) of what device d starts now, or (-1, 0, when to ask again)."""
    held, done, work = plan.held[d], plan.done, plan.work
    best_s, best_k, best_rank = -1, 0, -FAR
    again, full = FAR, False
    work[0] += 50 + 2 * shop.kinds * (shop.own_first[d + 1] - shop.own_first[d])
    for turn in range(2):  # what may start now; then what it would hold up
        hold = FAR
        for at in range(shop.own_first[d], shop.own_first[d + 1]):
            s = shop.own_stage[at]
            for k in range(shop.kinds - 1, -1, -1):  # of equal ranks W's come first
                i = done[s, k]
                if i == shop.microbatches[s]:
                    continue
                if k == F and shop.kinds > 1 and i - done[s, B] >= policy.cap[s]:
                    continue
                ready = _ready(shop, plan, s, k)
                if ready == FAR:
                    continue
                rank = policy.rank[s, k]
                # A debt of W's that is too large comes before everything.
                if k == W and (full or done[s, B] - i > policy.debt[s]):
                    rank += 1 << 30
                if turn == 1:
                    # Something better would have to wait for what would start now.
                    better = ready > now and rank > best_rank and ready < hold
                    if better and _safe(shop, d, s, k, done, held, work):
                        hold = ready
                elif ready > now:
                    again = min(again, ready)
                # Whether it is safe takes longest: asked only of what would be chosen.
                elif rank > best_rank or (k == F and policy.strict[d] == 1):
                    if _safe(shop, d, s, k, done, held, work):
                        if rank > best_rank:
                            best_s, best_k, best_rank = s, k, rank
                    elif k == F and policy.strict[d] == 1:
                        full = True
        if turn == 0:
            if full:  # W is worth more than it looked
                for at in range(shop.own_first[d], shop.own_first[d + 1]):
                    s = shop.own_stage[at]
                    for k in range(W, shop.kinds):
                        i = done[s, k]
                        waiting = i < done[s, B] and best_k != W
                        if waiting and _ready(shop, plan, s, k) <= now:
                            best_s, best_k = s, k
                            best_rank = policy.rank[s, k] + (1 << 30)
            if best_s < 0:  # nothing can start: asked again when something is there
                return -1, 0, again
        elif hold < FAR:
            busy = now + shop.duration[best_s, best_k]
            if busy > hold and hold - now <= policy.wait[best_s, best_k]:
                return -1, 0, hold
    return best_s, best_k, now


@step
def _set(plan: Plan, d: int, value: int) -> None:
    """Let device d decide again at `value`."""
    turn, first = plan.turn, plan.first
    turn[d] = value
    node = (len(turn) + d) >> 1
    while node > 0:
        # Of equal turns the left: the device of least number.
        left, right = first[2 * node], first[2 * node + 1]
        first[node] = left if turn[left] <= turn[right] else right
        node >>= 1
        plan.work[0] += LEVEL


def _steps(shop: Shop, policy: Policy, plan: Plan, most: int, work: int) -> int:
    """Return about how many steps :func:`list_schedule` takes."""
    del policy, plan
    each = 60 + 2 * shop.kinds * len(shop.own_stage) // len(shop.limit)
    return min(work, most * each)


@tiered(_steps)
def list_schedule(shop: Shop, policy: Policy, plan: Plan, most: int, work: int) -> int:
    """Place more operations, and return how many; -1 when none can start anything.

    The device that can decide first does; it starts the operation of highest rank.  O(log d +
    stages of a device) an operation, O(log d) for each of its edges, and what :func:`_safe` takes
    where a device has several stages or an unusual memory.  The plan goes on from call to call,
    which ends after `most` operations or `work` steps.
    """
    turn, first, until = plan.turn, plan.first, plan.work[0] + work
    for placed in range(most):
        while True:
            if plan.work[0] > until:
                return placed
            d = first[1]
            now = turn[d]
            if now == FAR:  # every device waits for another one
                return -1
            s, k, again = _choose(shop, policy, plan, d, now)
            if s >= 0:
                break
            _set(plan, d, again)
        v = shop.base[s] + k * shop.microbatches[s] + plan.done[s, k]
        plan.end[v] = now + shop.duration[s, k]
        plan.order[plan.place[d]] = v
        plan.place[d] += 1
        plan.done[s, k] += 1
        plan.held[d] += shop.delta[s, k]
        plan.free[d] = plan.end[v]  # a device that is woken before is busy until then
        _set(plan, d, plan.end[v])
        # F's are met along the edges, B's against them; W's by nobody.
        if k == F:
            _look_back(shop, plan, s, k, shop.in_first, shop.in_stage, shop.in_lag)
            forth = (shop.out_first, shop.out_stage, shop.out_lag, shop.in_first)
            _tell(shop, plan, v, s, k, now, forth)
        elif k == B:
            _look_back(shop, plan, s, k, shop.out_first, shop.out_stage, shop.out_lag)
            back = (shop.in_first, shop.in_stage, shop.in_lag, shop.out_first)
            _tell(shop, plan, v, s, k, now, back)
    return most
