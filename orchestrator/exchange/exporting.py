"""A run as files that make sense without this program: one per artifact, a manifest, and a report to read.

    manifest.json            what each file is: version, author, label, hash
    report.html              the whole run on one page that loads nothing
    inputs/idea.txt          the current version of each artifact: the very bytes that the store holds
    steps/parts.json
    steps/parts.list.csv     each list of objects in it once more, as a table

Everything here is values in, bytes out; writing the files is the caller's. Names come from people and, in a fan-out,
from a model: as file names they are slugs, and no two are the same (S27).
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from orchestrator.attachments import ending_of
from orchestrator.exchange.foreign import spreadsheet_cell, visible
from orchestrator.ids import canonical_json
from orchestrator.trace.documents import moment
from orchestrator.values import Artifact

MANIFEST: Final = "orch.manifest/1"
MANIFEST_FILE: Final = "manifest.json"
REPORT_FILE: Final = "report.html"
LONGEST_NAME: Final = 80
_SUFFIXES: Final[Mapping[str, str]] = {"json": ".json", "markdown": ".md", "text": ".txt"}
_DEVICES: Final = frozenset(["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))])
Form = Literal["json", "text", "markdown", "file"]


@dataclass(frozen=True, slots=True)
class Exported:
    """The current version of one artifact, and what its label says now; `about` is None where that is not known.

    `value` is JSON data or text; `parent` the number of the version it was made from. For the report alone: `versions`
    are all of it as `orch.history/1` tells them, `why` is what its model saw, `orch.why/1`.
    """

    artifact: Artifact
    kind: Literal["input", "step"]
    value: Any
    form: Form
    about: str | None = None
    not_for: tuple[str, ...] = ()
    parent: int | None = None
    versions: Sequence[Mapping[str, Any]] = ()
    why: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        version = self.artifact.version
        return f"{version.step}/{version.item}" if version.item else version.step


# --- names ------------------------------------------------------------------------------------------------------------


def slug(text: str) -> str:
    """A text as a file name for every system: `[a-z0-9._-]`, at most 80, no dot at an end, no device of Windows."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", plain)[:LONGEST_NAME].strip("-.")
    if not name:
        return "unnamed"
    return f"{name}_" if name.split(".")[0] in _DEVICES else name


class _Names:
    """File names given out so far; a name that is taken gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, stem: str, suffix: str) -> str:
        count, name = 1, f"{stem}{suffix}"
        while name in self._taken:
            count += 1
            name = f"{stem}-{count}{suffix}"
        self._taken.add(name)
        return name


def suffix(form: Form, body: bytes) -> str:
    """The ending of a file of that form; what a file is that was given as one, its bytes say."""
    return ending_of(body) if form == "file" else _SUFFIXES[form]


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(value: Any) -> Iterator[tuple[str, bytes]]:
    """Each list of objects in a value as a CSV file, by the field it stands in; the value itself has the name ""."""
    if _is_table(value):
        yield "", table(value)
    elif isinstance(value, Mapping):
        for name, field in value.items():
            if _is_table(field):
                yield name, table(field)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def table(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Objects as CSV (RFC 4180, UTF-8): a column for each field that one of them has, in the order of appearance.

    No text can act as a formula (S27). Lists and objects inside a cell are JSON; null is an empty cell.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([spreadsheet_cell(name) for name in columns])
    writer.writerows([[_cell(row.get(name)) for name in columns] for row in rows])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return spreadsheet_cell(value)
    return canonical_json(value, indent=None).decode()  # a number is none of a formula's beginnings: it stays one


# --- the folder -------------------------------------------------------------------------------------------------------


def run_files(run: Mapping[str, Any], artifacts: Sequence[Exported]) -> dict[str, bytes]:
    """All files of a run's folder by their path in it. `run` is the run document, `orch.run/1`."""
    names = _Names()
    files: dict[str, bytes] = {}
    entries = []
    for exported in artifacts:
        stem = _stem(exported)
        file = names.take(stem, suffix(exported.form, exported.artifact.body))
        files[file] = exported.artifact.body
        made = {}
        for field, body in tables(exported.value):
            path = names.take(f"{stem}.{slug(field)}" if field else stem, ".csv")
            made[path] = body
        files |= made
        entries.append(_entry(exported, file, list(made)))
    manifest = {"schema": MANIFEST, "run": run["run"], "artifacts": entries}
    head = {MANIFEST_FILE: _ascii(manifest).encode(), REPORT_FILE: report(manifest, artifacts)}
    return head | files


def _stem(exported: Exported) -> str:
    version = exported.artifact.version
    folder = "inputs" if exported.kind == "input" else "steps"
    return f"{folder}/{slug(version.step)}" + (f"/{slug(version.item)}" if version.item else "")


def _entry(exported: Exported, file: str, tables: Sequence[str]) -> dict[str, Any]:
    version = exported.artifact.version
    return {
        "name": version.step,
        "item": version.item,
        "kind": exported.kind,
        "file": file,
        "tables": list(tables),
        "contract": version.contract,
        "about": exported.about,
        "not_for": list(exported.not_for),
        "guards": list(version.guards),
        "sensitivity": version.sensitivity,
        "version": version.version,
        "parent": exported.parent,
        "author": version.author,
        "origin": version.origin,
        "created_at": moment(version.created_at),
        "size": version.size,
        "sha256": version.sha256,
        "facts": {
            path: {"basis": fact.basis, "quote": fact.quote, "source": fact.source}
            for path, fact in version.facts.items()
        },
    }


def _ascii(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=True, allow_nan=False, indent=2) + "\n"


# --- the report -------------------------------------------------------------------------------------------------------


def report(manifest: Mapping[str, Any], artifacts: Sequence[Exported]) -> bytes:
    """The run as one HTML page: it runs nothing, loads nothing and refers to nothing outside itself.

    Its policy allows this one style sheet, by hash. All values are text (autoescaped, reordering spelled out); the
    manifest is embedded as data in which no `<` stands (S27).
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = Path(__file__).parent
    style = (folder / "report.css").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.from_string((folder / "report.html.j2").read_text(encoding="utf-8"))
    html = page.render(
        style=Markup(style),
        style_hash=b64encode(sha256(style.encode()).digest()).decode(),
        run=manifest["run"],
        entries=[_told(entry, one) for entry, one in zip(manifest["artifacts"], artifacts, strict=True)],
        files={(entry["name"], entry["item"]): entry["file"] for entry in manifest["artifacts"]},
        most=max((Decimal(step["cost_usd"] or 0) for step in manifest["run"]["steps"]), default=Decimal(0)),
        data=Markup(_embedded(manifest)),
    )
    return html.encode("utf-8", "backslashreplace")


def _told(entry: Mapping[str, Any], one: Exported) -> dict[str, Any]:
    """An artifact as the page shows it: its value, its versions newest first, what its model saw in short."""
    why = one.why or {"blocks": [], "left_out": [], "threads": [], "reads": [], "sources": []}
    return {
        **entry,
        "text": _text(one),
        "versions": list(reversed(one.versions)),
        "blocks": why["blocks"],
        "left_out": why["left_out"],
        "threads": why["threads"],
        "sources": why["sources"],
        "tokens": sum(block["tokens"] for block in why["blocks"]),
        "calls": [call for thread in why["threads"] for call in thread["calls"]],
    }


def _embedded(document: Mapping[str, Any]) -> str:
    return _ascii(document).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(exported: Exported) -> str:
    value = exported.value
    if exported.form == "file" and not isinstance(value, str):
        return f"{exported.artifact.version.size} bytes"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
