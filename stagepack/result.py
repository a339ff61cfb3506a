"""Statuses, traces and results of solves, independent of the problem."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self

from stagepack import files
from stagepack.contracts import FoundT, Instance, JsonObject, Number
from stagepack.errors import InputError
from stagepack.evidence import Evidence, Proof
from stagepack.shown import Shown, dataframe, presenter

if TYPE_CHECKING:
    import pandas as pd


SHORTEST = 1e-9
"""Seconds of a time limit."""


class Status(StrEnum):
    """What a run has proved about an instance."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


class Termination(StrEnum):
    """Why a run stopped."""

    PROVED = "PROVED"
    TIME_LIMIT = "TIME_LIMIT"
    INTERRUPTED = "INTERRUPTED"
    TARGET = "TARGET"
    FINISHED = "FINISHED"


def relative_gap(objective: Number | None, bound: Number | None) -> float | None:
    """Return ``(objective - bound) / |objective|``, or None when either is missing.

    An objective of 0 divides by 1.  The unit of the data does not matter: times may be near 1e-14.
    """
    if objective is None or bound is None:
        return None
    return float(objective - bound) / (abs(float(objective)) or 1.0)


def slack(value: Number, tolerance: float) -> Number:
    """Return by how much another figure may differ from a value and count as equal.

    Relative to the value, whatever its unit.  Exactly 0 for exact data: a float would round
    integers beyond 2**53.

    The `tolerance` is that of the instance: 0 for exact data.
    """
    return tolerance * abs(value) if tolerance else 0


