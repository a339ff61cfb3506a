"""A program that lacks anything, or mixes anything up, is found out."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.execution.execute import execute
from stagepack.instances.phases.execution.program import program


def rich() -> tuple[PhaseSchedule, PhaseSolution]:
    """Return an instance and a plan with every kind of operation."""
    instance = PhaseSchedule.from_arrays(
        [4, 6, 8, 10, 12],
        [3, 4, 5, 6, 7],
        [3, 5, 7, 7, 9, 2],
        backward=[6, 8, 10, 12, 14],
        update=[1, 1, 2, 1, 1],
        state=[2, 3, 4, 5, 6],
        tape=[1, 2, 3, 4, 5],
        temporary=[1, 1, 1, 9, 1],
        sharding=[1, 2, 1, 3, 1],
        skips=[(0, 2), (1, 4)],
        gather_bandwidth=1,
        remote_bandwidth=2,
        host_bandwidth=1,
        tiles=8,
        io_tiles=(1, 2),
        modes=["io"],
        training=True,
        policies=["stash", "keep", "recompute"],
        prefetch=True,
        steps=2,
        memory=1000,
    )
    solution = PhaseSolution(
        (0, 2, 3, 5),
        ("io",) * 5,
        1,
        1,
        ("recompute", "keep", "stash", "stash", "recompute"),
        None,
        (True, False, True, True, False),
    )
    assert instance.check(solution) == ()
    return instance, solution


def lists(data: Any) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    for index, phase in enumerate(data["phases"]):
        for name in ("before", "after"):
            yield (index, name), phase[name]
        for name in ("beside", "body"):
            yield (index, "loop", name), phase["loop"][name]


def test_programs_are_json() -> None:
    instance, solution = rich()
    data = program(instance, solution)
    assert json.loads(json.dumps(data)) == data
    kinds = {op["op"] for _, ops in lists(data) for op in ops}
    assert kinds == {
        "load", "store", "gather", "allocate", "compute", "reduce", "update", "free",
    }  # fmt: skip
    assert execute(instance, data).errors == []
    assert execute(instance, data).cycles == instance.evaluate(solution)


def test_every_operation_matters() -> None:
    instance, solution = rich()
    data = program(instance, solution)
    right = execute(instance, data)
    for (index, *path), ops in lists(data):
        for at, op in enumerate(ops):
            wrong = copy.deepcopy(data)
            where = wrong["phases"][index]
            for name in path:
                where = where[name]
            del where[at]
            assert execute(instance, wrong) != right, (index, path, op)


@pytest.mark.parametrize("steps", [[0], [0, 1]])
def test_rows_that_two_tensors_share_are_found(steps: Any) -> None:
    instance, solution = rich()
    data = program(instance, solution)
    for phase in data["phases"]:
        for op in phase["loop"]["body"]:
            for place in (op.get("from", {}), op.get("to", {})):
                if place.get("buffer") == "buffer_7":
                    place["index"] = "0*2+step"
    errors = execute(instance, data, steps).errors
    assert any("was overwritten by" in error for error in errors)


def test_operations_in_another_order_are_found() -> None:
    instance, solution = rich()
    data = program(instance, solution)
    for phase in data["phases"]:
        body = phase["loop"]["body"]
        computes = [at for at, op in enumerate(body) if op["op"] == "compute"]
        for one, other in itertools.pairwise(computes):
            if body[one]["layer"] == body[other]["layer"] and body[other]["what"] == "recompute":
                continue  # the same work twice
            wrong = copy.deepcopy(data)
            swapped = wrong["phases"][data["phases"].index(phase)]["loop"]["body"]
            swapped[one], swapped[other] = swapped[other], swapped[one]
            assert execute(instance, wrong).errors


def test_a_step_of_another_is_found() -> None:
    instance, solution = rich()
    data = program(instance, solution)
    body = data["phases"][1]["loop"]["body"]
    load = next(op for op in body if op["op"] == "load" and "buffer" in op["from"])
    load["from"]["index"] = load["from"]["index"].replace("*2+", "*1+")
    errors = execute(instance, data).errors
    assert any("there is no entry" in error for error in errors)
