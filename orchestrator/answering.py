"""The tool calls of one reply, answered together: each exactly once over restarts, and none against a person's word.

A reply may call several tools at once; the vendors want all their outputs in the next request, so nothing is sent
before each call has its answer. What runs at once are the calls that need nobody's word. Where some do, the others are
run and recorded first; then the step waits, holding nothing, and goes on in whatever process resumes it once every one
has been allowed or refused (`orch approve`, `orch reject`). What was recorded is never run again.

    no row                       → run it, or ask a person first where the tool says so
    asked, without a word        → wait
    asked, allowed               → run it
    started, without an output   → in doubt: whether it took effect is not known, so a person decides (S09); one that
                                   may be repeated is run again
    done                         → its output, as recorded (a refusal is one)
    done by an attempt that      → the same: a tool that acts does not act again because something else went wrong
    failed                         (`tools_done`); in doubt there → in doubt here

A call whose arguments the tool would not take anyway is answered at once: no person is asked about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.clock import Clock
from orchestrator.errors import OrchError
from orchestrator.store.records import ToolRow
from orchestrator.store.tool_approvals import wants
from orchestrator.tools import Tool, call_tool, refusal
from orchestrator.tools_done import DoneBefore, is_in_doubt
from orchestrator.values import CallRow, Event, ToolCall, ToolOutput


class ToolWaits(OrchError):
    """A tool call that only a person's word can bring further."""

    exit_code = 4


class ToolInDoubt(ToolWaits):
    """A tool that acts on the world was interrupted; whether it took effect is not known (S09)."""

    code = "tool_in_doubt"


class ToolUnapproved(ToolWaits):
    """Tool calls that a person has to allow before they run."""

    code = "tool_approval"


