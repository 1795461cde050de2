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
from functools import partial
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import Diagnostic, Place
from orchestrator.faults import nearest, shown
from orchestrator.loading import step_parts
from orchestrator.loading.amounts import amounts
from orchestrator.loading.bindings import PipelineSource, bindings, pipeline_file
from orchestrator.loading.contracts import contract, guards
from orchestrator.loading.inputs import read_input
from orchestrator.loading.spec_reader import SpecReader
from orchestrator.project import OutsideProject, Project
from orchestrator.python.declarations import Declarations, kebab
from orchestrator.python.loading import declared_contract, declared_in
from orchestrator.python.pipelines import compile_pipeline
from orchestrator.python.references import Found
from orchestrator.settings import substitute_env as substitute_env
from orchestrator.spec import (
    MISSING,
    BudgetSpec,
    ContractSpec,
    DefaultsSpec,
    ModelSpec,
    PathKey,
    PipelineSpec,
    Places,
    StepSpec,
    VendorContextSpec,
)
from orchestrator.yaml_nodes import Document, read_yaml

__all__ = ["Loaded", "load_contract", "load_declared", "load_pipeline", "substitute_env"]

# What a step does stands under one of these; giving one at a `uses:` replaces whichever the definition has.
_TASK_KEYS: Final = frozenset({"template", "prompt", "python", "gate"})
_NAMED: Final = frozenset({("steps",), ("inputs",), ("artifacts",), ("models",)})
_WORD_LISTS: Final = ("needs", "stale_on", "fallback", "files")
_REFERENCES: Final = ("template", "python", "tools", "checks", "produces", "files")


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
        spec = contract(reader, document.data, (), name, steps)
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
            "inputs": self._named(data, "inputs", "an input", partial(read_input, self.reader)),
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

    def _artifact(self, name: str, data: dict[str, Any], path: PathKey) -> ContractSpec | None:
        return contract(self.reader, data, path, name, self.producers.get(name, []))

    def _model(self, name: str, data: dict[str, Any], path: PathKey) -> ModelSpec | None:
        keys = self._lists(self.reader.keys(data, path, ModelSpec, "a model alias"), path)
        if isinstance(keys.get("vendor_context"), dict):
            edits = (*path, "vendor_context")
            known = self.reader.keys(keys["vendor_context"], edits, VendorContextSpec, "'vendor_context'")
            keys["vendor_context"] = self.reader.model(VendorContextSpec, known, edits, "'vendor_context'")
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
        keys = self._lists(guards(reader, reader.keys(data, path, StepSpec, "a step"), path), path)
        keys = amounts(reader, keys, path)
        keys |= self._with(name, keys.pop("with", MISSING), path)
        if "reads" in keys:
            keys["reads"] = step_parts.entries(reader, keys["reads"], (*path, "reads"), step_parts.read)
        if "checks" in keys:
            keys["checks"] = step_parts.entries(reader, keys["checks"], (*path, "checks"), step_parts.check)
        if "tools" in keys:
            keys["tools"] = step_parts.entries(reader, keys["tools"], (*path, "tools"), step_parts.tool)
        if "conversation" in keys:
            keys["conversation"] = step_parts.conversation(reader, keys["conversation"], (*path, "conversation"))
        if "repeat" in keys:
            keys["repeat"] = step_parts.repeat(reader, keys["repeat"], (*path, "repeat"))
        if "for_each" in keys:
            keys |= {"for_each": step_parts.for_each(reader, keys.pop("for_each"), (*path, "for_each"))}
        if "gate" in keys:
            gate = step_parts.gate(reader, keys.pop("gate"), (*path, "gate"))
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
