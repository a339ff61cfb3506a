"""The function `plan_model`: chooses the levels of a plan by the type of the model.

A chain of layers is cut into stages (:mod:`.resident`), as is a graph (:mod:`.graphs`).  With
remote memory, stages that do not fit run in phases (:mod:`.phased`, :mod:`.phased_graphs`).  On
chips with local memory, the operators of a stage run in groups (:mod:`.grouped`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.evidence import VERIFIABLE, Proof
from stagepack.instances import clusters
from stagepack.instances.arrays import integer
from stagepack.instances.base import require_instance
from stagepack.instances.graph import GraphPartition
from stagepack.instances.graph.problem import Objective as GraphObjective
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.backward import Backward, backward, with_stash
from stagepack.instances.groups.chips import CHIPS
from stagepack.instances.groups.problem import Order
from stagepack.instances.groups.stage import as_chain, as_graph
from stagepack.instances.phases.chips import preset as remote_chip
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Chip, Cluster, ModelProfile
from stagepack.instances.schedule import PipelineSchedule
from stagepack.interrupts import Interrupts
from stagepack.planning import steps
from stagepack.planning.graphs import Graphs
from stagepack.planning.grouped import Grouped
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.phased import phased
from stagepack.planning.phased_graphs import phased_graph
from stagepack.planning.resident import Resident
from stagepack.planning.stages import require_one_each
from stagepack.result import Status
from stagepack.solve import require_time
from stagepack.stopping import Stop, heeding
from stagepack.verify import verify

if TYPE_CHECKING:
    from torch import nn

KIND = PipelinePartition.kind
"""The kind of instances that are planned for where nothing is said."""
GRAPH = GraphPartition.kind
"""That of graphs, which are cut as they are."""
GROUPS = LayerGrouping.kind
"""That of networks on chips with local memory."""
KINDS = (KIND, GRAPH, GROUPS)
DRAWN = PipelineSchedule.kind
"""The kind of the level that is the picture of a plan."""
LOCAL = tuple(CHIPS)
"""Names of chips with local memory."""
COUNTING = frozenset(
    {"kwargs", "depth", "basic_blocks", "measure", "machine", "state_bytes", "repeats", "cache"}
)
"""Options of :func:`stagepack.profile_model` that a module comes with."""
BOTH_PASSES = {"objective": GraphObjective.FORWARD_BACKWARD.value}
"""What graphs in training are asked for: a schedule has operations of both passes."""
NANOSECONDS = 1e9
SHOWING = 10.0
"""Seconds at most for what shows the bound of a plan, and no more than a question has; it is counts
of stages and schedules that end it, mostly within one."""
ONE_PASS = (
    "both passes of a node run at once, and stashes are not counted: objective forward+backward "
    "gives each pass nodes of its own"
)


def plan_model(
    model: PipelinePartition | GraphPartition | LayerGrouping | ModelProfile | nn.Module,
    cluster: Cluster | str | None = None,
    *,
    microbatches: int | None = None,
    split: bool = False,
    remote: Chip | str | None = None,
    graph: bool = False,
    time_limit: float | None = 5,
    seed: int = 0,
    threads: int = 1,
    stop: Stop | None = None,
    **options: Any,
) -> ModelPlan:
    """Plan a whole model: stages, the schedule of the microbatches, and what is inside each stage.

    Parameters
    ----------
    model : PipelinePartition, GraphPartition, LayerGrouping, ModelProfile or torch.nn.Module
        The model, as :func:`stagepack.read`, :func:`stagepack.load` or
        :func:`stagepack.profile_model` return it.  For a layer grouping, every device has the
        grouping's chip, and the operators of each stage are grouped.
    cluster : Cluster or str, optional
        The devices, as a `Cluster` or a name of the catalog; for profiles, modules and layer
        groupings.
    microbatches : int, optional
        Number of microbatches of a step; by default that of the partition.
    split : bool
        Whether to split the backward pass into B and W.  Backward passes in phases are not split.
    remote : Chip or str, optional
        The kind of chip of every device if it has remote memory, as a `Chip` or a name of the
        catalog ("gc200").  Its rates and tiles are used; the memory is that of the device.  Stages
        that do not fit on their devices run in phases; for graphs this needs traffic in bytes.
    graph : bool
        Whether to cut the operators of a layer grouping, or the layers of a profile or a module, as
        a graph instead of a chain.  In training both passes then have separate nodes, unless the
        `options` name another objective.
    time_limit : float, optional
        Seconds of each solve; after 20 times as many seconds no further solve is started.
    seed, threads : int
        As for :func:`stagepack.solve`.  What shows the bound is looked for by counted work, so
        that the plan's `proof` repeats as well, unless `time_limit` (or 10 seconds) ends that.
    stop : threading.Event or callable, optional
        Ends the search from another thread, with the best plan so far, see :func:`stagepack.solve`.
    **options
        For profiles and modules, the arguments of :meth:`.PipelinePartition.from_profile` (of
        :meth:`.GraphPartition.from_profile` with `graph`).  For modules also ``sample_inputs`` and
        the other arguments of :func:`stagepack.profile_model`.

    Returns
    -------
    ModelPlan

    Raises
    ------
    InputError
        If a cluster is missing, or an argument does not apply to this kind of model.
    """
    with heeding(stop):
        found = unshown(
            model,
            cluster,
            microbatches=microbatches,
            split=split,
            remote=remote,
            graph=graph,
            time_limit=time_limit,
            seed=seed,
            threads=threads,
            **options,
        )
        return _shown(found, require_time(time_limit))


def unshown(
    model: PipelinePartition | GraphPartition | LayerGrouping | ModelProfile | nn.Module,
    cluster: Cluster | str | None = None,
    *,
    microbatches: int | None = None,
    split: bool = False,
    remote: Chip | str | None = None,
    graph: bool = False,
    time_limit: float | None = 5,
    seed: int = 0,
    threads: int = 1,
    **options: Any,
) -> ModelPlan:
    """Return what :func:`plan_model` does, whose proof and evidence nobody has verified.

    `model`, `cluster`, `microbatches`, `split`, `remote`, `graph`, `time_limit`, `seed`, `threads`,
    `options`: as for :func:`plan_model`.
    """
    time_limit = require_time(time_limit)
    if _is_module(model):
        model, cluster = _profiled(model, cluster, options)
    if graph and not isinstance(model, LayerGrouping | ModelProfile):
        raise InputError(
            "is for layer groupings, profiles and modules",
            field="graph",
            remedy="give a GraphPartition as the model",
        )
    given = _instance(model, cluster, options, graph)
    chain = given.model if isinstance(given, _Network) else given
    usual = getattr(chain, "microbatches", 1)
    many = usual if microbatches is None else integer(microbatches, "microbatches")
    if many < 1:
        raise InputError(f"{many}", field="microbatches", remedy="give at least one")
    inner = remote is not None or isinstance(given, _Network)
    if inner and isinstance(chain, PipelinePartition) and (chain.alternatives or chain.placed):
        raise InputError(
            "phases and groups are of one stage a device, with the layers' own figures",
            field="alternatives" if chain.alternatives else "placement",
            remedy="leave it out, or plan stages that stay on their devices",
        )
    if remote is not None and isinstance(given, _Network):
        raise InputError(
            "is not for chips with local memory", field="remote", remedy="leave it out"
        )
    if isinstance(chain, GraphPartition) and chain.objective == GraphObjective.LATENCY:
        raise InputError(
            "latency is of one sample, a plan of many microbatches",
            field="objective",
            remedy="use sum or overlap",
        )
    if split and not _trains(given):
        raise InputError(
            "there is no backward pass", field="split", remedy="leave it out, or plan training"
        )
    limits: JsonObject = {"time_limit": time_limit, "seed": seed, "threads": threads}
    found = _planned(given, many, split, limits, remote)
    return dataclasses.replace(found, note=_note(chain))


def _shown(plan: ModelPlan, time_limit: float | None) -> ModelPlan:
    """Return a plan with what shows its bound, or that nothing fits, as far as anything does."""
    if plan.bound is None and plan.status is not Status.INFEASIBLE:
        return dataclasses.replace(plan, proof=None, evidence={})
    if plan.interrupted:
        return plan
    limit = SHOWING if time_limit is None else min(SHOWING, time_limit)
    own = {level.name: True for level in plan.levels if level.result.proof in VERIFIABLE}
    whole, data = plan.whole(own), plan.evidence
    proof = Proof.SEARCH if plan.proof in VERIFIABLE else plan.proof
    if whole is None:
        return dataclasses.replace(plan, proof=proof, evidence={})
    with Interrupts() as interrupts:
        found = verify(whole, plan.bound, plan.proof, data, time_limit=limit, rules=steps.QUICK)
    plan = dataclasses.replace(plan, interrupted=interrupts.asked)
    if found.proof is not None:
        same = not found.false and found.detail == data.get("rule")
        data = data if same else {"rule": found.detail}
        return dataclasses.replace(plan, proof=found.proof, evidence=data)
    return dataclasses.replace(plan, proof=proof, evidence={})


def _planned(
    given: PipelinePartition | GraphPartition | _Network,
    many: int,
    split: bool,
    limits: JsonObject,
    remote: Chip | str | None,
) -> ModelPlan:
    """Return the plan of what is planned for."""
    if isinstance(given, _Network):
        return Grouped(given.model.name, many, split, limits, **given._asdict()).find()
    if remote is not None and not isinstance(remote, Chip):
        remote = remote_chip(remote)
    if isinstance(given, GraphPartition):
        if remote is not None:
            return phased_graph(given, many, split, limits, remote)
        return Graphs(given.name, many, split, limits, model=given).find()
    if remote is not None:
        return phased(given, many, split, limits, remote)
    search = Resident(given.name, many, split, limits, model=given)
    return search.plan(*search.search())


def _note(model: PipelinePartition | GraphPartition) -> str:
    """Return what a plan of a model says nothing about: its microbatches are those of the step."""
    if isinstance(model, GraphPartition):
        both = model.stash.any() and not model.backward.any()
        return ONE_PASS if both else _unsaid(model, model.devices)
    return _unsaid(model, model.k)


def _unsaid(model: PipelinePartition | GraphPartition, devices: int) -> str:
    return model.replace(microbatches=max(devices, model.microbatches)).proviso


def _instance(
    model: object, cluster: Cluster | str | None, options: JsonObject, graph: bool
) -> PipelinePartition | GraphPartition | _Network:
    """Return what is planned for: a chain or a graph, with the network that it stands for."""
    if cluster is not None:
        cluster = clusters.cluster(cluster)
    if isinstance(model, ModelProfile | LayerGrouping):
        if cluster is None:
            raise InputError("is missing", field="cluster", remedy="give the cluster to plan for")
        if isinstance(model, ModelProfile):
            return _of_profile(model, cluster, options, graph)
        return _network(model, cluster, options, graph)
    if cluster is not None or options:
        field_name = "cluster" if cluster is not None else next(iter(options))
        raise InputError("needs a profile", field=field_name, remedy="leave it out")
    if isinstance(model, GraphPartition):
        return model
    require_instance(model, KIND, "model", "give an instance, a profile or a torch.nn.Module")
    assert isinstance(model, PipelinePartition)
    return require_one_each(model)


def _of_profile(
    profile: ModelProfile, cluster: Cluster, options: JsonObject, graph: bool
) -> PipelinePartition | GraphPartition:
    """Return the layers of a profile as a chain, or as a graph."""
    if not graph:
        return require_one_each(PipelinePartition.from_profile(profile, cluster, **options))
    usual = BOTH_PASSES if profile.trains(options.get("training")) else {}
    return GraphPartition.from_profile(profile, cluster, **{**usual, **options})


class _Network(NamedTuple):
    """A network on chips with local memory, see :class:`.Grouped`."""

    model: PipelinePartition | GraphPartition
    network: LayerGrouping
    back: Backward | None
    order: Order
    row: PipelinePartition | None


def _network(
    network: LayerGrouping, cluster: Cluster, options: JsonObject, graph: bool
) -> _Network:
    """Return a network as a chain or a graph, and its passes; sets of operators have no order."""
    given = {name: value for name, value in options.items() if name != "training"}
    back = backward(network) if options.get("training") else None
    order = network.order
    row = as_chain(network, cluster, back, **given)
    model = as_graph(network, cluster, back, **given) if graph else row
    if back is not None:
        network = with_stash(network, back.stash)
    if graph:
        network = network.replace(order=Order.FREE)
        if back is not None:
            back = back._replace(network=back.network.replace(order=Order.FREE))
    return _Network(model, network, back, order, row if graph else None)


def _trains(given: PipelinePartition | GraphPartition | _Network) -> bool:
    """Whether there is a backward pass that could be split."""
    if isinstance(given, _Network):
        return given.back is not None
    return bool(given.backward.any()) if isinstance(given, GraphPartition) else given.training


def _is_module(model: object) -> bool:
    """Whether a model is a module of PyTorch, which is not imported for that."""
    homes = (base.__module__ for base in type(model).__mro__)
    return any(home == "torch.nn.modules.module" for home in homes)


def _profiled(
    module: Any, cluster: Cluster | str | None, options: JsonObject
) -> tuple[ModelProfile, Cluster]:
    """Return the profile of a module, and the cluster in whose cycles it is; `options` lose some.

    A cluster and inputs are required.
    """
    from stagepack.integrations.pytorch import profile_model

    if cluster is None:
        raise InputError("is missing", field="cluster", remedy="give the cluster to plan for")
    if "sample_inputs" not in options:
        raise InputError(
            "are missing", field="sample_inputs", remedy="give the inputs of a microbatch"
        )
    inputs = options.pop("sample_inputs")
    said = {name: options.pop(name) for name in COUNTING & set(options)}
    preset, asked = clusters.machine({"cluster": cluster})
    named = preset.cluster.name if isinstance(cluster, Cluster) else cluster
    clock = NANOSECONDS if said.get("measure") else float(preset.cluster.clock)
    training = bool(options.get("training", False))
    profile = profile_model(module, inputs, **{"machine": named, "training": training, **said})
    return profile, clusters.asked({"cluster": asked}, clock)
