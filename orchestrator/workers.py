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
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")


LARGE: Final = 100_000  # bytes that are rendered or counted in a few milliseconds
ARRIVAL: Final = 1000  # milliseconds in which a stop reaches its thread


class _Stopped(SystemExit):
    """Raised inside a thread whose result nobody wants any more; a thread ends quietly by it."""


class _Brake:
    """Stops a thread while it works, and never afterwards: not while it tells of its result, which would tear what it
    shares with the event loop, and not another thread that has got its number since."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._working: int | None = None  # the thread that may be stopped
        self._pulled = False

    def pull(self) -> None:
        """Stop the work; whatever is done already stays done."""
        with self._gate:
            self._pulled = True
            if self._working is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._working), ctypes.py_object(_Stopped))

    def engage(self) -> None:
        """Called by the thread ahead of its work. Raises _Stopped where nobody wants that any more."""
        with self._gate:
            if self._pulled:
                raise _Stopped
            self._working = threading.get_ident()

    def release(self) -> None:
        """Called by the thread when its work is done. A stop that is on its way already arrives in here."""
        with self._gate:
            self._working = None
        for _ in range(ARRIVAL if self._pulled else 0):
            time.sleep(0.001)


async def run_blocking(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a blocking function in a thread, with the caller's context variables. Raises what the function raises."""
    return await _in_thread(partial(function, *args, **kwargs), stop=False)


async def run_stoppable(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """As `run_blocking`, for what only computes in Python: cancelling the caller stops it, wherever it is."""
    return await _in_thread(partial(function, *args, **kwargs), stop=True)


async def aside(size: int, work: Callable[..., T], /, *args: Any) -> T:
    """Work of our own that only computes, on about so many bytes: in a thread if they are many, lest everything else
    stand still meanwhile; else here, where it is done sooner than a thread is made. Raises what the work raises."""
    return await run_stoppable(work, *args) if size > LARGE else work(*args)


async def _in_thread(work: Callable[[], T], *, stop: bool) -> T:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def tell(value: T | None, error: BaseException | None) -> None:
        if not ended.done():  # else nobody waits any more
            ended.set_result((value, error))

    brake = _Brake()

    def run() -> None:
        value, error = None, None
        try:
            try:
                brake.engage()
                value = context.run(work)
            except _Stopped:
                raise
            except BaseException as raised:
                error = raised
            brake.release()
        except _Stopped:
            return  # nobody waits any more
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run has gone on without us
            loop.call_soon_threadsafe(tell, value, error)

    thread = threading.Thread(target=run, name="orch-function", daemon=True)
    thread.start()
    try:
        result, error = await ended
    except asyncio.CancelledError:
        if stop:
            brake.pull()
        raise
    if error is not None:
        raise error  # here, and not by the future: a StopIteration would never come out of that
    return result  # type: ignore[return-value]
