"""Profiles of PyTorch modules: counted, measured, put on machines."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stagepack as sp
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
alone = importlib.import_module("tests.integrations.pytorch.alone")
models = importlib.import_module("tests.integrations.pytorch.models")
counting = importlib.import_module("stagepack.integrations.pytorch.counting")
tracing = importlib.import_module("stagepack.integrations.pytorch.tracing")

IMAGE = (torch.randn(2, 3, 8, 8),)
TOKENS = (torch.randn(2, 10, 32),)
KEPT = {"forward": 7, "backward": 8, "stash": 9, "temporary": 10, "backward_temporary": 11}


class Ear(logging.Handler):
    """Keeps what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


def held(profile: sp.ModelProfile, category: str) -> int:
    return sum(layer.exclusive.get(category, 0) for layer in profile.layers)


def names(profile: sp.ModelProfile) -> list[str]:
    return [layer.name for layer in profile.layers]


def test_a_residual_network_is_counted() -> None:
    module = models.ResNet(blocks=2, channels=4)
    network = counting.network_of(tracing.trace(module, IMAGE, {}))
    macs = 2 * 64 * (4 * 3 * 9 + 4 * 4 * 4 * 9) + 2 * 4 * 10
    assert network.macs == macs
    parameters = sum(p.numel() for p in module.parameters())
    assert network.weights == parameters
    assert sum(block.constants for block in network.blocks) == 4 * (2 * 4 * 4 + 2 * 4)
    profile = sp.profile_model(module, IMAGE, training=True)
    assert (held(profile, "parameters"), held(profile, "gradients")) == (4 * parameters,) * 2
    assert held(profile, "optimiser state") == 8 * parameters
    assert names(profile) == [
        "stem",
        *(f"blocks.{at}.{part}" for at in (0, 1) for part in ("conv1", "norm1", "conv2", "norm2")),
        "head",
    ]


def test_an_encoder_is_counted() -> None:
    module = models.encoder(layers=3)
    network = counting.network_of(tracing.trace(module, TOKENS, {}))
    one = 2 * (10 * 32 * 32 * 4 + 2 * 10 * 32 * 64 + 2 * 10 * 10 * 32)
    assert network.macs == 3 * one
    assert network.weights == sum(p.numel() for p in module.parameters())


def test_layers_are_as_large_as_is_asked_for() -> None:
    module = models.ResNet(blocks=2)
    assert names(sp.profile_model(module, IMAGE, depth=1)) == ["stem", "blocks", "head"]
    whole = ["stem", "blocks.0", "blocks.1", "head"]
    assert names(sp.profile_model(module, IMAGE, depth=2)) == whole
    assert names(sp.profile_model(module, IMAGE, basic_blocks=[models.Block])) == whole
    encoder = models.encoder(layers=2)  # a list of modules is no module that runs
    for depth in (1, 2):
        assert names(sp.profile_model(encoder, TOKENS, depth=depth)) == ["layers.0", "layers.1"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"depth": 0}, "depth: 0 levels"),
        ({"depth": "2"}, "depth: '2' levels; give an integer"),
        ({"basic_blocks": ["Block"]}, "basic_blocks: 'Block' is no class"),
    ],
)
def test_layers_of_no_size_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.profile_model(models.ResNet(blocks=2), IMAGE, **given)


@pytest.mark.parametrize("count", [0, 2.5, "2"])
def test_stages_are_a_whole_number(count: Any) -> None:
    with pytest.raises(InputError, match=f"n_stages: {count!r} stages; give at least 1"):
        sp.pipe_model(models.ResNet(blocks=2), IMAGE, count)


def test_what_crosses_layers_has_its_size() -> None:
    profile = sp.profile_model(models.ResNet(blocks=2), IMAGE, depth=2)
    assert [profile.tensors[layer.outputs[0]] for layer in profile.layers] == [2048, 2048, 32, 80]
    assert [layer.inputs for layer in profile.layers[1:]] == [
        layer.outputs for layer in profile.layers[:-1]
    ]
    assert profile.results == profile.layers[-1].outputs


