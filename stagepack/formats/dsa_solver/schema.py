"""What documents of dsa-solver hold, as its two JSON schemas have it (version 1)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stagepack.contracts import JsonObject
from stagepack.instances.packing.native import Moment, Positive
from stagepack.instances.profile import Bytes

VERSION = 1
Id = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Profile = Literal[
    "standard_dsa",
    "dsa_rp_v1",
    "pypto_structured",
    "pypto_hard_v1",
    "pypto_research_v1",
    "pypto_core_relaxation",
]
Term = Literal["capacity_overflow", "total_peak", "max_peak", "reuse_cost", "bank_cost"]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object that holds what it says, and nothing else."""


class Interval(Strict, frozen=True, kw_only=True):
    """A buffer is in use in [lower, upper)."""

    lower: Moment
    upper: Moment


class Range(Strict, frozen=True, kw_only=True):
    """Addresses [begin, end)."""

    begin: Bytes
    end: Bytes


class BankGeometry(Strict, frozen=True, kw_only=True):
    """Banks of a pool; who should not share one is not said."""

    bank_size: Bytes
    num_banks: Id


class Pool(Strict, frozen=True, kw_only=True):
    """A memory."""

    id: Id
    name: str
    capacity: Bytes | None
    reserved_ranges: list[Range]
    bank_geometry: BankGeometry | None = None


class Buffer(Strict, frozen=True, kw_only=True):
    """A buffer, when it is in use, and the pools that it may lie in."""

    id: Id
    name: str
    size: Bytes
    alignment: Positive
    live_intervals: Annotated[list[Interval], msgspec.Meta(min_length=1)]
    allowed_pools: Annotated[list[Id], msgspec.Meta(min_length=1)]


class Pair(Strict, frozen=True, kw_only=True):
    """Two buffers."""

    first: Id
    second: Id


class Separation(Pair, frozen=True, kw_only=True):
    """Two buffers that never share a byte; why, is of no consequence."""

    reasons: list[str] = []


class Penalty(Pair, frozen=True, kw_only=True):
    """What it costs if two buffers share a byte; why, is of no consequence."""

    cost: Bytes
    reason: str


class Pinned(Strict, frozen=True, kw_only=True):
    """Where a buffer lies, and whether nobody else ever uses its bytes."""

    buffer: Id
    pool: Id
    offset: Bytes
    exclusive_for_all_time: bool


class Constraints(Strict, frozen=True, kw_only=True):
    """Rules beside lifetimes."""

    colocations: list[Pair]
    separations: list[Separation]
    temporal_exclusions: list[Pair]
    pinned_allocations: list[Pinned]


class CostModel(Strict, frozen=True, kw_only=True):
    """Costs of pairs."""

    reuse_penalties: list[Penalty]


class Terms(Strict, frozen=True, kw_only=True):
    """What is minimised, the first term first."""

    aggregation: Literal["lexicographic"]
    terms: Annotated[list[Term], msgspec.Meta(min_length=1)]


class Problem(Strict, frozen=True, kw_only=True):
    """An allocation problem; `pypto_structure` tells where its buffers come from."""

    pools: Annotated[list[Pool], msgspec.Meta(min_length=1)]
    buffers: Annotated[list[Buffer], msgspec.Meta(min_length=1)]
    constraints: Constraints
    objective: Terms
    cost_model: CostModel | None = None
    pypto_structure: JsonObject | None = None


class ProblemDocument(Strict, frozen=True, kw_only=True):
    """A problem with its name."""

    schema_version: int
    profile: Profile
    instance: Annotated[str, msgspec.Meta(min_length=1)]
    problem: Problem
    metadata: dict[str, str] = {}
    relaxed_from: str | None = None
    relaxed_features: list[str] = []


class Placement(Strict, frozen=True, kw_only=True):
    """Where a buffer lies."""

    buffer: Id
    pool: Id
    offset: Bytes


class SolutionDocument(Strict, frozen=True, kw_only=True):
    """A place for each buffer of the problem with this name and fingerprint."""

    schema_version: int
    profile: Profile
    instance: Annotated[str, msgspec.Meta(min_length=1)]
    problem_fingerprint: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    metadata: dict[str, str]
    placements: list[Placement]
