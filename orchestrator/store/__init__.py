"""The store: what a run knows and has done, in one database that outlives every process.

Reading order: `records` and `orchestrator.values` (what goes in and out), `tables` (where it stands), `repository` (the
methods, one line each), then the transaction of interest: `creation`, `claims`, `calls`, `commits`, `answers`,
`adoption` write; `snapshots`, `overview`, `listings`, `journals`, `artifacts`, `runs` read. `sql`, `guard` and `scrub`
are the gate that everything passes. `database` says what is asked of a database; there are two: `embedded` (with
`sqlite` and `writer`, the one thread that writes) and `server` (with `pooled`); `opening` and `migrate` bring them up.

The database's libraries are imported when a store is opened, not before: `orch --help` needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.clock import Clock, SystemClock
from orchestrator.values import Scope

if TYPE_CHECKING:
    from orchestrator.store.repository import Store

__all__ = ["Store", "open_store"]


def open_store(
    url: str,
    scope: Scope,
    *,
    clock: Clock | None = None,
    synchronous: Literal["FULL", "NORMAL"] = "FULL",
    secrets: Sequence[str] = (),
    opening_timeout: float = 5.0,
    busy_timeout: float = 30.0,
    create: bool = True,
    observer: Callable[[str], None] | None = None,
    waiting: Callable[[float], None] = lambda seconds: None,
) -> Store:
    """Open the database `sqlite:///path` or `postgresql://…` for one scope, making or migrating its tables if need be.

    `secrets` are values that must never be stored (S29). The timeouts, in seconds, are for locks that other programs
    hold and for servers that do not answer: while opening, and while writing. `synchronous` is SQLite's; a server has
    settings of its own. With `create` False a database that is not there yet is not made.

    `waiting` is told, once for each write that has waited two seconds for another process to let go of a SQLite file,
    for how many more seconds it will; it is called in the thread that waits, and must not block.

    `observer` hears `method:begin` and `method:committed` around each write; what it raises stops the writer, as the
    end of the process would.

    Raises StoreError for a folder that cannot be written, a server that cannot be reached, a database that is not ours,
    a locked or a newer one; code `store_empty` for one that is not there and not to be made.
    """
    from orchestrator.store.database import Opening
    from orchestrator.store.opening import open_database
    from orchestrator.store.repository import Store

    options = Opening(synchronous, opening_timeout, busy_timeout, create, waiting)
    opened = open_database(url, scope, clock or SystemClock(), secrets, options)
    return Store(opened, url, observer)


def __getattr__(name: str) -> Any:
    if name == "Store":
        from orchestrator.store.repository import Store

        return Store
    raise AttributeError(name)
