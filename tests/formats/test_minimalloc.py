from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.errors import InputError
from stagepack.formats import door, solutions
from stagepack.instances.documents.cells import Cells
from stagepack.instances.packing import Gap, LmemPacking, Objective, PackingSolution
from tests.packing_cases import random_packing

SMALL = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"
FULL = (
    "id,lower,upper,size,alignment,hint,gaps,offset\n"
    "a,0,9,64,16,0,2-4 5-6@0:32,0\n"
    "b,3,12,128,1,-1,,64\n"
    "c d,-5,3,7,,,-5--2,\n"
)


def saved(place: Path, content: str | bytes, name: str = "file.csv") -> Path:
    path = place / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(place: Path, content: str, name: str = "file.csv", **context: Any) -> LmemPacking:
    instance = door.read(saved(place, content, name), **context)
    assert isinstance(instance, LmemPacking)
    return instance


def test_a_small_file(tmp_path: Path) -> None:
    instance = read(tmp_path, SMALL, "input.12.csv")
    assert (instance.name, instance.source, instance.capacity) == ("input", "input.12.csv", 12)
    assert instance.objective is Objective.FIT
    assert instance.ids == ("b1", "b2", "b3", "b4", "b5")
    assert instance.start.tolist() == [0, 3, 0, 9, 0]
    assert instance.end.tolist() == [3, 9, 9, 21, 21]
    assert instance.size.tolist() == [4] * 5


def test_every_column(tmp_path: Path) -> None:
    instance = read(tmp_path, FULL)
    assert instance.ids == ("a", "b", "c d")
    assert instance.alignment.tolist() == [16, 1, 1]
    assert instance.hint.tolist() == [0, -1, -1]
    assert instance.gaps == (Gap(0, 2, 4), Gap(0, 5, 6, 0, 32), Gap(2, -5, -2))
    assert instance.objective is Objective.PEAK
    assert instance.capacity is None


def test_columns_as_compilers_name_them(tmp_path: Path) -> None:
    instance = read(tmp_path, "tensor,bytes,first,last,align\nin,9600,0,1,16\nout,12,1,4,4\n")
    assert instance.ids == ("in", "out")
    assert instance.end.tolist() == [2, 5]
    assert instance.alignment.tolist() == [16, 4]


@pytest.mark.parametrize(
    ("name", "stem", "capacity"),
    [
        ("A.1048576.csv", "A", 1048576),
        ("A.1048576.csv.gz", "A", 1048576),
        ("a.b.12.csv", "a.b", 12),
        ("plain.csv", "plain", None),
        ("12.csv", "12", None),
        ("plain", "plain", None),
        ("A.1e6.csv", "A.1e6", None),
        (f"A.{10**18}0.csv", f"A.{10**18}0", None),
    ],
)
def test_names_tell_capacities(tmp_path: Path, name: str, stem: str, capacity: int | None) -> None:
    content = gzip.compress(SMALL.encode()) if name.endswith(".gz") else SMALL.encode()
    instance = door.read(saved(tmp_path, content, name))
    assert (instance.name, instance.capacity) == (stem, capacity)
    assert door.read(tmp_path / name, capacity=77).capacity == 77


def test_first_and_last_operators_are_a_lifetime(tmp_path: Path) -> None:
    instance = read(tmp_path, "name,size,first,last\nin,8,0,0\nskip,4,0,2\n")
    assert instance.start.tolist() == [0, 0]
    assert instance.end.tolist() == [1, 3]


def test_columns_in_any_order_and_by_other_names(tmp_path: Path) -> None:
    plain = read(tmp_path, SMALL)
    other = (
        "SIZE, begin ,Buffer_ID,upper\r\n4,0,b1,3\r\n4, 3,b2,9 \r\n4,0,b3,9\n\n4,9,b4,21\n4,0,b5,21"
    )
    assert read(tmp_path, other).digest == plain.digest
    assert read(tmp_path, other).ids == plain.ids
    # A column called end is inclusive, as are then the gaps.
    inclusive = "buffer,start,end,size,gaps\n1,6,11,18,7-8\n0,5,9,15,9-9@1:2\n"
    instance = read(tmp_path, inclusive)
    assert instance.end.tolist() == [12, 10]
    assert instance.gaps == (Gap(0, 7, 9), Gap(1, 9, 10, 1, 2))
    assert instance.ids == ("1", "0")


