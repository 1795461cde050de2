"""Ctrl-C and its kin, two commands at once, and a database that cannot be used: locked, newer, damaged, read-only.

What is finished stays, the run says how to go on, and no command hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.cli import main
from orchestrator.store import Store, open_store, sqlite
from tests.process_kit import Process
from tests.walk.wrong import BRIEF, Desk, starter

SLOW_STEP = """
import asyncio, pathlib, time


async def count(key_points):
    if not pathlib.Path("go").exists():
        pathlib.Path("waiting").touch()
        {wait}
    return {{"points": 1, "open_questions": 0}}
"""
LONG = 480  # seconds, of what no test waits for
STUBBORN = """while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pathlib.Path("asked").touch()"""
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    return starter(tmp_path, capsys, monkeypatch)


def wait_for(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(process: Process) -> tuple[int, str, str]:
    """How a process has ended; one that waits for what lasts `LONG` does not in time."""
    out, err = process.communicate(timeout=LONG / 4)
    assert "Traceback" not in err
    return process.returncode, out, err


def calls(desk: Desk) -> dict[str, tuple[str, int]]:
    return {step["name"]: (step["status"], step["calls"]) for step in desk.document("show", "1")["run"]["steps"]}


# --- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_call_pauses_the_run_and_resume_repeats_nothing_finished(
    number: signal.Signals, desk: Desk
) -> None:
    text = (desk.root / "sample_answers" / "announcement.json").read_text(encoding="utf-8")
    replies = json.loads(text)
    desk.answers("announcement", *({**reply, "delay": LONG} for reply in replies))
    process = desk.started("run", *BRIEF)
    wait_for(lambda: desk.orch("show")[0] == 0 and calls(desk).get("announcement", ("", 0))[1] == 1)
    process.send_signal(number)
    code, out, err = ended(process)  # the call is given up, not waited for
    assert code == 130
    assert err.splitlines()[-1] == "run 1 is paused: orch resume 1"
    assert "✓ key-points" in out
    shown = desk.orch("show", "1")[1]
    assert "run 1 · launch · paused" in shown
    assert "interrupted" in shown
    assert "orch resume 1" in shown
    assert calls(desk)["key-points"] == ("succeeded", 1)
    desk.write("sample_answers/announcement.json", text)
    done = desk.document("resume")["run"]
    assert (done["number"], done["status"]) == (1, "succeeded")
    assert calls(desk)["key-points"] == ("succeeded", 1)
    assert calls(desk)["size"] == ("succeeded", 0)


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_function_that_cannot_be_stopped(desk: Desk) -> None:
    desk.write("counting.py", SLOW_STEP.format(wait=f"time.sleep({LONG})").replace("async def", "def"))
    process = desk.started("run", *BRIEF)
    wait_for((desk.root / "waiting").exists)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err.splitlines()[-1]) == (130, "run 1 is paused: orch resume 1")
    assert desk.document("show", "1")["run"]["status"] == "paused"


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once_and_the_run_can_be_resumed(desk: Desk) -> None:
    desk.write("counting.py", SLOW_STEP.format(wait=STUBBORN))
    process = desk.started("run", *BRIEF)
    wait_for((desk.root / "waiting").exists)
    live = desk.orch("show", "1")[1]
    assert "run 1 · launch · running" in live
    assert "▸ size" in live
    process.send_signal(signal.SIGINT)
    wait_for((desk.root / "asked").exists)
    assert process.poll() is None, "the step does not give in"
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    shown = desk.orch("show", "1")[1]
    assert "run 1 · launch · interrupted" in shown, "nobody works on it any more"
    assert "orch resume 1" in shown
    desk.write("go", "")
    assert desk.document("resume", "1")["run"]["status"] == "succeeded"
    assert calls(desk)["key-points"] == ("succeeded", 1)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.1, 0.3])
def test_ctrl_c_before_anything_has_begun_is_130_without_a_traceback(after: float, desk: Desk) -> None:
    # A real start: how an interpreter answers while it imports is the point.
    command = [sys.executable, "-m", "orchestrator", "run", *BRIEF]
    process = subprocess.Popen(
        command, cwd=desk.root, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    assert "orchestrator/cli" not in err, err
    # 1 and the signal itself: not yet a program that could answer; Python starts, and says so in its own way.
    # 0: this test was held up for so long that the run had ended.
    assert process.returncode in (130, 1, -signal.SIGINT, 0)
    if process.returncode == 130:
        assert (out, err) == ("", "interrupted\n") or err.endswith("run 1 is paused: orch resume 1\n")


class _Struck:
    """What Ctrl-C meets while a class is being made: Python before 3.12 makes a RuntimeError of it."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_while_a_class_is_being_made_is_an_interrupt_and_no_bug(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def struck(*_: object, **__: object) -> None:
        type("Made", (), {"name": _Struck()})

    monkeypatch.setattr("orchestrator.cli.app.root", struck)
    assert desk.orch("check") == (130, "", "interrupted\n")


