"""The linear order and the program over ideals against trying everything."""

from __future__ import annotations

import contextlib
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagepack as sp
from stagepack.heuristics import effort
from stagepack.heuristics.graph import dp
from stagepack.heuristics.graph.bounds import objective_bound
from stagepack.heuristics.graph.ideals import nearly_chain
from stagepack.heuristics.graph.linear import Hunt, Line
from stagepack.heuristics.graph.reduction import hosts
from stagepack.heuristics.graph.stage_kernels import FAR
from stagepack.heuristics.graph.staging import Found, Staging
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.heuristics.graph.ways import Automaton
from stagepack.instances.graph import Compact, GraphPartition, Objective
from stagepack.instances.profile import Array
from stagepack.methods.graph import METHODS
from stagepack.progress import Stopped
from stagepack.solve import solve
from tests.random_graphs import OBJECTIVES, brute_force, random_instance

UNSUPPORTED = {method.name: method.unsupported for method in METHODS}


def go_on() -> None:
    """Let searches run as long as they take."""


def drawn(seed: int, **options: Any) -> GraphPartition:
    rng = np.random.default_rng(seed)
    return random_instance(rng, int(rng.integers(1, 7)), **options)


def homeless(compact: Compact) -> bool:
    """Whether some block may run nowhere."""
    return bool((compact.time >= 2**60).any(axis=0).all(axis=0).any())


def along_orders(compact: Compact) -> tuple[Staging, list[Found]]:
    found: list[Found] = []
    staging = Staging.of(compact)
    Hunt(staging, go_on, found.append, seed=0).search(orders=6, patience=6, seconds=math.inf)
    return staging, found


class Proof:
    """What :func:`dp.solve` finds, with every answer checked."""

    def __init__(
        self, instance: GraphPartition, known: int = FAR, ideals: dict[str, int] | None = None
    ) -> None:
        self.instance, self.compact = instance, Compact.of(instance)
        self.values: list[float] = []
        self.bounds: list[int] = []
        self.feasible = dp.solve(
            self.compact,
            known,
            go_on,
            self._take,
            self.bounds.append,
            tuning=TUNING.changed({"ideals": ideals or {}}),
        )

    def _take(self, staging: Staging, found: Found) -> bool:
        solution = staging.solution(found)
        violations = self.instance.check(solution)
        if violations and staging.light:
            return False
        assert violations == ()
        self.values.append(float(self.instance.evaluate(solution)))
        assert self.values[-1] == pytest.approx(float(self.compact.value(found.whole)))
        return True


@given(seed=st.integers(0, 2**31), objective=st.sampled_from(list(OBJECTIVES)))
@settings(max_examples=120, deadline=None)
def test_agrees_with_trying_everything(seed: int, objective: Objective) -> None:
    instance = drawn(seed, objective=objective)
    compact, best = Compact.of(instance), brute_force(instance)
    if not instance.uniform or homeless(compact):
        return
    staging, found = along_orders(compact)
    values = []
    for partition in found:
        solution = staging.solution(partition)
        assert instance.check(solution) == ()
        values.append(float(instance.evaluate(solution)))
        assert values[-1] == pytest.approx(float(compact.value(partition.whole)))
    assert best is not None or not values
    if best is not None:
        least = float(best[0])
        assert all(value >= least - 1e-9 * abs(least) for value in values)
        assert float(compact.bound(objective_bound(staging))) <= least * (1 + 1e-9)
    if UNSUPPORTED["dp"](instance):
        return
    for known in {FAR, found[-1].whole if found else FAR}:
        proof = Proof(instance, known)
        assert proof.feasible is (best is not None)
        if best is not None:
            least = float(best[0])
            known_value = math.inf if known == FAR else float(compact.value(known))
            assert min([known_value, *proof.values]) == pytest.approx(least)
            assert all(float(compact.bound(b)) <= least * (1 + 1e-9) for b in proof.bounds)


