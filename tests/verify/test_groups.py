"""Proofs of layer groups: what is proved verifies, and nothing untrue does."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random
from typing import Any

import msgspec
import pytest

import stagepack as sp
from stagepack.instances.groups import GroupingSolution, LaneChip, LayerGrouping
from stagepack.instances.groups.check import cut_wrongly, shape
from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.execution.replay import Replay, played_alone
from stagepack.verify import groups, verify
from tests.instances.groups.networks import CHIP, RATED, add, conv, grouping
from tests.relations import groups as relations
from tests.verify.mutations import mutated

RULED: dict[str, Any] = {"timesteps": "nearest", "overlap_limit": 0.5}
KNOWN = """chip inputs kept max_group max_slices operators order outputs overlap_limit slicing
standalone timesteps"""
HARMLESS = "name objective source"


def _network(draw: random.Random, n: int, rows: int, **fields: Any) -> LayerGrouping:
    """Return convolutions and sums, each of which reads something before it."""
    operators, names = [], ["x"]
    for at in range(n):
        reads = draw.choice(names[-3:])
        if draw.random() < 0.4:
            reads = names[-1] if draw.random() < 0.5 else reads
            other = draw.choice(names[-3:])
            operators.append(add(f"o{at}", reads, other, channels=8, rows=rows))
        else:
            kernel = draw.choice([1, 3, 5])
            operators.append(conv(f"o{at}", reads, 8, rows, kernel=kernel))
        names.append(f"o{at}")
    return grouping(operators, rows=rows, **RULED | fields)


@functools.cache
def _cases() -> tuple[tuple[LayerGrouping, Any, Any], ...]:
    """Return small networks, what `dp` finds, and their least cycles by trying everything."""
    draw, found = random.Random(3), []
    for _ in range(24):
        memory = draw.choice([192, 256, 512, 4096])
        chip = msgspec.structs.replace(
            draw.choice([CHIP, RATED]),
            memory=memory,
            cores=draw.choice([1, 1, 2]),
            overlap=draw.choice([1.0, 1.0, 0.5]),
        )
        whole = _network(
            draw,
            draw.randint(1, 5),
            draw.choice([2, 4, 6]),
            chip=chip,
            slicing=draw.choice(["free", "n-then-h"]),
            standalone=draw.choice(["any", "needed"]),
            max_slices=draw.choice([1, 4, 6]),
            max_group=draw.choice([2, 64]),
        )
        found.append((whole, sp.solve(whole, "dp"), _least(whole)))
    return tuple(found)


def _least(whole: LayerGrouping) -> float:
    """Return the least cycles of plans whose bytes fit in every row, infinite without one."""
    reach = [0.0] + [math.inf] * whole.n
    for b in range(1, whole.n + 1):
        for a in range(max(0, b - whole.max_group), b):
            reach[b] = min(reach[b], reach[a] + _group(whole, a, b))
    return reach[-1]


def _group(whole: LayerGrouping, a: int, b: int) -> float:
    """Return the least cycles of a group over all cuts in which it fits."""
    alone = b == a + 1 and whole.stands(a)
    return min(
        played_alone(whole, a) if alone else math.inf,
        *(played.cycles for played in _plays(whole, a, b)),
        math.inf,
    )


def _plays(whole: LayerGrouping, a: int, b: int) -> list[Replay]:
    """Return a group in all cuts in which its bytes fit."""
    found = []
    sizes = [min(whole.max_slices, whole.tensors[b - 1].shape[axis]) for axis in (0, 1, 3, 4)]
    for counts in itertools.product(*(range(1, size + 1) for size in sizes)):
        rest = tuple((at, at + 1) for at in (*range(a), *range(b, whole.n)))
        cuts = sorted({0, whole.n, a, b, *itertools.chain(*rest)})
        slices = [
            counts if (cut, after) == (a, b) else () for cut, after in itertools.pairwise(cuts)
        ]
        plan = GroupingSolution(tuple(cuts), tuple(slices))
        loose = whole.replace(standalone="any")
        if math.prod(counts) > whole.max_slices or shape(loose, plan):
            continue
        played = Replay(whole, GroupingSolution((a, b), (counts,)), 0)
        if not any(cut_wrongly(played)) and _bytes(played) <= whole.chip.memory:
            found.append(played)
    return found


def _bytes(played: Replay) -> int:
    """Return the most bytes that are alive in a row, those written over others not counted."""
    rows = [0] * (3 * played.rows)
    over = {other for _, other in played.overwritten}
    for number, place in enumerate(played.places):
        for row in range(place.start + (number in over), place.start + place.rows):
            rows[row % (played.period or len(rows))] += place.nbytes
    return max(rows)


def test_what_dp_proves_of_small_networks_verifies() -> None:
    kinds = set()
    for whole, result, _ in _cases():
        assert result.termination == "PROVED"
        kinds.add((result.proof, result.status))
        if result.proof != "search":  # a cut was banned
            bound = None if result.status == "INFEASIBLE" else result.bound
            assert verify(whole, bound, result.proof, result.evidence).shown, whole.operators
    assert kinds >= {("witness", "OPTIMAL"), ("witness", "INFEASIBLE")}


def test_mutated_evidence_shows_nothing_untrue() -> None:
    draw, tried = random.Random(2), 0
    for (whole, result, best), (_, other, _) in zip(_cases(), _cases()[1:], strict=False):
        given = result.evidence or other.evidence
        for _ in range(25):
            evidence = mutated(given, draw)
            evidence = draw.choice([evidence, mutated(evidence, draw), other.evidence])
            bounds = [None] if best == math.inf else [None, best, best + 1, 2 * best]
            for bound in bounds:
                tried += 1
                shown = verify(whole, bound, "witness", evidence).shown
                assert not shown or best == math.inf or (bound is not None and bound <= best)
    assert tried >= 1000


def test_groups_take_no_less_than_is_said_and_grow_as_long_as_larger_ones_fit() -> None:
    close = 0
    for whole, _, _ in _cases():
        for b in range(1, whole.n + 1):
            low = max(0, b - whole.max_group)
            found: dict[tuple[int, ...], list[Replay]] = {}
            for a in range(b - 1, low - 1, -1):
                for played in _plays(whole, a, b):
                    cut = tuple(played.cut[letter] for letter in "nchw")
                    found.setdefault(cut, []).append(played)
            for counts, plays in found.items():
                least = _grown(whole, range(low, b), counts)
                for played in plays:
                    assert least[b - played.rows] <= played.cycles
                    close += least[b - played.rows] > 0.8 * played.cycles
                for at in range(b - 1, b - plays[-1].rows - 1, -1):
                    one = Replay(whole, GroupingSolution((at, b), (counts,)), 0)
                    assert groups._least_bytes(one) <= whole.chip.memory
    assert close > 50


def _grown(whole: LayerGrouping, members: range, counts: Any) -> dict[int, int]:
    """Return the least cycles, as bounded, of groups that end with the last operator."""
    along = functools.partial(groups._along, whole, members)
    return dict(groups._Prices(whole).growing(members, counts, along))


@pytest.mark.parametrize("name", ["squeezenet", "vgg19", "zfnet512"])
def test_networks_of_the_catalog(name: str) -> None:
    whole = sp.load(f"groups/{name}")
    result = sp.solve(whole, "dp")
    assert result.proof == "witness"
    assert result.bound is not None
    assert verify(whole, result.bound, result.proof, result.evidence).shown
    assert not verify(whole, result.bound + 1, result.proof, result.evidence).shown
    higher = {**result.evidence, "potentials": [p + 1 for p in result.evidence["potentials"]]}
    higher["potentials"][0] = 0
    assert not verify(whole, result.bound + 1, "witness", higher).shown


@pytest.mark.parametrize("fields", [{"timesteps": "free"}, {"order": "free"}])
def test_what_the_rule_does_not_know_it_refuses(fields: dict[str, str]) -> None:
    draw = random.Random(1)
    whole = _network(draw, 4, 4)
    result = sp.solve(whole, "dp")
    found = verify(whole.replace(**fields), result.bound, result.proof, result.evidence)
    assert whole.linear or not found.shown


def test_what_an_engine_proves_is_witnessed() -> None:
    whole = _network(random.Random(5), 4, 4)
    result = sp.solve(whole, "milp")
    assert result.proof == "witness"
    assert verify(whole, result.bound, result.proof, result.evidence).shown


def test_every_field_of_a_network_is_used_or_says_nothing_of_its_groups() -> None:
    known = {*KNOWN.split(), *HARMLESS.split()} - {"kept"}
    assert {field.name for field in dataclasses.fields(GroupingData)} == known
    assert {*LaneChip.__struct_fields__} == {
        "lanes", "memory", "banks", "eu_bytes", "channels", "pixels", "load_rate", "store_rate",
        "load_latency", "store_latency", "startup", "overlap", "cores", "rates", "name",
    }  # fmt: skip


def test_what_rows_take_at_least_is_no_more_than_the_replay() -> None:
    seen = 0
    for seed in range(40):
        instance = relations.instance(seed).replace(timesteps="nearest", order="given")
        prices = groups._Prices(instance)
        for end in range(1, instance.n + 1):
            for counts in groups._cuts(instance, end - 1):
                along = functools.cache(functools.partial(groups._along, instance, range(end)))
                for first, least in prices.growing(range(end), counts, along):
                    plan = GroupingSolution((first, end), (counts,))
                    assert least <= Replay(instance, plan, 0).cycles
                    seen += 1
    assert seen > 300
