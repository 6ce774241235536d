"""Which embedder a store was made with, and how alike its vectors are when nothing is alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from memgas.errors import StoreMismatchError
from memgas.protocols import Embedder
from memgas.types import JSON

REEMBEDDING = "reembedding"
"""Key in a store's meta: the embedder that it is being moved to."""

PROBE = "The quick brown fox jumps over the lazy dog. 敏捷的棕色狐狸跳过了懒狗。"

STRANGERS = (
    "My grandmother taught me to bake rye bread.",
    "The train to Lisbon leaves at seven in the morning.",
    "We finally repainted the kitchen a pale green.",
    "He broke his wrist while skating on the canal.",
    "The quarterly report is due on Friday.",
    "Our cat sleeps on the radiator all winter.",
    "I started learning the cello in March.",
    "The vaccine appointment was moved to next week.",
    "She collects stamps from island nations.",
    "The neighbours are building a stone wall.",
    "A storm knocked out the power for two days.",
    "I would like to visit the desert one day.",
    "他每天早上去公园打太极拳。",
    "我们的新打印机总是卡纸。",
    "妹妹考上了医学院。",
    "周末要去山里采蘑菇。",
)
_SAME = 0.999  # a model's vectors differ by less between machines and versions of its runtime

QUESTIONS = (
    "What is the name of her dentist?",
    "When did they sell the boat?",
    "Which football team does he support?",
    "How much was the rent in Berlin?",
    "What did the doctor say about my knee?",
    "Who is coming to the wedding?",
    "你的生日是哪一天？",
    "他为什么辞职了？",
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a store remembers of its embedder.

    Attributes
    ----------
    probe
        Its normalised vector of a fixed sentence, `n_dims` numbers.
    background_mean, background_spread
        Mean and standard deviation of its cosines between questions and texts that have nothing to do with each other.
    """

    embedder: str
    n_dims: int
    probe: tuple[float, ...]
    background_mean: float
    background_spread: float

    def is_like(self, other: Fingerprint) -> bool:
        """Tell whether both are of the same model, whatever it is called."""
        return self.n_dims == other.n_dims and _cosine(self.probe, other.probe) >= _SAME

    def to_json(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {**asdict(self), "probe": list(self.probe)}

    @classmethod
    def from_json(cls, data: Mapping[str, JSON]) -> Fingerprint | None:
        """Read it back; None where there is none."""
        match data:
            case {
                "embedder": str(name),
                "n_dims": int(n_dims),
                "probe": [*probe],
                "background_mean": float() | int() as mean,
                "background_spread": float() | int() as spread,
            }:
                vector = tuple(float(x) for x in probe if isinstance(x, (int, float)))
                return cls(name, n_dims, vector, float(mean), float(spread))
        return None


def take_fingerprint(embedder: Embedder) -> Fingerprint:
    """Measure an embedder that returns normalised vectors."""
    documents = embedder.embed_documents([PROBE, *STRANGERS])
    questions = np.stack([embedder.embed_query(question) for question in QUESTIONS])
    cosines = (questions @ documents[1:].T).astype(np.float64)
    probe = tuple(round(float(x), 7) for x in documents[0])
    return Fingerprint(embedder.name, embedder.n_dims, probe, float(cosines.mean()), max(float(cosines.std()), 1e-3))


def check_width(stored: Fingerprint, embedder: Embedder) -> None:
    """Raise StoreMismatchError unless an embedder's vectors are as wide as the stored ones."""
    if embedder.n_dims != stored.n_dims:
        raise StoreMismatchError(
            f"this store was made with {stored.embedder!r} ({stored.n_dims} dimensions), and {embedder.name!r} has "
            f"{embedder.n_dims}; open it with the first, or move it to the other with `memgas reembed`"
        )


def check_probe(stored: Fingerprint, probe: NDArray[np.float32] | Sequence[float], name: str) -> None:
    """Raise StoreMismatchError unless an embedder's normalised vector of `PROBE` is the stored one (cosine .999)."""
    cosine = _cosine(stored.probe, probe)
    if cosine < _SAME:
        raise StoreMismatchError(
            f"this store was made with {stored.embedder!r}, and {name!r} gives another vector for the same sentence "
            f"(cosine {cosine:.3f}); open it with the first, or move it to the other with `memgas reembed`"
        )


def _cosine(one: NDArray[np.float32] | Sequence[float], other: NDArray[np.float32] | Sequence[float]) -> float:
    """Return the cosine of normalised vectors; 1 of two zeros."""
    was, now = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return float(was @ now) if was.any() or now.any() else 1.0


def check_settled(meta: Mapping[str, JSON]) -> None:
    """Raise StoreMismatchError while a store is being moved to another embedder: half of its vectors are of each."""
    match meta.get(REEMBEDDING):
        case {"embedder": str(name)}:
            raise StoreMismatchError(
                f"this store is being moved from {meta.get('embedder')!r} to {name!r}, and that was not finished: finish it "
                "with `memgas reembed` (or MemGAS.reembed) and the second, or give it the first to stay with that"
            )
