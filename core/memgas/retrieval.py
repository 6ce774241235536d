"""What `retrieve` returns: hits and how they came about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from memgas.context import render_context
from memgas.explaining import Explanation
from memgas.types import Hit, Trace


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The hits of one query, best first, and the trace of how they were found.

    Attributes
    ----------
    query
        As it was asked.
    hits
        At most `top_k`.
    trace
        Router, seeds, paths, filter, times, and what degraded.
    count_tokens
        What `context` counts its budget with.
    """

    query: str
    hits: tuple[Hit, ...]
    trace: Trace
    count_tokens: Callable[[str], int] = field(repr=False, compare=False)

    def context(self, max_tokens: int = 1_000) -> str:
        """Return text for the answering model: dated evidence in rank order, then summaries, within a budget.

        Parameters
        ----------
        max_tokens
            The budget, as the embedder estimates tokens.

        Raises
        ------
        InvalidInputError
            The budget is below 1.
        """
        return render_context(self.hits, max_tokens=max_tokens, count_tokens=self.count_tokens)

    def explain(self) -> Explanation:
        """Tell why these hits came, in this order: `print` it, or take `as_dict()` or `as_json()`."""
        return Explanation(self.query, self.hits, self.trace)
