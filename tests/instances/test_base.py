"""What instances of all problems have in common."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.instances.base import Answered
from stagepack.instances.problem import PROBLEMS
from stagepack.kinds import KINDS


def worked_on(kind: str) -> Any:
    """Return an instance of which things were derived that it keeps."""
    instance = sp.suite(kind)[0]
    result: sp.Result[Any] = sp.solve(instance, time_limit=0.2)
    assert instance.check(result.solution) == ()
    assert instance.digest
    assert instance.fingerprints
    return instance


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_hold_fields_alone(kind: str) -> None:
    fresh, instance = sp.suite(kind)[0], worked_on(kind)
    assert len(vars(instance)) > len(instance.__dataclass_fields__)
    assert len(pickle.dumps(instance)) == len(pickle.dumps(fresh))
    again = pickle.loads(pickle.dumps(instance))
    assert set(vars(again)) == set(instance.__dataclass_fields__)
    assert again.digest == instance.digest


def arrays(given: object) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the arrays in fields, and in fields of fields."""
    if isinstance(given, np.ndarray):
        yield given
    known = [getattr(given, one.name) for one in fields(given)] if is_dataclass(given) else ()
    for value in given.values() if isinstance(given, dict) else known:
        yield from arrays(value)


@pytest.mark.parametrize("kind", KINDS)
def test_no_array_of_an_instance_can_be_changed_pickled_or_not(kind: str) -> None:
    for instance in sp.suite(kind):
        again = pickle.loads(pickle.dumps(instance))
        known = [*arrays(instance), *arrays(again)]
        assert known or kind == "layer-grouping"
        assert not any(array.flags.writeable for array in known)


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_of_old_hold_more_and_load(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = worked_on(kind)
    with monkeypatch.context() as old:
        old.delattr(Answered, "__getstate__")
        written = pickle.dumps(instance)
    assert len(written) > len(pickle.dumps(instance))
    assert pickle.loads(written).replace().digest == instance.digest


@pytest.mark.parametrize("kind", KINDS)
def test_objectives_are_found_where_they_were(kind: str) -> None:
    module = f"stagepack.instances.{KINDS[kind].family}.data"
    word = PROBLEMS[kind].objectives[0]
    written = f"c{module}\nObjective\n(V{word}\ntR.".encode()
    assert pickle.loads(written) is word
