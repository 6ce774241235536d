"""Embedders from a hub, with packages made up for the test: the real ones would download models."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas.errors import MissingExtraError
from memgas.models import load_embedder
from memgas.models.fastembed import FastEmbedEmbedder
from memgas.models.sentence_transformers import SentenceTransformersEmbedder

LOADED: list[tuple[str, object]] = []


def vector_of(text: str, prefix: str) -> list[float]:
    return [float(len(prefix) + len(text)), float(text.count("a") + 1), 1.0]


class FakeTokenizer:
    """Words are tokens."""

    def tokenize(self, text: str) -> list[str]:
        """Cut at white space."""
        return text.split()


class FakeSentenceTransformer:
    """Reads 12 tokens, of which two are its frame."""

    max_seq_length = 12
    tokenizer = FakeTokenizer()

    def __init__(self, name: str, device: str | None) -> None:
        LOADED.append((name, device))

    def encode_document(
        self, sentences: list[str], batch_size: int = 32, normalize_embeddings: bool = False, *, show_progress_bar: bool
    ) -> NDArray[np.float32]:
        """Embed without a prefix."""
        assert not show_progress_bar
        vectors = np.array([vector_of(text, "") for text in sentences], dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalize_embeddings else vectors

    def encode_query(self, sentences: list[str], *, show_progress_bar: bool) -> NDArray[np.float32]:
        """Embed with a prefix."""
        assert not show_progress_bar
        return np.array([vector_of(text, "query: ") for text in sentences], dtype=np.float32)


class FakeTextEmbedding:
    """As FastEmbed's: results come one by one."""

    embedding_size = 3

    def __init__(self, name: str) -> None:
        LOADED.append((name, None))

    def passage_embed(self, texts: Iterable[str], batch_size: int) -> Iterator[NDArray[np.float32]]:
        """Embed without a prefix."""
        yield from (np.array(vector_of(text, ""), dtype=np.float32) for text in texts)

    def query_embed(self, query: list[str]) -> Iterator[NDArray[np.float32]]:
        """Embed with a prefix."""
        yield from (np.array(vector_of(text, "query: "), dtype=np.float32) for text in query)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install both packages for the length of a test."""
    LOADED.clear()
    for name, attribute, value in (
        ("sentence_transformers", "SentenceTransformer", FakeSentenceTransformer),
        ("fastembed", "TextEmbedding", FakeTextEmbedding),
    ):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        setattr(module, attribute, value)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sentence-transformers:facebook/contriever", SentenceTransformersEmbedder),
        ("fastembed:BAAI/bge-small-en-v1.5", FastEmbedEmbedder),
    ],
)
def test_a_hub_model_by_its_name(name: str, kind: type) -> None:
    """`family:model` is understood wherever an embedder is named; nothing is loaded before the first text."""
    embedder = load_embedder(name)
    assert isinstance(embedder, kind)
    assert embedder.name == name.partition(":")[2]
    assert LOADED == []
    assert embedder.n_dims == 3
    assert embedder.embed_documents(["a kayak"]).shape == (1, 3)
    assert [loaded for loaded, _ in LOADED] == [embedder.name]


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("embedder", ["sentence-transformers:m", "fastembed:m"])
def test_queries_and_documents_take_their_own_way(embedder: str) -> None:
    """A question is embedded as a question, a document normalised; no texts give no rows."""
    model = load_embedder(embedder)
    document, query = model.embed_documents(["kayak"])[0], model.embed_query("kayak")
    np.testing.assert_allclose(np.linalg.norm(document), 1.0, rtol=1e-6)
    np.testing.assert_allclose(query, vector_of("kayak", "query: "))
    assert model.embed_documents([]).shape == (0, 3)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("family", ["sentence-transformers", "fastembed"])
def test_long_text_is_read_to_its_end(family: str) -> None:
    """What is longer than the model reads becomes the mean of windows, each within the limit: its end counts."""
    model = FastEmbedEmbedder("m", max_tokens=12) if family == "fastembed" else SentenceTransformersEmbedder("m")
    text = "loom " * 60
    limit = model.max_tokens
    assert limit == 10
    assert model.count_tokens(text) > limit
    changed = model.embed_documents([text, text + "banana banana banana " * 5])
    assert not np.allclose(changed[0], changed[1])
    np.testing.assert_allclose(np.linalg.norm(changed, axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "module"), [("sentence-transformers:m", "sentence_transformers"), ("fastembed:m", "fastembed")]
)
def test_a_missing_package_is_told_with_its_pip_line(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, an ImportError says how to get it."""
    monkeypatch.setattr("memgas.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=rf'{module}.*pip install "memgas\[hub\]"'):
        load_embedder(name)
