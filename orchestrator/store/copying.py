"""A whole copy of a database file while others write to it, through SQLite's own API.

A copy of the file by other means would miss what still stands in the WAL, or catch a page half-written. The copy is
made beside its place under another name, looked over, and only then given its name: whatever stands there is whole.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from orchestrator.errors import StoreError, UsageError


def copy_file(source: Path, target: Path) -> int:
    """A copy that its owner alone may read; how many bytes it has.

    Raises UsageError where there is a file already or no folder for one, StoreError where the copy cannot be made.
    """
    if target.exists() or target.is_symlink():
        raise _taken(target)
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", hint="Make it first, or choose another place.")
    part: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)  # 0600
        os.close(descriptor)
        part = Path(name)
        _copy(source, part)
        _name(part, target)
        return target.stat().st_size
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = "Choose a place with room that you may write to."
        raise StoreError(f"the backup {target} cannot be written: {reason or error}", hint=hint) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def _taken(target: Path) -> UsageError:
    return UsageError(f"{target} exists already, and a backup replaces nothing", hint="Choose another name.")


def _copy(source: Path, part: Path) -> None:
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(part)) as copy:
        original.backup(copy)
        # The original says that a WAL belongs to it. A backup is one file, and can be opened where nothing is written.
        copy.execute("PRAGMA journal_mode=DELETE")
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreError(
            f"the database {source} is damaged, and so would be its backup: {found}",
            hint="orch db check says what is wrong; an earlier backup may be sound",
        )


def _name(part: Path, target: Path) -> None:
    """Durable under its name, which nobody has taken meanwhile."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(part, target)
    except FileExistsError:
        raise _taken(target) from None
    except OSError:  # a file system without links
        part.rename(target)
    try:
        _settle(target.parent)
    except OSError:
        target.unlink(missing_ok=True)
        raise


def _settle(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
