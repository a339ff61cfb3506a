"""What layers may be instead: recomputed in the backward pass, kept on the CPU or on disk.

An alternative replaces some of a layer's own figures; see :mod:`.pipeline.choices`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagepack.instances.arrays import freeze
from stagepack.instances.profile import Array

CYCLES = ("forward", "backward")
BYTES = ("temporary", "stash", "kv_bytes")
FIGURES = (*CYCLES, "exclusive", *BYTES)
"""What an alternative may say of layers."""
OWN = "own"
PER = ("layer", "stage")


@dataclass(frozen=True, eq=False)
class Alternative:
    """Figures of the layers that take it; where a layer has it not, they are the layer's own."""

    layers: Array  # bool, shape (n,): the layers that have it
    # `forward`, `backward`: ndarray, shape (n,): cycles of each layer on a device of speed 1.
    forward: Array
    backward: Array
    # dict of int64, shape (n,): bytes of each layer that are always in the memory of its device, by
    # category.
    exclusive: dict[str, Array]
    # `temporary`, `stash`, `kv_bytes`: int64, shape (n,): bytes in use while the layer runs, kept
    # for its backward pass, and taken by a token.
    temporary: Array
    stash: Array
    kv_bytes: Array

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def held(self) -> Array:
        """Bytes of each layer that are always in memory, of all categories."""
        return sum(self.exclusive.values(), np.zeros(len(self.layers), dtype=np.int64))

    def parts(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