class EventKind(StrEnum):
    """What an event of a trace tells of.

    The last two: a start that an engine did not confirm, and a placement above the capacity where
    none within it is known.
    """

    INCUMBENT = "incumbent"
    BOUND = "bound"
    WARM_START = "warm-start"
    UNUSED_START = "warm-start-unused"
    OVER_CAPACITY = "over-capacity"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a trace: an incumbent or a bound, and who found it after how many seconds."""

    time: float
    kind: str
    value: Number
    source: str


@dataclass(repr=False)
class Trace(Shown):
    """Incumbents and bounds of one run in the order in which they were found."""

    events: list[Event] = field(default_factory=list)

    @property
    def incumbents(self) -> list[Event]:
        """The incumbents, each better than the one before."""
        return [event for event in self.events if event.kind == EventKind.INCUMBENT]

    @property
    def bounds(self) -> list[Event]:
        """The lower bounds, each higher than the one before."""
        return [event for event in self.events if event.kind == EventKind.BOUND]

    @property
    def warm_starts(self) -> list[Event]:
        """The hints that an engine received and confirmed as feasible in its model."""
        return [event for event in self.events if event.kind == EventKind.WARM_START]

    def _line(self) -> str:
        return f"{len(self.incumbents)} incumbents, {len(self.bounds)} bounds"

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each event: time, kind, value, source; pandas must be installed."""
        names = ("time", "kind", "value", "source")
        return dataframe({name: [getattr(e, name) for e in self.events] for name in names})

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the trace as CSV (``time,kind,value,source``), and write it to `path` if given."""
        text = files.csv_text(
            ("time", "kind", "value", "source"),
            ((f"{e.time:.6f}", e.kind, e.value, e.source) for e in self.events),
        )
        if path is not None:
            files.write(path, text)
        return text


@dataclass(kw_only=True, repr=False)
class Result(Shown, Generic[FoundT]):
    """The answer of one method on one instance.

    It prints as a summary and displays itself in notebooks.  In the process that solved it,
    `problem` is the instance; pickles do not contain it.

    Attributes
    ----------
    status : Status
        What is proved: OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN.
    termination : Termination
        Why the run stopped.
    objective : int or float or None
        Value of `solution`, evaluated by the instance; None without a solution.
    bound : int or float or None
        A safe lower bound on the objective of every solution.
    bound_source : str
        How the bound was proved.
    proof : Proof or None
        What kind of proof that is, or for INFEASIBLE that of there being no solution: `witness`,
        `dual` and `log` can be verified without the solver, by :func:`stagepack.check_result`;
        `search` is a search of ours that tried everything, and `engine` the word of an engine.
    evidence : dict
        What the verifier needs, as plain JSON data; empty for the last two.
    solution : object or None
        The best solution found; its checker found no violation.  Declared as ``FoundT | Any``,
        so that type checkers know its fields and do not ask for a None check at every use.
    method, engine : str
        The method and the engine that ran.
    runtime, setup_time : float
        Seconds of solving, and seconds spent importing engines and compiling kernels.
    reason : str
        For INFEASIBLE, the cause and a remedy; for UNKNOWN, why nothing is known; otherwise empty
        or a remark.
    violations : tuple
        Always empty: a solution that fails its check is raised as :class:`CheckError`.
    instance, objective_name, digest : str
        Name, objective and fingerprint of the instance.
    options : dict
        Keyword arguments of :func:`stagepack.solve` that repeat the run.
    versions : dict
        Versions of Stagepack, Python and the libraries that did the work.
    trace : Trace
        Incumbents and bounds with their times.
    """

    status: Status
    termination: Termination
    objective: Number | None = None
    bound: Number | None = None
    bound_source: str = ""
    proof: Proof | None = None
    evidence: JsonObject = field(default_factory=dict)
    solution: FoundT | Any = None
    method: str = ""
    engine: str = ""
    runtime: float = 0.0
    setup_time: float = 0.0
    reason: str = ""
    violations: tuple[object, ...] = ()
    instance: str = ""
    kind: str = ""
    objective_name: str = ""
    digest: str = ""
    options: JsonObject = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    trace: Trace = field(default_factory=Trace)

    @property
    def gap(self) -> float | None:
        """Relative gap ``(objective - bound) / |objective|``, see :func:`relative_gap`."""
        return relative_gap(self.objective, self.bound)

    def _line(self) -> str:
        known = f"{self.status}, objective {self.objective}, bound {self.bound}"
        return f"{known}, by {self.method}, {self.instance!r}"

    @property
    def problem(self) -> Instance | None:
        """The instance itself; None in a result that was pickled or made by hand."""
        known: Instance | None = self.__dict__.get("_problem")
        return known

    @functools.cached_property
    def instance_fields(self) -> dict[str, object]:
        """What the instance is made of, to say later in what another one differs.

        Found when asked for, as it costs more than many a run; a pickle keeps it.
        """
        return {} if self.problem is None else dict(self.problem.fingerprints)

    def because(self, evidence: Evidence | None) -> Self:
        """Take why the bound holds, or why nothing is feasible; return the result."""
        if evidence is not None:
            self.proof, self.evidence = evidence.proof, evidence.data
        return self

    def of(self, instance: Instance) -> Self:
        """Attach the instance, for prints, pictures and tables; return the result."""
        self.__dict__["_problem"] = instance
        return self

    def __getstate__(self) -> dict[str, object]:
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return kept | {"instance_fields": self.instance_fields}

    def to_dataframe(self, instance: Instance | None = None) -> pd.DataFrame:
        """Return one row for each stage, buffer, operation or phase of the solution.

        Parameters
        ----------
        instance : instance, optional
            What was solved; needed where the result does not know it any more.

        Raises
        ------
        InputError
            Without a solution or the instance, or when pandas is not installed.
        """
        instance = self.problem if instance is None else instance
        if instance is None:
            raise InputError(
                "is not known to a result that was pickled",
                field="instance",
                remedy="to_dataframe(instance)",
            )
        return dataframe(presenter().columns(instance, self))

    def to_dict(self) -> JsonObject:
        """Return the result as plain JSON data: finite numbers, strings, lists, null."""
        solution: Any = self.solution
        document = {
            "instance": self.instance,
            "problem": self.kind,
            "objective_name": self.objective_name,
            "status": str(self.status),
            "termination": str(self.termination),
            "objective": self.objective,
            "bound": self.bound,
            "bound_source": self.bound_source or None,
            "proof": self.proof,
            "evidence": self.evidence,
            "gap": self.gap,
            "method": self.method,
            "engine": self.engine or None,
            "runtime": round(self.runtime, 6),
            "setup_time": round(self.setup_time, 6),
            "solution": solution.to_dict() if hasattr(solution, "to_dict") else solution,
            "violations": [str(violation) for violation in self.violations],
            "reason": self.reason or None,
            "digest": self.digest,
            "instance_fields": self.instance_fields,
            "options": self.options,
            "versions": self.versions,
            "trace": [
                {"time": round(e.time, 6), "kind": e.kind, "value": e.value, "source": e.source}
                for e in self.trace.events
            ],
        }
        plain: JsonObject = files.finite(document)
        return plain

    @classmethod
    def from_dict(cls, given: JsonObject, solution: FoundT | None) -> Self:
        """Return the result that :meth:`to_dict` wrote.

        Parameters
        ----------
        given : dict
        solution : object or None
            Its solution, which `given` holds as plain data.

        Raises
        ------
        KeyError, TypeError, ValueError
            For what is no such result.
        """
        plain = (
            "objective", "bound", "method", "runtime", "setup_time", "instance", "objective_name",
            "digest", "options", "versions",
        )  # fmt: skip
        result = cls(
            status=Status(given["status"]),
            termination=Termination(given["termination"]),
            solution=solution,
            kind=given["problem"],
            bound_source=given["bound_source"] or "",
            proof=None if given.get("proof") is None else Proof(given["proof"]),
            evidence=given.get("evidence") or {},
            engine=given["engine"] or "",
            reason=given["reason"] or "",
            trace=Trace([Event(**event) for event in given["trace"]]),
            **{name: given[name] for name in plain},
        )
        vars(result)["instance_fields"] = given["instance_fields"]
        return result

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as one JSON document, and write it to `path` if given."""
        text = files.json_text(self.to_dict()) + "\n"
        if path is not None:
            files.write(path, text)
        return text
