"""What a packing means, moment by moment and byte by byte: slow, and plain."""

from __future__ import annotations

from collections import Counter

from stagepack.instances.packing import LmemPacking, PackingSolution


def held(instance: LmemPacking, buffer: int) -> dict[int, set[int]]:
    """Return the bytes above its offset that a buffer holds, by moment; lifetimes only."""
    found: dict[int, set[int]] = {}
    for moment in range(int(instance.start[buffer]), int(instance.end[buffer])):
        low, high = 0, int(instance.size[buffer])
        for gap in instance.gaps:
            if gap.buffer == buffer and gap.start <= moment < gap.end:
                low, high = gap.low, gap.high
        if low < high:
            at = moment if instance.period is None else moment % instance.period
            found[at] = set(range(low, high))
    return found


def overlap(instance: LmemPacking, i: int, j: int, distance: int) -> bool:
    """Tell whether j, `distance` bytes above i, overlaps it, whatever may share an offset."""
    if instance.conflicts is not None:
        meet = [min(i, j), max(i, j)] in instance.conflicts.tolist()
        if not (meet and instance.size[i] and instance.size[j]):
            return False
        return bool(-instance.size[j] < distance < instance.size[i])
    one, other = held(instance, i), held(instance, j)
    return any(
        not one[moment].isdisjoint(byte + distance for byte in other[moment])
        for moment in one.keys() & other.keys()
    )


def violations(instance: LmemPacking, solution: PackingSolution) -> Counter[str]:
    """Return how often each rule is broken."""
    ties = [*instance.colocated, *((view.buffer, view.host) for view in instance.views)]
    place = list(range(instance.n))
    for _ in ties:
        for tie in ties:
            for i in tie:
                place[i] = min(place[j] for j in tie)
    offsets = solution.offsets.tolist()
    memory = [0] * instance.n if solution.memory is None else solution.memory.tolist()
    found: Counter[str] = Counter()
    for i, offset in enumerate(offsets):
        top = offset + int(instance.size[i])
        capacity = None if instance.objective == "peak" else instance.capacity
        limit = instance.memories[memory[i]].capacity if instance.memories else capacity
        found["capacity"] += limit is not None and top > limit
        found["offsets"] += offset < 0
        found["alignment"] += offset % int(instance.alignment[i]) != 0
        found["fixed"] += int(instance.fixed[i]) not in (-1, offset)
        ranges = [item for item in instance.allowed if item.buffer == i]
        found["range"] += bool(ranges) and not any(
            item.low <= offset and top <= item.high for item in ranges
        )
        found["reserved"] += sum(low < top and offset < high for low, high in instance.reserved)
        if instance.memories:
            level = instance.memories[memory[i]]
            found["reserved"] += sum(low < top and offset < high for low, high in level.reserved)
            found["alignment"] += offset % level.alignment != 0
        if instance.homes is not None:
            found["home"] += not instance.homes[i, memory[i]]
        if instance.segment is not None:
            inside = range(offset + 1, top)
            found["segment"] += any(byte % instance.segment == 0 for byte in inside)
        if instance.banks is not None:
            found["bank"] += top > instance.banks.count * instance.banks.nbytes
    for group in instance.colocated:
        found["colocation"] += len({(offsets[i], memory[i]) for i in group}) > 1
    for view in instance.views:
        home = memory[view.host], offsets[view.host] + view.offset
        found["view"] += (memory[view.buffer], offsets[view.buffer]) != home
    shrunken = {gap.buffer for gap in instance.gaps if gap.high > gap.low}
    for i in range(instance.n):
        for j in range(i + 1, instance.n):
            if memory[i] != memory[j]:
                continue
            bytes_of = [set(range(offsets[k], offsets[k] + int(instance.size[k]))) for k in (i, j)]
            if bytes_of[0] & bytes_of[1]:
                found["apart"] += (i, j) in instance.apart
                if place[i] != place[j]:
                    found["exclusive"] += (i in instance.exclusive) + (j in instance.exclusive)
            if place[i] == place[j] or (i, j) in instance.exempt:
                continue
            if overlap(instance, i, j, offsets[j] - offsets[i]):
                if (i, j) in instance.in_place:
                    found["in-place"] += offsets[i] != offsets[j]
                else:
                    found["gap" if shrunken & {i, j} else "overlap"] += 1
    return +found
