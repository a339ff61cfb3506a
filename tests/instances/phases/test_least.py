"""Why nothing fits, and the memory that would do: against brute force."""

from __future__ import annotations

import pytest

from stagepack.claims.every.phases import space
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.phases.least import infeasibility, least_memory
from tests.instances.phases.examples import two_layers
from tests.random_phases import brute_force, random_phases


def test_the_reason_names_layer_moment_and_bytes() -> None:
    instance = two_layers(memory=60, layer_names=["first", "second"])
    # Backward of layer 1: variables and gradients 40, x_1 8, tape 5, dx_1 8, temporary 1.
    assert infeasibility(instance) == (
        "layer 1 (second) alone needs 62 bytes on chip at its backward pass, 2 more than the 60 "
        "there are; 62 bytes of memory would do"
    )
    assert infeasibility(instance.replace(memory=62)) == ""
    assert infeasibility(instance.replace(memory=None)) == ""


def test_io_tiles_take_their_share() -> None:
    instance = two_layers(memory=62, tiles=10, io_tiles=(2, 4), modes=["io"])
    assert "with 2 I/O tiles" in infeasibility(instance)
    assert least_memory(instance).memory == 78  # eight tenths of it are 62
    assert infeasibility(instance.replace(memory=78)) == ""
    assert infeasibility(instance.replace(memory=77))


def test_other_reasons() -> None:
    assert "remote memory, 1 more" in infeasibility(two_layers(remote_memory=39))
    assert infeasibility(two_layers(remote_memory=40)) == ""
    assert "no" in infeasibility(two_layers(graphs=0))
    free = PhaseSchedule.from_arrays([0], [1], [4, 4], global_batch=8, memory=7)
    assert "with microbatches of 1" in infeasibility(free)
    fixed = two_layers(fixed_boundaries=(0, 2), memory=10)
    assert "in its group" in infeasibility(fixed)


@pytest.mark.parametrize("seed", range(50))
def test_reasons_are_right_and_memories_would_do(seed: int) -> None:
    instance = random_phases(seed, layers=(1, 3))
    if space(instance) > 200:
        return
    if infeasibility(instance):
        assert brute_force(instance)[0] is None
    least = least_memory(instance)
    if least.reached:
        assert brute_force(instance.replace(memory=least.memory))[0] is not None
    if least.memory:
        less = instance.replace(memory=least.memory - 1)
        assert infeasibility(less)
        assert brute_force(less)[0] is None
