"""Every setting once: default, unit, range. Steps take them keyword-only, without a default.

A setting read when a memory is *added* is baked into what is stored; one read when it is *retrieved* may change at any
time: `replace(config, router_temperature=.1)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from memgas.errors import InvalidConfigError

When = Literal["add", "retrieve", "process"]


def _setting(
    default: object,
    doc: str,
    *,
    when: When,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
    choices: tuple[object, ...] | None = None,
    optional: bool = False,
) -> Any:  # noqa: ANN401 (a dataclass field stands for its value)
    """Declare a setting: its default, what it does, when it is read, and its range."""
    return field(default=default, metadata={
        "doc": doc, "when": when, "unit": unit, "low": low, "high": high, "open_low": open_low, "choices": choices,
        "optional": optional,
    })  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MemGASConfig:
    """All settings of a memory.

    Raises
    ------
    InvalidConfigError
        A value is of another type or out of its range.
    """

    # units
    turn_units: Literal["exchanges", "pooled_pairs"] = _setting(
        "exchanges", "a unit per exchange, or one per session that pools blind pairs (the published code)",
        when="add", choices=("exchanges", "pooled_pairs"))  # fmt: skip
    long_text: Literal["windows", "truncate"] = _setting(
        "windows", "what becomes of text longer than the embedder reads: windows, or cut (the published code)",
        when="add", choices=("windows", "truncate"))  # fmt: skip
    max_window_tokens: int = _setting(
        480,
        "longest text embedded at once; the embedder's own limit, if lower, wins",
        when="add",
        unit="tokens",
        low=16,
    )
    max_exchange_turns: int = _setting(8, "longest exchange; a longer run is cut", when="add", unit="turns", low=2)
    max_exchange_chars: int = _setting(
        4_000, "no turn joins an exchange that already has this much text", when="add", unit="characters", low=100
    )

    # sessions of a conversation
    max_session_turns: int = _setting(
        64, "a conversation's session is closed at the next exchange from this size on", when="add", unit="turns", low=2
    )
    max_idle_minutes: float = _setting(
        60.0, "a session is closed when this long passed since its last turn", when="add", unit="minutes", low=0,
        open_low=True)  # fmt: skip

    # digest
    n_keywords: int = _setting(8, "most keywords of a session", when="add", unit="keywords", low=1, high=50)
    n_summary_sentences: int = _setting(
        4, "most sentences of an extractive summary", when="add", unit="sentences", low=1, high=20
    )

    # association
    n_candidates: int | None = _setting(
        30, "most similar units that the mixture sees; None: all", when="add", unit="units", low=4, optional=True
    )
    n_components: int = _setting(2, "components of the mixture", when="add", low=2, high=10)
    accept: Literal["threshold", "predict", "all"] = _setting(
        "threshold", "accept from the decision threshold up, by hard prediction (the published code), or all candidates",
        when="add", choices=("threshold", "predict", "all"))  # fmt: skip
    max_associations: int | None = _setting(
        10, "most associations that a new unit starts, the strongest kept; None: no cap", when="add", unit="edges",
        low=1, optional=True)  # fmt: skip
    warmup_sessions: int = _setting(0, "the first sessions of a namespace start no associations", when="add", low=0)

    # similarity
    lexical_weight: float = _setting(
        1.0, "share of BM25 beside the cosine in a unit's similarity; 0: the cosine alone, raw", when="retrieve", low=0
    )
    bm25_k1: float = _setting(0.9, "how soon repeated terms saturate", when="retrieve", low=0)
    bm25_b: float = _setting(0.4, "how much long text is held against itself", when="retrieve", low=0, high=1)
    date_weight: float = _setting(
        1.0, "how much it counts that a session lies near a date that the query names", when="retrieve", low=0
    )
    date_decay_days: float = _setting(
        7.0, "how far outside a named date nearness falls to 1/e", when="retrieve", unit="days", low=0, open_low=True
    )

    # router
    router: Literal["entropy", "normalised_entropy", "uniform"] = _setting(
        "uniform", "weights before the priors: 1 / H, 1 / (floor + H / log n), or equal ones", when="retrieve",
        choices=("entropy", "normalised_entropy", "uniform"))  # fmt: skip
    router_temperature: float = _setting(
        1.0, "higher makes the weights more equal", when="retrieve", low=0, open_low=True
    )
    router_floor: float = _setting(
        1.0, "bounds the weight of a granularity whose entropy is nearly 0", when="retrieve", low=0, open_low=True
    )
    session_prior: float = _setting(1.0, "weight of the session's text before the router", when="retrieve", low=0)
    turn_prior: float = _setting(1.0, "weight of the turns before the router", when="retrieve", low=0)
    summary_prior: float = _setting(0.5, "weight of the summary before the router", when="retrieve", low=0)
    keyword_prior: float = _setting(0.25, "weight of the keywords before the router", when="retrieve", low=0)

    # ranking
    ranking: Literal["blend", "pagerank"] = _setting(
        "blend", "similarity plus what associations bring, or PageRank alone (the published code)", when="retrieve",
        choices=("blend", "pagerank"))  # fmt: skip
    association_weight: float = _setting(
        0.15, "in the blend, how much it counts what PageRank brought over associations", when="retrieve", low=0
    )
    n_seeds: int = _setting(15, "units that PageRank starts from", when="retrieve", unit="units", low=1)
    damping: float = _setting(0.1, "chance of following an edge", when="retrieve", low=0, high=0.99)
    weighted_edges: bool = _setting(True, "whether PageRank weighs edges by their similarity", when="retrieve")
    session_score: Literal["max", "sum"] = _setting(
        "max", "a session's score per granularity: its best unit's, or the sum of its units'", when="retrieve",
        choices=("max", "sum"))  # fmt: skip

    # evidence
    n_evidence: int = _setting(2, "most exchanges shown of a hit", when="retrieve", unit="exchanges", low=1, high=20)
    n_neighbours: int = _setting(1, "turns shown before and after each", when="retrieve", unit="turns", low=0, high=10)

    # process
    n_cached_namespaces: int = _setting(
        64, "namespaces held in memory, least recently used dropped first", when="process", unit="namespaces", low=1
    )
    n_threads: int = _setting(4, "threads of the async twins", when="process", unit="threads", low=1, high=128)

    def __post_init__(self) -> None:
        for spec in fields(self):
            _check(spec.name, getattr(self, spec.name), spec.default, spec.metadata)

    @classmethod
    def paper(cls) -> MemGASConfig:
        """Return the published code's choices with the text's router; for evaluation, in memory.

        One pooled turn vector a session, blind pairs, text cut at the embedder's limit, hard prediction over the 30 most
        similar units, no associations from the first five sessions, the cosine alone, 1 / H, the sum of four nodes.

        References
        ----------
        .. [1] "From Single to Multi-Granularity: Toward Long-Term Memory Association and Selection of Conversational
           Agents", ICLR 2026, arXiv 2505.19549.
        """
        return cls(
            turn_units="pooled_pairs", long_text="truncate", accept="predict", max_associations=None,
            warmup_sessions=5, lexical_weight=0.0, router="entropy", router_temperature=0.2, router_floor=1e-6,
            weighted_edges=False, session_score="sum", ranking="pagerank", date_weight=0.0, summary_prior=1.0,
            keyword_prior=1.0,
        )  # fmt: skip


def _check(name: str, value: object, default: object, rule: Mapping[str, Any]) -> None:
    """Raise unless a value fits the rule it was declared with."""
    if value is None and rule["optional"]:
        return
    if rule["choices"] is not None:
        if value not in rule["choices"]:
            raise InvalidConfigError(f"{name} must be one of {', '.join(map(repr, rule['choices']))}; got {value!r}")
        return
    wanted = type(default)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (isinstance(value, wanted) if wanted is not float else number) or (wanted is int and not number):
        raise InvalidConfigError(f"{name} must be of type {wanted.__name__}; got {value!r}")
    if wanted is bool:
        return
    assert isinstance(value, (int, float))
    low, high, open_low = rule["low"], rule["high"], rule["open_low"]
    below = low is not None and (value <= low if open_low else value < low)
    if not math.isfinite(value) or below or (high is not None and value > high):
        least = "" if low is None else f" {'above' if open_low else 'at least'} {low}"
        most = "" if high is None else f"{' and' if least else ''} at most {high}"
        raise InvalidConfigError(f"{name} must be{least}{most} {rule['unit']}".rstrip() + f"; got {value!r}")
