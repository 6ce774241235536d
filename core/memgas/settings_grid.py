"""The grid on which a setting is changed when it is asked what would bring a session in."""

from __future__ import annotations

from memgas.config import MemGASConfig

Value = bool | int | float | str

GRID: dict[str, tuple[Value, ...]] = {
    "lexical_weight": (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0),
    "bm25_k1": (0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 2.0, 3.0),
    "bm25_b": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    "date_weight": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
    "date_decay_days": (1.0, 3.0, 7.0, 14.0, 30.0, 90.0, 365.0),
    "router": ("normalised_entropy", "entropy", "uniform"),
    "router_temperature": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    "router_floor": (0.01, 0.1, 0.3, 1.0, 3.0),
    "session_prior": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
    "turn_prior": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
    "summary_prior": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
    "keyword_prior": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
    "ranking": ("blend", "pagerank"),
    "association_weight": (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0),
    "n_seeds": (1, 2, 5, 10, 15, 20, 30, 50, 100),
    "damping": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85),
    "weighted_edges": (True, False),
    "session_score": ("max", "sum"),
}
"""Every setting that ranks, with the values that are tried."""

MIN_SCORE_STEP = 0.01
"""`min_score` is lowered in these steps."""


def nearest_first(name: str, config: MemGASConfig) -> list[Value]:
    """Return a setting's other values on the grid, in the order in which they are tried: the smallest change first.

    Numbers by how many steps of the grid they are away from the present value, up or down, the lower first where two are
    equally far; names in the order of the grid.
    """
    now: Value = getattr(config, name)
    others = [value for value in GRID[name] if value != now]
    if isinstance(now, (bool, str)):
        return others
    numbers: list[int | float] = [value for value in others if not isinstance(value, str)]
    above = [value for value in numbers if value > now]
    below = [value for value in reversed(numbers) if value < now]
    steps: dict[Value, int] = {value: step for side in (below, above) for step, value in enumerate(side)}
    return [*sorted(numbers, key=lambda value: (steps[value], value))]
