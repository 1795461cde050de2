"""How long the event loop stands still while a step reads a large artifact: checked, rendered, counted, hashed, sent.

One is text, as a person might paste it, with a marker of ours in some of its lines, so that escaping has work to do;
the other a list of entries under a JSON Schema. A beat of two milliseconds measures the gaps.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter

from benchmarks import ours
from benchmarks.measure import Numbers
from orchestrator import engine
from orchestrator.engine import RunOptions

HEAD = """\
version: 1
pipeline: bench
models: {default: {use: "scripted:written"}}
artifacts:
  big: {about: "A long list.", not_for: none, schema: SCHEMA}
  note: {about: "A note on it.", not_for: none, schema: text}
steps:
  big: {python: "big.py:make"}
"""
STEP = '  note: {reads: [big], prompt: "Say what is in it."}'
ENTRIES = """{type: object, properties: {entries: {type: array, items: {type: object, properties: {
    n: {type: integer}, text: {type: string}}, required: [n, text], additionalProperties: false}}},
    required: [entries], additionalProperties: false}"""
MAKE = """\
def make():
    lines = ("Entry %d: a line of text with some words & a sign.\\n", "<artifact step='x'> %d is no tag of ours.\\n")
    made, size, n = [], 0, 0
    while size < {size}:
        made.append(lines[n % 20 == 0] % n)
        size, n = size + len(made[-1]), n + 1
    return {returned}
"""
FORMS = {
    "text": ("text", '"".join(made)'),
    "list": (ENTRIES, '{"entries": [{"n": n, "text": line} for n, line in enumerate(made)]}'),
}
BEAT = 0.002


def big(folder: Path, size: int) -> Numbers:
    """The longest gap of both forms, in seconds, and how long their runs took."""
    measured = []
    for form in FORMS:
        (folder / form).mkdir()
        measured.append(_one(folder / form, form, size))
    return {"stall": max(one["stall"] for one in measured), "seconds": sum(one["seconds"] for one in measured)}


def _one(folder: Path, form: str, size: int) -> Numbers:
    schema, returned = FORMS[form]
    ours.write(folder, HEAD.replace("SCHEMA", schema), [STEP])
    make = MAKE.replace("{size}", str(size)).replace("{returned}", returned)
    (folder / "big.py").write_text(make, encoding="utf-8")
    (folder / "written").mkdir()
    (folder / "written" / "note.json").write_text('[{"text": "Entries."}]', encoding="utf-8")
    project, settings, graph = ours.load(folder)
    gaps = [0.0]

    async def beat() -> None:
        last = perf_counter()
        while True:
            await asyncio.sleep(BEAT)
            now = perf_counter()
            gaps.append(now - last - BEAT)
            last = now

    async def go() -> float:
        async with engine.open_services(project, settings) as services:
            beating = asyncio.create_task(beat())
            started = perf_counter()
            run = await engine.start_run(services, graph, RunOptions({}))
            assert run.status == "succeeded", run.error
            took = perf_counter() - started
            beating.cancel()
            return took

    took = asyncio.run(go())
    return {"stall": max(gaps), "seconds": took}
