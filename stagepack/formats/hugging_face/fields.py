"""The fields of a ``config.json``: numbers and switches, with what is missing refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from stagepack.errors import InputError

LARGEST = 2**31
"""No field counts more."""


@dataclass(frozen=True)
class Fields:
    """What a file says of one model, `model_type`; `where` is before names in messages."""

    given: Mapping[str, Any]
    model_type: str
    where: str = ""

    def whole(
        self, name: str, usual: int | None = None, *, least: int = 1, most: int = LARGEST
    ) -> int:
        """Return a whole number.

        Parameters
        ----------
        name : str
        usual : int, optional
            What it is where the file does not say it, or says null; None: it must.
        least, most : int
            Its range.
        """
        value = self.given.get(name)
        if value is None:
            if usual is None:
                self.refuse(name, "is missing", f"a config.json of {self.model_type} has it")
            return usual
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            what = f"{str(value)[:40]!r} is not a whole number from {least} to {most:,}"
            self.refuse(name, what, "give the one that the model was made with")
        return int(value)

    def maybe(self, name: str) -> int:
        """Return a whole number, 0 where the file does not say it or says null."""
        return self.whole(name, 0, least=0)

    def flag(self, name: str, usual: bool = False) -> bool:
        """Return a switch, as `usual` where the file does not say it."""
        value = self.given.get(name)
        if value is None:
            return usual
        if not isinstance(value, bool):
            self.refuse(name, f"{str(value)[:40]!r} is no switch", "give true or false")
        return bool(value)

    def share(self, name: str, usual: float) -> float:
        """Return a probability."""
        value = self.given.get(name)
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            self.refuse(name, f"{str(value)[:40]!r} is no share", "give a number from 0 to 1")
        return float(value)

    def items(self, name: str, kind: type, count: int | None = None) -> list[Any]:
        """Return the list `name` of a `kind`, of `count` items where that is said; [] for none."""
        value = self.given.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            self.refuse(name, "is no such list", f"list values of type {kind.__name__}")
        if count not in (None, len(value)):
            self.refuse(name, f"has {len(value)} items for {count} layers", "give one a layer")
        return value

    def part(self, name: str, model_type: str) -> Fields:
        """Return the fields of an object within, of another model."""
        value = self.given.get(name)
        if not isinstance(value, dict):
            self.refuse(name, "is missing" if value is None else "is no object", "give an object")
        return Fields(value, model_type, f"{self.where}{name}.")

    def refuse(self, name: str, problem: str, remedy: str) -> NoReturn:
        """Refuse the field `name`: what its `problem` is, and the `remedy`."""
        raise InputError(problem, field=f"{self.where}{name}", remedy=remedy)