@pytest.mark.parametrize("seed", range(20))
def test_ranks_that_fall_along_the_graph_give_an_order_all_the_same(seed: int) -> None:
    instance = drawn(seed, accelerators=3, cpus=0, capacity=None, bandwidth=1)
    compact = Compact.of(instance)
    staging, found = Staging.of(compact), list[Found]()
    rank = np.random.default_rng(seed).integers(0, 4, compact.blocks)
    Hunt(staging, go_on, found.append, seed=0).along(rank)
    for partition in found:
        assert instance.check(staging.solution(partition)) == ()


def test_long_orders_are_cut_somewhere_before_they_are_cut_anywhere() -> None:
    """Within 90 looks at the clock, where tensors weigh so much that the best cuts take 1,200."""
    n = 20_000
    chain = GraphPartition.from_edges(
        n, zip(range(n - 1), range(1, n), strict=True), time=np.ones(n, int), accelerators=8,
        traffic=[2_000 + at * at % 997 for at in range(n)],
    )  # fmt: skip
    compact = Compact.of(chain)
    found, looks = list[Found](), list[int]()

    def pause() -> None:
        looks.append(len(found))
        if len(looks) == 90:
            raise Stopped

    with contextlib.suppress(Stopped):
        Hunt(Staging.of(compact), pause, found.append, seed=0).along(np.zeros(compact.blocks, int))
    assert found


def bipartite(side: int) -> GraphPartition:
    """Nodes that all of as many others read, a tensor an edge."""
    u, v = np.divmod(np.arange(side * side), side)
    return GraphPartition.from_arrays(
        np.ones(2 * side, int),
        producer=u,
        consumers=side + v,
        consumer_ptr=np.arange(side * side + 1),
        traffic=np.ones(side * side, int),
        accelerators=2,
    )


def test_orders_are_counted_by_what_is_looked_at_and_ask_on_the_way() -> None:
    """Every block that may be next has as many nets as there are blocks on the other side."""
    side, orders, found = 20, list[list[int]](), list[Found]()
    asked: list[None] = []
    for chunk in (TUNING.orders.chunk, 50):
        tuning = TUNING.changed({"orders": {"chunk": chunk}})
        staging = Staging.of(Compact.of(bipartite(side)), tuning=tuning)
        hunt, before = Hunt(staging, lambda: asked.append(None), found.append, 0), len(asked)
        with effort.counting():
            order = hunt._order(np.zeros(staging.n, np.int32), TUNING.orders.narrow)
            assert effort.spent() > TUNING.orders.arranging_price * side**3 / 2
        orders.append(order.tolist())
    assert orders[0] == orders[1]
    assert len(asked) - before > side


def test_stages_that_are_priced_are_counted_beside_those_that_are_looked_at() -> None:
    """Prices of many ways to use devices took longer than all else, and were counted least."""
    counted = []
    for devices in (1, 60):
        chain = chain_of(61).replace(accelerators=devices)
        line = Line(Staging.of(Compact.of(chain)), go_on)
        with effort.counting():
            line.cut(np.arange(61, dtype=np.int32), FAR)
            counted.append(effort.spent() / TUNING.orders.step_price)
    segments = 61 * 62 // 2  # of which most are too long for what is known
    assert counted[1] - counted[0] > segments * 60


def test_blocks_that_leave_a_segment_are_counted_as_those_that_join_it() -> None:
    """On a complete bipartite graph a limit of 1 s of work took 2.4 s."""
    side = 40
    edges = [(u, side + v) for u in range(side) for v in range(side)]
    graph = GraphPartition.from_edges(
        2 * side, edges, time=[1] * 2 * side, traffic=[1] * 2 * side, accelerators=2
    )
    line = Line(Staging.of(Compact.of(graph)), go_on)
    with effort.counting():
        line.cut(np.arange(2 * side, dtype=np.int32), FAR)
        steps = effort.spent() / TUNING.orders.step_price
    ends = side * (side + 1)  # of nets: each joins and leaves, as loads add up and again in a cut
    assert steps > 4 * ends