ROWS = "in,9600,0,1\nout,12,1,4\n"
IN, HALF = "from {} to {} (included)", "in [{}, {})"
TABLES = [  # header, rows, columns, how lifetimes are read, ends
    ("name,bytes,first,last", ROWS, "", IN.format("first", "last"), [2, 5]),
    ("name;bytes;begin;upper", ROWS.replace(",", ";"), "", HALF.format("begin", "upper"), [1, 4]),
    ("Tensor Name\tSize-Bytes\tFirst op\tLast op", ROWS.replace(",", "\t"), "",
     IN.format("first op", "last op"), [2, 5]),
    ("  name   nbytes start  end  ", ROWS.replace(",", "   ").replace("\n", " \r\n"), "",
     IN.format("start", "end"), [2, 5]),
    ("name,bytes,first,last,", ROWS.replace("\n", ",7\n"), "", IN.format("first", "last"), [2, 5]),
    ("name,bytes,alloc,free", ROWS, "upper=free", HALF.format("alloc", "free"), [1, 4]),
    ("name,bytes,alloc,free", ROWS, "last=free", IN.format("alloc", "free"), [2, 5]),
    ("what,much,a,b", ROWS, "id=what,size=much,lower=a,upper=b", HALF.format("a", "b"), [1, 4]),
    ("size,much,lower,upper", ROWS, "id=size,size=much", HALF.format("lower", "upper"), [1, 4]),
    ("", ROWS.replace("in", "7").replace("out", "8"), "id=1,size=2,lower=3,last=4",
     IN.format("column 3", "column 4"), [2, 5]),
]  # fmt: skip


@pytest.mark.parametrize(("head", "rows", "columns", "lifetimes", "ends"), TABLES)
def test_tables_as_compilers_dump_them(
    tmp_path: Path, head: str, rows: str, columns: str, lifetimes: str, ends: list[int]
) -> None:
    instance = read(tmp_path, f"{head}\n{rows}" if head else rows, columns=columns or None)
    assert instance.size.tolist() == [9600, 12]
    assert (instance.start.tolist(), instance.end.tolist()) == ([0, 1], ends)
    assert instance.ids in (("in", "out"), ("7", "8"))
    assert instance.lifetimes == lifetimes
    assert f"2 buffers alive {lifetimes}, no capacity, peak" in str(instance)
    assert instance.replace(name="x").lifetimes == lifetimes
    assert instance.digest == instance.replace(lifetimes="").digest


def test_without_names_buffers_are_counted(tmp_path: Path) -> None:
    instance = read(tmp_path, "start,end,size\n0,1,4\n1,2,4\n", columns="upper=end,size=size")
    assert (instance.ids, instance.end.tolist()) == (None, [1, 2])


@pytest.mark.parametrize(
    ("content", "columns", "words"),
    [
        (
            "tensor,alloc,free,nbyte,dtype\n",
            "",
            "unknown: free, nbyte, dtype and missing: upper, size; say which column is which, and "
            "leave out the others: --columns id=tensor,lower=alloc,upper=free,size=nbyte "
            "(last=NAME if the lifetime includes its end)",
        ),
        (
            "id,lower,op_last,size\n",
            "",
            "unknown: op_last and missing: upper; say which column is which, and leave out the "
            "others: --columns id=id,lower=lower,last=op_last,size=size",
        ),
        ("id,lower,upper,size,dtype\n", "", "--columns id=id,lower=lower,upper=upper,size=size"),
        ("0,0,3,4\n", "", "4 columns of numbers and no header; say which column is which, and "
         "leave out the others: --columns id=1,lower=2,upper=3,size=4 (last=NAME"),
        ("0 3 4\n", "", "--columns lower=1,upper=2,size=3"),
        ("0\t0\t0\t3\t4\n", "", "5 columns of numbers and no header"),
        (SMALL, "end=upper", "columns: 'end=upper' is no role=name; write size=bytes"),
        (SMALL, "upper", "'upper' is no role=name"),
        (SMALL, "upper=x", "columns: 'x' is no column of the file; choose one of id, lower, upper"),
        (SMALL, "hint=upper", "missing: upper"),
        ("a,b\n1,2\n", "lower=a", "missing: upper, size"),
        ("0,0,3,4\n0,0,x,4\n", "lower=2,upper=3,size=4", "line 2, column 3: 'x' is no"),
    ],
)  # fmt: skip
def test_columns_are_asked_for_all_at_once(
    tmp_path: Path, content: str, columns: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content, columns=columns or None)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (["0", "1", "2"], False), (["1", "0", "2"], True), (["0", "1", "02"], True),
        (["0", "1", "3"], True), (["a", "1", "2"], True), (["0", "1", "x"], True),
        (["-", "1", "2"], True),
    ],
)  # fmt: skip
def test_ids_are_kept_unless_they_only_count(tmp_path: Path, ids: list[str], kept: bool) -> None:
    content = "id,lower,upper,size\n" + "".join(f"{name},0,1,1\n" for name in ids)
    instance = read(tmp_path, content)
    assert instance.ids == (tuple(ids) if kept else None)
    assert [instance.buffer_id(i) for i in range(3)] == ids


