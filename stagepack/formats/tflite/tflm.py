"""Exports offsets for TensorFlow Lite Micro, inside the model."""

from __future__ import annotations

from pathlib import Path

from stagepack.errors import InputError
from stagepack.formats.tflite.arena import require_same, with_solution
from stagepack.formats.tflite.model import read
from stagepack.instances.documents import strict
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking


def planned(instance: LmemPacking, solution: PackingSolution, *, model: str | Path = "") -> bytes:
    """Return the `model` that an instance was read from, with its ``OfflineMemoryAllocation``."""
    data = require_model(instance, model=model)
    with strict.located(model):
        return with_solution(data, instance, solution)


def require_model(instance: LmemPacking, *, model: str | Path = "") -> bytes:
    """Return the bytes of the model that an instance was read from."""
    if not isinstance(model, str | Path) or not str(model):
        raise InputError("is missing", field="model", remedy="name the .tflite file")
    with strict.located(model):
        data = strict.load(model)
        require_same(read(data), instance)
    return data