def test_coarse_cuts_take_no_room_where_stages_may_not_begin() -> None:
    staging = Staging.of(Compact.of(chain_of(1_001)))
    line = Line(staging, go_on)
    for grain, rows in ((100, 12), (1, 1_002), (1_001, 2)):
        found = line.cut(np.arange(staging.n, dtype=np.int32), FAR, grain=grain)
        assert found is not None
        assert len(line.table.value) == rows
        assert (np.flatnonzero(np.diff(found.stage_of)) % grain == grain - 1).all()


def test_what_ideals_are_listed_of_is_counted_and_asks_while_it_is_made() -> None:
    asked: list[float] = []

    def pause() -> None:
        asked.append(effort.spent())
        if len(asked) == 5:
            raise Stopped

    with effort.counting(), pytest.raises(Stopped):
        dp.solve(Compact.of(chain_of(50)), FAR, pause, lambda *_: True, asked.append)
    assert asked[0] == asked[-1] > 0  # nothing was listed yet


def chain_of(n: int) -> GraphPartition:
    """Return nodes in a row, all alike but for their times."""
    edges = [(v, v + 1) for v in range(n - 1)]
    return GraphPartition.from_edges(
        n, edges, time=[1 + v % 7 for v in range(n)], traffic=[1] * n, accelerators=4
    )


@given(seed=st.integers(0, 2**31), objective=st.sampled_from(list(OBJECTIVES)))
@settings(max_examples=60, deadline=None)
def test_idle_blocks_that_follow_others_leave_the_optimum(seed: int, objective: Objective) -> None:
    """Most nodes take no time and no bytes here."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 7))
    busy = rng.random(nodes) < 0.4
    options: dict[str, Any] = {
        "objective": objective,
        "time": rng.integers(1, 9, nodes) * busy,
        "memory": rng.integers(0, 9, nodes) * (busy | (rng.random() < 0.5)),
        "cpus": 0,
        "contiguous": True,
        "bandwidth": 1,
        "empty_devices": True,
    }
    if objective is Objective.REPLICATED:
        options["parameters"] = rng.integers(0, 9, nodes) * busy
    instance = random_instance(rng, nodes, **options)
    best, proof = brute_force(instance), Proof(instance)
    assert proof.feasible is (best is not None)
    if best is not None:
        assert min(proof.values) == pytest.approx(float(best[0]))


def test_an_idle_block_follows_its_only_neighbour() -> None:
    """0 -> 1 -> 2 -> 3: block 2 takes no time, and 3 neither once 2 is gone."""
    instance = GraphPartition.from_edges(
        4, [(0, 1), (1, 2), (2, 3)], time=[2, 3, 0, 0], traffic=[1, 0, 5, 0], accelerators=2
    )
    assert hosts(Compact.of(instance)).tolist() == [0, 1, 1, 1]
    everywhere = instance.replace(empty_devices=False)
    assert hosts(Compact.of(everywhere)).tolist() == [0, 1, 2, 3]


def test_what_a_sender_sends_to_several_keeps_it_where_directions_count_apart() -> None:
    """Block 0 sends to 1 and 2: with block 1 it would let that one's device send."""
    edges = [(0, 1), (0, 2), (1, 2)]
    instance = GraphPartition.from_edges(
        3, edges, time=[0, 2, 3], traffic=[4, 0, 0], accelerators=2
    )
    assert hosts(Compact.of(instance)).tolist() == [0, 1, 2]
    assert Proof(instance).values[-1] == 5
    apart = instance.replace(objective="overlap")
    assert hosts(Compact.of(apart)).tolist() == [0, 1, 2]


