"""How long groups of devices exchange data, by hand."""

from __future__ import annotations

import pytest

from stagepack.instances.accelerators import LINKS, nodes
from stagepack.instances.collectives import Group, Line

NEAR, FAR = Line(450.0, 3400.0), Line(50.0, 14000.0)
"""NVLink 4 and InfiniBand NDR: bytes a nanosecond, and nanoseconds."""


def test_lines_are_those_of_the_links() -> None:
    assert Line.of(LINKS["nvlink4"]) == NEAR
    assert Line.of(LINKS["ib-ndr"]) == FAR


def test_a_ring_in_a_node_by_hand() -> None:
    # Seven steps, each of an eighth of 64 MB: 8e6 / 450 = 17,777.8 ns and 3,400 before them.
    group = Group(8, 1, NEAR, FAR)
    assert group.all_gather(64e6) == pytest.approx(7 * (3400 + 8e6 / 450))
    assert group.all_reduce(64e6) == pytest.approx(14 * (3400 + 8e6 / 450))


def test_a_ring_of_nodes_by_hand() -> None:
    # Two nodes exchange an eighth of the data, half of it each: 4e6 / 50 = 80,000 ns.
    group = Group(8, 2, NEAR, FAR)
    inside, between = 7 * (3400 + 8e6 / 450), 14_000 + 4e6 / 50
    assert group.all_gather(64e6) == pytest.approx(inside + between)
    # Up and down a tree of two: as many bytes, and as many latencies.
    assert group.all_reduce(64e6) == pytest.approx(2 * inside + 2 * (14_000 + 8e6 / 50 / 2))


def test_trees_beat_rings_where_there_is_little_to_send() -> None:
    group = Group(1, 64, NEAR, FAR)
    ring, tree = 2 * 63 * (14_000 + 10 / 50), 2 * (6 * 14_000 + 640 / 50)
    assert group.all_reduce(640) == pytest.approx(min(ring, tree)) == pytest.approx(tree)
    assert group.all_reduce(1e10) < 2 * (6 * 14_000 + 1e10 / 50)


def test_all_to_all_by_hand() -> None:
    # Of 16 parts one stays, seven go near, eight far, at once.
    near, far = 3400 + 7e6 / 450, 14_000 + 8e6 / 50
    assert Group(8, 2, NEAR, FAR).all_to_all(16e6) == pytest.approx(max(near, far))
    assert Group(8, 1, NEAR, FAR).all_to_all(8e6) == pytest.approx(3400 + 7e6 / 450)
    assert Group(1, 1, NEAR, FAR).all_to_all(8e6) == 0


def test_one_device_exchanges_nothing() -> None:
    alone = Group(1, 1, NEAR, FAR)
    assert alone.all_gather(1e9) == alone.all_reduce(1e9) == 0


@pytest.mark.parametrize(
    ("cluster", "size", "stride", "levels"),
    [
        ("8xh100", 4, 1, (4, 1)),
        ("2x8xh100", 8, 1, (8, 1)),
        ("2x8xh100", 16, 1, (8, 2)),
        ("2x8xh100", 4, 4, (2, 2)),
        ("2x8xh100", 2, 8, (1, 2)),
        ("4x8xh100", 4, 8, (1, 4)),
        ("3x4xh100", 3, 4, (1, 3)),
        ("h100:4+a100-80:8", 12, 1, (4, 3)),
    ],
)
def test_groups_lie_in_nodes(cluster: str, size: int, stride: int, levels: tuple[int, int]) -> None:
    found = Group.of(nodes(cluster), size, stride)
    assert (found.inner, found.outer) == levels


def test_of_unlike_links_the_slowest_count() -> None:
    found = Group.of(nodes("h100:4+a100-80:4"), 8)
    assert (found.near, found.far) == (Line.of(LINKS["nvlink3"]), Line.of(LINKS["ib-hdr"]))
