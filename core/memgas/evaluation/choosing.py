"""One row out of several: a baseline's strongest form at each cut-off, the best candidate for each question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memgas.evaluation.metrics import measure_names
from memgas.evaluation.report import MethodResult

_CHOOSE_MRR_BY_K = 3


def best_of(name: str, tried: Sequence[MethodResult], ks: tuple[int, ...]) -> MethodResult:
    """Take every measure at k from the form with the best recall_all@k over all questions.

    No one form is that good at every k: it is what a user would get who knew the best form for their k. MRR, ranks and times are
    those of the best form by recall_all@3, to which ties go.

    Parameters
    ----------
    name
        Of the row.
    tried
        Results of the forms, on the same questions.
    ks
        Cut-offs of the measures.
    """
    base = max(tried, key=lambda form: _n_whole(form, _CHOOSE_MRR_BY_K))
    at = {k: max((base, *tried), key=lambda form: _n_whole(form, k)) for k in ks}
    columns = []
    for column, measure in enumerate(measure_names(ks)):
        _, _, k = measure.partition("@")
        columns.append((at[int(k)] if k else base).measures[:, column])
    tokens = np.stack([at[k].context_tokens[:, i] for i, k in enumerate(ks)], axis=1)
    chosen = {form.name: [k for k in ks if at[k] is form] for form in tried}
    used = {form: cut_offs for form, cut_offs in chosen.items() if cut_offs}
    said = ", ".join(f"{form} {' '.join(f'@{k}' for k in cut_offs)}" for form, cut_offs in used.items())
    return replace(
        base, name=name, measures=np.stack(columns, axis=1), context_tokens=tokens,
        chosen=base.name if set(used) <= {base.name} else said,
    )  # fmt: skip


def oracle_of(name: str, tried: Sequence[MethodResult]) -> MethodResult:
    """Take for each question and measure the best of the candidates; ranks and tokens of the one that needs the fewest sessions."""
    whole = np.array([[ranks.max() for ranks in form.ranks] for form in tried])
    best = whole.argmin(axis=0)
    return MethodResult(
        name,
        tuple(tried[i].ranks[question] for question, i in enumerate(best)),
        np.max([form.measures for form in tried], axis=0),
        sum(form.add_seconds for form in tried),
        sum(form.query_seconds for form in tried),
        context_tokens=np.array([tried[i].context_tokens[question] for question, i in enumerate(best)]),
    )


def _n_whole(form: MethodResult, k: int) -> int:
    """Count the questions whose gold sessions are all within the top `k`."""
    return sum(int(ranks.max() <= k) for ranks in form.ranks)
