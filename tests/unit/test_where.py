"""Filters on metadata: what fits, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memgas.errors import InvalidInputError
from memgas.types import JSON
from memgas.where import Where, check_where, matches

HELD: JSON = {"topic": "garden", "year": 2023, "done": True, "tags": ["a", "b"], "deep": {"x": [1]}, "none": None}


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        (None, True),
        ({}, True),
        ({"topic": "garden"}, True),
        ({"topic": "Garden"}, False),
        ({"topic": "garden", "year": 2023}, True),
        ({"topic": "garden", "year": 2024}, False),
        ({"year": 2023.0}, True),
        ({"done": 1}, False),
        ({"done": True}, True),
        ({"tags": ["a", "b"]}, True),
        ({"tags": ("a", "b")}, True),
        ({"tags": "a"}, False),
        ({"deep": {"x": [1]}}, True),
        ({"deep": {"x": [True]}}, False),
        ({"missing": None}, True),
        ({"none": None}, True),
        ({"missing": "x"}, False),
        ({"missing": {"$ne": "x"}}, True),
        ({"missing": {"$gt": 0}}, False),
        ({"year": {"$gte": 2023, "$lt": 2024}}, True),
        ({"year": {"$gt": 2023}}, False),
        ({"year": {"$lte": 2023}}, True),
        ({"year": {"$eq": 2023}}, True),
        ({"year": {"$ne": 2023}}, False),
        ({"year": {"$gt": "2000"}}, False),
        ({"done": {"$gte": 0}}, False),
        ({"topic": {"$gt": "apple"}}, True),
        ({"year": {}}, False),
    ],
)
def test_matches(where: Where | None, fits: bool) -> None:
    """Equal as JSON, True never 1; order among numbers and among texts; a missing key is None and has no order."""
    assert matches(HELD, check_where(where)) is fits


def test_metadata_without_keys() -> None:
    """Metadata that is no dict has no keys."""
    assert not matches(["topic"], {"topic": "garden"})
    assert matches("topic", {"topic": None})


@pytest.mark.parametrize(
    "where",
    [
        "topic",
        [("topic", "garden")],
        {1: "x"},
        {"$and": []},
        {"year": {"$in": [1]}},
        {"year": {"$gt": 1, "x": 2}},
        {"year": {"$gt": None}},
        {"year": {"$gt": True}},
        {"year": {"$lt": [1]}},
        {"year": {"$lt": float("nan")}},
        {"at": datetime(2024, 1, 1, tzinfo=UTC)},
        {"at": {"$eq": object()}},
        {"x": {1, 2}},
    ],
)
def test_anything_else_is_refused(where: object) -> None:
    """An unknown operator, an operand without order, or what JSON cannot hold is an error, never an empty result."""
    with pytest.raises(InvalidInputError):
        check_where(where)
