"""One thread writes. Units queue up; what has queued is committed together, and each unit still stands alone.

A unit is a function of an open transaction. It runs inside a savepoint, so one that fails takes nothing else with it
(S03). Its caller hears of it only after COMMIT has returned: what is reported is durable. With one writer there is no
lock to fight over inside the process, twenty tasks share one fsync, and the event loop never waits for the disk.

A caller that is cancelled does not cancel its unit: the unit is committed, or not, as a whole (S04). If the thread
itself dies, every queued and every later write raises StoreError: better no further call than one nobody records.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from orchestrator.errors import OrchError, StoreError
from orchestrator.store.database import Observer
from orchestrator.store.records import Fenced
from orchestrator.store.sql import Tx

T = TypeVar("T")
MOST_UNITS: Final = 256  # in one transaction
LAZY_SECONDS: Final = 1.0  # how long a unit nobody waits for may ride on the next commit


class Connection(Protocol):
    """The write side of one database: the only place that knows how a transaction is begun."""

    def begin(self, durable: bool) -> Tx:
        """Open a write transaction and check that the schema is still ours. Raises StoreError.

        `durable` = its commit waits for the disk, as far as the database was opened to do so.
        """
        ...

    def savepoint(self) -> None: ...
    def keep(self) -> None: ...
    def undo(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...
    def explain(self, error: BaseException) -> BaseException:
        """The error as its callers should see it: StoreError for what the database refused."""
        ...


@dataclass(slots=True)
class _Unit:
    name: str
    work: Callable[[Tx], Any]
    future: asyncio.Future[Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    durable: bool = True
    value: Any = None
    error: BaseException | None = None
    told: bool = False
    settled: asyncio.Future[None] | None = None  # for a caller that was cancelled meanwhile


class Writer:
    """The writing thread. `observer` hears the name of each unit before it runs and after it is durable (for tests
    that stop the process there)."""

    def __init__(self, connection: Connection, observer: Observer | None = None) -> None:
        self._connection = connection
        self._observer = observer
        self._queue: queue.SimpleQueue[_Unit | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed: StoreError | None = None
        self._thread = threading.Thread(target=self._main, name="orch-store-writer", daemon=True)
        self._thread.start()

    async def write(self, name: str, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        """Run the unit; its result once it is committed. A cancelled caller is let go when the unit is settled.

        A commit outlives the process in any case. One that need not outlive a power cut (`durable` False: nothing was
        paid for it, and losing it only repeats work) does not wait for the disk; the next durable one takes it along.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        unit = _Unit(name, work, future, loop, durable)
        self._submit(unit)
        try:
            return await future
        except asyncio.CancelledError:
            if not unit.told:
                unit.settled = loop.create_future()
                await unit.settled
            raise

    def write_later(self, name: str, work: Callable[[Tx], Any]) -> None:
        """Queue a unit that rides on the next commit, or is committed alone a second later."""
        self._submit(_Unit(name, work, durable=False))

    def close(self) -> None:
        """Commit what is queued and end the thread; blocks until then."""
        with self._gate:
            if self._closed is None:
                self._closed = StoreError("the database is closed")
                self._queue.put(None)
        self._thread.join()

    def _submit(self, unit: _Unit) -> None:
        with self._gate:
            if self._closed is not None:
                raise StoreError(self._closed.message, hint=self._closed.hint)
            self._queue.put(unit)

    # --- on the thread ---

    def _main(self) -> None:
        taken: list[_Unit] = []
        try:
            while self._collect(taken):
                self._commit_together(taken)
                taken.clear()
            self._commit_together(taken)
        except BaseException as error:  # the thread must never end without its callers hearing of it
            self._die(error, taken)
        finally:
            self._connection.close()

    def _collect(self, taken: list[_Unit]) -> bool:
        """Wait for units to commit; False when the writer is to end after those."""
        deadline: float | None = None
        while len(taken) < MOST_UNITS:
            waited_for = any(unit.future for unit in taken)
            try:
                unit = self._queue.get(timeout=_rest(deadline)) if not waited_for else self._queue.get_nowait()
            except queue.Empty:
                return True
            if unit is None:
                return False
            taken.append(unit)
            deadline = deadline or time.monotonic() + LAZY_SECONDS
        return True

    def _commit_together(self, units: list[_Unit]) -> None:
        if not units:
            return
        try:
            tx = self._connection.begin(any(unit.durable for unit in units))
            for unit in units:
                self._observe(unit, "begin")
                if len(units) == 1:
                    unit.value = unit.work(tx)  # a lone unit needs no savepoint: the transaction is its own
                else:
                    self._run(unit, tx)
            self._connection.commit()
        except _Observed as seen:
            raise seen.error from None
        except BaseException as error:
            self._connection.rollback()
            _tell(units, self._connection.explain(error))
            return
        for unit in units:
            if unit.error is None:
                self._observe(unit, "committed")
        _tell(units)

    def _run(self, unit: _Unit, tx: Tx) -> None:
        """One unit in its savepoint. What the unit raises is the unit's; what the savepoint raises is everybody's."""
        self._connection.savepoint()
        try:
            unit.value = unit.work(tx)
        except BaseException as error:
            unit.error = error if isinstance(error, OrchError | Fenced) else self._connection.explain(error)
            self._connection.undo()
        else:
            self._connection.keep()

    def _observe(self, unit: _Unit, moment: str) -> None:
        if self._observer is None:
            return
        try:
            self._observer(f"{unit.name}:{moment}")
        except BaseException as error:
            raise _Observed(error) from error

    def _die(self, error: BaseException, taken: Iterable[_Unit]) -> None:
        failure = StoreError(
            f"the database writer has stopped: {str(error) or type(error).__name__}",
            hint="nothing more is written or sent; resume the run in a new process",
        )
        with self._gate:
            self._closed = failure
        rest = list(taken)
        while not self._queue.empty():
            unit = self._queue.get_nowait()
            if unit is not None:
                rest.append(unit)
        _tell(rest, failure)


class _Observed(Exception):
    """The observer asked to stop here."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _rest(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _tell(units: Iterable[_Unit], failure: BaseException | None = None) -> None:
    """Resolve the callers' futures, each on its own event loop, one wake-up per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Unit]] = {}
    for unit in units:
        if failure is not None:
            unit.error = failure
        if unit.loop is not None:
            by_loop.setdefault(unit.loop, []).append(unit)
    for loop, told in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, told)
        except RuntimeError:  # that loop is closed: nobody waits there any more
            continue


def _resolve(units: list[_Unit]) -> None:
    for unit in units:
        unit.told = True
        if unit.settled is not None and not unit.settled.done():
            unit.settled.set_result(None)
        if unit.future is None or unit.future.done():
            continue
        if isinstance(unit.error, StopIteration):  # no future takes one, and those behind it would wait for ever
            unit.future.set_exception(RuntimeError(f"{unit.name} raised StopIteration"))
        elif unit.error is not None:
            unit.future.set_exception(unit.error)
        else:
            unit.future.set_result(unit.value)
