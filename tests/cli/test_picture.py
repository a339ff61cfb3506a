"""Pictures that solve draws."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stagepack.cli import app

CHAIN = "pipeline/random/bert-like"


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html"])
def test_solve_draws(name: str, tmp_path: Path) -> None:
    picture = tmp_path / name
    done = CliRunner().invoke(app, ["solve", CHAIN, "-m", "greedy", "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("a.xyz", None, "no name of a picture"),
        ("nowhere/a.png", None, "cannot be written"),
        ("a.png", "matplotlib.pyplot", "need matplotlib"),
        ("a.html", "plotly.graph_objects", "needs plotly"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_solved(
    name: str,
    missing: str | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stagepack.errors import InputError

    if missing is not None:
        monkeypatch.setitem(sys.modules, missing, None)
    module = importlib.import_module("stagepack.solve")
    monkeypatch.setattr(module, "solve", lambda *_, **__: pytest.fail("it was solved"))
    with pytest.raises(InputError, match=message) as refused:
        CliRunner().invoke(
            app, ["solve", CHAIN, "--plot", str(tmp_path / name)], catch_exceptions=False
        )
    assert "pip install" in refused.value.remedy or missing is None
