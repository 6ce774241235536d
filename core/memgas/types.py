"""The nouns: frozen, slotted dataclasses that travel between the steps.

Vectors are never a field of a unit: they travel as matrices beside the units, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeVar, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
"""One JSON value: what a session's metadata may be."""

_T = TypeVar("_T")

Kind = Literal["chat", "item"]
"""A chat is recalled; an item (what LangGraph's store puts) only when asked for."""


class Granularity(StrEnum):
    """How much of a session one unit covers."""

    SESSION = "session"
    TURN = "turn"
    SUMMARY = "summary"
    KEYWORD = "keyword"

    @property
    def axis(self) -> int:
        """Position along every `n_granularities` axis."""
        return GRANULARITIES.index(self)


GRANULARITIES: tuple[Granularity, ...] = tuple(Granularity)
"""The order of every `n_granularities` axis."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of one speaker.

    Parameters
    ----------
    speaker
        Who said it: `user`, `assistant`, or a name.
    text
        What was said. Empty only in a tombstone: a turn that was deleted and keeps its place.
    happened_at
        When, with a time zone. None: the session's time.
    id
        The message id, where the host has one: the key that makes a retry harmless.
    """

    speaker: str
    text: str
    happened_at: datetime | None = None
    id: str | None = None

    @property
    def is_tombstone(self) -> bool:
        """Whether the words were deleted."""
        return not self.text


@dataclass(frozen=True, slots=True)
class Digest:
    """What is written about a session.

    Attributes
    ----------
    source
        `llm`, `extractive`, or `given` (handed in).
    """

    summary: str
    keywords: tuple[str, ...]
    source: str = "given"


@dataclass(frozen=True, slots=True)
class NewSession:
    """One sitting, as it is handed in: what `add` takes, for many at once.

    Attributes
    ----------
    session_id
        None: a new random one.
    happened_at
        When it began, with a time zone. None: now.
    digest
        Spares making one.
    """

    turns: Sequence[Turn]
    session_id: str | None = None
    happened_at: datetime | None = None
    metadata: JSON = None
    digest: Digest | None = None
    kind: Kind = "chat"


@dataclass(frozen=True, slots=True)
class Session:
    """One sitting, as it is stored."""

    namespace: str
    session_id: str
    turns: tuple[Turn, ...]
    happened_at: datetime
    added_at: datetime
    metadata: JSON = None
    conversation_id: str | None = None
    digest: Digest | None = None
    is_open: bool = False
    is_pending: bool = False
    kind: Kind = "chat"
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Where one turn stands in the text of its exchange: `text[start:end]`, without the speaker's name.

    Attributes
    ----------
    start, end
        In characters. Equal in a tombstone.
    """

    speaker: str
    start: int
    end: int
    happened_at: datetime | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryUnit:
    """One text at one granularity of one session: a node of the association graph.

    Attributes
    ----------
    id
        Hash of namespace, session, generation, granularity and position; never of the text.
    position
        Among the session's units of this granularity; of a turn unit, the exchange's number.
    text
        What is embedded and indexed. Empty when every turn of the exchange was deleted: kept for its places only.
    first_turn
        Position in the session of the first turn of `spans`. 0 for other granularities.
    spans
        The turns of an exchange, in order. Empty for other granularities.
    n_windows
        Into how many windows the text was cut for the embedder; 1 when it was read whole; 0 while it has no vector,
        because the embedder did not answer or because the vector was lost: `repair` embeds it.
    """

    id: str
    namespace: str
    session_id: str
    generation: int
    granularity: Granularity
    position: int
    text: str
    first_turn: int = 0
    spans: tuple[Span, ...] = ()
    n_windows: int = 1


@dataclass(frozen=True, slots=True)
class Association:
    """An edge: it was accepted when `source` was written, and is followed both ways.

    Attributes
    ----------
    source, target
        Unit ids.
    similarity
        Cosine in [-1, 1], as precise as float16.
    """

    source: str
    target: str
    similarity: float


class _InColumns(Sequence[_T]):
    """A sequence that keeps its entries in columns, and makes one when it is asked for: else as a tuple of them."""

    __slots__ = ()

    def _entry(self, at: int) -> _T:
        """Return one entry, `at` from 0."""
        raise NotImplementedError

    @overload
    def __getitem__(self, at: int) -> _T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[_T, ...]: ...
    def __getitem__(self, at: int | slice) -> _T | tuple[_T, ...]:
        """Return one, or some."""
        if isinstance(at, slice):
            return tuple(map(self._entry, range(len(self))[at]))
        return self._entry(range(len(self))[at])

    def __eq__(self, other: object) -> bool:
        """Tell whether another sequence holds equal entries in the same order."""
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        """Hash the entries, as a tuple of them would."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Show the entries, as a tuple of them would."""
        return repr(tuple(self))


