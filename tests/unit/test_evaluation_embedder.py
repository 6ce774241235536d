"""No text is embedded twice."""

from pathlib import Path

import numpy as np

from memgas.evaluation.cached_embedder import CachedEmbedder
from memgas.protocols import Embedder
from memgas.testing.hash_embedder import HashEmbedder


def test_is_an_embedder_like_the_one_it_wraps() -> None:
    """It has the protocol's attributes and gives the same vectors, duplicates and order kept."""
    inner = HashEmbedder(32, max_tokens=100, name="inner")
    cached = CachedEmbedder(inner)
    texts = ["a loom", "a kayak", "a loom"]
    assert isinstance(cached, Embedder)
    assert (cached.name, cached.n_dims, cached.max_tokens) == ("inner", 32, 100)
    assert cached.count_tokens("four words of text") == inner.count_tokens("four words of text")
    np.testing.assert_array_equal(cached.embed_documents(texts), HashEmbedder(32).embed_documents(texts))
    np.testing.assert_array_equal(cached.embed_query("a loom"), HashEmbedder(32).embed_query("a loom"))
    assert cached.embed_documents([]).shape == (0, 32)


def test_reads_each_text_once() -> None:
    """A text reaches the embedder once as a document and once as a query, whoever asks."""
    inner = HashEmbedder()
    cached = CachedEmbedder(inner)
    cached.embed_documents(["a", "b", "a"])
    cached.embed_documents(["b", "c"])
    assert (inner.n_texts, cached.n_embedded, cached.n_reused) == (3, 3, 1)
    cached.embed_query("a")
    cached.embed_queries(["a", "d"])
    assert inner.n_texts == 5


def test_caller_cannot_spoil_the_cache() -> None:
    """Writing into what came back does not change what comes next."""
    cached = CachedEmbedder(HashEmbedder())
    before = cached.embed_query("a").copy()
    cached.embed_query("a")[:] = 7
    cached.embed_documents(["a"])[:] = 7
    np.testing.assert_array_equal(cached.embed_query("a"), before)
    np.testing.assert_array_equal(cached.embed_documents(["a"])[0], before)


def test_keeps_vectors_on_disk(tmp_path: Path) -> None:
    """A second run with the same folder embeds nothing but the probe, and gets the same vectors to the bit."""
    texts = ["a loom", "ein Webstuhl", "织布机"]
    first = CachedEmbedder(HashEmbedder(), folder=tmp_path / "cache")
    kept = first.embed_documents(texts)
    first.close()
    inner = HashEmbedder()
    second = CachedEmbedder(inner, folder=tmp_path / "cache")
    np.testing.assert_array_equal(second.embed_documents(texts), kept)
    assert (inner.n_texts, second.n_embedded, second.n_reused) == (1, 0, 3)
    second.close()


def test_another_model_of_the_same_name_never_answers(tmp_path: Path) -> None:
    """The folder keeps models apart by what they say, not by what they are called."""
    first = CachedEmbedder(HashEmbedder(32), folder=tmp_path)
    first.embed_documents(["a loom"])
    first.close()
    second = CachedEmbedder(HashEmbedder(64), folder=tmp_path)
    assert second.embed_documents(["a loom"]).shape == (1, 64)
    assert second.n_embedded == 1
    second.close()


def test_tells_of_long_calls() -> None:
    """A call of many batches is reported batch by batch, up to all of it; a short one is not."""
    seen: list[tuple[str, int, int]] = []
    cached = CachedEmbedder(HashEmbedder(), progress=lambda *step: seen.append(step))
    cached.embed_documents(["short"])
    cached.embed_documents([f"text {i}" for i in range(150)])
    assert seen == [("embedding", 64, 150), ("embedding", 128, 150), ("embedding", 150, 150)]
