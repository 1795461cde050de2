"""A run as files: safe names, tables without formulas, and a page on which nothing foreign acts (S27)."""

from __future__ import annotations

import csv
import io
import json
import re
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.exchange.exporting import Exported, Form, report, run_files, slug, table, tables
from orchestrator.exchange.foreign import from_spreadsheet, spreadsheet_cell
from orchestrator.ids import canonical_json
from orchestrator.values import Artifact, ArtifactVersion

RUN: dict[str, Any] = {
    "run": {
        "number": 12,
        "pipeline": "discovery",
        "status": "succeeded",
        "parent": None,
        "session": "s",
        "created_at": "2026-11-30T10:42:00Z",
        "usage": {"input_tokens": 12, "cached_tokens": 0, "output_tokens": 3},
        "cost_usd": "0.0114",
        "cost_partial": False,
        "error": None,
        "steps": [],
    }
}
HOSTILE = "</pre></script><script>alert(1)</script><!-- {{ 7 * 7 }} & \x1b[2J\u202e\"'"


def exported(step: str, value: Any, form: Form = "json", item: str | None = None, **more: Any) -> Exported:
    body = canonical_json(value) if form == "json" else str(value).encode()
    version = ArtifactVersion(
        id=f"{step}-{item}",
        run_id="run",
        step=step,
        item=item,
        contract="note",
        version=2,
        sha256=sha256(body).hexdigest(),
        size=len(body),
        author=more.pop("author", "ana"),
        origin="person",
        created_at=datetime(2026, 11, 30, 10, 42, tzinfo=UTC),
        parent_id=None,
        sensitivity="internal",
        field_hashes={},
    )
    return Exported(Artifact(version, body), more.pop("kind", "step"), value, form, **more)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("tech-stack", "tech-stack"),
        ("Größe & Café", "groe-cafe"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\\b:c", "a-b-c"),
        ("...", "unnamed"),
        ("日本", "unnamed"),
        ("CON", "con_"),
        ("nul.txt", "nul.txt_"),
        ("trailing. ", "trailing"),
        ("x" * 200, "x" * 80),
    ],
)
def test_a_name_becomes_one_that_every_system_takes(text: str, name: str) -> None:
    assert slug(text) == name


@given(st.text(max_size=100))
def test_no_name_leaves_its_folder(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?", slug(text))
    assert len(slug(text)) <= 81


def test_names_that_become_equal_stay_apart() -> None:
    files = run_files(RUN, [exported("fan", 1, item="A b"), exported("fan", 2, item="a-b"), exported("fan", 3)])
    assert {name: body for name, body in files.items() if name.startswith("steps/")} == {
        "steps/fan/a-b.json": b"1",
        "steps/fan/a-b-2.json": b"2",
        "steps/fan.json": b"3",
    }


# --- tables -----------------------------------------------------------------------------------------------------------


def rows(body: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(body.decode(), newline="")))


def test_a_table_has_a_column_for_each_field() -> None:
    body = table([{"a": 1, "b": "x"}, {"a": None, "c": [1, {"d": True}]}, {"b": 'q"; \n,', "a": -2.5, "c": False}])
    assert rows(body) == [["a", "b", "c"], ["1", "x", ""], ["", "", '[1, {"d": true}]'], ["-2.5", 'q"; \n,', "false"]]
    assert body.startswith(b"a,b,c\r\n")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠", "\ufeff=", "\u200b-"])
def test_S27_no_cell_begins_like_a_formula(start: str) -> None:
    """Names of columns too; only a number may begin with a minus."""
    body = table([{f"{start}name": f"{start}HYPERLINK(1)", "number": -5}])
    assert rows(body) == [[f"'{start}name", "number"], [f"'{start}HYPERLINK(1)", "-5"]]


@given(st.text(st.sampled_from("'=+-@\t\r\n＋\ufeffab"), max_size=5))
def test_a_guarded_cell_reads_back_as_it_was(text: str) -> None:
    cell = spreadsheet_cell(text)
    assert from_spreadsheet(cell) == text
    assert cell[:1] not in {"=", "+", "-", "@", "\t", "\r"}


def test_each_list_of_objects_is_a_table() -> None:
    value = {"parts": [{"a": 1}], "words": ["x"], "none": [], "mixed": [{"a": 1}, 2]}
    assert [name for name, _ in tables(value)] == ["parts"]
    assert [name for name, _ in tables([{"a": 1}])] == [""]
    assert list(tables("text")) == []


# --- the folder -------------------------------------------------------------------------------------------------------


def test_a_run_is_its_artifacts_a_manifest_and_a_report() -> None:
    brief = exported("brief", "A shop.", "text", kind="input", about="The brief.", parent=1)
    parts = exported("parts", {"list": [{"a": 1}]}, not_for=("Not a price.",))
    plan = exported("plan", "# Plan\n", "markdown")
    files = run_files(RUN, [brief, parts, plan])
    assert list(files) == [
        "manifest.json",
        "report.html",
        "inputs/brief.txt",
        "steps/parts.json",
        "steps/parts.list.csv",
        "steps/plan.md",
    ]
    assert files["steps/plan.md"] == b"# Plan\n"
    manifest = json.loads(files["manifest.json"])
    assert manifest["schema"] == "orch.manifest/1"
    assert manifest["run"] == RUN["run"]
    assert manifest["artifacts"][0] == {
        "name": "brief",
        "item": None,
        "kind": "input",
        "file": "inputs/brief.txt",
        "tables": [],
        "contract": "note",
        "about": "The brief.",
        "not_for": [],
        "guards": [],
        "sensitivity": "internal",
        "version": 2,
        "parent": 1,
        "author": "ana",
        "origin": "person",
        "created_at": "2026-11-30T10:42:00Z",
        "size": 7,
        "sha256": sha256(b"A shop.").hexdigest(),
        "facts": {},
    }
    for entry in manifest["artifacts"]:
        assert sha256(files[entry["file"]]).hexdigest() == entry["sha256"]
    assert manifest["artifacts"][1]["tables"] == ["steps/parts.list.csv"]


