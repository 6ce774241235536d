"""How long an evaluation will take, said before it begins."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memgas.evaluation.cached_embedder import CachedEmbedder
from memgas.evaluation.dialogues import Dataset
from memgas.evaluation.views import MAX_EXCHANGE_CHARS, MAX_EXCHANGE_TURNS, MAX_WINDOW_TOKENS
from memgas.units import exchange_unit, session_text, split_exchanges, split_windows

_N_TRIAL = 12


@dataclass(frozen=True, slots=True)
class Estimate:
    """What there is to embed, and how long that will take.

    Attributes
    ----------
    n_texts, n_chars
        Windows of exchanges and whole sessions that no cache holds; digests come on top.
    seconds
        At the rate of a trial.
    """

    n_texts: int
    n_chars: int
    seconds: float

    def text(self, embedder: str) -> str:
        """Return it in words."""
        if not self.n_texts:
            return (
                f"exchanges and sessions are in the cache of {embedder}: nothing to embed but what is left of digests"
            )
        return (
            f"{self.n_texts:,} texts ({self.n_chars / 1e6:.1f}M characters) to embed with {embedder}: "
            f"about {_duration(self.seconds)}, and the ranking on top"
        )


def estimate(datasets: Sequence[Dataset], embedder: CachedEmbedder) -> Estimate:
    """Measure the embedder on a dozen of the texts that it has not seen, and reckon up.

    Parameters
    ----------
    datasets
        What is to be evaluated.
    embedder
        What it knows already costs nothing; the trial's texts it keeps.
    """
    fresh = [text for text in dict.fromkeys(_texts(datasets, embedder)) if not embedder.knows(text)]
    n_chars = sum(map(len, fresh))
    if not fresh:
        return Estimate(0, 0, 0.0)
    step = max(1, len(fresh) // _N_TRIAL)
    trial = fresh[::step][:_N_TRIAL]
    embedder.embed_documents(trial[:1])  # loads the model
    started = time.perf_counter()
    embedder.embed_documents(trial[1:])
    seconds = time.perf_counter() - started
    rate = seconds / max(1, sum(map(len, trial[1:])))
    return Estimate(len(fresh), n_chars, rate * n_chars)


def _texts(datasets: Sequence[Dataset], embedder: CachedEmbedder) -> Iterator[str]:
    """Yield what the embedder will be given: exchanges and sessions, long ones in windows."""
    limit = embedder.max_tokens
    max_tokens = MAX_WINDOW_TOKENS if limit is None else min(limit, MAX_WINDOW_TOKENS)
    for dataset in datasets:
        for dialogue in dataset.dialogues:
            for session in dialogue.sessions if dialogue.judged else ():
                cut = split_exchanges(session.turns, max_turns=MAX_EXCHANGE_TURNS, max_chars=MAX_EXCHANGE_CHARS)
                for text in (session_text(session.turns), *(exchange_unit(part, "", "", 0, 0).text for part in cut)):
                    yield from split_windows(text, max_tokens=max_tokens, count_tokens=embedder.count_tokens)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.1f} h"
