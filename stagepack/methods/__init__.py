"""Floor 3: methods, composed of heuristics, formulations and engines."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Required, TypedDict, TypeVar, Unpack

from stagepack.contracts import Instance, Solution, SolutionT
from stagepack.heuristics import effort
from stagepack.heuristics.tuning import Tuning, TuningT
from stagepack.progress import Progress

InstanceT = TypeVar("InstanceT", bound=Instance)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a method should run."""

    engine: str | None = None  # engine to use; None for the method's own choice
    # "auto", None, the name of a method of the same problem, or a solution.
    warm_start: Solution | str | None = "auto"
    threads: int = 1  # for the engines
    seed: int = 0  # for the engines and for what is drawn at random
    # Limit work instead of time; of methods that count their work, or leave it to an engine.
    deterministic: bool = False
    time_limit: float | None = None  # the limit of the run, for turning it into work
    proof: bool = False  # whether evidence that others can verify is worth the time that is left
    tuning: Tuning | None = None  # what steers the searches of the family; None for what is usual

    def tuned(self, usual: TuningT) -> TuningT:
        """Return what steers the searches of this run, `usual` unless told otherwise."""
        return self.tuning if isinstance(self.tuning, type(usual)) else usual


@dataclass(frozen=True, kw_only=True)
class Method(Generic[InstanceT, SolutionT]):
    """One way to solve one kind of problem."""

    name: str
    kind: str  # the problem it solves
    exact: bool  # whether it proves its answer, given time
    description: str  # one line
    # ``run(instance, progress, settings)`` reports what it finds to `progress`.
    run: Callable[[InstanceT, Progress[SolutionT], Settings], None]
    # ``unsupported(instance)`` is '' or one line saying why the method does not apply.
    unsupported: Callable[[InstanceT], str] = lambda _instance: ""
    # The same, of what takes long to find out: a run says it within its limit.
    declines: Callable[[InstanceT], str] = lambda _instance: ""
    # ``unproved(instance)`` is '' or one line saying why an exact method proves only bounds.
    unproved: Callable[[InstanceT], str] = lambda _instance: ""
    # Engines it can use, its own choice first; empty when it needs none.
    engines: tuple[str, ...] = ()
    # Whether it counts its work (:mod:`stagepack.heuristics.effort`), and so can keep to that
    # instead of the clock when runs are to repeat.
    limited_by_work: bool = False
    default: bool = True  # whether comparisons run it unasked


AnyMethod = Method[Any, Any]
"""One of a problem that its reader does not know."""


class Facts(TypedDict, total=False):
    """What tables say of a method besides its name and what it does not take."""

    exact: Required[bool]
    description: Required[str]
    declines: Callable[[Any], str]
    unproved: Callable[[Any], str]
    engines: tuple[str, ...]
    default: bool


@dataclass(frozen=True)
class Deferred:
    """The `run` of a method whose module, with its compiled kernels, is loaded when it is called.

    The table `RUNS` there says by `name` what methods do.
    """

    module: str
    name: str

    def __call__(
        self, instance: Instance, progress: Progress[SolutionT], settings: Settings
    ) -> None:
        """Run the method."""
        loaded = self.module in sys.modules  # then to watch over it would cost more
        with contextlib.nullcontext() if loaded else progress.setup("loading compiled code"):
            runs = importlib.import_module(self.module).RUNS
        runs[self.name](instance, progress, settings)


@dataclass(frozen=True)
class Table(Generic[InstanceT, SolutionT]):
    """Makes the methods of one kind, which are loaded when they run.

    Their table `RUNS` is in the `searches` of the folder `package`, see :class:`Deferred`.  They
    refuse other objectives than those `known`, bounds and evidence included.
    """

    kind: str
    package: str
    known: tuple[str, ...]

    def method(
        self,
        name: str,
        *,
        unsupported: Callable[[InstanceT], str] = lambda _instance: "",
        limited_by_work: bool = True,
        **facts: Unpack[Facts],
    ) -> Method[InstanceT, SolutionT]:
        """Return the method of a `name`, with facts of a :class:`Method`.

        `unsupported` and `limited_by_work` are two of them, `facts` the others.
        """

        def refusal(instance: InstanceT) -> str:
            if instance.objective not in self.known:
                return f"knows no objective {instance.objective}"
            return unsupported(instance)

        run = Deferred(f"{self.package}.searches", name)
        return Method(
            name=name,
            kind=self.kind,
            run=run,
            unsupported=refusal,
            limited_by_work=limited_by_work,
            **facts,
        )


@contextlib.contextmanager
def counting(
    progress: Progress[SolutionT], settings: Settings, *, planned: bool = False
) -> Iterator[None]:
    """Count the work of the block, and let `progress` end by it where runs are to repeat.

    If `planned`, the block plans with the work that is left where the wall clock ends it, too.
    """
    limit = settings.time_limit
    by_work = settings.deterministic and limit is not None
    with effort.counting(limit if by_work or planned else None) as spent:
        if by_work and limit is not None:
            progress.limit_by(spent, limit)
        yield


def counted(
    run: Callable[[InstanceT, Progress[SolutionT], Settings], None],
) -> Callable[[InstanceT, Progress[SolutionT], Settings], None]:
    """Return a method that counts its work; see :func:`counting`."""

    def runs(instance: InstanceT, progress: Progress[SolutionT], settings: Settings) -> None:
        with counting(progress, settings):
            run(instance, progress, settings)

    return runs
