"""Clusters of GPUs and TPUs by name."""

from __future__ import annotations

import json

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances import accelerators, clusters
from tests.cli.shell import run


def rates(name: str) -> list[tuple[str, float, float]]:
    """Return the devices of a cluster with GB/s from the one before and to the next one."""
    return [
        (d.name, round(d.recv.GBps * 2**30 / 1e9, 3), round(d.send.GBps * 2**30 / 1e9, 3))
        for d in clusters.cluster(name).devices
        if d.recv is not None and d.send is not None
    ]


def test_nodes_have_fast_links_inside_and_slow_ones_between() -> None:
    assert rates("2xh100") == rates("h100:2") == [("h100 0", 450, 450), ("h100 1", 450, 450)]
    assert rates("2x2xa100-80") == [
        ("a100-80 0", 300, 300), ("a100-80 1", 300, 25), ("a100-80 2", 25, 300),
        ("a100-80 3", 300, 300),
    ]  # fmt: skip
    assert rates("1xh100+2xl40s") == [("h100 0", 450, 25), ("l40s 1", 25, 31.508),
                                      ("l40s 2", 31.508, 31.508)]  # fmt: skip
    assert rates("2x2xh100@pcie5/ib-hdr")[1:3] == [("h100 1", 63.015, 25), ("h100 2", 25, 63.015)]
    assert rates("2X2XH100@PCIE5") == [(f"h100 {at}", 63.015, 63.015) for at in range(4)]


def test_devices_have_their_memory_and_speed() -> None:
    mixed = clusters.cluster("h100:1+a100-40:1")
    assert [device.memory for device in mixed.devices] == [80 * 10**9, 40 * 10**9]
    assert [device.speed for device in mixed.devices] == [1, 312 / 989.5]
    preset = clusters.preset("4xb200")
    assert (preset.flops_per_cycle, preset.memory_bandwidth) == (2_250_000, 8_000)
    assert len({device.kind for device in preset.cluster.devices}) == 1
    # PCIe of the host: 63.015 GB/s.
    assert preset.cluster.host_recv is not None
    assert round(preset.cluster.host_recv.GBps * 2**30) == 63_015_000_000


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("4xh1000", "unknown accelerator 'h1000'; choose one of a100-40, a100-80, h100, h800"),
        ("h100:4+a100:4", "unknown accelerator 'a100'; choose one of a100-40, a100-80"),
        ("2xh100@nvlink", "unknown link 'nvlink'; choose one of nvlink3, nvlink-h800"),
        ("2xh100:4", "'2xh100:4' counts devices twice"),
        ("0xh100", "'0xh100' is not 1 to 65,536 devices"),
        ("99999999x9999999xh100", "is not 1 to 65,536 devices"),
        ("4xh100+", "unknown cluster '4xh100+'; known are ipu-pod2"),
        ("gpus", "known are ipu-pod2, ipu-pod4, ipu-pod8, ipu-pod16, generic-N, Nxa100-40"),
    ],
)
def test_unknown_names_are_refused_with_those_that_are_known(name: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        clusters.cluster(name)
    assert error.value.field == "cluster"
    assert told in str(error.value)


def test_every_figure_has_a_source() -> None:
    links = accelerators.LINKS
    assert all(source and rate > 0 for rate, _, source in links.values())
    for known in accelerators.ACCELERATORS.values():
        assert known.source
        assert {known.near, known.far, known.host} <= links.keys()


def test_networks_of_the_catalog_run_on_them() -> None:
    assert sp.load("pipeline/bert-large", cluster="2x2xh100", training=True).k == 4


def test_they_are_listed() -> None:
    listed = json.loads(run("list", "clusters", "--json").stdout)
    assert set(listed["accelerators"]) == set(accelerators.ACCELERATORS)
    shown = run("list", "clusters").stdout
    assert all(name in shown for name in (*accelerators.ACCELERATORS, *accelerators.LINKS))
