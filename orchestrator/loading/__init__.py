"""Files → specs. A pipeline file becomes a `PipelineSpec` whose every part knows its file, line and column.

Three kinds of YAML file are read here: pipelines, contracts (`artifacts/NAME.yaml`) and step definitions
(`steps/NAME.yaml`). A pipeline may be a Python file too: what it declares is read as if YAML had said it. Shorthand is
normalised (`reads: [idea]` is `[{read: idea}]`), keys of a used step definition are merged under the step's own, and
nothing raises for what a file holds: faults are collected, faulty parts dropped, and the rest is returned so that the
checks of the graph still run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import Diagnostic, Place
from orchestrator.faults import nearest, shown
from orchestrator.loading.amounts import amounts
from orchestrator.loading.bindings import PipelineSource, bindings, pipeline_file
from orchestrator.loading.spec_reader import SpecReader
from orchestrator.project import OutsideProject, Project
from orchestrator.python.declarations import Declarations, kebab
from orchestrator.python.loading import declared_contract, declared_in
from orchestrator.python.pipelines import compile_pipeline
from orchestrator.python.references import Found
from orchestrator.settings import substitute_env as substitute_env
from orchestrator.spec import (
    MISSING,
    SCALAR_INPUTS,
    BudgetSpec,
    CheckSpec,
    ContractSpec,
    ConversationSpec,
    DefaultsSpec,
    FeedbackSpec,
    ForEachSpec,
    GateSpec,
    GateTimeoutSpec,
    InputSpec,
    ModelSpec,
    OnRejectSpec,
    PathKey,
    PipelineSpec,
    Places,
    ReadSpec,
    RepeatSpec,
    StepSpec,
    ToolUse,
)
from orchestrator.yaml_nodes import Document, read_yaml

__all__ = ["Loaded", "load_contract", "load_declared", "load_pipeline", "substitute_env"]

# What a step does stands under one of these; giving one at a `uses:` replaces whichever the definition has.
_TASK_KEYS: Final = frozenset({"template", "prompt", "python", "gate"})
_NAMED: Final = frozenset({("steps",), ("inputs",), ("artifacts",), ("models",)})
_WORD_LISTS: Final = ("needs", "stale_on", "fallback", "files")
_REFERENCES: Final = ("template", "python", "tools", "checks", "produces", "files")
_INPUT_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pipeline file as read. `spec` is None where nothing of it could be used.

    `bases` tells for (step, key) which file a key's references are relative to, where that is not the pipeline file.
    `live` holds objects that were declared in Python, by the reference that stands for them in the spec.
    `pipelines` are those that steps use, by step.
    `dropped` holds the path of every part that was left out because of a fault that is already reported.
    """

    spec: PipelineSpec | None
    places: Places
    path: Path
    bases: Mapping[tuple[str, str], Path]
    diagnostics: tuple[Diagnostic, ...]
    dropped: frozenset[PathKey] = frozenset()
    live: Mapping[str, Found] = field(default_factory=dict)
    pipelines: Mapping[str, PipelineSource] = field(default_factory=dict)

    def base(self, step: str, key: str) -> Path:
        """The file that references under a step's key are relative to."""
        return self.bases.get((step, key), self.path)

    def damaged(self, *path: str | int) -> bool:
        """Whether a part, or something inside it, was left out: what it lacks is then no new fault."""
        return any(part[: len(path)] == path for part in self.dropped)


def load_pipeline(project: Project, path: Path) -> Loaded:
    """The pipeline a file declares, with every fault of its text. Raises nothing for what the file holds.

    A Python file is executed.
    """
    if path.suffix == ".py":
        found = declared_in(project, path)
        if isinstance(found, Diagnostic):
            return Loaded(None, Places(project.display(path)), path, {}, (found,))
        return load_declared(project, found, path)
    return _loaded(project, path, _document(project, path))


def load_declared(project: Project, declared: Declarations, path: Path) -> Loaded:
    """The pipeline that was declared in Python; `path` is the file that references are relative to."""
    compiled = compile_pipeline(project, declared, path)
    return _loaded(project, path, compiled.document, compiled.others, compiled.live, compiled.pipelines)


