"""Tables of layers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stagepack as sp
from stagepack.errors import shown
from tests.cli.shell import run

TABLE = """name, time, backward, params, output
"a, b",1,2,30,4
c,3,,40,6
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8-sig")
    return path


def test_a_table_is_a_chain_of_layers(tmp_path: Path) -> None:
    instance = sp.read(write(tmp_path / "net.csv", TABLE), devices=2, capacity=50)
    assert isinstance(instance, sp.PipelinePartition)
    same = sp.PipelinePartition.from_arrays(
        [1, 3],
        backward=[2, 0],
        devices=2,
        capacity=50,
        exclusive=[30, 40],
        in_bytes=[0, 4, 0],
        out_bytes=[0, 4, 6],
    )
    assert instance.digest == same.digest
    assert instance.layer_names == ("a, b", "c")
    assert instance.name == "net"


def test_what_is_received_and_times_with_fractions(tmp_path: Path) -> None:
    table = write(tmp_path / "net.csv", "forward,input\n1.5,7\n2,8\n")
    instance = sp.read(table, devices=2)
    assert isinstance(instance, sp.PipelinePartition)
    assert instance.forward.tolist() == [1.5, 2]
    assert (instance.in_bytes.tolist(), instance.out_bytes.tolist()) == ([7, 8, 0], [0, 8, 0])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("forward,colour\n1,red\n", "line 1: unknown column 'colour'"),
        ("forward,time\n1,2\n", "line 1: columns forward and time are the same"),
        ("name,backward\na,1\n", "line 1: no times of layers"),
        ("forward,stash\n", "no layers"),
        ("forward,stash\n1\n", "line 2: has 1 cells, the header 2"),
        (
            "forward,stash\n1,2.5\n",
            "line 2, column stash: '2.5' is not a whole number from 0 to 2**62; give whole bytes",
        ),
        ("fwd_ms,bwd_ms\n1,2\n", "unknown column 'fwd_ms'; did you mean fwd"),
        ("name,time,memory\na,1,2\n", "unknown column 'memory'; say which bytes: exclusive ("),
        ("forward\n1\n-1\n", "line 3, column forward: '-1' is not a number"),
        ("name,Cycles\na,5\nb,x\n", "line 3, column Cycles: 'x' is not a number"),
        ("forward\nnan\n", "line 2, column forward: 'nan' is not a number"),
        ("forward\n1e99\n", "line 2, column forward: '1e99' is not a number"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(sp.InputError) as error:
        sp.read(write(tmp_path / "net.csv", text), format="layer_table", devices=1)
    assert told in str(error.value)


def test_times_with_a_unit_in_their_name_are_a_table_too(tmp_path: Path) -> None:
    table = write(tmp_path / "net.csv", "layer,forward_ms\na,1\n")
    with pytest.raises(
        sp.InputError, match=r"unknown column 'forward_ms'.*mean forward.*--unit ms"
    ):
        sp.read(table, devices=1)


@pytest.mark.parametrize(("unit", "scale"), [("ns", 1), ("us", 10**3), ("ms", 10**6)])
def test_times_are_in_the_unit_that_is_said(tmp_path: Path, unit: str, scale: int) -> None:
    table = write(tmp_path / "net.csv", "forward,backward,output\n1,0.1,9\n2,7.25,9\n")
    instance = sp.read(table, kind="pipeline", devices=2, unit=unit, bandwidth="1GB/s")
    assert instance.forward.tolist() == [scale, 2 * scale]
    assert instance.backward.tolist() == [0.1 * scale, 7.25 * scale]
    assert instance.out_bytes.tolist() == [0, 9, 9]
    assert instance.cluster.clock == 1e9


def test_tables_with_other_separators_are_told_of_commas(tmp_path: Path) -> None:
    with pytest.raises(
        sp.InputError, match=r'first line is "layer;ms".*one of layers, with commas,'
    ):
        sp.read(write(tmp_path / "net.csv", "layer;ms\na;1\n"))


@pytest.mark.parametrize("head", ["layer,ms", "tensor,op_1,op_2", "tensor;op_1;op_2", "a\tb"])
def test_tables_of_other_tools_are_told_of_the_columns_first(tmp_path: Path, head: str) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.read(write(tmp_path / "net.csv", f"{head}\n"))
    told = str(caught.value)
    assert f'the first line is "{shown(head)}"; a table of buffers needs columns id,lower,' in told
    assert "name,forward,backward,parameters,output" in told


def test_people_are_told_what_a_cycle_is(tmp_path: Path) -> None:
    table = write(tmp_path / "net.csv", "forward\n1\n20.4\n")
    told = run("show", table, "--devices", "2", "--unit", "ms").stdout
    assert re.search(r"A cycle +1 ns", told)
    solved = run("solve", table, "--devices", "2", "--unit", "ms").stdout
    assert "20.4 ms (a cycle is 1 ns)" in solved
