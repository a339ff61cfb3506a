"""The best layout of a model on its devices, and what is known of the others."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, suggest
from stagepack.formats.hugging_face.layout import Layout
from stagepack.formats.megatron.arguments import arguments as megatron
from stagepack.formats.serving.arguments import arguments as vllm
from stagepack.formats.torch.titan import arguments as torchtitan
from stagepack.planning.model_plan import ModelPlan
from stagepack.report import format as as_text
from stagepack.report.table import Account, Head, Sheet
from stagepack.result import Status, relative_gap
from stagepack.shown import Shown
from stagepack.solve import versions

PROBLEM, VERSION = "layout-plan", 1
DEGREES = ("tensor", "pipeline", "data", "expert")
TOOLS: dict[str, Callable[[Layout, Any, Any], str]] = {
    "megatron": megatron,
    "torchtitan": torchtitan,
    "vllm": vllm,
}
WORD = 60
"""Letters of an argument that a screen shows whole."""
TABLE = 10
"""Rows of layouts that are printed."""


@dataclass(frozen=True)
class Candidate:
    """What is known of a layout."""

    layout: Layout
    bound: int  # no step of it takes fewer cycles, with any stages and any schedule
    # Cycles of the best step found; None where none was looked for, or it does not fit.
    objective: int | None
    reason: str  # why it does not fit
    # `computing`, `exchanging`, `reducing`: cycles of a step that a device computes, exchanges
    # values and weights in its passes, and sums up gradients, on average; the rest of a step it
    # waits.
    computing: float
    exchanging: float
    reducing: float

    def to_dict(self) -> JsonObject:
        """Return it as plain JSON data."""
        return {**vars(self), "layout": vars(self.layout)}


@dataclass(frozen=True, repr=False)
class LayoutPlan(Shown):
    """How a model lies on its devices, with a bound over all layouts.

    Attributes
    ----------
    name : str
    status : Status
        OPTIMAL: no layout is better, with any stages and any schedule; INFEASIBLE: none fits.
    best : Candidate or None
    plan : ModelPlan or None
        The stages of one copy, and their schedule.
    bound : int or None
        Cycles that a step takes at least, in every layout.
    tokens : int
        Of a step.
    training : bool
    candidates : tuple of Candidate
        All that fit or may fit, the best first.
    layouts : int
        How many there are.
    reason : str
        Why there is none.
    memory : mapping of str to int
        Bytes of the fullest device, by category.
    given : mapping
        What was said of the model, the devices and the step.
    interrupted : bool
    """

    name: str
    status: Status
    best: Candidate | None
    plan: ModelPlan | None
    bound: int | None
    tokens: int
    training: bool
    candidates: tuple[Candidate, ...]
    layouts: int
    reason: str = ""
    memory: Mapping[str, int] = field(default_factory=dict)
    given: JsonObject = field(default_factory=dict)
    interrupted: bool = False

    @property
    def layout(self) -> Layout | None:
        """The degrees that were chosen."""
        return None if self.best is None else self.best.layout

    @property
    def objective(self) -> int | None:
        """Cycles of a step: the schedule of a copy, and then its slowest reduction."""
        return None if self.best is None else self.best.objective

    @property
    def gap(self) -> float | None:
        """Relative gap over all layouts."""
        return relative_gap(self.objective, self.bound)

    @property
    def seconds(self) -> float | None:
        """Seconds of a step."""
        return None if self.objective is None else self.objective / 1e9

    @property
    def throughput(self) -> float | None:
        """Tokens a second."""
        return self.tokens / self.seconds if self.seconds else None

    def to_dict(self) -> JsonObject:
        """Return the answer as one JSON document, with the plan of a copy."""
        whole: JsonObject = {
            "problem": PROBLEM,
            "version": VERSION,
            "name": self.name,
            "status": str(self.status),
            "objective": self.objective,
            "objective_name": "cycles of a step",
            "bound": self.bound,
            "gap": self.gap,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "throughput": self.throughput,
            "training": self.training,
            "layout": None if self.layout is None else vars(self.layout),
            "memory": dict(self.memory),
            "reason": self.reason or None,
            "layouts": self.layouts,
            "candidates": [one.to_dict() for one in self.candidates],
            "given": self.given,
            "versions": versions(),
            "commands": dict(self.commands()),
            "plan": None if self.plan is None else self.plan.to_dict(),
        }
        plain: JsonObject = files.finite(whole)
        return plain

    def command(self, tool: str) -> str:
        """Return the arguments that tell a tool this layout.

        Parameters
        ----------
        tool : str
            "megatron", "torchtitan" or "vllm".

        Raises
        ------
        InputError
            For another tool, what the tool cannot do, or where nothing fits.
        """
        if tool not in TOOLS:
            raise InputError(f"{tool!r} takes no layouts", field="as_", remedy=suggest(tool, TOOLS))
        if self.layout is None or self.plan is None:
            raise InputError("has no layout", field="plan", remedy=self.reason)
        partition = self.plan.level("partition")
        written: str = TOOLS[tool](self.layout, partition.instance, partition.result.solution)
        return written

    def export(self, path: str | Path, *, as_: str) -> None:
        """Write :meth:`command` of the tool `as_` to a file."""
        files.write(path, self.command(as_))

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield the tools that can do this layout, with their arguments."""
        for tool in TOOLS:
            with contextlib.suppress(InputError):
                yield tool, self.command(tool).strip()

    def to_json(self, path: str | None = None) -> str:
        """Return the answer as JSON, and write it to `path` if given."""
        text = files.json_text(self.to_dict()) + "\n"
        if path is not None:
            files.write(path, text)
        return text

    def contents(self) -> list[Head | Account | Sheet]:
        """Return what is printed."""
        layout, plan = self.layout, self.plan
        if layout is None or plan is None:
            return [Head([(self.name, str(self.status))], reason=self.reason)]
        chosen = ", ".join(f"{name} {getattr(layout, name)}" for name in DEGREES)
        figures = [
            f"{as_text.duration(self.seconds or 0)} a step, "
            f"{as_text.number(round(self.throughput or 0))} tokens a second",
            f"at least {as_text.duration((self.bound or 0) / 1e9)} in every layout "
            f"({self.layouts:,} of them)",
            f"gap {as_text.gap(self.gap)}",
        ]
        many = f"{layout.microbatches:,} microbatch{'es' if layout.microbatches > 1 else ''}"
        lines = [
            ("degrees", chosen),
            ("step", f"{many} of {as_text.plural(layout.microbatch, 'sample')} in each copy"),
        ]
        if self.training:
            lines.append(("recomputed", "all layers" if layout.recompute else "nothing"))
        for tool, text in self.commands():
            short = max(map(len, text.split())) <= WORD  # others would be cut on the screen
            lines.append((tool, text if short else f"write it: --export FILE --as {tool}"))
        held = [f"{name} {as_text.quantity(count)}" for name, count in self.memory.items() if count]
        lines.append(("fullest", ", ".join(held)))
        return [
            Head([(f"{self.name}:", str(self.status))], figures),
            Account(lines),
            self._others(),
            *plan.contents()[-1:],
        ]

    def _others(self) -> Sheet:
        """Return the best layouts as a table, with what their devices do with a step."""
        rows = []
        for one in self.candidates[:TABLE]:
            layout, step = one.layout, one.objective
            parts = (one.computing, one.exchanging, one.reducing)
            known = [as_text.NOTHING] * 4
            if step:
                idle = max(0.0, step - sum(parts))
                known = [as_text.share(part / step) for part in (*parts, idle)]
            rows.append(
                [
                    *(str(getattr(layout, name)) for name in DEGREES),
                    f"{layout.microbatches:,} x {layout.microbatch}",
                    "all" if layout.recompute else "no",
                    as_text.NOTHING if step is None else as_text.duration(step / 1e9),
                    as_text.duration(one.bound / 1e9),
                    *known,
                ]
            )
        header = (
            *DEGREES, "microbatches", "again", "step", "at least", "compute", "links", "sums",
            "idle",
        )  # fmt: skip
        return Sheet(header, rows, (), spare=("links", "sums", "compute", "again"), what="layout")

    def _line(self) -> str:
        return f"{self.name!r}, {self.status}, {self.layout}"


def by_bound(one: Candidate) -> tuple[float, int]:
    """Return where a candidate stands: by the best step found, then by its bound."""
    return math.inf if one.objective is None else one.objective, one.bound
