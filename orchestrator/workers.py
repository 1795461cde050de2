"""Blocking functions of a project, off the event loop.

Each call has a thread of its own. Such functions mostly wait, so a small pool would be a hidden cap on how many steps
really run at once. A thread cannot be stopped from outside; it is a daemon, so that a function that still runs when its
step has timed out or Ctrl-C was pressed does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_blocking(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a blocking function in a thread, with the caller's context variables. Raises what the function raises."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def tell(value: T | None, error: BaseException | None) -> None:
        if not ended.done():  # else nobody waits any more
            ended.set_result((value, error))

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function, *args, **kwargs)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run has gone on without us
            loop.call_soon_threadsafe(tell, value, error)

    threading.Thread(target=work, name="orch-function", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error  # here, and not by the future: a StopIteration would never come out of that
    return result  # type: ignore[return-value]