def test_ids_that_count_beyond_nine(tmp_path: Path) -> None:
    rows = "".join(f"{i},0,1,1\n" for i in range(1234))
    assert read(tmp_path, "id,lower,upper,size\n" + rows).ids is None
    assert read(tmp_path, "id,lower,upper,size\n" + rows + "9999,0,1,1\n").ids is not None


def test_what_offsets_are(tmp_path: Path) -> None:
    placed = SMALL.replace("size\n", "size,offset\n").replace(",4\n", ",4,8\n")
    assert read(tmp_path, placed).hint.tolist() == [8] * 5
    fixed = read(tmp_path, placed, fixed=True)
    assert fixed.fixed.tolist() == [8] * 5
    assert fixed.hint.tolist() == [-1] * 5
    moved = read(tmp_path, placed, previous="yes", objective="moves", capacity=40)
    assert moved.previous.tolist() == [8] * 5
    assert moved.objective is Objective.MOVES
    assert read(tmp_path, FULL, fixed=True).fixed.tolist() == [0, 64, -1]
    assert read(tmp_path, FULL, fixed=True).hint.tolist() == [0, -1, -1]
    with pytest.raises(InputError, match="either fixed or the previous"):
        read(tmp_path, placed, fixed=True, previous=True)
    with pytest.raises(InputError, match="fixed: needs offsets"):
        read(tmp_path, SMALL, fixed=True)


