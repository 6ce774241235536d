"""A store knows its embedder again, and how alike unrelated text is to it."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import MemGAS, MemGASConfig, Turn
from memgas.errors import EmbedderError, StoreMismatchError
from memgas.fingerprint import PROBE, QUESTIONS, STRANGERS, Fingerprint, check_probe, check_width, take_fingerprint
from memgas.models.calls import SafeEmbedder
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder


class Zeros(HashEmbedder):
    """Finds nothing in any text."""

    def _embed(self, text: str) -> NDArray[np.float64]:
        return np.zeros(self.n_dims)


class Reversed(HashEmbedder):
    """Another model of the same width."""

    def _embed(self, text: str) -> NDArray[np.float64]:
        return super()._embed(text)[::-1]


class Down(HashEmbedder):
    """Is out of reach."""

    def _embed(self, text: str) -> NDArray[np.float64]:
        raise ConnectionError("no route")


def test_what_is_measured() -> None:
    """The fingerprint is the probe's vector, and mean and spread of the cosines between questions and strange texts."""
    embedder = SafeEmbedder(HashEmbedder(), batch_size=32)
    taken = take_fingerprint(embedder)
    cosines = np.array([embedder.embed_query(q) for q in QUESTIONS]) @ embedder.embed_documents(STRANGERS).T
    assert taken.n_dims == len(taken.probe) == 64
    assert np.allclose(taken.probe, embedder.embed_documents([PROBE])[0], atol=1e-6)
    assert taken.background_mean == pytest.approx(float(cosines.mean()), abs=1e-6)
    assert taken.background_spread == pytest.approx(float(cosines.std()), abs=1e-6)


def test_json_round_trip() -> None:
    """It survives JSON; what is no fingerprint is none."""
    taken = take_fingerprint(SafeEmbedder(HashEmbedder(), batch_size=32))
    assert Fingerprint.from_json(json.loads(json.dumps(taken.to_json()))) == taken
    assert Fingerprint.from_json({}) is None
    assert Fingerprint.from_json({"embedder": "x"}) is None


def test_another_embedder_is_refused() -> None:
    """Another width, or another vector for the same sentence, is refused with both names; another name alone is not."""
    taken = take_fingerprint(SafeEmbedder(HashEmbedder(name="mine"), batch_size=32))
    with pytest.raises(StoreMismatchError, match=r"mine.*64.*yours.*32"):
        check_width(taken, HashEmbedder(32, name="yours"))
    check_width(taken, HashEmbedder(64, name="yours"))
    check_probe(taken, taken.probe, "yours")
    with pytest.raises(StoreMismatchError, match=r"mine.*yours"):
        check_probe(taken, taken.probe[::-1], "yours")


def test_an_embedder_of_zeros_is_known_again() -> None:
    """An embedder that gives the probe no vector at all is the same the next time, and another one is not it."""
    taken = take_fingerprint(SafeEmbedder(Zeros(), batch_size=32))
    check_probe(taken, np.zeros(64, np.float32), "zeros")
    with pytest.raises(StoreMismatchError):
        check_probe(taken, np.eye(64, dtype=np.float32)[0], "other")


def test_a_store_refuses_at_once() -> None:
    """A store that knows its embedder refuses another one when it is opened, and stays open for the right one."""
    store = InMemoryStore()
    with MemGAS(store=store, embedder=HashEmbedder()) as memory:
        memory.add([Turn("user", "tea")], namespace="n")
        for other in (HashEmbedder(32), Reversed()):
            with pytest.raises(StoreMismatchError):
                MemGAS(store=store, embedder=other)
        with MemGAS(store=store, embedder=HashEmbedder(name="alias")) as second:
            assert second.retrieve("tea", namespace="n").hits


def test_a_new_store_that_is_open_takes_one_width() -> None:
    """Before anything was written, a second embedder of another width is refused as well."""
    store = InMemoryStore()
    with MemGAS(store=store, embedder=HashEmbedder()) as memory:
        with pytest.raises(StoreMismatchError, match=r"64.*32"):
            MemGAS(store=store, embedder=HashEmbedder(32))
        memory.add([Turn("user", "tea")], namespace="n")


def test_two_new_handles_of_unlike_embedders() -> None:
    """Of two handles opened before the first write, the one whose embedder came second is refused when it writes."""
    store = InMemoryStore()
    with MemGAS(store=store, embedder=HashEmbedder()) as first, MemGAS(store=store, embedder=Reversed()) as second:
        first.add([Turn("user", "tea")], namespace="n")
        with pytest.raises(StoreMismatchError):
            second.add([Turn("user", "coffee")], namespace="n")
        assert first.stats("n").n_sessions == 1


def test_an_embedder_out_of_reach() -> None:
    """What needs no embedder works while it is down: opening, reading, listing; what needs it says so."""
    store = InMemoryStore()
    with MemGAS(store=store, embedder=HashEmbedder()) as memory:
        memory.add([Turn("user", "tea")], namespace="n", session_id="s")
        with MemGAS(store=store, embedder=Down()) as second:
            assert second.get("s", namespace="n").turns[0].text == "tea"
            assert len(second.list_sessions(namespace="n")) == 1
            with pytest.raises(EmbedderError, match="no route"):
                second.retrieve("tea", namespace="n")
            with pytest.raises(EmbedderError):
                second.add([Turn("user", "more")], namespace="n")
            second.delete_session("s", namespace="n")
        assert memory.stats("n").n_sessions == 0


def test_other_settings_warn() -> None:
    """A setting that is baked into what is stored, changed, warns with its name; one read at retrieval does not."""
    store = InMemoryStore()
    with MemGAS(store=store, embedder=HashEmbedder()) as memory:
        memory.add([Turn("user", "tea")], namespace="n")
        with (
            pytest.warns(UserWarning, match="max_associations 10 -> 3"),
            MemGAS(store=store, embedder=HashEmbedder(), config=MemGASConfig(max_associations=3)),
        ):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            MemGAS(store=store, embedder=HashEmbedder(), config=MemGASConfig(n_seeds=3)).close()
