"""Unusual modules: their stages do what they do, or they are refused by name."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
alone = importlib.import_module("tests.integrations.pytorch.alone")
odd = importlib.import_module("tests.integrations.pytorch.odd")
counting = importlib.import_module("stagepack.integrations.pytorch.counting")
ordering = importlib.import_module("stagepack.integrations.pytorch.ordering")
tracing = importlib.import_module("stagepack.integrations.pytorch.tracing")


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    yield from alone.group()


def of(make: Any) -> Any:
    """Return a module and its inputs, without what torch says of old ways to make them."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


@pytest.mark.parametrize("make", odd.RIGHT, ids=lambda make: make.__name__)
def test_stages_do_what_the_module_does(make: Any) -> None:
    """One stage a layer, but where layers share what they hold; each is measured, too."""
    alone.require_version(odd.SINCE.get(make))
    module, inputs = of(make)
    ours = copy.deepcopy(module)
    measured = sp.profile_model(ours, inputs, measure=True, repeats=1)
    n = len(measured.layers)
    shared = any(layer.variables for layer in measured.layers)
    stages = sp.build_stages(ours, [0, n] if shared else range(n + 1), inputs)
    assert stages.state_dict().keys() == module.state_dict().keys()
    alone.require_same(module, ours, stages, inputs, {})


@pytest.mark.parametrize("make", odd.NO_STAGES, ids=lambda make: make.__name__)
def test_what_stages_cannot_do_is_named(make: Any) -> None:
    module, inputs = of(make)
    n = len(sp.profile_model(module, inputs).layers)
    with pytest.raises(InputError, match=odd.NO_STAGES[make]):
        sp.build_stages(module, range(n + 1), inputs)


def test_slopes_of_its_own_do_not_matter_to_inference() -> None:
    module, inputs = of(odd.own_slopes)
    with torch.no_grad():
        stages = sp.build_stages(module, [0, 1, 2], inputs)
        torch.testing.assert_close(stages(*inputs), module(*inputs))


@pytest.mark.parametrize("make", odd.REFUSED, ids=lambda make: make.__name__)
def test_what_cannot_be_traced_is_named(make: Any) -> None:
    module, inputs = of(make)
    with pytest.raises(InputError, match=odd.REFUSED[make]):
        sp.profile_model(module, inputs)


def test_regions_belong_to_the_layers_that_they_run() -> None:
    for make in (odd.without_slopes, odd.casts):
        assert [layer.name for layer in tracing.trace(*of(make), {}).layers] == ["first", "second"]


def test_a_scan_runs_as_often_as_it_goes_along(caplog: pytest.LogCaptureFixture) -> None:
    alone.require_version(odd.SINCE[odd.scans])
    traced = tracing.trace(*of(odd.scans), {})
    assert counting.network_of(traced).macs == 3 * 2 * 8 * 8  # two layers, a product for each row
    counting.counted(traced, "generic-1", training=True, state_bytes=8)
    assert not [one for one in caplog.records if one.name == "stagepack"]


def test_a_runtime_that_is_unlike_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = of(odd.in_place)
    stages = sp.build_stages(module, [0, 2, 4], inputs)
    schedule = sp.PipelineSchedule.from_arrays([1, 1], [1, 1], devices=[0, 0], microbatches=2)
    given = (stages, schedule, sp.solve(schedule, "gpipe"), 0, alone.loss)
    runtime = ordering.schedules._PipelineScheduleRuntime
    monkeypatch.setattr(runtime, "_load_csv", lambda self, path: None)
    monkeypatch.delattr(ordering.schedules.PipelineScheduleMulti, "_load_csv")
    words = r"torch: .* has no _PipelineScheduleRuntime\._load_csv\(filename\), .*; install one of"
    with pytest.raises(InputError, match=words):
        sp.run_pipeline(*given)
    monkeypatch.delattr(ordering.schedules, "_PipelineScheduleRuntime")
    with pytest.raises(InputError, match=r"torch: .* has no _PipelineScheduleRuntime, which runs"):
        sp.run_pipeline(*given)
