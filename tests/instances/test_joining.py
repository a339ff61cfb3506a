"""Sets joined two by two against connected parts found by walking."""

from __future__ import annotations

import random

import pytest

from stagepack.instances.joining import Joined


@pytest.mark.parametrize("seed", range(20))
def test_sets_are_what_hangs_together(seed: int) -> None:
    rng = random.Random(seed)
    items = list(range(30))
    pairs = [(rng.choice(items), rng.choice(items)) for _ in range(rng.randrange(40))]
    joined = Joined[int]()
    near = {item: {item} for item in items}
    for one, other in pairs:
        joined.join(one, other)
        near[one].add(other)
        near[other].add(one)
    met: set[int] = set()
    expected = []
    for item in items:
        waiting, part = [item], set[int]()
        while waiting:
            at = waiting.pop()
            if at not in part:
                part.add(at)
                waiting += near[at]
        if item not in met:
            expected.append(sorted(part))
        met |= part
    assert joined.sets(items) == expected
    assert all(joined.root(one) == joined.root(other) for one, other in pairs)
