from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagepack import catalog
from stagepack.catalog.best_known import best_known
from stagepack.errors import InputError
from stagepack.formats import door
from stagepack.instances import clusters
from stagepack.instances.packing import LmemPacking
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.problem import coerce
from stagepack.instances.profile import Link
from stagepack.kinds import KINDS
from stagepack.methods.pipeline import TABLE
from stagepack.solve import methods, solve
from tests.catalog.exact import optimum

ENTRIES = {entry.name: entry for entry in catalog.entries()}


def test_every_entry_says_what_it_takes() -> None:
    kinds = {kind: f"{known.family}/" for kind, known in KINDS.items()}
    assert {entry.kind for entry in ENTRIES.values()} == set(kinds)
    for kind, prefix in kinds.items():
        assert all(entry.name.startswith(prefix) for entry in catalog.entries(kind))
    assert sum(len(catalog.entries(kind)) for kind in kinds) == len(ENTRIES)
    with pytest.raises(InputError, match="unknown kind"):
        catalog.entries("no-such-kind")
    for entry in ENTRIES.values():
        assert entry.description
        assert set(entry.parameters) <= set(catalog.VOCABULARY)
        for name, value in entry.parameters.items():
            assert value is None or coerce(name, str(value), entry.kind) == value


@pytest.mark.parametrize("name", ENTRIES)
def test_defaults_load(name: str) -> None:
    instance = catalog.load(name)
    assert instance.kind == ENTRIES[name].kind
    assert instance.source == name
    assert instance.digest == catalog.load(name).digest


@pytest.mark.parametrize("name", [n for n in ENTRIES if n.startswith("pipeline/")])
def test_default_pipelines_are_feasible(name: str) -> None:
    instance = catalog.load(name)
    assert instance.whole
    if instance.placed:
        known, result = best_known(instance), solve(instance, "rounds")
        assert known is not None
        assert (result.status, result.objective) == ("OPTIMAL", known.value)
        return
    feasible = optimum(instance) is not None
    assert feasible == (name != "pipeline/random/infeasible")


def test_parameters_may_be_text() -> None:
    given: dict[str, Any] = {
        "batch": 8, "sequence": 128, "cluster": "ipu-pod4", "training": False,
        "microbatches": 4, "objective": "transfer-bounded", "utilisation": 0.5,
    }  # fmt: skip
    values = catalog.load("pipeline/bert-large", **given)
    text = catalog.load("pipeline/bert-large", **{k: str(v) for k, v in given.items()})
    assert values.digest == text.digest
    assert values.source == "pipeline/bert-large microbatches=4 utilisation=0.5"
    assert (
        catalog.load("pipeline/bert-large", batch=None).digest
        == catalog.load("pipeline/bert-large").digest
    )


def test_the_machine_may_be_changed() -> None:
    load = catalog.load
    assert load("pipeline/vgg-16", devices=3).k == 3
    assert load("pipeline/vgg-16", cluster="generic-5").k == 5
    assert load("pipeline/vgg-16", capacity=10**9).cluster.devices[0].memory == 10**9
    assert load("pipeline/vgg-16", bandwidth=9).cluster.host_send == Link(GBps=9)
    speeds = load("pipeline/vgg-16", speed="1,2,1,2").cluster.devices
    assert [device.speed for device in speeds] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("pipeline/bert-larg", {}, "did you mean pipeline/bert-large"),
        ("bert-large", {}, "give pipeline/bert-large or packing/activations/bert-large or "),
        ("zzz", {}, "choose one of"),
        ("pipeline/bert-large", {"bach": 3}, "bandwidth, batch,"),
        ("pipeline/bert-large", {"layers": 3}, "takes no parameter 'layers'"),
        ("pipeline/bert-large", {"batch": "8.5"}, "'8.5' will not do as batch"),
        ("pipeline/bert-large", {"batch": 0}, "from 1 to 65,536"),
        ("pipeline/bert-large", {"batch": True}, "True will not do"),
        ("pipeline/bert-large", {"batch": 10**400}, "will not do as batch"),
        ("pipeline/bert-large", {"sequence": 1000}, "give at most 512"),
        ("pipeline/gpt2-small", {"sequence": 2000}, "give at most 1024"),
        ("pipeline/vit-b-16", {"image": 225}, "multiple of 16"),
        ("pipeline/resnet-50", {"image": 48}, "multiple of 32"),
        ("pipeline/vgg-16", {"granularity": "block"}, "takes no parameter 'granularity'"),
        ("pipeline/resnet-50", {"granularity": "fine"}, "choose one of block, matmul"),
        ("pipeline/resnet-50", {"training": "si"}, "give true or false"),
        ("pipeline/resnet-50", {"utilisation": "nan"}, "'nan' will not do as utilisation"),
        ("pipeline/resnet-50", {"cluster": "ipu-pod5"}, "known are ipu-pod2"),
        ("pipeline/resnet-50", {"cluster": 4}, "4 will not do as cluster"),
        ("pipeline/resnet-50", {"objective": "speed"}, "choose one of bottleneck"),
        ("pipeline/vit-l-16", {"batch": 2**16, "image": 2**13, "training": True}, "2**62"),
        ("pipeline/random/bert-like", {"layers": 3}, "3 layers for 8 devices"),
        ("pipeline/random/bert-like", {"seed": -1}, "-1 will not do"),
        ("pipeline/bert-base", {"objective": "peak"}, "'peak' for pipeline-partition; choose one"),
        ("packing/random/planted", {"objective": "sum"}, "choose one of peak, fit, bank"),
        ("packing/random/planted", {"objective": "fit"}, "give a capacity"),
        ("packing/random/planted", {"buffers": 0}, "from 1 to"),
        ("packing/random/evolved", {"buffers": 7}, "give at least 8"),
        ("packing/adversarial/start", {"levels": 13}, "from 1 to 12"),
        ("packing/activations/resnet-50", {"image": 48}, "multiple of 32"),
        ("packing/random/plantd", {}, "did you mean packing/random/planted"),
    ],
)
def test_wrong_parameters_are_named(name: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.load(name, **parameters)
    assert words in str(caught.value)
    assert caught.value.remedy
    assert caught.value.field


def test_clusters() -> None:
    for k in (2, 4, 8, 16):
        pod = clusters.cluster(f"ipu-pod{k}")
        assert len(pod) == k
        assert pod.clock == 1_850_000_000
        for device in pod.devices:
            assert device.memory == int(894 * 0.85 * 2**20)
            assert device.recv == device.send == Link(GBps=70, idle=3000)
        assert pod.host_recv == pod.host_send == Link(GBps=7, idle=50000)
    assert len(clusters.cluster("generic-13")) == 13
    # Bow: 350 TFLOP/s.
    assert clusters.preset("ipu-pod2").flops_per_cycle * 1.85e9 == pytest.approx(350e12, rel=0.01)
    for name in ("ipu-pod", "ipu-pod3", "generic-0", "generic-1000000", "generic", "", "tpu"):
        with pytest.raises(InputError, match="unknown cluster"):
            clusters.cluster(name)


def test_a_cluster_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        '{"clock": 2000000000, "devices": [{"memory": 8, "speed": 2, "send": {"GBps": 4}},'
        ' {"memory": 16}]}'
    )
    mine = clusters.cluster(str(path))
    assert [mine.name, mine.clock, len(mine)] == ["mine", 2_000_000_000, 2]
    assert [(device.memory, device.speed) for device in mine.devices] == [(8, 2), (16, 1)]
    assert mine.devices[0].send == Link(GBps=4)
    own, generic = clusters.preset(str(path)), clusters.preset("generic-1")
    assert own.flops_per_cycle == generic.flops_per_cycle
    path.write_text('{"devices": [{"memory": "8"}]}')
    with pytest.raises(InputError, match=r"mine\.json: devices\[0\]\.memory") as caught:
        clusters.cluster(str(path))
    assert caught.value.field == "cluster"
    with pytest.raises(InputError, match="nowhere"):
        clusters.cluster(str(tmp_path / "nowhere.json"))