def test_context(tmp_path: Path) -> None:
    assert read(tmp_path, FULL, alignment=8).alignment.tolist() == [16, 8, 8]
    assert read(tmp_path, SMALL, alignment=8).alignment.tolist() == [8] * 5
    assert read(tmp_path, SMALL, "x.12.csv", objective="peak").ceiling is None
    assert read(tmp_path, SMALL, period=21).period == 21
    assert read(tmp_path, SMALL, segment="64KiB").segment == 65536
    for words, options in (
        ("unknown objective 'sum' for lmem-packing; choose one of peak", {"objective": "sum"}),
        ("minimalloc files do not understand 'devices'", {"devices": 2}),
        ("holds lmem-packing, not pipeline-partition", {"kind": "pipeline-partition"}),
        ("is more than a period (20) after", {"period": 20}),
        ("unknown option 'dim.batch'; known here are", {"dim": {"batch": 4}}),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            read(tmp_path, SMALL, **options)


HEAD = "id,lower,upper,size\n"
BAD = [
    (HEAD, "", "no buffers"),
    ("id,lower,upper\n1,2,3\n", "line 1", "missing: size"),
    ("id,lower,upper,sise\n1,2,3,4\n", "line 1", "unknown: sise and missing: size"),
    ("id,lower,begin,upper,size\n1,2,2,3,4\n", "line 1", "lower and begin are the same"),
    (HEAD + "a,0,1,4\nb,0,1\n", "line 3", "has 3 cells, the header 4"),
    (HEAD + "a,0,1,4\n\n\nb,0,1,4,\n", "line 5", "has 5 cells, the header 4"),
    (HEAD + "a,0,1,4\nb,0,x,4\n", "line 3, column upper", "'x' is no integer"),
    (HEAD + "a,0,1,4\nb,0,1.0,4\n", "line 3, column upper", "'1.0' is no integer"),
    (HEAD + "a,0,1,4\nb,,1,4\n", "line 3, column lower", "'' is no integer"),
    (HEAD + "a,0,1,-\n", "line 2, column size", "'-' is no integer"),
    (HEAD + "a,0,1,--4\n", "line 2, column size", "'--4' is no integer"),
    (HEAD + "a,0,1,4KB\n", "line 2, column size", "give a whole number, without a unit"),
    (HEAD + "a,0,1,4 4\n", "line 2, column size", "'4 4' is no integer"),
    (HEAD + f"a,0,1,{2**62}\n", "line 2, column size", "below 2**62"),
    (HEAD + f"a,0,1,{10**30}\n", "line 2, column size", "below 2**62"),
    (HEAD + f"a,0,1,{2**61}\nb,0,1,{2**61}\n", "size", "2**61"),
    (HEAD + "a,0,1,-4\n", "line 2, column size", "is -4"),
    (HEAD + "a,5,5,4\n", "line 2, column upper", "5 is not after the begin, 5"),
    ("id,start,end,size\na,5,4,4\n", "line 2, column end", "4 is not after the begin, 5"),
    (HEAD + "a,0,1,4\nb,0,1,4\na,0,1,4\n", "line 4, column id", "in line 2 too"),
    (HEAD + ",0,1,4\n", "line 2, column id", "is empty"),
    ("id,lower,upper,size,alignment\na,0,1,4,0\n", "line 2, column alignment", "at least 1"),
    ("id,lower,upper,size,hint\na,0,1,4,-2\n", "line 2, column hint", "at least -1"),
    ("id,lower,upper,size,offset\na,0,1,4,z\n", "line 2, column offset", "'z'"),
    ("id,lower,upper,size,gaps\na,0,9,4,1-2-3\n", "line 2, column gaps", "'1-2-3' is no gap"),
    ("id,lower,upper,size,gaps\na,0,9,4,A-B\n", "line 2, column gaps", "'A-B' is no gap"),
    ("id,lower,upper,size,gaps\na,0,9,4,1-2@3\n", "line 2, column gaps", "write a-b or"),
    ("id,lower,upper,size,gaps\na,0,9,4,8-12\n", "line 2, column gaps", "lifetime [0, 9)"),
    ("id,lower,upper,size,gaps\na,0,9,4,2-2\n", "line 2, column gaps", "lifetime [0, 9)"),
    ("id,lower,upper,size,gaps\na,0,9,4,2-3@2:5\n", "line 2, column gaps", "in the 4 bytes"),
    ("id,lower,upper,size,gaps\na,0,9,4,2-5 4-6\n", "line 2, column gaps", "overlaps [4, 6)"),
    (b"id,lower,upper,size\n\xff,0,1,4\n", "", "not UTF-8"),
]


@pytest.mark.parametrize(("content", "field", "words"), BAD)
def test_errors_name_the_place(
    tmp_path: Path, content: str | bytes, field: str, words: str
) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(InputError) as caught:
        door.read(path)
    assert caught.value.file == str(path)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.remedy


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), named=st.booleans(), capacity=st.none() | st.integers(0, 99))
def test_round_trip_is_exact(
    tmp_path_factory: pytest.TempPathFactory, seed: int, named: bool, capacity: int | None
) -> None:
    rng = np.random.default_rng(seed)
    instance = random_packing(rng, features=["alignment", "gaps"])
    instance = instance.replace(
        gaps=sorted(instance.gaps, key=lambda gap: gap.buffer),
        capacity=capacity,
        objective=None,
        previous=None,
    )
    if named:
        instance = instance.replace(
            ids=[f"b{i} ü" for i in range(instance.n)], hint=rng.integers(-1, 9, instance.n)
        )
    name = "file.csv" if capacity is None else f"file.{capacity}.csv.gz"
    path = tmp_path_factory.mktemp("round") / name
    door.write(instance, path)
    again = door.read(path)
    assert again.digest == instance.digest
    assert again.ids == instance.ids
    solution = PackingSolution.of(instance, rng.integers(0, 99, instance.n))
    solutions.write_solution(instance, solution, path)
    assert solutions.read_solution(path, instance) == solution
    assert door.read(path, objective=instance.objective).size.tolist() == instance.size.tolist()