# --- the report -------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a browser would make of it: tags with their attributes, and the text of each <pre> and <script>."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"pre": [], "script": [], "style": []}
        self._inside: str | None = None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.texts:
            self._inside = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside][-1] += data


def test_S27_nothing_foreign_acts_in_a_report() -> None:
    one = exported("plan", HOSTILE, "text", author=HOSTILE, about=HOSTILE, not_for=(HOSTILE,), item=HOSTILE)
    files = run_files({"run": {**RUN["run"], "session": HOSTILE, "pipeline": HOSTILE}}, [one])
    html = files["report.html"].decode()
    page = Page(html)
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "manifest"}]
    assert json.loads(page.texts["script"][0]) == json.loads(files["manifest.json"])
    assert "<" not in page.texts["script"][0]
    assert page.texts["pre"] == ["\n" + HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")]
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_S27_a_report_loads_nothing_and_allows_its_own_style_only() -> None:
    page = Page(report({**RUN, "artifacts": []}, []).decode())
    policy = next(
        attributes["content"]
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    style = b64encode(sha256(page.texts["style"][0].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    loading = {"src", "href", "srcset", "action", "style", "onload", "onclick"}
    assert not [attributes for _, attributes in page.tags if loading & set(attributes)]
    assert "prefers-color-scheme: dark" in page.texts["style"][0]
    assert "url(" not in page.texts["style"][0]


def test_a_report_tells_what_each_step_cost_who_made_each_version_and_what_the_model_was_shown() -> None:
    step: dict[str, Any] = {
        "name": "plan",
        "item": None,
        "status": "succeeded",
        "attempt": 1,
        "stale": False,
        "reasons": [],
        "calls": 2,
        "reasks": 1,
        "version": 2,
        "draft": None,
        "cost_usd": "0.0030",
        "cost_partial": False,
        "error": None,
    }
    other = {**step, "name": "size", "calls": 0, "cost_usd": "0", "version": None}
    made = {"draft": False, "created_at": "2026-11-30T10:42:00.123Z", "current": False, "changed": None, "parent": None}
    versions = [
        {**made, "version": 1, "author": "openai:gpt", "origin": "model"},
        {
            **made,
            "version": 2,
            "author": "ana",
            "origin": "person",
            "current": True,
            "parent": 1,
            "changed": {"added": ["note"], "removed": [], "changed": ["total", HOSTILE]},
        },
    ]
    block = {"layer": "artifact", "source": "rates", "version": 3, "fields": ["weekly"], "guards": ["Not the budget."]}
    why = {
        "blocks": [{**block, "rule": "reads, demo.yaml:5:9", "tokens": 630, "used": True}],
        "left_out": [{"source": "notes", "reason": "not declared"}],
        "threads": [
            {
                "calls": [
                    {
                        "seq": 1,
                        "source": "NEXT_STEP",
                        "outcome": "reask",
                        "reason": HOSTILE,
                        "input_tokens": 700,
                        "output_tokens": 20,
                        "cost_usd": "0.003",
                    }
                ]
            }
        ],
        "reads": [],
        "sources": [
            {"url": "https://a.example/rates", "title": "Rates 2026", "cited": True, "quote": None},
            {"url": "https://b.example", "title": "", "cited": False, "quote": None},
        ],
    }
    one = exported("plan", {"a": 1}, versions=versions, why=why)
    page = Page(html := run_files({"run": {**RUN["run"], "steps": [step, other]}}, [one])["report.html"].decode())
    assert [attributes for tag, attributes in page.tags if tag == "a"] == [{"href": "#steps/plan.json"}]
    assert {"id": "steps/plan.json"} in [attributes for tag, attributes in page.tags if tag == "h3"]
    meters = [attributes for tag, attributes in page.tags if tag == "meter"]
    assert [(meter["max"], meter["value"]) for meter in meters] == [("0.0030", "0.0030"), ("0.0030", "0")]
    assert [tag for tag, _ in page.tags].count("details") == 2, "versions, and what the model was shown"
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    for said in (
        "2 (1 re-asked)",
        "$0.0030",
        "2 versions",
        "v2 (current) ana (person) v1 total, ",
        "changed note added 2026-11-30 10:42 UTC",
        "v1 openai:gpt (model) – made anew",
        "What the model was shown: 1 block, about 630 tokens",
        "call 1 · NEXT_STEP · reask: ",
        "700 → 20 tokens · $0.003",
        "rates@3 .weekly artifact reads, demo.yaml:5:9 · used in the output Not for: Not the budget. 630",
        "Not shown: notes (not declared)",
        "Sources: Rates 2026 (https://a.example/rates, cited); https://b.example (https://b.example)",
    ):
        assert said in text, said
    assert "<script>alert" not in html


def test_a_report_tells_status_versions_and_what_a_value_is_not_for() -> None:
    run = {**RUN["run"], "status": "failed", "error": {"message": "size failed"}}
    html = run_files({"run": run}, [exported("plan", {"a": 1}, about="The plan.", not_for=("A promise.",))])[
        "report.html"
    ]
    text = re.sub(r"<[^>]+>", " ", html.decode())
    for said in ("Run 12", "discovery", "failed", "size failed", "The plan.", "Not for: A promise.", "v2", "by ana"):
        assert said in text
    assert "$0.0114" in text
