"""Writing where transactions run side by side: each unit is a transaction of its own, on a thread of a bounded pool.

The promises are those of the one writing thread on SQLite. A unit is reported only after its COMMIT has been answered;
a caller that is cancelled does not cancel its unit (S04); and once writing has ended, by an observer that plays the end
of the process, nothing is committed and nothing reported any more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from orchestrator.errors import OrchError, StoreError
from orchestrator.store.database import Observer
from orchestrator.store.records import Fenced
from orchestrator.store.sql import Tx

T = TypeVar("T")


class Transactions(Protocol):
    """What is used of the database."""

    def write(self, work: Callable[[Tx], T], durable: bool) -> T:
        """Run the work in a transaction and commit it; run it again where it is known not to have happened."""
        ...

    def explain(self, error: BaseException) -> BaseException: ...


def _seen(future: asyncio.Future[Any]) -> None:
    """Takes the error of a write whose caller was cancelled, or the loop reports it as lost when it is collected."""
    if not future.cancelled():
        future.exception()


class PooledWriter:
    """The write side of a database on a server."""

    def __init__(self, database: Transactions, threads: ThreadPoolExecutor, observer: Observer | None) -> None:
        self._database = database
        self._threads = threads
        self._observer = observer
        self._gate = threading.Lock()
        self._closed: StoreError | None = None
        self._dead: StoreError | None = None

    async def write(self, name: str, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        future = asyncio.wrap_future(self._submit(name, work, durable))
        future.add_done_callback(_seen)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def write_later(self, name: str, work: Callable[[Tx], Any]) -> None:
        self._submit(name, work, False)

    def close(self) -> None:
        """Take no more; what has been asked for is settled by the threads, who can be waited for."""
        with self._gate:
            self._closed = self._closed or StoreError("the database is closed")

    def _submit(self, name: str, work: Callable[[Tx], T], durable: bool) -> Future[T]:
        with self._gate:
            if self._closed is not None:
                raise StoreError(self._closed.message, hint=self._closed.hint)
            return self._threads.submit(self._unit, name, work, durable)

    # --- on a thread ---

    def _unit(self, name: str, work: Callable[[Tx], T], durable: bool) -> T:
        begun = False

        def watched(tx: Tx) -> T:
            nonlocal begun
            if not begun:  # a second try is the same unit
                begun = True
                self._observe(f"{name}:begin")
            value = work(tx)
            self._check()
            return value

        try:
            value = self._database.write(watched, durable)
        except (OrchError, Fenced):
            raise
        except Exception as error:
            explained = self._database.explain(error)
            if explained is error:
                raise
            raise explained from error
        self._observe(f"{name}:committed")
        self._check()
        return value

    def _observe(self, moment: str) -> None:
        if self._observer is None:
            return
        self._check()
        try:
            self._observer(moment)
        except BaseException as error:
            self._die(error)
            self._check()

    def _die(self, error: BaseException) -> None:
        failure = StoreError(
            f"the database writer has stopped: {str(error) or type(error).__name__}",
            hint="nothing more is written or sent; resume the run in a new process",
        )
        with self._gate:
            self._dead = self._dead or failure
            self._closed = self._dead

    def _check(self) -> None:
        """Raises StoreError where writing has ended."""
        if self._dead is not None:
            raise StoreError(self._dead.message, hint=self._dead.hint)
