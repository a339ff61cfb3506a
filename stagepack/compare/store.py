"""A store of results: one file for each cell, named by a hash of its question.

The question is everything that the answer depends on: the digest of the instance, the method, its
seed and arguments, and the versions of the solvers.  A comparison that was interrupted continues
with the cells that are missing, and several processes may share one store.  Each file is written
beside its final place, renamed, and ends with a mark that it is complete.  Incomplete files and
those of other questions count as missing; files of a newer version are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError
from stagepack.instances.problem import PROBLEMS
from stagepack.result import Result, Termination
from stagepack.solve import versions

VERSION = 1


class Store:
    """A folder of cells, made if it is not there and may be `new`."""

    def __init__(self, path: str | Path, *, new: bool = True) -> None:
        self.path = files.require_store(path, "results", VERSION, new=new)

    def question(self, instance: Instance, label: str, arguments: JsonObject) -> JsonObject:
        """Return what the answer of a cell depends on.

        That is not its `label`, but all `arguments` of the solve: method, seed, limits.
        """
        asked = {key: value for key, value in arguments.items() if value is not None}
        question = {
            "problem": instance.kind,
            "digest": instance.digest,
            "arguments": asked,
            "versions": versions(),
        }
        try:
            text = json.dumps(question, sort_keys=True)
        except TypeError as error:
            raise InputError(
                f"cannot be kept ({error})", field="store", remedy="give plain arguments, or none"
            ) from None
        key = hashlib.sha256(text.encode()).hexdigest()[:24]
        return {"key": key, "label": label, **question}

    def file(self, key: str) -> Path:
        """Return where an answer is kept: few files a folder."""
        return self.path / key[:2] / f"{key}.json"

    def write(self, question: JsonObject, result: Result[Solution]) -> None:
        """Keep an answer; one that was interrupted is none."""
        if result.termination is Termination.INTERRUPTED:
            return
        target = self.file(question["key"])
        target.parent.mkdir(exist_ok=True)
        document = {"question": question, "result": result.to_dict(), "whole": True}
        files.write(target, json.dumps(files.finite(document)) + "\n")

    def note(self, question: JsonObject, status: str, reason: str) -> None:
        """Keep why a `question` has no answer, until it has one: whoever asks again tries again.

        `status` and `reason` are those of a :class:`.Failure`.
        """
        target = self.file(question["key"])
        known = self._document(target)
        if known is not None and "result" in known:
            return
        target.parent.mkdir(exist_ok=True)
        failure = {"status": status, "reason": reason}
        document = {"question": question, "failure": failure, "whole": True}
        files.write(target, json.dumps(document) + "\n")

    def read(self, question: JsonObject, instance: Instance) -> Result[Solution] | None:
        """Return the answer of a question; None for none, or one that is not whole."""
        document = self._document(self.file(question["key"]))
        if document is None:
            return None
        try:
            given = document["result"]
            solution = given["solution"]
            if solution is not None:
                solution = PROBLEMS[instance.kind].solution.from_dict(solution, instance)
            return Result.from_dict(given, solution)
        except (InputError, KeyError, TypeError, ValueError):
            return None

    def rows(self) -> Iterator[JsonObject]:
        """Yield question and result, or failure, of every whole file, by their names."""
        for file in sorted(self.path.glob("*/*.json")):
            document = self._document(file)
            if document is not None:
                yield document

    def _document(self, file: Path) -> JsonObject | None:
        """Return what is in a file; None for no file, a torn one, or one under a wrong name."""
        try:
            document: JsonObject = json.loads(file.read_text(encoding="utf-8"))
            whole = document["whole"] is True and document["question"]["key"] == file.stem
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return document if whole else None
