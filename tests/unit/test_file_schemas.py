"""The JSON Schemas of the files people write: what the loader accepts they accept; what they refuse it refuses."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.loading import load_contract, load_pipeline
from orchestrator.loading.file_schemas import FILE_KINDS, FileKind, file_schema
from orchestrator.loading.key_help import KEY_HELP
from orchestrator.project import Project
from orchestrator.spec import PipelineSpec, Strict
from orchestrator.yaml_nodes import read_yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS: dict[FileKind, Draft202012Validator] = {kind: Draft202012Validator(file_schema(kind)) for kind in FILE_KINDS}


def files() -> Iterator[tuple[FileKind, Path]]:
    """Every file of every example, of the library and of the project that `orch init` makes."""
    starter = ROOT / "orchestrator" / "starter"
    for project in (ROOT, starter, *(path for path in sorted((ROOT / "examples").iterdir()) if path.is_dir())):
        yield from (("artifact", path) for path in sorted((project / "artifacts").rglob("*.yaml")))
        yield from (("step", path) for path in sorted((project / "steps").rglob("*.yaml")))
        for path in sorted([*project.glob("*.yaml"), *project.glob("pipelines/*.yaml")]):
            if "\npipeline:" in path.read_text(encoding="utf-8"):
                yield "pipeline", path


def data(text: str) -> Any:
    document = read_yaml(text.encode(), "f.yaml")
    assert not document.diagnostics, document.diagnostics
    return document.data


def faults(kind: FileKind, text: str) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in SCHEMAS[kind].iter_errors(data(text))]


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_each_schema_is_one(kind: FileKind) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema = file_schema(kind)
    Draft202012Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False)


@pytest.mark.parametrize(("kind", "path"), [pytest.param(k, p, id=str(p.relative_to(ROOT))) for k, p in files()])
def test_every_file_we_ship_fits_its_schema(kind: FileKind, path: Path) -> None:
    assert faults(kind, path.read_text(encoding="utf-8")) == []


def test_there_are_files_of_each_kind() -> None:
    assert {kind for kind, _ in files()} == set(FILE_KINDS)


STEP = "pipeline: p\nsteps:\n  s: {prompt: Do., "
RIGHT: list[tuple[FileKind, str]] = [
    ("pipeline", STEP + "reads: [a, {read: b, fields: [x], guard: No., default: null}]}"),
    ("pipeline", STEP + 'checks: ["a > 1", {expr: b, message: M.}, {python: "c.py:d"}]}'),
    ("pipeline", STEP + "conversation: off}"),
    ("pipeline", STEP + "for_each: {item: c, in: a.b, key: k, where: x > 1, at_most: 3, over: fail, concurrency: 2}}"),
    ("pipeline", STEP + "for_each: {same: a, on_error: collect}}"),
    ("pipeline", STEP + "conversation: {messages: 0}}"),
    ("pipeline", STEP + "timeout: 1.5h, call_timeout: 30 s, reasks: 0, x-own: [1]}"),
    ("pipeline", STEP + "uses: other, needs: [t], tools: ['t.py:f'], effort: high}"),
    ("pipeline", STEP + 'reads: [a]}\nbudget: {usd: 4}\nx-team: {a: "b"}'),
    ("pipeline", STEP + 'reads: [a]}\nbudget: {usd: "4.00", on_exceed: fail, unpriced: allow}'),
    ("pipeline", STEP + "reads: [a]}\ninputs: {a: {type: string, default: no}, b: {type: text, about: B.}}"),
    ("pipeline", STEP + "reads: [a]}\ninputs: {a: {type: rates, about: A., not_for: [C.]}}"),
    ("pipeline", STEP + "reads: [a]}\nartifacts: {s: {about: A., not_for: none, schema: {type: object}}}"),
    ("pipeline", STEP + "reads: [a]}\nartifacts: {s: {artifact: s, about: A., not_for: [B.], schema: text}}"),
    ("pipeline", STEP + 'reads: [a]}\nmodels: {default: {use: "${env:ORCH_MODEL}", max_output_tokens: 9}}'),
    ("pipeline", STEP + 'reads: [{read: a, require: approved}], review: required, ungated: "No."}'),
    (
        "pipeline",
        STEP + "}\n  g: {gate: {ask: A., shows: [s], choices: [approve, stop], timeout: {after: 2d, then: stop}}}",
    ),
    (
        "pipeline",
        STEP + "}\n  g: {gate: {ask: A., shows: [s], on_reject: {redo: s, mode: fresh, then: go_on}}, needs: [s]}",
    ),
    ("step", "step: f\nreads: [a]\ntemplate: t.md.j2\nproduces: b"),
    ("step", "prompt: Do.\nx-own: 1"),
    ("artifact", 'artifact: f\nabout: A.\nnot_for: none\nschema: "s.py:M"\ntags: [a]\nsensitivity: secret'),
    ("artifact", "artifact: f\nabout: A.\nnot_for: [B.]\nschema: {type: object}\nmax_tokens: 5\noverflow: fail"),
]
WRONG: list[tuple[FileKind, str]] = [
    ("pipeline", "steps: {s: {prompt: Do.}}"),
    ("pipeline", "pipeline: p"),
    ("pipeline", "pipeline: p\nsteps: {}"),
    ("pipeline", "pipeline: P\nsteps: {s: {prompt: Do.}}"),
    ("pipeline", "pipeline: p\nversion: 2\nsteps: {s: {prompt: Do.}}"),
    ("pipeline", "pipeline: p\nsteps: {S: {prompt: Do.}}"),
    ("pipeline", "pipeline: p\nsteps: {s: [prompt]}"),
    ("pipeline", "pipeline: p\nsteps: {s: {promt: Do.}}"),
    ("pipeline", "pipeline: p\nsteps: {s: {prompt: }}"),
    ("pipeline", STEP + "reads: a}"),
    ("pipeline", STEP + "reads: [1]}"),
    ("pipeline", STEP + "reads: [{fields: [x]}]}"),
    ("pipeline", STEP + "reads: [{read: a, fields: []}]}"),
    ("pipeline", STEP + "reads: [{read: a, guards: No.}]}"),
    ("pipeline", STEP + "checks: [{expr: a, python: 'c.py:d'}]}"),
    ("pipeline", STEP + "checks: [{message: M.}]}"),
    ("pipeline", STEP + "conversation: none}"),
    ("pipeline", STEP + "timeout: 30}"),
    ("pipeline", STEP + "timeout: 0s}"),
    ("pipeline", STEP + "timeout: soon}"),
    ("pipeline", STEP + "reasks: 21}"),
    ("pipeline", STEP + "effort: much}"),
    ("pipeline", STEP + "gate: Ask.}"),
    ("pipeline", STEP + "review: yes}"),
    ("pipeline", STEP + "gate: {shows: [s]}}"),
    ("pipeline", STEP + "gate: {ask: A., shows: [s], choices: [accept]}}"),
    ("pipeline", STEP + "gate: {ask: A., shows: [s], timeout: {after: 2d}}}"),
    ("pipeline", STEP + "gate: {ask: A., shows: [s], on_reject: {max_rounds: 0}}}"),
    ("pipeline", STEP + "description: }"),
    ("pipeline", STEP + "reads: [a]}\nbudget: {usd: -1}"),
    ("pipeline", STEP + "reads: [a]}\nbudget: {usd: much}"),
    ("pipeline", STEP + "reads: [a]}\nbudget: {}"),
    ("pipeline", STEP + "reads: [a]}\ninputs: {a: {type: text}}"),
    ("pipeline", STEP + "reads: [a]}\ninputs: {a: {about: A.}}"),
    ("pipeline", STEP + "reads: [a]}\ninputs: {a: {type: text, about: A., not_for: []}}"),
    ("pipeline", STEP + "reads: [a]}\nartifacts: {s: {not_for: none, schema: text}}"),
    ("pipeline", STEP + "reads: [a]}\nartifacts: {s: {about: A., schema: text}}"),
    ("pipeline", STEP + "reads: [a]}\nmodels: {default: {}}"),
    ("step", "uses: other"),
    ("step", "step: f\nprompts: Do."),
    ("artifact", "about: A.\nnot_for: none\nschema: text"),
    ("artifact", "artifact: f\nabout: A.\nnot_for: nothing\nschema: text"),
    ("artifact", "artifact: f\nabout: A.\nnot_for: none"),
    ("artifact", "artifact: f\nabout: A.\nnot_for: none\nschema: 5"),
    ("artifact", "artifact: f\nabout: A.\nnot_for: none\nschema: text\noverflow: drop"),
]


def loader_faults(project: Project, kind: FileKind, text: str) -> list[str]:
    """What the loader says of the same file; a step definition is used by a pipeline."""
    (project.root / "steps").mkdir(exist_ok=True)
    (project.root / "steps" / "other.yaml").write_text("description: Another.\n", encoding="utf-8")
    folder = {"pipeline": "", "step": "steps", "artifact": "artifacts"}[kind]
    path = project.root / folder / "f.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if kind == "artifact":
        return [d.code for d in load_contract(project, path)[2]]
    if kind == "step":
        path = project.root / "p.yaml"
        path.write_text("pipeline: p\nsteps: {s: {uses: f}}\n", encoding="utf-8")
    return [d.code for d in load_pipeline(project, path).diagnostics]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=tmp_path.resolve(), file=tmp_path / "orchestrator.toml", config={})


@pytest.mark.parametrize(("kind", "text"), RIGHT)
def test_what_the_loader_accepts_fits(kind: FileKind, text: str, project: Project) -> None:
    assert loader_faults(project, kind, text) == []
    assert faults(kind, text) == []


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_what_the_loader_refuses_for_its_shape_does_not_fit(kind: FileKind, text: str, project: Project) -> None:
    assert loader_faults(project, kind, text) != []
    assert faults(kind, text) != []


def models(model: type[Strict], found: dict[str, type[Strict]]) -> dict[str, type[Strict]]:
    """A spec model and all that it is made of."""
    found[model.__name__] = model
    for field in model.model_fields.values():
        for part in _parts(field.annotation):
            if part.__name__ not in found:
                models(part, found)
    return found


def _parts(annotation: Any) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _parts(inner)


def test_every_key_is_explained_and_no_other() -> None:
    for name, model in models(PipelineSpec, {}).items():
        keys = {field.alias or key for key, field in model.model_fields.items()}
        assert set(KEY_HELP[name]) - {"step"} == keys, name


def test_every_key_in_every_schema_has_its_explanation() -> None:
    for kind in FILE_KINDS:
        schema = file_schema(kind)
        for part in (schema, *schema.get("$defs", {}).values()):
            for key, value in part["properties"].items():
                assert value.get("description", "").endswith("."), (kind, key)
