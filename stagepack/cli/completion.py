"""Completion in the shell; it loads no solver."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from stagepack.kinds import KINDS, by_family, kind_called

Offer = list[tuple[str, str]]
"""Words, and what each is; with none, the shell offers files."""


def _beginning(words: Iterable[tuple[str, str]], incomplete: str) -> Offer:
    return [(word, about) for word, about in words if word.startswith(incomplete)]


def instances(incomplete: str) -> Offer:
    """Return names of the catalog; with none that fits, the shell offers files."""
    from stagepack import catalog

    return _beginning(((e.name, e.description) for e in catalog.entries()), incomplete)


def entries(incomplete: str) -> Offer:
    """Return kinds, their families and names of the catalog."""
    families = ((known.family, f"all of {kind}") for kind, known in KINDS.items())
    return _beginning(families, incomplete) + instances(incomplete)


def kinds(incomplete: str) -> Offer:
    """Return kinds of problems and their families."""
    words = [(kind, f"or {known.family}") for kind, known in KINDS.items()]
    words += [(known.family, kind) for kind, known in KINDS.items()]
    return _beginning(words, incomplete)


def tools(context: typer.Context, incomplete: str) -> Offer:
    """Return tools that solutions are written for: of the kind that is named so far, or of all."""
    from stagepack.instances.problem import PROBLEMS

    wanted = _kind(context)
    found = {name: tool.writes for kind, known in PROBLEMS.items()
             if wanted in (None, kind) for name, tool in known.tools.items()}  # fmt: skip
    return _beginning(found.items(), incomplete)


def becoming(context: typer.Context, incomplete: str) -> Offer:
    """Return what a solution is written as: kinds of problems, and tools."""
    return kinds(incomplete) + tools(context, incomplete)


def methods(context: typer.Context, incomplete: str) -> Offer:
    """Return methods: of the kind that is named so far, or of all kinds."""
    from stagepack.solve import REGISTRY

    kind = _kind(context)
    some = [REGISTRY[kind]] if kind is not None else list(REGISTRY.values())
    found = {method.name: method.description for of_kind in some for method in of_kind}
    return _beginning(found.items(), incomplete)


def objectives(context: typer.Context, incomplete: str) -> Offer:
    """Return objectives: of the kind that is named so far, or of all kinds."""
    from stagepack.instances.problem import PROBLEMS

    wanted = _kind(context)
    words = ((word, kind) for kind, known in PROBLEMS.items() for word in known.objectives
             if wanted in (None, kind))  # fmt: skip
    return _beginning(words, incomplete)


def engines(incomplete: str) -> Offer:
    """Return engines."""
    from stagepack.solvers import engines as known

    return _beginning(((name, "") for name in known()), incomplete)


def formats(incomplete: str) -> Offer:
    """Return formats of files."""
    from stagepack.formats.door import formats as every

    return _beginning(((known.name, known.description) for known in every()), incomplete)


def writers(incomplete: str) -> Offer:
    """Return formats that are written."""
    from stagepack.formats.door import formats as every

    found = ((known.name, known.description) for known in every() if known.writes)
    return _beginning(found, incomplete)


def clusters(incomplete: str) -> Offer:
    """Return clusters of the catalog."""
    from stagepack.instances import clusters

    return _beginning(((name, "") for name in clusters.names()), incomplete)


def settings(incomplete: str) -> Offer:
    """Return parameters for ``--set``."""
    from stagepack.catalog import VOCABULARY

    words = ((f"{name}=", known.description) for name, known in VOCABULARY.items())
    return _beginning(words, incomplete)


def warm_starts(context: typer.Context, incomplete: str) -> Offer:
    """Return ``auto``, ``none`` and methods; with none that fits, the shell offers files."""
    words = [("auto", "greedy rules"), ("none", "no warm start")]
    return _beginning(words, incomplete) + [
        (name, about) for name, about in methods(context, incomplete) if name != "auto"
    ]


def scales(incomplete: str) -> Offer:
    """Return scales of pictures."""
    from stagepack.kinds import KINDS
    from stagepack.report.view import view

    words = {scale: known.family for kind, known in KINDS.items() for scale in view(kind).scales}
    return _beginning(words.items(), incomplete)


def _kind(context: typer.Context) -> str | None:
    """Return the kind that the words before tell: of ``--kind``, or of a name of the catalog."""
    given = context.params
    words = [given.get("kind"), given.get("instance"), *(given.get("instances") or ())]
    # An option that still waits for its value hides the arguments among what is left over.
    for word in (*words, *context.args):
        kind = kind_called(by_family(word).split("/")[0]) if word else None
        if kind is not None:
            return kind
    return None
