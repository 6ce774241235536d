"""MemGAS: long-term memory for chat agents."""

from memgas.config import MemGASConfig
from memgas.errors import (
    ClosedError,
    EmbedderError,
    InvalidConfigError,
    InvalidInputError,
    LLMError,
    MemGASError,
    MissingExtraError,
    ModelError,
    NotFoundError,
    SessionConflictError,
    ShapeError,
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreMismatchError,
)
from memgas.explaining import Explanation
from memgas.memory import MemGAS
from memgas.protocols import LLM, Embedder, Store
from memgas.retrieval import Retrieval
from memgas.types import (
    Added,
    Association,
    Digest,
    Evidence,
    Granularity,
    Hit,
    MemoryUnit,
    NewSession,
    Session,
    SessionRecord,
    Stats,
    Trace,
    Turn,
)
from memgas.why_not import WhyNot

__all__ = [
    "LLM",
    "Added",
    "Association",
    "ClosedError",
    "Digest",
    "Embedder",
    "EmbedderError",
    "Evidence",
    "Explanation",
    "Granularity",
    "Hit",
    "InvalidConfigError",
    "InvalidInputError",
    "LLMError",
    "MemGAS",
    "MemGASConfig",
    "MemGASError",
    "MemoryUnit",
    "MissingExtraError",
    "ModelError",
    "NewSession",
    "NotFoundError",
    "Retrieval",
    "Session",
    "SessionConflictError",
    "SessionRecord",
    "ShapeError",
    "Stats",
    "Store",
    "StoreCorruptError",
    "StoreError",
    "StoreLockedError",
    "StoreMismatchError",
    "Trace",
    "Turn",
    "WhyNot",
]
