"""CP-SAT is imported when a model is built, not before; MILPs are built without any engine."""

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


def test_building_a_milp_imports_no_engine() -> None:
    """Rows are made by kernels, and numba imports scipy, which solves nothing by itself."""
    code = (
        "import sys; from stagepack.formulations import packing, phases, pipeline\n"
        "from stagepack.instances.packing import LmemPacking\n"
        "from stagepack.instances.pipeline import PipelinePartition\n"
        "from stagepack.instances.pipeline.ranges import RangeCosts\n"
        "costs = RangeCosts(PipelinePartition.from_arrays([1, 2, 3], devices=2))\n"
        "packed = packing.Milp(LmemPacking.from_arrays([1, 2], [0, 1], [2, 3]))\n"
        "models = pipeline.MilpAssignment(costs), pipeline.MilpInterval(costs), packed\n"
        "print([type(m.model).__name__ for m in models],"
        " [m for m in ('ortools', 'highspy', 'pyomo') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['Linear', 'Linear', 'Linear'] []"
