from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack import catalog
from stagepack.errors import InputError
from stagepack.formats import door, native, solutions
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from tests.formats.test_door import mutated
from tests.formats.test_native import saved
from tests.instances.phases.examples import two_groups, two_layers
from tests.random_phases import random_phases, random_plan

BY_HAND: dict[str, Any] = {
    "problem": "phase-schedule",
    "version": 1,
    "name": "two",
    "training": True,
    "policies": ["keep", "stash"],
    "modes": ["io", "io_overlapped"],
    "steps": 4,
    "microbatch": 2,
    "skips": [[-1, 1]],
    "chip": {"memory": 100, "tiles": 8, "io_tiles": [1, 2], "remote_bandwidth": 2.5},
    "input": 6,
    "layers": [
        {"forward": 3, "output": 8, "variables": 10, "tape": 2, "backward": 6, "name": "first"},
        {"forward": 4, "output": 1, "state": 20, "sharding": 2, "update": 1},
    ],
}
COLUMNS: dict[str, Any] = {
    "problem": "phase-schedule",
    "version": 1,
    "global_batch": 12,
    "data_parallel": 2,
    "chip": {"memory": 100},
    "layers": {
        "variables": [1, 2],
        "forward": [3, 4],
        "activations": [5, 6, 7],
        "forward_fixed": [8, 9],
        "layer_class": [1, 1],
        "names": ["a", "b"],
    },
}


def altered(base: dict[str, Any] = BY_HAND, **changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}


def layer(**changes: Any) -> dict[str, Any]:
    """Return the document by hand with its second layer changed."""
    return altered(layers=[BY_HAND["layers"][0], altered(BY_HAND["layers"][1], **changes)])


def test_layers_by_hand(tmp_path: Path) -> None:
    instance = door.read(saved(tmp_path, BY_HAND))
    assert isinstance(instance, PhaseSchedule)
    assert instance.activations.tolist() == [6, 8, 1]
    assert instance.layer_names == ("first", "layer 1")
    assert instance.sharding.tolist() == [1, 2]
    assert instance.layer_class.tolist() == [0, 1]
    assert instance.skips == ((-1, 1),)
    assert [str(word) for word in instance.policies] == ["stash", "keep"]
    assert (instance.microbatches, instance.at(2).steps) == ((2,), 4)
    assert tuple(instance.io_tile_choices) == (1, 2)


def test_columns(tmp_path: Path) -> None:
    instance = door.read(saved(tmp_path, COLUMNS))
    assert instance.microbatches == (1, 2, 3, 6)
    assert instance.at(3).forward.tolist() == [17, 21]
    assert instance.layer_names == ("a", "b")
    assert instance.layer_class.tolist() == [1, 1]


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    instance = random_phases(seed)
    path = tmp_path_factory.mktemp("native") / "phases.json.gz"
    door.write(instance, path)
    again = door.read(path, kind="phase-schedule")
    assert again.digest == instance.digest
    assert again.name == instance.name


@pytest.mark.parametrize("name", ["phases/mnist", "phases/bert-base", "phases/random/skip-remat"])
def test_the_catalog_survives_a_file(name: str, tmp_path: Path) -> None:
    instance = catalog.load(name)
    door.write(instance, tmp_path / "x.json")
    again = door.read(tmp_path / "x.json")
    assert (again.digest, again.layer_names) == (instance.digest, instance.layer_names)
    assert again.source == instance.source


