"""A PostgreSQL of the tests' own: started in a folder of its own when a test first needs it, stopped at the end.

It sorts text by the rules of English, as many servers do, so that an order that was left to the server shows. Nothing
is synced to disk. Databases are copies of a template that holds our schema; their owner is no superuser.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

PASSWORD = "not a secret: @/:?#%"  # what a URL must survive
INSTALL = "apt-get install -y --no-install-recommends postgresql"
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_ACCOUNT = "postgres"  # a server refuses to run as root


def programs() -> Path:
    """The folder of the newest server's programs. Fails the test where there is none: it is never skipped."""
    on_path = shutil.which("initdb")
    folders = (
        glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin") + glob.glob("/opt/*/opt/postgresql*/bin")
    )
    found = sorted(folders, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    if on_path is None and not found:
        pytest.fail(f"PostgreSQL's server is not installed: {INSTALL}", pytrace=False)
    return Path(found[-1]) if found else Path(cast(str, on_path)).parent


class Server:
    """One running server. `folder` holds its files and its socket."""

    def __init__(self) -> None:
        self.bin = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="orch-pg-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")))
        self.log = self.folder / "log"
        # The server ends with the thread that started it, so that one thread does, for all of the session.
        self._spawner = ThreadPoolExecutor(1)
        self._made = 0
        self._free: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self.folder, _ACCOUNT, _ACCOUNT)
        self._initialise()
        self.port, self._process = self._started()
        self.admin("postgres", f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'")

    # --- life

    def _initialise(self) -> None:
        options = [
            "--username=admin",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--no-sync",
        ]
        said = subprocess.run([self.bin / "initdb", "--help"], capture_output=True, text=True, check=True).stdout
        options.append("--locale=C.UTF-8")
        self.has_icu = "--icu-locale" in said
        options += ["--locale-provider=icu", "--icu-locale=en-US"] if self.has_icu else []
        run = [*_as_user(), str(self.bin / "initdb"), "-D", str(self.folder / "data"), *options]
        done = subprocess.run(run, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode:
            pytest.fail(f"initdb failed: {done.stdout}{done.stderr}", pytrace=False)

    def _started(self) -> tuple[int, subprocess.Popen[bytes]]:
        for _ in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            process = self._spawner.submit(self._start, port).result()
            if process is not None:
                return port, process
        return pytest.fail(f"the server did not start: {self.log.read_text()[-2000:]}", pytrace=False)

    def _start(self, port: int) -> subprocess.Popen[bytes] | None:
        """A server on that port, ready; None where it ended at once, as when somebody else has the port."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "port": port,
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": 120,
            "deadlock_timeout": "200ms",
            "checkpoint_timeout": "1h",
            "log_min_messages": "fatal",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*_as_user(), str(self.bin / "postgres"), "-D", str(self.folder / "data"), *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd="/",
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.address("postgres", port)):
                return process
            time.sleep(0.05)
        return None

    def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """As an operator does it: connections are ended, what was committed stays. It comes again when all that happens
        meanwhile has happened."""
        self._process.send_signal(2)
        self._process.wait(60)
        meanwhile()
        process = self._spawner.submit(self._start, self.port).result()
        assert process is not None, self.log.read_text()[-2000:]
        self._process = process

    def stop(self) -> None:
        self._process.send_signal(2)  # SIGINT: end the connections and stop
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._spawner.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- databases

    def address(self, database: str, port: int | None = None) -> str:
        """For psycopg, as the superuser, through the socket."""
        return f"host={self.folder} port={port or self.port} user=admin dbname={database}"

    def url(self, database: str) -> str:
        """As a user of Orchestrator would write it, without a password (the socket asks for none)."""
        return f"postgresql://app@/{database}?host={self.folder}&port={self.port}"

    def url_by_password(self, database: str, password: str = PASSWORD) -> str:
        from urllib.parse import quote

        return f"postgresql://app:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def admin(self, database: str, sql: str, values: Any = None) -> list[Any]:
        """One statement as the superuser."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def make(self, database: str, template: str = "template1") -> None:
        self.admin("postgres", f'CREATE DATABASE "{database}" OWNER app TEMPLATE "{template}"')
        if template == "template1":
            self.admin(database, "ALTER SCHEMA public OWNER TO app")

    def drop(self, database: str) -> None:
        self.admin("postgres", f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def current(self) -> str:
        """A database with our schema and no rows; `give_back` it."""
        if self._free:
            return self._free.pop()
        if not self._made:
            self._make_template()
        self._made += 1
        database = f"t{self._made}"
        self.make(database, "current")
        return database

    def give_back(self, database: str) -> None:
        """Empty it for the next test."""
        self.admin("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])
        self.fill(database, None)
        self._free.append(database)

    def fill(self, database: str, source: str | None) -> None:
        """Give it the rows of another one, or none. To truncate, or to copy a template, makes a hundred files."""
        with psycopg.connect(self.address(database)) as target:
            target.execute("SET session_replication_role = replica")  # rows come in any order
            found = target.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            names = [f'"{name}"' for (name,) in found if name != "alembic_version"]
            target.execute("; ".join(f"DELETE FROM {name}" for name in names))
            if source is None:
                return
            with psycopg.connect(self.address(source)) as other:
                for name in names:
                    with (
                        other.cursor().copy(f"COPY {name} TO STDOUT (FORMAT binary)") as rows,
                        target.cursor().copy(f"COPY {name} FROM STDIN (FORMAT binary)") as taken,
                    ):
                        for part in rows:
                            taken.write(part)

    def _make_template(self) -> None:
        import asyncio

        from orchestrator.store import open_store
        from orchestrator.values import Scope

        self.make("current")
        with ThreadPoolExecutor(1) as elsewhere:  # a test may be inside an event loop already
            elsewhere.submit(lambda: asyncio.run(open_store(self.url("current"), Scope()).close())).result()
        self.admin("current", "TRUNCATE subject CASCADE")


def _as_user() -> list[str]:
    """Ahead of a server's program: another user where we are root, and an end with us even if we are killed."""
    if shutil.which("setpriv") is None:
        return []
    root = ["--reuid", _ACCOUNT, "--regid", _ACCOUNT, "--init-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *root, "--pdeathsig", "INT", "--"]
