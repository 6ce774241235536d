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
    read_locomo,
    read_long_mt_bench,
    read_longmemeval,
    read_madial,
    read_own,
    sample_questions,
)
from memgas.evaluation.methods import (
    DEFAULT_METHODS,
    METHODS,
    Baseline,
    BestOf,
    Method,
    Ranking,
    memgas_variant,
    methods_named,
)
from memgas.evaluation.report import MethodResult, Report
from memgas.evaluation.runner import evaluate
from memgas.evaluation.views import Views

__all__ = [
    "DEFAULT_METHODS",
    "METHODS",
    "READERS",
    "Baseline",
    "BestOf",
    "CachedEmbedder",
    "Dataset",
    "Dialogue",
    "DialogueSession",
    "Method",
    "MethodResult",
    "Question",
    "Ranking",
    "Report",
    "Views",
    "evaluate",
    "memgas_variant",
    "methods_named",
    "read_dataset",
    "read_locomo",
    "read_long_mt_bench",
    "read_longmemeval",
    "read_madial",
    "read_own",
    "sample_questions",
]
