"""One structured log event a call: what was called, on what ids, how long it took, what came out. Never memory text."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Sized
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from memgas.retrieval import Retrieval
from memgas.types import Added
from memgas.why_not import WhyNot

P = ParamSpec("P")
R = TypeVar("R")
Field = str | int | float | None | dict[str, float]

_log = logging.getLogger("memgas")
_is_told: ContextVar[bool] = ContextVar("memgas_is_told", default=False)  # by the call that this one is part of
_IDS = ("namespace", "session_id", "conversation_id", "position", "top_k", "filter")


def logged(method: Callable[P, R]) -> Callable[P, R]:
    """Log an event at INFO when the method has returned or raised.

    The event's message is `memgas.<method> key=value ...`, and its record carries the same as a dict in `memgas`. When nobody
    listens at INFO, the method is called and nothing else.
    """
    signature = inspect.signature(method)
    name = method.__name__

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _is_told.get() or not _log.isEnabledFor(logging.INFO):
            return method(*args, **kwargs)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # which says what is wrong
        bound.apply_defaults()
        given = bound.arguments
        event: dict[str, Field] = {"call": name}
        event |= {key: given[key] for key in _IDS if isinstance(given.get(key), str | int)}
        began = time.perf_counter()
        token = _is_told.set(True)
        try:
            result = method(*args, **kwargs)
            event |= _outcome(result)
        except BaseException as error:
            event["error"] = type(error).__name__
            raise
        finally:
            _is_told.reset(token)
            event["seconds"] = round(time.perf_counter() - began, 6)
            _log.info("memgas.%s %s", name, _pairs(event), extra={"memgas": event})
        return result

    return call


def _outcome(result: object) -> dict[str, Field]:
    """Return what may be told of a result: counts, ids, times of stages."""
    match result:
        case Retrieval():
            trace = result.trace
            return {
                "n_hits": len(result.hits),
                "n_sessions": trace.n_sessions,
                "n_units": trace.n_units,
                "n_seeds": len(trace.seeds),
                "n_dropped": 0 if trace.verdict is None else len(trace.verdict.dropped),
                "n_degraded": len(trace.degraded),
                "stages": {stage: round(seconds, 6) for stage, seconds in trace.seconds.items()},
            }
        case Added():
            return {
                "session_id": result.session_id, "n_new_turns": result.n_new_turns, "pending": int(result.pending),
                "n_degraded": len(result.degraded),
            }  # fmt: skip
        case WhyNot():
            return {"stage": result.stage, "place": result.place, "n_changes": len(result.changes)}
        case int():
            return {"n": int(result)}
        case Sized() if not isinstance(result, str):
            return {"n": len(result)}
    return {}


def _pairs(event: dict[str, Field]) -> str:
    return " ".join(f"{key}={value!r}" for key, value in event.items() if key != "call")
