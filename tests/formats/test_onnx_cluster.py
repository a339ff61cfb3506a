"""ONNX models on a cluster: what it knows goes to every kind of problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances import clusters
from stagepack.instances.groups.stage import as_chain
from stagepack.instances.packing.profiled import HELD
from stagepack.instances.phases.chips import GC200
from stagepack.kinds import KINDS
from tests.formats.test_onnx_model import convolution, model, node

MEMORY = int(894 * 0.85 * 2**20)
HOST = 7 * 2**30 / 1.85e9
"""Bytes in a cycle of an IPU over its link to the host."""


def chain_of(folder: Path) -> Path:
    """Write a model of two convolutions with a norm of its own between them."""
    nodes = [node("Conv", "x w", "a"), node("Softmax", "a", "b"), node("Conv", "b v", "y")]
    weights = {"w": [32, 16, 3, 3], "v": [8, 32, 1, 1]}
    return model(folder, nodes, {"x": [1, 16, 18, 18]}, weights)


def imported(path: Path, kind: str, **given: Any) -> Any:
    return sp.read(path, kind=kind, cluster="ipu-pod2", **given)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_and_written(tmp_path: Path, kind: str) -> None:
    instance, path = imported(chain_of(tmp_path), kind, batch=2), tmp_path / "x.json"
    assert instance.kind == kind
    sp.write(instance, path)
    assert sp.read(path).digest == instance.digest


def test_cycles_and_links_are_those_of_one_clock(tmp_path: Path) -> None:
    chain = imported(chain_of(tmp_path), "pipeline")
    assert chain.cluster == clusters.cluster("ipu-pod2")
    assert imported(chain_of(tmp_path), "graph").bandwidth == pytest.approx(70 * 2**30 / 1.85e9)
    assert sp.read(chain_of(tmp_path), kind="pipeline", devices=3).cluster.clock == 1e9


def test_a_device_is_a_chip_with_local_memory(tmp_path: Path) -> None:
    path = chain_of(tmp_path)
    whole = imported(path, "layer-grouping")
    chip = whole.chip
    assert (chip.name, chip.lanes, chip.memory) == ("ipu-pod2", 1, MEMORY)
    assert (chip.load_rate, chip.store_rate) == (pytest.approx(HOST, rel=1e-5),) * 2
    assert (chip.load_latency, chip.store_latency) == (50_000, 50_000)
    # Convolutions take the cycles that layers of the chain take; a softmax passes once more.
    chain = imported(path, "pipeline")
    taken = [op.cycles for op in whole.operators]
    assert taken[::2] == chain.forward.tolist()[::2]
    assert taken[1] == pytest.approx(4 / 3 * chain.forward[1], abs=1)
    faster = imported(path, "layer-grouping", speed=2, utilisation=0.2)
    assert [op.cycles for op in faster.operators] == taken
    # Every stage of a plan takes them, too.
    assert (as_chain(whole, chain.cluster).forward >= chain.forward).all()


def test_rates_that_are_given_go_before_those_of_a_cluster(tmp_path: Path) -> None:
    whole = imported(chain_of(tmp_path), "layer-grouping", rates="conv:1", capacity=2**20)
    assert [op.cycles is None for op in whole.operators] == [True, False, True]
    assert whole.chip.memory == 2**20
    with pytest.raises(InputError, match="chip: is chip bm1688, or a device of a cluster; leave"):
        imported(chain_of(tmp_path), "layer-grouping", chip="bm1688")


def test_a_packing_is_what_a_device_holds(tmp_path: Path) -> None:
    path = chain_of(tmp_path)
    packing, alone = imported(path, "packing", training=True), sp.read(path, kind="packing")
    assert (packing.capacity, str(packing.objective)) == (MEMORY, "fit")
    assert (alone.capacity, str(alone.objective)) == (None, "peak")
    held, chain = packing.ids.index(HELD), imported(path, "pipeline", training=True)
    total = sum(int(column.sum()) for column in chain.exclusive.values())
    total += int(chain.shared.nbytes.sum())
    assert packing.size[held] == -(-total // 64) * 64
    assert (packing.start[held], packing.end[held]) == (0, packing.end.max())
    assert HELD not in (alone.ids or ())
    small = imported(path, "packing", capacity=1000, objective="peak")
    assert (small.capacity, str(small.objective)) == (1000, "peak")


def test_phases_reach_remote_memory_over_the_link_to_the_host(tmp_path: Path) -> None:
    path = chain_of(tmp_path)
    phases = imported(path, "phases", training=True, microbatches=4)
    chip = phases.chip
    assert (chip.memory, chip.clock, chip.startup) == (MEMORY, 1_850_000_000, 50_000)
    assert chip.remote_bandwidth == chip.host_bandwidth == pytest.approx(HOST, rel=1e-5)
    assert (chip.tiles, chip.io_tiles, phases.global_batch) == (GC200.tiles, GC200.io_tiles, 4)
    given = imported(path, "phases", capacity=10**6, bandwidth=1, speed=0.5)
    assert given.chip.memory == 10**6
    assert given.chip.remote_bandwidth == pytest.approx(2**30 / 1.85e9, rel=1e-5)
    assert np.array_equal(given.forward, 2 * phases.forward)
    other = sp.read(path, kind="phases", devices=2)
    assert (other.chip.tiles, other.chip.memory) == (1, 16 * 2**30)
    assert sp.read(path, kind="phases").chip == GC200


def test_a_schedule_has_a_stage_a_device(tmp_path: Path) -> None:
    path = chain_of(tmp_path)
    made = imported(path, "schedule", training=True, microbatches=3, split=False)
    words = {"training": True, "microbatches": 3, "objective": "bottleneck", "host_transfer": False}
    chain = imported(path, "pipeline", **words)
    stages = sp.solve(chain).solution
    assert made.forward.sum() == chain.forward.sum()
    assert (made.p, made.microbatches.tolist(), made.weight) == (2, [3, 3], None)
    assert made.digest == sp.PipelineSchedule.from_partition(chain, stages, split=False).digest
    with pytest.raises(InputError, match="the layers do not fit 2 devices"):
        imported(path, "schedule", capacity=1000)
    tied = [node("MatMul", "x w", "a"), node("MatMul", "a w", "y")]
    with pytest.raises(InputError, match="devices: 2 devices, but the layers are cut into 1 at"):
        imported(model(tmp_path, tied, {"x": [3, 8]}, {"w": [8, 8]}), "schedule")


def test_what_does_not_count_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    imported(convolution(tmp_path), "packing")
    assert "only one device of ipu-pod2 counts, with its memory" in caplog.text
    with pytest.raises(InputError, match="devices: the file does not say on how many devices"):
        sp.read(convolution(tmp_path), kind="phases", bandwidth=3)
    unlimited = sp.Cluster.uniform(2, name="mine")
    with pytest.raises(InputError, match="capacity: the devices of the cluster have no limit"):
        sp.read(convolution(tmp_path), kind="layer-grouping", cluster=unlimited)


def test_bandwidths_have_units_in_every_kind(tmp_path: Path) -> None:
    path = chain_of(tmp_path)
    graph = sp.read(path, kind="graph", devices=2, bandwidth="8GB/s")
    assert graph.bandwidth == 8  # bytes in a cycle of 1 GHz
    chain = sp.read(path, kind="pipeline", devices=2, bandwidth="8GB/s")
    link = chain.cluster.devices[0].send
    assert link is not None
    assert graph.bandwidth == pytest.approx(link.GBps * 2**30 / 1e9)
