"""Trade-offs of layer groupings: local memory against time, and changes that would save time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from stagepack.instances.groups.execution.replay import Replay
from stagepack.instances.groups.execution.simulate import simulate
from stagepack.instances.groups.instance import LayerGrouping
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.tradeoffs import Axis, WhatIf, least, percent


def _within(instance: LayerGrouping, limit: int) -> LayerGrouping:
    chip = instance.chip
    return instance.replace(chip=msgspec.structs.replace(chip, memory=least(chip.memory, limit)))


def _used(instance: LayerGrouping, solution: GroupingSolution) -> int:
    """Return where the highest buffer of any group ends; 0 where all run from global memory."""
    return max(
        (
            offset + place.nbytes
            for group, counts in enumerate(solution.slices)
            if counts
            for offset, place in zip(
                solution.offsets[group], Replay(instance, solution, group).places, strict=True
            )
        ),
        default=0,
    )


AXES: Mapping[str, Axis] = {
    "memory": Axis(
        unit="bytes",
        description="bytes of local memory in each lane",
        within=_within,
        used=_used,
    )
}


def what_ifs(instance: LayerGrouping) -> Iterator[WhatIf]:
    """Yield twice the local memory, and transfers twice as fast."""
    chip = instance.chip
    larger = msgspec.structs.replace(chip, memory=2 * chip.memory)
    yield WhatIf("local memory of twice the size", instance.replace(chip=larger))
    rates = {"load_rate": 2 * chip.load_rate, "store_rate": 2 * chip.store_rate}
    faster = msgspec.structs.replace(chip, **rates)
    yield WhatIf("transfers twice as fast", instance.replace(chip=faster))


def critical(instance: LayerGrouping, solution: GroupingSolution) -> Iterator[tuple[str, str]]:
    """Yield how long each engine works."""
    events, total = simulate(instance, solution)
    for engine in sorted({event.engine for event in events}):
        busy = sum(event.end - event.start for event in events if event.engine == engine)
        share = percent(busy, total * instance.chip.cores)
        yield engine, f"{busy:,} cycles, {share} of the time"
