"""Fields of a result that describe the run, such as times and versions.

They can be checked for consistency, but not recomputed from the instance and the solution.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stagepack.contracts import JsonObject, Solution
from stagepack.errors import InputError
from stagepack.methods.own import is_own
from stagepack.result import Result, Status, Termination

NOTHING: Result[Solution] = Result(status=Status.UNKNOWN, termination=Termination.FINISHED)
FIELDS = (*NOTHING.to_dict(), "command", "device_names", "best")
"""What results are written with; the last three by ``stagepack solve`` alone."""
Seconds = Annotated[float, msgspec.Meta(ge=0)]
RECORDS: JsonObject = {
    "instance": str,
    "method": str,
    "engine": str | None,
    "runtime": Seconds,
    "setup_time": Seconds,
    "bound_source": str | None,
    "evidence": JsonObject,
    "reason": str | None,
    "instance_fields": JsonObject,
    "options": JsonObject,
    "versions": dict[str, str],
    "command": str,
    "device_names": list[str],
    "best": JsonObject,
}
"""Fields that tell of a run, and what they hold."""


def fault(kind: str, name: str, claimed: Any) -> str:
    """Return why no run on an instance of `kind` says this; "" where one can.

    `name` is a field of the result, and `claimed` what it holds, as plain JSON data.
    """
    from stagepack.solve import require_method, require_options
    from stagepack.solvers import engine

    if name not in FIELDS:
        return "no field of a result"
    try:
        msgspec.convert(claimed, RECORDS.get(name, Any))
        if name == "method" and not is_own(claimed):
            require_method(kind, claimed)
        elif name == "engine" and claimed is not None:
            engine(claimed)
        elif name == "options":
            require_options(kind, claimed)
    except msgspec.ValidationError as error:
        return str(error).replace("`", "").lower()
    except InputError as error:
        return str(error)
    return ""
