"""What is stored for whom, and in which form: scopes (S16), bytes (S25), secrets (S29), the present (R018)."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from sqlalchemy import Connection, LargeBinary, create_engine, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from orchestrator.errors import StoreError, UsageError
from orchestrator.ids import sha256
from orchestrator.store import Store, tables
from orchestrator.store.columns import UtcTime
from orchestrator.store.records import Fenced
from orchestrator.values import (
    Commit,
    ErrorRecord,
    FactBasis,
    LeftOut,
    ManifestEntry,
    NewArtifact,
    OutputItem,
    Scope,
    TextItem,
    ToolCall,
    ToolOutput,
)
from tests.database_kit import databases, on
from tests.store_kit import (
    artifact,
    claim,
    done,
    event,
    file,
    finish,
    new_run,
    plan,
    prompt,
    raw,
    reads_of,
    sent,
    started,
    steps,
    thread,
    url,
    using,
)

pytestmark = pytest.mark.usefixtures("database")

ANA, BEN = Scope("acme", "a1", "ana"), Scope("acme", "a1", "ben")


# --- the schema ---


def test_R015_an_artifact_has_step_type_content_and_a_message_role_and_message() -> None:
    assert {"step", "type", "content"} <= set(tables.metadata.tables["artifact"].columns.keys())
    assert {"role", "message"} <= set(tables.metadata.tables["message"].columns.keys())


def test_R015_the_columns_stand_in_the_database_and_hold_what_was_said(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        def columns(connection: Connection) -> dict[str, dict[str, bool]]:
            found = inspect(connection)
            names = ("artifact", "message")
            return {t: {c["name"]: c["nullable"] for c in found.get_columns(t)} for t in names}

        there = store._database.browse(columns)
        assert [there["artifact"][name] for name in ("step", "type", "content")] == [False] * 3
        assert [there["message"][name] for name in ("role", "message")] == [False] * 2
        await started(store, "a", message="please hurry", inputs={"x": artifact("v")})

    using(tmp_path, body)
    assert raw(tmp_path, "SELECT role, message FROM message") == [("user", "please hurry")]
    assert raw(tmp_path, "SELECT step, type, content FROM artifact") == [("x", "note", sha256("v"))]


def test_S16_every_row_carries_its_scope_and_refers_to_its_subject() -> None:
    for name, table in tables.metadata.tables.items():
        for column in ("tenant", "account", "subject"):
            assert not table.columns[column].nullable, name
        targets = {key.target_fullname for key in table.foreign_keys if key.parent.name == "subject"}
        assert name == "subject" or "subject.subject" in targets
        assert {key.ondelete for key in table.foreign_keys} <= {"RESTRICT"}, name
    key = [column.name for column in tables.metadata.tables["content"].primary_key.columns]
    assert key == ["tenant", "account", "subject", "sha256"]


def test_the_tables_of_the_design_stand() -> None:
    runs = "session run step attempt thread call tool_call artifact read block content message event"
    assert {*runs.split(), "worker", "subject", "budget"} <= set(tables.metadata.tables)


def test_the_schema_has_a_form_on_postgresql() -> None:
    """Counts and times are BIGINT, bodies BYTEA: nothing is tied to SQLite's loose types."""
    dialect = cast(Any, postgresql).dialect()
    ddl = {name: str(CreateTable(table).compile(dialect=dialect)) for name, table in tables.metadata.tables.items()}
    assert "body BYTEA NOT NULL" in ddl["content"]
    assert "spent_usd BIGINT DEFAULT 0 NOT NULL" in ddl["budget"]
    for table in tables.metadata.tables.values():
        for column in table.columns:
            assert "JSON" not in str(column.type)
            assert "INTEGER" not in str(column.type.compile(dialect=dialect)), column


def test_times_are_stored_aware_and_refused_naive() -> None:
    kind, dialect = UtcTime(), create_engine("sqlite://").dialect
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert kind.process_result_value(kind.process_bind_param(at, dialect), dialect) == at
    with pytest.raises(ValueError, match="zone"):
        kind.process_bind_param(datetime(2026, 1, 2), dialect)
    assert isinstance(tables.metadata.tables["content"].columns["body"].type, LargeBinary)


