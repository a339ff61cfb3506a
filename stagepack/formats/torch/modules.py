"""Stages by the names of a PyTorch model's modules: torchtitan, torch, accelerate.

Layers must be named as ``model.named_modules()`` does, which :func:`stagepack.profile_model` sees
to.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stagepack.errors import InputError, suggest
from stagepack.formats.roles import (
    SKIPS,
    device_list,
    ranks_of,
    require_adjacent,
    require_own_figures,
    require_placed,
    require_ranks,
    skipping,
    tell_choices,
)
from stagepack.instances.documents import strict
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.words import Parameter

CHECKPOINTS = '''\
"""Recomputes layers in the backward pass, as was chosen with the cut."""

from functools import partial

from torch.utils.checkpoint import checkpoint

LAYERS = {layers}


def recompute(model):
    """Wrap the layers that a model, or a stage of it, has; names are those of the whole model."""
    for name, module in model.named_modules():
        if name in LAYERS:
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)
    return model
'''


def recompute(instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return Python that defines ``LAYERS`` and ``recompute(model)``.

    Refuses other alternatives than ``full``: what a checkpoint keeps is not said by their names.
    """
    names = module_names(instance)
    taken = list(zip(names, instance.taken(solution), strict=True))
    for name, choice in taken:
        if choice not in ("full", instance.own_alternative):
            raise InputError(
                f"{name!r} takes {choice!r}: a checkpoint recomputes a layer in full",
                field="choices",
                remedy="call it full if it does, or leave it out of the alternatives",
            )
    chosen = sorted({name for name, choice in taken if choice == "full"})
    halved = sorted({name for name, choice in taken if choice != "full"}.intersection(chosen))
    if halved:
        raise InputError(
            f"module {halved[0]!r} runs several times, recomputed and not",
            field="choices",
            remedy="give its runs the same alternative",
        )
    rows = "".join(f'    "{name}",\n' for name in chosen)
    return CHECKPOINTS.format(layers=f"{{\n{rows}}}" if chosen else "set()")


log = logging.getLogger("stagepack")

NAME = re.compile(r"\w+(\.\w+)*")
PLACES = re.compile("cpu|disk|mps|(cuda|xpu|npu|mlu|musa|hpu)(:[0-9]+)?")
"""What Accelerate calls devices beside their numbers."""
INSIDE = Parameter("inside", bool, "whether items of lists of modules may be on several devices")
Modules = Mapping[str, object] | Iterable[str] | str | Path | None
"""Names of a model's modules, perhaps with the modules, or a file with a name a line."""
TORCHTITAN = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
}
"""What torchtitan calls modules of Transformers' decoders beside their layers."""
LISTS = frozenset({"ModuleDict", "ModuleList"})
"""Classes of PyTorch, and of torchtitan, whose items it keeps or drops one by one."""


def torchtitan(
    instance: PipelinePartition,
    solution: PipelineSolution,
    *,
    modules: Modules = None,
    ranks: int | str | None = None,
    skips: bool | str = False,
) -> str:
    """Return ``module_fqns_per_model_part`` as JSON: a list of names a stage.

    Torchtitan keeps children of the model, and single items of those that are lists; it says
    nothing about names that there are not, nor about children that no stage has.  So `modules`, the
    names of all, are what the names of stages are checked against.  A mapping to the modules tells
    which are lists or dictionaries of others; without it those are whose items are numbered.

    Each of the `ranks` has as many stages; there are as many as stages, if not said.  See
    :func:`.roles.require_adjacent` for `skips`.
    """
    device_list(instance, solution, "loop", "v")
    require_own_figures(solution, "torchtitan")
    require_adjacent(instance, solution, skips, "torchtitan")
    if len(solution.devices) < len(instance.stage_devices) and instance.placed:
        raise InputError(
            f"{len(solution.devices)} of {len(instance.stage_devices)} stages hold layers: "
            "torchtitan has no empty ones",
            field="boundaries",
            remedy="solve without --fewer-stages",
        )
    ranks_of(len(solution.devices), ranks or (instance.k if instance.placed else None))
    homes: dict[str, int] = {}
    lists = _lists(modules)
    for stage, names in enumerate(_stages(instance, solution)):
        for name in (_kept(_in_torchtitan(name), lists) for name in names):
            if homes.setdefault(name, stage) != stage:
                raise InputError(
                    f"module {name!r} is in stages {homes[name]} and {stage}",
                    field="boundaries",
                    remedy="torchtitan moves it whole: forbid the cuts within (--forbid-cut), "
                    "profile it as one layer (depth=, basic_blocks=), or name layers as its "
                    "models do (layers.4, not model.layers.4)",
                )
    if modules is not None:
        _require_all(homes, _names(modules), lists)
    parts = [
        [name for name, home in homes.items() if home == stage]
        for stage in range(len(solution.devices))
    ]
    return _json(parts)


