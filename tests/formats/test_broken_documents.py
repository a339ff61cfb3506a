"""Whatever is wrong with a document is an InputError, and what is read can be written and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.formats import door
from stagepack.report import summary
from tests.formats.broken_documents import mutated, valid_documents

DOCUMENTS = valid_documents()
SOLVED = {
    "packing/random/pinwheel": "auto",
    "schedule/uniform": "gpipe",
    "phases/six-layers": "greedy-head",
    "pipeline/bert-base": "equal-layers",
}
TEXT = json.dumps(DOCUMENTS["pipeline"])
BYTES = {
    "deep array": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "deep problem": b'{"problem":' + b"[" * 100_000,
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16 without a mark": TEXT.encode("utf-16-le"),
    "UTF-32": TEXT.encode("utf-32"),
    "Latin-1": TEXT.replace('"p"', '"pé"').encode("latin-1"),
    "zeros": bytes(100),
    "junk": bytes(np.random.default_rng(0).integers(0, 256, 3000, dtype=np.uint8)),
    "blank": b" \n\t",
    "broken gzip": b"\x1f\x8b\x08junk",
    "lone surrogate": TEXT.replace('"p"', '"\\ud800"').encode(),
    "huge number": TEXT.replace("1.5", "1" + "0" * 5000).encode(),
    "1e400": TEXT.replace("1.5", "1e400").encode(),
    "NaN": TEXT.replace("1.5", "NaN").encode(),
    "number": b"5",
    "null": b"null",
    "commas": b"id,lower,upper,size\n" + b"," * 10_000,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_mutated_instances_are_read_or_refused(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "mutated.json"
    read, messages = 0, [""]
    for _ in range(400):
        what, document = mutated(DOCUMENTS[name], rng)
        path.write_text(json.dumps(document))
        try:
            instance: Any = sp.read(path)
            door.dump(instance, "again.json")
        except sp.InputError as error:
            messages.append(str(error))
            continue
        read += 1
        assert summary.lines(instance, summary.facts(instance)), what
        assert instance.digest
    assert read > 5
    assert all(message.isprintable() for message in messages)


@pytest.mark.parametrize("name", SOLVED)
def test_mutated_results_are_judged_or_refused(name: str) -> None:
    instance: Any = sp.load(name)
    rng = np.random.default_rng(2)
    result = sp.solve(instance, SOLVED[name], time_limit=5).to_dict()
    del result["versions"]
    assert sp.check_result(instance, result).valid
    false, messages = 0, [""]
    for _ in range(150):
        what, document = mutated(result, rng)
        try:
            found = sp.check_result(instance, document, anyway=True)
        except sp.InputError as error:
            messages.append(str(error))
            continue
        false += not found.valid
        json.dumps(found.to_dict(), allow_nan=False)
        assert all(str(claim).isprintable() for claim in found.claims), what
    assert false > 3
    assert all(message.isprintable() for message in messages)


@pytest.mark.parametrize("data", BYTES.values(), ids=list(BYTES))
def test_bytes_that_are_no_document(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(data)
    for read in (sp.read, sp.read_measured, lambda p: sp.check_result(sp.load("phases/mnist"), p)):
        with pytest.raises(sp.InputError, match=r"^/.*bytes: "):
            read(path)


@pytest.mark.parametrize(
    "data",
    [b"\xef\xbb\xbf" + TEXT.encode(), TEXT.replace(", ", ",\r\n").encode(), f"{TEXT}\n".encode()],
    ids=["mark", "CRLF", "newline"],
)
def test_other_ways_to_write_the_same(tmp_path: Path, data: bytes) -> None:
    plain, path = tmp_path / "plain.json", tmp_path / "other.json"
    plain.write_text(TEXT)
    path.write_bytes(data)
    one: Any = sp.read(plain)
    other: Any = sp.read(path)
    assert one.digest == other.digest
