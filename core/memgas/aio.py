"""The async twins: the same call, on the memory's own threads, never on the event loop's."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class HasPool(Protocol):
    """Has threads to run its calls on."""

    @property
    def _pool(self) -> Executor: ...


S = TypeVar("S", bound=HasPool)


def twin(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Awaitable[R]]:
    """Make the async twin of a method.

    It is bound to no event loop. Cancelling it stops the waiting, not the work: a write that was begun is finished.
    """

    @functools.wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio  # what calls this has imported it; `import memgas` alone does without

        context = contextvars.copy_context()
        call = functools.partial(context.run, method, self, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    name = method.__name__
    run.__name__, run.__qualname__ = f"a{name}", f"MemGAS.a{name}"
    run.__doc__ = f"Do what `{name}` does, without blocking the event loop."
    return run