def _loaded(
    project: Project,
    path: Path,
    document: Document,
    others: Sequence[Document] = (),
    live: Mapping[str, Found] | None = None,
    declared: Mapping[str, Declarations] | None = None,
) -> Loaded:
    loader = _PipelineLoader(project, path, document, declared or {})
    reader = loader.reader
    for other in others:
        reader.include(other)
    spec = loader.pipeline(document.data) if _is_mapping(document, reader, "a pipeline file") else None
    found = tuple(dict.fromkeys(reader.diagnostics))
    dropped = frozenset(reader.dropped)
    return Loaded(spec, reader.located(), path, loader.bases, found, dropped, live or {}, loader.pipelines)


def load_contract(
    project: Project, path: Path, *, steps: Sequence[str] = ()
) -> tuple[ContractSpec | None, Places, tuple[Diagnostic, ...]]:
    """The contract of a shelf file. `steps` are those that produce it, named where it says too little.

    A Python file is executed: it declares the contract with `@artifact`.
    """
    document = declared_contract(project, path) if path.suffix == ".py" else _document(project, path)
    reader = SpecReader(document)
    spec = None
    if _is_mapping(document, reader, "a contract file"):
        _check_env(reader, document.data, ())
        name = kebab(path.stem) if path.suffix == ".py" else path.stem
        spec = _contract(reader, document.data, (), name, steps)
    return spec, reader.located(), tuple(reader.diagnostics)


def _document(project: Project, path: Path) -> Document:
    shown_name = project.display(path)
    document = Document(shown_name)
    place = Place(shown_name)
    if not project.holds(path):
        document.report("P108", f"{shown_name} is outside the project", place, "Move the file into the project.")
        return document
    try:
        body = path.read_bytes()
    except FileNotFoundError:
        document.report("P001", f"there is no file {shown_name}", place)
        return document
    except OSError as error:
        what = f"{shown_name} cannot be read: {error.strerror}"
        document.report("P001", what, place, "Make it a file that you may read.")
        return document
    return read_yaml(body, shown_name)


def _is_mapping(document: Document, reader: SpecReader, what: str) -> bool:
    """Whether there is a mapping to read; reports what stands there instead, unless something is reported already."""
    if isinstance(document.data, dict):
        return True
    if not document.diagnostics:
        found = shown(document.data)
        reader.report("P005", f"{what} must be a mapping, not {found}", reader.place(), "Write `key: value` lines.")
    return False


