"""Grids over the settings of a memory."""

from __future__ import annotations

from collections.abc import Sequence

from memgas.config import MemGASConfig
from memgas.evaluation.cached_embedder import CachedEmbedder, Progress
from memgas.evaluation.dialogues import Dataset
from memgas.evaluation.methods import Entry, memgas_variant
from memgas.evaluation.report import PROPOSED, Report
from memgas.evaluation.runner import evaluate_several
from memgas.evaluation.settings import Grid, name_of, points_of, with_settings
from memgas.evaluation.views import Summaries


def sweep(
    datasets: Sequence[Dataset],
    grid: Grid,
    *,
    base: MemGASConfig,
    embedder: CachedEmbedder,
    ks: Sequence[int] = (3, 5, 10),
    summaries: Summaries = "extractive",
    progress: Progress | None = None,
) -> Report:
    """Measure every point of a grid; the row `memgas` is the base, to which all are compared.

    Each text is embedded once, and a dialogue is added anew only for points that differ in a setting of adding.

    Parameters
    ----------
    datasets
        One, or several to be pooled.
    grid
        Of settings, from `parse_grid`.
    base
        What the other settings are.
    embedder, ks, summaries, progress
        As of `evaluate`.
    """
    rows: list[str | Entry] = [memgas_variant(PROPOSED, base)]
    rows += [memgas_variant(name_of(point), with_settings(base, point)) for point in points_of(grid)]
    return evaluate_several(datasets, rows, embedder=embedder, ks=ks, summaries=summaries, progress=progress)
