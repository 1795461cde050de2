"""Who works on what: a process says so in a row, and others judge by it whether that process still lives.

A worker is alive while its heartbeat is young; one of this very machine and boot whose process is gone is dead at
once, so that a killed run can go on without waiting. The machine counts by name and boot id together: two containers
share a boot id, but not their process numbers.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from orchestrator.ids import uuid7
from orchestrator.store.sql import Sql, Tx, insert

LEASE_US: Final = 30_000_000

_REGISTER = insert("worker", "id host boot_id pid started_at heartbeat_at")
_HEARTBEAT = Sql("UPDATE worker SET heartbeat_at = :now WHERE id = :id AND {scope}")
_WORKER = Sql("SELECT host, boot_id, pid, heartbeat_at FROM worker WHERE id = :id AND {scope}")


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from others of other machines and earlier boots."""

    host: str
    boot_id: str
    pid: int


@cache
def _machine() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return socket.gethostname(), boot.read_text().strip() if boot.exists() else ""


def this_process() -> Process:
    return Process(*_machine(), os.getpid())


def register(tx: Tx) -> str:
    """A row for this process; its id."""
    worker, me = uuid7(), this_process()
    tx.run(_REGISTER, id=worker, host=me.host, boot_id=me.boot_id, pid=me.pid, started_at=tx.now, heartbeat_at=tx.now)
    return worker


def heartbeat(tx: Tx, worker: str) -> None:
    tx.run(_HEARTBEAT, id=worker, now=tx.now)


def living(tx: Tx, worker: str) -> Process | None:
    """The worker's process if it must be taken to be alive, else None."""
    row = tx.one(_WORKER, id=worker)
    if row is None or tx.now - row[3] >= LEASE_US:
        return None
    process = Process(*row[:3])
    return None if _is_gone(process) else process


def _is_gone(process: Process) -> bool:
    """True only for a process of this machine and boot that does not exist any more."""
    me = this_process()
    if not me.boot_id or (process.host, process.boot_id) != (me.host, me.boot_id):
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
