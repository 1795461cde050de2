"""Threads, calls and tools of an attempt: written before they act, completed after, always behind the fence.

The fence is an UPDATE of the attempt that only the holder of its newest token can make; it comes first, so that a
process whose step was taken over writes nothing at all, not even beside a check that already passed (S01).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from orchestrator.errors import UsageError
from orchestrator.ids import uuid7
from orchestrator.store import budgets, json_text, runs
from orchestrator.store.columns import to_pico
from orchestrator.store.content import Bodies, put, refer
from orchestrator.store.records import Fenced
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import (
    Block,
    Cut,
    Dispatch,
    DoneCall,
    Event,
    Manifest,
    SentCall,
    TextItem,
    ThreadRecord,
    ToolCall,
    ToolOutput,
    Usage,
)

_FENCE = Sql(
    "UPDATE attempt SET claimed_at = claimed_at + :waited WHERE id = :attempt AND token = :token"
    " AND state = 'running' AND owner <> '' AND {scope} RETURNING manifest"
)
_THREAD = insert(
    "thread", "id attempt_id position name continues provider model base_url settings system left_out manifest"
)
_THREADS = Sql("SELECT COUNT(*) FROM thread WHERE attempt_id = :attempt AND {scope}")
_BLOCK = insert(
    "block",
    "thread_id position layer source parts rule tokens artifact_id version contract fields about guards sensitivity"
    " attached media file_name",
)
# What is referred to must be the attempt's own: an id that was heard elsewhere is nobody's right (S16).
_OWN_THREAD = Sql("SELECT 1 FROM thread WHERE id = :id AND attempt_id = :attempt AND {scope}")
_OWN_CALL = Sql("SELECT 1 FROM call WHERE id = :id AND attempt_id = :attempt AND {scope}")
_SENT = insert(
    "call",
    "id attempt_id thread_id seq source previous rung request_hash items ask provider model estimate_tokens"
    " reserved_usd price sent_at state",
)
_CREATED = Sql("UPDATE call SET created_id = :response WHERE id = :call AND state = 'sent' AND {scope}")
_CUT = Sql(
    "UPDATE call SET input_tokens = :input, output_tokens = :output, usage_estimated = 1, output_items = :said"
    " WHERE id = :call AND attempt_id = :attempt AND state = 'sent' AND {scope}"
)
_DONE = Sql(
    """
UPDATE call SET state = :state, response_id = :response, outcome = :outcome, reason = :reason,
    output_items = :output_items, tool_calls = :tool_calls, follow = :follow, answer = :answer,
    input_tokens = :input, cached_tokens = :cached, cache_write_tokens = :cache_write, output_tokens = :output,
    reasoning_tokens = :reasoning, web_searches = :searches,
    usage_estimated = :estimated, cost_usd = :cost, tries = :tries, seconds = :seconds,
    first_text_seconds = :first_text, done_at = :now
WHERE id = :call AND attempt_id = :attempt AND state = 'sent' AND {scope}
RETURNING reserved_usd, lost_usd, sent_at
"""
)
_UNDER_WAY = Sql("SELECT sent_at FROM call WHERE id = :call AND attempt_id = :attempt AND state = 'sent' AND {scope}")
_AGAIN = Sql(
    "UPDATE call SET reserved_usd = reserved_usd + :reserve, lost_usd = lost_usd + :reserve"
    " WHERE id = :call AND {scope}"
)
_CHARGE = Sql("UPDATE call SET charged_usd = :charge WHERE id = :call AND {scope}")
_TOOL = insert(
    "tool_call",
    "id call_id tool_id name arguments state started_at",
    # What a person said was about the execution before this one: interrupted again, it is in doubt again.
    "ON CONFLICT (call_id, tool_id) DO UPDATE SET state = 'started', started_at = excluded.started_at, decision = NULL"
    " WHERE tool_call.state <> 'done' AND {scope:tool_call}",
)
_TOOL_DONE = Sql(
    "UPDATE tool_call SET state = 'done', output = :output, whole = :whole, is_error = :is_error, ended_at = :now"
    " WHERE call_id = :call AND tool_id = :tool AND {scope}"
)

_EFFECT = insert(
    "effect",
    "attempt_id key state started_at",
    "ON CONFLICT (attempt_id, key) DO UPDATE SET state = 'started', started_at = excluded.started_at"
    " WHERE effect.state <> 'done' AND {scope:effect}",
)
_EFFECT_DONE = Sql(
    "UPDATE effect SET state = 'done', value = :value, ended_at = :now"
    " WHERE attempt_id = :attempt AND key = :key AND {scope}"
)

# A summary is the same for the whole run and for the runs that it was made from (S14). Any of several is as good.
_ANSWER = Sql(
    """
