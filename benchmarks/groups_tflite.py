"""Networks as TensorFlow Lite files, for tools that read nothing else: int8, made-up weights.

Needs the packages ``tflite`` and ``flatbuffers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind
from stagepack.instances.groups.operators import C, H, W

SCALE = 0.05
"""Of every tensor: what is added or joined must agree."""


class UnsupportedError(ValueError):
    """An operator that has no like in TensorFlow Lite."""


class Writer:
    """A model of one subgraph that is being written.

    Parameters
    ----------
    instance : LayerGrouping
    """

    def __init__(self, instance: LayerGrouping) -> None:
        import flatbuffers

        self.instance = instance
        self.build = flatbuffers.Builder(1 << 20)
        self._rng = np.random.default_rng(0)
        self._buffers = [self._buffer(b"")]
        self._tensors: list[int] = []
        self._operators: list[int] = []
        self._codes: dict[int, int] = {}

    def model(self) -> bytes:
        """Return the file."""
        import tflite

        instance, build = self.instance, self.build
        place = {}
        for at in (*range(instance.n, len(instance.tensors)), *range(instance.n)):
            known = instance.tensors[at]
            place[at] = self._tensor(known.name, _nhwc(known.shape), tflite.TensorType.INT8)
        for at, operator in enumerate(instance.operators):
            self._operator(operator, instance.sources(at), place[at], [
                place[tensor] for tensor in instance.reads[at]
            ])  # fmt: skip
        results = [at for at in range(instance.n) if not instance.tensors[at].readers]
        inputs = self._ints([place[at] for at in range(instance.n, len(instance.tensors))])
        outputs = self._ints([place[at] for at in results])
        tensors, operators = self._vector(self._tensors), self._vector(self._operators)
        tflite.SubGraphStart(build)
        tflite.SubGraphAddTensors(build, tensors)
        tflite.SubGraphAddInputs(build, inputs)
        tflite.SubGraphAddOutputs(build, outputs)
        tflite.SubGraphAddOperators(build, operators)
        graph = self._vector([tflite.SubGraphEnd(build)])
        codes = []
        for code in self._codes:
            tflite.OperatorCodeStart(build)
            tflite.OperatorCodeAddDeprecatedBuiltinCode(build, min(code, 127))
            tflite.OperatorCodeAddBuiltinCode(build, code)
            tflite.OperatorCodeAddVersion(build, 2)
            codes.append(tflite.OperatorCodeEnd(build))
        known_codes, buffers = self._vector(codes), self._vector(self._buffers)
        tflite.ModelStart(build)
        tflite.ModelAddVersion(build, 3)
        tflite.ModelAddOperatorCodes(build, known_codes)
        tflite.ModelAddSubgraphs(build, graph)
        tflite.ModelAddBuffers(build, buffers)
        build.Finish(tflite.ModelEnd(build), b"TFL3")
        return bytes(build.Output())

    # ------------------------------------------------------------------ operators

    def _operator(
        self, operator: Operator, sources: Sequence[Any], own: int, reads: list[int]
    ) -> None:
        """Write one operator, its weights and its options."""
        import tflite

        kind, codes = operator.kind, tflite.BuiltinOperator
        if kind == OperatorKind.CONV:
            self._conv(operator, sources[0], own, reads)
        elif kind in (OperatorKind.POOL, OperatorKind.GLOBAL_POOL):
            self._pool(operator, sources[0], own, reads)
        elif kind == OperatorKind.ELEMENTWISE and len(reads) == 2:
            tflite.AddOptionsStart(self.build)
            options = tflite.AddOptionsEnd(self.build)
            self._emit(codes.ADD, reads, own, tflite.BuiltinOptions.AddOptions, options)
        elif kind == OperatorKind.ELEMENTWISE and len(reads) == 1:
            self._emit(codes.RELU, reads, own, tflite.BuiltinOptions.NONE, None)
        elif kind == OperatorKind.CONCAT and len(reads) > 1:
            tflite.ConcatenationOptionsStart(self.build)
            tflite.ConcatenationOptionsAddAxis(self.build, 3)
            options = tflite.ConcatenationOptionsEnd(self.build)
            which = tflite.BuiltinOptions.ConcatenationOptions
            self._emit(codes.CONCATENATION, reads, own, which, options)
        elif kind == OperatorKind.ROWS and operator.full[H] == operator.full[W] == 1:
            tflite.SoftmaxOptionsStart(self.build)
            tflite.SoftmaxOptionsAddBeta(self.build, 1.0)
            options = tflite.SoftmaxOptionsEnd(self.build)
            which = tflite.BuiltinOptions.SoftmaxOptions
            self._emit(codes.SOFTMAX, reads, own, which, options)
        else:
            raise UnsupportedError(f"{operator.name}: {kind} of {len(reads)}")

    def _conv(self, operator: Operator, source: Any, own: int, reads: list[int]) -> None:
        import tflite

        if operator.groups > 1:
            raise UnsupportedError(f"{operator.name}: {operator.groups} groups")
        channels, build = operator.full[C], self.build
        shape = (channels, *operator.kernel, source[C])
        weights = self._rng.integers(-127, 128, shape, dtype=np.int8).tobytes()
        types = tflite.TensorType
        kernel = self._tensor(f"{operator.name}.w", shape, types.INT8, weights)
        bias = self._tensor(f"{operator.name}.b", (channels,), types.INT32, bytes(4 * channels))
        tflite.Conv2DOptionsStart(build)
        tflite.Conv2DOptionsAddPadding(build, _padding(operator, source))
        tflite.Conv2DOptionsAddStrideH(build, operator.stride[0])
        tflite.Conv2DOptionsAddStrideW(build, operator.stride[1])
        tflite.Conv2DOptionsAddDilationHFactor(build, operator.dilation[0])
        tflite.Conv2DOptionsAddDilationWFactor(build, operator.dilation[1])
        options = tflite.Conv2DOptionsEnd(build)
        which = tflite.BuiltinOptions.Conv2DOptions
        self._emit(tflite.BuiltinOperator.CONV_2D, [*reads, kernel, bias], own, which, options)

    def _pool(self, operator: Operator, source: Any, own: int, reads: list[int]) -> None:
        import tflite

        whole, build = operator.kind == OperatorKind.GLOBAL_POOL, self.build
        kernel = (source[H], source[W]) if whole else operator.kernel
        stride = (1, 1) if whole else operator.stride
        padding = tflite.Padding.VALID if whole else _padding(operator, source)
        tflite.Pool2DOptionsStart(build)
        tflite.Pool2DOptionsAddPadding(build, padding)
        tflite.Pool2DOptionsAddStrideH(build, stride[0])
        tflite.Pool2DOptionsAddStrideW(build, stride[1])
        tflite.Pool2DOptionsAddFilterHeight(build, kernel[0])
        tflite.Pool2DOptionsAddFilterWidth(build, kernel[1])
        options = tflite.Pool2DOptionsEnd(build)
        codes = tflite.BuiltinOperator
        code = codes.AVERAGE_POOL_2D if whole else codes.MAX_POOL_2D
        self._emit(code, reads, own, tflite.BuiltinOptions.Pool2DOptions, options)

    def _emit(
        self, code: int, reads: Sequence[int], own: int, which: int, options: int | None
    ) -> None:
        import tflite

        inputs, outputs = self._ints(reads), self._ints([own])
        at = self._codes.setdefault(code, len(self._codes))
        tflite.OperatorStart(self.build)
        tflite.OperatorAddOpcodeIndex(self.build, at)
        tflite.OperatorAddInputs(self.build, inputs)
        tflite.OperatorAddOutputs(self.build, outputs)
        if options is not None:
            tflite.OperatorAddBuiltinOptionsType(self.build, which)
            tflite.OperatorAddBuiltinOptions(self.build, options)
        self._operators.append(tflite.OperatorEnd(self.build))

    # ------------------------------------------------------------------ parts

    def _tensor(self, name: str, shape: Sequence[int], kind: int, data: bytes = b"") -> int:
        """Write a tensor; return its index."""
        import tflite

        build = self.build
        place = 0
        if data:
            place = len(self._buffers)
            self._buffers.append(self._buffer(data))
        label, sizes = build.CreateString(name), self._ints(shape)
        build.StartVector(4, 1, 4)
        build.PrependFloat32(SCALE)
        scale = build.EndVector()
        build.StartVector(8, 1, 8)
        build.PrependInt64(0)
        zero = build.EndVector()
        tflite.QuantizationParametersStart(build)
        tflite.QuantizationParametersAddScale(build, scale)
        tflite.QuantizationParametersAddZeroPoint(build, zero)
        quantization = tflite.QuantizationParametersEnd(build)
        tflite.TensorStart(build)
        tflite.TensorAddShape(build, sizes)
        tflite.TensorAddType(build, kind)
        tflite.TensorAddBuffer(build, place)
        tflite.TensorAddName(build, label)
        tflite.TensorAddQuantization(build, quantization)
        self._tensors.append(tflite.TensorEnd(build))
        return len(self._tensors) - 1

    def _buffer(self, data: bytes) -> int:
        import tflite

        values = self.build.CreateByteVector(data) if data else None
        tflite.BufferStart(self.build)
        if values is not None:
            tflite.BufferAddData(self.build, values)
        return int(tflite.BufferEnd(self.build))

    def _ints(self, values: Sequence[int]) -> int:
        self.build.StartVector(4, len(values), 4)
        for value in reversed(values):
            self.build.PrependInt32(int(value))
        return int(self.build.EndVector())

    def _vector(self, offsets: Sequence[int]) -> int:
        self.build.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.build.PrependUOffsetTRelative(offset)
        return int(self.build.EndVector())


def write(instance: LayerGrouping, path: Path) -> None:
    """Write a network as an int8 model; paddings become SAME or VALID, whichever has its shape.

    Raises
    ------
    UnsupportedError
        For an operator that cannot be said so.
    """
    path.write_bytes(Writer(instance).model())


def lifetimes(path: Path) -> tuple[list[int], list[int], list[int]]:
    """Return bytes, first and last operator (exclusive) of what the operators of a model write."""
    import tflite

    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    count = graph.OperatorsLength()
    first: dict[int, int] = dict.fromkeys(graph.InputsAsNumpy().tolist(), 0)
    last: dict[int, int] = dict.fromkeys(graph.OutputsAsNumpy().tolist(), count)
    for at in range(count):
        operator = graph.Operators(at)
        for which in range(operator.OutputsLength()):
            first.setdefault(operator.Outputs(which), at)
        for which in range(operator.InputsLength()):
            tensor = operator.Inputs(which)
            last[tensor] = max(last.get(tensor, 0), at + 1)
    found: tuple[list[int], list[int], list[int]] = [], [], []
    for tensor, start in first.items():
        known = graph.Tensors(tensor)
        if known.ShapeLength() == 0:  # the handle of a variable
            continue
        row = int(np.prod(known.ShapeAsNumpy())), start, max(last.get(tensor, 0), start + 1)
        for column, value in zip(found, row, strict=True):
            column.append(value)
    return found


def _nhwc(shape: Sequence[int]) -> tuple[int, ...]:
    n, c, _, h, w = shape
    return n, h, w, c


def _padding(operator: Operator, source: Sequence[int]) -> int:
    """Return the padding of TensorFlow Lite with which the shape is that of the operator."""
    import tflite

    axes = [(source[axis], operator.full[axis], axis - H) for axis in (H, W)]
    if all(-(-size // operator.stride[at]) == out for size, out, at in axes):
        return int(tflite.Padding.SAME)
    reach = [(operator.kernel[at] - 1) * operator.dilation[at] + 1 for at in (0, 1)]
    if all((size - reach[at]) // operator.stride[at] + 1 == out for size, out, at in axes):
        return int(tflite.Padding.VALID)
    raise UnsupportedError(f"{operator.name}: padding")
