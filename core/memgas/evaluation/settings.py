"""Settings of a memory as text: `n_seeds=5,10,15`. Types, names and ranges are those of `MemGASConfig`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any, cast

from memgas.config import MemGASConfig
from memgas.errors import InvalidConfigError, InvalidInputError

Grid = Mapping[str, Sequence[object]]
"""Name of a setting to the values to try."""

PRESETS: Mapping[str, Grid] = {
    "paper-lambda": {"router_temperature": (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)},
    "paper-alpha": {"n_seeds": (5, 10, 15, 20, 25)},
}
"""The grids of the paper's appendix F."""

_TRUTH = {"true": True, "false": False}


def with_settings(config: MemGASConfig, changed: Mapping[str, object]) -> MemGASConfig:
    """Return a configuration with some settings changed.

    Raises
    ------
    InvalidConfigError
        There is no such setting, or the value is not one of its.
    """
    known = [spec.name for spec in fields(MemGASConfig)]
    for name in changed:
        if name not in known:
            raise InvalidConfigError(f"a setting must be one of {', '.join(known)}; got {name!r}")
    return replace(config, **cast("dict[str, Any]", changed))


def parse_grid(given: Sequence[str], presets: Sequence[str] = ()) -> dict[str, tuple[object, ...]]:
    """Read `name=value,value` texts, and grids known by a name.

    Parameters
    ----------
    given
        Such as `["n_seeds=5,10", "router=uniform"]`. `none` stands for None where a setting allows it.
    presets
        Names out of `PRESETS`.

    Raises
    ------
    InvalidInputError
        A text is not of this form, a setting or preset does not exist or is given twice, or a value is out of its range.
    """
    grid: dict[str, tuple[object, ...]] = {}
    wanted: list[tuple[str, tuple[object, ...]]] = []
    for preset in presets:
        if preset not in PRESETS:
            raise InvalidInputError(f"a preset must be one of {', '.join(PRESETS)}; got {preset!r}")
        wanted += [(name, tuple(values)) for name, values in PRESETS[preset].items()]
    for text in given:
        name, sign, values = text.partition("=")
        if not sign or not values.strip(" ,"):
            raise InvalidInputError(f"expected a setting and its values, such as n_seeds=5,10,15; got {text!r}")
        wanted.append((name.strip(), tuple(_typed(name.strip(), value) for value in values.split(","))))
    for name, found in wanted:
        if name in grid or len(set(found)) != len(found):
            raise InvalidInputError(f"expected each setting, and each of its values, once; got {name} again")
        for value in found:
            with_settings(MemGASConfig(), {name: value})
        grid[name] = found
    if not grid:
        raise InvalidInputError("expected at least one setting to try, such as n_seeds=5,10,15, or a preset; got none")
    return grid


def points_of(grid: Grid) -> list[dict[str, object]]:
    """Return every combination of the grid's values, the last setting the quickest to change."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def name_of(point: Mapping[str, object]) -> str:
    """Return a point's name in tables, such as `n_seeds=5 damping=0.1`."""
    return " ".join(f"{name}={value}" for name, value in point.items())


def _typed(name: str, text: str) -> object:
    """Return a value of the setting's type."""
    spec = next((spec for spec in fields(MemGASConfig) if spec.name == name), None)
    value = text.strip()
    if spec is None:
        with_settings(MemGASConfig(), {name: value})  # says which settings there are
        return value
    if spec.metadata["optional"] and value.lower() == "none":
        return None
    if isinstance(spec.default, str):
        return value
    try:
        if isinstance(spec.default, bool):
            return _TRUTH[value.lower()]
        return int(value) if isinstance(spec.default, int) else float(value)
    except (KeyError, ValueError):
        wanted = type(spec.default).__name__
        raise InvalidInputError(f"{name} must be of type {wanted}; got {value!r}") from None