def test_tied_weights_are_one_variable_and_one_colour() -> None:
    ids = (torch.zeros(2, 5, dtype=torch.long),)
    profile = sp.profile_model(models.Tied(), ids)
    weight = {"embed.weight": 4 * 20 * 8}
    assert [layer.tied.keys() for layer in profile.layers] == [weight.keys(), set(), weight.keys()]
    trained = sp.profile_model(models.Tied(), ids, training=True)
    assert trained.layers[0].held("embed.weight")["gradients"] == 4 * 20 * 8
    assert held(profile.together(), "parameters") == 4 * (20 * 8 + 8 * 8 + 8)
    graph = sp.GraphPartition.from_profile(profile, sp.Cluster.uniform(2))
    assert graph.colour.tolist() == [0, -1, 0]
    chain = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(2))
    assert chain.tied is not None
    assert chain.tied.uses() == {"embed.weight": (640, [0, 2])}
    together = sp.profile_model(models.Tied(), ids, tied="together")
    chain = sp.PipelinePartition.from_profile(together, sp.Cluster.uniform(2))
    assert [(span.first, span.last) for span in chain.variables] == [(0, 2)]
    with pytest.raises(InputError, match="tied: 'apart' is none of the ways; give copied"):
        sp.profile_model(models.Tied(), ids, tied="apart")


def test_nested_inputs_by_keyword_and_a_layer_that_runs_twice() -> None:
    given = ({"x": torch.randn(4, 8), "other": torch.ones(3)},)
    profile = sp.profile_model(models.Nested(), given, {"scale": torch.tensor(2.0)})
    assert names(profile) == ["first", "first (2)", "second"]
    assert profile.layers[0].tied == profile.layers[1].tied
    assert len(profile.results or ()) == 3


def test_modules_without_weights_are_counted_too() -> None:
    with torch.device("meta"):
        module, tokens = models.encoder(layers=1, width=512), torch.randn(1, 128, 512)
    profile = sp.profile_model(module, (tokens,))
    assert held(profile, "parameters") == 4 * sum(p.numel() for p in module.parameters())
    with pytest.raises(InputError, match="module: is on the device `meta`; count it"):
        sp.profile_model(module, (tokens,), measure=True)


def test_layers_are_measured_by_themselves_and_equal_ones_once(tmp_path: Path) -> None:
    module = models.ResNet(blocks=3)
    counted = sp.profile_model(module, IMAGE, depth=2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = sp.profile_model(module, IMAGE, depth=2, measure=True, repeats=2, cache=tmp_path)
    assert names(found) == names(counted)
    assert all(layer.forward > 0 and layer.backward > 0 for layer in found.layers)
    assert found.layers[1].stash > 4 * 2048  # inputs of two convolutions and of two norms
    assert [layer.exclusive for layer in found.layers] == [
        layer.exclusive for layer in counted.layers
    ]
    first, second = found.layers[1:3]
    assert (first.forward, first.backward) == (second.forward, second.backward)
    assert len(list(tmp_path.iterdir())) == 4  # stem, a block, one with the mean, head
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert module.stem.weight.grad is None
    for path in tmp_path.iterdir():  # what is kept there is what is said next time
        path.write_text(json.dumps(KEPT))
    again = sp.profile_model(module, IMAGE, depth=2, measure=True, repeats=2, cache=tmp_path)
    assert {(one.forward, one.backward, one.stash) for one in again.layers} == {(7, 8, 9)}
    assert {one.backward_temporary for one in again.layers} == {11}
    next(tmp_path.iterdir()).write_text("{")
    sp.profile_model(module, IMAGE, depth=2, measure=True, repeats=2, cache=tmp_path)


def test_memory_of_both_passes_is_measured() -> None:
    """Of a product: what it reads and writes; the slope that comes, those of its weights."""
    module = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 20))
    profile = sp.profile_model(module, (torch.randn(5, 40),), measure=True, repeats=1)
    first, second = profile.layers
    assert (first.temporary, second.temporary) == (4 * 5 * (40 + 30), 4 * 5 * (30 + 20))
    assert first.backward_temporary == 4 * (5 * 30 + 41 * 30)
    assert second.backward_temporary == 4 * (5 * 20 + 31 * 20 + 5 * 30)
    assert (first.stash, second.stash) == (4 * 5 * 40, 4 * 5 * 30)
    assert all(p.grad is None for p in module.parameters())
    machine = sp.Cluster.uniform(1)
    profile = msgspec.structs.replace(profile, training=None)  # of both, as to its exclusive bytes
    for training, least in ((False, first.temporary), (True, first.backward_temporary)):
        chain = sp.PipelinePartition.from_profile(profile, machine, training=training)
        assert chain.temporary[0] == least