def test_the_tour_shows_every_kind_from_a_rule_to_a_proof() -> None:
    stops = catalog.tour()
    assert [instance.kind for instance, _ in stops] == list(KINDS)
    for instance, names in stops:
        known = {method.name: method for method in methods(instance)}
        assert all(known[name].available for name in names)
        assert not known[names[0]].exact
        assert any(known[name].exact for name in names)


def test_the_suite_covers_the_ground() -> None:
    kinds = {instance.kind for instance in catalog.suite()}
    assert sum(len(catalog.suite(kind)) for kind in kinds) == len(catalog.suite())
    packings: list[LmemPacking] = catalog.suite("lmem-packing")
    assert {packing.objective.value for packing in packings} == {"peak", "bank-conflicts"}
    assert all(packing.n < 200 for packing in packings)
    instances: list[PipelinePartition] = catalog.suite("pipeline-partition")
    assert 8 <= len(instances) <= 10
    assert {instance.objective for instance in instances} == {*TABLE.known} - {"moves"}
    assert {instance.training for instance in instances} == {True, False}
    assert len({instance.name for instance in instances}) == len(instances)
    assert all(instance.n <= 62 and instance.k <= 8 for instance in instances)
    assert sum(RangeCosts(instance).classes > 2 for instance in instances) >= 1
    assert [optimum(i) is None for i in instances].count(True) == 1
    for instance in catalog.suite():
        name, *settings = instance.source.split()
        again = catalog.load(name, **dict(setting.split("=") for setting in settings))
        assert again.digest == instance.digest


def test_best_known_values_are_reached() -> None:
    named = {(known.name, known.objective) for known in catalog.BEST_KNOWN}
    assert len(named) == len(catalog.BEST_KNOWN)
    assert len(named) == len({known.digest for known in catalog.BEST_KNOWN})
    for instance in catalog.suite("pipeline-partition"):
        known = catalog.best_known(instance)
        value = optimum(instance)
        assert (known is None) == (value is None)
        if known is not None:
            assert known.name == instance.source
            assert known.objective == instance.objective
            assert known.value == value
            assert known.proved
            assert known.source


def test_best_known_values_of_public_data(data_dir: Any) -> None:
    instances: list[PipelinePartition] = door.read_all(
        data_dir / "auto_pipeline" / "partition_cases.json"
    )
    path = data_dir / "pipedream" / "vgg16_graph.txt"
    instances.append(door.read(path, kind="pipeline-partition", devices=4, training=True))
    for instance in instances:
        known = catalog.best_known(instance)
        assert known is not None, instance.name
        assert known.value == optimum(instance)
    assert catalog.best_known(instances[0].replace(objective="sum")) is None


def test_bandwidths_mean_what_their_units_say() -> None:
    for text, worth in {
        "10GB/s": 10e9,
        "10 GiB/s": 10 * 2**30,
        "80Gbit/s": 10e9,
        "500MB/s": 5e8,
        "10": 10 * 2**30,
    }.items():
        assert coerce("bandwidth", text, "pipeline-partition") * 2**30 == worth
    for text in ("GB/s", "10Gb/s", "tenGB/s", "1e999GB/s", "0GB/s"):
        with pytest.raises(InputError, match=r"from 1e-09 to 1e\+12, or with its unit"):
            coerce("bandwidth", text, "pipeline-partition")
