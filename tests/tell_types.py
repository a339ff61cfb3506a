"""What type checkers are told of the kinds, written down: ``python -m tests.tell_types``.

At run time all of it is found by ``kinds.KINDS``, which type checkers do not follow: classes,
names of the catalog, overloads by kind, public names.  A test compares what is written with what
is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import stagepack
from stagepack import catalog
from stagepack.instances.problem import PROBLEMS
from stagepack.kinds import KINDS
from tests.imports import PACKAGE

WIDTH = 100
TYPES = '''"""The kinds of problems for type checkers: instances, solutions, names in files.

Signatures that depend on a kind are written with these.  ``python -m tests.tell_types`` writes this
file, and those signatures.
"""

from __future__ import annotations

from typing import Literal

{imports}

__all__ = [
{names}
]

{kinds}
'''
NAMES = '''"""The names of the catalog as types: which kind of instance each one makes.

Editors complete them, and type checkers know what :func:`stagepack.load` returns.
``python -m tests.tell_types`` writes this file.
"""

from __future__ import annotations

from typing import Literal

{literals}
'''
LOAD = """@overload
def load(name: {name}, **parameters: object) -> {result}: ...
"""
READ = """@overload
def {function}(
    path: str | Path, *, kind: {kind}, format: str | None = None, **context: Any
) -> {result}: ...
"""


def told() -> dict[Path, str]:
    """Return the files that tell types, as they should be."""
    catalog_file = PACKAGE / "catalog" / "__init__.py"
    formats_file = PACKAGE / "formats" / "door.py"
    public_file = PACKAGE / "__init__.py"
    reading = formats_file.read_text()
    for function, result in (("read", "{}"), ("read_all", "list[{}]")):
        reading = _overloaded(reading, function, _reads(function, result))
    return {
        PACKAGE / "instances" / "types.py": _types(),
        PACKAGE / "catalog" / "names.py": _names(),
        catalog_file: _overloaded(catalog_file.read_text(), "load", _loads()),
        formats_file: reading,
        public_file: re.sub(
            r"(?<=^if TYPE_CHECKING:\n).*?\n(?=\n)",
            lambda _: "".join(f"    {line}\n" for line in _public()),
            public_file.read_text(),
            count=1,
            flags=re.DOTALL | re.MULTILINE,
        ),
    }


def _stem(kind: str) -> str:
    """Return how types of a kind begin: as its solutions do."""
    return PROBLEMS[kind].solution.__name__.removesuffix("Solution")


def _types() -> str:
    imports, names, literals = [], [], []
    for kind, known in KINDS.items():
        pair = PROBLEMS[kind].instance, PROBLEMS[kind].solution.__name__
        listed = ", ".join(sorted(pair))
        imports.append(f"from stagepack.instances.{known.family} import {listed}")
        literals.append(f'{_stem(kind)}Kind = Literal["{kind}", "{known.family}"]')
        names += [*pair, f"{_stem(kind)}Kind"]
    return TYPES.format(
        imports="\n".join(sorted(imports)),
        names="\n".join(f'    "{name}",' for name in sorted(names)),
        kinds="\n".join(literals),
    )


def _names() -> str:
    literals = []
    for kind in KINDS:
        names = [f'"{entry.name}"' for entry in catalog.entries(kind)]
        line = f"{_stem(kind)}Name = Literal[{', '.join(names)}]"
        if len(line) > WIDTH or len(names) > 1:
            line = f"{_stem(kind)}Name = Literal[\n" + "".join(f"    {n},\n" for n in names) + "]"
        literals.append(line)
    return NAMES.format(literals="\n\n".join(literals))


def _loads() -> str:
    made = [(f"names.{_stem(kind)}Name", f"types.{PROBLEMS[kind].instance}") for kind in KINDS]
    return "".join(LOAD.format(name=name, result=of) for name, of in [*made, ("str", "Any")])


def _reads(function: str, result: str) -> str:
    made = [(f"types.{_stem(kind)}Kind", f"types.{PROBLEMS[kind].instance}") for kind in KINDS]
    return "".join(
        READ.format(function=function, kind=kind, result=result.format(instance))
        for kind, instance in [*made, ("str | None = None", "Any")]
    )


def _overloaded(text: str, function: str, overloads: str) -> str:
    """Return the text of a module with other overloads of a function."""
    known = rf"(?:@overload\ndef {function}\([^@]*?: \.\.\.\n)+(?=def {function}\()"
    changed, count = re.subn(known, lambda _: overloads, text)
    assert count == 1, function
    return changed


def _public() -> Iterable[str]:
    """Yield the imports of all public names."""
    own = {
        name: f"stagepack.instances.{KINDS[kind].family}{module and f'.{module}'}"
        for kind, known in PROBLEMS.items()
        for name, module in known.public.items()
    }
    modules = dict.fromkeys(stagepack._MODULES, "stagepack")
    found = {**stagepack._HOME, **own, **modules}.items()
    for name, module in sorted(found, key=lambda item: (item[1], item[0].islower(), item[0])):
        line = f"from {module} import {name} as {name}"
        long = len(line) + 4 > WIDTH
        yield from (f"from {module} import (", f"    {name} as {name},", ")") if long else (line,)


def main() -> None:
    """Write the files."""
    for path, text in told().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
