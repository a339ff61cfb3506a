"""What verifying does with evidence that is none: it is found false, whatever it is."""

from __future__ import annotations

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
