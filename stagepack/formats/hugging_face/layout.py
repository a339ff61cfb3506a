"""How a model lies on its devices: degrees of parallelism, microbatches, recomputation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class Layout:
    """Degrees, and how the samples of a step are divided.

    Attributes
    ----------
    tensor, pipeline, data, expert : int
        Devices that share each layer, stages, copies of each stage, and copies that share experts.
    microbatch, microbatches : int
        Samples of a microbatch, and microbatches of a step that a copy takes.
    recompute : bool
        Whether all layers are computed again in the backward pass.
    zero, sequence : int
        What copies divide, as of :class:`.costs.Shares`, and tokens of a sample.
    """

    tensor: int
    pipeline: int
    data: int
    expert: int
    microbatch: int
    microbatches: int
    recompute: bool
    zero: int = 1
    sequence: int = 1

    @property
    def samples(self) -> int:
        """Samples of a step."""
        return self.data * self.microbatch * self.microbatches

    def words(self, *, training: bool) -> dict[str, Any]:
        """Return what a chain of this layout is read with."""
        said = {name: getattr(self, name) for name in ("tensor", "data", "expert", "microbatch")}
        kept = {"keep": "inputs" if self.recompute else "all"} if training else {}
        return {**said, "microbatches": self.microbatches, **kept}
