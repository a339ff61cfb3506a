"""A torch that lacks what has no public name is refused by that name."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from stagepack.errors import InputError  # noqa: E402
from stagepack.integrations.pytorch import inside  # noqa: E402


@pytest.mark.parametrize("name", ["_pytree", "_python_dispatch"])
def test_a_torch_without_a_module_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.utils, name)
    monkeypatch.setitem(sys.modules, f"torch.utils.{name}", None)
    found = importlib.util.find_spec(inside.__name__)
    assert found is not None
    assert found.loader is not None
    with pytest.raises(InputError, match=rf"{name}.*install one of 2\.6 to"):
        found.loader.exec_module(importlib.util.module_from_spec(found))


def test_a_torch_whose_operators_say_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_Overload", SimpleNamespace)
    with pytest.raises(InputError, match=r"what its operators write into.*install one of 2\.6 to"):
        inside.schema(SimpleNamespace(target=SimpleNamespace()))


def test_backward_hooks_that_torch_does_not_tell_are_none() -> None:
    module = torch.nn.Linear(1, 1)
    assert not inside.has_backward_hooks(module)
    module.register_full_backward_hook(lambda *_: None)
    assert inside.has_backward_hooks(module)
    assert not inside.has_backward_hooks(SimpleNamespace())


def test_operators_have_types_of_their_own() -> None:
    assert inside.is_overload(torch.ops.aten.add.Tensor)
    assert not inside.is_overload(torch.add)
    assert not inside.is_overload("name")
