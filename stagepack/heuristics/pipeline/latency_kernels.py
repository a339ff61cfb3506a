"""Compiled kernel of latency: the cheapest tails of the chain, by state of the devices.

Cost: O(n) for a transition of the devices, with tables O(n**2).  Source: own work; the row of ends
is the usual minimum of a sliding window.
"""

from __future__ import annotations

from stagepack.heuristics.pipeline.kernels import UNLIMITED, Chain
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import tiered


def _steps(_first: int, most: int, chain: Chain, _least: Array, queue: Array) -> int:
    each: int = len(queue) ** (2 if chain.tabular else 1)
    return min(most + each, len(chain.source) * each)


@tiered(_steps)
def extend(first: int, most: int, chain: Chain, least: Array, queue: Array) -> int:
    """Lengthen tails by the transitions from `first` on; return with which to go on.

    The stage [a, b) adds work[b] - work[a] + recv[a] + send[b]: what depends on b is queued, the
    cheapest first, while a moves to the head of the chain and with it the furthest end.  O(n) for
    a transition; with tables all pairs are tried, O(n**2).

    Parameters
    ----------
    first : int64
        Transitions before are done.
    most : int64
        Steps after which to return, when the transition under way is done.
    chain : Chain
    least : ndarray of int64, shape (states, n + 1)
        The cheapest tail of each state that begins at each cut, `UNLIMITED` where there is none;
        that of state 0 is given, others are written when their first transition comes.
    queue : ndarray of int64, shape (n + 1,)
        Scratch: ends, each queued once.
    """
    n, steps, t = least.shape[1] - 1, 0, first
    while t < len(chain.source) and steps < most:
        before, after = least[chain.source[t]], least[chain.target[t]]
        if t == chain.arrivals[chain.target[t]]:
            after[:] = UNLIMITED
        c, window = chain.device_class[t], chain.window[t]
        recv, send = chain.recv[c], chain.send[c]
        if chain.tabular:
            for a in range(n):
                if chain.allowed[a]:
                    for b in range(a + 1, n + 1):
                        if before[b] < UNLIMITED and chain.fits[window, a, b]:
                            cost = before[b] + chain.compute[c, a, b] + recv[a] + send[b]
                            after[a] = min(after[a], cost)
            steps += n * n
        else:
            work, reach = chain.prefix[c], chain.reach[window]
            head, tail = 0, 0
            for a in range(n - 1, -1, -1):
                b = a + 1
                if before[b] < UNLIMITED:
                    cost = before[b] + work[b] + send[b]
                    while tail > head:
                        last = queue[tail - 1]
                        if before[last] + work[last] + send[last] < cost:
                            break
                        tail -= 1
                    queue[tail] = b
                    tail += 1
                while head < tail and queue[head] > reach[a]:
                    head += 1
                if head < tail and chain.allowed[a]:
                    b = queue[head]
                    cost = before[b] + work[b] + send[b] - work[a] + recv[a]
                    after[a] = min(after[a], cost)
            steps += n
        t += 1
    return t