def test_ctrl_c_while_the_program_is_being_imported_is_an_interrupt_and_no_bug(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def struck(_: object) -> int:
        raise RuntimeError("Error calling __set_name__ on '_proto_member' instance") from KeyboardInterrupt()

    monkeypatch.setattr("orchestrator.cli.app.run", struck)
    with pytest.raises(SystemExit) as ending:
        main()
    assert (ending.value.code, capsys.readouterr().err) == (130, "interrupted\n")


@pytest.mark.slow
def test_a_run_that_is_live_elsewhere_is_not_resumed_and_its_process_is_named(desk: Desk) -> None:
    desk.write("counting.py", SLOW_STEP.format(wait="await asyncio.sleep(60)"))
    process = desk.started("run", *BRIEF)
    wait_for((desk.root / "waiting").exists)
    error, _ = desk.refused(2, "resume", "1")
    assert error["code"] == "run_busy"
    assert f"process {process.pid} " in error["message"]
    assert "--take-over" in error["hint"]
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


# --- at once ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_runs_at_once_on_a_new_database_both_succeed(desk: Desk) -> None:
    processes = [desk.started("run", *BRIEF, "--json") for _ in range(2)]
    done = [json.loads(ended(process)[1])["run"] for process in processes]
    assert [run["status"] for run in done] == ["succeeded", "succeeded"]
    assert sorted(run["number"] for run in done) == [1, 2]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's patience with locks of other programs, 5 and 30 seconds, is a tenth of one here."""
    assert open_store.__kwdefaults__ is not None
    for name in ("opening_timeout", "busy_timeout"):
        assert open_store.__kwdefaults__[name] >= 5
        monkeypatch.setitem(open_store.__kwdefaults__, name, 0.1)


@contextmanager
def held(desk: Desk, *, whole: bool) -> Iterator[None]:
    """Another program that writes, or (`whole`) keeps even readers out."""
    with sqlite3.connect(desk.root / ".orch" / "orch.db", isolation_level=None) as other:
        if whole:
            other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def test_a_locked_database_is_code_8_and_looking_still_works(desk: Desk, impatient: None) -> None:
    assert desk.orch("run", *BRIEF)[0] == 0
    with held(desk, whole=False):
        for command in (["run", *BRIEF], ["resume", "1"], ["edit", "1/size", "--set", "points=7"]):
            error, _ = desk.refused(8, *command)
            assert error["code"] == "store_locked"
            assert "is locked by another program" in error["message"]
        for command in (["runs"], ["show", "1"], ["why", "1/key-points"]):
            assert desk.orch(*command)[0] == 0
    assert [run["number"] for run in desk.runs] == [1]
    assert calls(desk)["size"] == ("succeeded", 0)


def test_a_database_that_is_locked_for_readers_too_is_code_8_for_every_command(desk: Desk, impatient: None) -> None:
    assert desk.orch("run", *BRIEF)[0] == 0
    with held(desk, whole=True):
        for command in (["run", *BRIEF], ["runs"], ["show", "1"]):
            assert desk.refused(8, *command)[0]["code"] == "store_locked"
    assert [run["number"] for run in desk.runs] == [1]


# --- a database that is not for us ------------------------------------------------------------------------------------


def test_a_newer_database_is_code_8_and_left_alone(desk: Desk) -> None:
    assert desk.orch("run", *BRIEF)[0] == 0
    file = desk.root / ".orch" / "orch.db"
    with sqlite3.connect(file) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        before = list(database.iterdump())
    for command in (["run", *BRIEF], ["resume"], ["show", "1"], ["runs"], ["edit", "1/size", "--set", "points=7"]):
        error, _ = desk.refused(8, *command)
        assert "newer version" in error["message"]
        assert "update Orchestrator" in error["hint"]
    with sqlite3.connect(file) as database:
        assert list(database.iterdump()) == before
    assert list(file.parent.glob("*.bak")) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"not a database, " * 100, "is not a database"),
        (b"SQLite format 3\x00" + b"\xaa" * 5000, "it is damaged"),
        ("CREATE TABLE mine (x)", "belongs to another program"),
        ("CREATE TABLE alembic_version (version_num)", "belongs to another program"),
    ],
)
def test_a_file_that_is_not_ours_is_code_8_and_left_alone(body: bytes | str, says: str, desk: Desk) -> None:
    file = desk.root / "other.db"
    if isinstance(body, bytes):
        file.write_bytes(body)
    else:
        with sqlite3.connect(file) as database:
            database.execute(body)
            database.execute("CREATE TABLE theirs (x)")
    before = file.read_bytes()
    for command in (["run", *BRIEF], ["runs"]):
        error, _ = desk.refused(8, *command, "--db", "sqlite:///other.db")
        assert says in error["message"]
        assert "--db" in error["hint"]
    assert file.read_bytes() == before


