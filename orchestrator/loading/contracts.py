"""A contract as it is written, inline or in a file of its own; and the sentences that guard what is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.faults import shown
from orchestrator.loading.spec_reader import SpecReader
from orchestrator.spec import MISSING, ContractSpec, PathKey


def contract(
    reader: SpecReader, data: dict[str, Any], path: PathKey, name: str, steps: Sequence[str]
) -> ContractSpec | None:
    """A contract, inline (`name` is its key) or of a file (`name` is its stem)."""
    keys = guards(reader, reader.keys(data, path, ContractSpec, "a contract"), path)
    if path or "artifact" in keys:
        _contract_name(reader, keys, path, name)
    else:
        reader.report("P102", "'artifact' is missing: the name of the contract", reader.place(), f"artifact: {name}")
    keys["artifact"] = name
    made_by = f" (made by step {', '.join(repr(step) for step in steps)})" if steps else ""
    for key, says, hint, stand_in in (
        ("about", "what its value represents", 'Add about: "What the value is, and for what it was made."', "-"),
        ("not_for", "what its value must not be used for", "List the misuses, or write not_for: none.", "none"),
    ):
        if key in keys:
            continue
        if (*path, key) not in reader.dropped:
            message = f"contract {name!r}{made_by} does not say {says}: {key!r} is missing"
            reader.report("P104", message, reader.key_place(*path), hint)
        keys[key] = stand_in  # the fault is reported; with it the contract can still be checked
    _schema(reader, keys, path, name)
    if "tags" in keys:
        keys["tags"] = reader.texts(keys["tags"], (*path, "tags"), "'tags'")
    return reader.model(ContractSpec, keys, path, f"contract {name!r}")


def _schema(reader: SpecReader, keys: dict[str, Any], path: PathKey, name: str) -> None:
    """Reports a schema that is neither a word nor a mapping, or missing; `model` then refuses the contract."""
    schema = keys.get("schema", MISSING)
    hint = 'Write schema: text, markdown or file, "schemas.py:Name", or an inline JSON Schema.'
    if schema is MISSING:
        reader.report("P102", f"'schema' is missing in contract {name!r}", reader.key_place(*path), hint)
    elif not isinstance(schema, dict) and not (isinstance(schema, str) and schema.strip()):
        message = f"'schema' must be text or a mapping, not {shown(keys.pop('schema'))}"
        reader.report("P103", message, reader.place(*path, "schema"), hint)
    else:
        return
    reader.drop((*path, "schema"))


def _contract_name(reader: SpecReader, keys: Mapping[str, Any], path: PathKey, name: str) -> None:
    declared = reader.text(keys["artifact"], (*path, "artifact"), "'artifact'") if "artifact" in keys else None
    if declared is not None and declared != name:
        stands = "under" if path else "in the file of"
        message = f"the contract is called {declared!r} and stands {stands} {name!r}"
        reader.report("P110", message, reader.place(*path, "artifact"), "Give both the same name.")
    elif not path and declared is not None:
        reader.name(declared, reader.place("artifact"), "a contract")


def guards(reader: SpecReader, keys: dict[str, Any], path: PathKey) -> dict[str, Any]:
    """The keys that are sentences for people or models as texts that say something; faulty ones dropped."""
    for key in ("about", "ask", "guard", "message", "ungated"):
        if key in keys and reader.text(keys[key], (*path, key), f"{key!r}") is None:
            del keys[key]
    if "not_for" in keys:
        not_for = _not_for(reader, keys.pop("not_for"), (*path, "not_for"))
        if not_for is not None:
            keys["not_for"] = not_for
    return keys


def _not_for(reader: SpecReader, value: Any, path: PathKey) -> tuple[str, ...] | str | None:
    if value == "none":
        return "none"
    if isinstance(value, list) and value:
        kept = reader.texts(value, path, "'not_for'")
        if not kept:
            reader.drop(path)
        return kept or None
    if isinstance(value, dict):
        reader.text(value, path, "'not_for'")
        return None
    hint = f'Write it as a list: ["{value}"]' if isinstance(value, str) and value else "Write `not_for: none`."
    given = "an empty list" if value == [] else shown(value)
    reader.report(
        "P103", f"'not_for' must be a list of texts, or the word none, not {given}", reader.place(*path), hint
    )
    reader.drop(path)
    return None
