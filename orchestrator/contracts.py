"""Contracts at run time: a declared artifact type with its schema loaded.

One object answers every question about a value of this type: is it valid, what are its canonical bytes, which top-level
fields does it have, which of them are facts about the customer, and what schema is sent to a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from orchestrator.errors import Place
from orchestrator.spec import Sensitivity


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """Where a value breaks the schema: JSONPath-like `path` ("$.components[0].name"), the rule, the offending value."""

    path: str
    rule: str
    value: Any


@dataclass(frozen=True, slots=True)
class Contract:
    """An artifact type. `form`: json has a schema; text, markdown are UTF-8 text; file is bytes.

    `fields` are the top-level property names (empty for text); `customer_fields` the dotted paths marked
    `fact_of: customer`; `code` maps the Python files it depends on to their hashes; `digest` covers what it says
    (about, not_for, schema, limits), not where it stands.
    """

    name: str
    about: str
    not_for: tuple[str, ...]
    sensitivity: Sensitivity
    tags: tuple[str, ...]
    max_tokens: int | None
    form: Literal["json", "text", "markdown", "file"]
    schema: Mapping[str, Any] | None
    model: type[BaseModel] | None
    fields: tuple[str, ...]
    customer_fields: tuple[str, ...]
    code: Mapping[str, str]
    digest: str
    place: Place
