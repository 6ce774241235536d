"""Settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import cast

import pytest

from memgas import InvalidConfigError, MemGASConfig

MAKE = cast("Callable[..., MemGASConfig]", MemGASConfig)  # takes any value, as Python does
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


@pytest.mark.parametrize("spec", fields(MemGASConfig), ids=lambda spec: spec.name)
def test_a_value_out_of_range_is_refused_by_name(spec: object) -> None:
    """Below, above, not a number, of another type: the message names the setting and the value."""
    name = getattr(spec, "name")  # noqa: B009 (dataclasses.Field is generic and untyped here)
    rule = getattr(spec, "metadata")  # noqa: B009
    bad: list[object] = [object(), float("nan"), "no such choice"]
    if rule["low"] is not None:
        bad.append(rule["low"] if rule["open_low"] else rule["low"] - 1)
    if rule["high"] is not None:
        bad.append(rule["high"] + 1)
    if not rule["optional"]:
        bad.append(None)

    for value in bad:
        with pytest.raises(InvalidConfigError, match=name):
            MAKE(**{name: value})


def test_a_whole_number_setting_takes_no_fraction_and_no_bool() -> None:
    """`n_seeds=1.5` and `n_seeds=True` are slips."""
    for value in (1.5, True):
        with pytest.raises(InvalidConfigError, match="n_seeds"):
            MAKE(n_seeds=value)


def test_paper_is_another_configuration() -> None:
    """The published code's choices are all taken, and none is out of range."""
    paper = MemGASConfig.paper()

    assert ("pooled_pairs", "truncate", "predict", "sum", "pagerank") == (
        paper.turn_units, paper.long_text, paper.accept, paper.session_score, paper.ranking
    )  # fmt: skip
    assert (30, 2, 5, 15, 0.1, 0.2, 0.0) == (
        paper.n_candidates, paper.n_components, paper.warmup_sessions, paper.n_seeds, paper.damping,
        paper.router_temperature, paper.lexical_weight,
    )  # fmt: skip


def test_every_setting_is_documented_as_it_is() -> None:
    """docs/settings.md has each setting with its present default, and no others."""
    documented = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE.read_text("utf-8"), re.MULTILINE))

    assert {spec.name: str(spec.default) for spec in fields(MemGASConfig)} == documented
