"""What did this step's model see? Read back from the attempt's journal, never computed anew.

The journal holds the thread as it was composed: every block with the rule that chose it, its label, its guards and its
tokens, and every candidate that was left out with the reason. So this answers for what was sent then, whatever the
project and the artifacts have become since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from orchestrator.context.select import NOT_DECLARED
from orchestrator.ids import is_synthetic
from orchestrator.providers.foreign import compacted
from orchestrator.providers.tokens import estimate
from orchestrator.trace.documents import WHY, usd
from orchestrator.trace.sources import searches_of, sources_of
from orchestrator.unexplained import said
from orchestrator.values import Block, CallRow, Item, LeftOut, OutputItem, ReadRecord, TextItem, ToolOutput

if TYPE_CHECKING:
    from orchestrator.store.records import Journal, ThreadJournal, ToolRow

# A number is one word with its groups and fraction: 997 does not stand in 1,997.
_WORD: Final = re.compile(r"\d+(?:[.,]\d+)+|\w+")
_RUN: Final = 4
_DIED: Final = "no answer is recorded: the process ended while this call was in flight"
_STOPPED: Final = "no answer is recorded: the call was given up in mid-stream; its tokens are estimates"


def why_document(
    journal: Journal,
    step: str,
    item: str | None,
    output: str | None,
    earlier: Sequence[str] = (),
    unexplained: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """`orch.why/1` of one attempt. `output` is the text it made, if any: a block counts as used where a number or a
    run of words of it stands there again. `earlier` are the run's inputs and steps before this one: those the attempt
    did not read were not declared. `unexplained` is what was told of calls, by their ids, whose provider counted more
    input than can have been sent."""
    read = {entry.name for entry in journal.reads}
    calls = [call for thread in journal.threads for call in thread.calls]
    unread = [LeftOut("artifact", name, NOT_DECLARED) for name in earlier if name not in read]
    left_out = [*unread, *(left for thread in journal.threads for left in thread.left_out)]
    return {
        "schema": WHY,
        "step": step,
        "item": item,
        "attempt": journal.attempt.number,
        "state": journal.attempt.state,
        "mode": journal.attempt.mode or None,
        "round": journal.attempt.round,
        "threads": [_thread(thread, journal.attempt.inputs_hash, unexplained) for thread in journal.threads],
        "blocks": [block for thread in journal.threads for block in _blocks(thread, output)],
        "tools": [_tool(tool) for tool in journal.tools],
        "searches": list(searches_of(calls)),
        "sources": [
            {"url": source.url, "title": source.title, "cited": source.cited, "quote": source.quote}
            for source in sources_of(calls)
        ],
        "left_out": [_left_out(left) for left in dict.fromkeys(left_out)],  # each once, however many threads
        "reads": [{"source": _source(read), "version": read.version} for read in journal.reads],
        "estimate_tokens": sum(_estimate(thread) for thread in journal.threads),
    }


def _source(read: ReadRecord) -> str:
    return f"{read.name}/{read.item}" if read.item else read.name


def request_text(threads: Sequence[ThreadJournal]) -> str:
    """The text of every request of an attempt, in order: system and user message, then only what each call added."""
    return "\n\n".join(part for thread in threads for part in _thread_text(thread))


def _blocks(thread: ThreadJournal, output: str | None) -> list[dict[str, Any]]:
    """What the thread's model saw: what was sent before, in the threads that it goes on from, then its own."""
    before = thread.continues
    earlier = [block | {"continued": True} for block in _blocks(before, output)] if before else []
    own = [_block(block, output) | {"thread": thread.name, "continued": False} for block in thread.prompt.blocks]
    return [*earlier, *own]


def prompt_text(system: str, user: str) -> str:
    """A first request as text: what the model is told once for all, then the message."""
    return "\n\n".join(_titled(title, text) for title, text in (("system", system), ("user", user)) if text)


def _thread(
    thread: ThreadJournal, inputs_hash: str | None, unexplained: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "name": thread.name,
        "id": thread.id,
        "provider": thread.provider,
        "model": thread.model,
        "request_hash": thread.calls[0].sent.request_hash if thread.calls else None,
        "inputs_hash": inputs_hash,
        "continues": thread.continues.id if thread.continues else None,
        "calls": [_call(call, unexplained.get(call.sent.id)) for call in thread.calls],
    }


