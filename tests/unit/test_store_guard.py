"""S16, S20: a statement that leaves the scope cannot be built, whichever way it would; and only the store has SQL."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import orchestrator.store
from orchestrator.store import guard, tables
from orchestrator.store.scrub import Scrubber
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import Scope

HELD: Final = "s.tenant = :tenant AND s.account = :account AND s.subject = :subject"
PACKAGE: Final = Path(orchestrator.store.__file__).parents[1]


def statements() -> Iterator[tuple[str, str]]:
    """Every fixed statement of the store, by the module and name that hold it."""
    for found in pkgutil.iter_modules(orchestrator.store.__path__, "orchestrator.store."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, Sql):
                yield f"{found.name}.{name}", value.text


def test_S16_every_statement_of_the_store_holds_its_tables() -> None:
    found = dict(statements())
    assert len(found) > 60
    assert {name: guard.fault(text) for name, text in found.items() if guard.fault(text)} == {}


def test_S16_dropping_any_one_predicate_is_noticed() -> None:
    """By mutation: without one comparison, or with a word in place of a parameter, no statement can be built."""
    predicate = re.compile(r"(?:\w+\.)?\b(tenant|account|subject) = :\1")
    dropped = 0
    for name, text in statements():
        for match in predicate.finditer(text):
            for instead in ("1 = 1", match[0].replace(f":{match[1]}", "'acme'"), match[0].replace(":", ":other_")):
                mutant = text[: match.start()] + instead + text[match.end() :]
                assert guard.fault(mutant) is not None, f"{name} without {match[0]}"
                dropped += 1
        for column in guard.COLUMNS:
            mutant = text.replace("VALUES (:tenant, :account, :subject", "VALUES (:a, :b, :c").replace(column, column)
            assert mutant == text or guard.fault(mutant) is not None, name
    assert dropped > 500


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("SELECT id FROM run", "hold run"),
        ("SELECT COUNT(id) FROM run WHERE tenant = :tenant AND account = :account", "hold run"),
        (f"SELECT * FROM step s JOIN run r ON r.id = s.run_id WHERE {HELD}", "hold run"),
        (f"SELECT * FROM step s LEFT JOIN step t ON t.id = s.id WHERE {HELD}", "hold step"),
        (f"SELECT * FROM step s WHERE {HELD} AND s.id IN (SELECT s.id FROM attempt s)", "hold attempt"),
        (f"SELECT * FROM step s, run r WHERE {HELD}", "joined"),
        ("UPDATE run SET status = 'x' WHERE id = :id", "hold run"),
        ("DELETE FROM run", "hold run"),
        (
            "UPDATE run SET tenant = :tenant WHERE tenant = :tenant AND account = :account AND subject = :subject",
            "moves",
        ),
        ("UPDATE run SET x = 1, subject = :subject WHERE {scope}", "moves"),
        ("INSERT INTO run (id) VALUES (:id)", "inserts into run"),
        ("INSERT INTO run (tenant, account, subject, id) VALUES ('a', :account, :subject, :id)", "inserts into run"),
        ("INSERT INTO run (tenant, account, subject) SELECT tenant, account, subject FROM step", "inserts into run"),
        (
            "INSERT INTO t (tenant, account, subject, id) VALUES (:tenant, :account, :subject, :id)"
            " ON CONFLICT (id) DO UPDATE SET x = 1",
            "hold t",
        ),
    ],
)
def test_S20_a_statement_that_leaves_the_scope_is_refused(statement: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM run WHERE {scope}",
        "SELECT * FROM step s JOIN run r ON r.id = s.run_id AND {scope:r} WHERE {scope:s}",
        "WITH RECURSIVE chain (id) AS (SELECT a.id FROM artifact a WHERE {scope:a}) SELECT id FROM chain",
        "SELECT version_num FROM alembic_version",
        "SELECT 1",
    ],
)
def test_a_statement_inside_the_scope_is_built(statement: str) -> None:
    assert "{scope" not in Sql(statement).text


class Recorder:
    """A cursor that keeps what it was given."""

    rowcount = 1

    def __init__(self) -> None:
        self.given: list[object] = []

    def execute(self, sql: str, parameters: object, /) -> None:
        self.given.append(parameters)

    def executemany(self, sql: str, parameters: object, /) -> None:
        self.given.append(parameters)

    def fetchone(self) -> None: ...

    def fetchall(self) -> list[object]:
        return []


def test_S20_whatever_a_caller_says_the_scope_comes_from_the_scope() -> None:
    cursor = Recorder()
    tx = Tx(cursor, Scope("acme", "a1", "ana"), Scrubber([]), 0)
    add = insert("run", "id")
    tx.run(add, id="x", tenant="other", subject="ben")
    tx.many(add, [{"id": "y", "account": "a2"}])
    ours = {"tenant": "acme", "account": "a1", "subject": "ana"}
    assert cursor.given == [{"id": "x", **ours}, [{"id": "y", **ours}]]


# --- only the repository issues SQL ---

ISSUERS: Final = {"copying.py", "sql.py", "sqlite.py", "embedded.py", "server.py", "server_engine.py", "migrate.py"}
RAW: Final = {"execute", "executemany", "executescript", "exec_driver_sql", "raw_connection", "cursor", "create_engine"}
LIBRARIES: Final = {"sqlalchemy", "sqlmodel", "alembic", "sqlite3", "psycopg"}


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in PACKAGE.rglob("*.py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_S20_only_the_store_knows_a_database_library() -> None:
    for path, tree in _trees():
        inside = path.parent.name in ("store", "migrations", "versions")
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            used = {name.split(".")[0] for name in names} & LIBRARIES
            # `orch doctor` asks for the version number of the library.
            assert inside or not used or (path.name == "doctor.py" and used == {"sqlite3"}), f"{path}: {used}"


def test_S20_only_a_handful_of_files_touch_a_cursor() -> None:
    for path, tree in _trees():
        if path.name in ISSUERS or "migrations" in path.parts or path.parent.name != "store":
            continue
        calls = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not calls & RAW, f"{path}: {calls & RAW}"


def test_the_guard_knows_every_table() -> None:
    """No table of ours has a name that the guard takes for the database's own."""
    for name in tables.metadata.tables:
        assert guard.fault(f"SELECT * FROM {name}") is not None, name
