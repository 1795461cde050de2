"""Writing for one user: a file is whole or as it was, and what is private stays so (S29)."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, body: bytes) -> None:
    """Give a file new content, whole or not at all, readable by its user only. A symbolic link is replaced, not
    followed. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def keep_private(path: Path) -> None:
    """A file or folder of our own user that others may read is closed to them. Raises OSError."""
    state = path.stat()
    if state.st_mode & 0o077 and state.st_uid == os.geteuid():
        path.chmod(state.st_mode & 0o700)


def private_folder(path: Path, *, ignored: bool = True) -> Path:
    """A folder for its user only (0700), made if need be, and left out of git by a file in it. Raises OSError.

    A symbolic link is refused: a project that comes with one would have its user write somewhere else (S24).
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep_private(path)
    ignore = path / ".gitignore"
    if ignored and not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return path
