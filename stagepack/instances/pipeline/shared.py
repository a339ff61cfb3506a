"""Bytes that several layers of one device share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.arrays import freeze
from stagepack.instances.profile import Array

Uses = dict[str, tuple[int, list[int]]]
"""Bytes of each key, and the layers that use it."""


def uses_of(layers: Iterable[Mapping[str, int]], field: str) -> Uses:
    """Return what layers share, given the bytes of each key of each.

    Parameters
    ----------
    layers : iterable of mapping of str to int
    field : str
        Where a layer says it, with ``{}`` for its number, for messages.

    Raises
    ------
    InputError
        For a key of two sizes.
    """
    uses: Uses = {}
    for at, shared in enumerate(layers):
        for key, nbytes in shared.items():
            known, users = uses.setdefault(key, (nbytes, []))
            if known != nbytes:
                raise InputError(
                    f"key {key!r} has {nbytes} bytes here and {known} elsewhere",
                    field=field.format(at),
                    remedy="give equal keys equal sizes",
                )
            users.append(at)
    return uses


@dataclass(frozen=True, eq=False)
class SharedBytes:
    """Bytes a device holds once for all its layers with the same key.

    Attributes
    ----------
    names : tuple of str
        The keys.
    nbytes : ndarray of int64, shape (keys,)
        Bytes of each key.
    layer, key : ndarray of int64, shape (uses,)
        Layer `layer[u]` needs key `key[u]`; sorted by layer, no pair twice.
    """

    names: tuple[str, ...]
    nbytes: Array
    layer: Array
    key: Array

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def of(cls, uses: Mapping[str, tuple[int, Iterable[int]]]) -> SharedBytes:
        """Build from ``{key: (bytes, layers)}``."""
        pairs = sorted(
            {(int(layer), k) for k, (_, layers) in enumerate(uses.values()) for layer in layers}
        )
        both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(
            names=tuple(uses),
            nbytes=np.array([nbytes for nbytes, _ in uses.values()], dtype=np.int64),
            layer=both[:, 0].copy(),
            key=both[:, 1].copy(),
        )

    def previous(self) -> Array:
        """Return, shape (uses,), the previous layer with the same key, or -1."""
        order = np.lexsort((self.layer, self.key))
        layer, key = self.layer[order], self.key[order]
        before = np.full(len(order), -1, dtype=np.int64)
        again = key[1:] == key[:-1]
        before[1:][again] = layer[:-1][again]
        previous = np.empty_like(before)
        previous[order] = before
        return previous