class Associations(_InColumns[Association]):
    """The associations of one unit, in columns: a store that holds a million of them makes no object of each.

    Attributes
    ----------
    targets : (n_edges,)
        Unit ids.
    similarities : (n_edges,)
    """

    __slots__ = ("similarities", "source", "targets")

    def __init__(self, source: str, targets: Sequence[str], similarities: Sequence[float]) -> None:
        self.source = source
        self.targets = targets
        self.similarities = similarities

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.targets)

    def _entry(self, at: int) -> Association:
        return Association(self.source, self.targets[at], self.similarities[at])


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What the store knows of a session besides its words. It names the units that are visible.

    Attributes
    ----------
    sequence
        Number of the session in its namespace, by the order of adding; never reused.
    generation
        Number of the present rewriting, from the same counter as `sequence`; never reused.
    revision
        The namespace's revision at which this record last changed.
    n_turns
        Turns, tombstones included, that the last write of this record knew of.
    first_turn
        Position in its conversation of its first turn.
    n_units
        Visible units per granularity, in the order of `GRANULARITIES`: positions `0 .. n - 1`.
    digest_source
        Where the digest came from; empty when there is none.
    is_open
        Still growing.
    is_pending
        Its digest is missing or stale.
    is_deleted
        A tombstone: everything but the numbers is blank; of a conversation's session, `metadata` keeps hashes of its
        message ids.
    """

    namespace: str
    session_id: str
    sequence: int
    generation: int
    revision: int
    happened_at: datetime
    added_at: datetime
    updated_at: datetime
    n_turns: int = 0
    n_units: tuple[int, int, int, int] = (0, 0, 0, 0)
    conversation_id: str | None = None
    first_turn: int = 0
    metadata: JSON = None
    kind: Kind = "chat"
    digest_source: str = ""
    is_open: bool = False
    is_pending: bool = False
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """One record per namespace: what a reader checks to see whether anything changed.

    Attributes
    ----------
    epoch
        Random; another one when the namespace was deleted and begun anew.
    revision
        Grows by one with every write.
    next_number
        The next sequence or generation number; never goes back.
    """

    namespace: str
    epoch: str
    revision: int
    next_number: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows of one namespace, on their way into a store or out of it.

    Attributes
    ----------
    head
        The namespace's head after this batch.
    records
        Sessions that changed.
    units
        Rows to write or rows read.
    vectors : (n_units, n_dims) float32
        One normalised row a unit; of a unit in several windows, their normalised mean. Zero for an empty text.
    window_owners : (n_windows,) intp
        Rows of `units` that were cut into windows, one entry a window, ascending.
    windows : (n_windows, n_dims) float32
        Their vectors, normalised, in the order of the text.
    associations
        Unit id to the associations it is the source of.
    obsolete
        Ids of units that this batch makes invisible: deleted after the records are written.
    """

    head: Head
    records: Sequence[SessionRecord]
    units: Sequence[MemoryUnit]
    vectors: NDArray[np.float32]
    window_owners: NDArray[np.intp]
    windows: NDArray[np.float32]
    associations: Mapping[str, Sequence[Association]]
    obsolete: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """What one write did.

    Attributes
    ----------
    session_id
        The session that holds the last of the turns.
    n_new_turns
        0: everything was there already, and no model was called.
    pending
        Whether the session's digest is still to come.
    degraded
        What could not be done now, in words; empty when all went well.
    """

    session_id: str
    n_new_turns: int
    pending: bool = False
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One turn of a hit.

    Attributes
    ----------
    position
        Of the turn in its session.
    similarity
        The ranking similarity of its exchange; None for a neighbour that only gives context.
    """

    session_id: str
    position: int
    turn: Turn
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A session that was found.

    Attributes
    ----------
    score
        In [0, 1], absolute: comparable between queries. Never increases down the list.
    rank_score
        Orders the hits. The sum of `parts`.
    parts
        Name of a part to its share of `rank_score`.
    evidence
        Its best turns with a neighbour on each side, in the order they were said.
    same_matter
        Session ids of other hits that speak of the same matter.
    """

    session_id: str
    score: float
    rank_score: float
    parts: Mapping[str, float]
    happened_at: datetime
    evidence: tuple[Evidence, ...] = ()
    summary: str = ""
    keywords: tuple[str, ...] = ()
    metadata: JSON = None
    conversation_id: str | None = None
    kind: Kind = "chat"
    same_matter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitScore:
    """One unit in a trace: a seed, or a step of a path."""

    unit_id: str
    session_id: str
    granularity: Granularity
    position: int
    score: float


