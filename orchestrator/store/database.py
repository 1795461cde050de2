"""What the store asks of a database, whichever it is. `embedded` is SQLite in a file, `server` is PostgreSQL.

The SQL is the same on both; what differs is how a transaction begins, who waits for whom, and what an error means.
Everything here blocks and is called off the event loop; no connection is held between two calls, and so never while a
provider is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from sqlalchemy import Connection

from orchestrator.errors import StoreError
from orchestrator.store.sql import Cursor, Tx

T = TypeVar("T")
Observer = Callable[[str], None]
MakeTx = Callable[[Cursor], Tx]


@dataclass(frozen=True, slots=True)
class Opening:
    """How to open: SQLite's `synchronous`; seconds for what other programs hold while opening, and while writing;
    whether a database that is not there is made; and who hears of a long wait (see `open_store`)."""

    synchronous: Literal["FULL", "NORMAL"]
    opening_timeout: float
    busy_timeout: float
    create: bool = True
    waiting: Callable[[float], None] = lambda seconds: None


def missing(place: str) -> StoreError:
    """The database is not there, and was not to be made."""
    return StoreError(f"the database {place} has nothing in it yet", hint="orch run makes it", code="store_empty")


class Writing(Protocol):
    """The write side: units of work, each all or nothing."""

    async def write(self, name: str, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        """Run the unit; its result once it is committed. A cancelled caller is let go when the unit is settled.

        A commit outlives the process in any case. One that need not outlive a power cut (`durable` False: nothing was
        paid for it, and losing it only repeats work) does not wait for the disk.
        """
        ...

    def write_later(self, name: str, work: Callable[[Tx], object]) -> None:
        """A unit that nobody waits for."""
        ...

    def close(self) -> None:
        """Settle what has been asked for, and take no more; may block."""
        ...


class Database(Protocol):
    """One database, opened and current. `place` names it in messages and holds no password; at most `connections`
    calls may be under way at once."""

    @property
    def place(self) -> str: ...

    @property
    def connections(self) -> int: ...

    def read(self, work: Callable[[Tx], T]) -> T:
        """One read transaction: all of it sees the same moment."""
        ...

    def browse(self, work: Callable[[Connection], T]) -> T:
        """The same, through SQLAlchemy."""
        ...

    def write(self, work: Callable[[Tx], T]) -> T:
        """One write transaction, here and now: for opening, before there is a `writing`."""
        ...

    def writing(self, threads: ThreadPoolExecutor, observer: Observer | None) -> Writing:
        """The write side, which may use these threads. `observer` hears `name:begin` and `name:committed` of each
        unit, from whichever thread; what it raises ends all writing, as the end of the process would."""
        ...

    def explain(self, error: BaseException) -> BaseException:
        """What the database refused, as a StoreError with a way out; anything else as it is."""
        ...

    def damage(self, connection: Connection) -> list[str]:
        """What is wrong with the database itself, as sentences."""
        ...

    def copy_to(self, target: Path) -> int:
        """A whole copy in a new file, whoever writes meanwhile; its size in bytes. Raises UsageError for a server."""
        ...

    def compact(self) -> tuple[int, int] | None:
        """Give room that is not used back to the system: the bytes before and after. None where the database does so
        by itself."""
        ...

    def close(self) -> None: ...