def require_modules(
    instance: PipelinePartition,
    *,
    modules: Modules = None,
    ranks: int | str | None = None,
    skips: bool | str = False,
) -> None:
    """Refuse what no cut could mend: names that the model has not, or that the layers have not.

    `modules`, `ranks` and `skips` are those of :func:`torchtitan`.
    """
    SKIPS.of(skips)
    require_placed(instance, "loop", "v")
    require_ranks(instance, ranks)
    names = module_names(instance)
    if modules is not None:
        lists = _lists(modules)
        own = {_kept(_in_torchtitan(name), lists) for name in names}
        _require_all(own, _names(modules), lists)


def _in_torchtitan(name: str) -> str:
    """Return what torchtitan calls a module of Transformers' decoders; others as they are."""
    return TORCHTITAN.get(name) or name.removeprefix("model." * name.startswith("model.layers."))


def _lists(modules: Modules) -> set[str] | None:
    """Return the children of a model that are lists or dictionaries of modules, if told."""
    if not isinstance(modules, Mapping):
        return None
    return {
        name
        for name, module in modules.items()
        if LISTS.intersection(owner.__name__ for owner in type(module).__mro__)
    }


def _kept(name: str, lists: set[str] | None) -> str:
    """Return the module of which torchtitan keeps or drops the whole that `name` is part of."""
    child, *below = name.split(".")
    listed = below and (below[0].isdigit() if lists is None else child in lists)
    return f"{child}.{below[0]}" if listed else child


def _require_all(homes: Collection[str], modules: list[str], listed: set[str] | None) -> None:
    """Refuse names that no module has, and modules that no stage has."""
    kept = {_kept(name, listed): None for name in modules if name}
    lists = {name.partition(".")[0] for name in kept if "." in name}
    known = [name for name in kept if name not in lists]
    for name in homes:
        if name not in known:
            raise InputError(
                f"the model has no module {name!r}", field="modules", remedy=suggest(name, known)
            )
    for name in known:
        if name not in homes:
            raise InputError(
                f"module {name!r} is in no stage: torchtitan would leave it out",
                field="modules",
                remedy="name a layer so, or leave it out of the names",
            )


def accelerate(
    instance: PipelinePartition,
    solution: PipelineSolution,
    *,
    inside: bool | str = False,
    modules: Modules = None,
) -> str:
    """Return ``device_map`` as JSON: a device for each module, the largest that are whole there.

    Accelerate moves what modules are given to their devices.  What a module adds to the results of
    its own parts, as transformer layers add the residual, it does not move: parts of one item of a
    list of modules, such as ``layers.3``, are on different devices only if `inside` is said.  Given
    `modules`, every module must be on a device; a mapping to the modules of a model that has
    ``_no_split_modules``, as those of Transformers do, tells by their classes which stay whole.
    Devices that the cluster calls ``cpu``, ``disk``, ``mps`` or ``cuda:1`` keep their names, the
    others are counted.  Layers that take an alternative called ``cpu`` or ``disk`` are there, the
    whole of them.
    """
    device: dict[str, int | str] = {}
    within: dict[str, dict[int | str, str]] = {}
    for names, places in zip(_stages(instance, solution), _places(instance, solution), strict=True):
        for name, own in zip(names, places, strict=True):
            if device.setdefault(name, own) != own:
                raise InputError(
                    f"module {name!r} runs on devices {device[name]} and {own}",
                    field="boundaries",
                    remedy="keep its runs in one stage (variables)",
                )
            for above in _above(name):
                within.setdefault(above, {}).setdefault(own, name)
    if not INSIDE.of(inside):
        _require_whole(within, _blocks(modules))
    called = _called(instance)
    found = {}
    for name, own in device.items():
        whole = next(above for above in _above(name) if len(within[above]) == 1)
        found[whole] = own if isinstance(own, str) else called[own]
    _require_all_placed(found, modules)
    return _json(found)


def _places(instance: PipelinePartition, solution: PipelineSolution) -> list[list[int | str]]:
    """Return, stage by stage, where each layer is: its device's number, ``cpu`` or ``disk``."""
    own, choices = instance.own_alternative, instance.taken(solution)
    for at, name in enumerate(choices):
        if name not in (own, "cpu", "disk"):
            raise InputError(
                f"{instance.layer_name(at)} takes {name!r}, which Accelerate has not",
                field="choices",
                remedy="call alternatives cpu and disk, or leave others out",
            )
    return [
        [device if name == own else name for name in choices[first:end]]
        for first, end, device in solution.stages
    ]


def require_items(
    instance: PipelinePartition, *, inside: bool | str = False, modules: Modules = None
) -> None:
    """Refuse what no cut could mend: names of no modules, and too few places to cut.

    `inside` and `modules` are those of :func:`accelerate`.
    """
    names = module_names(instance)
    if INSIDE.of(inside) or instance.fewer_stages:
        return
    blocks = _blocks(modules)
    whole = len({next((at for at in _above(name) if _stays(at, blocks)), name) for name in names})
    if whole < instance.k:
        raise InputError(
            f"{whole:,} modules that must stay whole for {instance.k:,} devices",
            field="devices",
            remedy="give fewer, allow empty ones (--fewer-stages), or say accelerate:inside=true",
        )


