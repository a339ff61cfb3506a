"""What the layers of a chain are to a tool that counts transformer layers: their letters.

Megatron-LM's: ``E`` the embedding, ``t`` a transformer layer, ``m`` one of multi-token prediction,
``L`` what comes last (normalisation, head, loss).  A tool cuts between these alone, whereas a
profile may know attention and feed-forward of a transformer layer as layers of their own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.words import Parameter

log = logging.getLogger("stagepack")

LETTERS = "EtmL"
GIVEN = Parameter("letters", str, "what layers are")
RANKS = Parameter("ranks", int, "ranks of the pipeline", 1)
SKIPS = Parameter("skips", bool, "whether ranks have what skips a stage")
ORDER = re.compile("E?t*m*L?")
REPEATED = re.compile(r"(.)\*([0-9]{1,6})")
NUMBER = re.compile("[0-9]+")
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""What tells a process which devices there are, and in which order ranks take them."""
WAYS = "E, t, m and L in this order, for example Et*24L"


@dataclass(frozen=True)
class Unit:
    """Neighbouring layers that are one letter: layers [first, end)."""

    letter: str
    first: int
    end: int


def stage_letters(
    instance: PipelinePartition, solution: PipelineSolution, letters: str = ""
) -> list[str]:
    """Return the letters of each stage; none begins within a unit.

    `letters` are one a layer, ``t*3`` for three, where names do not tell: those with the same
    number are one ``t`` (``m``, if they say "mtp"), what comes before is ``E`` and what comes after
    is ``L``.
    """
    units = units_of(instance, letters)
    if not letters and instance.layer_names is None:
        log.warning("layers have no names: all count as transformer layers; if not, letters=Et*24L")
    cuts = set(solution.boundaries)
    for unit in units:
        for cut in range(unit.first + 1, unit.end):
            if cut in cuts:
                raise InputError(
                    f"stage {solution.boundaries.index(cut)} begins with "
                    f"{instance.layer_name(cut)!r}, within what is one layer to the tool and "
                    f"begins with {instance.layer_name(unit.first)!r}",
                    field="boundaries",
                    remedy=f"--forbid-cut {cut}, or a profile of whole transformer layers",
                )
    return [
        "".join(unit.letter for unit in units if first <= unit.first < end)
        for first, end, _ in solution.stages
    ]


def units_of(instance: PipelinePartition, letters: str = "") -> list[Unit]:
    """Return what a tool cuts between, see :func:`stage_letters`."""
    units = _given(instance, GIVEN.of(letters)) if letters else _named(instance)
    if not ORDER.fullmatch("".join(unit.letter for unit in units)):
        raise InputError(
            "layers come as " + "".join(unit.letter for unit in units)[:60],
            field="letters",
            remedy=f"give a letter a layer: {WAYS}",
        )
    return units


def _given(instance: PipelinePartition, letters: str) -> list[Unit]:
    """Return the units of letters that are given: neighbours E are one, and so are neighbours L."""
    given = letters
    letters = REPEATED.sub(lambda found: found[1] * int(found[2]), letters)
    if len(letters) != instance.n or set(letters) - set(LETTERS):
        raise InputError(
            f"{given[:40]!r} is not a letter for each of {instance.n} layers",
            field="letters",
            remedy=f"give {WAYS}",
        )
    return _units([(letter, at if letter in "tm" else 0) for at, letter in enumerate(letters)])


def _named(instance: PipelinePartition) -> list[Unit]:
    """Return the units that the names of layers tell."""
    names = [instance.layer_name(at) for at in range(instance.n)]
    numbers = [NUMBER.search(name) for name in names]
    numbered = [at for at, number in enumerate(numbers) if number or "mtp" in names[at].lower()]
    if not numbered:
        raise InputError(
            "names of layers do not tell which are transformer layers",
            field="letters",
            remedy=f"give a letter a layer: {WAYS}",
        )
    found = []
    for at, name in enumerate(names):
        number = numbers[at]
        if at < numbered[0]:
            found.append(("E", 0))
        elif at > numbered[-1]:
            found.append(("L", 0))
        else:
            own = -1 if number is None else int(number[0])
            found.append(("m" if "mtp" in name.lower() else "t", own))
            if found[-1] == ("t", -1):
                raise InputError(
                    f"{name!r} stands between transformer layers",
                    field="letters",
                    remedy=f"give a letter a layer: {WAYS}",
                )
    _require_succession(instance, found)
    return _units(found)


