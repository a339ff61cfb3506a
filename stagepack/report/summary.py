"""The main figures of an instance."""

from __future__ import annotations

from stagepack.contracts import Instance, JsonObject
from stagepack.files import finite
from stagepack.report.view import view


def facts(instance: Instance) -> JsonObject:
    """Return sizes, totals and simple bounds of an instance as plain JSON data."""
    found: JsonObject = {
        "name": instance.name,
        "problem": instance.kind,
        "objective": str(instance.objective),
        "digest": instance.digest,
    }
    if getattr(instance, "source", ""):
        found["source"] = instance.source
    found.update(view(instance.kind).facts(instance))
    plain: JsonObject = finite(found)
    return plain


def lines(instance: Instance, given: JsonObject | None = None) -> list[tuple[str, str]]:
    """Return the facts of an instance (`given`, where they are known) as (what, text)."""
    given = facts(instance) if given is None else given
    return [
        ("Problem", given["problem"]),
        ("Objective", given["objective"]),
        *view(instance.kind).lines(given),
    ]