class ToolRecorder(Protocol):
    """Where tool calls are written down; each method is one fenced transaction."""

    async def told(self, event: Event) -> None: ...
    async def tools_asked(self, call_id: str, tool_calls: Sequence[ToolCall]) -> None: ...
    async def tool_started(self, call_id: str, tool_call: ToolCall) -> None: ...
    async def tool_finished(self, call_id: str, output: ToolOutput, whole: str | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Answering:
    """What it takes to answer the tool calls of a step's replies. `rows` is what the journal holds of them, by call and
    by the id that the model gave; `timeout` is the most seconds for a call whose tool sets no limit of its own."""

    step: str
    tools: tuple[Tool, ...]
    timeout: float
    recorder: ToolRecorder
    rows: Mapping[tuple[str, str], ToolRow]
    clock: Clock
    event: Callable[..., None]
    before: DoneBefore = field(default_factory=DoneBefore)
    recalled: dict[str, ToolRow] = field(default_factory=dict)  # by the id that the model gave: done before

    async def answer(self, call: CallRow) -> tuple[ToolOutput, ...]:
        """All calls of a reply, answered in its order. Raises ToolWaits where a person has to say something first."""
        assert call.done is not None
        calls, call_id = call.done.tool_calls, call.sent.id
        for tool_call in calls:
            self._refuse_doubt(call_id, tool_call)
        await self._recall(call_id, calls)
        asking = [tool_call for tool_call in calls if self._needs_word(call_id, tool_call)]
        free = [tool_call for tool_call in calls if tool_call not in asking]
        if not asking:
            return tuple(await asyncio.gather(*(self._run(call_id, tool_call) for tool_call in calls)))
        # Those that were allowed already wait for the others: a person looks at a reply as a whole.
        unasked = [tool_call for tool_call in free if not self._was_asked(call_id, tool_call)]
        await asyncio.gather(*(self._run(call_id, tool_call) for tool_call in unasked))
        await self.recorder.tools_asked(call_id, asking)
        raise _unapproved(self.step, asking)

    async def _recall(self, call_id: str, calls: Sequence[ToolCall]) -> None:
        """Find what attempts that failed have done of these calls. Raises ToolInDoubt where nobody knows whether they
        have: from then on that stands in this attempt's record, and a person can answer it."""
        taken = self.before.take([one for one in calls if self._acts_anew(call_id, one)])
        doubts = [one for one in calls if one.call_id in taken and is_in_doubt(taken[one.call_id])]
        for tool_call in doubts:
            await self.recorder.tool_started(call_id, tool_call)
        if doubts:
            raise _in_doubt(doubts[0])
        self.recalled.update(taken)

    def _row(self, call_id: str, tool_call: ToolCall) -> ToolRow | None:
        return self.rows.get((call_id, tool_call.call_id))

    def _acts_anew(self, call_id: str, tool_call: ToolCall) -> bool:
        """Whether this is a call of a tool that acts on the world, of which this attempt has nothing on record."""
        tool = self._tool(tool_call.name)
        return tool is not None and not tool.idempotent and self._row(call_id, tool_call) is None

    def _was_asked(self, call_id: str, tool_call: ToolCall) -> bool:
        row = self._row(call_id, tool_call)
        return row is not None and row.state == "asked"

    def _needs_word(self, call_id: str, tool_call: ToolCall) -> bool:
        """Whether a person has to allow the call, and has not said anything yet."""
        tool, row = self._tool(tool_call.name), self._row(call_id, tool_call)
        if (
            tool is None
            or not tool.approval
            or tool_call.call_id in self.recalled
            or (row is not None and (row.state != "asked" or row.decision))
        ):
            return False
        return row is not None or not refusal(tool, tool_call.arguments)

    def _refuse_doubt(self, call_id: str, tool_call: ToolCall) -> None:
        row, tool = self._row(call_id, tool_call), self._tool(tool_call.name)
        if row is None or row.state != "started" or row.decision or tool is None or tool.idempotent:
            return
        raise _in_doubt(tool_call)

    async def _run(self, call_id: str, tool_call: ToolCall) -> ToolOutput:
        row = self._row(call_id, tool_call)
        if row is not None and row.output is not None:
            return row.output
        whole = None
        if row is not None and row.decision == "tell":
            output = ToolOutput(tool_call.call_id, "interrupted: whether this took effect is not known", is_error=True)
        else:
            output, whole = await self._execute(call_id, tool_call)
        await self.recorder.tool_finished(call_id, output, whole)
        return output

    async def _execute(self, call_id: str, tool_call: ToolCall) -> tuple[ToolOutput, str | None]:
        await self.recorder.tool_started(call_id, tool_call)
        earlier = self.recalled.pop(tool_call.call_id, None)
        if earlier is not None and earlier.output is not None:
            told = {"name": tool_call.name, "id": tool_call.call_id}
            self.event("tool.recalled", **told)
            await self.recorder.told(Event("tool.recalled", data=told))
            return ToolOutput(tool_call.call_id, earlier.output.output), earlier.whole
        tool = self._tool(tool_call.name)
        if tool is None:
            names = ", ".join(tool.spec.name for tool in self.tools) or "none"
            unknown = f"there is no tool {tool_call.name}; tools: {names}"
            return ToolOutput(tool_call.call_id, unknown, is_error=True), None
        started = self.clock.monotonic()
        outcome = await call_tool(tool, tool_call.arguments, timeout=self.timeout)
        self.event(
            "tool.called",
            name=tool_call.name,
            id=tool_call.call_id,
            seconds=round(self.clock.monotonic() - started, 3),
            is_error=outcome.is_error,
            cut=outcome.data.get("cut", 0),
            missing=outcome.data.get("missing", []),
        )
        return ToolOutput(tool_call.call_id, outcome.output, outcome.is_error), outcome.whole

    def _tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.spec.name == name), None)


def _in_doubt(call: ToolCall) -> ToolInDoubt:
    return ToolInDoubt(
        f"the tool {call.name} was interrupted; whether it took effect is not known",
        hint=f"look, then say: orch resume --tool {call.call_id}=retry | =done:JSON | =tell",
    )


def _unapproved(step: str, calls: Sequence[ToolCall]) -> ToolUnapproved:
    return ToolUnapproved(wants(step, [(call.name, call.arguments) for call in calls]))
