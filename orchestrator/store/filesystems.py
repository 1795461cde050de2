"""Which file system holds a path. SQLite cannot work on a network's: its lock is kept by each machine on its own, and
the memory that its readers and its writer share is no other machine's (S30). It would seem to work, and lose runs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from orchestrator.errors import StoreError

MOUNTS = Path("/proc/self/mountinfo")
_NAMES: Final = """
nfs nfs4 cifs smb2 smb3 smbfs afs ceph glusterfs lustre beegfs gpfs orangefs pvfs2 coda ncpfs davfs davfs2 sshfs s3fs
gcsfuse goofys rclone blobfuse blobfuse2 juicefs cvmfs2
"""
_NETWORK: Final = frozenset(_NAMES.split())


def refuse_network(path: Path) -> None:
    """Raises StoreError where a path, there already or not, lies on a network file system."""
    kind = kind_of(path)
    if kind is not None and kind.removeprefix("fuse.") in _NETWORK:
        raise StoreError(
            f"the database {path} is on a network file system ({kind}), where several programs cannot share it safely",
            hint="choose a local disk with --db URL or ORCH_DB (sqlite:////local/orch.db), or postgresql://…",
        )


def kind_of(path: Path) -> str | None:
    """The type of the file system, as the system names it; None where it does not say (it does on Linux)."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real, found = path.resolve(), (-1, "")
    for line in lines:
        mount, _, rest = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) > 4 and real.is_relative_to(at := Path(_plain(fields[4]))):
            found = max(found, (len(at.parts), rest.partition(" ")[0]), key=lambda entry: entry[0])
    return found[1] or None


def _plain(field: str) -> str:
    """A path of the list without its escapes: `\\040` is a blank."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)
