"""Measures how well sessions come back: data sets in their official formats, baselines, measures, reports.

>>> from memgas.evaluation import evaluate, read_locomo
>>> report = evaluate(read_locomo("locomo10.json"), ["bm25", "memgas"], embedder=embedder)  # doctest: +SKIP
>>> report.text()  # doctest: +SKIP
"""

from memgas.evaluation.cached_embedder import CachedEmbedder
from memgas.evaluation.datasets import (
    READERS,
    Dataset,
    Dialogue,
    DialogueSession,
    Question,
    read_dataset,
    read_files,
    read_locomo,
    read_long_mt_bench,
    read_longmemeval,
    read_madial,
    read_own,
    sample_questions,
)
from memgas.evaluation.estimating import estimate
from memgas.evaluation.methods import (
    ABLATIONS,
    DEFAULT_METHODS,
    GROUPS,
    METHODS,
    Baseline,
    BestOf,
    Method,
    OracleOf,
    Ranking,
    memgas_variant,
    methods_named,
)
from memgas.evaluation.pages import html, markdown, write_report
from memgas.evaluation.pooling import pool
from memgas.evaluation.report import MethodResult, Report
from memgas.evaluation.runner import evaluate, evaluate_several
from memgas.evaluation.settings import PRESETS, parse_grid, points_of
from memgas.evaluation.sweeping import sweep
from memgas.evaluation.views import Views

__all__ = [
    "ABLATIONS",
    "DEFAULT_METHODS",
    "GROUPS",
    "METHODS",
    "PRESETS",
    "READERS",
    "Baseline",
    "BestOf",
    "CachedEmbedder",
    "Dataset",
    "Dialogue",
    "DialogueSession",
    "Method",
    "MethodResult",
    "OracleOf",
    "Question",
    "Ranking",
    "Report",
    "Views",
    "estimate",
    "evaluate",
    "evaluate_several",
    "html",
    "markdown",
    "memgas_variant",
    "methods_named",
    "parse_grid",
    "points_of",
    "pool",
    "read_dataset",
    "read_files",
    "read_locomo",
    "read_long_mt_bench",
    "read_longmemeval",
    "read_madial",
    "read_own",
    "sample_questions",
    "sweep",
    "write_report",
]
