"""ONNX networks as operators with costs, from which instances of all problems are made.

See :mod:`.costs` for arithmetic.  Pointwise operators (activations, scales and norms with
constants) are merged into the operator that writes their input if they are its only reader.  In
inference, a batch norm or scale after a convolution or product becomes part of its bias; in
training it keeps its parameters, its passes over the values, and its stored input.  Views are other
names of the same tensor.

Parameters are the floating-point constants, and quantised ones, that operators read; scalars are
not parameters.  Parameters with two or more axes that several operators read are one shared
variable (`tied`), or one copy for each.  Vectors are always copied, because exporters merge equal
ones.  Means and variances of batch norms, and constants of other types, are stored but not trained.

For the backward pass, these operators keep what they read: operators with weights, products, norms,
max poolings, activations other than `Relu`, branches and loops.  Others keep nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stagepack.errors import InputError
from stagepack.formats.onnx import costs
from stagepack.formats.onnx.model import Model, Node
from stagepack.instances.network import Block, Network

NORM = "BatchNormalization"
JOINS = {*costs.VALUES, NORM, "Add", "Div", "Mul", "Sub"}
"""What joins the operator before it, where all else that it reads are constants."""
SMOOTH = costs.VALUES - {"Relu", "Dropout", "Cast"}
"""Activations whose backward pass needs what they read."""
KEEP = {*costs.KEPT, *SMOOTH, *costs.FLOWS}
"""Operators whose backward pass needs what they read."""


@dataclass
class Draft:
    """An operator in the making; see :class:`.networks.Block`."""

    name: str
    kind: str
    macs: int
    values: int
    inputs: dict[str, None]
    outputs: list[str]
    scratch: int = 0
    weights: int = 0
    weight_bytes: int = 0
    held: int = 0
    kept: dict[str, None] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    first: list[tuple[str, int, int | None]] = field(default_factory=list)
    biased: bool = False


class NetworkReader:
    """Makes a network of that `name`, as words that are `given` ask; see :func:`read_network`.

    It has `times` / `over` as much work and as many activations.
    """

    def __init__(
        self, model: Model, name: str, given: Mapping[str, object], times: int = 1, over: int = 1
    ) -> None:
        self.model, self._name, self._given = model, name, given
        self._times, self._over = times, over
        self._training, self._tied = bool(given.get("training")), bool(given.get("tied", True))
        wide = given.get("bytes_per_value")
        self._wide = wide if isinstance(wide, int) else None
        self._alias: dict[str, str] = {}
        self._writer: dict[str, Draft] = {}
        self._used = model.uses()
        self._users = Counter(
            model.parts.get(name, name) for node in model.nodes for name in set(model.weights(node))
        )
        self._taken: Counter[str] = Counter()
        self._counted: set[str] = set()
        self._drafts: list[Draft] = []
        self.unknown: dict[str, list[str]] = {}
        self.branches: dict[str, tuple[Model, ...]] = {}
        for node in model.nodes:
            self._read(node)

    def inside(self, body: Model) -> NetworkReader:
        """Return the reader of a body of one of its operators."""
        return NetworkReader(body, self._name, self._given, self._times, self._over)

    @property
    def idle(self) -> bool:
        """Whether there is no operator that computes or moves anything."""
        return not self._drafts

    def network(self) -> Network:
        """Return the network."""
        if self.idle:
            raise InputError(
                "has no operator that computes or moves anything",
                field="graph",
                remedy="give a model that works",
            )
        names = {name for draft in self._drafts for name in (*draft.inputs, *draft.outputs)}
        results = [self.root(name) for name in self.model.outputs]

        def scaled(figure: int) -> int:
            return -(-figure * self._times // self._over)

        blocks = tuple(
            Block(
                name=draft.name,
                shape=self._shape_of(draft),
                flops=2 * scaled(draft.macs),
                values=scaled(draft.values),
                weights=draft.weights,
                weight_bytes=draft.weight_bytes,
                constants=draft.held,
                inputs=tuple(draft.inputs),
                outputs=tuple(draft.outputs),
                scratch=scaled(draft.scratch),
                saved=scaled(sum(map(self._nbytes, draft.kept))),
                variables=tuple(draft.variables),
                first=tuple(draft.first),
            )
            for draft in self._drafts
        )
        tensors = {name: scaled(self._nbytes(name)) for name in sorted(names)}
        return Network(
            self._name,
            blocks,
            tensors,
            tuple(dict.fromkeys(name for name in results if name in names)),
        )

    def root(self, name: str) -> str:
        """Return the tensor that a view is of."""
        return self._alias.get(name, name)

    def _nbytes(self, name: str) -> int:
        tensor = self.model.tensor(name)
        return tensor.values * self._wide if self._wide and tensor.floating else tensor.nbytes

    def _shape_of(self, draft: Draft) -> str:
        """Return which operators run the same code: of all that only move values, one kind."""
        if not draft.macs:
            return draft.kind
        shapes = [self.model.shape(name) for name in (*draft.inputs, *draft.outputs)]
        return f"{draft.kind} {draft.weights} " + " ".join("x".join(map(str, s)) for s in shapes)

    def _read(self, node: Node) -> None:
        model = self.model
        given = list(dict.fromkeys(self.root(name) for name in model.reads(node)))
        nothing = node.kind in costs.VIEWS or (node.kind == "Dropout" and not self._training)
        if given and nothing and not node.domain:
            self._join_view(node, given[0])
            return
        if len(given) == 1 and node.kind in JOINS and self._joins(node, given[0]):
            self._join(node, given[0])
            return
        node, macs, values, scratch = self._work(node)
        width = self._nbytes(node.outputs[0]) / max(1, model.tensor(node.outputs[0], node).values)
        draft = Draft(
            name=self._called(node),
            kind=node.kind,
            macs=macs,
            values=values,
            inputs=dict.fromkeys(given),
            outputs=list(node.outputs),
            scratch=round(scratch * width),
            held=node.inner,
        )
        if node.kind in KEEP or not costs.known(node):
            draft.kept = dict.fromkeys(given)
        self._hold(draft, node)
        self._drafts.append(draft)
        if node.kind == "If" and node.bodies:
            self.branches[draft.name] = node.bodies
        self._writer |= dict.fromkeys(node.outputs, draft)

    def _work(self, node: Node) -> tuple[Node, int, int, int]:
        """Return a node, its multiply-accumulates, the values that it passes over and holds.

        Branches and loops inside of which shapes are not known come without what is inside.
        """
        model = self.model
        try:
            macs, values = costs.work(node, model)
            scratch = costs.working_values(node, model)
        except InputError:
            if not node.bodies:
                raise
            node = replace(node, bodies=())
            macs, values, scratch = 0, costs.values(node, model), 0
        for one in (node, *costs.inside(node)):
            if not costs.known(one):
                self.unknown.setdefault(one.kind, []).append(one.name or one.outputs[0])
        return node, macs, values if node.bodies else self._passed(node), scratch

    def _called(self, node: Node) -> str:
        """Return a name that no operator has yet."""
        name = node.name or f"{node.kind} {node.outputs[0]}"
        self._taken[name] += 1
        if self._taken[name] == 1:
            return name
        return self._called_again(name)

    def _called_again(self, name: str) -> str:
        at = self._taken[name]
        while f"{name} {at}" in self._taken:
            at += 1
        self._taken[name] = at
        self._taken[f"{name} {at}"] = 1
        return f"{name} {at}"

    def _passed(self, node: Node) -> int:
        """Return the values of pointwise work; unless it is trained a batch norm only scales."""
        passed = costs.values(node, self.model)
        return passed // costs.PASSES[NORM] if node.kind == NORM and not self._training else passed

    def _join_view(self, node: Node, source: str) -> None:
        own = node.outputs[0]
        self._alias[own] = source
        self._used[source] += self._used[own] - 1

    def _joins(self, node: Node, source: str) -> bool:
        """Whether a node can be part of the operator that writes what it reads."""
        writer = self._writer.get(source)
        if writer is None or self._used[source] != 1 or len(writer.outputs) != 1:
            return False
        alike = self.model.tensor(source).values == self.model.tensor(node.outputs[0]).values
        return alike and len(node.outputs) == 1

    def _join(self, node: Node, source: str) -> None:
        """Make a node part of the operator before it."""
        draft, own = self._writer[source], node.outputs[0]
        folds = draft.macs and not self._training and self._is_scale(node)
        if folds:
            adds = node.kind in (NORM, "Add", "Sub")
            channels = max(self.model.tensor(w).values for w in self.model.weights(node))
            if adds and not draft.biased:
                draft.weights += channels
                draft.weight_bytes += channels * (self._wide or self._width(node))
                draft.biased = True
        else:
            draft.values += self._passed(node)
            self._hold(draft, node)
        if self._training and (node.kind == NORM or node.kind in SMOOTH):
            draft.kept[source] = None
        draft.outputs = [own]
        self._writer[own] = draft

    def _is_scale(self, node: Node) -> bool:
        """Whether a node scales or shifts all channels by constants."""
        values = [self.model.tensor(name).values for name in self.model.weights(node)]
        scales = node.kind in (NORM, "Add", "Sub", "Mul", "Div")
        return scales and max(values, default=0) <= max(self.model.shape(node.outputs[0])[1:])

    def _width(self, node: Node) -> int:
        return round(max(self.model.tensor(name).width for name in self.model.weights(node)))

    def _hold(self, draft: Draft, node: Node) -> None:
        """Add the constants of a node to its operator."""
        for place, name in enumerate(node.inputs):
            if name not in self.model.constants or name not in self.model.tensors:
                continue
            root, tensor = self.model.parts.get(name, name), self.model.tensors[name]
            nbytes = self._nbytes(name) if tensor.values else 0
            quantised = not tensor.floating and tensor.width <= 1 and node.kind in costs.KEPT
            if tensor.values <= 1:
                continue
            if not (tensor.floating or quantised):
                draft.held += nbytes if tensor.values > 16 else 0  # few are sizes or axes
                continue
            if node.kind == NORM and place > 2:  # behind scale and bias, which are trained
                draft.held += nbytes
                continue
            if len(tensor.shape) > 1 and self._users[root] > 1 and self._tied:
                if root not in draft.variables:
                    draft.variables.append(root)
                if root in self._counted:
                    continue
                draft.first.append((root, tensor.values, nbytes))
            self._counted.add(root)
            draft.biased |= len(tensor.shape) == 1 and draft.macs > 0
            draft.weights += tensor.values
            draft.weight_bytes += nbytes


def reader_of(model: Model, name: str, given: Mapping[str, object]) -> NetworkReader:
    """Return what makes the network of a model, called `name`.

    Words that may be `given`: `batch`, in proportion to which figures are, `training`, in which
    batch norms keep their parameters rather than become a bias, `tied`, whether operators share a
    constant of two axes or more rather than have a copy each, and `bytes_per_value` of all floating
    ones.
    """
    batch = given.get("batch")
    if not isinstance(batch, int) or not model.leading:
        return NetworkReader(model, name, given)
    return NetworkReader(model, name, given, batch, model.leading)


def read_network(
    model: Model, name: str, given: Mapping[str, object]
) -> tuple[Network, dict[str, list[str]]]:
    """Return the network of a model, called `name`, and operators that nobody knows, by kind.

    `given` are words as :func:`reader_of` takes them.
    """
    reader = reader_of(model, name, given)
    return reader.network(), reader.unknown
