"""What MCP servers said about their tools when a person looked: `mcp.lock.json`, beside the project file (S26).

A server may say something else tomorrow: a description is an instruction to the model, and a server that changes it
changes what the model does. So a tool is used as it was pinned, with the words that were pinned; where the server says
something else by now, nothing is sent until a person has looked again (`orch mcp pin`). A pinned tool can also be
planned, rendered and compared without starting anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.contracts import schemas
from orchestrator.errors import ConfigError
from orchestrator.files import replace_file
from orchestrator.ids import digest
from orchestrator.project import Project

LOCK: Final = "mcp.lock.json"
_VERSION: Final = 1
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Pinned:
    """One tool as its server described it."""

    name: str
    description: str
    schema: Mapping[str, Any]

    @property
    def sha(self) -> str:
        return digest([self.name, self.description, self.schema])

    def fault(self) -> str | None:
        """Why a model cannot be given this tool; None where it can."""
        if not self.description.strip():
            return "it has no description"
        faults = schemas.schema_faults(self.schema)
        return f"its input schema cannot be used: {faults[0]}" if faults else None


def pinned(name: str, description: str | None, schema: Mapping[str, Any]) -> Pinned:
    """A tool as a server lists it. The dialect that a schema names is of no use to a model."""
    return Pinned(name, (description or "").strip(), {key: value for key, value in schema.items() if key != "$schema"})


def tool_name(server: str, tool: str) -> str:
    """What the model calls it: names of two servers do not meet."""
    return _NOT_IN_A_NAME.sub("_", f"{server}_{tool}")[:64]


def load_pins(project: Project) -> Mapping[str, Mapping[str, Pinned]]:
    """The pinned tools, by server and name; none where nothing is pinned. Raises ConfigError for a broken file."""
    path = project.root / LOCK
    try:
        data = json.loads(path.read_bytes())
        if data["version"] != _VERSION:
            raise ValueError(f"its version is {data['version']!r}")
        return {
            server: {name: Pinned(name, tool["description"], tool["input_schema"]) for name, tool in tools.items()}
            for server, tools in data["servers"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{project.display(path)} cannot be read: {error}",
            hint="take it from your version control, or remove it and pin anew: orch mcp pin",
        ) from error


def write_pins(project: Project, pins: Mapping[str, Mapping[str, Pinned]]) -> Path:
    """Write the file anew. Sorted, so that a difference shows what has changed."""
    servers = {
        server: {
            name: {"description": tool.description, "input_schema": dict(tool.schema)}
            for name, tool in sorted(tools.items())
        }
        for server, tools in sorted(pins.items())
    }
    path = project.root / LOCK
    text = json.dumps({"version": _VERSION, "servers": servers}, ensure_ascii=False, indent=2) + "\n"
    replace_file(path, text.encode("utf-8", "backslashreplace"))
    return path


def differences(old: Mapping[str, Pinned], new: Mapping[str, Pinned]) -> tuple[str, ...]:
    """What a person is told about a server that says something else than before, tool by tool."""
    found = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before is None:
            found.append(f"{name}: new")
        elif after is None:
            found.append(f"{name}: not there any more")
        elif before.sha != after.sha:
            what = ["description"] if before.description != after.description else []
            what += ["input schema"] if digest(before.schema) != digest(after.schema) else []
            found.append(f"{name}: its {' and its '.join(what)} changed")
    return tuple(found)
