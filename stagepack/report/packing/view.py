"""Packings in text: facts, tables, and their part of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import shown
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution, measure
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.report import format as as_text
from stagepack.report.packing.numbers import SCALES, clashes, wasted
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import View
from stagepack.shown import some

HIGHEST = 10  # buffers in the table of the highest
LISTED = 100  # pairs and buffers that JSON lists by name
NAMED = 4  # and that a line for people names
PRINTED = 24  # offsets of a solution alone
COLUMNS = ("buffer", "size", "lifetime", "offset", "top")
FEATURES = (
    ("Circular", "period", "lifetimes modulo {}"),
    ("Conflict graph", "conflicts", "{} pair{s} in place of lifetimes"),
    ("Gaps", "gaps", "{} time{s} in which buffers shrink"),
    ("Fixed", "fixed", "{} buffer{s}"),
    ("Limited to ranges", "allowed", "{} buffer{s}"),
    ("Reserved", "reserved_bytes", "{} byte{s}"),
    ("Colocated", "colocated", "{} group{s}"),
    ("In place", "in_place", "{} pair{s}"),
    ("Views", "views", "{} buffer{s} inside of others"),
    ("Kept apart", "apart", "{} pair{s}"),
    ("Exempt", "exempt", "{} pair{s}"),
    ("Exclusive", "exclusive", "{} buffer{s}"),
    ("Segments", "segment", "of {} byte{s}"),
    ("Placed before", "previous", "{} buffer{s}"),
    ("Hints", "hints", "{} buffer{s}"),
)
"""What an instance may have: how it is called, its fact, and that in words, `s` if several."""


class PackingView(View[LmemPacking, PackingSolution]):
    """What packings look like."""

    counted = "bytes"
    chosen = "Memory map of"
    scales = SCALES
    things = (PackingSolution,)

    def facts(self, instance: LmemPacking) -> JsonObject:
        """Return sizes, totals and simple bounds as plain data."""
        blocks = Blocks.of(instance)
        largest, tallest = int(np.argmax(instance.size)), int(np.argmax(blocks.load))
        timed = instance.conflicts is None
        load = int(blocks.load[tallest])
        banks = instance.banks
        return {
            "buffers": instance.n,
            "blocks": blocks.b,
            "sections": blocks.sections,
            "total_bytes": int(instance.size.sum()),
            "largest_load": {"bytes": load, "time": int(blocks.moment[tallest]) if timed else None},
            # Pairs in place may count once, memories share the load: then it bounds no peak.
            "load_bound": None if instance.in_place or instance.memories else load,
            "capacity": instance.capacity,
            "slack": None if instance.capacity is None else instance.capacity - load,
            "unit": blocks.unit,
            "alignment": {
                "least": int(instance.alignment.min()),
                "most": int(instance.alignment.max()),
            },
            "largest_buffer": {
                "id": instance.buffer_id(largest),
                "bytes": int(instance.size[largest]),
            },
            "times": [int(instance.start.min()), int(instance.end.max())] if timed else None,
            "lifetimes": instance.lifetimes,
            "period": instance.period,
            "conflicts": None if instance.conflicts is None else len(instance.conflicts),
            "gaps": len(instance.gaps),
            "fixed": int((instance.fixed >= 0).sum()),
            "allowed": len({item.buffer for item in instance.allowed}),
            "reserved_bytes": sum(high - low for low, high in instance.reserved),
            "colocated": len(instance.colocated),
            "in_place": len(instance.in_place),
            "views": len(instance.views),
            "apart": len(instance.apart),
            "exempt": len(instance.exempt),
            "exclusive": len(instance.exclusive),
            "segment": instance.segment or 0,
            "previous": int((instance.previous >= 0).sum()),
            "hints": int((instance.hint >= 0).sum()),
            "banks": None
            if banks is None
            else {
                "count": banks.count,
                "bytes": banks.nbytes,
                "pairs": len(banks.pairs),
                "weight": banks.weight,
            },
            "memories": _memories(instance),
        }

    def lines(self, given: JsonObject) -> list[tuple[str, str]]:
        """Return facts as (what, text) for people."""
        number = as_text.number
        load, largest = given["largest_load"], given["largest_buffer"]
        joined = (
            "" if given["blocks"] == given["buffers"] else f" in {number(given['blocks'])} blocks"
        )
        at = "" if load["time"] is None else f" at time {number(load['time'])}"
        found = [
            ("Buffers", number(given["buffers"]) + joined),
            ("Sections", number(given["sections"])),
            ("Size of all", _bytes(given["total_bytes"])),
            (
                "Load bound" if given["load_bound"] is not None else "Largest load",
                _bytes(load["bytes"]) + at,
            ),
        ]
        if given["capacity"] is not None:
            found.append(("Capacity", _room(given["capacity"], given["slack"])))
        elif not given["memories"]:
            found.append(("Capacity", "no limit"))
        found += [
            (f"Memory {memory['name']}", _level(memory, given["memories"]))
            for memory in given["memories"]
        ]
        found.append(("Largest buffer", f"{largest['id']}: {_bytes(largest['bytes'])}"))
        if given["times"] is not None and given["period"] is None:
            alive = given["lifetimes"] and f", alive {given['lifetimes']}"
            first, last = map(number, given["times"])
            found.append(("Times", f"{first} to {last}{alive}"))
        alignment = dict.fromkeys(map(number, given["alignment"].values()))
        unit = f"{number(given['unit'])} byte" + ("" if given["unit"] == 1 else "s")
        found.append(
            (
                "Unit",
                unit
                + (
                    f", alignment {' to '.join(alignment)}"
                    if given["alignment"]["most"] > 1
                    else ""
                ),
            )
        )
        if given["banks"] is not None:
            found.append(("Banks", _banks(given["banks"])))
        found += [
            (what, text.format(number(given[key]), s="" if given[key] == 1 else "s"))
            for what, key, text in FEATURES
            if given[key]
        ]
        return found

    def headline(self, instance: LmemPacking) -> str:
        """Return what an instance is, in one line."""
        buffers = as_text.plural(instance.n, "buffer")
        alive = f" alive {instance.lifetimes}" if instance.lifetimes else ""
        if instance.memories:
            count = len(instance.memories)
            room = "1 memory" if count == 1 else f"{count} memories"
            return f"{buffers}{alive}, {room}, {instance.objective}"
        room = (
            "no capacity" if instance.capacity is None else f"capacity {_bytes(instance.capacity)}"
        )
        return f"{buffers}{alive}, {room}, {instance.objective}"

    def worth(self, instance: LmemPacking, value: Any) -> str:
        """Return an objective value or bound in words."""
        if value is None:
            return as_text.NOTHING
        objective = instance.objective
        if objective in (Objective.SPILL, Objective.PENALTIES):
            return as_text.number(value)
        if objective is Objective.BANK_CONFLICTS and instance.banks is not None:
            if instance.banks.weight is not None:
                return as_text.number(value)
            conflicts, peak = divmod(int(value), instance.conflict_weight)
            return f"{as_text.plural(conflicts, 'conflict')}, peak {_bytes(peak)}"
        return _bytes(int(value))

    def unit(self, instance: LmemPacking) -> str:
        """Return what objectives are counted in."""
        if instance.objective in (Objective.SPILL, Objective.PENALTIES):
            return "cost"
        if instance.objective is Objective.BANK_CONFLICTS:
            return f"bytes, and {as_text.number(instance.conflict_weight)} a conflict"
        return "bytes"

    def unit_of(self, objective: str) -> str:
        """Return what an objective is counted in, as far as its name tells."""
        others = (Objective.BANK_CONFLICTS, Objective.SPILL, Objective.PENALTIES)
        return "" if objective in others else "bytes"

    def solution_facts(self, instance: LmemPacking, solution: PackingSolution) -> JsonObject:
        """Return what a solution amounts to, as plain data under the names it has in JSON."""
        found = measure(instance, solution)
        name = instance.buffer_id
        data: JsonObject = {
            "objective": instance.evaluate(solution),
            "peak": found.peak,
            "wasted_at_peak": None if instance.memories else wasted(instance, solution),
        }
        if instance.memories:
            names = [memory.name for memory in instance.memories]
            data["peaks"] = dict(zip(names, found.peaks, strict=False))
            data["capacities"] = {memory.name: memory.capacity for memory in instance.memories}
            data["spill_cost"] = found.spill_cost
        if instance.banks is not None:
            pairs = clashes(instance, solution)[:LISTED].tolist()
            data["bank_conflicts"] = found.bank_conflicts
            data["conflicting_pairs"] = [[name(i), name(j)] for i, j in pairs]
        if found.moved is not None:
            gone = (instance.previous >= 0) & (instance.previous != solution.offsets)
            data["moved"], data["moved_bytes"] = found.moved, found.moved_bytes
            data["moved_buffers"] = [name(i) for i in np.flatnonzero(gone)[:LISTED].tolist()]
        data["highest"] = [
            {
                "id": name(i),
                "size": int(instance.size[i]),
                "lifetime": _lifetime(instance, i),
                "offset": int(solution.offsets[i]),
                "top": int(solution.offsets[i] + instance.size[i]),
                **({} if solution.memory is None else {"memory": _memory(instance, solution, i)}),
            }
            for i in _highest(instance, solution)
        ]
        return {"solution": data}

    def account(self, instance: LmemPacking, solution: PackingSolution) -> Account:
        """Return what a solution amounts to, and its highest buffers."""
        given = self.solution_facts(instance, solution)["solution"]
        return Account(_lines(given), _sheet(instance, given["highest"]))

    def columns(self, instance: LmemPacking, solution: PackingSolution) -> JsonObject:
        """Return the buffers by columns."""
        timed = instance.conflicts is None
        found = {
            "id": list(instance.ids or map(str, range(instance.n))),
            "size": instance.size,
            "start": instance.start if timed else None,
            "end": instance.end if timed else None,
            "offset": solution.offsets,
            "top": solution.offsets + instance.size,
            "alignment": instance.alignment,
        }
        if solution.memory is not None:
            names = np.array([memory.name for memory in instance.memories])
            found["memory"] = names[solution.memory]
        return found

    def shown(self, thing: object, *, whole: bool = False) -> list[str | Head | Sheet]:
        """Return how a solution prints."""
        assert isinstance(thing, PackingSolution)
        offsets = thing.offsets
        ids = thing.ids or tuple(map(str, range(min(len(offsets), PRINTED))))
        pairs = zip(ids[:PRINTED], offsets[:PRINTED].tolist(), strict=True)
        placed = some(f"{shown(name)} at {offset:,}" for name, offset in pairs)
        head = f"{as_text.plural(len(offsets), 'buffer')} at offsets up to {int(offsets.max()):,}"
        return [f"{head}\n{placed}"]


def _bytes(value: int) -> str:
    """Return bytes in full and, where they are many, in a unit that reads well."""
    if value < 2**10:
        return as_text.plural(value, "byte")
    return f"{value:,} bytes ({as_text.quantity(value)})"


def _highest(instance: LmemPacking, solution: PackingSolution) -> list[int]:
    """Return the buffers with the highest tops."""
    tops = solution.offsets + instance.size
    some = np.arange(instance.n)
    if instance.n > HIGHEST:
        some = np.argpartition(-tops, HIGHEST)[:HIGHEST]
    order: list[int] = some[np.lexsort((some, -tops[some]))].tolist()
    return order


def _lifetime(instance: LmemPacking, buffer: int) -> list[int] | None:
    """Return the lifetime of a buffer; None where conflicts are given instead."""
    if instance.conflicts is not None:
        return None
    return [int(instance.start[buffer]), int(instance.end[buffer])]


def _memory(instance: LmemPacking, solution: PackingSolution, buffer: int) -> str | None:
    """Return the name of the memory that holds a buffer."""
    assert solution.memory is not None
    index = int(solution.memory[buffer])
    return instance.memories[index].name if 0 <= index < len(instance.memories) else None


def _lines(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what :func:`solution_facts` found of a solution as (what, text) for people."""
    found = []
    if "peaks" in given:
        for name, peak in given["peaks"].items():
            found.append((f"Peak of {name}", _of(peak, given["capacities"][name])))
        if given["spill_cost"]:
            found.append(("Cost of accesses", as_text.number(given["spill_cost"])))
    else:
        lost = given["wasted_at_peak"]
        share = f" ({as_text.share(lost / given['peak'])})" if lost else ""
        found.append(("Peak", _bytes(given["peak"])))
        found.append(("Unused at the peak", _bytes(lost) + share))
    if "bank_conflicts" in given:
        pairs = [" and ".join(pair) for pair in given["conflicting_pairs"][:NAMED]]
        found.append(("Bank conflicts", _counted(given["bank_conflicts"], "pair", pairs)))
    if "moved" in given:
        text = _counted(given["moved"], "buffer", given["moved_buffers"][:NAMED])
        found.append(("Moved", text + f", {_bytes(given['moved_bytes'])}"))
    return found