class _PipelineLoader:
    """One pipeline file and the step definitions it uses. `declared` are pipelines that it uses as Python objects."""

    def __init__(self, project: Project, path: Path, document: Document, declared: Mapping[str, Declarations]) -> None:
        self.project = project
        self.path = path
        self.reader = SpecReader(document)
        self.bases: dict[tuple[str, str], Path] = {}
        self.producers: dict[str, list[str]] = {}
        self.declared = declared
        self.pipelines: dict[str, PipelineSource] = {}

    def pipeline(self, data: dict[str, Any]) -> PipelineSpec | None:
        reader = self.reader
        _check_env(reader, data, ())
        data = reader.keys(data, (), PipelineSpec, "a pipeline")
        self._note_producers(data.get("steps"))
        parts: dict[str, Any] = {
            "pipeline": self._pipeline_name(data),
            "inputs": self._named(data, "inputs", "an input", self._input),
            "artifacts": self._named(data, "artifacts", "a contract", self._artifact),
            "models": self._named(data, "models", "a model alias", self._model),
            "steps": self._named(data, "steps", "a step", self._step),
            "defaults": self._section(data, "defaults", DefaultsSpec) or DefaultsSpec(),
            "budget": self._budget(data),
        }
        if "steps" not in data or data["steps"] == {}:
            reader.report("P102", "'steps' is missing: a pipeline has at least one step", reader.key_place("steps"))
        if "outputs" in data:
            parts["outputs"] = reader.texts(data["outputs"], ("outputs",), "'outputs'")
        if type(data.get("version", 1)) is not int:  # 1.0 and true equal 1, and are not what is asked for
            message = f"'version' must be 1, not {shown(data.pop('version'))}"
            reader.report("P103", message, reader.place("version"))
        parts.update({key: data[key] for key in ("version", "description", "system") if key in data})
        return reader.model(PipelineSpec, {k: v for k, v in parts.items() if v is not None}, (), "a pipeline")

    def _pipeline_name(self, data: Mapping[str, Any]) -> str:
        """The declared name; where it is faulty, the file's stem stands in, so that the rest can be checked."""
        if "pipeline" not in data:
            self.reader.report("P102", "'pipeline' is missing: the name of the pipeline", self.reader.place())
            return self.path.stem
        name = self.reader.text(data["pipeline"], ("pipeline",), "'pipeline'")
        if name is not None:
            self.reader.name(name, self.reader.place("pipeline"), "a pipeline")
        return name or self.path.stem

    def _named(
        self, data: Mapping[str, Any], key: str, what: str, read: Callable[[str, dict[str, Any], PathKey], Any]
    ) -> dict[str, Any]:
        """The parts of a section whose keys are names; a part that cannot be used is dropped."""
        reader, result = self.reader, {}
        section = reader.mapping(data[key], (key,), f"{key!r}") if key in data else None
        for name, value in (section or {}).items():
            path: PathKey = (key, name)
            reader.name(name, reader.key_place(*path), what)
            part = reader.mapping(value, path, f"{what} ({name!r})")
            spec = read(name, part, path) if part is not None else None
            if spec is None:
                reader.drop(path)
            else:
                result[name] = spec
        return result

    def _section(self, data: Mapping[str, Any], key: str, model: type[Any]) -> Any:
        part = self.reader.mapping(data[key], (key,), f"{key!r}") if key in data else None
        if part is None:
            return None
        keys = amounts(self.reader, self._lists(self.reader.keys(part, (key,), model, f"{key!r}"), (key,)), (key,))
        return self.reader.model(model, keys, (key,), f"{key!r}")

    def _lists(self, keys: dict[str, Any], path: PathKey) -> dict[str, Any]:
        """The keys that are lists of words, read as such."""
        for key in _WORD_LISTS:
            if key in keys:
                keys[key] = self.reader.texts(keys[key], (*path, key), f"{key!r}")
        return keys

    def _budget(self, data: Mapping[str, Any]) -> BudgetSpec | None:
        part = self.reader.mapping(data["budget"], ("budget",), "'budget'") if "budget" in data else None
        if part is None:
            return None
        keys = self.reader.keys(part, ("budget",), BudgetSpec, "'budget'")
        keys = amounts(self.reader, keys, ("budget",))
        return self.reader.model(BudgetSpec, keys, ("budget",), "'budget'")

    def _input(self, name: str, data: dict[str, Any], path: PathKey) -> InputSpec | None:
        reader = self.reader
        keys = reader.keys(data, path, InputSpec, "an input")
        kind = reader.text(keys["type"], (*path, "type"), "'type'") if "type" in keys else None
        keys = _guards(reader, keys, path)
        if kind is None:
            if "type" not in keys:
                reader.report("P102", f"'type' is missing in input {name!r}", reader.key_place(*path), _input_hint())
            keys["type"] = kind = "text"
        elif "about" not in keys and (*path, "about") not in reader.dropped and kind not in SCALAR_INPUTS:
            message = f"input {name!r} ({kind}) does not say what it represents: 'about' is missing"
            reader.report("P105", message, reader.key_place(*path), 'Add about: "What the customer …".')
        if "enum" in keys:
            keys = self._words(keys, kind, name, path)
        if not _fits(kind, keys.get("default", MISSING)):
            given = shown(keys.pop("default"))
            raw = reader.raw.get((*path, "default"))
            hint = f'Quote it if it is text: "{raw}"' if raw is not None and kind in ("text", "string") else None
            message = f"the default of input {name!r} is not of type {kind}: {given}"
            reader.report("P112", message, reader.place(*path, "default"), hint)
            reader.drop((*path, "default"))
        return reader.model(InputSpec, keys, path, "an input")

    def _words(self, keys: dict[str, Any], kind: str, name: str, path: PathKey) -> dict[str, Any]:
        """The input's `enum`, left out where it is of no use, and reported."""
        at = (*path, "enum")
        words = self.reader.texts(keys["enum"], at, "'enum'")
        if kind == "string" and words and len(set(words)) == len(words):
            return {**keys, "enum": words}
        if words or keys["enum"] == []:
            self._no_words(kind, name, at)
        return {key: value for key, value in keys.items() if key != "enum"}

    def _no_words(self, kind: str, name: str, at: PathKey) -> None:
        hint = "Write type: string." if kind != "string" else "Write words that differ: [formal, friendly]."
        said = f"{kind} has no enum" if kind != "string" else "its enum is not a list of different words"
        self.reader.report("P103", f"input {name!r}: {said}", self.reader.place(*at), hint)
        self.reader.drop(at)

    def _artifact(self, name: str, data: dict[str, Any], path: PathKey) -> ContractSpec | None:
        return _contract(self.reader, data, path, name, self.producers.get(name, []))

    def _model(self, name: str, data: dict[str, Any], path: PathKey) -> ModelSpec | None:
        keys = self._lists(self.reader.keys(data, path, ModelSpec, "a model alias"), path)
        return self.reader.model(ModelSpec, keys, path, f"model alias {name!r}")

    def _note_producers(self, steps: object) -> None:
        for name, step in steps.items() if isinstance(steps, dict) else ():
            contract = step.get("produces", name) if isinstance(step, dict) else name
            self.producers.setdefault(str(contract), []).append(name)

    # --- steps ---

    def _step(self, name: str, data: dict[str, Any], path: PathKey) -> StepSpec | None:
        reader = self.reader
        if "uses" in data:
            data = self._with_definition(name, data, path)
        keys = self._lists(_guards(reader, reader.keys(data, path, StepSpec, "a step"), path), path)
        keys = amounts(reader, keys, path)
        keys |= self._with(name, keys.pop("with", MISSING), path)
        if "reads" in keys:
            keys["reads"] = self._entries(keys["reads"], (*path, "reads"), self._read)
        if "checks" in keys:
            keys["checks"] = self._entries(keys["checks"], (*path, "checks"), self._check)
        if "tools" in keys:
            keys["tools"] = self._entries(keys["tools"], (*path, "tools"), self._tool)
        if "conversation" in keys:
            keys["conversation"] = self._conversation(keys["conversation"], (*path, "conversation"))
        if "repeat" in keys:
            keys["repeat"] = self._repeat(keys["repeat"], (*path, "repeat"))
        if "for_each" in keys:
            keys |= {"for_each": self._for_each(keys.pop("for_each"), (*path, "for_each"))}
        if "gate" in keys:
            gate = self._gate(keys.pop("gate"), (*path, "gate"))
            keys.update({} if gate is None else {"gate": gate})
        return reader.model(StepSpec, keys, path, "a step")

    def _with(self, name: str, value: object, path: PathKey) -> dict[str, Any]:
        """What the inputs of a used pipeline are given; nothing for a step that uses none."""
        if name in self.pipelines:
            return {"with": bindings(self.reader, value, (*path, "with")) if value is not MISSING else {}}
        if value is not MISSING:
            if (*path, "uses") not in self.reader.dropped:
                hint = "What a step reads stands under `reads`; `with` is for uses: PIPELINE."
                message = f"step {name!r} uses no pipeline, so it has no inputs that 'with' could give"
                self.reader.report("P270", message, self.reader.key_place(*path, "with"), hint)
            self.reader.drop((*path, "with"))
        return {}

    def _entries(self, value: object, path: PathKey, read: Callable[[Any, PathKey], Any]) -> tuple[Any, ...]:
        entries = self.reader.sequence(value, path, f"{path[-1]!r}") or []
        found = [(index, read(entry, (*path, index))) for index, entry in enumerate(entries)]
        kept = [(index, spec) for index, spec in found if spec is not None]
        self.reader.keep_entries(path, [index for index, _ in kept], len(found))
        return tuple(spec for _, spec in kept)

    def _read(self, value: Any, path: PathKey) -> ReadSpec | None:
        reader = self.reader
        if not isinstance(value, dict):
            name = reader.text(value, path, "a read")
            return ReadSpec(read=name) if name is not None else None
        keys = _guards(reader, reader.keys(value, path, ReadSpec, "a read"), path)
        if "fields" in keys:
            fields = reader.texts(keys.pop("fields") or None, (*path, "fields"), "'fields'")
            keys.update({"fields": fields} if fields else {})
        read = reader.model(ReadSpec, keys, path, "a read") if self._names_a_read(value, keys, path) else None
        if read is not None and not read.read and read.select is None:  # what it names is faulty, and reported
            reader.drop(path)
            return None
        return read

    def _names_a_read(self, value: Mapping[str, Any], keys: Mapping[str, Any], path: PathKey) -> bool:
        """Whether an entry says what is read: by name, or by a selection, which takes whole values."""
        reader, place = self.reader, self.reader.key_place(*path)
        if "read" not in value and "select" not in value:
            reader.report(
                "P102", "'read' is missing in a read", place, "Name a step or input, or write select: tag:TAG."
            )
        elif "read" in keys and "select" in keys:
            reader.report("P207", "a read has both 'read' and 'select'", place, "Make two entries of it.")
        elif "select" in keys and "fields" in keys:
            reader.report(
                "P207", "a selection reads whole values, so it has no 'fields'", place, "Read by name instead."
            )
        else:
            return True
        reader.drop(path)
        return False

    def _check(self, value: Any, path: PathKey) -> CheckSpec | None:
        reader = self.reader
        if not isinstance(value, dict):
            expr = reader.text(value, path, "a check")
            return CheckSpec(expr=expr) if expr is not None else None
        keys = _guards(reader, reader.keys(value, path, CheckSpec, "a check"), path)
        if ("expr" in keys) == ("python" in keys):
            hint = 'Write {expr: "total <= limit", message: "…"}, or {python: "file.py:function"}.'
            reader.report("P103", "a check has either 'expr' or 'python'", reader.place(*path), hint)
            reader.drop(path)
            return None
        return reader.model(CheckSpec, keys, path, "a check")

    def _tool(self, value: Any, path: PathKey) -> ToolUse | None:
        reader = self.reader
        if not isinstance(value, dict):
            ref = reader.text(value, path, "an entry of 'tools'")
            return ToolUse(tool=ref) if ref is not None else None
        keys = reader.keys(value, path, ToolUse, "a tool")
        for key in ("keep", "domains", "blocked"):
            if key in keys:
                texts = reader.texts(keys.pop(key) or None, (*path, key), f"{key!r}")
                keys.update({key: texts} if texts else {})
        return reader.model(ToolUse, keys, path, "a tool")

    def _repeat(self, value: Any, path: PathKey) -> RepeatSpec | None:
        reader = self.reader
        data = reader.mapping(value, path, "'repeat'")
        if data is None:
            return None
        keys = reader.keys(data, path, RepeatSpec, "'repeat'")
        inner = keys.get("feedback")
        if isinstance(inner, dict):
            keys["feedback"] = self._feedback(inner, (*path, "feedback"))
        elif "feedback" in keys:
            keys["feedback"] = reader.text(inner, (*path, "feedback"), "'feedback'")
        keys = {key: given for key, given in keys.items() if key != "feedback" or given is not None}
        return reader.model(RepeatSpec, keys, path, "'repeat'")

    def _feedback(self, value: dict[str, Any], path: PathKey) -> FeedbackSpec | None:
        keys = self.reader.keys(value, path, FeedbackSpec, "'feedback'")
        return self.reader.model(FeedbackSpec, keys, path, "'feedback'")

    def _for_each(self, value: Any, path: PathKey) -> ForEachSpec:
        """What is faulty is dropped; without a list it stands for a fan-out all the same, so that the rest is read."""
        reader = self.reader
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

    def _conversation(self, value: Any, path: PathKey) -> Any:
        reader = self.reader
        if value == "off":
            return "off"
        if isinstance(value, dict):
            keys = reader.keys(value, path, ConversationSpec, "'conversation'")
            return reader.model(ConversationSpec, keys, path, "'conversation'") or ConversationSpec()
        message = f"'conversation' must be off, or {{messages, tokens}}, not {shown(value)}"
        reader.report("P103", message, reader.place(*path), "Write `conversation: off`.")
        reader.drop(path)
        return ConversationSpec()

    def _gate(self, value: Any, path: PathKey) -> GateSpec | None:
        reader = self.reader
        part = reader.mapping(value, path, "'gate'")
        if part is None:
            return None
        keys = _guards(reader, reader.keys(part, path, GateSpec, "a gate"), path)
        for key in ("shows", "choices"):
            if key in keys:
                keys[key] = reader.texts(keys[key], (*path, key), f"{key!r}")
        for key, model in (("on_reject", OnRejectSpec), ("timeout", GateTimeoutSpec)):
            if key in keys:
                inner = self._gate_part(keys.pop(key), (*path, key), model)
                keys.update({} if inner is None else {key: inner})
        return reader.model(GateSpec, keys, path, "a gate")

    def _gate_part(self, value: Any, path: PathKey, model: type[Any]) -> Any:
        part = self.reader.mapping(value, path, f"{path[-1]!r}")
        if part is None:
            return None
        return self.reader.model(model, self.reader.keys(part, path, model, f"{path[-1]!r}"), path, f"{path[-1]!r}")

    # --- step definitions ---

    def _with_definition(self, name: str, data: dict[str, Any], path: PathKey) -> dict[str, Any]:
        """The keys of a used definition under the step's own; each keeps the place and the base of its file."""
        reader = self.reader
        reference = reader.text(data["uses"], (*path, "uses"), "'uses'")
        file = self._definition_file(reference, path) if reference is not None else None
        if reference is not None and self._uses_pipeline(name, reference, file, path):
            return data
        if file is None:
            reader.drop((*path, "uses"))
            return {key: value for key, value in data.items() if key != "uses"}
        document = _document(self.project, file)
        definition = self._definition(document, file)
        if definition is None:
            reader.drop((*path, "uses"))
            return data
        replaced = {*data, *(_TASK_KEYS if _TASK_KEYS & data.keys() else ())}
        taken = {key: value for key, value in definition.items() if key not in replaced}
        reader.graft(document, list(taken), path)
        self.bases.update({(name, key): file for key in taken if key in _REFERENCES})
        return {**taken, **data}

    def _definition(self, document: Document, file: Path) -> dict[str, Any] | None:
        """The step keys of a definition file. Faults of its text are reported in its own name."""
        own = SpecReader(document)
        keys: dict[str, Any] | None = None
        if _is_mapping(document, own, "a step definition"):
            _check_env(own, document.data, ())
            keys = {key: value for key, value in document.data.items() if key not in ("step", "uses")}
            if "uses" in document.data:
                hint = "Write the keys out; only a pipeline's step uses a definition."
                own.report("P109", "a step definition cannot use another one", own.key_place("uses"), hint)
            declared = document.data.get("step", file.stem)
            if declared != file.stem:
                message = f"the definition is called {declared!r} and its file {file.stem!r}"
                own.report("P110", message, own.place("step"), "Give both the same name.")
        self.reader.include(document)
        self.reader.diagnostics.extend(own.diagnostics)
        return keys

    def _definition_file(self, reference: str, path: PathKey) -> Path | None:
        reader, place = self.reader, self.reader.place(*path, "uses")
        try:
            found = self.project.resolve(reference, self.path, "steps")
        except OutsideProject:
            message = f"{reference!r} leads out of the project"
            reader.report("P108", message, place, "Put the definition on the shelf steps/ of the project.")
            reader.drop((*path, "uses"))
            return None
        return found

    def _uses_pipeline(self, name: str, reference: str, found: Path | None, path: PathKey) -> bool:
        """Whether a step uses a pipeline, which is noted; reports a reference that names nothing at all."""
        reader = self.reader
        if (*path, "uses") in reader.dropped:
            return False
        used = self.declared.get(reference) or pipeline_file(self.project, reference, found)
        if used is not None:
            self.pipelines[name] = used
            return True
        if found is None:
            pipelines = [file.stem for file in self.project.pipelines() if file != self.path]
            hint = nearest(reference, [*self.project.shelf_names("steps"), *pipelines])
            reader.report("P107", f"there is no step definition {reference!r}", reader.place(*path, "uses"), hint)
        return False


