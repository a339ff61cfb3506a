"""Models of TensorFlow Lite (``.tflite``) as memory to plan, and the plans that they hold.

The buffers are the tensors that TensorFlow Lite Micro keeps in its arena, in 16 bytes' steps; see
:mod:`.tflite.model` for their lifetimes.  A plan is the model's metadata
``OfflineMemoryAllocation``, which TensorFlow Lite Micro follows without looking whether tensors
overlap.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import numpy as np

from stagepack.errors import InputError
from stagepack.formats.known import stem_of
from stagepack.formats.tflite.model import ALIGNMENT, Model, plan_of, read
from stagepack.formats.tflite.planned import with_plan
from stagepack.formats.tflite.runtime import whole
from stagepack.instances.documents import strict
from stagepack.instances.packing import KIND, LmemPacking, PackingSolution
from stagepack.instances.words import Words

log = logging.getLogger("stagepack")


def packing(model: Model, given: Words, file: str) -> LmemPacking:
    """Return the tensors of a `file` as buffers; `given` may be a capacity and an objective."""
    tensors = [tensor for tensor in model.tensors if tensor.planned]
    if not tensors:
        raise InputError(
            "has no tensor to place", field="tensors", remedy="give a model that computes something"
        )
    twice = {name for name, count in Counter(t.name for t in tensors).items() if count > 1}
    return LmemPacking.from_arrays(
        [-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors],
        [tensor.first for tensor in tensors],
        [tensor.last + 1 for tensor in tensors],
        ids=[
            f"{tensor.name} ({at})" if tensor.name in twice else tensor.name
            for at, tensor in enumerate(tensors)
        ],
        alignment=ALIGNMENT,
        capacity=given.get("capacity"),
        objective=given.get("objective"),
        name=stem_of(file),
        source=file,
    )


def parse(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return the buffers of the arena."""
    return [packing(read(data), given, file)]


def solution(data: bytes, instance: LmemPacking) -> PackingSolution:
    """Return the plan that a model holds.

    Tensors that the plan leaves to the runtime, with -1, are where this places them; says so.
    """
    model = read(data)
    require_same(model, instance)
    found = plan_of(data)
    if found is None:
        raise InputError(
            "holds no plan (OfflineMemoryAllocation)",
            field="metadata",
            remedy="stagepack solve MODEL --export PLANNED --as tflm",
        )
    if len(found) != len(model.tensors):
        raise InputError(
            f"plans {len(found)} tensors, and the model has {len(model.tensors)}",
            field="metadata",
            remedy="plan it again",
        )
    offsets = np.array(
        [at for at, tensor in zip(found, model.tensors, strict=True) if tensor.planned],
        dtype=np.int64,
    )
    left = int(np.count_nonzero(offsets == -1))
    if left:
        log.warning(
            "%d of %d tensors are left to the runtime, which places them as counted here unless "
            "kernels ask for memory of their own", left, instance.n,
        )  # fmt: skip
    offsets = whole(offsets, instance.size, instance.start, instance.end)
    return PackingSolution.of(instance, offsets)


def planned(instance: LmemPacking, solution: PackingSolution, *, model: str | Path = "") -> bytes:
    """Return the `model` that an instance was read from, with its ``OfflineMemoryAllocation``."""
    data, found = require_model(instance, model=model)
    with strict.located(model):
        if int(solution.offsets.max()) >= 2**31:
            raise InputError(
                "offsets are beyond 31 bits", field="offsets", remedy="give a smaller model"
            )
        left = iter(solution.offsets.tolist())
        offsets = [next(left) if tensor.planned else -1 for tensor in found.tensors]
        return with_plan(data, offsets, len(found.subgraphs))


def require_model(instance: LmemPacking, *, model: str | Path = "") -> tuple[bytes, Model]:
    """Return the model that an instance was read from, and its bytes."""
    if not isinstance(model, str | Path) or not str(model):
        raise InputError("is missing", field="model", remedy="name the .tflite file")
    if instance.memories:
        raise InputError(
            "there are several, and a plan has offsets in one arena",
            field="memories",
            remedy="leave them out, or write a header: --as c",
        )
    with strict.located(model):
        data = strict.load(model)
        found = read(data)
        require_same(found, instance)
    return data, found


def require_same(model: Model, instance: LmemPacking) -> None:
    """Refuse a model whose tensors are not the buffers of an instance."""
    own = packing(model, {}, instance.name)
    for column in ("size", "start", "end", "ids"):
        if not np.array_equal(getattr(own, column), getattr(instance, column)):
            raise InputError(
                f"its tensors are not those of {instance.name}",
                field="tensors",
                remedy="give the model of which the instance was made",
            )


CONTEXTS = {KIND: frozenset({"capacity", "objective"})}
