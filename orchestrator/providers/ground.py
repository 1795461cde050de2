"""Where the processes of one machine meet: a ledger for each limit, in memory or in a small file of the user's.

A vendor counts by account, not by project or database, so the files lie with the user's own data. Times in them are
of the machine's monotonic clock, which all its processes share and which ends with a boot; so a file's name holds the
boot, and files of earlier ones are removed. Processes on other machines are not seen: each machine keeps its own count.

A file holds counts, process numbers and names of tenants by their hash, never content.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

from orchestrator.ids import sha256
from orchestrator.providers.ledger import Ledger

T = TypeVar("T")
PATIENCE: Final = 0.02  # seconds that a file may be locked by others before we look again later


class Ground(Protocol):
    def change(self, work: Callable[[Ledger], T]) -> T | None:
        """Do this to the ledger while nobody else does; None where somebody else is at it."""
        ...


class MemoryGround:
    """A ledger of this process alone."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def change(self, work: Callable[[Ledger], T]) -> T | None:
        return work(self.ledger)


class FileGround:
    """A ledger in a file, under its lock. What cannot be read begins anew: a minute later it is whole again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def change(self, work: Callable[[Ledger], T]) -> T | None:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _locked(file):
                return None
            ledger = _read(file)
            result = work(ledger)
            body = json.dumps(ledger.data(), separators=(",", ":")).encode()
            os.ftruncate(file, 0)
            os.pwrite(file, body, 0)
            return result
        finally:
            os.close(file)  # and with it the lock


def _locked(file: int) -> bool:
    import fcntl

    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
        else:
            return True


def _read(file: int) -> Ledger:
    body = b""
    while piece := os.pread(file, 1 << 16, len(body)):
        body += piece
    try:
        return Ledger.of(json.loads(body))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return Ledger()


def common_ground(environ: Mapping[str, str]) -> Callable[[str], Ground]:
    """What gives each limit its ground: files of this user, or memory where there is no place for them.

    `environ` is the process environment: a project's `.env` has no say in where files lie.
    """
    configured, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    base = Path(configured) if Path(configured).is_absolute() else Path(home) / ".local" / "share" if home else None
    kept: dict[str, Ground] = {}

    def ground(name: str) -> Ground:
        if name not in kept:
            kept[name] = _open(base / "orchestrator" / "limits" if base is not None else None, name)
        return kept[name]

    return ground


def _open(folder: Path | None, name: str) -> Ground:
    try:
        import fcntl  # noqa: F401  not everywhere

        if folder is None or not folder.is_absolute():
            return MemoryGround()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        boot = _boot()
        for old in folder.glob("*.json"):
            if not old.name.startswith(f"{boot}-") and time.time() - old.stat().st_mtime > 86400:
                with contextlib.suppress(OSError):
                    old.unlink()
        ground = FileGround(folder / f"{boot}-{sha256(name)[:24]}.json")
        ground.change(lambda ledger: None)
        return ground
    except (ImportError, OSError):  # no such lock, no home, a read-only one: limits then hold in this process
        return MemoryGround()


def _boot() -> str:
    """This machine since it was started, as all processes see it that share its process numbers."""
    path, names = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    boot = path.read_text().strip() if path.exists() else ""
    space = os.readlink(names) if names.exists() else ""
    return sha256(f"{socket.gethostname()} {boot} {space}")[:12]


def is_alive(process: int) -> bool:
    """Whether a process of this machine still exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
