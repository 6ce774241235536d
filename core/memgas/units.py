"""Session and digest -> units at four granularities; their ids; windows of long text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from memgas.types import Digest, Granularity, MemoryUnit, Span, Turn


@dataclass(frozen=True, slots=True)
class Exchange:
    """Consecutive turns: an utterance and the reply to it, `turns[first_turn:first_turn + len]` of the session."""

    first_turn: int
    turns: tuple[Turn, ...]


def hash_parts(*parts: str) -> str:
    """Return 128 bits of a hash over length-prefixed parts, in hex: no two lists of parts run into each other."""
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def unit_id(namespace: str, session_id: str, generation: int, granularity: Granularity, position: int) -> str:
    """Return the id of a unit: where it stands, not what it says."""
    return hash_parts(namespace, session_id, str(generation), granularity.value, str(position))


def text_hash(text: str) -> str:
    """Return a hash that tells whether a text has to be embedded again."""
    return hash_parts(text)


def split_exchanges(turns: Sequence[Turn], *, max_turns: int, max_chars: int) -> list[Exchange]:
    """Cut a session into exchanges: a run of turns by one speaker, then the run by the next one.

    The cut depends only on the turns before it, so that a session grown turn by turn is cut as one added whole.

    Parameters
    ----------
    turns
        In order. Tombstones keep their speaker, so a deletion moves no cut but one that `max_chars` made.
    max_turns
        No exchange is longer.
    max_chars
        No turn joins an exchange that already holds this much text.
    """
    exchanges: list[Exchange] = []
    start, n_runs, n_chars = 0, 0, 0
    for position, turn in enumerate(turns):
        is_new_run = position == start or turn.speaker != turns[position - 1].speaker
        full = position - start >= max_turns or n_chars >= max_chars
        if position > start and (full or (is_new_run and n_runs == 2)):
            exchanges.append(Exchange(start, tuple(turns[start:position])))
            start, n_runs, n_chars, is_new_run = position, 0, 0, True
        n_runs += is_new_run
        n_chars += len(turn.text)
    if start < len(turns):
        exchanges.append(Exchange(start, tuple(turns[start:])))
    return exchanges


def exchange_unit(exchange: Exchange, namespace: str, session_id: str, generation: int, position: int) -> MemoryUnit:
    """Render an exchange as `speaker: text` lines, with a span for each turn. Deleted turns leave an empty span."""
    lines: list[str] = []
    spans: list[Span] = []
    at = 0
    for turn in exchange.turns:
        if turn.is_tombstone:
            spans.append(Span(turn.speaker, at, at, turn.happened_at, turn.id))
            continue
        start = at + len(turn.speaker) + 2
        lines.append(f"{turn.speaker}: {turn.text}")
        spans.append(Span(turn.speaker, start, start + len(turn.text), turn.happened_at, turn.id))
        at = start + len(turn.text) + 1
    uid = unit_id(namespace, session_id, generation, Granularity.TURN, position)
    return MemoryUnit(
        uid, namespace, session_id, generation, Granularity.TURN, position, "\n".join(lines), exchange.first_turn,
        tuple(spans),
    )  # fmt: skip


def pooled_unit(turns: Sequence[Turn], namespace: str, session_id: str, generation: int) -> MemoryUnit:
    """Render a whole session as its one turn unit (the published code)."""
    return exchange_unit(Exchange(0, tuple(turns)), namespace, session_id, generation, 0)


def turns_of(units: Sequence[MemoryUnit]) -> tuple[Turn, ...]:
    """Return the turns that turn units hold, in order: the inverse of `exchange_unit`."""
    return tuple(
        Turn(span.speaker, unit.text[span.start : span.end], span.happened_at, span.id)
        for unit in units
        for span in unit.spans
    )


def session_text(turns: Sequence[Turn]) -> str:
    """Render a session as one text, a turn a line."""
    return "\n".join(f"{turn.speaker}: {turn.text}" for turn in turns if not turn.is_tombstone)


def digest_units(
    digest: Digest | None, turns: Sequence[Turn], namespace: str, session_id: str, generation: int
) -> list[MemoryUnit]:
    """Return the session-level units: summary, keywords and the session's own text, those that are not empty."""
    texts = {Granularity.SESSION: session_text(turns)}
    if digest is not None:
        texts[Granularity.SUMMARY] = digest.summary
        texts[Granularity.KEYWORD] = "; ".join(digest.keywords)
    return [
        MemoryUnit(unit_id(namespace, session_id, generation, g, 0), namespace, session_id, generation, g, 0, text)
        for g, text in texts.items()
        if text
    ]


def split_windows(text: str, *, max_tokens: int | None, count_tokens: Callable[[str], int]) -> list[str]:
    """Cut text into overlapping windows that an embedder reads whole; nothing is cut away.

    Parameters
    ----------
    text
        Any length.
    max_tokens
        Most tokens of a window; None: no limit.
    count_tokens
        Estimates the tokens of a text; must not grow when the text is shortened.

    Returns
    -------
    list of str
        `[text]` if it fits. Neighbouring windows share about an eighth. A cut falls on white space where there is some.
    """
    if max_tokens is None or len(text) <= max_tokens // 4 or count_tokens(text) <= max_tokens:
        return [text]
    return list(_windows(text, max_tokens, count_tokens))


def _windows(text: str, max_tokens: int, count_tokens: Callable[[str], int]) -> Iterator[str]:
    """Yield windows from the left, each as long as fits."""
    start = 0
    while start < len(text):
        end = _longest_fit(text, start, max_tokens, count_tokens)
        yield text[start:end]
        if end >= len(text):
            return
        overlap_from = end - max(1, (end - start) // 8)
        space = text.find(" ", overlap_from, end - 1)  # the last one would leave nothing to share
        start = max(start + 1, (space + 1) if space >= 0 else overlap_from)


def _longest_fit(text: str, start: int, max_tokens: int, count_tokens: Callable[[str], int]) -> int:
    """Return the furthest end, on white space if there is some in the last eighth, whose window fits."""
    low, high = start + 1, min(len(text), start + 8 * max_tokens)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_tokens(text[start:middle]) <= max_tokens else (low, middle - 1)
    if low < len(text):
        space = max(
            text.rfind(" ", start + 7 * (low - start) // 8, low), text.rfind("\n", start + 7 * (low - start) // 8, low)
        )
        low = space + 1 if space > start else low
    return low