WITH RECURSIVE line (id) AS (
    SELECT r.id FROM run r WHERE r.id = :run AND {scope:r}
    UNION SELECT p.parent_id FROM line JOIN run p ON p.id = line.id WHERE p.parent_id IS NOT NULL AND {scope:p}
)
SELECT b.body FROM call c JOIN attempt t ON t.id = c.attempt_id JOIN step s ON s.id = t.step_id
    JOIN line ON line.id = s.run_id JOIN content b ON b.sha256 = c.answer
WHERE c.ask = :ask AND c.outcome = 'accepted' AND {scope:c} AND {scope:t} AND {scope:s} AND {scope:b}
ORDER BY c.id LIMIT 1
"""
)


def fence(tx: Tx, dispatch: Dispatch, *, waited: float = 0.0) -> str | None:
    """The attempt's recorded manifest. Raises Fenced unless the dispatch still has the right to it.

    Seconds that were `waited` for a turn are no running time: the attempt's begins so much later.
    """
    row = tx.one(_FENCE, attempt=dispatch.attempt_id, token=dispatch.token, waited=round(waited * 1_000_000))
    if row is None:
        raise Fenced(f"{dispatch.step}: attempt {dispatch.number} was taken over or has ended")
    return cast("str | None", row[0])


def open_thread(tx: Tx, dispatch: Dispatch, thread: ThreadRecord, call: SentCall) -> None:
    manifest = fence(tx, dispatch, waited=call.waited)
    write_thread(tx, dispatch, thread, manifest)
    write_sent(tx, dispatch, call, thread)


def write_thread(tx: Tx, dispatch: Dispatch, thread: ThreadRecord, manifest: str | None) -> None:
    """The thread with its blocks; `manifest` is the attempt's, which a further thread may share."""
    bodies = Bodies(tx)
    system = bodies.add(thread.prompt.system)
    blocks = [_block(thread.id, n, block, bodies) for n, block in enumerate(thread.prompt.blocks)]
    bodies.write()
    position = tx.all(_THREADS, attempt=dispatch.attempt_id)[0][0]
    tx.run(
        _THREAD,
        id=thread.id,
        attempt_id=dispatch.attempt_id,
        position=position,
        name=thread.name,
        continues=thread.continues,
        provider=thread.provider,
        model=thread.model,
        base_url=thread.base_url,
        settings=json_text.dump(thread.settings),
        system=system,
        left_out=json_text.dump_left_out(thread.left_out),
        manifest=_own_manifest(thread.prompt.manifest, manifest),
    )
    tx.many(_BLOCK, blocks)


def _own_manifest(manifest: Manifest, attempts: str | None) -> str | None:
    text = json_text.dump_manifest(manifest)
    return None if text == attempts else text


def _block(thread_id: str, position: int, block: Block, bodies: Bodies) -> dict[str, Any]:
    return {
        "thread_id": thread_id,
        "position": position,
        "layer": block.layer,
        "source": block.source,
        "parts": json_text.dump([bodies.add(part) for part in block.parts]),
        "rule": block.rule,
        "tokens": block.tokens,
        "artifact_id": block.artifact_id,
        "version": block.version,
        "contract": block.contract,
        "fields": None if block.fields is None else json_text.dump(block.fields),
        "about": block.about,
        "guards": json_text.dump(block.guards),
        "sensitivity": block.sensitivity,
        "attached": bodies.add(block.attachment.body) if block.attachment is not None else None,
        "media": block.attachment.media if block.attachment is not None else None,
        "file_name": block.attachment.name if block.attachment is not None else None,
    }


