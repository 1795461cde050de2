"""Blocking functions of a project, off the event loop.

The default executor of asyncio holds at most `cpu + 4` threads: a hidden cap on how many steps really run at once. Ours
is wide, because such functions mostly wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
THREADS = 256

_executor: ThreadPoolExecutor | None = None


async def run_blocking(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a blocking function in a thread, with the caller's context variables."""
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(THREADS, thread_name_prefix="orch-function")
    call = functools.partial(contextvars.copy_context().run, functools.partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_executor, call)
