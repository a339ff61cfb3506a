"""Engines are imported when a model is built, not before."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_models_imports_no_engine() -> None:
    code = (
        "import sys, stagepack.formulations.pipeline as p; p.CpSat, p.MilpAssignment;"
        "print([m for m in ('ortools', 'highspy', 'pyomo', 'scipy') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
