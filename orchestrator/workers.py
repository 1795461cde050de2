"""Blocking functions of a project, off the event loop.

Each call has a thread of its own. Such functions mostly wait, so a small pool would be a hidden cap on how many steps
really run at once. A function is never stopped from outside: it may be in the midst of something. Its thread is a
daemon, so that one that still runs when its step has timed out or Ctrl-C was pressed does not keep the process from
ending. Work of our own that only computes (a template that never ends, S22) is stopped, lest it use a core for as long
as the process lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class _Stopped(SystemExit):
    """Raised inside a thread whose result nobody wants any more; a thread ends quietly by it."""


async def run_blocking(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a blocking function in a thread, with the caller's context variables. Raises what the function raises."""
    return await _in_thread(partial(function, *args, **kwargs), stop=False)


async def run_stoppable(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """As `run_blocking`, for what only computes in Python: cancelling the caller stops it, wherever it is."""
    return await _in_thread(partial(function, *args, **kwargs), stop=True)


async def _in_thread(work: Callable[[], T], *, stop: bool) -> T:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def tell(value: T | None, error: BaseException | None) -> None:
        if not ended.done():  # else nobody waits any more
            ended.set_result((value, error))

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(work)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run has gone on without us
            loop.call_soon_threadsafe(tell, value, error)

    thread = threading.Thread(target=run, name="orch-function", daemon=True)
    thread.start()
    try:
        result, error = await ended
    except asyncio.CancelledError:
        if stop and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped))
        raise
    if error is not None:
        raise error  # here, and not by the future: a StopIteration would never come out of that
    return result  # type: ignore[return-value]