# --- artifacts ---


def test_S25_bodies_are_read_back_byte_for_byte(tmp_path: Path) -> None:
    """Spaces, key order, 997.50, a final newline, NUL and emoji: the bytes that were hashed are the bytes that come."""
    text = '{"b": 997.50,  "a": 1e3, "z": "\\u0000 \N{GRINNING FACE} ü"}\n\x00'

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        facts = {"budget.usd": FactBasis("stated", "we have «5.000 €»", "brief")}
        new = replace(artifact(text, price=1), facts=facts, guards=("not the budget",), sensitivity="confidential")
        await store.claim(claim(ready["a"], worker))
        result = await store.commit(Commit(ready["a"], new))
        found = await store.artifact(run.id, "a")
        assert found.body == text.encode()
        version = found.version
        assert (version.sha256, version.size) == (sha256(text), len(text.encode()))
        assert (version.facts, version.guards, version.sensitivity) == (facts, ("not the budget",), "confidential")
        assert (version.field_hashes, version.contract) == (new.field_hashes, "note")
        assert (version.id, version.run_id, version.step, version.item) == (result.artifact_id, run.id, "a", None)
        assert version.created_at.tzinfo is UTC

    using(tmp_path, body)


def test_unknown_artifacts_are_named(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, run, _ = await started(store, "a", inputs={"x": artifact()})
        for step, version, message in (
            ("nobody", None, "nobody not found"),
            ("a", None, "a has no version yet"),
            ("x", 2, "x has no version 2"),
        ):
            with pytest.raises(UsageError, match=message) as error:
                await store.artifact(run.id, step, version=version)
            assert error.value.hint

    using(tmp_path, body)


def test_readers_are_the_steps_whose_attempts_read_a_version(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "b", "a", "c", inputs={"x": artifact("1")})
        for name in ("b", "a"):
            await store.claim(claim(ready[name], worker, reads=await reads_of(store, run.id, "x")))
        first = (await store.artifact(run.id, "x")).version
        second = await store.edit(run.id, "x", None, 1, replace(artifact("2"), author="ana", origin="person"))
        await store.claim(claim(ready["c"], worker, reads=await reads_of(store, run.id, "x")))
        assert await store.readers(first.id) == ("a", "b")
        assert await store.readers(second.id) == ("c",)

    using(tmp_path, body)


# --- the present ---

OTHER_PROCESS = """
import hashlib, sqlite3, sys
import psycopg
where, run, body = sys.argv[1], sys.argv[2], sys.argv[3].encode()
sha = hashlib.sha256(body).hexdigest()
file = where.startswith("sqlite:///")
with sqlite3.connect(where.removeprefix("sqlite:///")) if file else psycopg.connect(where) as db:
    def execute(sql, values):
        db.execute(sql if file else sql.replace("?", "%s"), values)
    execute("INSERT INTO content (tenant, account, subject, sha256, size, used_at, body)"
               " VALUES ('-', '-', '-', ?, ?, 0, ?)", (sha, len(body), body))
    execute("INSERT INTO artifact (id, run_id, step, type, version, content, size, author, origin, created_at)"
               " VALUES ('theirs', ?, 'a', 'note', 2, ?, ?, 'ana', 'person', 0)", (run, sha, len(body)))
    execute("UPDATE step SET head_id = 'theirs' WHERE run_id = ? AND name = 'a'", (run,))
"""


def test_R018_the_next_step_sees_what_another_process_wrote(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a")
        await finish(store, worker, ready["a"], "ours", children=("b",))
        before = await store.snapshot(run.id, "b", None, ("a",), 0)
        assert before.artifacts["a"].body == b"ours"
        program = [sys.executable, "-c", OTHER_PROCESS, url(tmp_path), run.id, "theirs, by hand"]
        await asyncio.to_thread(subprocess.run, program, check=True, timeout=60)
        after = await store.snapshot(run.id, "b", None, ("a",), 0)
        assert after.artifacts["a"].body == b"theirs, by hand"
        assert (after.artifacts["a"].version.version, after.artifacts["a"].version.author) == (2, "ana")
        # The hand-made version counts: the next one is numbered after it.
        assert (await store.edit(run.id, "a", None, 2, artifact("third"))).version == 3

    using(tmp_path, body)


def test_a_snapshot_holds_reads_inputs_and_the_own_head(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        inputs = {"brief": artifact("clinic", author="customer"), "tone": artifact("warm")}
        worker, run, ready = await started(
            store, "a", "b: a", inputs=inputs, defaulted=frozenset({"tone"}), message="please hurry"
        )
        await finish(store, worker, ready["a"], "of a", children=("b",))
        seen = await store.snapshot(run.id, "a", None, ("brief", "b", "nobody"), 30)
        assert {name: found.body for name, found in seen.artifacts.items()} == {"brief": b"clinic"}
        assert {name: found.body for name, found in seen.record.items()} == {"brief": b"clinic", "tone": b"warm"}
        assert seen.defaulted == {"tone"}
        assert seen.message == "please hurry"
        assert seen.head is not None
        assert (seen.head.step, seen.head.version) == ("a", 1)
        await store.edit(run.id, "tone", None, 1, artifact("cool"))
        assert (await store.snapshot(run.id, "a", None, (), 0)).defaulted == frozenset()

    using(tmp_path, body)


@pytest.mark.parametrize("total", [0, 1, 29, 30, 31, 100])
def test_R016_the_newest_thirty_messages_in_their_order(tmp_path: Path, total: int) -> None:
    """The run's own message is not among them: it stands at the end of the task."""

    async def body(store: Store) -> None:
        for number in range(total):
            await store.add_message("s", "user" if number % 2 else "operator", f"m{number}")
        _, run, _ = await started(store, "a", session="s", message="own")
        seen = await store.snapshot(run.id, "a", None, (), 30)
        assert [m.text for m in seen.conversation] == [f"m{n}" for n in range(max(0, total - 30), total)]
        assert seen.conversation_total == total
        assert (await store.snapshot(run.id, "a", None, (), 0)).conversation == ()
        # A later run of the session sees the earlier run's message.
        later = (await started(store, "a", session="s"))[1]
        assert (await store.snapshot(later.id, "a", None, (), 1)).conversation[0].text == "own"

    using(tmp_path, body)


# --- scopes ---


def test_S16_two_subjects_share_nothing(tmp_path: Path) -> None:
    """The same bytes, twice: two rows. Everything of the one is "not found" for the other, and changes by nothing."""
    ids: dict[str, str] = {}

    async def anas(store: Store) -> None:
        worker, run, ready = await started(
            store, "a", "b", session="s", message="secret plan", inputs={"x": artifact("x")}
        )
        opening = thread()
        call = sent(opening.id)
        await store.claim(claim(ready["b"], worker, thread=opening, sent=call, events=(event("e"),)))
        result = await finish(store, worker, ready["a"], "same bytes")
        ids.update(run=run.id, attempt=ready["b"].attempt_id, artifact=result.artifact_id or "", call=call.id)
        ids.update(worker=worker)

    async def bens(store: Store) -> None:
        assert await store.runs() == ()
        run_id, missing = ids["run"], "not found"
        for ask in (
            store.run(run_id),
            store.run(1),
            store.run("last"),
            store.steps(run_id),
            store.budget(run_id),
            store.snapshot(run_id, "a", None, ("x",), 30),
            store.artifact(run_id, "a"),
            store.journal(ids["attempt"]),
            store.attempts(run_id, "a"),
            store.edit(run_id, "a", None, 1, artifact("mine now")),
            store.settle(run_id, "a", "draft"),
            store.decide_tool(run_id, "call_1", "retry", None),
            store.adopt_run(run_id, "w", plan("a")),
            store.release_run(run_id, ids["worker"], "failed"),
            store.set_cap(run_id, Decimal(1)),
        ):
            with pytest.raises(UsageError, match=missing):
                await ask
        assert await store.versions(run_id, "a") == ()
        assert await store.events(run_id) == ()
        assert await store.readers(ids["artifact"]) == ()
        worker = await store.register_worker()
        shared = replace(steps("a")[0], head=ids["artifact"])
        for new in (new_run("a", parent_id=run_id), new_run(steps=(shared,))):
            with pytest.raises(UsageError, match=missing):
                await store.create_run(new, worker)
        own, run, ready = await started(store, "a", session="s", message="hi")
        assert run.number == 1
        assert (await store.snapshot(run.id, "a", None, (), 30)).conversation_total == 0
        await finish(store, own, ready["a"], "same bytes")

    async def anas_again(store: Store) -> None:
        assert (await store.run(1)).status == "running"
        assert (await store.artifact(ids["run"], "a")).body == b"same bytes"
        assert len(await store.versions(ids["run"], "a")) == 1

    using(tmp_path, anas, scope=ANA)
    using(tmp_path, bens, scope=BEN)
    using(tmp_path, anas_again, scope=ANA)
    assert raw(tmp_path, "SELECT subject FROM content WHERE body = ? ORDER BY subject", b"same bytes") == [
        ("ana",),
        ("ben",),
    ]


def test_S16_a_stolen_dispatch_is_no_right_in_another_scope(tmp_path: Path) -> None:
    stolen: list[Any] = []

    async def anas(store: Store) -> None:
        worker, _, ready = await started(store, "a", "b")
        await store.claim(claim(ready["a"], worker))
        stolen.extend([worker, ready["a"], ready["b"]])

    async def bens(store: Store) -> None:
        worker, running, waiting = stolen
        for ask in (store.claim(claim(waiting, worker)), store.cancel_attempt(running)):
            with pytest.raises(UsageError, match="not found"):
                await ask
        with pytest.raises(UsageError, match="not found"):
            await store.commit(Commit(running, artifact()))
        with pytest.raises(Fenced):
            await store.sent(running, sent("t"))
        with pytest.raises(Fenced):
            await store.tool_started(running, "c", ToolCall("t", "n", "{}"))

    using(tmp_path, anas, scope=ANA)
    using(tmp_path, bens, scope=BEN)


@pytest.mark.parametrize("near", [Scope("acme2", "a1", "ana"), Scope("acme", "a2", "ana"), Scope("acme", "a1", "an")])
def test_S16_each_part_of_the_scope_counts(tmp_path: Path, near: Scope) -> None:
    async def anas(store: Store) -> None:
        await started(store, "a")

    async def theirs(store: Store) -> None:
        assert await store.runs() == ()
        with pytest.raises(UsageError):
            await store.run("last")

    using(tmp_path, anas, scope=ANA)
    using(tmp_path, theirs, scope=near)


def test_S14_the_key_is_random_lasting_and_the_scopes_own(tmp_path: Path) -> None:
    async def key(store: Store) -> bytes:
        return store.secret_key()

    anas, bens = using(tmp_path, key, scope=ANA), using(tmp_path, key, scope=BEN)
    assert len(anas) == len(bens) == 32
    assert anas != bens
    assert using(tmp_path, key, scope=ANA) == anas


def test_S14_one_model_name_at_two_addresses_is_two_things(tmp_path: Path) -> None:
    """Both hashes are kept as they were given, with the address they were made for."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b")
        for name, address in (("a", "https://one.test/v1"), ("b", "https://two.test/v1")):
            opening = replace(thread(), base_url=address)
            call = sent(opening.id, request_hash=sha256(address))
            await store.claim(claim(ready[name], worker, thread=opening, sent=call))
            (seen,) = (await store.journal(ready[name].attempt_id)).threads
            assert (seen.base_url, seen.calls[0].sent.request_hash) == (address, sha256(address))
        rows = await store.steps(run.id)
        assert rows[0].inputs_hash == rows[1].inputs_hash == claim(ready["a"], worker).manifest.inputs_hash

    using(tmp_path, body)


# --- secrets ---

CANARY = "sk-canary-7Q/42+zz=long"


def test_S29_a_configured_key_is_nowhere_in_the_database(tmp_path: Path) -> None:
    """The key is put into every field that takes text; neither it nor its coded forms reach the database or its WAL."""
    forms = (
        CANARY,
        quote(CANARY, safe=""),
        base64.b64encode(CANARY.encode()).decode(),
        base64.b64encode(b"user:" + CANARY.encode()).decode(),
    )
    # Of the last form, "user:" and the digits it shares with the key may stay; the rest of the key may not.
    hidden = (*forms[:3], forms[3][12:-4])
    leak = " ".join(forms)

    async def body(store: Store) -> None:
        inputs = {"x": NewArtifact("note", leak.encode(), leak, "input", "internal", {leak: leak})}
        worker, run, ready = await started(
            store, "a", session=leak, message=leak, author=leak, inputs=inputs, graph_json=json.dumps(leak).encode()
        )
        opening = replace(
            thread(leak, leak),
            prompt=prompt(leak, system=leak),
            settings={leak: leak},
            left_out=(LeftOut("facts", leak, leak),),
        )
        entries = replace(claim(ready["a"], worker).manifest, entries=(ManifestEntry("code", leak, leak, leak),))
        call = sent(opening.id, 1, TextItem((leak,)), ToolOutput(leak, leak), OutputItem({leak: [leak]}))
        began = claim(ready["a"], worker, manifest=entries, thread=opening, sent=call, events=(event("e", text=leak),))
        assert await store.claim(began)
        await store.created(call.id, leak)
        tool = ToolCall(leak, leak, json.dumps({"key": leak}))
        await store.tool_started(ready["a"], call.id, tool)
        await store.tool_finished(ready["a"], call.id, leak, ToolOutput(leak, leak))
        answer = done(
            call, tool_calls=(tool,), follow=(TextItem((leak,)),), items=(OutputItem({"t": leak}),), reason=leak
        )
        await store.done(ready["a"], answer)
        assert await store.fail(ready["a"], ErrorRecord(leak, leak, leak))
        await store.edit(run.id, "x", None, 1, replace(inputs["x"], body=(leak + "!").encode(), guards=(leak,)))
        await store.add_message(leak, "user", leak, author=leak)
        await store.release_run(run.id, worker, "failed", ErrorRecord(leak, leak, leak))
        data = databases.everything(file(tmp_path))
        assert b"[secret removed]" in data
        assert [form for form in hidden if form.encode() in data] == []
        assert CANARY.encode()[3:17] not in data
        assert b"[secret removed]" in (await store.artifact(run.id, "x")).body
        assert (await store.check()) == ()

    using(tmp_path, body, secrets=[CANARY])


# --- integrity ---


def test_a_sound_database_has_no_problems(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, _, ready = await started(store, "a", inputs={"x": artifact()}, message="m")
        opening = thread()
        await store.claim(claim(ready["a"], worker, thread=opening, sent=sent(opening.id)))
        assert await store.check() == ()

    using(tmp_path, body)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE content SET body = ? WHERE body = ?", "is not what it was"),
        ("DELETE FROM content WHERE body <> ? AND body = ?", "is missing"),
    ],
)
def test_damage_is_found(tmp_path: Path, damage: str, said: str) -> None:
    async def body(store: Store) -> None:
        worker, _, ready = await started(store, "a")
        opening = thread()
        await store.claim(claim(ready["a"], worker, thread=opening, sent=sent(opening.id)))
        raw(tmp_path, damage, b"\x00", b"hi")
        assert any(said in problem for problem in await store.check())

    using(tmp_path, body)


@on("sqlite")
def test_a_row_without_its_parent_is_found(tmp_path: Path) -> None:
    """Other programs open a file without foreign keys; on a server only its superuser could."""

    async def body(store: Store) -> None:
        await started(store, "a")
        raw(tmp_path, "DELETE FROM session")
        assert any("refers to a missing row of session" in problem for problem in await store.check())

    using(tmp_path, body)


@on("sqlite")
def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    async def fill(store: Store) -> None:
        for _ in range(30):
            await started(store, *[f"s{n}" for n in range(20)])

    using(tmp_path, fill)
    path = file(tmp_path)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(bytes(data))

    async def look(store: Store) -> None:
        await store.runs()

    with pytest.raises(StoreError) as error:
        using(tmp_path, look)
    assert "damaged" in error.value.message
    assert url(tmp_path).removeprefix("sqlite:///") in error.value.message
