"""The journal of one attempt: all it wrote down, enough to go on with it in another process, or to explain it.

Bodies are loaded by hash, each once, however often the calls refer to it, and come back byte for byte as they were
sent (S13, S25).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlmodel import col

from orchestrator.attachments import weight
from orchestrator.errors import UsageError
from orchestrator.money import Price
from orchestrator.store import content, json_text
from orchestrator.store import tables as t
from orchestrator.store.listings import Reading, attempt_row
from orchestrator.store.records import EffectRow, Journal, ThreadJournal, ToolRow
from orchestrator.values import (
    Attachment,
    Block,
    CallRow,
    Cut,
    DoneCall,
    Manifest,
    Prompt,
    ReadRecord,
    SentCall,
    TextItem,
    ToolCall,
    ToolOutput,
    Usage,
)


def journal(reading: Reading, attempt_id: str) -> Journal:
    """All that an attempt wrote down. Raises UsageError for one that is not of this scope."""
    session = reading.session
    attempt = session.exec(reading.rows(t.Attempt).where(t.Attempt.id == attempt_id)).first()
    if attempt is None:
        raise UsageError(f"attempt {attempt_id} not found")
    manifest = json_text.load_manifest(attempt.manifest) if attempt.manifest else None
    reads = session.exec(
        reading.rows(t.Read).where(t.Read.attempt_id == attempt_id).order_by(t.Read.name, t.Read.item)
    ).all()
    own = session.exec(
        reading.rows(t.Thread).where(t.Thread.attempt_id == attempt_id).order_by(col(t.Thread.position))
    ).all()
    threads = [*own, *_earlier(reading, own)]
    of_these = col(t.Call.thread_id).in_([thread.id for thread in threads])
    calls = session.exec(reading.rows(t.Call).where(of_these).order_by(t.Call.thread_id, col(t.Call.seq))).all()
    asked = col(t.ToolCall.call_id).in_([call.id for call in calls])
    tools = session.exec(reading.rows(t.ToolCall).where(asked).order_by(t.ToolCall.id)).all()
    effects = session.exec(
        reading.rows(t.Effect).where(t.Effect.attempt_id == attempt_id).order_by(col(t.Effect.key))
    ).all()
    blocks = _blocks(reading, threads)
    bodies = reading.bodies({*_needed(threads, blocks, calls, tools), *(row.value for row in effects if row.value)})
    return Journal(
        attempt=attempt_row(attempt),
        manifest=manifest,
        reads=tuple(
            ReadRecord(r.name, r.artifact_id, r.version, json_text.names(r.fields), r.hash, r.item or None)
            for r in reads
        ),
        threads=_threads(own, threads, blocks, calls, manifest, bodies),
        tools=tuple(_tool(row, bodies) for row in tools),
        base_head=attempt.base_head,
        effects=tuple(
            EffectRow(row.key, cast(Any, row.state), bodies[row.value] if row.value else None, cast(Any, row.decision))
            for row in effects
        ),
    )


def _earlier(reading: Reading, threads: Sequence[t.Thread]) -> list[t.Thread]:
    """The threads that these go on from, and those that they went on from, newest first."""
    found: list[t.Thread] = []
    wanted = [thread.continues for thread in threads if thread.continues]
    while wanted:
        rows = list(reading.session.exec(reading.rows(t.Thread).where(col(t.Thread.id).in_(wanted))))
        found += rows
        wanted = [row.continues for row in rows if row.continues]
    return found


def _threads(
    own: Sequence[t.Thread],
    threads: Sequence[t.Thread],
    blocks: Mapping[str, Sequence[t.Block]],
    calls: Sequence[t.Call],
    manifest: Manifest | None,
    bodies: Mapping[str, bytes],
) -> tuple[ThreadJournal, ...]:
    """The attempt's own threads, each with those it goes on from."""
    made: dict[str, ThreadJournal] = {}
    for row in reversed(threads):  # an earlier one before the one that continues it
        sent = [call for call in calls if call.thread_id == row.id]
        attempts = manifest if row in own else None
        made[row.id] = _thread(row, blocks.get(row.id, ()), sent, attempts, bodies, made.get(row.continues or ""))
    return tuple(made[row.id] for row in own)


def _blocks(reading: Reading, threads: Sequence[t.Thread]) -> Mapping[str, Sequence[t.Block]]:
    found: dict[str, list[t.Block]] = {}
    for thread in threads:
        rows = reading.rows(t.Block).where(t.Block.thread_id == thread.id).order_by(col(t.Block.position))
        found[thread.id] = list(reading.session.exec(rows))
    return found