def sent(tx: Tx, dispatch: Dispatch, call: SentCall) -> None:
    fence(tx, dispatch, waited=call.waited)
    if tx.one(_OWN_THREAD, id=call.thread_id, attempt=dispatch.attempt_id) is None:
        raise UsageError(f"thread {call.thread_id} not found", hint="a thread is opened with its first call")
    write_sent(tx, dispatch, call)


def write_sent(tx: Tx, dispatch: Dispatch, call: SentCall, opened: ThreadRecord | None = None) -> None:
    """The call about to leave, its worst case reserved. Raises BudgetExceeded where a cap would be passed."""
    reserve = None if call.reserve_usd is None else to_pico(call.reserve_usd)
    if reserve:
        budgets.reserve(tx, dispatch, call, reserve, tx.now)
    bodies = Bodies(tx)
    items = refer(call.items, bodies, opened.prompt.text if opened else None)
    bodies.write()
    tx.run(
        _SENT,
        id=call.id,
        attempt_id=dispatch.attempt_id,
        thread_id=call.thread_id,
        seq=call.seq,
        source=call.source,
        previous=call.previous,
        rung=call.rung,
        request_hash=call.request_hash,
        items=items,
        ask=call.ask,
        provider=call.provider,
        model=call.model,
        estimate_tokens=call.estimate_tokens,
        reserved_usd=reserve,
        price=call.price.text() if call.price is not None else None,
        sent_at=tx.now,
        state="sent",
    )


def again(tx: Tx, dispatch: Dispatch, call: SentCall) -> None:
    """A further try of a call, the one before perhaps billed: that is reserved beside this one. Raises BudgetExceeded
    where a cap would be passed."""
    fence(tx, dispatch)
    reserve = to_pico(call.reserve_usd) if call.reserve_usd else 0
    row = tx.one(_UNDER_WAY, call=call.id, attempt=dispatch.attempt_id) if reserve else None
    if row is not None:
        budgets.reserve(tx, dispatch, call, reserve, row[0])
        tx.run(_AGAIN, call=call.id, reserve=reserve)


def created(tx: Tx, call_id: str, response_id: str) -> None:
    tx.run(_CREATED, call=call_id, response=response_id)


def cut(tx: Tx, dispatch: Dispatch, call_id: str, cut: Cut) -> None:
    """A call that was given up in mid-stream: what it had said, and may have used. It stays without an answer."""
    fence(tx, dispatch)
    bodies = Bodies(tx)
    said = refer((TextItem((cut.text,)),) if cut.text else (), bodies)
    bodies.write()
    used = {"input": cut.usage.input_tokens, "output": cut.usage.output_tokens}
    tx.run(_CUT, call=call_id, attempt=dispatch.attempt_id, said=said, **used)


def note(tx: Tx, dispatch: Dispatch, events: Sequence[Event]) -> None:
    locked = runs.lock(tx, dispatch.run_id, len(events))
    fence(tx, dispatch)
    runs.write_events(tx, dispatch.run_id, locked, events, dispatch)


def done(tx: Tx, dispatch: Dispatch, call: DoneCall, events: Sequence[Event]) -> None:
    locked = runs.lock(tx, dispatch.run_id, len(events))
    fence(tx, dispatch)
    write_done(tx, dispatch, call)
    runs.write_events(tx, dispatch.run_id, locked, events, dispatch)


