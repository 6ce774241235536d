"""An embedder that embeds no text twice: in one run, and, given a folder, in the next."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memgas.protocols import Embedder
from memgas.units import hash_parts

Progress = Callable[[str, int, int], None]
"""Told of long work: what is being done, how many are done, of how many."""

Side = Literal["document", "query"]

_BATCH = 64
_PROBE = "The quick brown fox jumps over the lazy dog; 敏捷的棕色狐狸跳过懒狗。"


class Clock:
    """Seconds gone by, less those that the embedder took meanwhile."""

    def __init__(self, embedder: CachedEmbedder) -> None:
        self._embedder = embedder
        self._started = time.perf_counter() - embedder.seconds

    def read(self) -> float:
        """Return the seconds since it was made."""
        return max(0.0, time.perf_counter() - self._embedder.seconds - self._started)


class CachedEmbedder:
    """Wraps an embedder; is one itself.

    Parameters
    ----------
    embedder
        Does the work.
    folder
        Where vectors are kept between runs, a SQLite file an embedder; None: in memory only. The file is named after the
        embedder and the vector it gives a fixed sentence, so that another model of the same name never answers.
    progress
        Told after every batch of a long call.

    Attributes
    ----------
    n_embedded, n_reused
        Texts that the embedder read, and texts it was spared.
    seconds
        What the embedder took for them.
    """

    is_thread_safe = True

    def __init__(self, embedder: Embedder, *, folder: Path | None = None, progress: Progress | None = None) -> None:
        self.embedder = embedder
        self.n_embedded = 0
        self.n_reused = 0
        self.seconds = 0.0
        self._progress = progress
        self._folder = folder
        self._disk: sqlite3.Connection | None = None
        self._vectors: dict[tuple[Side, str], NDArray[np.float32]] = {}
        self._turn = threading.RLock()

    @property
    def name(self) -> str:
        """Name of the embedder."""
        return self.embedder.name

    @property
    def n_dims(self) -> int:
        """Width of the vectors."""
        return self.embedder.n_dims

    @property
    def max_tokens(self) -> int | None:
        """Tokens the embedder reads at once, or None."""
        return self.embedder.max_tokens

    def count_tokens(self, text: str) -> int:
        """Estimate how many of `max_tokens` the text takes."""
        with self._turn:
            return self.embedder.count_tokens(text)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts to keep: `(n_texts, n_dims)`; only those never seen before reach the embedder."""
        self._fetch("document", dict.fromkeys(texts))
        return np.array([self._vectors["document", text] for text in texts], dtype=np.float32).reshape(-1, self.n_dims)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`."""
        self._fetch("query", [text])
        return self._vectors["query", text].copy()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed questions: `(n_texts, n_dims)`."""
        self._fetch("query", dict.fromkeys(texts))
        return np.array([self._vectors["query", text] for text in texts], dtype=np.float32).reshape(-1, self.n_dims)

    def knows(self, text: str) -> bool:
        """Tell whether a text to keep would be spared the embedder."""
        with self._turn:
            return ("document", text) in self._vectors or (self._folder is not None and self._recall("document", text))

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def _fetch(self, side: Side, texts: Collection[str]) -> None:
        """See to it that the vectors of these texts are in memory."""
        with self._turn:
            self._fetch_in_turn(side, texts)

    def _fetch_in_turn(self, side: Side, texts: Collection[str]) -> None:
        new = [text for text in texts if (side, text) not in self._vectors]
        self.n_reused += len(texts) - len(new)
        missing = [text for text in new if not self._recall(side, text)] if self._folder else new
        self.n_reused += len(new) - len(missing)
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            vectors = self._embed(side, batch)
            for text, vector in zip(batch, vectors, strict=True):
                self._vectors[side, text] = vector
            self._keep(side, batch, vectors)
            if self._progress and len(missing) > _BATCH:
                self._progress("embedding", start + len(batch), len(missing))

    def _embed(self, side: Side, batch: Sequence[str]) -> NDArray[np.float32]:
        started = time.perf_counter()
        if side == "document":
            vectors = self.embedder.embed_documents(batch)
        else:
            vectors = np.array([self.embedder.embed_query(text) for text in batch])
        self.seconds += time.perf_counter() - started
        self.n_embedded += len(batch)
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def _connection(self, folder: Path) -> sqlite3.Connection:
        if self._disk is None:
            probe = np.round(self.embedder.embed_documents([_PROBE])[0].astype(np.float64), 3) + 0.0
            name = re.sub(r"[^\w.-]+", "_", self.name)
            folder.mkdir(parents=True, exist_ok=True)
            self._disk = sqlite3.connect(
                folder / f"{name}-{hash_parts(probe.tobytes().hex())[:12]}.sqlite",
                check_same_thread=False,
                timeout=60.0,
            )
            # A power cut may cost the last vectors, which are only computed again.
            self._disk.execute("PRAGMA journal_mode = WAL")
            self._disk.execute("PRAGMA synchronous = OFF")
            self._disk.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        return self._disk

    def _recall(self, side: Side, text: str) -> bool:
        assert self._folder is not None
        row = self._connection(self._folder).execute(
            "SELECT vector FROM vectors WHERE key = ?", (hash_parts(side, text),)
        ).fetchone()  # fmt: skip
        if row is None:
            return False
        self._vectors[side, text] = np.frombuffer(row[0], dtype="<f4")
        return True

    def _keep(self, side: Side, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        if self._folder is None:
            return
        rows = [
            (hash_parts(side, text), vector.astype("<f4").tobytes())
            for text, vector in zip(texts, vectors, strict=True)
        ]
        with (disk := self._connection(self._folder)):
            disk.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
