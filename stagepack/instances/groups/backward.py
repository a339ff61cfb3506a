"""The backward pass of a network on a chip with local memory, as a network of its own.

Every operator leads the gradient of what it writes to what it reads::

    convolution                  a deconvolution with the same window and weights, and vice versa
    product of matrices          one with the other factor, transposed, for each factor
    upsampling                   pooling over the window that it repeats
    global pooling, value by     value by value, of the gradient and of all that was read
    value, softmax, norms
    sums (``adds``)              nothing: the gradient goes through as it is
    anything else, and what      alone, from and to global memory (kind `other`), as long as the
    was stretched                operator itself computes

Gradients of weights are sums over all samples and places, which grow on chip: each is an operator
that stands alone, reads what the operator read and the gradient of what it wrote, and takes as long
as the operator itself.  They come last.  Where several operators read a tensor, their gradients are
added.  What the forward pass wrote and the backward pass reads is in global memory, its stash.
Gradients are as wide as the values; inputs of the network get none.  What is folded into an
operator (activations, norms) costs nothing backward either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stagepack.errors import InputError
from stagepack.instances.groups.data import Source
from stagepack.instances.groups.execution.replay import played_alone
from stagepack.instances.groups.operators import C, Operator, Shape, compute_cycles
from stagepack.instances.groups.problem import OperatorKind
from stagepack.instances.groups.validate import misshaped

if TYPE_CHECKING:
    from stagepack.instances.groups.instance import LayerGrouping

WEIGHTS = " weights"
"""End of the names of gradients of weights."""
LOSS = " loss"
"""End of the names of gradients of results, which are given."""
VALUES = {OperatorKind.ELEMENTWISE, OperatorKind.ROWS, OperatorKind.GLOBAL_POOL}
"""What has a gradient value by value."""
LINEAR = {OperatorKind.CONCAT, OperatorKind.INTERPOLATE}
"""What else leads gradients on without the values that were read."""
TURNED = {OperatorKind.CONV: OperatorKind.DECONV, OperatorKind.DECONV: OperatorKind.CONV}


class Backward(NamedTuple):
    """The backward pass of a network, and the tensors of the network that it reads, its `stash`.

    Each of its operators belongs to that of the network that `of` says.
    """

    network: LayerGrouping
    of: tuple[int, ...]
    stash: frozenset[int]


def backward(instance: LayerGrouping) -> Backward:
    """Return the backward pass of a network.  O(operators + readers).

    Refuses networks where nothing has a gradient, and names that are taken.
    """
    made = _Pass(instance)
    if not made.found:
        raise InputError(
            "nothing of the network has a gradient", field="training", remedy="leave it out"
        )
    return made.whole()


def with_stash(instance: LayerGrouping, stash: frozenset[int]) -> LayerGrouping:
    """Return a network that stores the tensors, inputs among them, that its backward pass reads."""
    ends = {at for at in range(instance.n) if not instance.tensors[at].readers}
    kept = sorted(instance.kept | ends | {tensor for tensor in stash if tensor < instance.n})
    return instance.replace(outputs=[instance.operators[at].name for at in kept])


def recovered(network: LayerGrouping, behind: LayerGrouping) -> Backward | None:
    """Return the backward pass of a network of :func:`with_stash`; None if it is not `behind`."""
    given = {source.name for source in behind.inputs}
    names = [operator.name for operator in network.operators]
    results = [name for name in names if name + LOSS in given]
    made = _Pass(network.replace(outputs=results))
    found = made.whole() if made.found else None
    if found is None or found.network.digest != behind.digest:
        return None
    stored = with_stash(made.instance, found.stash)
    return found if stored.digest == network.digest else None


def is_weights(operator: Operator) -> bool:
    """Whether an operator of a backward pass computes the gradient of weights."""
    return operator.kind == OperatorKind.OTHER and operator.name.endswith(WEIGHTS)


def weight_cycles(instance: LayerGrouping) -> int:
    """Return the cycles of gradients of weights in (part of) a backward pass: W of a split one."""
    return sum(
        played_alone(instance, at)
        for at, operator in enumerate(instance.operators)
        if is_weights(operator)
    )


class _Pass:
    """Goes from the last operator to the first.

    `found` are operators so far, each with that of the forward pass which it belongs to; `sources`
    are tensors that come from outside; `stash` are tensors of the forward pass that it reads.
    """

    def __init__(self, instance: LayerGrouping) -> None:
        self.instance = instance
        self.found: list[tuple[int, Operator]] = []
        self.sources: dict[str, Source] = {}
        self.stash: set[int] = set()
        self._sent: list[list[str]] = [[] for _ in range(instance.n)]
        weights = []
        for at in range(instance.n - 1, -1, -1):
            given = self._gradient(at)
            if instance.operators[at].weights:
                weights.append((at, self._of_weights(at, given)))
            for which, tensor in self._led(at):
                made = self._toward(at, which, given)
                if made is not None:
                    self.found.append((at, made))
                self._sent[tensor].append(given if made is None else made.name)
        self.found += weights

    def whole(self) -> Backward:
        """Return all of it."""
        network = self.instance.replace(
            operators=[operator for _, operator in self.found],
            inputs=list(self.sources.values()),
            outputs=(),
            name=f"{self.instance.name} backward",
        )
        return Backward(network, tuple(of for of, _ in self.found), frozenset(self.stash))

    def _gradient(self, at: int) -> str:
        """Return the name of the gradient of what an operator writes."""
        operator, shape = self.instance.operators[at], self.instance.operators[at].shape
        sent = list(dict.fromkeys(self._sent[at]))
        if at in self.instance.kept or not sent:
            name = operator.name + LOSS
            self.sources[name] = Source(name=name, shape=shape, dtype_bytes=operator.dtype_bytes)
            sent.append(name)
        if len(sent) == 1:
            return sent[0]
        total = Operator(
            name=f"{operator.name} gradient",
            kind=OperatorKind.ELEMENTWISE,
            inputs=tuple(sent),
            shape=shape,
            dtype_bytes=operator.dtype_bytes,
            in_place=True,
            passes=len(sent) - 1,
        )
        self.found.append((at, total))
        return total.name

    def _led(self, at: int) -> Iterator[tuple[int, int]]:
        """Yield the inputs of an operator that get a gradient, and their tensors."""
        reads = self.instance.reads[at]
        product = self.instance.operators[at].kind == OperatorKind.MATMUL
        for which, tensor in enumerate(reads):
            if tensor < self.instance.n and (product or tensor not in reads[:which]):
                yield which, tensor

    def _kept(self, tensor: int, *, transposed: bool = False) -> str:
        """Return the name of a tensor of the forward pass, which is in global memory."""
        known = self.instance.tensors[tensor]
        n, c, d, h, w = known.shape
        shape = (n, c, d, w, h) if transposed else known.shape
        name = f"{known.name} transposed" if transposed else known.name
        self.sources[name] = Source(name=name, shape=brief(shape), dtype_bytes=known.dtype_bytes)
        self.stash.add(tensor)
        return name

    def _of_weights(self, at: int, given: str) -> Operator:
        """Return what computes the gradient of an operator's weights."""
        operator = self.instance.operators[at]
        first = operator.weights[0]
        nbytes = sum(weight.nbytes(weight.channels) for weight in operator.weights)
        read = [self._kept(tensor) for tensor in self.instance.reads[at][:1]]
        return Operator(
            name=operator.name + WEIGHTS,
            kind=OperatorKind.OTHER,
            inputs=(given, *read),
            shape=(1, first.channels, -(-nbytes // (first.channels * first.dtype_bytes)), 1),
            dtype_bytes=first.dtype_bytes,
            cycles=self._computes(at),
        )

    def _computes(self, at: int) -> int:
        """Return the cycles of compute of an operator."""
        instance, operator = self.instance, self.instance.operators[at]
        whole = compute_cycles(operator, instance.sources(at), operator.full, instance.chip)
        return whole - instance.chip.startup

    def _toward(self, at: int, which: int, given: str) -> Operator | None:
        """Return what leads the gradient to an input; None where it goes through as it is."""
        instance, operator = self.instance, self.instance.operators[at]
        reads = instance.reads[at]
        known = instance.tensors[reads[which]]
        several = len([*self._led(at)]) > 1
        own: dict[str, Any] = {
            "name": f"{operator.name} backward" + (f" {which}" if several else ""),
            "shape": brief(known.shape),
            "dtype_bytes": known.dtype_bytes,
            "cycles": operator.cycles,
        }
        straight = known.shape == operator.full
        if operator.adds and straight:
            return None
        if operator.kind in TURNED:
            made = _turned(operator, known.shape, given, own)
            if not misshaped(made, (operator.full,)):
                return made
        elif operator.kind == OperatorKind.MATMUL:
            other = self._kept(reads[1 - which], transposed=True)
            factors = (given, other) if which == 0 else (other, given)
            return Operator(kind=OperatorKind.MATMUL, inputs=factors, **own)
        elif operator.kind == OperatorKind.UPSAMPLE:
            by = operator.scale
            return Operator(kind=OperatorKind.POOL, inputs=(given,), kernel=by, stride=by, **own)
        elif operator.kind in VALUES and (straight or operator.kind == OperatorKind.GLOBAL_POOL):
            return Operator(
                kind=OperatorKind.ELEMENTWISE,
                inputs=(given, *map(self._kept, dict.fromkeys(reads))),
                in_place=straight,
                passes=operator.passes,
                whole=operator.whole,
                **own,
            )
        return self._alone(at, given, own)

    def _alone(self, at: int, given: str, own: dict[str, Any]) -> Operator:
        """Return what leads a gradient on from and to global memory."""
        operator, reads = self.instance.operators[at], dict.fromkeys(self.instance.reads[at])
        values: tuple[str, ...] = ()
        if operator.kind not in LINEAR and not operator.adds:
            values = tuple(map(self._kept, reads))
        if operator.kind == OperatorKind.POOL:
            values = (*values, self._kept(at))
        return Operator(
            kind=OperatorKind.OTHER,
            inputs=(given, *values),
            **{**own, "cycles": self._computes(at)},
        )


def _turned(operator: Operator, shape: Shape, given: str, own: dict[str, Any]) -> Operator:
    """Return a convolution with the weights of a deconvolution, or the other way round.

    It reads a tensor of a `shape`; `given` is the gradient of what it writes, `own` its other
    fields.
    """
    weights = tuple(
        msgspec.structs.replace(
            weight, channels=shape[C], values=-(-weight.channels * weight.values // shape[C])
        )
        for weight in operator.weights[:1]
    )
    same = ("kernel", "stride", "dilation", "padding", "groups", "depth", "whole", "buffer")
    fields = {name: getattr(operator, name) for name in same}
    return Operator(
        kind=TURNED[operator.kind], inputs=(given,), weights=weights, **{**fields, **own}
    )


def brief(shape: Shape) -> tuple[int, ...]:
    """Return a shape without a depth of 1."""
    n, c, d, h, w = shape
    return (n, c, h, w) if d == 1 else shape
