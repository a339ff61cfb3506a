"""Validates the arguments of phase schedules; errors name the field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.arrays import integer
from stagepack.instances.phases.data import PhaseData
from stagepack.instances.profile import Chip, Lifetimes, ModelProfile, inner_bytes
from stagepack.instances.words import LARGEST, Words, WordT, member

STATE = "optimiser state"
RATES = ("remote_bandwidth", "host_bandwidth", "tile_bandwidth", "gather_bandwidth")


def choices(given: Iterable[str], words: type[WordT], name: str) -> tuple[WordT, ...]:
    """Return the `words` that are `given`, each once, in the order of the vocabulary.

    None, or an unknown one, is refused by the `name` of the field.
    """
    asked = [member(word, words, name) for word in ([given] if isinstance(given, str) else given)]
    if not asked:
        raise InputError("is empty", field=name, remedy="choose from " + ", ".join(words))
    return tuple(word for word in words if word in asked)


def boundaries(given: Iterable[int] | None) -> tuple[int, ...] | None:
    """Return fixed boundaries as integers, or None."""
    if given is None:
        return None
    if not isinstance(given, Iterable):
        raise InputError(
            f"{given!r} is no list", field="fixed_boundaries", remedy="write [0, ..., n]"
        )
    return tuple(integer(cut, "fixed_boundaries") for cut in given)


def skips(given: Iterable[tuple[int, int]], n: int) -> tuple[tuple[int, int], ...]:
    """Return skips in order, each once; (l, l + 1) is no skip but the chain itself.

    Refuses the entry that is no pair, or leads backward or out of the chain.
    """
    if not isinstance(given, Iterable):
        raise InputError(
            f"{given!r} is no list", field="skips", remedy="write pairs (layer that writes, reader)"
        )
    found = set()
    for at, pair in enumerate(given):
        where = f"skips[{at}]"
        try:
            u, v = pair
        except (TypeError, ValueError):
            raise InputError(
                f"{pair!r} is no pair", field=where, remedy="write (layer that writes, reader)"
            ) from None
        u, v = integer(u, where), integer(v, where)
        if not -1 <= u < v < n:
            raise InputError(
                f"layer {v} cannot read the output of layer {u}",
                field=where,
                remedy=f"give -1 <= writer < reader < {n}",
            )
        if v > u + 1:
            found.add((u, v))
    return tuple(sorted(found))


def batch(
    microbatch: Any, global_batch: Any, data_parallel: Any, steps: Any
) -> tuple[int | None, int]:
    """Return (microbatch or None where it is free, global batch).

    With `steps` the `microbatch` is given (1 when absent), without them and with a `global_batch`
    alone it is free.  `data_parallel` are replicas.  Figures that contradict each other, or are no
    whole number of steps, are refused by field.
    """
    replicas = integer(data_parallel, "data_parallel", 1)
    size = None if microbatch is None else integer(microbatch, "microbatch", 1)
    whole = None if global_batch is None else integer(global_batch, "global_batch", 1)
    if steps is not None or whole is None:
        size = 1 if size is None else size
        total = integer(1 if steps is None else steps, "steps", 1) * size * replicas
        if whole not in (None, total):
            raise InputError(
                f"a global batch of {whole} is not {total // (size * replicas)} steps of {size} "
                f"samples on {replicas} replicas",
                field="steps",
                remedy="leave one of them out",
            )
        whole = total
    unit = (1 if size is None else size) * replicas
    if whole % unit or whole >= 2**40:
        raise InputError(
            f"{whole} samples are not whole steps of {unit}",
            field="global_batch",
            remedy=f"give a multiple of {unit}, below 2**40",
        )
    return size, whole


def chip(given: Chip | None, facts: Words) -> Chip:
    """Return the chip with the facts that are not None; rates and numbers of tiles must be in
    range.
    """
    facts = {name: value for name, value in facts.items() if value is not None}
    base = Chip() if given is None else given
    if not isinstance(base, Chip):
        raise InputError(f"{base!r} is no chip", field="chip", remedy="give a stagepack.Chip")
    try:
        if "io_tiles" in facts:
            if not isinstance(facts["io_tiles"], Iterable):
                raise InputError(
                    f"{facts['io_tiles']!r} is no range",
                    field="chip.io_tiles",
                    remedy="give the least and the greatest number, for example (0, 64)",
                )
            facts["io_tiles"] = tuple(facts["io_tiles"])
        found = msgspec.convert(
            {**msgspec.structs.asdict(base), **facts}, Chip, strict=True, from_attributes=True
        )
    except (msgspec.ValidationError, TypeError) as error:
        problem, _, where = str(error).partition(" - at `$.")
        raise InputError(
            problem[:1].lower() + problem[1:].replace("`", ""),
            field="chip" + (f".{where.rstrip('`')}" if where else ""),
            remedy="see stagepack.Chip",
        ) from None
    for name in RATES:
        value = getattr(found, name)
        if value is not None and not 1e-9 <= value <= 1e15:  # NaN fails, too
            raise InputError(
                f"{str(value)[:20]} bytes a cycle",
                field=f"chip.{name}",
                remedy="give a rate from 1e-9 to 1e15, or none where it is free",
            )
    if not 1e-3 <= found.clock <= 1e15:
        raise InputError(
            f"{str(found.clock)[:20]} Hz", field="chip.clock", remedy="give a frequency"
        )
    least, most = found.io_tiles
    if not 0 <= least <= most < found.tiles:
        raise InputError(
            f"{least} to {most} I/O tiles of {found.tiles} tiles",
            field="chip.io_tiles",
            remedy="give 0 <= least <= greatest < tiles",
        )
    return found


def instance(found: PhaseData) -> None:
    """Refuse what contradicts itself or could overflow."""
    n = found.n
    if found.sharding.min() < 1:
        raise InputError("a factor below 1", field="sharding", remedy="give factors >= 1")
    if found.recomputations < 0:
        raise InputError(
            f"{found.recomputations} times", field="recomputations", remedy="give 0 or more"
        )
    for name in ("remote_memory", "graphs"):
        value = getattr(found, name)
        if value is not None and not 0 <= value < LARGEST:
            raise InputError(f"{value}", field=name, remedy="give 0 or more, below 2**62")
    fixed = found.fixed_boundaries
    if fixed is not None and (
        len(fixed) < 2 or fixed[0] != 0 or fixed[-1] != n or list(fixed) != sorted(set(fixed))
    ):
        raise InputError(
            f"{list(fixed)} does not rise from 0 to {n}",
            field="fixed_boundaries",
            remedy=f"write [0, ..., {n}]",
        )
    if found.microbatch is not None:
        for name in ("forward_fixed", "backward_fixed", "temporary_fixed"):
            if getattr(found, name).any():
                raise InputError(
                    "is for a free microbatch",
                    field=name,
                    remedy="give global_batch without microbatch and steps, or leave it out",
                )
    if not found.io_tile_choices:
        raise InputError(
            f"none of the allowed modes ({', '.join(found.modes)}) can run with "
            f"{found.chip.io_tiles[0]} to {found.chip.io_tiles[1]} I/O tiles",
            field="modes",
            remedy="naive and compute need 0 I/O tiles, io and io_overlapped at least 1",
        )
    _bounded(found)


def _bounded(found: PhaseData) -> None:
    """Refuse figures for which a layer a phase, in the slowest mode, would exceed 2**62."""
    chip, samples = found.chip, found.global_batch // found.data_parallel
    rates = [getattr(chip, name) for name in RATES[:3]]
    slowest = min([1.0, *(float(rate) for rate in rates if rate is not None)])
    fanout = 2 + len(found.skips) / found.n
    # x: forward and backward, loads and stores; variables: in every step of both.
    moved = samples * float(
        3 * (found.variables.sum(dtype=float) + found.state.sum(dtype=float))
        + 6 * fanout * found.activations.sum(dtype=float)
        + 2 * found.tape.sum(dtype=float)
    )
    moved += 2.0 * float(found.n) * samples * fanout * float(found.activations.max())
    gathered = float(found.variables.sum(dtype=float)) / float(chip.gather_bandwidth or 1)
    cycles = (
        samples
        * chip.tiles
        * float(
            (2 + found.recomputations) * (found.forward + found.forward_fixed).sum(dtype=float)
            + (found.backward + found.backward_fixed).sum(dtype=float)
        )
    )
    cycles += float(found.update.sum(dtype=float)) + 2.0 * found.n * chip.startup
    cycles += 3 * samples * gathered
    held = samples * float((found.temporary + found.temporary_fixed).sum(dtype=float))
    if moved >= LARGEST or held >= LARGEST:
        raise InputError(
            "all bytes of all steps exceed 2**62", field="activations", remedy="use a coarser unit"
        )
    if moved / slowest + cycles >= LARGEST:
        raise InputError(
            "all cycles of all steps could exceed 2**62",
            field="forward",
            remedy="use a coarser unit or faster links",
        )


def derived(profile: ModelProfile) -> JsonObject:
    """Return what a model profile says of layers and tensors, as fields of a phase schedule."""
    Lifetimes.of(profile)  # refuses tensors without size, written twice, read too early
    layers, n = profile.layers, len(profile.layers)
    born = {tensor: at for at, layer in enumerate(layers) for tensor in layer.outputs}
    host = {tensor for layer in layers for tensor in layer.inputs if tensor not in born}
    sizes = [sum(profile.tensors[tensor] for tensor in host)]
    sizes += [sum(profile.tensors[tensor] for tensor in layer.outputs) for layer in layers]
    found = {
        (born.get(tensor, -1), at)
        for at, layer in enumerate(layers)
        for tensor in layer.inputs
        if at > born.get(tensor, -1) + 1
    }
    read = [sum(profile.tensors[tensor] for tensor in set(layer.inputs)) for layer in layers]
    return {
        "variables": [layer.exclusive.get("parameters", 0) for layer in layers],
        "state": [layer.exclusive.get(STATE, 0) for layer in layers],
        "forward": [layer.forward for layer in layers],
        "backward": [layer.backward for layer in layers],
        "temporary": inner_bytes(profile),
        "tape": [max(0, layers[at].stash - read[at]) for at in range(n)],
        "activations": sizes,
        "skips": sorted(found),
        "layer_class": _classes(profile, sizes, found),
        "layer_names": [layer.name or f"layer {at}" for at, layer in enumerate(layers)],
    }


def _classes(profile: ModelProfile, sizes: list[int], skipped: set[tuple[int, int]]) -> list[int]:
    """Return classes of layers: equal code, figures and bytes read and written, equal skips."""
    seen: dict[object, int] = {}
    found = []
    for at, layer in enumerate(profile.layers):
        far = sorted(at - u for u, v in skipped if v == at and u >= 0)
        host = any(u < 0 for u, v in skipped if v == at)
        code = tuple(sorted(layer.shared)) or (at,)
        held = tuple(sorted(layer.exclusive.items()))
        own = (code, held, layer.forward, layer.backward, layer.temporary, layer.stash)
        key = (*own, sizes[at], sizes[at + 1], tuple(far), host)
        found.append(seen.setdefault(key, len(seen)))
    return found
