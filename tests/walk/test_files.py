"""Files and pictures as inputs: what each vendor is sent, what is refused by name, and that replay sends the same."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.attachments import IMAGE_TOKENS, MOST_BYTES, NotSendable, attached, ending_of, media_of
from orchestrator.cli.app import run as orch_run
from orchestrator.engine import RunOptions
from orchestrator.errors import StoreError
from orchestrator.graph import build_graph
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from orchestrator.values import Item, Request, TextItem
from tests.strict_messages import MessagesServer
from tests.strict_server import Fault, StrictServer
from tests.walk.harness import House, Seen, StopAfter, check_no_gap, look

# One dot; the smallest document that says it is one; and bytes that are nothing.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n1 0 obj << /Type /Pages /Count 2 >>\n<< /Type /Page >> << /Type/Page >>\n%%EOF \xff"
JUNK = b"\x00\xff\xfe junk"
PIPELINE = """
version: 1
pipeline: look
inputs:
  photo:
    type: file
    about: "A picture of the house."
    not_for: ["Prices on signs are not the customer's budget."]
    sensitivity: LEVEL
  plan: {type: file, about: "The plan.", default: "no plan was given"}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 500}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  see: {reads: [photo, plan], produces: note, tools: ["work.py:look"], prompt: "What is it?"}
outputs: [see]
"""
WORK = """
from orchestrator import tool


@tool(idempotent=True)
def look(part: str) -> str:
    \"\"\"Look closer.\"\"\"
    return part + " is red"
"""


def seer(request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
    if not any(type(item).__name__ == "ToolOutput" for item in items):
        return {"tool_calls": [{"name": "look", "arguments": {"part": "door"}}]}
    return {"text": "a house"}


def house_of(folder: Path, level: str = "internal", **options: Any) -> House:
    return House(folder, PIPELINE.replace("LEVEL", level), seer, files={"work.py": WORK}, **options)


def test_what_a_file_is_its_bytes_say() -> None:
    kinds: dict[bytes, str | None] = {
        PNG: "image/png",
        b"\xff\xd8\xff\xe0": "image/jpeg",
        b"GIF89a...": "image/gif",
        PDF: "application/pdf",
    }
    kinds |= {b"RIFF0000WEBPVP8 ": "image/webp", JUNK: None, b"plain": None}
    assert {body: media_of(body) for body in kinds} == kinds
    assert attached("photo", PNG).tokens == IMAGE_TOKENS
    assert attached("plan", PDF).tokens == 2 * 3_000
    endings = {PNG: ".png", PDF: ".pdf", b"text": ".txt", b"BM\0\0": ".bin", b"\xff": ".bin"}
    assert {body: ending_of(body) for body in endings} == endings
    with pytest.raises(NotSendable, match="neither UTF-8 text nor a file that models take"):
        attached("photo", JUNK)
    with pytest.raises(NotSendable, match="5,000,001 bytes"):
        attached("photo", PNG + b"x" * (MOST_BYTES["image"] + 1 - len(PNG)))


def test_a_picture_goes_beside_the_text_under_its_label_and_a_restart_sends_the_same(tmp_path: Path) -> None:
    """R003, S13: guards stand in the text; the bytes are stored once; a chain that is lost is replayed with them."""
    house = house_of(tmp_path)
    with pytest.raises(StoreError):
        asyncio.run(house.run({"photo": PNG, "plan": PDF}, observer=StopAfter("tool_finished:committed")))
    (first,) = house.requests("see")
    (opening,) = first.items
    assert isinstance(opening, TextItem)
    assert [(file.name, file.media, file.body) for file in opening.files] == [
        ("photo", "image/png", PNG),
        ("plan", "application/pdf", PDF),
    ]
    assert "Not for: Prices on signs are not the customer's budget." in opening.text
    assert f"[attached file: image/png, {len(PNG)} bytes]" in opening.text

    journal = asyncio.run(house.look()).journals["see"][0]
    house.provider.forget(str(journal.threads[0].calls[0].response_id))
    seen = asyncio.run(house.resume())
    assert (seen.status, seen.text("see")) == ("succeeded", "a house")
    assert house.requests("see")[-1].items[0] == opening
    (block,) = [block for block in journal.threads[0].prompt.blocks if block.source == "photo"]
    assert block.attachment == opening.files[0]
    assert block.tokens > IMAGE_TOKENS
    check_no_gap(seen)


def test_text_in_a_file_stands_in_the_prompt_and_junk_is_refused_by_name(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    seen = asyncio.run(house.run({"photo": b"a red house", "plan": PDF}))
    (item,) = house.requests("see")[0].items
    assert isinstance(item, TextItem)
    assert "a red house" in item.text
    assert [file.name for file in item.files] == ["plan"]
    with house.new_requests() as asked:
        seen = asyncio.run(house.run({"photo": JUNK}))
    error = seen.steps["see"].error
    assert error is not None
    assert (seen.status, error.code, asked) == ("failed", "not_sendable", [])
    assert error.message.startswith("photo cannot be sent to a model by see: it is neither UTF-8 text nor")


def test_S21_a_picture_is_as_confidential_as_its_label_says(tmp_path: Path) -> None:
    house = house_of(tmp_path, "confidential")
    seen = asyncio.run(house.run({"photo": PNG}))
    error = seen.steps["see"].error
    assert error is not None
    assert (error.exit_code, house.requests("see")) == (7, [])


def test_another_picture_makes_its_readers_stale(tmp_path: Path) -> None:
    """The bytes' hash is in the manifest: the same picture is the same request, another one is not."""
    house = house_of(tmp_path)
    hashes = [asyncio.run(house.run({"photo": photo})).steps["see"].inputs_hash for photo in (PNG, PNG, PNG + b"\x00")]
    assert hashes[0] == hashes[1] != hashes[2]


