"""What `plan` and `run` would refuse of models and providers before anything is sent: `check` tells all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli.check import check_project
from orchestrator.cli.options import State
from orchestrator.cli.session import Desk
from orchestrator.errors import Diagnostic
from orchestrator.project import find_project
from orchestrator.settings import load_settings

PIPELINE = """
version: 1
pipeline: look
inputs: {idea: {type: text, about: "What the customer wants."}}
models:
  default: {use: "one:m", fallback: [spare]}
  spare: {use: "two:m"}
artifacts: {note: {about: "A note.", not_for: none, schema: text}}
steps:
  find: {reads: [idea], produces: note, prompt: "Look."}
outputs: [find]
"""
SETTINGS = """
[providers.one]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
[providers.two]
kind = "chat"
base_url = "http://127.0.0.1:2/v1"
"""


def faults(folder: Path, pipeline: str = PIPELINE, settings: str = SETTINGS) -> list[Diagnostic]:
    (folder / "orchestrator.toml").write_text(settings)
    (folder / "look.yaml").write_text(pipeline)
    project = find_project(folder)
    desk = Desk(State(), project, load_settings(project, {"HOME": str(folder)}))
    return list(check_project(desk, None)[1])


def test_a_sound_project_has_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (('base_url = "http://127.0.0.1:2/v1"', ""), "The provider 'two' speaks chat completions and has no base_url"),
        (("http://127.0.0.1:2/v1", "ftp://a/v1"), "The base_url of provider 'two' is no http address"),
        (('kind = "chat"', 'kind = "chat"\nchaining = "server"'), "The provider 'two' cannot have chaining"),
    ],
)
def test_a_provider_that_cannot_be_used_is_a_fault_whether_it_is_asked_or_not(
    tmp_path: Path, changed: tuple[str, str], told: str
) -> None:
    for pipeline in (PIPELINE, PIPELINE.replace(", fallback: [spare]", "")):
        found = faults(tmp_path, pipeline, SETTINGS.replace(*changed))
        assert [(one.code, one.place) for one in found] == [("P244", None)]
        assert found[0].message.startswith(told)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("two:m", "two:m', background: true, x-was: '"), "find calls its model in the background, and two keeps"),
        (("two:m", "two:m', vendor_context: {compact_at: 9000}, x-was: '"), "and two has no such way: compact_at"),
        (("prompt:", "tools: [web_search], prompt:"), "find wants web_search, which one at 127.0.0.1:1 does not run"),
    ],
)
def test_what_a_step_wants_of_any_model_that_may_be_asked_stands_at_the_step(
    tmp_path: Path, changed: tuple[str, str], told: str
) -> None:
    old, new = changed
    found = faults(tmp_path, PIPELINE.replace('"two:m"', "'two:m'").replace(old, new))
    assert {one.code for one in found} == {"P244"}
    assert told in found[0].message
    assert found[0].place is not None
    assert (found[0].place.file, found[0].place.line) == ("look.yaml", 10)