def test_what_csv_cannot_say(tmp_path: Path) -> None:
    instance = read(tmp_path, SMALL)
    for words, changes, name in (
        ("ids: 'a,b' cannot stand in CSV", {"ids": ["a,b", "1", "2", "3", "4"]}, "x.csv"),
        ("ids: ' ' cannot stand in CSV", {"ids": [" ", "1", "2", "3", "4"]}, "x.csv"),
        ("period: cannot be said", {"period": 21}, "x.csv"),
        ("fixed: cannot be said", {"fixed": [0, -1, -1, -1, -1]}, "x.csv"),
        ("colocated: cannot be said", {"colocated": [(0, 1)]}, "x.csv"),
        ("reserved: cannot be said", {"reserved": [(0, 1)]}, "x.csv"),
        ("conflicts: cannot", {"start": None, "end": None, "conflicts": [(0, 1)]}, "x.csv"),
        ("the capacity of 40 would be lost; name the file x.40.csv", {"capacity": 40}, "x.csv"),
        ("tells a capacity of 40, but there is none", {}, "x.40.csv"),
    ):
        with pytest.raises(InputError, match=re.escape(words)) as caught:
            door.write(instance.replace(**changes), tmp_path / name)
        assert caught.value.file == str(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_solutions_of_the_same_buffers(tmp_path: Path) -> None:
    instance = read(tmp_path, SMALL, "input.12.csv")
    placed = (
        "id,lower,upper,size,offset\nb3,0,9,4,4\nb1,0,3,4,8\nb2,3,9,4,8\nb4,9,21,4,4\nb5,0,21,4,0\n"
    )
    path = saved(tmp_path, placed, "out.csv")
    solution = solutions.read_solution(path, instance)
    assert isinstance(solution, PackingSolution)
    assert solution.offsets.tolist() == [8, 8, 4, 4, 0]
    assert instance.check(solution) == ()
    for words, content in (
        ("column offset is missing", SMALL),
        ("buffer b5: has no line", placed.replace("b5", "b6")),
        ("buffer b6: is no buffer of input", placed + "b6,0,1,1,0\n"),
        ("buffer b2: size is 5, in input 4", placed.replace("b2,3,9,4", "b2,3,9,5")),
        ("buffer b2: lower is 2, in input 3", placed.replace("b2,3,9,4", "b2,2,9,4")),
        ("buffer b2: upper is 8, in input 9", placed.replace("b2,3,9,4", "b2,3,8,4")),
        ("buffer b5: has no offset", placed.replace("0,21,4,0", "0,21,4,")),
    ):
        with pytest.raises(InputError, match=words) as caught:
            solutions.read_solution(saved(tmp_path, content, "out.csv"), instance)
        assert caught.value.file == str(path)


def test_written_as_minimalloc_writes(tmp_path: Path) -> None:
    instance = LmemPacking.from_arrays(
        [15, 18], [5, 6], [10, 12], alignment=[1, 2], gaps=[(1, 7, 8), (1, 9, 10, 1, 17)]
    )
    path = tmp_path / "out.csv"
    door.write(instance, path)
    assert path.read_text() == (
        "id,lower,upper,size,alignment,gaps\n0,5,10,15,1,\n1,6,12,18,2,7-8 9-10@1:17\n"
    )
    solutions.write_solution(instance, PackingSolution.of(instance, [1, 21]), path)
    assert path.read_text() == (
        "id,lower,upper,size,alignment,gaps,offset\n0,5,10,15,1,,1\n1,6,12,18,2,7-8 9-10@1:17,21\n"
    )
    with pytest.raises(InputError, match="with the instance"):
        solutions.write_solution(None, PackingSolution.of(instance, [1, 21]), path)


@settings(max_examples=100)
@given(
    st.lists(
        st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=3, max_size=3),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(["\n", "\r\n", " \n", "\n\n"]),
)
def test_columns_of_integers(rows: list[list[int]], end: str) -> None:
    text = "a,B,c" + end + end.join(",".join(map(str, row)) for row in rows)
    cells = Cells.of(text.encode())
    assert cells.names == ("a", "b", "c")
    for column in range(3):
        assert cells.integers(column).tolist() == [row[column] for row in rows]
        assert cells.texts(column) == [str(row[column]) for row in rows]


@pytest.mark.parametrize("at", [0, 6, 7, 8, 15, 16])
def test_what_is_no_digit_is_found_wherever_it_stands(at: int) -> None:
    for other in set(map(chr, range(256))) - set("0123456789,\n \t\r-"):
        table = Cells.of(f"a\n{'1' * at}{other}{'1' * (16 - at)}\n".encode())
        with pytest.raises(InputError, match="is no integer"):
            table.integers(0)


def test_a_million_lines(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 1_000_000
    instance = LmemPacking.from_arrays(
        rng.integers(1, 10**6, n), start := rng.integers(0, n, n), start + rng.integers(1, 99, n)
    )
    door.write(instance, tmp_path / "large.csv")
    assert door.read(tmp_path / "large.csv").digest == instance.digest


def test_public_files(data_dir: Path) -> None:
    for name, n in (("A", 154), ("C", 203), ("E", 215), ("G", 308), ("I", 374), ("K", 454)):
        instance = door.read(data_dir / "minimalloc" / f"{name}.1048576.csv")
        assert (instance.name, instance.n, instance.capacity) == (name, n, 1048576)
        assert instance.objective is Objective.FIT
    for name, n in (("G_1", 816), ("S_1", 28_526), ("resnet50", 1_042)):
        instance = door.read(data_dir / "idealloc" / f"{name}.csv")
        assert (instance.name, instance.n, instance.capacity) == (name, n, None)
        assert instance.objective is Objective.PEAK
