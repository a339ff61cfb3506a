"""Seeded random packings: a size and lifetime law, a constant load, a pipelined loop with banks."""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing.data import Banks
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.profile import Array

ALIGNMENT = 64


def powerlaw(buffers: int, seed: int) -> LmemPacking:
    """Draw starts uniformly, lifetimes and sizes over many orders of magnitude.

    Starts in [0, n); durations lognormal with a mean of 2.5 and a deviation of 2, from 1 to n / 5;
    sizes 2**U(5, 18) + 32 * U{0..300}.
    """
    rng = np.random.default_rng(seed)
    n = buffers
    start = rng.integers(0, n, n)
    duration = np.clip(rng.lognormal(2.5, 2.0, n).astype(np.int64), 1, max(1, n // 5))
    size = np.floor(2.0 ** rng.uniform(5, 18, n)).astype(np.int64) + 32 * rng.integers(0, 301, n)
    return LmemPacking.from_arrays(size, start, start + duration, name=f"powerlaw-{n}")


def constant_load(buffers: int, seed: int) -> LmemPacking:
    """Refill what ends: at each step one to three live buffers give way to as many bytes of others.

    The load is the same at all times, so that nothing may be wasted anywhere; now and then that
    cannot be and the optimum exceeds the load.
    """
    rng = np.random.default_rng(seed)
    total = int(rng.integers(12, 40))
    rows: list[tuple[int, int, int]] = []
    live = [(size, 0) for size in _composition(rng, total, total // 2, buffers)]
    now = 0
    while len(rows) + len(live) < buffers:
        now += 1
        free = 0
        for _ in range(int(rng.integers(1, min(3, len(live)) + 1))):
            size, start = live.pop(int(rng.integers(len(live))))
            rows.append((size, start, now))
            free += size
        room = buffers - len(rows) - len(live)
        live += [(size, now) for size in _composition(rng, free, total // 2, room)]
    rows += [(size, start, now + 1) for size, start in live]
    sizes, starts, ends = np.array(rows).T
    return LmemPacking.from_arrays(sizes, starts, ends, name=f"constant-load-{buffers}")


def _composition(rng: np.random.Generator, total: int, most: int, count: int) -> list[int]:
    """Return up to `count` positive numbers that add up to `total`, all but the last <= `most`."""
    parts: list[int] = []
    while total > 0:
        last = len(parts) == count - 1
        parts.append(total if last else int(rng.integers(1, min(total, most) + 1)))
        total -= parts[-1]
    return parts


def pipelined(buffers: int, seed: int, banks: int) -> LmemPacking:
    """Roll a loop of loads, products and stores: circular lifetimes, `banks`, pairs, by `seed`.

    A third of the `buffers` (rounded up) is the period.  In timestep t of it the compute unit reads
    an operand and a weight and writes a result, while DMA loads what timestep t + 1 reads and
    stores what timestep t - 1 wrote.  Pairs: the three of one product, and each of them with what
    DMA touches meanwhile.  The capacity is twice the load in whole banks, rounded up to a power of
    two.
    """
    rng = np.random.default_rng(seed)
    period = max(2, -(-buffers // 3))
    step = np.arange(buffers) % period  # whose product it belongs to
    role = np.arange(buffers) // period  # 0 operand, 1 result, 2 weight
    size = ALIGNMENT * rng.integers(1, 2 ** rng.integers(3, 8, buffers))
    # Loaded a step ahead, or stored a step behind: two timesteps; some operands stay for long.
    start = np.where(role == 1, step, (step - 1) % period)
    life = np.full(buffers, 2) + (role == 0) * rng.integers(0, period, buffers) // 2
    life = np.minimum(life, period)
    compute = [np.flatnonzero(step == t) for t in range(period)]
    pairs: list[tuple[int, int]] = []
    for t, used in enumerate(compute):
        moved = [
            *compute[(t + 1) % period][role[compute[(t + 1) % period]] != 1],
            *compute[(t - 1) % period][role[compute[(t - 1) % period]] == 1],
        ]
        pairs += [(int(i), int(j)) for i in used for j in used if i < j]
        pairs += [(int(i), int(j)) for i in used for j in moved if i != j]
    load = max(int(size[_alive(start, life, period, t)].sum()) for t in range(period))
    nbytes = ALIGNMENT
    while nbytes * banks < 2 * load:
        nbytes *= 2
    return LmemPacking.from_arrays(
        size,
        start,
        start + life,
        period=period,
        capacity=nbytes * banks,
        alignment=ALIGNMENT,
        banks=Banks(banks, nbytes, np.array(pairs, dtype=np.int64).reshape(-1, 2)),
        objective="bank-conflicts",
        name=f"pipelined-{buffers}",
    )


def _alive(start: Array, life: Array, period: int, moment: int) -> Array:
    return np.asarray((moment - start) % period < life)
