"""Stages and recomputation as Megatron-LM takes them, in its options.

Source: ``megatron/core/transformer/pipeline_parallel_layer_layout.py`` of megatron-core 0.16.1:
stages parted by ``|``, stage ``vpp_rank * pp + pp_rank``; ``(...)*n`` is expanded, then ``x*n``.
Stages may be empty.  A layout says nothing of costs: as a solution it is read with its chain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby

from stagepack.errors import InputError
from stagepack.formats.roles import (
    SKIPS,
    Unit,
    device_list,
    ranks_of,
    require_adjacent,
    require_ranks,
    stage_letters,
    tell_choices,
    transformer_choices,
    units_of,
)
from stagepack.instances.documents import strict
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.native import GIVEN
from stagepack.instances.pipeline.problem import KIND
from stagepack.instances.words import Words

GRANULARITIES = ("full", "selective")


def recompute(instance: PipelinePartition, solution: PipelineSolution, *, letters: str = "") -> str:
    """Return ``--recompute-granularity`` and what goes with it; none where nothing is recomputed.

    Alternatives must be called ``full`` and ``selective``; see :mod:`.roles` for `letters`.
    ``selective`` holds for all layers.  ``full`` with ``block`` recomputes the first layers of
    every stage, with ``uniform`` and one layer at a time all of them; one number holds for all
    stages.  Source: ``megatron/core/transformer/transformer_block.py`` of megatron-core 0.16.1.
    """
    stages = transformer_choices(instance, solution, letters, "Megatron-LM", GRANULARITIES)
    every = [name for names in stages for name in names]
    if not any(every):
        return "\n"
    if set(every) == {"selective"}:
        return "--recompute-granularity selective\n"
    if "selective" in every:
        raise InputError(
            "some layers are recomputed selectively and others not so",
            field="choices",
            remedy="Megatron-LM does so with all or none: give layers one of the two alternatives",
        )
    counts = [names.count("full") for names in stages]
    most = max(counts)
    firsts = all(name == "full" for names in stages for name in names[: names.count("full")])
    fewer = [at for at, names in enumerate(stages) if counts[at] < min(most, len(names))]
    if not firsts or fewer:
        what = (
            f"stage {fewer[0]} recomputes {counts[fewer[0]]} layers and another one {most}"
            if fewer
            else "layers are recomputed that are not the first ones of their stage"
        )
        raise InputError(
            f"{what}: Megatron-LM recomputes as many first layers of every stage",
            field="choices",
            remedy=f"say --recompute-num-layers {most} and check what that takes, or write "
            "torch-recompute",
        )
    if counts == [len(names) for names in stages]:
        return "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1\n"
    return f"--recompute-granularity full --recompute-method block --recompute-num-layers {most}\n"


def layout(
    instance: PipelinePartition,
    solution: PipelineSolution,
    *,
    ranks: int | str | None = None,
    letters: str = "",
    skips: bool | str = False,
) -> str:
    """Return a line for ``--pipeline-model-parallel-layout``.

    The first stage holds the embedding and the last one the loss also where the instance has no
    such layers.  Stage s is on rank s % `ranks`, ``--pipeline-model-parallel-size``: the devices of
    a loop, otherwise as many as stages, if not said.  See :mod:`.roles` for `letters` and `skips`.
    """
    ranks = _require_dealt(instance, ranks)
    device_list(instance, solution, "loop")
    require_adjacent(instance, solution, skips, "Megatron-LM")
    tell_choices(instance, solution, "megatron-recompute", "full", "selective")
    stages = stage_letters(instance, solution, letters)
    if instance.placed:
        stages = _with_empty_ones(instance, solution, stages)
    if not stages[0].startswith("E"):
        stages[0] = f"E{stages[0]}"
    if not stages[-1].endswith("L"):
        stages[-1] += "L"
    pp = ranks_of(len(stages), ranks)
    _require_prediction_together(stages, pp)
    runs = [(_short(stage), len(list(run))) for stage, run in groupby(stages[:-1])]
    before = "".join(
        f"({stage}|)*{count}" if count > 2 else f"{stage}|" * count for stage, count in runs
    )
    return f"{before}{_short(stages[-1])}\n"


def require_layout(
    instance: PipelinePartition,
    *,
    ranks: int | str | None = None,
    letters: str = "",
    skips: bool | str = False,
) -> None:
    """Refuse what no cut could mend: letters that do not tell, ranks for other numbers of stages.

    `ranks`, `letters` and `skips` are those of :func:`layout`.
    """
    SKIPS.of(skips)
    units_of(instance, letters)
    require_ranks(instance, _require_dealt(instance, ranks))


def _with_empty_ones(
    instance: PipelinePartition, solution: PipelineSolution, stages: list[str]
) -> list[str]:
    """Return the letters of all stages; refuse what embeds or predicts in another than its own."""
    table, slots = instance.stage_devices, instance.slots_of(solution)
    if solution.devices[-1] == table[-1]:
        slots[-1] = len(table) - 1  # of two places, the one where predictions are made
    ends = (("E", stages[0][:1], slots[0], 0), ("L", stages[-1][-1:], slots[-1], len(table) - 1))
    for letter, own, slot, expected in ends:
        if own == letter and slot != expected:
            raise InputError(
                f"{letter} is in stage {slot}: Megatron-LM has it in stage {expected}, which is "
                "empty",
                field="boundaries",
                remedy="solve without --fewer-stages",
            )
    full = dict(zip(slots, stages, strict=True))
    return [full.get(slot, "") for slot in range(len(table))]


def _require_dealt(instance: PipelinePartition, ranks: int | str | None) -> int | str | None:
    """Return the ranks of a loop; refuse other placements, and other ranks than its devices."""
    if not instance.placed:
        return ranks
    if instance.placement != "loop":
        raise InputError(
            "Megatron-LM deals stages to its ranks round after round",
            field="placement",
            remedy="solve with --placement loop",
        )
    if ranks is not None and int(ranks) != instance.k:
        raise InputError(
            f"{ranks} ranks for {instance.k} devices", field="ranks", remedy="leave it out"
        )
    return instance.k


def _short(stage: str) -> str:
    return re.sub(r"t{3,}", lambda found: f"t*{len(found[0])}", stage)


def _require_prediction_together(stages: list[str], pp: int) -> None:
    """Refuse layers of multi-token prediction where Megatron-LM takes none."""
    homes = [at for at, stage in enumerate(stages) if "m" in stage]
    if len(homes) > 1:
        raise InputError(
            f"layers of multi-token prediction are in stages {homes[0]} and {homes[1]}",
            field="boundaries",
            remedy="keep them in one stage (variables, or --forbid-cut)",
        )
    if homes and homes[0] < len(stages) - pp:
        raise InputError(
            f"layers of multi-token prediction are in stage {homes[0]}, not the last of its rank",
            field="ranks",
            remedy=f"cut so that they come among the last {pp} stages",
        )


CONTEXTS: Mapping[str, frozenset[str]] = {KIND: GIVEN - {"tied"}}
OPTION = re.compile(r"^--pipeline-model-parallel-layout[ =]")
SEVERAL = re.compile(r"\(([EtmL|*0-9]*)\)\*([0-9]{1,4})")
REPEATED = re.compile(r"([EtmL|])\*([0-9]{1,6})")
LONGEST = 1_000_000
"""Layers and stages of a layout."""


def parse(data: bytes, given: Words, file: str) -> list[PipelinePartition]:
    """Refuse a layout in the place of an instance: it is a solution of one."""
    raise InputError(
        "is a layout of stages, a solution that says nothing of what layers cost",
        file=file,
        remedy="name the chain, then the layout: stagepack check CHAIN LAYOUT",
    )


def solution(data: bytes, instance: PipelinePartition | None) -> PipelineSolution:
    """Return the stages of a layout as a solution of `instance`; empty ones are left out."""
    if instance is None:
        raise InputError(
            "can only be read with its chain", field="instance", remedy="give the instance, too"
        )
    stages = _expanded(strict.text(data)).split("|")
    units = _units(instance, stages)
    given, known = "".join(stages), "".join(unit.letter for unit in units)
    if given != known or not units or units[-1].end != instance.n:
        raise InputError(
            f"has {len(given)} letters, {given[:40]}; the chain has {len(known)}, {known[:40]}",
            field="layout",
            remedy="give a layout of this chain",
        )
    table = instance.stage_devices
    if len(stages) != len(table) and (instance.placed or len(stages) > len(table)):
        raise InputError(
            f"has {len(stages)} stages for {len(table)} of {instance.k} devices",
            field="layout",
            remedy="say how many a device has (--stages-per-device), or give other devices",
        )
    boundaries, devices, at = [0], [], 0
    for device, stage in zip(table, stages, strict=False):
        if stage:
            at += len(stage)
            boundaries.append(units[at - 1].end)
            devices.append(device)
    return PipelineSolution(tuple(boundaries), tuple(devices))


def _expanded(text: str) -> str:
    """Return a layout without signs of repetition."""
    text = OPTION.sub("", text.strip()).strip("\"'").replace(",", "").replace(" ", "")
    for pattern in (SEVERAL, REPEATED):
        length = len(text) + sum(len(one[1]) * int(one[2]) for one in pattern.finditer(text))
        if length > LONGEST:
            raise InputError("is too long", field="layout", remedy="give fewer layers")
        text = pattern.sub(lambda one: one[1] * int(one[2]), text)
    if set(text) - set("EtmL|"):
        raise InputError(
            f"{text[:40]!r} cannot be read", field="layout", remedy="write stages as Et*3|(t*4|)*2L"
        )
    return text


def _units(instance: PipelinePartition, stages: list[str]) -> list[Unit]:
    """Return what the letters of a layout stand for; it has E and L where the chain has none.

    Where names do not tell, each letter is a layer.
    """
    try:
        units = units_of(instance)
    except InputError:
        return [Unit(letter, at, at + 1) for at, letter in enumerate("".join(stages))][: instance.n]
    if units[0].letter != "E" and stages[0].startswith("E"):
        stages[0] = stages[0][1:]
    if units[-1].letter != "L" and stages[-1].endswith("L"):
        stages[-1] = stages[-1][:-1]
    return units