# --- contracts --------------------------------------------------------------------------------------------------------


def _contract(
    reader: SpecReader, data: dict[str, Any], path: PathKey, name: str, steps: Sequence[str]
) -> ContractSpec | None:
    """A contract, inline (`name` is its key) or of a file (`name` is its stem)."""
    keys = _guards(reader, reader.keys(data, path, ContractSpec, "a contract"), path)
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


def _guards(reader: SpecReader, keys: dict[str, Any], path: PathKey) -> dict[str, Any]:
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


# --- values -----------------------------------------------------------------------------------------------------------


def _fits(kind: str, default: object) -> bool:
    """Whether a default is of an input's simple type. Null is allowed: it means that nothing was stated."""
    types = _INPUT_TYPES.get(kind)
    if types is None or default is MISSING or default is None:
        return True
    return isinstance(default, types) and (kind == "boolean" or not isinstance(default, bool))


def _input_hint() -> str:
    return "One of text, string, number, integer, boolean, file, or the name of a contract."


def _check_env(reader: SpecReader, value: object, path: PathKey) -> None:
    """Reports every `${env:…}` that stands where none is replaced (S24)."""
    if isinstance(value, dict):
        for key, item in value.items():
            if path in _NAMED or not key.startswith("x-"):
                _check_env(reader, item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_env(reader, item, (*path, index))
    elif isinstance(value, str) and "${env:" in value and not (path[:1] == ("models",) and path[2:] == ("use",)):
        hint = "Put the value into an input, or the text into a template if it is meant literally."
        reader.report("P111", "${env:…} is replaced in a model's 'use' only", reader.place(*path), hint)
