"""The parts of a step that are written as lists or mappings: reads, checks, tools, a loop, a fan-out, a gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.faults import shown
from orchestrator.loading.contracts import guards
from orchestrator.loading.spec_reader import SpecReader
from orchestrator.spec import (
    CheckSpec,
    ConversationSpec,
    FeedbackSpec,
    ForEachSpec,
    GateSpec,
    GateTimeoutSpec,
    OnRejectSpec,
    PathKey,
    ReadSpec,
    RepeatSpec,
    ToolUse,
)


def entries(
    reader: SpecReader, value: object, path: PathKey, one: Callable[[SpecReader, Any, PathKey], Any]
) -> tuple[Any, ...]:
    """The entries of a list, each read by `one`; the others are dropped."""
    given = reader.sequence(value, path, f"{path[-1]!r}") or []
    found = [(index, one(reader, entry, (*path, index))) for index, entry in enumerate(given)]
    kept = [(index, spec) for index, spec in found if spec is not None]
    reader.keep_entries(path, [index for index, _ in kept], len(found))
    return tuple(spec for _, spec in kept)


def read(reader: SpecReader, value: Any, path: PathKey) -> ReadSpec | None:
    if not isinstance(value, dict):
        name = reader.text(value, path, "a read")
        return ReadSpec(read=name) if name is not None else None
    keys = guards(reader, reader.keys(value, path, ReadSpec, "a read"), path)
    if "fields" in keys:
        fields = reader.texts(keys.pop("fields") or None, (*path, "fields"), "'fields'")
        keys.update({"fields": fields} if fields else {})
    read = reader.model(ReadSpec, keys, path, "a read") if _names_a_read(reader, value, keys, path) else None
    if read is not None and not read.read and read.select is None:  # what it names is faulty, and reported
        reader.drop(path)
        return None
    return read


def _names_a_read(reader: SpecReader, value: Mapping[str, Any], keys: Mapping[str, Any], path: PathKey) -> bool:
    """Whether an entry says what is read: by name, or by a selection, which takes whole values."""
    place = reader.key_place(*path)
    if "read" not in value and "select" not in value:
        reader.report("P102", "'read' is missing in a read", place, "Name a step or input, or write select: tag:TAG.")
    elif "read" in keys and "select" in keys:
        reader.report("P207", "a read has both 'read' and 'select'", place, "Make two entries of it.")
    elif "select" in keys and "fields" in keys:
        reader.report("P207", "a selection reads whole values, so it has no 'fields'", place, "Read by name instead.")
    else:
        return True
    reader.drop(path)
    return False


def check(reader: SpecReader, value: Any, path: PathKey) -> CheckSpec | None:
    if not isinstance(value, dict):
        expr = reader.text(value, path, "a check")
        return CheckSpec(expr=expr) if expr is not None else None
    keys = guards(reader, reader.keys(value, path, CheckSpec, "a check"), path)
    if ("expr" in keys) == ("python" in keys):
        hint = 'Write {expr: "total <= limit", message: "…"}, or {python: "file.py:function"}.'
        reader.report("P103", "a check has either 'expr' or 'python'", reader.place(*path), hint)
        reader.drop(path)
        return None
    return reader.model(CheckSpec, keys, path, "a check")


def tool(reader: SpecReader, value: Any, path: PathKey) -> ToolUse | None:
    if not isinstance(value, dict):
        ref = reader.text(value, path, "an entry of 'tools'")
        return ToolUse(tool=ref) if ref is not None else None
    keys = reader.keys(value, path, ToolUse, "a tool")
    for key in ("keep", "domains", "blocked"):
        if key in keys:
            texts = reader.texts(keys.pop(key) or None, (*path, key), f"{key!r}")
            keys.update({key: texts} if texts else {})
    return reader.model(ToolUse, keys, path, "a tool")


def repeat(reader: SpecReader, value: Any, path: PathKey) -> RepeatSpec | None:
    data = reader.mapping(value, path, "'repeat'")
    if data is None:
        return None
    keys = reader.keys(data, path, RepeatSpec, "'repeat'")
    inner = keys.get("feedback")
    if isinstance(inner, dict):
        keys["feedback"] = _feedback(reader, inner, (*path, "feedback"))
    elif "feedback" in keys:
        keys["feedback"] = reader.text(inner, (*path, "feedback"), "'feedback'")
    keys = {key: given for key, given in keys.items() if key != "feedback" or given is not None}
    return reader.model(RepeatSpec, keys, path, "'repeat'")


def _feedback(reader: SpecReader, value: dict[str, Any], path: PathKey) -> FeedbackSpec | None:
    keys = reader.keys(value, path, FeedbackSpec, "'feedback'")
    return reader.model(FeedbackSpec, keys, path, "'feedback'")


def for_each(reader: SpecReader, value: Any, path: PathKey) -> ForEachSpec:
    """What is faulty is dropped; without a list it stands for a fan-out all the same, so that the rest is read."""
    part = reader.mapping(value, path, "'for_each'")
    keys = reader.keys(part or {}, path, ForEachSpec, "'for_each'")
    if "item" in keys and isinstance(keys["item"], str):
        reader.name(keys["item"], reader.place(*path, "item"), "an item")
    if part is not None and ("in" in keys) == ("same" in keys):
        hint = "Write in: STEP.FIELD, the list; or same: STEP, for the entries of another step with for_each."
        reader.report("P103", "'for_each' has either 'in' or 'same'", reader.place(*path), hint)
        reader.drop(path)
        keys = {key: value for key, value in keys.items() if key not in ("in", "same")}
    return reader.model(ForEachSpec, keys, path, "'for_each'") or ForEachSpec()


def conversation(reader: SpecReader, value: Any, path: PathKey) -> Any:
    if value == "off":
        return "off"
    if isinstance(value, dict):
        keys = reader.keys(value, path, ConversationSpec, "'conversation'")
        return reader.model(ConversationSpec, keys, path, "'conversation'") or ConversationSpec()
    message = f"'conversation' must be off, or {{messages, tokens}}, not {shown(value)}"
    reader.report("P103", message, reader.place(*path), "Write `conversation: off`.")
    reader.drop(path)
    return ConversationSpec()


def gate(reader: SpecReader, value: Any, path: PathKey) -> GateSpec | None:
    part = reader.mapping(value, path, "'gate'")
    if part is None:
        return None
    keys = guards(reader, reader.keys(part, path, GateSpec, "a gate"), path)
    for key in ("shows", "choices"):
        if key in keys:
            keys[key] = reader.texts(keys[key], (*path, key), f"{key!r}")
    for key, model in (("on_reject", OnRejectSpec), ("timeout", GateTimeoutSpec)):
        if key in keys:
            inner = _gate_part(reader, keys.pop(key), (*path, key), model)
            keys.update({} if inner is None else {key: inner})
    return reader.model(GateSpec, keys, path, "a gate")


def _gate_part(reader: SpecReader, value: Any, path: PathKey, model: type[Any]) -> Any:
    part = reader.mapping(value, path, f"{path[-1]!r}")
    if part is None:
        return None
    return reader.model(model, reader.keys(part, path, model, f"{path[-1]!r}"), path, f"{path[-1]!r}")