def _require_whole(
    within: Mapping[str, Mapping[int | str, str]], blocks: Collection[str] | None
) -> None:
    """Refuse a module that must stay whole of which parts are on several devices."""
    for item, parts in within.items():
        if len(parts) > 1 and _stays(item, blocks):
            one, other, *_ = parts.values()
            raise InputError(
                f"{other!r} is on another device than {one!r} of the same {item!r}, whose sums of "
                "both, such as a residual, Accelerate would not move",
                field="boundaries",
                remedy="forbid the cuts within (--forbid-cut), profile it as one layer (depth=, "
                "basic_blocks=), or say accelerate:inside=true",
            )


def _blocks(modules: Modules) -> set[str] | None:
    """Return which modules a model says must stay whole, by the names of their classes."""
    whole = modules.get("") if isinstance(modules, Mapping) else None
    classes = getattr(whole, "_no_split_modules", None)
    if not classes or not isinstance(modules, Mapping):
        return None
    return {name for name, module in modules.items() if type(module).__name__ in classes}


def _stays(name: str, blocks: Collection[str] | None) -> bool:
    """Return whether a module must stay whole: one of `blocks`, or else an item of a list."""
    return name.rpartition(".")[2].isdigit() if blocks is None else name in blocks


def _require_all_placed(places: Collection[str], modules: Modules) -> None:
    """Refuse names that no module has, and modules with values of their own on no device.

    Of names alone, all that have no parts count as such.
    """
    if modules is None:
        return
    names = _names(modules)
    inner = {above for name in names for above in _above(name)[:-1]}
    own = set(names) - inner
    if isinstance(modules, Mapping):
        own = {name for name, module in modules.items() if _holds(module)}
    for name in places:
        if name not in inner and name not in names:
            raise InputError(
                f"the model has no module {name!r}", field="modules", remedy=suggest(name, names)
            )
    for name in sorted(own):
        if not any(above in places for above in _above(name)):
            raise InputError(
                f"module {name!r} is on no device",
                field="modules",
                remedy="name a layer so, or profile what it is in as one (depth=, basic_blocks=)",
            )


def _holds(module: Any) -> bool:
    """Return whether a module has parameters or buffers besides those of its parts."""
    known = (getattr(module, name, None) for name in ("parameters", "buffers"))
    return any(any(True for _ in values(recurse=False)) for values in known if values)


def _called(instance: PipelinePartition) -> list[int | str]:
    """Return what Accelerate calls each device: its name if it is one of PyTorch's, or a number."""
    found: list[int | str] = []
    for device in instance.cluster.devices:
        counted = sum(isinstance(name, int) for name in found)
        found.append(device.name if PLACES.fullmatch(device.name) else counted)
    return found


def _above(name: str) -> list[str]:
    """Return the modules that a module is in, from the model, "", down to itself."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) + 1)]


def torch(instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return Python that defines ``split_spec`` for ``torch.distributed.pipelining.pipeline``."""
    visible = device_list(instance, solution)
    tell_choices(instance, solution, "torch-recompute", "full")
    skips = skipping(instance, solution)
    if skips is not None:
        log.warning(
            "%s: GPipe and 1F1B of torch send it on, schedules of several stages a rank refuse",
            skips,
        )
    stages = _stages(instance, solution)
    every = [name for names in stages for name in names]
    lines = []
    for stage, names in enumerate(stages[1:], 1):
        if every.count(names[0]) > 1:
            raise InputError(
                f"stage {stage} begins with {names[0]!r}, which runs more than once",
                field="boundaries",
                remedy="torch cuts before all of its runs: forbid the cut (--forbid-cut)",
            )
        lines.append(f'    "{names[0]}": SplitPoint.BEGINNING,\n')
    return (
        "from torch.distributed.pipelining import SplitPoint\n\n"
        f"split_spec = {{\n{''.join(lines)}}}\n" + (visible and f"# for ranks on {visible}\n")
    )


def require_names(instance: PipelinePartition) -> None:
    """Refuse what no cut could mend: names of no modules, and devices with several stages."""
    require_placed(instance)
    module_names(instance)


def _stages(instance: PipelinePartition, solution: PipelineSolution) -> list[list[str]]:
    """Return the names of the layers of each stage, as :func:`module_names`."""
    names = module_names(instance)
    return [names[first:end] for first, end, _ in solution.stages]


def module_names(instance: PipelinePartition) -> list[str]:
    """Return the names of layers."""
    names = [instance.layer_name(at) for at in range(instance.n)]
    for at, name in enumerate(names):
        if not NAME.fullmatch(name):
            raise InputError(
                f"layer {at}, {name[:60]!r}, is no name of a module",
                field="layers",
                remedy="name layers as named_modules() does; sp.profile_model does so",
            )
    return names


def _names(modules: Iterable[str] | str | Path) -> list[str]:
    if isinstance(modules, str | Path):
        return strict.text(strict.load(modules)).split()
    names = list(modules) if isinstance(modules, Iterable) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(
            "are no names", field="modules", remedy="give dict(model.named_modules()), or a file"
        )
    return names


def _json(data: object) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