def test_a_measured_profile_is_partitioned(capsys: pytest.CaptureFixture[str]) -> None:
    profile = sp.profile_model(
        models.encoder(), TOKENS, measure=True, repeats=1, depth=2, progress=True, training=True
    )
    chain = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(2))
    assert chain.training
    assert sp.solve(chain).status is sp.Status.OPTIMAL
    assert "measur" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "inputs", "words"),
    [
        (
            lambda: torch.nn.Sequential(torch.nn.Linear(3, 3), models.Branches()),
            (torch.randn(2, 3),),
            "module 1: cannot be traced: .*data-dependent",
        ),
        (lambda: torch.nn.Linear(3, 3), (torch.randn(2, 4),), "module Linear: cannot be traced"),
        (
            lambda: torch.nn.Sequential(torch.nn.Linear(3, 3)),
            (torch.randn(2, 3, device="meta"),),
            "module 0: cannot be traced: .* devices?",
        ),
        (lambda: torch.nn.Identity(), (torch.randn(2),), "module: runs no operators"),
        (lambda: torch.nn.Linear(3, 3), torch.randn(2, 3), "sample_inputs: is no tuple"),
    ],
)
def test_what_cannot_be_traced_is_told_with_the_layer(make: Any, inputs: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.profile_model(make(), inputs)


def test_operators_on_lists_are_counted() -> None:
    profile = sp.profile_model(models.Around(), (torch.randn(2, 8),))
    assert names(profile) == ["first", "second", "third"]


def test_operators_of_unknown_operations_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Each with how often it runs and all values that it reads and writes."""
    inputs = (torch.randn(2, 4, 8),)
    profile = sp.profile_model(models.Unknown(), inputs)
    told = [record.getMessage() for record in caplog.records if record.name == "stagepack"]
    assert len(told) == 1
    assert told[0].endswith(f"read and write: 2 x aten.sort.default ({2 * 3 * 64} values)")
    network = counting.network_of(tracing.trace(models.Unknown(), inputs, {}))
    recurrent, product = 2 * 8 * 2 * (32 * 8), 2 * 2 * 4 * 4 * 8
    assert sum(block.flops for block in network.blocks) == recurrent + product
    assert all(layer.forward > 0 for layer in profile.layers)
    caplog.clear()
    sp.profile_model(models.Unknown(), inputs, measure=True, repeats=1)
    sp.profile_model(models.ResNet(blocks=1), IMAGE)
    sp.profile_model(models.encoder(), TOKENS)
    assert not [record for record in caplog.records if record.name == "stagepack"]


@pytest.mark.parametrize(
    ("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1), ("LSTMCell", 4), ("GRUCell", 3)]
)
def test_recurrent_layers_multiply_every_row_by_their_weights(kind: str, gates: int) -> None:
    single = kind.endswith("Cell")
    alone.require_version(None if single else (2, 13))
    more = {} if single else {"num_layers": 2, "bidirectional": True}
    module = getattr(torch.nn, kind)(5, 6, **more)
    traced = tracing.trace(module, (torch.randn(3, 5) if single else torch.randn(7, 3, 5),), {})
    weights = gates * 6 * (5 + 6) if single else 2 * gates * 6 * (5 + 6 + 12 + 6)
    rows = 3 if single else 7 * 3
    assert sum(block.flops for block in counting.network_of(traced).blocks) == 2 * rows * weights


def test_what_runs_without_gradients_takes_its_memory() -> None:
    """Its inner tensors are alive there, but none of them is kept."""
    traced = tracing.trace(models.Apart(), (torch.randn(64, 4),), {})
    (block,) = counting.network_of(traced).blocks
    assert block.flops == 2 * 2 * 64 * 64 * 4
    assert block.scratch >= 2 * 4 * 64 * 64  # two products
    assert block.saved <= 2 * 4 * 64 * 4


def test_pointwise_work_is_counted_by_values() -> None:
    traced = tracing.trace(models.Pointwise(), (torch.randn(3, 5),), {})
    (block,) = counting.network_of(traced).blocks
    assert block.flops == 0
    assert block.values == 15 * (1 + 1 + 1 + 1 + 1 + 3)  # two, a sum, a sum along rows, a product


@pytest.mark.parametrize(
    ("make", "inputs"), [(lambda: models.Branches(), (torch.randn(2, 3),)),
                         (lambda: torch.nn.Linear(3, 3), (torch.randn(2, 4),))]
)  # fmt: skip
def test_torch_says_nothing_before_a_refusal(
    make: Any, inputs: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a module itself writes is shown."""
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    ear = Ear()
    loggers = [
        logging.getLogger(f"torch.{name}")
        for name in ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes", "export")
    ]
    for logger in loggers:
        logger.addHandler(ear)
    module = make()
    module.register_forward_pre_hook(lambda *_: print("own words", file=sys.stderr))
    try:
        with pytest.raises(InputError, match="cannot be traced"):
            sp.profile_model(module, inputs)
        assert (ear.heard, capsys.readouterr().err) == ([], "own words\n")
        loggers[0].warning("heard")
    finally:
        for logger in loggers:
            logger.removeHandler(ear)
    assert ear.heard == ["heard"]


def test_what_torch_logs_is_shown_once_a_module_is_traced() -> None:
    ear, logger = Ear(), logging.getLogger("torch.export")
    logger.addHandler(ear)
    try:
        sp.profile_model(models.Logs(), (torch.randn(2),))
    finally:
        logger.removeHandler(ear)
    assert ear.heard == ["while it is traced"]


def test_nothing_is_measured_in_no_repeats() -> None:
    with pytest.raises(InputError, match="repeats: 0 repeats"):
        sp.profile_model(models.ResNet(), IMAGE, depth=1, measure=True, repeats=0)


def test_modules_are_planned_directly() -> None:
    net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
    inputs = (torch.zeros(2, 8),)
    said: dict[str, Any] = {"training": True, "microbatches": 3}
    plan = sp.plan_model(net, "generic-2", sample_inputs=inputs, **said)
    assert plan.check() == ()
    profile = sp.profile_model(net, inputs, machine="generic-2", training=True)
    same = sp.plan_model(profile, "generic-2", **said)
    assert (plan.objective, plan.bound) == (same.objective, same.bound)
    with pytest.raises(InputError, match="sample_inputs"):
        sp.plan_model(net, "generic-2")


def test_a_profile_becomes_every_kind_that_is_made_of_layers() -> None:
    profile = sp.profile_model(models.encoder(layers=1), TOKENS, machine="ipu-pod2", training=True)
    kinds: Any = (sp.PipelinePartition, sp.GraphPartition, sp.PipelineSchedule, sp.PhaseSchedule,
                  sp.LmemPacking)  # fmt: skip
    made = [kind.from_profile(profile, "ipu-pod2") for kind in kinds]
    assert [instance.name for instance in made] == [profile.name] * len(kinds)
    cycles = [2 * layer.forward for layer in profile.layers]
    assert made[0].backward.tolist() == made[3].backward.tolist() == cycles
    assert made[2].backward.sum() + made[2].weight.sum() == sum(cycles)
    own = made[0].cluster.devices[0].memory
    assert (made[3].chip.memory, made[4].capacity, made[1].capacity.tolist()) == (
        own, own, [own, own],
    )  # fmt: skip


def test_a_batch_of_no_samples_is_refused_and_an_empty_cache_is_not() -> None:
    class Cached(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(4, 4)

        def forward(self, x: Any, past: Any) -> Any:
            return self.last(torch.cat([past, x], 1))

    with pytest.raises(InputError, match=r"hold no values: \(0, 3, 4\), \(0, 2, 4\); give"):
        sp.profile_model(Cached(), (torch.zeros(0, 3, 4), torch.zeros(0, 2, 4)))
    assert sp.profile_model(Cached(), (torch.ones(1, 3, 4), torch.zeros(1, 0, 4))).layers


def test_a_profile_is_of_inference_unless_training_is_said() -> None:
    """As is everything else; instances are what the profile's bytes are of."""
    net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
    asked: list[tuple[dict[str, Any], bool]] = [({}, False), ({"training": True}, True)]
    for said, trains in asked:
        profile = sp.profile_model(net, (torch.zeros(2, 8),), **said)
        assert ("gradients" in profile.layers[0].exclusive) == trains
        chain = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(2))
        assert chain.training == trains
        first = str(sp.solve(chain)).splitlines()[0]
        assert ("training with" if trains else ", inference, ") in first
        with pytest.raises(InputError, match=f"training: is {not trains}, but the profile has"):
            sp.GraphPartition.from_profile(profile, sp.Cluster.uniform(2), training=not trains)