def _counted(count: int, what: str, names: Sequence[str]) -> str:
    """Return ``6 pairs: a and b; ...``."""
    if not count:
        return "none"
    more = "; ..." if count > len(names) else ""
    return f"{as_text.plural(count, what)}: " + "; ".join(names) + more


def _sheet(instance: LmemPacking, highest: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return the table of the highest buffers."""
    header = [*COLUMNS, "memory"] if "memory" in highest[0] else [*COLUMNS]
    rows = []
    for given in highest:
        alive = as_text.NOTHING
        if given["lifetime"] is not None:
            alive = "[{:,}, {:,})".format(*given["lifetime"])
        numbers = [as_text.number(given[key]) for key in ("offset", "top")]
        row = [given["id"], as_text.number(given["size"]), alive, *numbers]
        rows.append([*row, str(given["memory"])] if "memory" in given else row)
    above = f"the {len(rows)} highest of {as_text.plural(instance.n, 'buffer')}"
    return Sheet(
        header,
        rows,
        ("buffer", "memory"),
        spare=("lifetime", "size"),
        title="The highest buffers",
        above=above if instance.n > HIGHEST else "",
    )


VIEW = PackingView("picture.draw", "figure.memory_maps")


def _room(capacity: int, slack: int) -> str:
    """Return a capacity, and how it stands to the load."""
    if not slack:
        return f"{_bytes(capacity)}, just the load"
    room = f"{as_text.quantity(abs(slack))} {'above' if slack > 0 else 'below'}"
    return f"{_bytes(capacity)}, {room} the load"


def _of(peak: int, capacity: int | None) -> str:
    """Return a peak, and how much of the capacity of its memory that is."""
    if capacity is None:
        return f"{_bytes(peak)}, no limit"
    part = as_text.share(peak / capacity) if capacity else as_text.NOTHING
    return f"{_bytes(peak)}, {part} of {as_text.quantity(capacity)}"


def _level(memory: Mapping[str, Any], levels: Sequence[Mapping[str, Any]]) -> str:
    """Return one of some memories in words."""
    number, capacity = as_text.number, memory["capacity"]
    said = ["no limit" if capacity is None else as_text.quantity(capacity)]
    if any(level["cost"] for level in levels):
        said.append(f"{number(memory['cost'])} an access")
    if memory["alignment"] > 1:
        said.append(f"alignment {number(memory['alignment'])}")
    if memory["reserved_bytes"]:
        said.append(f"{_bytes(memory['reserved_bytes'])} reserved")
    if memory["only_here"]:
        said.append(f"{as_text.plural(memory['only_here'], 'buffer')} only here")
    return ", ".join(said)


def _banks(banks: Mapping[str, int | None]) -> str:
    weight = "" if banks["weight"] is None else f", weight {as_text.number(banks['weight'])}"
    return (
        f"{as_text.number(banks['count'])} of {as_text.quantity(banks['bytes'])}, "
        f"{as_text.number(banks['pairs'])} pairs to keep apart{weight}"
    )


def _memories(instance: LmemPacking) -> list[JsonObject]:
    """Return facts of each of several memories."""
    homes = instance.homes
    alone = None if homes is None else homes & (homes.sum(axis=1, keepdims=True) == 1)
    return [
        {
            "name": memory.name,
            "capacity": memory.capacity,
            "cost": memory.cost,
            "alignment": memory.alignment,
            "reserved_bytes": sum(high - low for low, high in memory.reserved),
            "only_here": 0 if alone is None else int(alone[:, at].sum()),
        }
        for at, memory in enumerate(instance.memories)
    ]
