from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import (
    host_cycles,
    plain,
    recv_cycles,
    send_cycles,
    stage_compute,
    stage_memory,
)
from stagepack.instances.pipeline.estimate import estimate, read_measured
from stagepack.instances.profile import Cluster, Device, Link


def random_instance(rng: np.random.Generator) -> PipelinePartition:
    n, k = int(rng.integers(4, 40)), int(rng.integers(1, 5))

    def column() -> Any:
        return rng.integers(0, 1000, n)

    devices = tuple(
        Device(
            name=f"d{i}",
            memory=None if rng.random() < 0.3 else int(rng.integers(1, 20000)),
            speed=[1, 2, 0.5, 3][rng.integers(4)],
            recv=Link(GBps=int(rng.integers(1, 9)), idle=int(rng.integers(100))),
            send=None if rng.random() < 0.3 else Link(GBps=1.5, idle=7),
        )
        for i in range(k)
    )
    cluster = Cluster(devices=devices, host_recv=Link(GBps=2, idle=5), host_send=Link(GBps=3))
    options: dict[str, Any] = {}
    if rng.random() < 0.2:
        options["compute_table"] = rng.integers(0, 1000, (n + 1, n + 1))
    if rng.random() < 0.2:
        options["memory_table"] = rng.integers(0, 1000, (k, n + 1, n + 1))
    if rng.random() < 0.2:
        options["recv_cycles"] = rng.integers(0, 1000, (k, n + 1))
    if rng.random() < 0.2:
        options["send_cycles"] = rng.integers(0, 1000, (k, n + 1))
    return PipelinePartition.from_arrays(
        column() * (0.25 if rng.random() < 0.3 else 1),
        cluster=cluster,
        backward=column(),
        exclusive={"weights": column(), "code": column()},
        shared={f"key{i}": (50 + i, rng.integers(0, n, 5).tolist()) for i in range(4)},
        temporary=column(),
        carry=column(),
        stash=column(),
        in_bytes=rng.integers(0, 10**9, n + 1),
        out_bytes=rng.integers(0, 10**9, n + 1),
        training=bool(rng.random() < 0.5),
        microbatches=int(rng.integers(1, 4)),
        objective=["bottleneck", "transfer-bounded", "sum", "overlap"][rng.integers(4)],
        host_transfer=bool(rng.random() < 0.5),
        **options,
    )


def random_solution(rng: np.random.Generator, instance: PipelinePartition) -> PipelineSolution:
    cuts = np.sort(rng.choice(np.arange(1, instance.n), instance.k - 1, replace=False))
    return PipelineSolution.in_order([0, *cuts.tolist(), instance.n])


@pytest.mark.parametrize("seed", range(150))
def test_equals_the_definitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng)
    solution = random_solution(rng, instance)
    ours = estimate(instance, solution)
    host = host_cycles(instance)
    for j, (first, end, device) in enumerate(solution.stages):
        stage = ours.stages[j]
        recv = recv_cycles(instance, device, first) if first > 0 else 0
        send = send_cycles(instance, device, end) if end < instance.n else 0
        assert (stage.first, stage.end, stage.device) == (first, end, device)
        assert stage.compute == pytest.approx(
            plain(stage_compute(instance, first, end, device)),
            rel=0 if instance.whole else 1e-12,
        )
        assert (stage.recv, stage.send, stage.host) == (recv, send, host)
        assert stage.transfer == recv + send + host
        left = len(solution.devices) - j
        assert stage.memory == stage_memory(instance, first, end, device, left)
        assert stage.memory == sum(stage.exclusive.values()) + sum(
            (stage.shared, stage.temporary, stage.carry, stage.stash)
        )
        if stage.forward is not None and stage.backward is not None:
            assert stage.forward + stage.backward == pytest.approx(stage.compute)
        if instance.memory_table is None:
            peaks = instance.temporary + instance.carry
            assert first <= stage.peak_layer < end
            assert peaks[stage.peak_layer] == peaks[first:end].max()
        capacity = instance.cluster.devices[device].memory
        assert stage.free == (None if capacity is None else capacity - stage.memory)
    assert ours.objective == instance.evaluate(solution)
    assert ours.totals["fits"] == (
        not [v for v in instance.check(solution) if v.rule == "capacity"]
    )


