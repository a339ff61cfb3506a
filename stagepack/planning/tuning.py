"""Tuning: the batch, number of devices and microbatches with the most samples per second.

There are three searches.

- *Grid*: computes every plan.
- *Bisection*: for options that are declared monotone (a larger value is better as long as it fits),
  the largest value that fits is found by bisection.  All other options are enumerated.
- *Bounds*: the most promising configuration comes first.  A configuration whose step takes at least
  `least_step` cycles has a throughput of at most samples / `least_step`; if this is no more than
  the best throughput found, it is skipped.  For each combination of the other options the most
  promising value comes first; as soon as one value is known not to fit, bisection continues between
  it and the largest value that fits or is skipped.

The first value of a list is treated like the last one.  Of several monotone options the last one is
bisected.  If values fit together, all smaller ones do; if they do not, no larger ones do; both are
shared between the combinations.

Plans are made (:mod:`stagepack.planning.tuner.search`), or a profiler of the user's own is asked
(:mod:`stagepack.planning.tuner.profiled`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.claims.claim import is_number
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, a, suggest
from stagepack.instances.arrays import integer
from stagepack.planning.tuned import BATCH, Tuning, rises
from stagepack.planning.tuner.processes import Command, Measure
from stagepack.planning.tuner.profiled import Profiled, Profiling
from stagepack.planning.tuner.search import Make, Tuner
from stagepack.solve import require_time
from stagepack.spelling import renamed
from stagepack.stopping import Stop, heeding

VERSION = 1
"""Of the files in a store of plans."""
SEARCHES = ("bounds", "bisection", "grid")


@renamed(width="jobs")
def tune(
    make: Make | None,
    options: Mapping[str, Sequence[Any]],
    monotone: str | Sequence[str] | None = None,
    *,
    search: str = "bounds",
    split: bool = False,
    time_limit: float | None = 5,
    seed: int = 0,
    gap: float = 0,
    total_limit: float | None = 60,
    store: str | Path | None = None,
    executor: Executor | None = None,
    jobs: int = 1,
    measure: Measure | None = None,
    repeats: int = 1,
    margin: float = 0.2,
    measure_limit: float | None = None,
    calls: int | None = None,
    retry: bool = False,
    stop: Stop | None = None,
) -> Tuning:
    """Search for the options under which the plan of a model has the most samples a second.

    Parameters
    ----------
    make : callable or None
        ``make(**options) -> PipelinePartition``: the model on a cluster.  If ``batch`` is one of
        the options, it is the number of samples of a microbatch; otherwise microbatches are
        counted.  It is called for configurations that are looked at.  With `measure` it only
        estimates, and may be None.
    options : mapping of str to sequence
        The values of each option.
    monotone : str or sequence of str, optional
        Options of which a larger value is always better as long as it fits, whatever the other
        options are; their values must rise.  This is not checked.  It can be false for the batch in
        training: a larger batch needs more memory, so fewer microbatches may be in flight, and
        fewer samples are computed per second.  If computed plans contradict it, the result says so.
        Without `monotone`, every value is considered, and bounds skip most of them.
    search : str
        "bounds"; or, to compare, "bisection" within every point of the grid, or the whole "grid".
    split, time_limit, seed
        As for :func:`plan_model`.
    gap : float
        What can have more samples a second by this part at most is not looked at.
    total_limit : float, optional
        Seconds after which no more plans are made where "bounds" choose; the result says how much
        better those left may be.  Plans are first made with little time, then those that may be the
        best with more, up to `time_limit`.  Not with `measure`.
    store : path-like, optional
        A folder in which evaluations are stored and found again, measurements as soon as they are
        made.  Those are known by the name of `measure` and the options: another program needs
        another folder.  Two runs on one folder share them, and measure nothing twice.
    executor : concurrent.futures.Executor, optional
        Computes the plans; by default this process does.  If one of its processes dies, the search
        ends as if it had been interrupted.  Not with `measure`.
    jobs : int
        Number of plans that are computed, or measurements that run, at a time.
    measure : callable, optional
        ``measure(**options)`` runs a configuration and returns its throughput, the more the better;
        or a mapping with ``throughput`` and perhaps ``memory`` (bytes); or a profile, a
        :class:`.PipelinePartition` (with `make` also a :class:`.ModelProfile`), of which a plan is
        made.  Whatever it raises, an exit or a crash of its process is an answer: this
        configuration fails.  Each call has a process of its own, a fresh one for a function of a
        module, else a copy of this one (where the system can make one).  It is called as rarely as
        possible; what is not measured rests on `monotone` and `margin`, and, if the batch is
        monotone, on its step taking no less time the larger it is.
    repeats : int
        How often a configuration that may be the best is measured; medians are compared.
    margin : float
        A configuration is skipped if it cannot have more than the best even if it is better by this
        part than estimated.  Estimates of `make` are first multiplied by the most that any
        measurement so far is of its own.
    measure_limit : float, optional
        Seconds after which a measurement is ended, with all that it started: then it has failed.
    calls : int, optional
        The most measurements of this run.
    retry : bool
        Measure again what failed according to the store.
    stop : threading.Event or callable, optional
        Ends the search from another thread, with the plans so far, see :func:`stagepack.solve`;
        those under way on an `executor` are waited for.

    Returns
    -------
    Tuning

    Raises
    ------
    InputError
        For unknown names, options without values, a store that cannot be used, whatever `make` and
        :func:`plan_model` refuse, and where `make` fails or returns no chain.  What was found by
        then is the attribute `partial_result` of the exception, a :class:`Tuning`.
    """
    if search not in SEARCHES:
        raise InputError(f"unknown {search!r}", field="search", remedy=suggest(search, SEARCHES))
    if not (callable(make) or (make is None and measure is not None)):
        remedy = "give a function of the options that returns an instance, or None and measure="
        raise InputError(f"{a(type(make).__name__)} is no function", field="make", remedy=remedy)
    jobs, seed = integer(jobs, "jobs", 1), integer(seed, "seed", 0)
    time_limit = require_time(time_limit)
    if executor is not None and not callable(getattr(executor, "map", None)):
        remedy = "give an executor of concurrent.futures, or None"
        raise InputError(
            f"{a(type(executor).__name__)} runs nothing", field="executor", remedy=remedy
        )
    values = _listed(options)
    empty = [name for name, some in values.items() if not some]
    if empty or not values:
        raise InputError("has no values", field=(empty or ["options"])[0], remedy="give some")
    rising = () if monotone is None else (monotone,) if isinstance(monotone, str) else monotone
    for name in rising if isinstance(rising, Iterable) else [rising]:
        if not isinstance(name, str) or name not in values:
            raise InputError(f"unknown {name!r}", field="monotone", remedy=suggest(name, values))
    rising = tuple(dict.fromkeys(rising))
    for name in rising:
        if not rises(values[name]):
            raise InputError("do not rise", field=name, remedy="give them from small to large")
    how = _profiling(measure, repeats, margin, measure_limit, calls, retry)
    if how is not None and executor is not None:
        remedy = "leave it out: every measurement has a process of its own"
        raise InputError("makes plans", field="executor", remedy=remedy)
    if isinstance(measure, Command):
        measure.require(values)
    kept = None if store is None else files.require_store(store, "plans", VERSION)
    limits: JsonObject = {"split": bool(split), "time_limit": time_limit, "seed": seed}
    if not is_number(gap) or gap < 0:
        raise InputError(f"{gap!r}", field="gap", remedy="give a part, such as 0.01")
    if measure is not None and not isinstance(measure, Command):
        _require_called(measure, values)
    total_limit = require_time(total_limit, "total_limit")
    given = make, values, rising, limits, kept, executor, jobs, float(gap), total_limit
    tuner = Tuner(*given) if how is None else Profiled(*given, how=how)
    with heeding(stop):
        return tuner.run(search)


def _profiling(
    measure: Measure | None,
    repeats: int,
    margin: float,
    limit: float | None,
    calls: int | None,
    retry: bool,
) -> Profiling | None:
    """Return how it is measured; None where plans are made.

    `measure`, `repeats`, `margin`, `limit` (of a measurement), `calls`, `retry`: as for
    :func:`tune`.
    """
    if measure is None:
        return None
    if not callable(measure):
        remedy = "give a function of the options that returns a throughput"
        raise InputError(
            f"{a(type(measure).__name__)} is no function", field="measure", remedy=remedy
        )
    if not is_number(margin) or margin < 0:
        raise InputError(f"{margin!r}", field="margin", remedy="give a part, such as 0.2")
    return Profiling(
        measure,
        integer(repeats, "repeats", 1),
        float(margin),
        require_time(limit, "measure_limit"),
        None if calls is None else integer(calls, "calls", 1),
        bool(retry),
    )


def _require_called(measure: Measure, options: Mapping[str, Sequence[Any]]) -> None:
    """Refuse to `measure` by a function that does not take the names of the `options`."""
    try:
        signature = inspect.signature(measure)
    except (TypeError, ValueError):  # of what is written in C, nothing is known
        return
    try:
        signature.bind(**dict.fromkeys(options))
    except TypeError as error:
        remedy = f"take {', '.join(options)}, or **options"
        raise InputError(str(error), field="measure", remedy=remedy) from None


def _listed(options: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the values of each option."""
    if not isinstance(options, Mapping):
        remedy = 'give the values of each, such as {"devices": [2, 4]}'
        raise InputError(f"{options!r}", field="options", remedy=remedy)
    for name, some in options.items():
        if not isinstance(some, Iterable) or isinstance(some, str | bytes):
            raise InputError(f"{some!r}", field=str(name), remedy="give its values in a list")
    found = {str(name): list(some) for name, some in options.items()}
    for name, some in found.items():
        for value in some:
            wrong = isinstance(value, float) and math.isnan(value)
            wrong |= name == BATCH and not (is_number(value) and value > 0)
            if wrong:
                remedy = "give numbers above 0" if name == BATCH else "leave it out"
                raise InputError(f"{value!r}", field=name, remedy=remedy)
    return found
