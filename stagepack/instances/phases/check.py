"""Evaluates and checks plans of phase schedules, directly from the definitions.

It is written for trust, not for speed: one phase and one moment after the other, in exact integers,
without code of the range costs on which the algorithms work.  For long plans, :mod:`.ledger`
computes the same sums over arrays; only phases in which it finds a possible fault are then examined
one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stagepack.instances.phases import liveness, traffic
from stagepack.instances.phases.data import Phase, PhaseData, PhaseSolution
from stagepack.instances.phases.ledger import LARGE, UNLIMITED, Ledger
from stagepack.instances.phases.rows import remote_bytes
from stagepack.instances.violation import Violation
from stagepack.shown import some


def evaluate(instance: PhaseData, solution: PhaseSolution) -> int:
    """Return the cycles of a plan for the whole global batch: phases less what is hidden."""
    if instance.n > LARGE:
        return Ledger(instance, solution).cycles()
    return sum(part.time - part.hidden for part in traffic.timeline(instance, solution))


def check(instance: PhaseData, solution: PhaseSolution) -> tuple[Violation, ...]:
    """Return every rule that `solution` breaks, by name; () when it is valid.

    The names: ``boundaries``, ``fixed-boundaries``, ``microbatch``, ``io-tiles``, ``mode``,
    ``policy``, ``recompute`` (a sequence that cannot run, a layer too often, not at all, or for
    nothing), ``prefetch``, ``memory`` and ``io-memory`` (which phase, at which moment, by how
    much), ``remote-memory``, ``graphs``.  Where the shape is wrong the rest is not looked at.
    """
    found = list(shape(instance, solution))
    if found:
        return tuple(found)
    # The sequences that follow from the policies are found once.
    whole = replace(solution, recompute=solution.recomputed(instance))
    phases = whole.phases(instance)
    figures = instance.at(solution.microbatch)
    found += _choices(instance, solution, phases)
    found += _recompute(instance, solution, phases)
    if any(violation.rule == "recompute" for violation in found):
        return tuple(found)
    compute, io = liveness.capacities(instance, solution.io_tiles)
    if instance.n > LARGE:
        most = UNLIMITED if compute is None or io is None else compute
        suspects = Ledger(instance, whole).suspects(most, io if io is not None else UNLIMITED)
    else:
        suspects = list(range(len(phases)))
    bases = liveness.base_bytes(instance, figures, phases) if suspects else []
    for phase, base in ((phases[index], bases[index]) for index in suspects):
        where = f"phase {phase.index} ({phase.name}, layers {phase.first:,} to {phase.end - 1:,})"
        live, absent = liveness.spans(instance, figures, phase)
        for item in absent:
            moment = liveness.moments(phase)[item.moment]
            found.append(
                Violation("recompute", f"{where}: {item.tensor.name} is not there for the {moment}")
            )
        if compute is None or io is None:
            continue
        moment_name, need = max(
            liveness.profile(instance, figures, phase, base, live), key=lambda item: item[1]
        )
        if need > compute:
            found.append(
                Violation(
                    "memory",
                    f"{where} needs {need:,} bytes at the {moment_name}, of {compute:,}: "
                    f"{need - compute:,} too many",
                )
            )
        buffered = liveness.buffer_bytes(instance, figures, phase)
        if buffered > io:
            found.append(
                Violation(
                    "io-memory",
                    f"{where} needs {buffered:,} bytes of buffers on {solution.io_tiles} I/O "
                    f"tiles of {io:,}: {buffered - io:,} too many",
                )
            )
    found += _budgets(instance, solution, phases)
    return tuple(found)


def graph_keys(phases: list[Phase], instance: PhaseData) -> set[tuple[object, ...]]:
    """Return what tells the phase graphs of a plan apart.

    Phases share a graph that are of one kind, over layers of the same classes in order, in one
    mode, with the same policies and, relative to the group, the same recomputations.
    """
    return {
        (
            phase.kind,
            tuple(int(instance.layer_class[layer]) for layer in phase.layers),
            phase.mode,
            phase.policy,
            tuple(tuple(layer - phase.first for layer in run) for run in phase.recompute),
        )
        for phase in phases
    }


def shape(instance: PhaseData, solution: PhaseSolution) -> Iterator[Violation]:
    """Yield what makes it impossible to speak of phases at all."""
    cuts, n = list(solution.boundaries), instance.n
    if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != n or cuts != sorted(set(cuts)):
        yield Violation("boundaries", f"[{some(cuts)}] does not rise from 0 to {n:,}")
        return
    groups = len(cuts) - 1
    count = 2 * groups - 1 if instance.training else groups
    if len(solution.mode) != count:
        yield Violation("mode", f"{len(solution.mode):,} modes for {count:,} phases")
    known = ("naive", "compute", "io", "io_overlapped")
    for index, mode in enumerate(solution.mode):
        if mode not in known:
            yield Violation("mode", f"phase {index}: there is no {mode!r}")
    if solution.prefetch and len(solution.prefetch) != count:
        yield Violation("prefetch", f"{len(solution.prefetch):,} entries for {count:,} phases")
    layers = n if instance.training else 0
    if len(solution.policy) != layers:
        yield Violation("policy", f"{len(solution.policy):,} policies for {layers:,} layers")
    if solution.recompute is not None and len(solution.recompute) not in (layers, n):
        yield Violation("recompute", f"{len(solution.recompute):,} sequences for {n:,} layers")
    if solution.microbatch not in instance.microbatches:
        per = instance.global_batch // instance.data_parallel
        yield Violation(
            "microbatch",
            f"{solution.microbatch} samples: {per} a replica are cut into steps of "
            + (" or ".join(map(str, instance.microbatches[:12]))),
        )
    if not 0 <= solution.io_tiles < instance.chip.tiles:
        yield Violation("io-tiles", f"{solution.io_tiles:,} of {instance.chip.tiles:,} tiles")


def _choices(
    instance: PhaseData, solution: PhaseSolution, phases: list[Phase]
) -> Iterator[Violation]:
    """Yield what of modes, policies and numbers is not allowed."""
    fixed = instance.fixed_boundaries
    if fixed is not None and tuple(solution.boundaries) != fixed:
        yield Violation("fixed-boundaries", f"[{some(solution.boundaries)}], not [{some(fixed)}]")
    if solution.io_tiles not in instance.chip.io_tile_choices:
        yield Violation("io-tiles", f"{solution.io_tiles} I/O tiles are not allowed")
    for phase in phases:
        if phase.mode not in instance.modes:
            yield Violation("mode", f"phase {phase.index}: {phase.mode} is not allowed")
        elif (phase.mode in ("io", "io_overlapped")) != (solution.io_tiles > 0):
            yield Violation(
                "mode", f"phase {phase.index}: {phase.mode} with {solution.io_tiles} I/O tiles"
            )
        if phase.prefetch:
            if not instance.prefetch:
                yield Violation("prefetch", f"phase {phase.index}: prefetching is not allowed")
            elif solution.io_tiles == 0:
                yield Violation("prefetch", f"phase {phase.index}: there are no I/O tiles")
            elif phase.index == len(phases) - 1:
                yield Violation("prefetch", f"phase {phase.index} is the last one")
    for layer, policy in enumerate(solution.policy):
        if policy not in instance.policies:
            yield Violation("policy", f"layer {layer}: {policy!r} is not allowed")


def _recompute(
    instance: PhaseData, solution: PhaseSolution, phases: list[Phase]
) -> Iterator[Violation]:
    """Yield sequences that name what they may not; what is not there when used comes later."""
    if not instance.training:
        if solution.recompute and any(solution.recompute):
            yield Violation("recompute", "there is no backward pass")
        return
    if "recompute" not in solution.policy and not any(solution.recompute or ()):
        return
    figures = instance.at(solution.microbatch)
    count = [0] * instance.n
    for phase in phases:
        for layer in phase.layers if phase.kind.backward else ():
            run = phase.recomputed_before(layer)
            if list(run) != sorted(set(run)) or (run and run[-1] > layer):
                yield Violation(
                    "recompute",
                    f"{list(run)} before layer {layer} does not rise to at most {layer}",
                )
            for again in run:
                if again not in phase.layers:
                    yield Violation(
                        "recompute", f"layer {again} before layer {layer}, of another group"
                    )
                    continue
                count[again] += 1
                if phase.policy_of(again) != "recompute":
                    yield Violation(
                        "recompute",
                        f"layer {again} before layer {layer}, though its policy is "
                        f"{phase.policy_of(again)}",
                    )
    for layer, times in enumerate(count):
        if times > instance.recomputations:
            yield Violation(
                "recompute",
                f"layer {layer} {times} times, allowed are {instance.recomputations}",
            )
    for phase in phases:
        for layer in phase.layers if phase.kind.backward else ():
            if phase.policy_of(layer) != "recompute" or count[layer]:
                continue
            if traffic.products(instance, figures, layer, phase.first, phase.end):
                yield Violation("recompute", f"layer {layer:,} is dropped and never computed again")
    if instance.chain and instance.recomputations == 1 and solution.recompute is not None:
        rule = solution.canonical_recompute(instance, solution.boundaries, solution.policy)
        if tuple(map(tuple, solution.recompute)) != rule:
            yield Violation(
                "recompute", "in a chain, once a layer at most: the order follows from the policies"
            )


def _budgets(
    instance: PhaseData, solution: PhaseSolution, phases: list[Phase]
) -> Iterator[Violation]:
    if instance.remote_memory is not None:
        used = remote_bytes(instance, solution)
        if used > instance.remote_memory:
            yield Violation(
                "remote-memory",
                f"{used:,} bytes of {instance.remote_memory:,}: "
                f"{used - instance.remote_memory:,} too many",
            )
    if instance.graphs is not None:
        graphs = len(graph_keys(phases, instance))
        if graphs > instance.graphs:
            yield Violation(
                "graphs", f"{graphs} distinct phase graphs, allowed are {instance.graphs}"
            )
