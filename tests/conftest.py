"""For all tests: what commands keep for their user goes to a folder of the test session, never to the developer's; all
folders are in memory where there is room; and the databases that tests of the store and whole walks run on.

A test that uses `database` runs once for each kind; one that knows only SQLite, or only PostgreSQL, says so with
`@on("sqlite")` from `tests.database_kit`. The server is started when the first test asks for it, and is never skipped.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.database_kit import KINDS, Kind, databases, made_at_once

if TYPE_CHECKING:
    from tests.postgres_kit import Server

# Thousands of times a test writes down what was paid for, and SQLite waits for the disk. That it does ask the disk is
# proved by what it reports; a killed process loses nothing that the system has.
MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; all folders of one session hold a tenth of it


def _in_memory() -> bool:
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(MEMORY)
    return found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC


if _in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# No test judges by time: how long an example takes says how busy the machine is.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


@pytest.fixture(scope="session", autouse=True)
def own_data_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data-home"))
    yield
    if before is None:
        del os.environ["XDG_DATA_HOME"]
    else:
        os.environ["XDG_DATA_HOME"] = before


# Where the migrations themselves are the point.
MIGRATE = frozenset({"test_store_opening", "test_server_opening", "test_hostile_store"})


@pytest.fixture(autouse=True)
def schema_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new SQLite file gets its schema at once, in this process; programs that tests start migrate it."""
    if request.module.__name__.rpartition(".")[2] not in MIGRATE:
        monkeypatch.setattr("orchestrator.store.migrate.upgrade", made_at_once)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL of this test session's own."""
    from tests.postgres_kit import Server

    server = Server()
    yield server
    server.stop()


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """The kind of database that a folder of this test has."""
    kind: Kind = request.param
    server = request.getfixturevalue("postgres") if kind == "postgres" else None
    with databases.on(server):
        yield kind


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, in each worker's share: whoever has none left takes short ones from another's end.

    Shares are halves, thirds, … of the list. A file's tests stay together, for what they make once.
    """
    shares = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("slow")]
    short = [item for item in items if not item.get_closest_marker("slow")]
    dealt: list[list[pytest.Item]] = [[] for _ in range(shares)]
    for turn, (_, group) in enumerate(itertools.groupby(long, lambda item: item.path)):
        dealt[turn % shares].extend(group)
    size = len(items) / shares
    for share, end in zip(dealt, range(shares), strict=True):
        until = round(size * (end + 1)) - round(size * end) - len(share)
        share.extend(short[:until])
        del short[:until]
    items[:] = [item for share in dealt for item in share] + short
