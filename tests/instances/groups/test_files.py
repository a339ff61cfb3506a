"""Layer groupings from and to files: native ones, and networks in ONNX."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

import stagepack as sp
from stagepack.catalog.groups import NETWORKS
from stagepack.errors import InputError
from stagepack.instances.groups.chips import CHIPS
from stagepack.instances.groups.operators import macs
from tests.instances.groups.networks import CHIP, block

LIGHT = "backend/test/data/light"
KNOWN = {"resnet50": 4_089_184_256, "vgg19": 19_632_062_464, "densenet121": 2_834_161_664}
FILES = {"alexnet": "bvlc_alexnet", "inception-v1": "inception_v1", "inception-v2": "inception_v2"}


def work(whole: sp.LayerGrouping) -> int:
    """Return the multiply-accumulates of a network."""
    return sum(macs(op, whole.sources(at)) for at, op in enumerate(whole.operators))


def test_a_file_says_everything(tmp_path: Path) -> None:
    whole = block(max_slices=16)
    sp.write(whole, tmp_path / "block.json")
    again = sp.read(tmp_path / "block.json", kind="layer-grouping")
    assert again.digest == whole.digest
    assert again.operators == whole.operators


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("operators", [], "operators"),
        ("chip", {"lanes": 0, "memory": 5}, "chip.lanes"),
        ("chip", {"lanes": 1, "memory": 5, "rates": {"conf": 1}}, "chip.rates.*'conf'"),
        ("chip", {"lanes": 1, "memory": 5, "rates": {"conv": 0}}, "chip.rates"),
        ("chip", "bm1684y", "unknown chip 'bm1684y'.*bm1684x"),
        ("slicing", "sideways", "slicing.*choose one of n-then-h, free"),
        ("operators", [{"kind": "wibble"}], r"operators\[0\].kind: .*choose one of conv, deconv"),
        ("overlap_limit", -1, "overlap_limit"),
        ("inputs", [{"name": "x", "shape": [1, 8]}], "inputs\\[0\\].shape"),
    ],
)
def test_fields_that_are_wrong(tmp_path: Path, field: str, value: object, words: str) -> None:
    path = tmp_path / "block.json"
    sp.write(block(), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(InputError, match=words):
        sp.read(path)


def test_a_chip_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "block.json"
    sp.write(block(), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chip": "bm1684x"}))
    assert sp.read(path, kind="groups").chip == CHIPS["bm1684x"]


def test_shapes_are_told_as_they_were_given(tmp_path: Path) -> None:
    path = tmp_path / "block.json"
    sp.write(block(), path)
    given = json.loads(path.read_text())
    given["operators"][0]["shape"] = [1, 4, 99, 8]
    path.write_text(json.dumps(given))
    with pytest.raises(
        InputError, match=r"\(1, 4, 99, 8\) does not follow from \(1, \d+, \d+, \d+\)"
    ):
        sp.read(path)


def test_a_rule_that_was_always_there_is_no_other_instance() -> None:
    free = block()
    assert free.digest != free.replace(timesteps="nearest").digest
    assert sp.load("groups/squeezenet").digest == "bd795acbeecc3fb0"


def test_what_is_said_beside_a_file(tmp_path: Path) -> None:
    sp.write(block(), tmp_path / "block.json")
    changed = sp.read(
        tmp_path / "block.json", kind="groups", capacity=1024, slicing="n-then-h", max_slices=4
    )
    assert (changed.chip.memory, changed.max_slices, str(changed.slicing)) == (1024, 4, "n-then-h")


def test_a_file_is_put_on_a_chip_of_the_catalog(tmp_path: Path) -> None:
    sp.write(block(), tmp_path / "block.json")
    moved = sp.read(tmp_path / "block.json", kind="groups", chip="cv184x", rates="conv:9")
    assert moved.chip == structs.replace(CHIPS["cv184x"], rates={"conv": 9.0})
    with pytest.raises(InputError, match=r"chip.*bm1688"):
        sp.read(tmp_path / "block.json", kind="groups", chip="bm1689")


def test_a_file_is_put_on_a_chip_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"lanes": 3, "memory": 4096, "load_rate": 2}')
    found = sp.load("groups/squeezenet", chip=str(path))
    assert found.chip == sp.LaneChip(name="mine", lanes=3, memory=4096, load_rate=2)
    assert found.name == "squeezenet-mine"
    path.write_text('{"lanes": 3}')
    with pytest.raises(InputError, match=r"^chip: .*mine\.json: memory: is missing; add it$"):
        sp.load("groups/squeezenet", chip=str(path))
    with pytest.raises(InputError, match=r"cv184x, or give a file that ends with \.json"):
        sp.load("groups/squeezenet", chip="cv18")


def test_documents_name_no_files(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"lanes": 3, "memory": 4096}')
    sp.write(block(), tmp_path / "block.json")
    held = json.loads((tmp_path / "block.json").read_text())
    (tmp_path / "block.json").write_text(json.dumps({**held, "chip": str(tmp_path / "mine.json")}))
    with pytest.raises(InputError, match="unknown chip"):
        sp.read(tmp_path / "block.json", kind="groups")


def test_the_memory_of_a_chip_is_changed_and_nothing_else() -> None:
    chip = sp.load("groups/squeezenet", chip="cv184x").chip
    smaller = sp.load("groups/squeezenet", chip="cv184x", capacity=9999).chip
    assert smaller == structs.replace(chip, memory=9999)


def test_rates_by_kind_are_said_in_files_and_beside_them(tmp_path: Path) -> None:
    path, whole = tmp_path / "block.json", block()
    sp.write(whole, path)
    assert "rates" not in path.read_text()
    rated = sp.read(path, kind="groups", rates="conv:2.5, pool:8")
    assert rated.chip == structs.replace(CHIP, rates={"conv": 2.5, "pool": 8.0})
    assert rated.digest != whole.digest
    sp.write(rated, path)
    again = sp.read(path, kind="groups")
    assert (again.chip, again.digest) == (rated.chip, rated.digest)
    assert sp.read(path, kind="groups", rates="").digest == whole.digest
    assert sp.load("groups/squeezenet", rates="pool:1").chip.rates == {"pool": 1}
    for text, words in (("conv", "'conv' is no kind"), ("gemm:3", "chip.rates.*'gemm'")):
        with pytest.raises(InputError, match=words):
            sp.read(path, kind="groups", rates=text)


def test_peaks_of_chips_are_those_of_their_vendors() -> None:
    """Trillions of operations a second at the frequency and with the cores that are said."""
    sold = {
        "bm1684": (550, 1, 17.6),
        "bm1684x": (1000, 1, 32),
        "bm1688": (900, 2, 16),
        "bm1690": (1000, 8, 256),
    }
    for name, (megahertz, cores, peak) in sold.items():
        chip = CHIPS[name]
        made = 2 * chip.lanes * chip.channels * chip.pixels * megahertz * cores / 1e6
        assert made == pytest.approx(peak, rel=0.08)


@pytest.mark.parametrize("name", KNOWN)
def test_networks_work_as_much_as_is_known(name: str) -> None:
    # 4.089, 19.632 and 2.834 G, as their authors count, fully connected layers included.
    assert work(sp.load(f"groups/{name}")) == KNOWN[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_those_of_onnx(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    path = Path(onnx.__file__).parent / LIGHT / f"light_{FILES.get(name, name)}.onnx"
    read = sp.read(path, kind="layer-grouping")
    shipped = sp.load(f"groups/{name}", chip="generic")
    assert read.operators == shipped.operators
    assert read.inputs == shipped.inputs
    assert read.digest == shipped.digest


def test_a_batch_is_carried_through() -> None:
    one, four = sp.load("groups/squeezenet"), sp.load("groups/squeezenet", batch=4)
    assert work(four) == 4 * work(one)


def test_what_is_no_model(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08\x03\x12\xff\xff\xff\xff\x00")
    with pytest.raises(InputError, match="is no ONNX model"):
        sp.read(path, kind="layer-grouping")