def _needed(
    threads: Sequence[t.Thread],
    blocks: Mapping[str, Sequence[t.Block]],
    calls: Sequence[t.Call],
    tools: Sequence[t.ToolCall],
) -> set[str]:
    """The hashes of every body that the journal shows."""
    needed = {row.system for row in threads}
    for row in (block for some in blocks.values() for block in some):
        needed.update(json_text.load(row.parts))
        needed.update([row.attached] if row.attached else [])
    for call in calls:
        for references in (call.items, call.output_items, call.follow):
            needed |= content.hashes(references)
        needed.update(arguments for _, _, arguments in json_text.load(call.tool_calls))
        needed.update([call.answer] if call.answer else [])
    for tool in tools:
        needed |= {tool.arguments, *(body for body in (tool.output, tool.whole) if body)}
    return needed


def _thread(
    row: t.Thread,
    blocks: Sequence[t.Block],
    calls: Sequence[t.Call],
    attempts: Manifest | None,
    bodies: Mapping[str, bytes],
    continues: ThreadJournal | None,
) -> ThreadJournal:
    manifest = json_text.load_manifest(row.manifest) if row.manifest else attempts or Manifest(())
    prompt = Prompt(bodies[row.system].decode(), tuple(_block(block, bodies) for block in blocks), manifest)
    opening = TextItem(tuple(part for block in prompt.blocks for part in block.parts), prompt.files)
    return ThreadJournal(
        id=row.id,
        name=row.name,
        provider=row.provider,
        model=row.model,
        base_url=row.base_url,
        settings=json_text.load(row.settings),
        prompt=prompt,
        left_out=json_text.load_left_out(row.left_out),
        calls=tuple(_call(call, bodies, opening) for call in calls),
        continues=continues,
    )


def _block(row: t.Block, bodies: Mapping[str, bytes]) -> Block:
    return Block(
        layer=cast(Any, row.layer),
        source=row.source,
        parts=tuple(bodies[key].decode() for key in json_text.load(row.parts)),
        rule=row.rule,
        tokens=row.tokens,
        artifact_id=row.artifact_id,
        version=row.version,
        contract=row.contract,
        fields=json_text.names(row.fields),
        about=row.about,
        guards=tuple(json_text.load(row.guards)),
        sensitivity=cast(Any, row.sensitivity),
        attachment=_attachment(row, bodies),
    )


def _attachment(row: t.Block, bodies: Mapping[str, bytes]) -> Attachment | None:
    if row.attached is None or row.media is None:
        return None
    body = bodies[row.attached]
    return Attachment(row.file_name or row.source, row.media, body, weight(row.media, body))


def _call(row: t.Call, bodies: Mapping[str, bytes], opening: TextItem) -> CallRow:
    sent = SentCall(
        id=row.id,
        thread_id=row.thread_id,
        seq=row.seq,
        source=cast(Any, row.source),
        previous=row.previous,
        rung=cast(Any, row.rung),
        request_hash=row.request_hash,
        items=content.items(row.items, bodies, opening),
        provider=row.provider,
        model=row.model,
        estimate_tokens=row.estimate_tokens,
        reserve_usd=row.reserved_usd,
        ask=row.ask,
        price=Price.read(row.price) if row.price else None,
    )
    done = None if row.state == "sent" else _done(row, bodies)
    return CallRow(sent, done, row.response_id or row.created_id, _cut(row, bodies) if done is None else None)


def _cut(row: t.Call, bodies: Mapping[str, bytes]) -> Cut | None:
    usage = _usage(row)
    if usage is None:
        return None
    said = content.items(row.output_items, bodies)
    return Cut("".join(item.text for item in said if isinstance(item, TextItem)), usage)


def _done(row: t.Call, bodies: Mapping[str, bytes]) -> DoneCall:
    return DoneCall(
        call_id=row.id,
        response_id=row.response_id,
        status=cast(Any, row.state),
        outcome=cast(Any, row.outcome),
        items=cast(Any, content.items(row.output_items, bodies)),
        tool_calls=tuple(
            ToolCall(tool_id, name, bodies[arguments].decode())
            for tool_id, name, arguments in json_text.load(row.tool_calls)
        ),
        follow=cast(Any, content.items(row.follow, bodies)),
        answer=bodies[row.answer] if row.answer else None,
        reason=row.reason,
        usage=_usage(row),
        usage_estimated=bool(row.usage_estimated),
        cost_usd=row.cost_usd,
        lost=bool(row.lost_usd),
        tries=row.tries,
        seconds=row.seconds,
        first_text_seconds=row.first_text_seconds,
    )


def _usage(row: t.Call) -> Usage | None:
    if row.input_tokens is None:
        return None
    return Usage(
        row.input_tokens,
        row.cached_tokens or 0,
        row.cache_write_tokens or 0,
        row.output_tokens or 0,
        row.reasoning_tokens or 0,
        row.web_searches or 0,
    )


def _tool(row: t.ToolCall, bodies: Mapping[str, bytes]) -> ToolRow:
    call = ToolCall(row.tool_id, row.name, bodies[row.arguments].decode())
    output = ToolOutput(row.tool_id, bodies[row.output].decode(), bool(row.is_error)) if row.output else None
    whole = bodies[row.whole].decode() if row.whole else None
    return ToolRow(row.call_id, call, cast(Any, row.state), output, cast(Any, row.decision), whole)
