"""Branches of ONNX models have buffers of their own, which are never there together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, count, product
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from tests.formats.test_onnx_model import model, node

onnx = pytest.importorskip("onnx")

Graph = list[tuple[Any, ...]]
"""Operators: what each writes and reads; one with branches has, behind these, a graph and the
tensor that it hands on of each."""


def written(steps: Graph, result: str) -> Any:
    """Return a graph as a body of ONNX; what is there already is handed on as it is."""
    nodes, name = [operator(step) for step in steps], result
    if all(step[0] != result for step in steps):
        name = f"{result} {id(steps)}"
        nodes.append(onnx.helper.make_node("Identity", [result], [name]))
    value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_graph(nodes, "body", [], [value])


def operator(step: tuple[Any, ...]) -> Any:
    """Return an operator of ONNX that reads one or two tensors, or has branches."""
    name, reads, *bodies = step
    if bodies:
        then, other = (written(*body) for body in bodies)
        made = onnx.helper.make_node("If", reads, [name], then_branch=then, else_branch=other)
        made.name = f"if {name}"
        return made
    return (
        node("MatMul", f"{reads[0]} w", name)
        if len(reads) == 1
        else node("Add", " ".join(reads), name)
    )


def captured(step: tuple[Any, ...]) -> set[str]:
    """Return all that a step reads, inside of it, too."""
    _, reads, *bodies = step
    found = set(reads)
    for steps, result in bodies:
        found |= {result}.union(*map(captured, steps)) - {inner[0] for inner in steps}
    return found


class Run:
    """What is alive at each moment of a run that takes given branches."""

    def __init__(self, choices: dict[str, int]) -> None:
        self.choices, self.moments = choices, [set[str]()]

    def graph(
        self, steps: Graph, around: set[str], called: dict[str, str], given: set[str]
    ) -> None:
        """Run operators while what is `around` lives; names are `called` otherwise outside."""
        last = {name: at for at, step in enumerate(steps) for name in captured(step)}
        alive = set(given)
        for at, (name, _, *bodies) in enumerate(steps):
            own = {str(called.get(one, one)) for one in alive}
            if bodies:
                inside, result = bodies[self.choices[name]]
                outer = str(called.get(name, name))
                if any(step[0] == result for step in inside):
                    self.graph(inside, around | own, {result: outer}, set())
                else:
                    self.graph(inside, around | own, {}, set())
                    if not inside:
                        self.moments.append(around | own)
                    self.moments[-1] |= {outer}
            else:
                self.moments.append(around | own | {str(called.get(name, name))})
            alive |= {name}
            handed = set(called)  # a result stays, and what nobody reads
            alive = {one for one in alive if last.get(one, len(steps)) > at or one in handed}


def random_graph(rng: random.Random, known: list[str], names: Iterator[int], depth: int) -> Graph:
    """Return some operators that read what is known, and branches within branches."""
    steps: Graph = []
    for _ in range(rng.randrange(1, 4)):
        name = f"t{next(names)}"
        seen = [*known, *(step[0] for step in steps)]
        if depth and rng.random() < 0.5:
            bodies = []
            for _ in range(2):
                inner = random_graph(rng, seen, names, depth - 1) if rng.random() < 0.85 else []
                own = [step[0] for step in inner]
                bodies.append(
                    (inner, rng.choice(own or seen) if rng.random() < 0.3 else (own or seen)[-1])
                )
            steps.append((name, ["when"], *bodies))
        else:
            steps.append((name, rng.sample(seen, min(len(seen), rng.choice([1, 1, 2])))))
    return steps


def chosen(steps: Graph) -> Iterator[str]:
    """Yield the operators that have branches."""
    for name, _, *bodies in steps:
        if bodies:
            yield name
        for inner, _ in bodies:
            yield from chosen(inner)


def together(instance: sp.LmemPacking) -> set[frozenset[str]]:
    """Return the buffers that are in use together, by the names of their tensors."""
    gaps: dict[int, set[int]] = {}
    for gap in instance.gaps:
        gaps.setdefault(gap.buffer, set()).update(range(gap.start, gap.end))
    lives = {
        name.rpartition(": ")[2]: set(range(instance.start[at], instance.end[at]))
        - gaps.get(at, set())
        for at, name in enumerate(instance.ids or ())
    }
    return {frozenset(pair) for pair in combinations(lives, 2) if lives[pair[0]] & lives[pair[1]]}


@pytest.mark.parametrize("seed", range(10))
def test_buffers_meet_where_some_run_needs_both(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    steps = random_graph(rng, ["x"], count(), 2)
    steps.append(("y", [steps[-1][0]]))
    path = model(
        tmp_path, [operator(step) for step in steps], {"x": [8, 8]}, {"w": [8, 8]}, infer=False
    )
    whole = onnx.load(path)
    branching = list(chosen(steps))
    if branching:
        when = onnx.helper.make_tensor_value_info("when", onnx.TensorProto.BOOL, [])
        whole.graph.input.append(when)
    onnx.save(whole, path)
    needed: set[frozenset[str]] = set()
    for taken in product((0, 1), repeat=len(branching)):
        run = Run(dict(zip(branching, taken, strict=True)))
        run.graph(steps, set(), {}, {"x", "when"} if branching else {"x"})
        needed |= {frozenset(pair) for alive in run.moments for pair in combinations(alive, 2)}
    instance = sp.read(path, kind="packing")
    assert together(instance) == needed
    assert sp.solve(instance).objective <= instance.size.sum()
