"""MILP of phase scheduling with interval columns: the program of :mod:`.groups`, memory included.

Sets, parameters, variables, objective, constraints, size and source are those of :mod:`.groups`.
"""

from __future__ import annotations

from stagepack.formulations.phases.groups import GroupModel
from stagepack.formulations.whole import BY_HIGHS, WholeProgram


class Milp(GroupModel):
    """The program of groups as a `Linear`."""

    parameters = BY_HIGHS

    def build(self, program: WholeProgram) -> None:
        """State the memory, too, in rows."""
        for part in self.groups.parts:
            part.memory()
        self.coarse = program.coarse
        if not program.contradiction:
            self.model = program.arrays()

    def slack(self, raw: float, tolerance: float) -> float:
        """Return what the engine's tolerance makes of the program's costs."""
        return self.groups.program.slack(raw, tolerance)