def test_context(tmp_path: Path) -> None:
    path = saved(tmp_path, BY_HAND)
    changed = door.read(path, capacity=50, training=False, objective="time")
    assert (changed.chip.memory, changed.training) == (50, False)
    with pytest.raises(InputError, match="do not understand 'devices'"):
        door.read(path, devices=3)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (altered(layers=[]), "layers"),
        (altered(layers=...), "layers"),
        (altered(chip=...), "chip"),
        (altered(input=...), "input"),
        (altered(COLUMNS, input=3), "input"),
        (altered(chip={"memory": -1}), "chip.memory"),
        (altered(chip={"memory": 1, "tiles": 0}), "chip.tiles"),
        (altered(chip={"remote_bandwidth": 0}), "chip.remote_bandwidth"),
        (altered(modes=["fast"]), "modes[0]"),
        (altered(policies=["drop"]), "policies[0]"),
        (altered(steps=0), "steps"),
        (altered(skips=[[1, 1]]), "skips[0]"),
        (altered(skips=[[1]]), "skips[0]"),
        (altered(graphs=-1), "graphs"),
        (altered(speed=1), "speed"),
        (layer(forward=...), "layers[1].forward"),
        (layer(tape=1.5), "layers[1].tape"),
        (layer(colour="red"), "layers[1].colour"),
        (layer(layer_class=3), "layers[0].layer_class"),
        (altered(COLUMNS, layers=altered(COLUMNS["layers"], names=["a"])), "layer_names"),
        (altered(COLUMNS, layers=altered(COLUMNS["layers"], tape=[1])), "tape"),
    ],
)
def test_refusals_name_the_field(document: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        door.read(saved(tmp_path, document))
    assert refusal.value.field == field
    assert refusal.value.file


@pytest.mark.parametrize("document", [BY_HAND, COLUMNS], ids=["by hand", "columns"])
@settings(max_examples=250)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 4))
def test_mutated_files(
    document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(mutated(json.dumps(document).encode(), seed, steps))
    refusal, instances = None, []
    try:
        instances = door.read_all(path)
    except InputError as error:
        refusal = error
    if refusal is not None:
        assert refusal.file == str(path)
        assert "\n" not in str(refusal)
    for instance in instances:
        assert len(instance.digest) == 16
        drawn = random_plan(instance, np.random.default_rng(seed))
        instance.check(drawn)
        if drawn.microbatch in instance.microbatches:
            assert 0 <= instance.evaluate(drawn) < 2**63


def test_schema_knows_every_field() -> None:
    schema = native.schema("phase-schedule")
    text = json.dumps(schema)
    for word in ("io_tile_step", "gather_bandwidth", "fixed_boundaries", "layer_class", "tape"):
        assert f'"{word}"' in text


# ---------------------------------------------------------------------- solutions


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_solutions(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    instance = random_phases(seed, recomputations=(1,))
    solution = random_plan(instance, np.random.default_rng(seed))
    path = tmp_path_factory.mktemp("solution") / "plan.json"
    solutions.write_solution(instance, solution, path)
    assert solutions.read_solution(path, instance) == solution
    assert solutions.read_solution(path) == solution


def test_solutions_inside_results(tmp_path: Path) -> None:
    instance = two_layers()
    result = {"digest": instance.digest, "solution": two_groups("keep").to_dict()}
    path = saved(tmp_path, result)
    assert solutions.read_solution(path, instance) == two_groups("keep")
    with pytest.raises(InputError, match="another instance"):
        solutions.read_solution(path, two_layers(steps=3))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"boundaries": [0, 3]}, "boundaries"),
        ({"mode": 3}, "mode"),
        ({"mode": ...}, "mode"),
        ({"speed": 3}, "speed"),
        ({"recompute": [1]}, "recompute[0]"),
    ],
)
def test_wrong_solutions(changes: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = saved(tmp_path, altered(two_groups().to_dict(), **changes))
    with pytest.raises(InputError) as refusal:
        solutions.read_solution(path, two_layers())
    assert refusal.value.field == field


def test_a_solution_of_phases_is_none_of_a_pipeline(tmp_path: Path) -> None:
    path = saved(tmp_path, two_groups().to_dict())
    with pytest.raises(InputError):
        solutions.read_solution(path, catalog.load("pipeline/bert-base"))
    assert isinstance(solutions.read_solution(path), PhaseSolution)
