"""Layer groupings in text: facts, and a table of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stagepack.contracts import JsonObject
from stagepack.errors import shown
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.banks import group_conflicts, group_crossings
from stagepack.instances.groups.check import group_cycles
from stagepack.instances.groups.chips import assumed
from stagepack.instances.groups.lmem import copies
from stagepack.instances.groups.operators import macs
from stagepack.instances.groups.timesteps import Timetable, alone_row
from stagepack.report import format as as_text
from stagepack.report.groups.numbers import cut_words
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import View
from stagepack.shown import some

LONGEST_NAME = 24
PRINTED = 40  # groups of a plan
COLUMNS = (
    "group",
    "operators",
    "from",
    "to",
    "slices",
    "cycles",
    "compute",
    "transfers",
    "lane bytes",
)


class GroupingView(View[LayerGrouping, GroupingSolution]):
    """What layer groupings look like."""

    counted = "cycles"
    chosen = "Plan of"
    things = (GroupingSolution,)

    def facts(self, instance: LayerGrouping) -> JsonObject:
        """Return sizes and totals as plain data."""
        chip = instance.chip
        kinds = Counter(str(operator.kind) for operator in instance.operators)
        weights = [weight for operator in instance.operators for weight in operator.weights]
        return {
            "operators": instance.n,
            "kinds": dict(kinds.most_common()),
            "macs": sum(macs(op, instance.sources(at)) for at, op in enumerate(instance.operators)),
            "weight_bytes": sum(weight.nbytes(weight.channels) for weight in weights),
            "activation_bytes": sum(t.nbytes(t.shape) for t in instance.tensors),
            "chip": chip.name,
            "lanes": chip.lanes,
            "lane_bytes": chip.memory,
            "banks": chip.banks,
            "rates": [chip.load_rate, chip.store_rate],
            "kind_rates": {str(kind): rate for kind, rate in chip.rates.items()},
            "assumed": list(assumed(chip)),
            "slicing": str(instance.slicing),
            "max_slices": instance.max_slices,
            "max_group": instance.max_group,
            "overlap_limit": instance.overlap_limit,
            "order": str(instance.order),
            "timesteps": str(instance.timesteps),
            "standalone": str(instance.standalone),
        }

    def lines(self, given: JsonObject) -> list[tuple[str, str]]:
        """Return facts as (what, text) for people."""
        number, quantity = as_text.number, as_text.quantity
        kinds = ", ".join(f"{count} {name}" for name, count in given["kinds"].items())
        again = "any" if given["overlap_limit"] is None else f"{given['overlap_limit']:.0%}"
        load, store = given["rates"]
        by_kind = ", ".join(f"{kind} {rate:g}" for kind, rate in given["kind_rates"].items())
        return [
            ("Operators", f"{number(given['operators'])} ({kinds})"),
            ("Multiply-accumulates", number(given["macs"])),
            ("Weights", quantity(given["weight_bytes"])),
            ("Activations", quantity(given["activation_bytes"])),
            ("Chip", shown(given["chip"] or "unnamed")),
            (
                "Local memory",
                f"{as_text.plural(given['lanes'], 'lane')} of {quantity(given['lane_bytes'])}, "
                f"{as_text.plural(given['banks'], 'bank')}",
            ),
            ("Transfers", f"loads {load:g}, stores {store:g} bytes a cycle"),
            *([("Lane does in a cycle", by_kind)] if by_kind else []),
            *([("Assumed", said)] if (said := _words(given["assumed"])) else []),
            (
                "Groups",
                f"at most {as_text.plural(given['max_group'], 'operator')}; "
                f"order {given['order']}, timesteps {given['timesteps']}; "
                f"from global memory: {given['standalone']}",
            ),
            (
                "Slices",
                f"{given['slicing']}, at most {number(given['max_slices'])}; read again {again}",
            ),
        ]

    def headline(self, instance: LayerGrouping) -> str:
        """Return what an instance is, in one line."""
        chip = instance.chip.name or "a chip"
        return f"{as_text.plural(instance.n, 'operator')} on {shown(chip)}, {instance.objective}"

    def rows(self, instance: LayerGrouping, solution: GroupingSolution) -> list[JsonObject]:
        """Return what each group amounts to."""
        found = []
        cycles = group_cycles(instance, solution)
        for group, table in solution.timetables(instance):
            operators = solution.operators(group)
            row = {
                "group": group,
                "first": instance.operators[operators[0]].name,
                "last": instance.operators[operators[-1]].name,
                "operators": len(operators),
                "slices": list(solution.slices[group]),
                "cycles": cycles[group],
            }
            if table is None:
                compute, load, store = alone_row(instance, operators[0])
                busy = {"compute": compute, "transfers": load + store}
                found.append(
                    {
                        **row,
                        **busy,
                        "lane_bytes": None,
                        "bank_conflicts": None,
                        "bank_crossings": None,
                    }
                )
                continue
            offsets = solution.offsets[group] if solution.offsets else ()
            placed = len(offsets) == len(copies(table))
            found.append(
                {
                    **row,
                    "compute": sum(table.compute) * table.rounds,
                    "transfers": sum(table.transfers) * table.rounds + sum(table.once),
                    "lane_bytes": _highest(table, offsets) if placed else None,
                    "bank_conflicts": group_conflicts(table, offsets) if placed else None,
                    "bank_crossings": group_crossings(table, offsets) if placed else None,
                }
            )
        return found

    def solution_facts(self, instance: LayerGrouping, solution: GroupingSolution) -> JsonObject:
        """Return what a plan amounts to, as plain data under the names it has in JSON."""
        return {"groups": self.rows(instance, solution)}

    def columns(self, instance: LayerGrouping, solution: GroupingSolution) -> list[JsonObject]:
        """Return a row a group."""
        return self.rows(instance, solution)

    def shown(self, thing: object, *, whole: bool = False) -> list[str | Head | Sheet]:
        """Return how a plan prints."""
        assert isinstance(thing, GroupingSolution)
        head = f"{as_text.plural(thing.groups, 'group')} of "
        head += as_text.plural(thing.boundaries[-1], "operator")
        slices = some("global memory" if not cut else cut_words(cut) for cut in thing.slices)
        return [f"{head}\nboundaries {some(thing.boundaries)}\nslices {slices}"]

    def account(self, instance: LayerGrouping, solution: GroupingSolution) -> Account:
        """Return what a plan amounts to, and a line a group."""
        number = as_text.number
        rows = self.rows(instance, solution)
        inside = sum(row["operators"] for row in rows if row["slices"])
        totals = [
            ("Groups", number(len(rows))),
            ("Operators in local memory", f"{number(inside)} of {number(instance.n)}"),
            ("Cycles", number(sum(row["cycles"] for row in rows))),
            ("Compute", number(sum(row["compute"] for row in rows))),
            ("Transfers", number(sum(row["transfers"] for row in rows))),
            ("Bank conflicts", number(sum(row["bank_conflicts"] or 0 for row in rows))),
            ("Across banks", number(sum(row["bank_crossings"] or 0 for row in rows))),
        ]
        sheet = Sheet(
            COLUMNS,
            [_cells(row) for row in rows],
            words=("from", "to", "slices"),
            spare=("transfers", "compute", "to", "lane bytes", "operators"),
            title="Groups",
            most=PRINTED,
            what="group",
            rest="JSON has all",
        )
        return Account(totals, sheet)


def _words(fields: list[str]) -> str:
    return ", ".join(field.replace("_", " ") for field in fields)


def _highest(table: Timetable, offsets: tuple[int, ...]) -> int:
    """Return the bytes of a lane that a group uses."""
    tops = zip(copies(table), offsets, strict=True)
    return max((offset + copy.buffer.lane_bytes for copy, offset in tops), default=0)


def _cells(row: Mapping[str, Any]) -> list[str]:
    number = as_text.number
    inside = [row[key] for key in ("compute", "transfers", "lane_bytes")]
    return [
        str(row["group"]),
        number(row["operators"]),
        shown(row["first"], LONGEST_NAME),
        shown(row["last"], LONGEST_NAME),
        cut_words(row["slices"]),
        number(row["cycles"]),
        *("" if value is None else number(value) for value in inside),
    ]


VIEW = GroupingView("picture.draw", "figure.plan_charts")
