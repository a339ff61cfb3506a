"""Constructors, what follows from the fields, and refusals by the name of the field."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.phases import Mode, PhaseSchedule, Policy
from stagepack.instances.profile import Chip, LayerProfile, ModelProfile
from tests.instances.phases.examples import two_layers
from tests.random_phases import random_phases


def free(**changes: Any) -> PhaseSchedule:
    return PhaseSchedule.from_arrays(
        [1, 2],
        [3, 4],
        [5, 6, 7],
        backward=[1, 1],
        tape=[1, 0],
        temporary=[2, 2],
        forward_fixed=[10, 20],
        temporary_fixed=[100, 200],
        global_batch=24,
        data_parallel=2,
        **changes,
    )


def test_a_free_microbatch_divides_the_batch_of_a_replica() -> None:
    instance = free()
    assert instance.microbatches == (1, 2, 3, 4, 6, 12)
    figures = instance.at(3)
    assert figures.steps == 4
    assert figures.forward.tolist() == [19, 32]
    assert figures.temporary.tolist() == [106, 206]
    assert figures.activations.tolist() == [15, 18, 21]
    assert figures.tape.tolist() == [3, 0]
    with pytest.raises(InputError, match="5 samples are not allowed"):
        instance.at(5)


def test_steps_and_batches_determine_each_other() -> None:
    assert two_layers(steps=4).global_batch == 4
    assert two_layers(steps=4, microbatch=3, data_parallel=2).global_batch == 24
    by_batch = two_layers(steps=None, microbatch=3, global_batch=24, data_parallel=2)
    assert by_batch.at(3).steps == 4
    assert two_layers(steps=None).at(1).steps == 1
    assert two_layers(steps=4).replace(steps=7).at(1).steps == 7
    assert two_layers(steps=4).replace(microbatch=2).at(2).steps == 2


def test_skips_say_who_reads_what() -> None:
    instance = PhaseSchedule.from_arrays(
        [0] * 4, [1] * 4, [1] * 5, skips=[(0, 3), (-1, 2), (1, 2), (0, 3)]
    )
    assert instance.skips == ((-1, 2), (0, 3))  # (1, 2) is the chain itself
    assert instance.readers == ((0, 2), (1, 3), (2,), (3,), ())
    assert instance.reads == ((0,), (1,), (0, 2), (1, 3))
    assert not instance.chain


def test_io_tiles_and_modes_go_together() -> None:
    chip = Chip(tiles=20, io_tiles=(4, 11), io_tile_step=3, io_tiles_optional=True)
    both = two_layers(chip=chip, modes=list(Mode))
    assert tuple(both.io_tile_choices) == (0, 4, 7, 10)
    assert both.modes_with(0) == (Mode.NAIVE, Mode.COMPUTE)
    assert both.modes_with(7) == (Mode.IO, Mode.IO_OVERLAPPED)
    assert tuple(both.replace(modes=["io"]).io_tile_choices) == (4, 7, 10)
    assert tuple(both.replace(modes=["naive"]).io_tile_choices) == (0,)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"variables": []}, "layers"),
        ({"variables": [1.5, 2]}, "variables"),
        ({"forward": [1]}, "forward"),
        ({"forward": [1, -1]}, "forward"),
        ({"activations": [1, 2]}, "activations"),
        ({"activations": [1, float("nan"), 2]}, "activations"),
        ({"tape": [2**62, 0]}, "tape"),
        ({"sharding": [0, 1]}, "sharding"),
        ({"skips": [(1, 1)]}, "skips[0]"),
        ({"skips": [(0, 2)]}, "skips[0]"),
        ({"skips": [(1, 0)]}, "skips[0]"),
        ({"skips": [3]}, "skips[0]"),
        ({"modes": ["quick"]}, "modes"),
        ({"modes": []}, "modes"),
        ({"modes": ["io"]}, "modes"),  # without I/O tiles
        ({"policies": ["forget"]}, "policies"),
        ({"objective": "space"}, "objective"),
        ({"recomputations": -1}, "recomputations"),
        ({"recomputations": 1.5}, "recomputations"),
        ({"graphs": -1}, "graphs"),
        ({"fixed_boundaries": [0, 1]}, "fixed_boundaries"),
        ({"fixed_boundaries": [0, 2, 1, 2]}, "fixed_boundaries"),
        ({"steps": 0}, "steps"),
        ({"microbatch": 0}, "microbatch"),
        ({"data_parallel": 0}, "data_parallel"),
        ({"steps": None, "global_batch": 7, "microbatch": 2}, "global_batch"),
        ({"steps": 3, "global_batch": 7, "microbatch": 2}, "steps"),
        ({"forward_fixed": [1, 1]}, "forward_fixed"),
        ({"remote_bandwidth": 0}, "chip.remote_bandwidth"),
        ({"remote_bandwidth": float("inf")}, "chip.remote_bandwidth"),
        ({"remote_bandwidth": "fast"}, "chip.remote_bandwidth"),
        ({"tiles": 4, "io_tiles": (2, 4)}, "chip.io_tiles"),
        ({"tiles": 4, "io_tiles": (3, 2)}, "chip.io_tiles"),
        ({"memory": -1}, "chip.memory"),
        ({"layer_names": ["a"]}, "layer_names"),
        ({"activations": [2**60, 2**60, 0], "steps": 64}, "activations"),
        ({"forward": [2**61, 2**61]}, "forward"),
        ({"activations": [2**55, 1, 1], "remote_bandwidth": 1e-6}, "forward"),
    ],
)
def test_refusals_name_the_field(changes: Any, field: str) -> None:
    with pytest.raises(InputError) as refusal:
        two_layers(**changes)
    assert refusal.value.field == field
    assert refusal.value.remedy


def test_replace_takes_fields_of_the_chip() -> None:
    instance = two_layers()
    changed = instance.replace(memory=77, policies=["keep"])
    assert (changed.chip.memory, changed.policies) == (77, (Policy.KEEP,))
    assert changed.replace(memory=100, policies=list(Policy)).digest == instance.digest
    with pytest.raises(InputError, match="is no field of a PhaseSchedule"):
        instance.replace(colour=1)


@pytest.mark.parametrize("clock", [10**9, 1e9, 1.5e9])
def test_files_keep_the_fingerprint_of_a_chip(clock: float, tmp_path: Path) -> None:
    given = two_layers().replace(clock=clock)
    sp.write(given, tmp_path / "phases.json")
    assert sp.read(tmp_path / "phases.json").digest == given.digest


def test_digest_and_pickle() -> None:
    instance = two_layers(layer_names=["a", "b"], name="x")
    assert instance.replace(name="y", layer_names=None, source="z").digest == instance.digest
    for changes in ({"tape": [3, 4]}, {"skips": [(-1, 1)]}, {"memory": 99}, {"steps": 3}):
        assert instance.replace(**changes).digest != instance.digest
    assert pickle.loads(pickle.dumps(instance)).digest == instance.digest


@pytest.mark.parametrize("seed", range(8))
def test_random_instances_survive_replace(seed: int) -> None:
    instance = random_phases(seed)
    assert instance.replace().digest == instance.digest


def test_a_profile_becomes_layers_and_skips() -> None:
    layer: Any = {"forward": 5, "backward": 9, "temporary": 40}
    profile = ModelProfile(
        layers=(
            LayerProfile(
                inputs=("in",), outputs=("a", "b"), exclusive={"parameters": 7}, stash=9, **layer
            ),
            LayerProfile(inputs=("a",), outputs=("c",), exclusive={"optimiser state": 3}, **layer),
            LayerProfile(inputs=("b", "c", "mask"), outputs=("d",), stash=30, **layer),
        ),
        tensors={"in": 4, "mask": 1, "a": 10, "b": 20, "c": 6, "d": 2},
    )
    instance = PhaseSchedule.from_profile(profile, Chip(memory=10), training=True)
    assert instance.variables.tolist() == [7, 0, 0]
    assert instance.state.tolist() == [0, 3, 0]
    assert instance.activations.tolist() == [5, 30, 6, 2]
    assert instance.skips == ((-1, 2), (0, 2))
    # What is stashed beyond the inputs: 9 - 4, nothing, 30 - 27.
    assert instance.tape.tolist() == [5, 0, 3]
    # Temporary bytes without outputs and inputs that end there: 40 - 34, 40 - 16, 40 - 29.
    assert instance.temporary.tolist() == [6, 24, 11]
    assert np.array_equal(instance.backward, [9, 9, 9])


@pytest.mark.parametrize(
    ("field", "value"), [("skips", 3), ("fixed_boundaries", 2), ("chip", 5), ("io_tiles", 3)]
)
def test_what_is_no_list_or_chip_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=field):
        PhaseSchedule.from_arrays([1], [1], [1, 1], **{field: value})
