"""Bytes of the tensors that are alive while operators run, on any device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from stagepack.integrations.pytorch.inside import TorchDispatchMode, pytree


def nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes that tensors take, those that share memory once."""
    parts = [part for tensor in tensors for part in _dense(tensor)]
    storages = [part.untyped_storage() for part in parts]
    return sum({id(storage): storage.nbytes() for storage in storages}.values())


def _dense(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors with memory of their own that a tensor consists of."""
    if tensor.layout is torch.strided:
        return (tensor,)
    # Torch documents these names as those for tensors that are not coalesced.
    return (tensor._indices(), tensor._values()) if tensor.is_sparse else ()


class Alive(TorchDispatchMode):
    """Follows what operators make within it: bytes alive `now`, and at `most`.

    What kernels use inside and give back is not seen.
    """

    supports_higher_order_operators = True

    def __init__(self, held: Iterable[torch.Tensor]) -> None:
        """Begin with what is there already."""
        super().__init__()
        self.now = self.most = 0
        self._known: dict[int, weakref.ref[Any]] = {}
        for tensor in held:
            self._note(tensor)

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and note what it returns."""
        results = operator(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(results):
            if isinstance(leaf, torch.Tensor):
                self._note(leaf)
        return results

    def _note(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided:
            return  # its parts were made before
        storage = tensor.untyped_storage()
        key, nbytes = id(storage), storage.nbytes()  # one object as long as it has memory
        if key in self._known:
            return

        def gone(_: Any) -> None:
            del self._known[key]
            self.now -= nbytes

        self._known[key] = weakref.ref(storage, gone)
        self.now += nbytes
        self.most = max(self.most, self.now)
