"""What is needed of torch that has no public name, in one place.

Tried with torch 2.6 to 2.15.  A torch without it is refused, by the name of what it lacks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from stagepack.errors import InputError

KNOWN = "2.6 to 2.15"
"""Versions of torch that were tried."""

try:
    # Nested inputs are taken apart as torch.export does, classes registered with it included.
    from torch.utils import _pytree as pytree

    # Hears of all operators, those of backward passes included; torch's documents name it.
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:
    raise InputError(
        f"{torch.__version__} is not known here: {error}",
        field="torch",
        remedy=f"install one of {KNOWN}",
    ) from None

__all__ = [
    "KNOWN",
    "TorchDispatchMode",
    "has_backward_hooks",
    "is_fake",
    "is_overload",
    "pytree",
    "schema",
]

_Overload = type(torch.ops.aten.add.Tensor)


def is_overload(operator: object) -> bool:
    """Whether what a node calls is an operator of torch's with types of its own."""
    return isinstance(operator, _Overload)


def schema(node: fx.Node) -> Any:
    """Return what an operator says of its arguments and results; None for what is no operator.

    Only there stands which of them are views or written into.
    """
    if not is_overload(node.target):
        return None
    try:
        return node.target._schema
    except AttributeError:
        raise InputError(
            f"{torch.__version__} does not say what its operators write into",
            field="torch",
            remedy=f"install one of {KNOWN}",
        ) from None


def is_fake(tensor: object) -> bool:
    """Whether a tensor has a shape and no memory, as torch.export makes them."""
    return hasattr(tensor, "fake_mode")


def has_backward_hooks(module: nn.Module) -> bool:
    """Whether backward passes of a module call hooks; False where torch does not tell."""
    names = ("_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name, None) for name in names)