class UnitScores(_InColumns[UnitScore]):
    """Some units of a trace, in columns that they share with its others: most traces are never looked at.

    Parameters
    ----------
    unit_ids, session_ids, axes, positions, scores : (n_units,)
        Of all of them; granularities by axis.
    rows
        Which are meant.
    """

    __slots__ = ("_columns", "_rows")

    def __init__(
        self,
        unit_ids: Sequence[str],
        session_ids: Sequence[str],
        axes: Sequence[int],
        positions: Sequence[int],
        scores: Sequence[float],
        rows: range,
    ) -> None:
        self._columns = unit_ids, session_ids, axes, positions, scores
        self._rows = rows

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def _entry(self, at: int) -> UnitScore:
        row = self._rows[at]
        unit_ids, session_ids, axes, positions, scores = self._columns
        return UnitScore(unit_ids[row], session_ids[row], GRANULARITIES[axes[row]], positions[row], scores[row])


@dataclass(frozen=True, slots=True)
class Route:
    """What the router saw and decided for one granularity.

    Attributes
    ----------
    entropy
        Of the softmax over its units, in nats; None where it could not be judged.
    best
        Its most similar units that may be found, best first.
    """

    granularity: Granularity
    n_units: int
    entropy: float | None
    weight: float
    best: Sequence[UnitScore] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """How a hit was reached: units from a seed to the hit's best unit, and the similarity of each edge between."""

    session_id: str
    steps: Sequence[UnitScore]
    similarities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What one granularity brings to a session.

    Attributes
    ----------
    unit
        The session's best unit there, and its similarity.
    weight
        Of the granularity, over those that the session has.
    dense, lexical
        The weight times what the cosine and BM25 bring; with `session_score="sum"`, of all its units together.
    association
        The weight times what associations add. 0 where PageRank ranks alone: there it is the whole score.
    """

    unit: UnitScore
    weight: float
    dense: float
    lexical: float
    association: float


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a session stands where it stands. `dense + lexical` is the granularity's part of a blended rank score.

    Attributes
    ----------
    place
        From 1, by rank score, among the sessions that may be found.
    place_before
        The place it would have without associations.
    date
        What the dates in the query bring.
    tell
        Makes the shares of the figures that were kept: most traces are never looked at.
    """

    session_id: str
    place: int
    place_before: int
    date: float
    tell: Callable[[], tuple[Share, ...]] = field(repr=False, compare=False)

    @property
    def shares(self) -> tuple[Share, ...]:
        """What each granularity that it has brings."""
        return self.tell()


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """What the LLM filter did: `kept` and `dropped` are session ids, `note` says what degraded."""

    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that one retrieval decided.

    Attributes
    ----------
    reasons
        Of each hit, in order, before the filter.
    seconds
        Name of a stage to its duration.
    degraded
        What could not be done, in words.
    """

    namespace: str
    n_sessions: int
    n_units: int
    routes: tuple[Route, ...] = ()
    seeds: Sequence[UnitScore] = ()
    paths: tuple[Path, ...] = ()
    reasons: tuple[Reason, ...] = ()
    verdict: FilterVerdict | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of one namespace, or of all together.

    Attributes
    ----------
    n_pending
        Sessions whose digest is missing or stale; `digest_pending` makes it.
    n_units
        Visible units by granularity.
    """

    n_namespaces: int
    n_sessions: int
    n_open: int
    n_pending: int
    n_turns: int
    n_units: Mapping[str, int]
    n_associations: int
    n_windows: int
