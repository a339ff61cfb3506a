"""Sizes as expressions of dimensions: what is taken is right for all values, by trying them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from tests.packing_cases import random_packing

GIVEN: dict[str, Any] = {"a": (0, 4), "b": [1, 3, 8], "c": (2, 2)}


def expression(rng: np.random.Generator, depth: int = 3) -> str:
    """Return a random expression, of which many fall somewhere, and some divide by 0."""
    if depth == 0 or rng.random() < 0.2:
        return str(rng.choice(["a", "b", "c", "1", "2", "7"]))
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    form = rng.choice(["{}+{}", "({}+{})", "{}*{}", "({})*({})", "({})//({})", "({}-{})",
                       "max({},{})", "min({},{})", "-({})*({})"])  # fmt: skip
    return str(form).format(left, right)


def values(dimensions: sp.Dimensions, text: str, **at: int) -> list[int]:
    """Return the values of an expression at all values of the dimensions."""
    ranges: dict[str, Sequence[int]] = {
        name: range(known[0], known[-1] + 1) if isinstance(GIVEN[name], tuple) else known
        for name, known in dimensions.values.items()
    }
    ranges |= {name: [value] for name, value in at.items()}
    return [
        eval(text, {"max": max, "min": min}, dict(zip(ranges, one, strict=True)))
        for one in itertools.product(*ranges.values())
    ]


@pytest.mark.parametrize("at", [{}, {"a": 3}, {"a": 4, "b": 3}])
def test_what_is_taken_grows_from_its_least_value_to_its_largest(at: dict[str, int]) -> None:
    rng, dimensions, taken = np.random.default_rng(5), sp.Dimensions(GIVEN), 0
    for _ in range(400):
        text = expression(rng)
        falls = any(sign in text for sign in ("-", "//"))  # perhaps; without these it does not
        try:
            ((low, high),) = dimensions.ends([text], at)
        except InputError:
            if falls:
                continue
            raise
        found = values(dimensions, text, **at)
        assert (low, high) == (min(found), max(found)), text
        taken += falls
    assert taken > 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a-b", "size: 'a-b' of buffer x falls, or may fall, where b grows; write a size that"),
        ("b*(2-a)", "may fall, where"),
        ("b//a", "may divide by 0"),
        ("b-3", "may be -2"),
        ("d", "there is no dimension d"),
        ("a**b", r"operators are \+ - \* //"),
        ("a.real", "a.real is more than sizes need; write integers"),
        ("__import__('os')", "is more than sizes need"),
        ("max(a)", "is more than sizes need"),
        ("1.5*a", "is more than sizes need"),
        ("a if b else c", "is more than sizes need"),
        ("(" * 300 + "a" + ")" * 300, "is no size"),
        ("a+" * 300 + "a", "is no size"),
        ("", "is no size"),
    ],
)
def test_what_is_no_size_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.Dimensions(GIVEN).sizes([text], ids=["x"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max": (1, 2)}, "'max' is no name of a dimension"),
        ({"for": (1, 2)}, "'for' is no name"),
        ({"a": (2, 1)}, r"dimensions.a: \[2, 1\] is empty"),
        ({"a": []}, "is empty"),
        ({"a": (1, 2, 3)}, r"\(1, 2, 3\) is no range"),
        ({"a": [-1]}, "negative"),
        ({"a": [1.5]}, "1.5 is no integer"),
    ],
)
def test_what_is_no_dimension_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.Dimensions(given)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ({"d": 1}, "dim.d: is no dimension; there are a, b, c"),
        ({"a": 5}, "dim.a: 5 is not among its values; give 0 to 4"),
        ({"b": 2}, "dim.b: 2 is not among its values; give one of 1, 3, 8"),
    ],
)
def test_values_that_a_dimension_does_not_take(at: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.Dimensions(GIVEN).sizes(["a"], at)


@pytest.mark.parametrize("seed", range(20))
def test_a_placement_of_the_largest_sizes_holds_for_all(seed: int) -> None:
    rng = np.random.default_rng([44, seed])
    features = ("alignment", "colocated", "in-place", "reserved", "gaps")
    chosen = [name for name in features if rng.random() < 0.4]
    dimensions = sp.Dimensions({"a": (1, 3), "b": [1, 4]})
    forms = ("{}", "{}*a", "a*b+{}", "(b+{})//4*4", "max({},2*b)")
    base = random_packing(rng, features=chosen)
    base = base.replace(gaps=[(gap.buffer, gap.start, gap.end) for gap in base.gaps])
    texts = [str(rng.choice(forms)).format(size) for size in base.size]
    whole = base.replace(size=dimensions.sizes(texts))
    result = sp.solve(whole, time_limit=5)
    assert result.solution is not None
    assert result.objective is not None
    for a, b in itertools.product(range(1, 4), (1, 4)):
        part = whole.replace(size=dimensions.sizes(texts, {"a": a, "b": b}))
        assert part.check(result.solution) == ()
        assert part.evaluate(result.solution) <= result.objective
    assert part.size.tolist() == whole.size.tolist()


def test_buckets_are_listed_values_and_the_largest_of_ranges() -> None:
    dimensions = sp.Dimensions({"batch": [4, 1], "seq": (1, 512)})
    assert list(dimensions.buckets()) == [{"batch": 1, "seq": 512}, {"batch": 4, "seq": 512}]
    assert dimensions.sizes(["4KiB", 3, "batch*seq"], {"batch": 1}) == [4096, 3, 512]
