"""Grids over the settings of a memory."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from memgas.config import MemGASConfig
from memgas.errors import InvalidConfigError, InvalidInputError
from memgas.evaluation import CachedEmbedder, evaluate, html, memgas_variant, read_locomo, sweep
from memgas.evaluation.settings import parse_grid, points_of, with_settings
from memgas.testing.hash_embedder import HashEmbedder

LOCOMO = read_locomo(Path(__file__).parent.parent / "fixtures" / "locomo_tiny.json")


def test_values_have_the_type_of_their_setting() -> None:
    """Numbers, names, truth values and none, as the settings are declared."""
    grid = parse_grid(
        ["n_seeds=5, 10", "damping=.5", "router=uniform,entropy", "weighted_edges=true,False", "n_candidates=none,8"]
    )
    assert grid == {
        "n_seeds": (5, 10), "damping": (0.5,), "router": ("uniform", "entropy"), "weighted_edges": (True, False),
        "n_candidates": (None, 8),
    }  # fmt: skip
    assert isinstance(grid["damping"][0], float)


def test_every_setting_can_be_swept() -> None:
    """Any field of the configuration, at its default, is understood as text."""
    for spec in fields(MemGASConfig):
        assert parse_grid([f"{spec.name}={spec.default}"]) == {spec.name: (spec.default,)}


def test_presets_are_the_grids_of_the_paper() -> None:
    """λ in six steps, α in five; a preset goes with other settings."""
    grid = parse_grid(["damping=0.1"], ["paper-lambda", "paper-alpha"])
    assert grid["router_temperature"] == (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    assert grid["n_seeds"] == (5, 10, 15, 20, 25)
    assert len(points_of(grid)) == 30


@pytest.mark.parametrize(
    ("given", "presets", "message"),
    [
        (["n_seeds"], [], "n_seeds=5,10,15; got 'n_seeds'"),
        (["n_seeds="], [], "got 'n_seeds='"),
        (["seeds=5"], [], "a setting must be one of .*got 'seeds'"),
        (["n_seeds=many"], [], "of type int; got 'many'"),
        (["n_seeds=0"], [], "at least 1"),
        (["router=best"], [], "router must be one of"),
        (["weighted_edges=1"], [], "of type bool"),
        (["n_seeds=5,5"], [], "once; got n_seeds again"),
        (["n_seeds=5", "n_seeds=6"], [], "once; got n_seeds again"),
        (["n_seeds=5"], ["paper-alpha"], "once; got n_seeds again"),
        ([], ["paper-beta"], "a preset must be one of paper-lambda, paper-alpha; got 'paper-beta'"),
        ([], [], "at least one setting"),
    ],
)
def test_bad_grids(given: list[str], presets: list[str], message: str) -> None:
    """What is no setting, no value of it, or given twice is told before anything is embedded."""
    with pytest.raises(InvalidInputError, match=message):
        parse_grid(given, presets)


def test_unknown_settings_are_refused() -> None:
    """A name that is no setting is told beside those that are."""
    with pytest.raises(InvalidConfigError, match=r"n_seeds.*got 'alpha'"):
        with_settings(MemGASConfig(), {"alpha": 15})


def test_a_point_of_a_sweep_is_the_memory_under_its_settings() -> None:
    """Each point ranks as a memory made for it alone; the base is the row `memgas`; texts are embedded once."""
    grid = parse_grid(["lexical_weight=0.2,3", "bm25_k1=0.5", "n_candidates=8"])
    embedder = CachedEmbedder(HashEmbedder())
    report = sweep([LOCOMO], grid, base=MemGASConfig(), embedder=embedder, summaries="from-file")
    once = CachedEmbedder(HashEmbedder())
    base = evaluate(LOCOMO, ["memgas"], embedder=once, summaries="from-file")
    assert embedder.n_embedded == once.n_embedded
    assert [row.name for row in report.methods] == [
        "memgas", "lexical_weight=0.2 bm25_k1=0.5 n_candidates=8", "lexical_weight=3.0 bm25_k1=0.5 n_candidates=8",
    ]  # fmt: skip
    np.testing.assert_array_equal(report.methods[0].measures, base.methods[0].measures)
    for row, weight in zip(report.methods[1:], (0.2, 3.0), strict=True):
        alone = memgas_variant("alone", MemGASConfig(lexical_weight=weight, bm25_k1=0.5, n_candidates=8))
        made = evaluate(LOCOMO, [alone], embedder=HashEmbedder(), summaries="from-file")
        np.testing.assert_array_equal(row.measures, made.methods[0].measures)


def test_a_sweep_of_one_setting_is_drawn_as_a_curve() -> None:
    """The page has one line a cut-off over the setting's values."""
    report = sweep([LOCOMO], parse_grid(["n_seeds=1,5"]), base=MemGASConfig(), embedder=CachedEmbedder(HashEmbedder()))
    page = html(report, curve="n_seeds")
    assert "recall_all by n_seeds" in page
    assert page.count("<polyline") == 3