def test_devices_in_a_fixed_order_are_passed_by() -> None:
    """Fast, slow, fast: the second fast one may follow the first at once."""
    instance = GraphPartition.from_edges(
        2, [(0, 1)], time=[4, 4], accelerators=3, speeds=[2, 1, 2], device_order="fixed"
    )
    automaton = Automaton.of(Compact.of(instance), Compact.of(instance).sequence)
    assert automaton.used.tolist() == [[0, 0], [1, 0], [1, 1], [2, 1]]
    assert Proof(instance).values[-1] == 2


def test_lattice_of_a_wide_graph_gives_up() -> None:
    from stagepack.heuristics.graph import ideals

    wide = GraphPartition.from_edges(18, [], time=[1] * 18, accelerators=3)
    with pytest.raises(ideals.TooManyError, match="too much memory"):
        Proof(wide, ideals={"most_bytes": 2**20})


def test_lattice_that_gets_no_memory_leaves_the_answer_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stagepack.heuristics.graph import ideals

    def starve(*_: object) -> Array:
        raise MemoryError

    monkeypatch.setattr(ideals.Lattice, "_extended", starve)
    wide = GraphPartition.from_edges(18, [], time=[1] * 18, accelerators=3)
    few = {"first_room": 2**10}
    with pytest.raises(ideals.TooManyError, match="more memory than there is"):
        Proof(wide, ideals=few)
    result = sp.solve(wide, "auto", time_limit=1, options={"tuning": {"ideals": few}})
    assert result.objective == 6


def test_lattice_asks_for_no_more_room_than_it_may_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    from stagepack.heuristics.graph import ideals
    from stagepack.heuristics.graph.ideals_kernels import Ideals

    larger, room = ideals.Lattice._larger, []

    def grown(self: ideals.Lattice, before: Ideals) -> Ideals:
        after = larger(self, before)
        room.append(sum(array.nbytes for array in after))
        return after

    monkeypatch.setattr(ideals.Lattice, "_larger", grown)
    wide = GraphPartition.from_edges(18, [], time=[1] * 18, accelerators=3)
    with pytest.raises(ideals.TooManyError, match="too much memory"):
        Proof(wide, ideals={"most_bytes": 2**20, "first_room": 2**10})
    assert 2**18 < max(room) < 2.1 * 2**20


def test_lattice_that_is_large_is_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thirds of the time went into copies of a gigabyte, hardly counted as work."""
    from stagepack.heuristics.graph import ideals

    copied, extended = list[int](), ideals.Lattice._extended

    def grown(self: ideals.Lattice, array: Array, most: int) -> Array:
        copied.append(array.shape[-1])
        return extended(self, array, most)

    monkeypatch.setattr(ideals.Lattice, "_extended", grown)
    wide = Compact.of(GraphPartition.from_edges(14, [], time=[1] * 14, accelerators=2))
    tuning = TUNING.changed({"ideals": {"first_room": 2**6}})
    assert ideals.Lattice(Staging.of(wide, tuning=tuning), go_on).count == 2**14
    assert 2**10 <= max(copied) <= 2**13


def test_where_blocks_lead_takes_no_memory_before_all_ideals_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory that is new takes most of the time, and where there are too many it is in vain."""
    from stagepack.heuristics.graph import ideals

    written = list[bool]()

    def look(lattice: ideals.Lattice) -> None:
        written.append(bool((lattice._ideals.target != -1).any()))
        lattice._ideals.target[:] = -1
        if len(written) == 3:
            raise Stopped

    monkeypatch.setattr(ideals.Lattice, "_require_memory", look)
    apart = GraphPartition.from_edges(12, [], time=range(1, 13), accelerators=2)
    tuning = TUNING.changed({"ideals": {"chunk": 1_000}})
    with pytest.raises(Stopped):
        ideals.Lattice(Staging.of(Compact.of(apart), tuning=tuning), go_on)
    assert not any(written[1:])


