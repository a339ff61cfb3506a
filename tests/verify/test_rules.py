"""What verifying does with evidence that is none: it is found false, whatever it is."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest

from stagepack.instances.packing import LmemPacking
from stagepack.instances.pipeline import PipelinePartition
from stagepack.verify import verify


@pytest.mark.parametrize("name", [None, [], {}, 3, True, "none"])
def test_names_of_rules_are_texts(name: Any) -> None:
    instance = LmemPacking.from_arrays([3, 4], [0, 1], [1, 2])
    found = verify(instance, 5, "witness", {"rule": name})
    assert (found.shown, found.false) == (False, True)


@pytest.mark.parametrize("huge", ["1e999999999", "1e-999999999", "3"])
def test_texts_are_no_numbers(huge: str) -> None:
    """Their exponents could be of any size."""
    chain = PipelinePartition.from_arrays([3, 1, 4], devices=2, objective="transfer-bounded")
    assert verify(chain, 9, "witness", {"rule": "fill", "transfers": [huge]}).false


def test_verifying_takes_neither_numpy_nor_numba() -> None:
    """All rules are loaded, and one of a packing is asked, of data that are plain lists."""
    code = """
        import sys
        from importlib import import_module
        from types import SimpleNamespace

        class Column(list):
            tolist = list.copy

        sys.modules["numpy"] = sys.modules["numba"] = None  # whoever imports them fails
        from stagepack.verify import verify

        for family in ("graph", "groups", "packing", "phases", "pipeline", "schedule"):
            import_module(f"stagepack.verify.{family}")
        packing = SimpleNamespace(
            kind="lmem-packing", tolerance=0, objective=SimpleNamespace(value="peak"),
            size=Column([3, 4, 5]), start=Column([0, 1, 2]), end=Column([2, 3, 4]),
            alignment=Column([1, 1, 1]), fixed=Column([-1, -1, -1]), conflicts=None, period=None,
            gaps=(), colocated=(), in_place=(), views=(), exempt=(), memories=(), reserved=(),
            allowed=(),
        )
        assert verify(packing, 9, "witness", {"rule": "load", "moment": 2}).shown
        assert verify(packing, 10, "witness", {"rule": "load", "moment": 2}).false
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
