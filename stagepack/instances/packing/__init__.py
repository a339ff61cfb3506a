"""LMEM rectangle packing: instances, solutions, their checker and their normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.instances.packing.data import Allowed as Allowed
    from stagepack.instances.packing.data import Banks as Banks
    from stagepack.instances.packing.data import Gap as Gap
    from stagepack.instances.packing.data import Memory as Memory
    from stagepack.instances.packing.data import PackingSolution as PackingSolution
    from stagepack.instances.packing.data import Penalties as Penalties
    from stagepack.instances.packing.data import View as View
    from stagepack.instances.packing.instance import LmemPacking as LmemPacking
    from stagepack.instances.packing.instance import measure as measure
    from stagepack.instances.packing.problem import KIND as KIND
    from stagepack.instances.packing.problem import Objective as Objective
    from stagepack.instances.packing.programs import merge_programs as merge_programs
    from stagepack.instances.packing.programs import split_programs as split_programs
    from stagepack.instances.packing.symbols import Dimensions as Dimensions
else:
    __getattr__ = later(
        __name__,
        problem="KIND Objective",
        data="Allowed Banks Gap Memory PackingSolution Penalties View",
        instance="LmemPacking measure",
        programs="merge_programs split_programs",
        symbols="Dimensions",
    )
