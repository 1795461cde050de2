"""A backup is a whole database in one file of the owner's, whoever writes meanwhile, and never half of one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from orchestrator.errors import StoreError, UsageError
from orchestrator.store import Store, open_store
from orchestrator.values import Scope
from tests.database_kit import on
from tests.store_kit import artifact, file, opened, raw, started, using


async def _fill(store: Store) -> None:
    await started(store, "a", inputs={"x": artifact("kept")}, message="hello")


def _values(path: Path) -> tuple[tuple[str, ...], bytes]:
    """The problems of a database and the input of its last run, read through a store."""

    async def main() -> tuple[tuple[str, ...], bytes]:
        store = open_store(f"sqlite:///{path}", Scope())
        try:
            return await store.check(), (await store.artifact((await store.run("last")).id, "x")).body
        finally:
            await store.close()

    return asyncio.run(main())


@on("sqlite")
def test_S29_a_backup_is_one_whole_file_of_its_owner(tmp_path: Path, database: str) -> None:
    target = tmp_path / "copy.bak"
    before = os.umask(0)
    try:

        async def main(store: Store) -> int:
            await _fill(store)  # stands in the WAL only
            return await store.back_up(target)

        assert using(tmp_path, main) == target.stat().st_size
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name != ".orch"] == ["copy.bak"]
    target.chmod(0o400)
    with sqlite3.connect(f"file:{target}?mode=ro&immutable=1", uri=True) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    target.chmod(0o600)
    assert _values(target) == ((), b"kept")


@on("sqlite")
def test_writers_go_on_while_a_backup_is_made(tmp_path: Path, database: str) -> None:
    """Each of ten backups, taken between writes of two stores, holds whole runs only, and never fewer than before."""

    async def main() -> list[int]:
        first, second = opened(tmp_path), opened(tmp_path)
        counts = []
        try:
            for number in range(10):
                target = tmp_path / f"{number}.bak"
                await asyncio.gather(_fill(first), first.back_up(target), _fill(second))
                with sqlite3.connect(target) as copy:
                    counts.append(copy.execute("SELECT count(*) FROM run").fetchone()[0])
                    steps, inputs = copy.execute(
                        "SELECT sum(kind != 'input'), sum(kind = 'input') FROM step"
                    ).fetchone()
                    assert (steps or 0) == (inputs or 0) == counts[-1]
                copy.close()
        finally:
            await first.close()
            await second.close()
        return counts

    counts = asyncio.run(main())
    assert all(2 * number <= count <= 2 * number + 2 for number, count in enumerate(counts))


@on("sqlite")
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_a_backup_replaces_nothing(kind: str, tmp_path: Path, database: str) -> None:
    target = tmp_path / "copy.bak"
    if kind == "file":
        target.write_text("mine")
    elif kind == "link":
        target.symlink_to("nowhere")
    else:
        target.mkdir()

    async def main(store: Store) -> None:
        with pytest.raises(UsageError, match="exists already") as caught:
            await store.back_up(target)
        assert caught.value.exit_code == 2

    using(tmp_path, main)
    assert kind != "file" or target.read_text() == "mine"


@on("sqlite")
def test_a_backup_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(store: Store) -> None:
        await _fill(store)
        with pytest.raises(UsageError, match="there is no folder"):
            await store.back_up(tmp_path / "none" / "copy.bak")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"copy.bak cannot be written: No space left on device") as caught:
            await store.back_up(tmp_path / "copy.bak")
        assert caught.value.exit_code == 8
        monkeypatch.undo()

    using(tmp_path, main)
    assert [path.name for path in tmp_path.iterdir()] == [".orch"]


@on("sqlite")
def test_a_damaged_database_makes_no_backup(tmp_path: Path, database: str) -> None:
    using(tmp_path, _fill)
    path = file(tmp_path)
    raw(tmp_path, "PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = raw(tmp_path, "SELECT rootpage FROM sqlite_master WHERE name = 'content'")[0]
    (size,) = raw(tmp_path, "PRAGMA page_size")[0]
    with path.open("r+b") as handle:
        handle.seek((root - 1) * size)
        handle.write(b"\xff" * size)

    async def main(store: Store) -> None:
        with pytest.raises(StoreError, match=r"damaged|malformed"):
            await store.back_up(tmp_path / "copy.bak")

    using(tmp_path, main)
    assert [path.name for path in tmp_path.iterdir()] == [".orch"]


@on("postgres")
def test_a_server_has_backups_of_its_own(tmp_path: Path, database: str) -> None:
    async def main(store: Store) -> None:
        with pytest.raises(UsageError, match="is on a server, which has its own backups") as caught:
            await store.back_up(tmp_path / "copy.bak")
        assert caught.value.hint == f"pg_dump writes {tmp_path / 'copy.bak'}."

    using(tmp_path, main)
