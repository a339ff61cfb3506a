"""Figures of the networks against published totals."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack import catalog
from stagepack.catalog import networks
from stagepack.instances import clusters
from stagepack.instances.pipeline import PipelinePartition


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("bert-base", 109.5),
        ("bert-large", 335.1),
        ("gpt2-small", 124.4),
        ("gpt2-medium", 354.8),
        ("gpt2-large", 774.0),
        ("gpt2-xl", 1557.6),
        ("vit-b-16", 86.6),
        ("vit-l-16", 304.3),
        ("resnet-50", 25.56),
        ("vgg-16", 138.36),
    ],
)
def test_parameters(name: str, millions: float) -> None:
    gpt2 = name.startswith("gpt2")
    network = networks.network(name, **({"tied": True} if gpt2 else {}))
    assert network.weights / 1e6 == pytest.approx(millions, rel=1e-3)
    if gpt2:
        copy = networks.network(name).weights - network.weights
        assert copy == 50257 * networks.transformers.GPT2[name.removeprefix("gpt2-")].width
    instance = catalog.load(f"pipeline/{name}", **({"tied": True} if gpt2 else {}))
    assert instance.exclusive["parameters"].sum() == 2 * network.weights


@pytest.mark.parametrize(
    ("name", "gmacs"),
    [("resnet-50", 4.09), ("vgg-16", 15.47), ("vit-b-16", 17.56), ("vit-l-16", 61.6)],
)
def test_arithmetic_of_one_image(name: str, gmacs: float) -> None:
    assert networks.network(name, batch=1).macs / 1e9 == pytest.approx(gmacs, rel=0.005)
    assert networks.network(name, batch=7).macs == 7 * networks.network(name, batch=1).macs


def test_arithmetic_of_bert() -> None:
    """The closed form 24 b s h^2 + 4 b s^2 h flops a layer."""
    b, s, h = 3, 96, 768
    network = networks.network("bert-base", batch=b, sequence=s)
    layers = 12 * (24 * b * s * h * h + 4 * b * s * s * h)
    assert 2 * network.macs - layers == 2 * b * h * h + 4 * b * h
    longer = networks.network("bert-base", batch=b, sequence=2 * s)
    assert longer.macs > 2 * network.macs


@pytest.mark.parametrize("name", ["bert-base", "gpt2-small", "vit-b-16", "resnet-50"])
@pytest.mark.parametrize("training", [False, True])
def test_granularity_keeps_the_totals(name: str, training: bool) -> None:
    coarse, fine = (
        networks.network(name, granularity=granularity, training=training)
        for granularity in ("block", "matmul")
    )
    assert len(fine.blocks) > 2 * len(coarse.blocks)
    for total in ("flops", "values", "weights", "saved"):
        assert sum(getattr(b, total) for b in fine.blocks) == sum(
            getattr(b, total) for b in coarse.blocks
        )
    assert coarse.blocks[0].inputs == fine.blocks[0].inputs
    # A merged layer holds all it reads and writes while it runs: no less than its pieces.
    preset = clusters.preset("ipu-pod4")
    peaks = []
    for network in (coarse, fine):
        profile = network.profile(preset, bytes_per_value=2, training=training, state_bytes=0)
        instance = PipelinePartition.from_profile(profile, preset.cluster)
        peaks.append((instance.temporary + instance.carry).max())
    assert peaks[1] <= peaks[0] <= 1.25 * peaks[1]


def test_tensors_of_bert() -> None:
    b, s, h = 8, 128, 1024
    instance = catalog.load("pipeline/bert-large")
    mask = 2 * b * s
    assert instance.n == 50
    assert instance.in_bytes[0] == 2 * 4 * b * s + mask
    assert set(instance.in_bytes[1:48].tolist()) == {2 * b * s * h + mask}
    assert instance.in_bytes[48:50].tolist() == [2 * b * s * h] * 2
    assert instance.out_bytes[50] == 2 * b * 2
    assert not instance.variables
    keys = dict(zip(instance.shared.names, np.bincount(instance.shared.key), strict=True))
    assert keys["code of attention"] == keys["code of feed-forward"] == 24


def test_training_costs_more() -> None:
    inference = catalog.load("pipeline/bert-base", batch=1)
    training = catalog.load("pipeline/bert-base", batch=1, training=True, state_bytes=8)
    assert (training.cycles == 3 * inference.cycles).all()
    assert (training.exclusive["optimiser state"] == 4 * training.exclusive["parameters"]).all()
    assert training.stash.min() > 0
    assert training.name == "bert-base-training"


def test_tied_weights_keep_gpt2_in_one_stage() -> None:
    tied = catalog.load("pipeline/gpt2-small", tied=True)
    assert tied.allowed_cuts.sum() == 2
    assert catalog.load("pipeline/gpt2-small").allowed_cuts.all()


def test_shortcuts_of_resnet_cross_cuts() -> None:
    instance = catalog.load("pipeline/resnet-50", granularity="matmul", batch=1)
    assert instance.n == 54
    names = instance.layer_names
    assert names is not None
    at = names.index("conv 1.1")
    # Between reduce and conv: the reduced tensor and the input of the block.
    assert instance.in_bytes[at] == 2 * 56 * 56 * (64 + 256)
    assert instance.carry[at] == 2 * 56 * 56 * 256


def test_cycles_follow_the_throughput() -> None:
    network = networks.network("vgg-16")
    preset = clusters.preset("generic-4")
    profile = network.profile(
        preset, bytes_per_value=2, training=False, state_bytes=0, utilisation=0.25
    )
    for block, layer in zip(network.blocks, profile.layers, strict=True):
        assert layer.forward == -(-block.flops // 25_000) + -(-block.values // 250)
        assert layer.backward == 2 * layer.forward


def test_programs_of_small_layers_are_small() -> None:
    network, preset = networks.network("resnet-50", batch=1), clusters.preset("generic-2")
    found = network.profile(preset, bytes_per_value=2, training=True, state_bytes=0)
    codes = {key: nbytes for layer in found.layers for key, nbytes in layer.shared.items()}
    assert max(codes.values()) <= 2 * preset.code_bytes
    assert 0 < sum(codes.values()) < sum(sum(layer.exclusive.values()) for layer in found.layers)
    large = network.profile(
        clusters.preset("ipu-pod2"), bytes_per_value=2, training=True, state_bytes=0
    )
    (whole,) = {nbytes for layer in large.layers for nbytes in layer.shared.values()}
    assert whole == 2 * clusters.preset("ipu-pod2").code_bytes
