"""Writing for one user: a file is whole or as it was, and what is private stays so (S29)."""

from __future__ import annotations

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


def private_folder(path: Path) -> Path:
    """A folder for its user only (0700), left out of git, made if need be. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    ignored = path / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n", encoding="utf-8")
    return path
