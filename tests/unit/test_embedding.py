"""Texts -> vectors: once each, few calls, long texts in windows, nothing that is not finite."""

from __future__ import annotations

import numpy as np
import pytest

from memgas.embedding import VectorTable
from memgas.models.calls import SafeEmbedder
from memgas.testing import HashEmbedder


def _table(inner: HashEmbedder, *, max_window_tokens: int = 480) -> VectorTable:
    return VectorTable(SafeEmbedder(inner, batch_size=32), max_window_tokens=max_window_tokens)


def test_each_text_once_in_one_call() -> None:
    """Repeated and known texts are not embedded again, and empty ones never; the rest goes in one call."""
    inner = HashEmbedder()
    table = _table(inner)
    table.embed(["tea", "house", "tea", ""])
    assert (inner.n_calls, inner.n_texts) == (1, 2)
    table.embed(["house", "", "tea"])
    assert inner.n_calls == 1
    assert np.array_equal(table["tea"].vector, HashEmbedder().embed_query("tea"))
    assert not table[""].vector.any()


def test_what_was_embedded_before() -> None:
    """A vector that is handed in is taken as it is."""
    inner = HashEmbedder()
    table = _table(inner)
    vector = np.eye(64, dtype=np.float32)[3]
    table.know("tea", vector, np.zeros((0, 64), np.float32))
    table.embed(["tea"])
    assert inner.n_calls == 0
    assert np.array_equal(table["tea"].vector, vector)


@pytest.mark.parametrize("limit", [None, 20])
def test_long_text(limit: int | None) -> None:
    """A long text has a vector a window, and their normalised mean; the lower of both limits counts."""
    inner = HashEmbedder(max_tokens=limit)
    table = _table(inner, max_window_tokens=40)
    text = " ".join(f"word{i}" for i in range(200))
    table.embed([text, "tea"])
    found = table[text]
    assert len(found.windows) > len(text) / 3 / (limit or 40)
    assert np.allclose(np.linalg.norm(found.windows, axis=1), 1, atol=1e-6)
    mean = found.windows.mean(axis=0)
    assert np.allclose(found.vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert len(table["tea"].windows) == 0
    assert found.vector.dtype == found.windows.dtype == np.float32


def test_the_published_codes_ways() -> None:
    """Truncated, a text is its start alone; pooled, it is the mean of its pieces; neither has windows."""
    table = _table(HashEmbedder(), max_window_tokens=16)
    long = " ".join(f"word{i}" for i in range(100))
    table.embed_truncated([long])
    table.embed_pooled("both", ["tea", "house"])
    start = table[long]
    assert len(start.windows) == len(table["both"].windows) == 0
    again = _table(HashEmbedder(), max_window_tokens=16)
    again.embed(["tea", "house", long])
    assert np.allclose(start.vector, again[long].windows[0])
    mean = again["tea"].vector + again["house"].vector
    assert np.allclose(table["both"].vector, mean / np.linalg.norm(mean), atol=1e-6)
