"""Finds duplicate keys in JSON objects; decoders silently use the last one.

Python's own decoder reports every pair, at a sixth of the time that reading takes.  For columns of
numbers this share is one half, but such files have few keys.  There, counting colons and braces
shows whether a duplicate is possible, and the decoder is used for confirmation only.
"""

from __future__ import annotations

import json

import numpy as np

from stagepack.errors import InputError

FEW, SPARSE = 2**11, 32
"""Colons and braces that are looked at one by one, and bytes of the document for each at least."""

COLON, QUOTE, OPEN, CLOSE = b':"{}'
BLANK = b" \t\r\n"


def require_single(data: bytes) -> None:
    """Refuse a document, decoded before, in which an object has a key twice, by the key.

    O(bytes): a sixth of what reading takes, of columns a twentieth.
    """
    if not _suspicious(data):
        return
    try:
        json.loads(data, object_pairs_hook=_single)
    except (ValueError, RecursionError):  # of what is read by other rules
        return


def _single(pairs: list[tuple[str, object]]) -> None:
    if len(pairs) > len(dict(pairs)):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError("is given twice", field=key, remedy="keep one of them")
            seen.add(key)


def _suspicious(data: bytes) -> bool:
    """Whether a key may come twice: among many, or by what is between braces."""
    letters = np.frombuffer(data, np.uint8)
    colons = np.flatnonzero(letters == COLON)
    before = letters[colons - 1]
    colons = colons[(before == QUOTE) | (before <= BLANK[0])]
    most = min(FEW, len(data) // SPARSE)
    if len(colons) > most:
        return True
    braces = np.flatnonzero((letters == OPEN) | (letters == CLOSE))
    if len(braces) > most:
        return True
    keys: list[set[bytes]] = [set()]
    for at in np.sort(np.concatenate([colons, braces])).tolist():
        if data[at] == OPEN:
            keys.append(set())
        elif data[at] == CLOSE:
            keys = keys[:-1] or [set()]
        else:
            key = _key(data, at)
            if key in keys[-1]:
                return True
            keys[-1].add(key)
    return False


def _key(data: bytes, colon: int) -> bytes:
    """Return the string before a colon, as it is written."""
    end = colon
    while data[end - 1] in BLANK:
        end -= 1
    begin = end - 1
    while True:
        begin = data.rfind(b'"', 0, begin)
        slashes = begin
        while slashes > 0 and data[slashes - 1] == ord("\\"):
            slashes -= 1
        if (begin - slashes) % 2 == 0:
            return data[begin + 1 : end - 1]
