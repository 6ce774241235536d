"""Filters on session metadata: `{"topic": "garden", "year": {"$gte": 2023}}`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import cast

from memgas.checks import check_json
from memgas.errors import InvalidInputError
from memgas.types import JSON

Where = Mapping[str, JSON]

_ORDERED: dict[str, Callable[[float | str, float | str], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_EQUAL = {"$eq", "$ne"}


def check_where(where: object) -> Where | None:
    """Return a filter that can be used.

    Raises
    ------
    InvalidInputError
        It is not a mapping of text to JSON values or to operators among `$eq $ne $gt $gte $lt $lte`, or an ordering
        operator is given something that has no order.
    """
    if where is None:
        return None
    if not isinstance(where, Mapping):
        raise InvalidInputError(f"where must be a dict of metadata keys; got {type(where).__name__}")
    for key, condition in where.items():
        if not isinstance(key, str) or key.startswith("$"):
            raise InvalidInputError(f"the keys of where must be metadata keys; got {key!r}")
        if _is_operators(condition):
            _check_operators(key, condition)
    return cast("Where", check_json(where, "where"))


def _is_operators(condition: object) -> bool:
    return isinstance(condition, Mapping) and any(isinstance(name, str) and name.startswith("$") for name in condition)


def _check_operators(key: str, condition: Mapping[str, object]) -> None:
    for name, operand in condition.items():
        if name not in _ORDERED and name not in _EQUAL:
            known = " ".join([*sorted(_EQUAL), *_ORDERED])
            raise InvalidInputError(f"where[{key!r}] has the operator {name!r}; known are {known}")
        if name in _ORDERED and (isinstance(operand, bool) or not isinstance(operand, (int, float, str))):
            raise InvalidInputError(f"where[{key!r}][{name!r}] must be a number or text; got {operand!r}")


def matches(metadata: JSON, where: Where | None) -> bool:
    """Tell whether a session's metadata fits every condition. A missing key is None; unlike types have no order."""
    if not where:
        return True
    held = metadata if isinstance(metadata, Mapping) else {}
    return all(_fits(held.get(key), condition) for key, condition in where.items())


def _fits(value: JSON, condition: JSON) -> bool:
    if not _is_operators(condition):
        return _equal(value, condition)
    return all(_operate(name, value, operand) for name, operand in cast("Mapping[str, JSON]", condition).items())


def _operate(name: str, value: JSON, operand: JSON) -> bool:
    if name in _EQUAL:
        return _equal(value, operand) is (name == "$eq")
    if isinstance(value, str) and isinstance(operand, str):
        return _ORDERED[name](value, operand)
    if _is_number(value) and _is_number(operand):
        return _ORDERED[name](cast("float", value), cast("float", operand))
    return False


def _is_number(value: JSON) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _equal(value: JSON, other: JSON) -> bool:
    """Compare JSON values; True is not 1, at any depth."""
    if isinstance(value, bool) is not isinstance(other, bool):
        return False
    match value, other:
        case Mapping(), Mapping():
            return value.keys() == other.keys() and all(_equal(value[key], other[key]) for key in value)
        case list(), list():
            return len(value) == len(other) and all(map(_equal, value, other))
    return value == other
