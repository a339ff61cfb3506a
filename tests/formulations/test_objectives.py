"""Models refuse objectives that they do not state, rather than to minimise something else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack import kinds
from stagepack.errors import InputError
from stagepack.formulations import graph, groups, packing, phases, pipeline, schedule
from stagepack.heuristics.groups.dp import Partition
from stagepack.heuristics.phases.options import group_options
from stagepack.instances.graph.compact import Compact
from stagepack.instances.groups import GroupingSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.verify import verify
from tests.instances.groups.networks import block
from tests.random_graphs import random_instance as random_graph
from tests.random_phases import random_phases
from tests.random_schedules import random_schedule


class Future(str):
    """An objective that nothing here knows by its name."""

    counts_transfers, additive = True, False


def unknown(instance: Any) -> Any:
    """Return a copy with an objective of the future."""
    other = copy.copy(instance)
    for kept in [name for name in vars(other) if name.startswith("_")]:
        object.__delattr__(other, kept)
    object.__setattr__(other, "objective", Future("of-the-future"))
    return other


def chain() -> sp.PipelinePartition:
    return sp.PipelinePartition.from_arrays([5, 1, 4], devices=2, in_bytes=[1] * 4)


def buffers() -> sp.LmemPacking:
    return sp.LmemPacking.from_arrays(start=[0, 1], end=[2, 3], size=[4, 4])


def network() -> Any:
    return block()


def on_compact(model: Any) -> Callable[[Any], Any]:
    drawn = random_graph(np.random.default_rng(1), 4, objective="sum", cpus=0, accelerators=2)
    compact = Compact.of(drawn)

    def build(instance: Any) -> Any:
        object.__setattr__(compact, "objective", instance.objective)
        return model(compact)

    return build


def with_tables(instance: Any, model: Any) -> Any:
    known = copy.copy(instance)
    object.__setattr__(known, "objective", "time")
    table = group_options(known, known.microbatches[0], known.io_tile_choices[0])
    return model(instance, table)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "pipeline cp-sat": (chain, lambda x: pipeline.CpSat(RangeCosts(x))),
    "pipeline interval": (chain, lambda x: pipeline.MilpInterval(RangeCosts(x))),
    "pipeline assignment": (chain, lambda x: pipeline.MilpAssignment(RangeCosts(x))),
    "packing cp-sat": (buffers, packing.CpSat),
    "packing milp": (buffers, packing.Milp),
    "graph cp-sat": (chain, on_compact(graph.CpSat)),
    "graph milp": (chain, on_compact(graph.Milp)),
    "schedule cp-sat": (lambda: random_schedule(3), schedule.CpSat),
    "phases cp-sat": (lambda: random_phases(1), lambda x: with_tables(x, phases.CpSat)),
    "phases milp": (lambda: random_phases(1), lambda x: with_tables(x, phases.Milp)),
    "groups milp": (network, lambda x: groups.Milp(Partition(x, lambda: True))),
    "groups cp-sat": (network, lambda x: groups.CpSat(x, GroupingSolution((0, x.n), ()), 0)),
}


SMALL: dict[str, Callable[[], Any]] = {
    "pipeline-partition": chain,
    "lmem-packing": buffers,
    "graph-partition": lambda: random_graph(np.random.default_rng(1), 4, objective="sum"),
    "pipeline-schedule": lambda: random_schedule(3),
    "phase-schedule": lambda: random_phases(1),
    "layer-grouping": network,
}


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_no_method_takes_an_objective_that_its_bounds_do_not_know(kind: str) -> None:
    """Nor does the verifier: what is new is refused by all until somebody has thought of it."""
    known = SMALL[kind]()
    other = unknown(known)
    for method in kinds.part(kind, "methods").METHODS:
        assert method.unsupported(other) == "knows no objective of-the-future"
        with pytest.raises(InputError, match=r"knows no objective|of-the-future"):
            sp.solve(other, method.name)
    result = sp.solve(known, time_limit=5, options={"proof": True})
    evidence = None if result.evidence is None else dict(result.evidence)
    assert not verify(other, result.bound, result.proof, evidence).shown
    assert not verify(other, 1).shown


@pytest.mark.parametrize("name", MODELS)
def test_an_objective_that_a_model_does_not_know_is_refused(name: str) -> None:
    make, build = MODELS[name]
    with pytest.raises((AssertionError, InputError), match="of-the-future"):
        build(unknown(make()))
