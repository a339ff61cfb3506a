"""Orders for labels: the same however often the search for them is interrupted, and all of work."""

from __future__ import annotations

import pytest

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier.model import Model
from stagepack.heuristics.graph.frontier.orders import narrow_order
from stagepack.heuristics.graph.frontier.plan import Network, Passes
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact
from stagepack.progress import Stopped
from tests.heuristics.graph.structured import structured

USUAL = TUNING.labels.order
SIDE = 12


def bipartite() -> Network:
    """Return the blocks of one side, all of which feed all of the other, a net an edge."""
    every = range(2 * SIDE)
    return Network(
        before=[[] if x < SIDE else [*range(SIDE)] for x in every],
        after=[[*range(SIDE, 2 * SIDE)] if x < SIDE else [] for x in every],
        members=[[u, SIDE + v] for u in range(SIDE) for v in range(SIDE)],
        cost=[1] * SIDE**2,
    )


def test_orders_do_not_depend_on_how_often_the_clock_is_asked() -> None:
    whole: list[None] = []
    parts: list[None] = []
    order = narrow_order(bipartite(), 3, lambda: whole.append(None)).tolist()
    often = USUAL.changed({"part": 50})
    with effort.counting():
        assert narrow_order(bipartite(), 3, lambda: parts.append(None), often).tolist() == order
        # Every candidate looks at all of its nets.
        assert effort.spent() > USUAL.step_price * SIDE**2 * USUAL.least_tries
    assert sorted(order) == list(range(2 * SIDE))
    assert all(x < SIDE for x in order[:SIDE])
    assert len(parts) > 2 * len(whole)


def test_pauses_change_nothing() -> None:
    for instance in structured().values():
        network, found = Model.all_of(Compact.of(instance))[0].network, []
        for part in (10**6, *range(1, 30, 3)):
            tuning = USUAL.changed({"part": part, "tries": 4, "least_tries": 4})
            found.append(narrow_order(network, 1, lambda: None, tuning).tolist())
        assert found == found[:1] * len(found)
        assert sorted(found[0]) == list(range(len(network.before)))


def test_plans_count_what_they_look_at_and_end_when_told() -> None:
    order = list(range(2 * SIDE))
    asked: list[None] = []
    with effort.counting():
        along, _ = Passes(bipartite(), order, lambda: asked.append(None)).plans(3, 1, False)
        assert effort.spent() > USUAL.entry_price * (len(along.net) + len(along.term))
    assert len(asked) > 2 * len(order)  # while edges over cuts are taken down, too

    def ended() -> None:
        asked.pop()
        if not asked:
            raise Stopped

    with pytest.raises(Stopped):
        Passes(bipartite(), order, ended)