def _require_succession(instance: PipelinePartition, told: list[tuple[str, int]]) -> None:
    """Refuse names whose numbers do not count transformer layers: of parts, or of two stacks."""
    counted = [(at, number) for at, (letter, number) in enumerate(told) if letter == "t"]
    for (_, before), (at, number) in pairwise(counted):
        anew = number == counted[0][1] < before
        if anew and any(later == number + 1 for place, later in counted if place > at):
            raise InputError(
                f"layers are numbered anew from {instance.layer_name(at)!r} on: an encoder and a "
                "decoder, of which the tool runs one",
                field="letters",
                remedy="partition each by itself; for numbered parts of one stack give letters",
            )
        if number not in (before, before + 1):
            raise InputError(
                f"{instance.layer_name(at)!r} is numbered {number} and comes after {before}",
                field="letters",
                remedy=f"give a letter a layer: {WAYS}",
            )


def _units(told: list[tuple[str, int]]) -> list[Unit]:
    """Return runs of equal letters and numbers."""
    units, first = [], 0
    for (letter, _), run in groupby(told):
        end = first + len(list(run))
        units.append(Unit(letter, first, end))
        first = end
    return units


def transformer_choices(
    instance: PipelinePartition,
    solution: PipelineSolution,
    letters: str,
    tool: str,
    known: Collection[str],
) -> list[list[str]]:
    """Return the alternatives that the transformer layers of each stage take, "" for none.

    Refuses those that a `tool` has not `known`, or of other layers; and unlike ones of parts of a
    layer, unless some of these keep their own figures.  `letters` are those of
    :func:`stage_letters`.
    """
    own, choices = instance.own_alternative, instance.taken(solution)
    stage_letters(instance, solution, letters)  # no stage begins within a layer
    found: list[list[str]] = [[] for _ in solution.stages]
    homes = np.array(solution.boundaries[1:])
    for unit in (units := units_of(instance, letters)):
        names = sorted(set(choices[unit.first : unit.end]) - {own})
        if len(names) > 1:
            raise InputError(
                f"{' and '.join(names)} of layers {unit.first} to {unit.end - 1}, which are one "
                "layer to the tool",
                field="choices",
                remedy="profile it as one layer, or give all its parts the same alternatives",
            )
        name = "".join(names)
        if name and (name not in known or unit.letter != "t"):
            alone = [unit for unit in units if unit.letter == "t"]
            remedy = f"call alternatives of transformer layers {' or '.join(known)}"
            if name in known and alone:
                numbers = f"[{alone[0].first}, ..., {alone[-1].end - 1}]"
                remedy = "offer it to transformer layers alone, and solve again: "
                remedy += f'alternatives {{"{name}": {{"layers": {numbers}}}}}, beside --recompute'
            raise InputError(
                f"{tool} has no {name!r} of {instance.layer_name(unit.first)!r}, a layer "
                f"{unit.letter!r}",
                field="choices",
                remedy=remedy,
            )
        if unit.letter == "t":
            found[int(np.searchsorted(homes, unit.first, side="right"))].append(name)
    return found


def require_own_figures(solution: PipelineSolution, tool: str) -> None:
    """Refuse choices of alternatives, of which a `tool` is told nothing."""
    if solution.choices:
        raise InputError(
            f"layers take alternatives, of which {tool} is told nothing",
            field="choices",
            remedy="solve without alternatives, or write them for a tool that takes them: "
            "megatron-recompute, torch-recompute, accelerate, vllm-offload, llama.cpp",
        )


def tell_choices(
    instance: PipelinePartition, solution: PipelineSolution, companion: str, *known: str
) -> None:
    """Tell that choices are written separately, for a `companion`; refuse those that it lacks.

    `known` are the alternatives of layers that it has, beside the layer as it is.
    """
    lacking = sorted({*solution.choices} - {instance.own_alternative, *known})
    if lacking:
        raise InputError(
            f"layers take {lacking[0]!r}, and the tool can have them {' or '.join(known)}",
            field="choices",
            remedy=f"solve with no alternatives but those that {companion} writes",
        )
    if solution.choices:
        log.warning("stages say nothing of layers' alternatives: write %s, too", companion)


