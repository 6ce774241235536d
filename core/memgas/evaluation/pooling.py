"""Several reports as one: the questions of all data sets together, each counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memgas.errors import InvalidInputError
from memgas.evaluation.report import MethodResult, Report


def pool(reports: Sequence[Report]) -> Report:
    """Put the questions of several reports into one, which has a slice for each data set.

    Parameters
    ----------
    reports
        Of the same methods and cut-offs, by one embedder.

    Raises
    ------
    InvalidInputError
        There is none, two are of one data set, or they differ in methods, cut-offs or embedder.
    """
    if not reports:
        raise InvalidInputError("expected at least one report to pool; got none")
    first = reports[0]
    names = [report.dataset for report in reports]
    kinds = {(report.ks, report.embedder, tuple(row.name for row in report.methods)) for report in reports}
    if len(kinds) > 1 or len(set(names)) < len(names):
        raise InvalidInputError(
            f"expected reports of different data sets by the same methods, cut-offs and embedder; got {', '.join(names)}"
        )
    questions = [replace(question, type=report.dataset) for report in reports for question in report.questions]
    weights = [len(report.questions) for report in reports]
    return Report(
        dataset=" + ".join(names),
        embedder=first.embedder,
        summaries=", ".join(dict.fromkeys(report.summaries for report in reports)),
        ks=first.ks,
        questions=tuple(questions),
        methods=tuple(_joined([report.methods[i] for report in reports], names) for i in range(len(first.methods))),
        n_dialogues=sum(report.n_dialogues for report in reports),
        n_sessions=sum(report.n_sessions for report in reports),
        n_left_out=sum(report.n_left_out for report in reports),
        history_tokens=float(np.average([report.history_tokens for report in reports], weights=weights)),
        embedding=reports[-1].embedding,  # one embedder counts on from report to report
    )


def _joined(parts: Sequence[MethodResult], datasets: Sequence[str]) -> MethodResult:
    chosen = [f"{name}: {part.chosen}" for name, part in zip(datasets, parts, strict=True) if part.chosen]
    return MethodResult(
        parts[0].name,
        tuple(ranks for part in parts for ranks in part.ranks),
        np.vstack([part.measures for part in parts]),
        sum(part.add_seconds for part in parts),
        sum(part.query_seconds for part in parts),
        context_tokens=np.vstack([part.context_tokens for part in parts]),
        chosen="; ".join(chosen),
    )