def _call(call: CallRow, unexplained: Mapping[str, Any] | None) -> dict[str, Any]:
    sent, done = call.sent, call.done
    cut = call.cut
    usage = done.usage if done else cut.usage if cut else None
    unanswered = _STOPPED if cut else _DIED
    return {
        "seq": sent.seq,
        "source": sent.source,
        "model": f"{sent.provider}:{sent.model}",
        "previous_response_id": None if is_synthetic(sent.previous) else sent.previous,
        "response_id": (done.response_id if done else None) or call.response_id,
        "rung": sent.rung,
        "compacted": done is not None and bool(compacted(item.data for item in done.items)),
        "outcome": done.outcome if done else "sent",
        "reason": done.reason if done else unanswered,
        "estimate_tokens": sent.estimate_tokens,
        "input_tokens": usage.input_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "most_input_tokens": unexplained["most_tokens"] if unexplained else None,
        "unexplained": said(unexplained) if unexplained else None,
        "usage_estimated": done.usage_estimated if done else cut is not None,
        "partial_text": cut.text if cut else None,
        "cost_usd": usd(done.cost_usd) if done else None,
        "seconds": round(done.seconds, 3) if done else None,
        "first_text_seconds": _rounded(done.first_text_seconds) if done else None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _tool(tool: ToolRow) -> dict[str, Any]:
    """One execution: what was asked of the tool, and how much of what it gave the model was told."""
    told = tool.output.output if tool.output is not None else None
    return {
        "id": tool.tool_call.call_id,
        "name": tool.tool_call.name,
        "arguments": tool.tool_call.arguments,
        "state": tool.state,
        "decision": tool.decision,
        "is_error": tool.output.is_error if tool.output is not None else None,
        "tokens": None if told is None else estimate(told),
        "whole_tokens": None if told is None else estimate(told if tool.whole is None else tool.whole),
    }


def tool_text(tools: Sequence[ToolRow], call_id: str) -> str | None:
    """All that a tool gave, also what the model was not told; None where no such call has an answer."""
    found = next((tool for tool in tools if tool.tool_call.call_id == call_id), None)
    if found is None or found.output is None:
        return None
    return found.output.output if found.whole is None else found.whole


def _block(block: Block, output: str | None) -> dict[str, Any]:
    return {
        "layer": block.layer,
        "source": block.source,
        "version": block.version,
        "contract": block.contract,
        "fields": list(block.fields) if block.fields is not None else None,
        "rule": block.rule,
        "about": block.about,
        "guards": list(block.guards),
        "file": block.attachment.media if block.attachment is not None else None,
        "tokens": block.tokens,
        "used": output is not None and is_used(block, output),
    }


def is_used(block: Block, output: str) -> bool:
    """Whether something particular of a block stands in the output again: a number of three digits or more, or four
    words in a row. Content only: its label, the task and the system text are not looked for."""
    if block.layer in ("system", "task"):
        return False
    content = "".join(block.parts[1:-1]) if len(block.parts) > 2 else block.text
    return bool(_traces(content) & _traces(output))


def _traces(text: str) -> set[tuple[str, ...]]:
    words = [word.replace(",", "") for word in _WORD.findall(text.casefold())]
    numbers = {(word,) for word in words if len(word) >= 3 and word[0].isdecimal()}
    return numbers | {tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}


def _left_out(left: LeftOut) -> dict[str, Any]:
    return {"layer": left.layer, "source": left.source, "reason": left.reason, "tokens": left.tokens}


def _estimate(thread: ThreadJournal) -> int:
    """Our estimate of the thread's first request, which is what the blocks add up to."""
    return thread.calls[0].sent.estimate_tokens if thread.calls else thread.prompt.tokens


def _thread_text(thread: ThreadJournal) -> list[str]:
    if thread.continues is None:
        parts, rest = [prompt_text(thread.prompt.system, thread.prompt.text)], thread.calls[1:]
    else:
        parts, rest = _thread_text(thread.continues), thread.calls
    for call in rest:
        parts += [_item(call, item) for item in call.sent.items if not isinstance(item, OutputItem)]
    return parts


def _item(call: CallRow, item: Item) -> str:
    where = f"call {call.sent.seq} · {call.sent.source}"
    if isinstance(item, ToolOutput):
        return _titled(f"{where} · tool result {item.call_id}", item.output)
    assert isinstance(item, TextItem)
    return _titled(f"{where} · user", item.text)


def _titled(title: str, text: str) -> str:
    return f"──── {title} ────\n{text}"
