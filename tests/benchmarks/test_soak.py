"""The soaks of chains and graphs, with figures that strain engines."""

from __future__ import annotations

import pytest

from benchmarks import soak, soak_graphs


def test_chains_of_wide_figures(capsys: pytest.CaptureFixture[str]) -> None:
    # Of seed 19 CP-SAT missed the optimum.
    assert soak.soak(8, 13, layers=6, devices=3, engines_every=1, wide=True) == 0
    assert "0 disagreements" in capsys.readouterr().out


def test_graphs_of_wide_figures(capsys: pytest.CaptureFixture[str]) -> None:
    # Seed 1188 was called infeasible by CP-SAT.
    assert soak_graphs.soak(2, 1187, (3, 6), engines_every=1, tries=5000, wide=True) == 0
    assert "0 disagreements" in capsys.readouterr().out
