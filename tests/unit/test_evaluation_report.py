"""From a data set to numbers and tables."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memgas.config import MemGASConfig
from memgas.errors import InvalidInputError
from memgas.evaluation import (
    CachedEmbedder,
    Dataset,
    Report,
    evaluate,
    memgas_variant,
    read_locomo,
    read_longmemeval,
)
from memgas.evaluation.methods import DEFAULT_METHODS, BestOf, Method, Ranking
from memgas.evaluation.views import Summaries, Views
from memgas.testing.hash_embedder import HashEmbedder

FIXTURES = Path(__file__).parent.parent / "fixtures"
LOCOMO = FIXTURES / "locomo_tiny.json"
LONGMEMEVAL = FIXTURES / "longmemeval_tiny.json"


class Fixed:
    """Puts the sessions in one order, whatever is asked."""

    def __init__(self, name: str, order: Sequence[int]) -> None:
        self.name = name
        self.order = np.array(order, dtype=np.intp)

    def rank(self, views: Views) -> Ranking:
        """Rank."""
        return Ranking([self.order] * len(views.dialogue.judged), 0.5, 0.25)


def fixed_report() -> Report:
    """Return a report of two methods whose values can be counted by hand; gold is listed in test_evaluation_datasets."""
    methods = [Fixed("plain", [0, 1, 2, 3, 4, 5]), Fixed("memgas", [3, 0, 2, 4, 5, 1])]
    return evaluate(read_locomo(LOCOMO), methods, embedder=HashEmbedder(), ks=(3, 5), summaries="from-file")


def test_as_dict_has_the_documented_shape() -> None:
    """Data set, number of questions, and for each method overall, by type and by number of gold sessions, in fractions."""
    found: Any = json.loads(json.dumps(fixed_report().as_dict()))
    assert (found["dataset"], found["n_questions"], found["n_left_out"], found["n_sessions"]) == ("locomo", 14, 1, 12)
    plain = found["methods"]["plain"]
    assert set(plain["by_type"]) == {"1", "2", "3", "4", "5"}
    assert set(plain["by_n_gold"]) == {"1", "2+"}
    assert plain["overall"]["n"] == 14
    assert plain["by_n_gold"]["2+"]["n"] == 4
    for measure in ("recall_all@3", "recall_any@3", "ndcg@3", "recall_all@5", "recall_any@5", "ndcg@5", "mrr"):
        assert 0 <= plain["overall"][measure] <= 1


def test_values_by_hand() -> None:
    """Sessions in their order: 4 of 14 questions have all gold in the first three, 7 have some."""
    plain: Any = fixed_report().as_dict()["methods"]
    overall = plain["plain"]["overall"]
    assert overall["recall_all@3"] == pytest.approx(4 / 14, abs=1e-6)
    assert overall["recall_any@3"] == pytest.approx(7 / 14, abs=1e-6)
    assert plain["plain"]["by_n_gold"]["2+"]["recall_all@3"] == 0.25
    assert plain["plain"]["by_type"]["3"]["mrr"] == pytest.approx(1 / 6, abs=1e-6)
    assert plain["plain"]["seconds"] == {"add": 1.0, "query": pytest.approx(0.5 / 14, abs=1e-6)}


def test_slices_cover_every_question_once() -> None:
    """The types are a partition, and so are the numbers of gold sessions; a mean of slices is the mean of all."""
    report = fixed_report()
    found: Any = report.as_dict()["methods"]
    for group in ("by_type", "by_n_gold"):
        assert sum(mask.astype(int) for key, mask in report.slices().items() if key[0] == group).tolist() == [1] * 14  # type: ignore[union-attr]
        slices = found["memgas"][group].values()
        weighted = sum(entry["n"] * entry["ndcg@3"] for entry in slices) / 14
        assert weighted == pytest.approx(found["memgas"]["overall"]["ndcg@3"], abs=1e-5)


def test_intervals_hold_their_mean() -> None:
    """Every interval is about its mean, and the same at every call."""
    report = fixed_report()
    found: Any = report.as_dict()
    for method in found["methods"].values():
        for measure, (low, high) in method["overall"]["intervals"].items():
            assert low <= method["overall"][measure] <= high
    assert report.as_dict() == found


def test_differences_are_paired() -> None:
    """MemGAS stands against every other method on the same questions, by slice."""
    report = fixed_report()
    found: Any = report.as_dict()
    mean, low, high = found["differences"]["overall"]["plain"]["recall_all@3"]
    values = found["methods"]
    assert mean == pytest.approx(
        values["memgas"]["overall"]["recall_all@3"] - values["plain"]["overall"]["recall_all@3"], abs=1e-5
    )
    assert low < mean < high
    assert set(found["differences"]) == {
        "overall",
        *(f"by_type {i}" for i in range(1, 6)),
        "by_n_gold 1",
        "by_n_gold 2+",
    }
    gap = report.differences("plain", ["mrr"])["memgas"]["mrr"]
    assert gap.mean == pytest.approx(values["plain"]["overall"]["mrr"] - values["memgas"]["overall"]["mrr"], abs=1e-5)


def test_unknown_names_are_refused() -> None:
    """A method or measure that the report does not have is named beside those it has."""
    with pytest.raises(InvalidInputError, match="plain, memgas; got 'bm25'"):
        fixed_report().method("bm25")
    with pytest.raises(InvalidInputError, match=r"recall_all@3.*got 'f1'"):
        fixed_report().differences("plain", ["f1"])


def test_text_shows_every_slice_and_fits_a_terminal() -> None:
    """Tables have every slice with its n, percent with one decimal, no line wider than 100 columns."""
    lines = fixed_report().text().splitlines()
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if line != line.rstrip()]
    for title in ("overall, n = 14", "type 1, n = 4", "gold sessions: 1, n = 10", "gold sessions: 2+, n = 4"):
        assert title in lines
    row = lines[lines.index("overall, n = 14") + 3].split()
    assert row[:3] == ["plain", "28.6", "85.7"]
    assert any("above the others" in line for line in lines)


def test_progress_reaches_its_total() -> None:
    """Progress is told before each step and ends at its total."""
    seen: list[tuple[str, int, int]] = []
    evaluate(
        read_locomo(LOCOMO), ["bm25", "zsum"], embedder=HashEmbedder(), summaries="from-file",
        progress=lambda *step: seen.append(step),
    )  # fmt: skip
    assert seen[0] == ("bm25-session", 0, 6)
    assert [step[1] for step in seen] == list(range(7))
    assert seen[-1] == ("done", 6, 6)


def test_texts_are_embedded_once_for_all_methods() -> None:
    """Two methods that look at the same exchanges cost what one does."""
    alone, both = CachedEmbedder(HashEmbedder()), CachedEmbedder(HashEmbedder())
    evaluate(read_locomo(LOCOMO), ["turn"], embedder=alone, summaries="from-file")
    evaluate(read_locomo(LOCOMO), ["turn", "turn-mean", "zsum", "rrf"], embedder=both, summaries="from-file")
    assert alone.n_embedded == both.n_embedded


@pytest.mark.parametrize(
    ("methods", "ks", "message"),
    [
        (["bm25", "bm25"], (3,), "each named once"),
        ([], (3,), "one or more methods"),
        (["bm25"], (0,), "at least 1"),
        (["bm25"], (), "at least 1"),
        (["nothing"], (3,), "got 'nothing'"),
    ],
)
def test_bad_arguments(methods: list[str], ks: tuple[int, ...], message: str) -> None:
    """What makes no sense is refused before anything is embedded."""
    embedder = HashEmbedder()
    with pytest.raises(InvalidInputError, match=message):
        evaluate(read_locomo(LOCOMO), methods, embedder=embedder, ks=ks)
    assert embedder.n_texts == 0


def test_data_set_without_evidence() -> None:
    """A data set in which no question has evidence cannot be judged by retrieval."""
    abstention = Dataset("longmemeval", read_longmemeval(LONGMEMEVAL).dialogues[3:])
    with pytest.raises(InvalidInputError, match="at least one question with evidence"):
        evaluate(abstention, ["bm25"], embedder=HashEmbedder())


@pytest.mark.parametrize("summaries", ["from-file", "extractive"])
def test_all_default_methods_on_locomo(summaries: Summaries) -> None:
    """Every method of the command's default runs on the official format, with the file's summaries and without."""
    report = evaluate(read_locomo(LOCOMO), embedder=HashEmbedder(), summaries=summaries)
    assert tuple(result.name for result in report.methods) == DEFAULT_METHODS
    for result in report.methods:
        assert result.measures.shape == (14, 13)
        assert all(np.isfinite(ranks).all() for ranks in result.ranks), result.name
    assert report.method("memgas").add_seconds > 0


def test_all_other_methods_on_longmemeval() -> None:
    """The remaining methods, and a variant of MemGAS, run on LongMemEval's format."""
    variant = memgas_variant("no-router", MemGASConfig(router="uniform"))
    methods: list[str | Method | BestOf] = ["hybrid", "turn-mean", "dense", "rrf", "memgas", variant]
    report = evaluate(read_longmemeval(LONGMEMEVAL), methods, embedder=HashEmbedder(), ks=(1, 3))
    assert [question.question_id for question in report.questions] == ["tiny_a", "tiny_b", "tiny_c"]
    assert report.method("memgas").measures[:, 1].mean() == 1.0


def test_memory_embeds_what_the_baselines_embed() -> None:
    """MemGAS looks at the same exchanges, sessions and summaries as the baselines: they cost nothing anew."""
    cached = CachedEmbedder(HashEmbedder())
    data = read_locomo(LOCOMO)
    evaluate(data, ["session", "turn", "summary", "keyword"], embedder=cached, summaries="from-file")
    before = cached.n_embedded
    evaluate(data, ["memgas"], embedder=cached, summaries="from-file")
    assert cached.n_embedded - before <= 5
