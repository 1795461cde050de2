"""The documents about versions, whole: names once printed stay (authoring-and-cli §5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestrator.ids import digest
from orchestrator.trace.versions import History, Side, diff_document, history_document
from orchestrator.values import ArtifactVersion


def version(number: int, parent: int | None, fields: dict[str, Any], **more: Any) -> ArtifactVersion:
    values: dict[str, Any] = {
        "id": f"id-{number}",
        "run_id": "run-id",
        "step": "rates",
        "item": None,
        "contract": "vendor-rates",
        "version": number,
        "sha256": digest(fields),
        "size": 10 + number,
        "author": "ana",
        "origin": "person",
        "created_at": datetime(2026, 11, 30, 10, 40 + number, tzinfo=UTC),
        "parent_id": None if parent is None else f"id-{parent}",
        "sensitivity": "internal",
        "field_hashes": {name: digest(value) for name, value in fields.items()},
    }
    return ArtifactVersion(**{**values, **more})


ONE = {"weekly_usd": 997, "old": True}
TWO = {"weekly_usd": 1200, "note": "raised"}
VERSIONS = (
    version(1, None, ONE, author="openai:gpt", origin="model"),
    version(2, 1, TWO),
    version(3, 2, ONE, author="ben"),
)


def side(number: int) -> dict[str, Any]:
    return {
        "run": 12,
        "step": "rates",
        "item": None,
        "version": number,
        "contract": "vendor-rates",
        "author": "openai:gpt" if number == 1 else "ana",
        "origin": "model" if number == 1 else "person",
        "draft": False,
        "created_at": f"2026-11-30T10:4{number}:00Z",
        "sha256": digest(ONE if number == 1 else TWO),
    }


def test_a_diff_of_values_is_exactly_this() -> None:
    assert diff_document(Side(12, VERSIONS[0], ONE), Side(12, VERSIONS[1], TWO)) == {
        "schema": "orch.diff/1",
        "old": side(1),
        "new": side(2),
        "equal": False,
        "changes": [
            {"kind": "changed", "path": "weekly_usd", "old": 997, "new": 1200},
            {"kind": "removed", "path": "old", "old": True, "new": None},
            {"kind": "added", "path": "note", "old": None, "new": "raised"},
        ],
        "text": None,
    }


def test_a_diff_of_texts_has_its_lines_too() -> None:
    found = diff_document(Side(12, VERSIONS[0], "a\nb"), Side(12, VERSIONS[1], "a\nc"))
    assert found["text"] == ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]
    assert found["changes"] == [{"kind": "changed", "path": "$", "old": "a\nb", "new": "a\nc"}]
    same = diff_document(Side(12, VERSIONS[0], "a"), Side(12, VERSIONS[1], "a"))
    assert (same["equal"], same["changes"], same["text"]) == (True, [], [])


def test_a_history_is_exactly_this() -> None:
    """Version 3 is version 1 again: it says so, and ben has given both fields their present value."""
    shared = {"id-1": (12, 14), "id-3": (12,)}
    history = History(12, "rates", VERSIONS, VERSIONS[2], shared)
    common = {"contract": "vendor-rates", "draft": False, "sensitivity": "internal"}
    assert history_document(history) == {
        "schema": "orch.history/1",
        "run": 12,
        "step": "rates",
        "item": None,
        "head": 3,
        "versions": [
            {
                **common,
                "version": 1,
                "author": "openai:gpt",
                "origin": "model",
                "created_at": "2026-11-30T10:41:00Z",
                "parent": None,
                "size": 11,
                "sha256": digest(ONE),
                "merged": None,
                "waiting": False,
                "current": False,
                "changed": None,
                "equal_to": None,
                "head_in": [12, 14],
            },
            {
                **common,
                "version": 2,
                "author": "ana",
                "origin": "person",
                "created_at": "2026-11-30T10:42:00Z",
                "parent": 1,
                "size": 12,
                "sha256": digest(TWO),
                "merged": None,
                "waiting": False,
                "current": False,
                "changed": {"added": ["note"], "removed": ["old"], "changed": ["weekly_usd"]},
                "equal_to": None,
                "head_in": [],
            },
            {
                **common,
                "version": 3,
                "author": "ben",
                "origin": "person",
                "created_at": "2026-11-30T10:43:00Z",
                "parent": 2,
                "size": 13,
                "sha256": digest(ONE),
                "merged": None,
                "waiting": False,
                "current": True,
                "changed": {"added": ["old"], "removed": ["note"], "changed": ["weekly_usd"]},
                "equal_to": 1,
                "head_in": [12],
            },
        ],
        "blame": {
            "weekly_usd": {"version": 3, "author": "ben", "origin": "person", "merged": []},
            "old": {"version": 3, "author": "ben", "origin": "person", "merged": []},
        },
    }
