"""The command line on a database server: the address shown without its password, one sentence for what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.database_kit import Kind, databases, on
from tests.postgres_kit import PASSWORD, Server
from tests.walk.four_steps import PIPELINE, STEPS
from tests.walk.harness import House
from tests.walk.wrong import Desk

SECRET = "hunter-2-canary"


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    answers = {f"answers/{step}.json": json.dumps([{"text": f"{step}!"}]) for step in STEPS}
    House(tmp_path, PIPELINE, {}, files=answers)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_MODEL", "scripted:answers")
    monkeypatch.setenv("ORCH_TRUST", "1")
    monkeypatch.delenv("ORCH_DB", raising=False)
    return Desk(tmp_path, capsys)


@pytest.fixture
def served(postgres: Server, database: Kind, tmp_path: Path) -> str:
    """The name of an empty database of our schema."""
    return databases.name(tmp_path / "db")


@on("postgres")
def test_a_project_lives_on_a_server(
    desk: Desk, postgres: Server, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run, runs, show, edit, rerun, and a look with another subject; no database file is made, no password is shown."""
    monkeypatch.setenv("ORCH_DB", postgres.url_by_password(served))
    (desk.root / "new.txt").write_text("by ana")
    for command in (
        ("run", "--set", "idea=red", "--yes"),
        ("show", "last/d"),
        ("edit", "last/a", "--file", "new.txt"),
        ("rerun", "last", "--from", "b"),
        ("why", "last/b"),
        ("doctor",),
    ):
        code, out, err = desk.orch(*command)
        assert code == 0, f"{command}: {out}{err}"
        assert quote(PASSWORD, safe="") not in out + err
        assert PASSWORD not in out + err
    assert [run["number"] for run in desk.runs] == [2, 1]
    assert not (desk.root / ".orch" / "orch.db").exists()
    code, out, _ = desk.orch("doctor")
    assert f"postgresql://127.0.0.1:{postgres.port}/{served}" in out
    assert "psycopg" in out
    assert desk.orch("show", "1", "--subject", "ben")[0] == 2


def test_looking_makes_no_tables(desk: Desk, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.make("untouched")
    monkeypatch.setenv("ORCH_DB", postgres.url("untouched"))
    assert desk.runs == []
    assert "made by the first run" in desk.orch("doctor")[1]
    error, _ = desk.refused(2, "show", "last")
    assert "no runs yet" in error["message"]
    assert postgres.admin("untouched", "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
    postgres.drop("untouched")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"postgresql://ana:{SECRET}@127.0.0.1:1/db", "cannot be reached"),
        (f"postgresql://ana:{SECRET}@no-such-host.invalid/db", "cannot be reached"),
        (f"postgresql://ana:{SECRET}@127.0.0.1:port/db", "cannot be read"),
        (f"mysql://ana:{SECRET}@127.0.0.1/db", "cannot be used"),
    ],
)
@pytest.mark.parametrize("command", [("runs",), ("run", "--set", "idea=x", "--yes"), ("resume",)])
def test_what_goes_wrong_is_one_sentence_and_exit_8(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, url: str, said: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("ORCH_DB", url)
    error, err = desk.refused(8, *command)
    assert said in error["message"]
    assert SECRET not in json.dumps(error) + err
    assert "Traceback" not in err


def test_the_servers_refusals_are_told(desk: Desk, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, said in (
        (postgres.url_by_password("postgres", SECRET), "refuses the user"),
        (postgres.url_by_password("nowhere"), "does not exist"),
    ):
        monkeypatch.setenv("ORCH_DB", url)
        error, err = desk.refused(8, "run", "--set", "idea=x", "--yes")
        assert said in error["message"]
        assert SECRET not in json.dumps(error) + err
        code, out, _ = desk.orch("doctor")
        assert code == 8
        assert said in out
        assert SECRET not in out
