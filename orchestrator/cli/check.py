"""`check`: every fault of every pipeline and contract of the project, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.report import diagnostic_document, print_diagnostics, print_document
from orchestrator.cli.terminal import console, plural, show, visible
from orchestrator.errors import ConfigError, Diagnostic, InvalidProject, Place, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk
    from orchestrator.graph import Graph

SCHEMA = "orch.check/1"


@command("check")
@click.argument("name", required=False)
def check(state: State, name: str | None) -> int:
    """Find every fault of the project in one pass.

    Checks all pipelines and the contracts on the shelf, or the one pipeline NAME. Nothing is sent.
    """
    from orchestrator.cli.session import open_desk

    desk = open_desk(state)
    graphs, diagnostics = check_project(desk, name)
    if any(d.level == "error" for d in diagnostics):
        raise InvalidProject(diagnostics)
    if diagnostics:
        print_diagnostics(diagnostics)
    if state.json:
        print_document(_document(graphs, diagnostics))
    else:
        _print_success(graphs, diagnostics)
    return 0


def check_project(desk: Desk, name: str | None) -> tuple[tuple[Graph, ...], tuple[Diagnostic, ...]]:
    """The graphs that could be built, and all diagnostics, each once however many pipelines share the file."""
    from orchestrator.graph import check_pipeline

    project = desk.project
    paths = [project.pipeline(name)] if name is not None else list(project.pipelines())
    graphs: list[Graph] = []
    found: dict[Diagnostic, None] = {}
    for path in paths:
        graph, diagnostics = check_pipeline(project, desk.settings, path)
        found.update(dict.fromkeys(diagnostics))
        if graph is not None:
            graphs.append(graph)
    found.update(dict.fromkeys(_of_models(desk, graphs, every=name is None)))
    if name is None:
        told = {(d.code, d.place) for d in found}  # a pipeline names its steps beside a contract's fault
        found.update(dict.fromkeys(d for d in _shelf(desk) if (d.code, d.place) not in told))
        found.update(dict.fromkeys(_same_names(graphs)))
    if not paths and not found:
        raise UsageError(
            f"{project.root} holds no pipeline", hint="A pipeline is a .yaml file at the root or in pipelines/."
        )
    return tuple(graphs), tuple(found)


def _of_models(desk: Desk, graphs: list[Graph], *, every: bool) -> list[Diagnostic]:
    """What `plan` and `run` would refuse before anything is sent: providers whose settings cannot be used (of `every`
    one that the project declares), and what a step wants of a model that its provider does not do."""
    from orchestrator.fitness import model_faults
    from orchestrator.providers.registry import Providers

    providers = Providers(desk.project, desk.settings)
    faults = [fault for graph in graphs for fault in model_faults(providers, graph)]
    for name in desk.settings.providers if every else ():
        try:
            providers.offline(name)
        except ConfigError as fault:
            faults.append((None, fault))
    return [Diagnostic("P244", fault.message, step.place if step else None, fault.hint) for step, fault in faults]


def _shelf(desk: Desk) -> list[Diagnostic]:
    """The faults of contracts that no pipeline needs to mention."""
    from orchestrator.loading import load_contract

    folder = desk.project.root / "artifacts"
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    files += [path for path in sorted(folder.glob("*.py")) if b"@artifact" in path.read_bytes()]
    return [diagnostic for path in files for diagnostic in load_contract(desk.project, path)[2]]


def _same_names(graphs: list[Graph]) -> list[Diagnostic]:
    """Pipelines that cannot be told apart by name."""
    first: dict[str, Graph] = {}
    hint = "Rename one of them."
    return [
        Diagnostic("P113", f"the pipeline {g.name} is declared in {first[g.name].file} too", Place(g.file), hint)
        for g in graphs
        if first.setdefault(g.name, g) is not g
    ]


def _document(graphs: tuple[Graph, ...], diagnostics: tuple[Diagnostic, ...]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "pipelines": [
            {"name": graph.name, "file": graph.file, "inputs": list(graph.inputs), "steps": list(graph.steps)}
            for graph in graphs
        ],
        "diagnostics": [diagnostic_document(diagnostic) for diagnostic in diagnostics],
    }


def _print_success(graphs: tuple[Graph, ...], diagnostics: tuple[Diagnostic, ...]) -> None:
    out = console()
    for graph in graphs:
        models = sum(step.asks for step in graph.steps.values())
        counts = f"{plural(len(graph.steps), 'step')} ({models} with a model), {plural(len(graph.inputs), 'input')}"
        show(out, f"  {visible(graph.name, one_line=True)}  {counts}  {visible(graph.file, one_line=True)}")
    contracts = {step.contract.name for graph in graphs for step in graph.steps.values()}
    warnings = f", {plural(len(diagnostics), 'warning')}" if diagnostics else ""
    show(out, f"ok: {plural(len(graphs), 'pipeline')}, {plural(len(contracts), 'contract')}, no error{warnings}")