def write_done(tx: Tx, dispatch: Dispatch, call: DoneCall) -> None:
    """Complete the call and settle its reservation. A call that is complete already is left as it is."""
    bodies = Bodies(tx)
    values = _done_values(call, bodies)
    bodies.write()
    row = tx.one(_DONE, call=call.call_id, attempt=dispatch.attempt_id, now=tx.now, **values)
    if row is None:
        return
    reserved, lost, sent_at = row
    reserve = reserved or 0
    # What the tries before the last may have cost stays charged as it was reserved; of the last one we may know more.
    last = values["cost"] if values["cost"] is not None else (reserve - lost if call.usage is None else 0)
    charge = last + lost
    if charge:
        tx.run(_CHARGE, call=call.call_id, charge=charge)
    if charge or reserve:
        budgets.settle(tx, dispatch, reserve, charge, sent_at)


def _done_values(call: DoneCall, bodies: Bodies) -> dict[str, Any]:
    usage = call.usage
    return {
        "state": call.status,
        "response": call.response_id,
        "outcome": call.outcome,
        "reason": call.reason,
        "output_items": refer(call.items, bodies),
        "tool_calls": json_text.dump([[t.call_id, t.name, bodies.add(t.arguments)] for t in call.tool_calls]),
        "follow": refer(call.follow, bodies),
        "answer": None if call.answer is None else bodies.add(call.answer),
        **_usage_values(usage),
        "estimated": int(call.usage_estimated),
        "cost": None if call.cost_usd is None else to_pico(call.cost_usd),
        "tries": call.tries,
        "seconds": call.seconds,
        "first_text": call.first_text_seconds,
    }


def _usage_values(usage: Usage | None) -> dict[str, int | None]:
    if usage is None:
        return dict.fromkeys(("input", "cached", "cache_write", "output", "reasoning", "searches"))
    return {
        "input": usage.input_tokens,
        "cached": usage.cached_tokens,
        "cache_write": usage.cache_write_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
        "searches": usage.web_searches,
    }


def answer(tx: Tx, run_id: str, ask: str) -> bytes | None:
    """What a question was answered with in a run, or in one that it was made from; None where it was not asked."""
    row = tx.one(_ANSWER, run=run_id, ask=ask)
    return None if row is None else bytes(row[0])


def own_call(tx: Tx, dispatch: Dispatch, call_id: str) -> None:
    """Raises UsageError for a call that is not the attempt's own."""
    if tx.one(_OWN_CALL, id=call_id, attempt=dispatch.attempt_id) is None:
        raise UsageError(f"call {call_id} not found", hint="a call is recorded before its tools run")


def tool_started(tx: Tx, dispatch: Dispatch, call_id: str, call: ToolCall) -> None:
    fence(tx, dispatch)
    own_call(tx, dispatch, call_id)
    tx.run(
        _TOOL,
        id=uuid7(),
        call_id=call_id,
        tool_id=call.call_id,
        name=call.name,
        arguments=put(tx, call.arguments),
        state="started",
        started_at=tx.now,
    )


def tool_finished(
    tx: Tx, dispatch: Dispatch, call_id: str, tool_id: str, output: ToolOutput, whole: str | None = None
) -> None:
    """`whole` is the tool's result, where the model is told less than that."""
    fence(tx, dispatch)
    written = tx.run(
        _TOOL_DONE,
        call=call_id,
        tool=tool_id,
        output=put(tx, output.output),
        whole=None if whole is None else put(tx, whole),
        is_error=int(output.is_error),
        now=tx.now,
    )
    if not written:
        raise UsageError(f"tool call {tool_id} not found", hint="a tool call is recorded before it runs")


def effect_started(tx: Tx, dispatch: Dispatch, key: str) -> None:
    fence(tx, dispatch)
    tx.run(_EFFECT, attempt_id=dispatch.attempt_id, key=key, state="started", started_at=tx.now)


def effect_finished(tx: Tx, dispatch: Dispatch, key: str, value: bytes) -> None:
    fence(tx, dispatch)
    if not tx.run(_EFFECT_DONE, attempt=dispatch.attempt_id, key=key, value=put(tx, value), now=tx.now):
        raise UsageError(f"effect {key} not found", hint="an effect is recorded before it happens")