CODED = {body: base64.b64encode(body).decode() for body in (PNG, PDF)}
SENT: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"type": "input_text", "text": "[File of the artifact photo]"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{CODED[PNG]}"},
        {"type": "input_text", "text": "[File of the artifact plan]"},
        {"type": "input_file", "filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{CODED[PDF]}"},
    ],
    "anthropic": [
        {"type": "text", "text": "[File of the artifact photo]"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": CODED[PNG]}},
        {"type": "text", "text": "[File of the artifact plan]"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": CODED[PDF]}},
    ],
}


@pytest.mark.parametrize("vendor", list(SENT))
def test_each_vendor_is_sent_its_own_form_from_the_command_line(
    tmp_path: Path, vendor: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`@PATH` from `--set` and from an input file, over HTTP and the vendor's SDK; a server of which nothing is known
    is refused by name."""
    kind: type[StrictServer] = {"openai": StrictServer, "anthropic": MessagesServer}[vendor]
    with kind(lambda seen: {"text": "a house"}) as server:
        house_of(tmp_path)
        told = f'[providers.{vendor}]\nbase_url = "{server.base_url}"\n'
        (tmp_path / "orchestrator.toml").write_text(told)
        (tmp_path / "photo.png").write_bytes(PNG)
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "plan.pdf").write_bytes(PDF)
        (tmp_path / "in" / "given.json").write_text('{"plan": "@plan.pdf"}')
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, "k-1234567")
        for name, value in (("ORCH_TRUST", "1"), ("ORCH_MODEL", f"{vendor}:m-1"), ("HOME", str(tmp_path))):
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        given = ["run", "--yes", "--set", "photo=@photo.png", "--input", "in/given.json"]
        assert orch_run(given) == 1
        refused = capsys.readouterr()
        assert f"see would send photo (image/png) to {vendor}:m-1" in refused.out + refused.err
        assert server.seen == []
        (tmp_path / "orchestrator.toml").write_text(told + 'accepts = ["image", "pdf"]\n')
        assert orch_run(given) == 0, capsys.readouterr()
        (request,) = server.seen
    message = request.body["input" if vendor == "openai" else "messages"][0]
    assert message["content"][:4] == SENT[vendor]
    assert json.dumps(message["content"][4]).count("attached file") == 2
    assert orch_run(["run", "--yes", "--set", "photo=@nowhere.png"]) == 2
    capsys.readouterr()
    (tmp_path / "in" / "given.json").write_text('{"photo": "photo.png"}')
    for unmarked in (["--set", "photo=photo.png"], ["--input", "in/given.json"]):  # would be sent as the text of a file
        assert orch_run(["run", "--yes", *unmarked]) == 2
        assert 'the input photo is a file, and "photo.png" is a text' in capsys.readouterr().err
    (tmp_path / "orchestrator.toml").write_text(told)
    assert orch_run(["plan", "--set", "photo=@photo.png", "--set", "plan=@in/plan.pdf"]) == 0
    planned = " ".join(capsys.readouterr().out.split())
    assert f"would be refused: photo is image/png, which {vendor} does not take" in planned
    assert f"plan is application/pdf, which {vendor} does not take" in planned


@pytest.mark.parametrize("accepts", [False, True])
def test_S21_a_fallback_that_cannot_take_the_picture_is_not_asked(tmp_path: Path, accepts: bool) -> None:
    """Where the first vendor does not answer, the second gets the same files in its own form, or is passed by."""
    quota = {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "Pay."}}
    pipeline = PIPELINE.replace("LEVEL", "internal").replace(
        '  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 500}',
        '  default: {use: "openai:m-1", fallback: [spare]}\n  spare: {use: "anthropic:m-2"}',
    )
    with StrictServer() as one, MessagesServer(lambda seen: {"text": "a house"}) as two:
        one.faults = [Fault(status=429, body=quota)]
        house_of(tmp_path)
        (tmp_path / "walk.yaml").write_text(pipeline)
        taken = 'accepts = ["image", "pdf"]\n'
        (tmp_path / "orchestrator.toml").write_text(
            f'[providers.openai]\nbase_url = "{one.base_url}"\n{taken}'
            f'[providers.anthropic]\nbase_url = "{two.base_url}"\n{taken if accepts else ""}'
        )
        seen = asyncio.run(_run_here(tmp_path, {"photo": PNG}))
    if accepts:
        assert (seen.status, seen.text("see")) == ("succeeded", "a house")
        assert two.seen[0].body["messages"][0]["content"][:2] == SENT["anthropic"][:2]
        return
    error = seen.steps["see"].error
    assert error is not None
    assert (seen.status, two.seen) == ("failed", [])
    assert "anthropic:m-2, which takes no image" in f"{error.message} {error.hint}"


async def _run_here(folder: Path, inputs: dict[str, Any]) -> Seen:
    project = find_project(folder)
    env = {"OPENAI_API_KEY": "k-1234567", "ANTHROPIC_API_KEY": "k-1234567", "HOME": str(folder)}
    settings = load_settings(project, env)
    graph = build_graph(project, settings, project.pipeline(None), require_model=True)
    async with engine.open_services(project, settings) as services:
        run = await engine.start_run(services, graph, RunOptions(inputs=inputs))
        return await look(services, graph, run.id)
