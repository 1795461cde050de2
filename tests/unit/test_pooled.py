"""The write side of a database on a server, without a server."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.store.pooled import PooledWriter


class Failing:
    """Transactions that begin, wait to be let go, and fail."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

    def write(self, work: Callable[[Any], Any], durable: bool) -> Any:
        self.inside.set()
        self.go_on.wait(20)
        raise OSError("the disk is gone")

    def explain(self, error: BaseException) -> BaseException:
        return error


def test_the_error_of_a_write_whose_caller_was_cancelled_is_not_reported_as_lost() -> None:
    """The caller is told of its cancellation; nobody is left who could take the error, and no log is disturbed."""
    database, complaints = Failing(), list[Any]()

    async def main(threads: ThreadPoolExecutor) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        writer = PooledWriter(database, threads, None)
        task = asyncio.ensure_future(writer.write("commit", lambda tx: None))
        await asyncio.to_thread(database.inside.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        database.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()

    with ThreadPoolExecutor(1) as threads:
        asyncio.run(main(threads))
    assert complaints == []
