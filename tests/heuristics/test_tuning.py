"""Numbers that steer searches: changed by name, and refused where they are none."""

from __future__ import annotations

from typing import Any

import pytest

import stagepack as sp
from stagepack import kinds
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.methods import Settings

CHAIN = sp.PipelinePartition.from_arrays([3, 1, 4, 1, 5], devices=2)


def test_a_change_keeps_the_others() -> None:
    changed = TUNING.changed({"pace": 3})
    assert (changed.pace, changed.overdue) == (3.0, TUNING.overdue)
    assert Settings(tuning=changed).tuned(TUNING) is changed
    assert Settings().tuned(TUNING) is TUNING


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pase": 3}, "pace"),
        ({"pace": "3"}, "number"),
        ({"pace": -1}, "number"),
        ({"pace": float("nan")}, "number"),
        ({"stages_at_once": 0}, "more than 0"),
        ({"repair_limits": []}, "numbers"),
        (3, "mapping"),
    ],
)
def test_what_is_no_change_is_refused_by_name(changes: Any, said: str) -> None:
    with pytest.raises(sp.InputError, match=said) as caught:
        sp.solve(CHAIN, options={"tuning": changes})
    assert "options.tuning" in str(caught.value)


def test_a_run_records_what_it_was_told() -> None:
    result = sp.solve(CHAIN, method="cp-sat", options={"tuning": {"pace": 4.0}})
    assert result.status == "OPTIMAL"
    assert result.options["options"] == {"tuning": {"pace": 4.0}}
    assert sp.check_result(CHAIN, result).valid


@pytest.mark.parametrize("kind", [*kinds.KINDS])
def test_every_number_is_described(kind: str) -> None:
    """The string below a field says its unit and its meaning."""
    import ast
    import inspect

    module = kinds.part(kind, "heuristics", "tuning")
    for made in ast.parse(inspect.getsource(module)).body:
        if isinstance(made, ast.ClassDef):
            after = dict(zip(made.body, made.body[1:], strict=False))
            for field in made.body:
                if isinstance(field, ast.AnnAssign):
                    below = after.get(field)
                    assert isinstance(below, ast.Expr), ast.unparse(field.target)