@pytest.mark.parametrize("width", [3, 9])
def test_ideals_of_antichains_and_chains(width: int) -> None:
    """2^width ideals without edges, width + 1 along a chain."""
    from stagepack.heuristics.graph.ideals import Lattice

    times = list(range(1, width + 1))
    chain = [(u, u + 1) for u in range(width - 1)]
    for edges, count in (([], 2**width), (chain, width + 1)):
        instance = GraphPartition.from_edges(width, edges, time=times, accelerators=2)
        assert Lattice(Staging.of(Compact.of(instance)), go_on).count == count


def test_ideals_are_the_same_in_rooms_that_grow() -> None:
    """What grows is copied in parts, with questions whether to go on in between."""
    from stagepack.heuristics.graph import ideals

    times = [int(t) for t in np.random.default_rng(0).integers(1, 30, 11)]
    instance = GraphPartition.from_edges(11, [(0, 1), (2, 3)], time=times, accelerators=3)
    whole, asked = Proof(instance).values[-1], list[int]()
    for part in (TUNING.ideals.part, 16):
        changes = {"first_room": 2, "part": part}
        tuning, pause = TUNING.changed({"ideals": changes}), mock.Mock()
        staging = Staging.of(Compact.of(instance), tuning=tuning)
        assert ideals.Lattice(staging, pause).count == 2**7 * 9
        asked.append(pause.call_count)
        assert Proof(instance, ideals=changes).values[-1] == whole
    assert asked[1] > 3 * asked[0]


def test_anchored_cuts_of_a_star_are_looked_at_as_long_as_that_is_quick() -> None:
    """Node 0 writes a tensor that all others read, and one for each of them."""
    edges = [(0, v) for v in range(1, 9)]
    instance = GraphPartition.from_arrays(
        [1] * 9,
        producer=[0] * 9,
        consumers=[[v for _, v in edges], *([v] for _, v in edges)],
        traffic=[3, *[1] * 8],
        accelerators=8,
    )
    compact, known = Compact.of(instance), []
    for most in (1, 4, 12, 400):
        tuning = TUNING.changed({"cut_members": most})
        known.append(objective_bound(Staging.of(compact, tuning=tuning)))
    assert known == sorted(known)
    assert known[0] < known[-1] == 9


def test_coarse_cuts_lie_at_multiples() -> None:
    edges = [(u, u + 1) for u in range(10)]
    times = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    compact = Compact.of(GraphPartition.from_edges(11, edges, time=times, accelerators=3))
    line, order = Line(Staging.of(compact), go_on), np.arange(11, dtype=np.int32)
    fine, coarse = line.cut(order, FAR), line.cut(order, FAR, grain=4)
    assert fine is not None
    assert coarse is not None
    assert fine.value == 17
    assert coarse.value == 19
    assert np.flatnonzero(np.diff(coarse.stage_of)).tolist() == [3, 7]


def test_shares_of_unlike_devices_are_rounded_in_favour_of_partitions() -> None:
    model = GraphPartition.from_edges(
        4, [(2, 3)], time=[5, 13, 16, 8], accelerators=2, speeds=[1.5, 2.0]
    )
    assert solve(model).objective == 12


@pytest.mark.parametrize(
    ("edges", "contiguous", "nearly"),
    [
        ([(k, k + 1) for k in range(9)], True, True),
        ([(k, k + 1) for k in range(9)], False, False),  # nobody waits for others
        ([(0, k) for k in range(1, 9)] + [(k, 9) for k in range(1, 9)], True, False),  # 2^8 + 2
        ([(0, k) for k in range(1, 5)] + [(k, 5) for k in range(1, 5)], True, True),  # 2^4 + 2
    ],
)
def test_what_is_nearly_a_chain(
    edges: list[tuple[int, int]], contiguous: bool, nearly: bool
) -> None:
    nodes = 1 + max(map(max, edges))
    instance = GraphPartition.from_edges(
        nodes,
        edges,
        time=[3] * nodes,
        traffic=[1] * nodes,
        accelerators=2,
        bandwidth=1,
        contiguous=contiguous,
    )
    assert nearly_chain(Compact.of(instance)) == nearly
