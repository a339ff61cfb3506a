"""Which alternatives layers have, and which of them a solution takes.

A solution says which alternative every layer takes, its `choices`; :func:`settled` is the chain of
these figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from stagepack.errors import InputError, suggest
from stagepack.instances import arrays
from stagepack.instances.arrays import Given
from stagepack.instances.pipeline.data import (
    BYTES,
    CYCLES,
    FIGURES,
    OWN,
    Alternative,
    PartitionData,
    PipelineSolution,
)
from stagepack.instances.profile import Array
from stagepack.instances.violation import Violation

NONE: dict[str, Any] = {"alternatives": {}, "alternatives_per": "layer", "own_alternative": OWN}
"""Fields of a chain whose layers have no alternatives."""
Chain = TypeVar("Chain", bound=PartitionData)


def with_alternatives(
    chain: Chain,
    given: Mapping[str, Any],
    per: tuple[str, str],
    recompute: str,
    terms: frozenset[str],
) -> Chain:
    """Return a chain whose layers may be something else.

    `given` are figures of every alternative, each for all layers or one for each, and perhaps
    ``layers``, the numbers of those that have it; `per`: what takes the same alternative, and what
    it is called to take none; `recompute`: "full", or "none", whether layers may be recomputed from
    their inputs; `terms` of memory are those that count.
    """
    own = {name: getattr(chain, name) for name in FIGURES}
    own["kv_bytes"] = chain.cached_bytes(1)
    remedy = 'write {"full": {"backward": [...], "stash": [...]}}'
    if not isinstance(given, Mapping):
        raise InputError(
            f"{type(given).__name__} is no mapping", field="alternatives", remedy=remedy
        )
    if recompute != "none":
        given = {**given, **_recomputed(chain, given, recompute)}
    found = {}
    for name, figures in given.items():
        where = f"alternatives.{name}"
        if isinstance(figures, Alternative):
            figures = figures.parts()
        if not isinstance(figures, Mapping) or not isinstance(name, str) or not name:
            raise InputError("says no figures by name", field=where, remedy=remedy)
        for figure in figures:
            if figure not in (*FIGURES, "layers"):
                raise InputError(
                    f"{figure!r} is no figure of an alternative",
                    field=where,
                    remedy=suggest(str(figure), [*FIGURES, "layers"]),
                )
        found[name] = _alternative(where, figures, own, terms)
    # Transfers are rounded to whole cycles where all cycles are whole, whatever is chosen.
    every: list[Any] = [chain, *found.values()]
    if not all(one.forward.dtype.kind == one.backward.dtype.kind == "i" for one in every):
        chain, *others = (
            dataclasses.replace(one, **{name: getattr(one, name) * 1.0 for name in CYCLES})
            for one in every
        )
        found = dict(zip(found, others, strict=True))
    return dataclasses.replace(
        chain, alternatives=found, alternatives_per=per[0], own_alternative=per[1]
    )


def _alternative(
    where: str, given: Mapping[str, Any], own: Mapping[str, Any], terms: frozenset[str]
) -> Alternative:
    n = len(own["forward"])
    layers = _layers(given.get("layers"), f"{where}.layers", n)

    def column(figure: str, value: Given, usual: Array, counts: bool = True) -> Array:
        if value is None or not counts:
            return usual
        field = f"{where}.{figure}"
        spread = np.broadcast_to(value, n) if np.size(value) == 1 else value
        whole = figure not in CYCLES
        read = arrays.whole_bytes if whole else arrays.numbers
        return np.where(layers, read(spread, field, (n,)), usual)

    categories: dict[str, Array] = dict(own["exclusive"])
    said = given.get("exclusive")
    if isinstance(said, Mapping):
        for name, value in said.items():
            nothing = np.zeros(n, dtype=np.int64)
            if terms & {"exclusive", name}:
                categories[str(name)] = column(
                    f"exclusive.{name}", value, categories.get(str(name), nothing)
                )
    elif said is not None and "exclusive" in terms:
        categories = {name: np.where(layers, 0, value) for name, value in categories.items()}
        rest = categories.get("memory", np.zeros(n, dtype=np.int64))
        categories["memory"] = column("exclusive", said, rest)
    elif said is not None and any(held.any() for held in own["exclusive"].values()):
        raise InputError(
            "is said in all, and only some of its categories count",
            field=f"{where}.exclusive",
            remedy='say it by category: {"parameters": [...]}',
        )
    return Alternative(
        layers=layers,
        exclusive=categories,
        **{name: column(name, given.get(name), own[name]) for name in CYCLES},
        **{
            name: column(name, given.get(name), own[name], name in terms or name == "kv_bytes")
            for name in BYTES
        },
    )


def _layers(given: Any, field: str, n: int) -> Array:
    """Return the mask of layers that are numbered, of all where none are; a mask stays one."""
    mask = np.ones(n, dtype=bool)
    if given is None:
        return mask
    told = np.asarray(given)
    if told.dtype == bool and told.shape == (n,):
        return told.copy()
    try:
        numbers = [arrays.integer(at, field) for at in given]
    except TypeError:
        numbers = [-1]
    if not numbers or min(numbers) < 0 or max(numbers) >= n:
        raise InputError(
            f"names no layers of 0..{n - 1}", field=field, remedy="list layers, counted from 0"
        )
    mask[:] = False
    mask[numbers] = True
    return mask


def _recomputed(
    chain: PartitionData, given: Mapping[str, Any], recompute: str
) -> dict[str, dict[str, Any]]:
    """Return the alternative of layers that are recomputed from what crosses the cut before them.

    What else a layer stashes is there while its backward pass runs, of one microbatch.  It may be
    given which ``layers`` have it, and nothing else.
    """
    field = "recompute"
    if recompute != "full":
        raise InputError(
            f"{str(recompute)[:40]!r} is not derived from layers",
            field=field,
            remedy="choose full, or give its figures as one of the alternatives",
        )
    if not chain.training:
        raise InputError(
            "is a question of training", field=field, remedy="say training, or leave it out"
        )
    told = given.get(recompute, {})
    if not isinstance(told, Mapping) or set(told) - {"layers"}:
        raise InputError(
            "is given as an alternative, too",
            field=field,
            remedy="leave out one of the two, or say its layers alone",
        )
    return {
        recompute: {
            **told,
            "backward": chain.backward + chain.forward,
            "stash": chain.in_bytes[:-1],
            "temporary": chain.temporary + chain.stash,
        }
    }


def options(instance: PartitionData) -> list[tuple[str, Alternative]]:
    """Return names and figures of all that a layer may be, its own first."""
    own = Alternative(
        layers=np.ones(instance.n, dtype=bool),
        kv_bytes=instance.cached_bytes(1),
        **{name: getattr(instance, name) for name in FIGURES if name != "kv_bytes"},
    )
    return [(instance.own_alternative, own), *instance.alternatives.items()]


def cycles_of_options(instance: PartitionData) -> Array:
    """Return, shape (options, n), the cycles of each layer in each option, its own first."""
    every: list[Any] = [instance, *instance.alternatives.values()]
    return np.stack(
        [one.forward + one.backward if instance.training else one.forward for one in every]
    )


def least(instance: Chain) -> Chain:
    """Return a chain that is no dearer than any choice: every figure is the least of its layer's.

    None of its partitions need be one of the instance.
    """
    if not instance.alternatives:
        return instance
    every = [one for _, one in options(instance)]
    forward = np.minimum.reduce([one.forward for one in every])
    held = np.minimum.reduce([one.held for one in every])
    cached = np.minimum.reduce([one.kv_bytes for one in every])
    tokens: dict[str, Any] = {"kv_bytes": cached}
    if not cached.any():
        tokens = {"kv_bytes": None, "tokens": 0}
    return dataclasses.replace(
        instance,
        forward=forward,
        backward=cycles_of_options(instance).min(axis=0) - forward
        if instance.training
        else instance.backward,
        exclusive={"memory": held},
        **tokens,
        **{
            name: np.minimum.reduce([getattr(one, name) for one in every])
            for name in ("temporary", "stash")
        },
        **NONE,
    )


def misfits(instance: PartitionData, choices: Sequence[str]) -> Iterator[Violation]:
    """Yield what makes it impossible to say what layers cost."""
    if not choices:
        return
    if not instance.alternatives:
        yield Violation("choices", "the layers have no alternatives")
    elif len(choices) != instance.n:
        yield Violation("choices", f"{len(choices):,} for {instance.n:,} layers")
    else:
        known = {*instance.alternatives, instance.own_alternative}
        for name in sorted(set(choices) - known)[:1]:
            yield Violation("choices", f"{str(name)[:40]!r} is no alternative")


def broken(instance: PartitionData, solution: PipelineSolution) -> Iterator[Violation]:
    """Yield choices of layers that have no such alternative, and unlike ones within a stage."""
    chosen, own = solution.choices, instance.own_alternative
    for at, name in enumerate(chosen):
        if name != own and not instance.alternatives[name].layers[at]:
            yield Violation("choices", f"{instance.layer_name(at)} has no alternative {name!r}")
    if not chosen or instance.alternatives_per == "layer":
        return
    for stage, (first, end, _) in enumerate(solution.stages):
        here = chosen[first:end]
        names = set(here) - {own}
        # Layers that have it not keep their own figures.
        name = min(names, default=own)
        lacking = name != own and any(
            there and one == own
            for there, one in zip(instance.alternatives[name].layers[first:end], here, strict=True)
        )
        if len(names) > 1 or lacking:
            said = ", ".join(sorted(set(here)))
            yield Violation("choices", f"stage {stage} takes several: {said}")


def settled(instance: Chain, solution: PipelineSolution) -> Chain:
    """Return the chain without alternatives whose layers have the figures chosen.  O(n).

    Choices without `misfits`; those that a layer has not are its own figures.
    """
    if not instance.alternatives:
        return instance
    figures: dict[str, Any] = {
        name: getattr(instance, name) for name in (*CYCLES, "temporary", "stash")
    }
    figures["kv_bytes"] = instance.cached_bytes(1)
    exclusive = dict(instance.exclusive)
    chosen = np.array(solution.choices, dtype=object)
    for name, one in instance.alternatives.items():
        here = chosen == name
        if not np.any(here):
            continue
        for figure in figures:
            figures[figure] = np.where(here, getattr(one, figure), figures[figure])
        nothing = np.zeros(instance.n, dtype=np.int64)
        for category in dict.fromkeys((*exclusive, *one.exclusive)):
            exclusive[category] = np.where(
                here, one.exclusive.get(category, nothing), exclusive.get(category, nothing)
            )
    if not figures["kv_bytes"].any():
        figures["kv_bytes"] = None
    return dataclasses.replace(
        instance,
        **figures,
        exclusive=exclusive,
        **NONE,
    )
