"""The phase schedules of the catalog: figures by hand, and memories between two known plans."""

from __future__ import annotations

from typing import Any

import pytest

from stagepack import catalog
from stagepack.catalog.phases import GENERATORS
from stagepack.errors import InputError
from stagepack.instances.phases import Mode, PhaseSchedule, PhaseSolution, Policy
from stagepack.instances.phases.chips import GC200
from stagepack.instances.phases.least import infeasibility
from stagepack.instances.phases.plan import plan


def load(name: str, **parameters: Any) -> PhaseSchedule:
    instance = catalog.load(f"phases/{name}", **parameters)
    assert isinstance(instance, PhaseSchedule)
    return instance


def alone(instance: PhaseSchedule, mode: str = "compute", io_tiles: int = 0) -> PhaseSolution:
    """Return the plan of a layer a phase, everything stashed."""
    n, trained = instance.n, instance.training
    return PhaseSolution(
        tuple(range(n + 1)),
        (mode,) * (2 * n - 1 if trained else n),
        io_tiles,
        instance.microbatches[0],
        ("stash",) * n if trained else (),
    )


@pytest.mark.parametrize("name", GENERATORS)
def test_no_layer_is_too_large(name: str) -> None:
    assert infeasibility(load(name)) == ""


def test_the_chip_has_the_published_figures() -> None:
    assert (GC200.tiles, GC200.memory) == (1472, 900_000_000)
    # 250 TFLOP/s in half precision at 64 multiply-accumulates a tile and cycle.
    assert GC200.tiles * 64 * 2 * float(GC200.clock) == pytest.approx(250e12, rel=1e-3)
    assert float(GC200.remote_bandwidth or 0) * float(GC200.clock) == pytest.approx(15.75e9, 1e-3)
    assert float(GC200.host_bandwidth or 0) * float(GC200.clock) == pytest.approx(3.125e9, 1e-3)
    assert tuple(GC200.io_tile_choices) == (0, *range(32, 193, 2))


@pytest.mark.parametrize("name", ["bert-base", "bert-large", "gpt2-small"])
def test_networks_have_the_layers_of_the_pipelines(name: str) -> None:
    instance = load(name)
    shape = {key: GENERATORS[name].parameters[key] for key in ("batch", "sequence")}
    pipeline = catalog.load(f"pipeline/{name}", training=True, **shape)
    assert instance.n == pipeline.n
    assert instance.forward.tolist() == pipeline.forward.tolist()
    assert instance.variables.tolist() == pipeline.exclusive["parameters"].tolist()
    assert instance.state.tolist() == pipeline.exclusive["optimiser state"].tolist()
    # Attention and feed-forward blocks repeat: the classes are few.
    assert len(set(instance.layer_class.tolist())) <= 5
    assert instance.check(alone(instance)) == ()
    assert instance.check(alone(instance, "io", 64)) == ()


def test_bert_large_does_not_train_in_one_phase() -> None:
    instance = load("bert-large")
    whole = PhaseSolution(
        (0, instance.n), ("compute",), 0, instance.microbatches[0], ("stash",) * instance.n
    )
    assert [violation.rule for violation in instance.check(whole)] == ["memory"]


def test_a_free_microbatch_scales_what_grows_with_it() -> None:
    free, given = load("bert-base", free_batch=True), load("bert-base")
    assert free.global_batch == given.global_batch == 256
    assert given.microbatches == (16,)
    one, other = free.at(16), given.at(16)
    assert one.steps == other.steps == 16
    # All but the loss, a number that does not grow with the batch in the network.
    assert one.activations.tolist()[:-1] == other.activations.tolist()[:-1]
    assert one.tape.tolist() == other.tape.tolist()


def test_replicas_shard() -> None:
    instance = load("gpt2-small", data_parallel=4, modes="io", policies="keep,recompute")
    assert set(instance.sharding.tolist()) == {4}
    assert instance.data_parallel == 4
    assert instance.modes == (Mode.IO,)
    assert instance.policies == (Policy.KEEP, Policy.RECOMPUTE)
    assert instance.at(4).steps == 16
    with pytest.raises(InputError, match="unknown modes 'fast'"):
        load("gpt2-small", modes="fast")


def test_mnist_by_hand() -> None:
    instance = load("mnist")
    assert instance.variables.tolist() == [785 * 512 * 4, *[513 * 512 * 4] * 2, 513 * 10 * 4]
    assert instance.activations.tolist() == [8 * width * 4 for width in (784, 512, 512, 512, 10)]
    assert instance.fixed_boundaries == (0, 1, 2, 3, 4)
    solution = alone(instance, "io", 32)
    assert instance.check(solution) == ()
    drawn = plan(instance, solution)
    assert len(drawn.phases) == 7
    assert instance.global_batch == 64


def test_six_layers() -> None:
    instance = load("six-layers")
    values = {}
    for cut in (2, 3):
        solution = PhaseSolution((0, cut, 6), ("compute",) * 2)
        assert instance.check(solution) == ()
        values[cut] = instance.evaluate(solution)
    assert values == {2: 356, 3: 404}


@pytest.mark.parametrize("name", ["random/chain-remat", "random/skip-remat"])
@pytest.mark.parametrize("layers", [1, 5, 40])
def test_remat_lies_between_checkpoints_and_keeping_all(name: str, layers: int) -> None:
    most, least = load(name, layers=layers, budget=1), load(name, layers=layers, budget=0)
    assert most.replace(memory=1).digest == least.replace(memory=1).digest
    keep = PhaseSolution((0, layers), ("compute",), policy=("keep",) * layers)
    assert most.check(keep) == ()
    (part,) = plan(most, keep).phases
    assert part.peak == most.chip.memory
    if layers == 40:
        assert least.chip.memory is not None
        assert most.chip.memory is not None
        assert least.chip.memory < most.chip.memory
        assert [v.rule for v in least.check(keep)] == ["memory"]
    periods = range(2, 2 * layers + 3)
    checkpoints = (
        tuple("keep" if at % p == p - 1 else "recompute" for at in range(layers)) for p in periods
    )
    plans = [PhaseSolution((0, layers), ("compute",), policy=p) for p in checkpoints]
    assert any(least.check(plan) == () for plan in [keep, *plans])
    assert bool(least.skips) == (name == "random/skip-remat" and layers > 1)


def test_random_instances_take_what_they_are_given() -> None:
    instance = load("random/heterogeneous", layers=12, seed=3, slack=0, training=False)
    assert instance.n == 12
    assert instance.policies == (Policy.STASH,)
    assert instance.check(alone(instance)) == ()
    assert (
        instance.digest
        == load("random/heterogeneous", layers=12, seed=3, slack=0, training=False).digest
    )
    assert instance.digest != load("random/heterogeneous", layers=12, seed=4).digest