def require_placed(instance: PipelinePartition, *places: str) -> None:
    """Refuse several stages a device but where a tool knows the placement, one of `places`."""
    if instance.placed and instance.placement not in places:
        raise InputError(
            "devices have several stages, which the tool knows nothing of",
            field="placement",
            remedy=" or ".join(["solve with one stage a device", *places]),
        )


def device_list(instance: PipelinePartition, solution: PipelineSolution, *places: str) -> str:
    """Return what puts rank i on the device of stage i: ``CUDA_VISIBLE_DEVICES=2,0,1``.

    "" where the ranks are the first devices in their order.  Otherwise it is told, since a tool
    would put them there; devices without a stage are told, too.  Of several stages a device,
    `places` are the placements that the tool knows.
    """
    require_placed(instance, *places)
    if instance.placed:
        return ""
    used = solution.devices
    if len(used) < instance.k:
        idle = ", ".join(map(str, sorted(set(range(instance.k)) - set(used))[:8]))
        log.warning("for %d ranks: devices without a stage are left out (%s)", len(used), idle)
    if used == tuple(range(len(used))):
        return ""
    found = f"{VISIBLE}={','.join(map(str, used))}"
    log.warning("ranks are not on devices 0, 1, ...: run with %s (of one host)", found)
    return found


def require_adjacent(
    instance: PipelinePartition, solution: PipelineSolution, skips: bool | str, tool: str
) -> None:
    """Refuse values that are read further on than in the next stage, or that may be.

    A `tool` sends to the next stage alone; where `skips` is said every rank has them.
    """
    found = skipping(instance, solution)
    if found is not None and not SKIPS.of(skips):
        raise InputError(
            f"{found}: {tool} hands a stage's result to the next one alone",
            field="carry" if instance.tensors is None else "tensors",
            remedy="cut elsewhere, or say skips=true where every rank has or makes it",
        )


def skipping(instance: PipelinePartition, solution: PipelineSolution) -> str | None:
    """Return which value is read further on than in the next stage, the largest; None for none.

    Where values are not told one by one, as of columns that people wrote, the stage that most bytes
    may pass by.  O(layers + tensors log stages).
    """
    tensors = instance.tensors
    if tensors is None:
        return _bypassed(instance, solution)
    starts = np.array(solution.boundaries[:-1])
    home, last = (
        np.searchsorted(starts, layers, side="right") - 1
        for layers in (tensors.born, tensors.last_use)
    )
    within = (tensors.born >= 0) & (tensors.last_use < tensors.n)  # the host may have all others
    far = np.flatnonzero(within & (last > home + 1))
    if not len(far):
        return None
    at = int(far[np.argmax(tensors.nbytes[far])])
    return (
        f"{tensors.names[at]!r} ({tensors.nbytes[at]} bytes) of stage {home[at]} is read in "
        f"stage {last[at]}"
    )


def _bypassed(instance: PipelinePartition, solution: PipelineSolution) -> str | None:
    """Return the stage between others past all of whose layers most is carried; None for none."""
    inner = [
        (int(instance.carry[first:end].min()), stage)
        for stage, (first, end, _) in enumerate(solution.stages)
        if first > 0 and end < instance.n
    ]
    nbytes, stage = max(inner, default=(0, 0))
    return f"up to {nbytes} bytes may pass stage {stage} by" if nbytes else None


def require_ranks(instance: PipelinePartition, ranks: int | str | None) -> None:
    """Refuse ranks that no number of stages is dealt to evenly, where all devices get one."""
    if ranks is not None:
        least = RANKS.of(ranks)
        ranks_of(least if instance.fewer_stages else instance.k, least)


def ranks_of(stages: int, ranks: int | str | None) -> int:
    """Return the ranks of a pipeline, as many as stages if not said."""
    found = stages if ranks is None else RANKS.of(ranks)
    if stages % found:
        raise InputError(
            f"{stages} stages on {found} ranks: some would have more than others",
            field="ranks",
            remedy="cut into a multiple of the ranks (--devices)",
        )
    return found