@pytest.mark.parametrize("url", ["sqlite:///plain/x.db", "sqlite:///briefs", "mysql://host/db", "sqlite:///:memory:"])
def test_a_place_that_can_hold_no_database_is_code_8(url: str, desk: Desk) -> None:
    desk.write("plain", "a file where a folder is needed")
    before = sorted(desk.root.rglob("*"))
    desk.refused(8, "run", *BRIEF, "--db", url)
    assert sorted(desk.root.rglob("*")) == before


# --- read-only --------------------------------------------------------------------------------------------------------


def without_privileges() -> None:
    """In the child, before it becomes the command: even root is bound by the modes of files and folders."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if os.geteuid() == 0 and libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def bound(desk: Desk, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=desk.root,
        env=desk.environment(),
        capture_output=True,
        text=True,
        preexec_fn=without_privileges,
        timeout=60,
        check=False,
    )


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(bits)
    try:
        yield
    finally:
        path.chmod(before)


@pytest.mark.slow
def test_a_read_only_folder_is_code_8_and_nothing_is_written(desk: Desk) -> None:
    before = sorted(desk.root.rglob("*"))
    (desk.root / ".orch").mkdir(exist_ok=True)
    with mode(desk.root / ".orch", 0o555), mode(desk.root, 0o555):
        done = bound(desk, "run", *BRIEF, "--json")
        assert done.returncode == 8, done.stderr
        error = json.loads(done.stdout)["error"]
        assert "cannot be opened: Permission denied" in error["message"]
        assert "make the folder writable" in error["hint"]
        assert bound(desk, "check").returncode == 0
    assert set(desk.root.rglob("*")) - set(before) <= {desk.root / ".orch"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bits"), [(".orch", 0o555), (".orch/orch.db", 0o444), (".orch/orch.db", 0o000)])
def test_a_database_that_cannot_be_written_is_code_8_and_its_mode_stays(name: str, bits: int, desk: Desk) -> None:
    assert desk.orch("run", *BRIEF)[0] == 0
    with mode(desk.root / name, bits):
        done = bound(desk, "run", *BRIEF)
        assert done.returncode == 8, done.stdout
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert (desk.root / name).stat().st_mode & 0o200 == 0, "who made it read-only has meant it"
    assert [run["number"] for run in desk.runs] == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("pipelines/launch.yaml", 3, "error[P001]: pipelines/launch.yaml cannot be read: Permission denied"),
        ("templates/announcement.md.j2", 3, "the template announcement.md.j2 cannot be read: Permission denied"),
        (".env", 3, "cannot be read: Permission denied"),
        ("orchestrator.toml", 3, "cannot be read: Permission denied"),
        ("briefs/launch.json", 2, "briefs/launch.json cannot be read: Permission denied"),
    ],
)
def test_a_file_that_may_not_be_read_is_named(name: str, code: int, says: str, desk: Desk) -> None:
    with mode(desk.root / name, 0o000):
        done = bound(desk, "run", *BRIEF)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (desk.root / ".orch" / "orch.db").exists()


# --- another process holds the database -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [("run", *BRIEF), ("edit", "1/key-points", "--set", "headline=Another one")], ids=["run", "edit"]
)
def test_who_waits_for_another_process_is_told(
    command: tuple[str, ...], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other lets go once this one has said that it waits; it waits for half a minute, and not in silence."""
    desk.orch("run", *BRIEF)
    opening = open_store
    monkeypatch.setattr(sqlite, "PATIENCE_SECONDS", 0.02)
    path = desk.root / ".orch" / "orch.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:

        def opened(*given: Any, waiting: Callable[[float], None], **more: Any) -> Store:
            def told(seconds: float) -> None:
                waiting(seconds)
                other.execute("ROLLBACK")

            return opening(*given, waiting=told, **more)

        monkeypatch.setattr(engine, "open_store", opened)
        other.execute("BEGIN IMMEDIATE")
        code, out, err = desk.orch(*command)
    assert code == 0, err
    said = [line.strip() for line in (out + err).splitlines() if "locked" in line]
    assert said == ["the database is locked by another process; waiting for it, up to 30 s more"]
