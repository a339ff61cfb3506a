"""What a model serves on a cluster, as users see it: printed, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.report import format as as_text
from stagepack.report.table import Account, Head, Sheet
from stagepack.result import Status
from stagepack.shown import ShownRows

COLUMNS = (
    "batch", "microbatches", "samples", "token_seconds", "tokens_a_second",
    "first_token_seconds", "prefill_tokens_a_second", "boundaries",
)  # fmt: skip


@dataclass(frozen=True)
class ServingPoint:
    """A way to run requests that no other of those tried beats in both latency and throughput.

    Attributes
    ----------
    batch, microbatches : int
        Samples that a stage computes at a time, and how many such batches are under way.
    samples : int
        Under way together, on all copies.
    token_seconds : float
        Between two tokens of a sample.
    tokens_a_second : float
        Of all samples, while they are generated.
    first_token_seconds, prefill_tokens_a_second : float
        On the same stages, samples read whole and one at a time: until the first token of one, and
        tokens of one after the other.
    boundaries : tuple of int
        Where stages begin, and the number of layers.
    """

    batch: int
    microbatches: int
    samples: int
    token_seconds: float
    tokens_a_second: float
    first_token_seconds: float
    prefill_tokens_a_second: float
    boundaries: tuple[int, ...]

    def to_row(self) -> JsonObject:
        """Return the point as plain data."""
        row = {name: getattr(self, name) for name in COLUMNS}
        return {**row, "boundaries": list(self.boundaries)}


@dataclass(frozen=True)
class Room:
    """The most samples of `context` tokens that fit, `batch` in each of the microbatches."""

    context: int
    batch: int
    samples: int


@dataclass(frozen=True, repr=False)
class Serving(ShownRows):
    """What a model serves: the front of latency and throughput, and what fits; its rows are points.

    Attributes
    ----------
    name, cluster : str
    status : Status
        OPTIMAL: the front is exact and complete; INFEASIBLE: not one sample fits.
    context : int
        Tokens of a sample, those that are generated included.
    stages, devices, copies : int
        Stages, devices of each, and copies of the whole (data parallelism).
    points : tuple of ServingPoint
        In order of rising latency, and so of throughput.
    batches : tuple of int
        Those that were tried, each with every number of microbatches that may pay.
    rooms : tuple of Room
        By context: the largest batch of which every stage has one.
    largest_context : int
        The most tokens of a sample, where every stage has one; 0: not one token fits.
    solves : int
        Number of solves.
    reason : str
        Why nothing fits.
    """

    name: str
    cluster: str
    status: Status
    context: int
    stages: int
    devices: int
    copies: int
    points: tuple[ServingPoint, ...]
    batches: tuple[int, ...]
    rooms: tuple[Room, ...]
    largest_context: int
    solves: int
    reason: str = ""

    def to_dict(self) -> JsonObject:
        """Return everything as plain JSON data."""
        plain = {
            name: value for name, value in vars(self).items() if name not in ("points", "rooms")
        }
        found: JsonObject = files.finite(
            {
                **plain,
                "status": str(self.status),
                "batches": list(self.batches),
                "rooms": [vars(one) for one in self.rooms],
                "points": [point.to_row() for point in self.points],
            }
        )
        return found

    def _columns(self) -> Sequence[str]:
        return COLUMNS

    def _rows(self) -> Sequence[JsonObject]:
        return [point.to_row() for point in self.points]

    def contents(self) -> list[Head | Account | Sheet]:
        """Return what is printed."""
        lies = as_text.plural(self.stages, "stage")
        lies += f" of {self.devices} devices" if self.devices > 1 else ""
        lies += f", {self.copies} copies" if self.copies > 1 else ""
        what = f"inference, {self.context:,} tokens a sample, {lies} on {self.cluster}"
        head = (f"{self.name}:", f"{self.status}, {what}")
        if not self.points:
            return [Head([head], reason=self.reason)]
        figures = [
            as_text.plural(len(self.points), "point"),
            "exact and complete" if self.status is Status.OPTIMAL else "not all proved",
            as_text.plural(self.solves, "solve"),
        ]
        fastest, busiest = self.points[0], self.points[-1]
        lines = [
            ("least latency", f"{_tokens(1 / fastest.token_seconds)} tokens a second for each of "
             f"{as_text.plural(fastest.samples, 'sample')}"),
            ("most tokens", f"{_tokens(busiest.tokens_a_second)} a second, for "
             f"{as_text.plural(busiest.samples, 'sample')} together"),
            ("batches tried", f"{_listed(self.batches)}, as many under way as pay"),
            ("counted", f"the last token of samples of {self.context:,} each, prompts read one at "
             "a time; times are estimates"),
            ("longest sample", f"{self.largest_context:,} tokens, one for each stage"),
        ]  # fmt: skip
        return [Head([head], figures), Account(lines), self._front(), self._rooms()]

    def _front(self) -> Sheet:
        header = ("samples", "batch", "under way", "a token", "tokens/s",
                  "first token", "prefill/s")  # fmt: skip
        rows = [
            [
                f"{one.samples:,}",
                f"{one.batch:,}",
                f"{one.microbatches:,}",
                _time(one.token_seconds),
                _tokens(one.tokens_a_second),
                _time(one.first_token_seconds),
                _tokens(one.prefill_tokens_a_second),
            ]
            for one in self.points
        ]
        above = "time between tokens against tokens of all samples; then the first token"
        return Sheet(header, rows, spare=("prefill/s",), above=above)

    def _rooms(self) -> Sheet:
        rows = [[f"{one.context:,}", f"{one.samples:,}", f"{one.batch:,}"] for one in self.rooms]
        above = "the most samples that fit, in as many batches as stages"
        return Sheet(("tokens each", "samples", "batch"), rows, above=above)

    def _line(self) -> str:
        return f"{self.name!r}, {self.status}, {len(self.points)} points"


def _time(seconds: float) -> str:
    """Return a time as it reads well."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:,.4g} {unit}"
    return f"{seconds * 1e6:,.4g} us"


def _tokens(rate: float) -> str:
    """Return a number of tokens, to four digits."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"


def _listed(numbers: Sequence[int]) -> str:
    """Return numbers as a list, in its middle cut."""
    said = [f"{one:,}" for one in numbers]
    return ", ".join(said if len(said) <= 12 else [*said[:8], "...", *said[-3:]])