@pytest.fixture
def small() -> tuple[PipelinePartition, PipelineSolution]:
    instance = PipelinePartition.from_arrays(
        [10, 20, 30, 40], devices=2, exclusive={"weights": [1, 2, 3, 4]}, capacity=[5, 6], name="s"
    )
    return instance, PipelineSolution.in_order([0, 3, 4])


def test_rows_dict_and_csv_agree(
    small: tuple[PipelinePartition, PipelineSolution], tmp_path: Path
) -> None:
    ours = estimate(*small)
    rows = ours.rows()
    assert [row["compute"] for row in rows] == [60, 40]
    assert [row["exclusive.weights"] for row in rows] == [6, 4]
    assert [row["free"] for row in rows] == [-1, 2]
    assert not ours.totals["fits"]
    assert ours.totals["balance"] == pytest.approx(50 / 60)
    json.dumps(ours.to_dict(), allow_nan=False)
    text = ours.to_csv(tmp_path / "estimate.csv")
    assert (tmp_path / "estimate.csv").read_text() == text
    assert [int(r["memory"]) for r in csv.DictReader(io.StringIO(text))] == [6, 4]


def test_against_measurements(small: tuple[PipelinePartition, PipelineSolution]) -> None:
    ours = estimate(*small)
    table = ours.against([{"compute": 50, "memory": None}, {"memory": 8, "recv": 0}])
    assert [(r["stage"], r["figure"], r["difference"], r["ratio"]) for r in table] == [
        (0, "compute", 10, 1.2),
        (1, "memory", -4, 0.5),
        (1, "recv", 0, None),
    ]


def test_reads_its_own_files(
    small: tuple[PipelinePartition, PipelineSolution], tmp_path: Path
) -> None:
    ours = estimate(*small)
    ours.to_csv(tmp_path / "m.csv")
    (tmp_path / "m.json").write_text(json.dumps(ours.to_dict()))
    for name in ("m.csv", "m.json"):
        table = ours.against(read_measured(tmp_path / name))
        assert len(table) >= 20
        assert all(row["difference"] == 0 for row in table)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"speed": 1}], "speed"),
        ([{"compute": "fast"}], "not a number"),
        ([{"compute": float("nan")}], "nan"),
        ([{"compute": True}], "not a number"),
        ([{"stage": 2, "compute": 1}], "stage 2"),
        ([{"stage": "a", "compute": 1}], "integer"),
        ([{"stage": 1, "compute": 1}, {"compute": 1}], "twice"),
        ([{"first": 1, "compute": 1}], "first"),
        ([1], "object"),
    ],
)
def test_refuses_measurements(
    small: tuple[PipelinePartition, PipelineSolution], rows: Any, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        estimate(*small).against(rows)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"[",
        b"{}",
        b"[1]",
        b"[]",
        b'[{"compute": NaN}]',
        b'[{"compute": 1e999}]',
        b"compute,recv\n1\n",
        b"compute\n1,2\n",
        b'compute\n"1\n',
        b"compute\nnan\n",
        b"[" * 100_000,
    ],
)
def test_refuses_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "measured.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"measured\.txt"):
        read_measured(path)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_measured(tmp_path / "nowhere.json")
    with pytest.raises(InputError, match="directory"):
        read_measured(tmp_path)


@pytest.mark.parametrize(
    "solution",
    [
        PipelineSolution((0, 4), (0, 1)),
        PipelineSolution((0, 2, 2, 4), (0, 1, 1)),
        PipelineSolution((0, 5), (0,)),
        PipelineSolution((0, 4), (2,)),
        PipelineSolution((), ()),
    ],
)
def test_refuses_another_instances_solution(
    small: tuple[PipelinePartition, PipelineSolution], solution: PipelineSolution
) -> None:
    with pytest.raises(InputError, match="solution of this instance"):
        estimate(small[0], solution)


def test_a_million_layers() -> None:
    n = 1_000_000
    instance = PipelinePartition.from_arrays(np.ones(n, dtype=np.int64), devices=64)
    ours = estimate(instance, PipelineSolution.in_order(np.linspace(0, n, 65).astype(int)))
    assert ours.totals["compute"] == n
