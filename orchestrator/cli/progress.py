"""Live progress: what is finished scrolls by for good, what runs now stays at the foot.

A step with many items has one line, and one for each item that failed or waits.

On a terminal the foot is redrawn (rich Live), with the end of what each reply under way has said; elsewhere each event
worth knowing is one plain line. A reader that has left (a closed pipe, a terminal that is gone) silences the progress
and never disturbs the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cli.items import FEW
from orchestrator.cli.lines import Line, name_width, print_step, step_text
from orchestrator.cli.options import State
from orchestrator.cli.terminal import console, money, plural, show, spent, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from orchestrator.plan_costs import PlannedStep
    from orchestrator.values import Event


MOST_SAID: Final = 400  # characters of a reply under way
MOST_ROWS: Final = 12  # of what runs now, at the foot
TELL_EVERY: Final = 10  # items, where there is no foot


@dataclass(slots=True)
class _Running:
    """A step under way, as far as its events have told."""

    started: float
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    now: str = ""
    said: str = ""  # the end of what the reply under way has said so far
    notes: list[str] = field(default_factory=list)
    recalled: int = 0


@dataclass(slots=True)
class _Items:
    """The items of a step, as far as their events have told: those that have ended well, and what all took."""

    count: int
    done: int = 0
    failed: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    partial: bool = False

    def add(self, line: Line) -> None:
        self.done += line.status == "succeeded"
        self.failed += line.status == "failed"
        self.calls += line.calls
        self.input_tokens += line.input_tokens
        self.output_tokens += line.output_tokens
        self.partial = self.partial or line.cost_partial
        if line.cost_usd is not None:
            self.cost = (self.cost or Decimal(0)) + line.cost_usd


class Progress(AbstractContextManager["Progress"]):
    """A listener for the engine's events. Use as a context manager around the run."""

    def __init__(self, state: State, names: Sequence[str]) -> None:
        self.state = state
        self.out: Console = console(stderr=state.json)
        self.width = name_width(names)
        self.running: dict[str, _Running] = {}
        self.items: dict[str, _Items] = {}
        self.spent: Decimal | None = None
        self.partial = False
        self.names = frozenset(names)
        self.steps = len(names)
        self.finished: set[str] = set()
        self.worst: Mapping[str, Decimal] = {}
        self.announced = False  # hosts and cap were shown before the question
        self.stopping = False
        self.warned: set[str] = set()  # steps of whose input something is told
        self.silent = False
        self.live: Live | None = None

    def _start_live(self) -> None:
        """From the first event on: before it, a question may still stand at the foot."""
        from rich.live import Live

        self.live = Live(
            console=self.out, get_renderable=self._foot, refresh_per_second=8, transient=True, redirect_stderr=False
        )
        self.live.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def expect(self, steps: Sequence[PlannedStep]) -> None:
        """What each step may cost at worst, from a plan; nothing is said where a price is not known."""
        costs = {step.name: step.cost_high_usd for step in steps if step.tokens_estimate is not None}
        known = {name: cost for name, cost in costs.items() if cost is not None}
        self.worst = known if len(known) == len(costs) else {}

    def stop_asked(self) -> None:
        """The first Ctrl-C: say that we are on it. Called from a signal handler, so only a mark is set."""
        self.stopping = True

    def __call__(self, event: Event) -> None:
        if event.kind == "run.started":
            self.state.run_number = event.data.get("number")
        if self.silent:
            return
        handler = getattr(self, "_on_" + event.kind.replace(".", "_"), None)
        try:
            if self.live is None and self.out.is_terminal:
                self._start_live()
            if handler is not None:
                handler(event)
        except OSError:
            self.silent = True

    # --- the run ------------------------------------------------------------------------------------------------------

    def _on_run_started(self, event: Event) -> None:
        from rich.text import Text

        from orchestrator.trace.documents import host_names

        data = event.data
        self.steps = int(data.get("steps") or self.steps)
        cap = data.get("cap_usd")
        hosts = ", ".join(host_names(str(url) for url in data.get("hosts") or ()))
        parts = [str(data.get("pipeline", ""))]
        if not self.announced:
            parts.append(f"cap {money(Decimal(cap))}" if cap else "no cap")
            parts.append(f"sends to {hosts}" if hosts else "sends to no host")
        line = visible(" · ".join(parts), one_line=True)
        show(self.out, Text.assemble((f"run {data.get('number')}", "bold"), f" · {line}"))

    def _on_store_waiting(self, event: Event) -> None:
        show(self.out, f"  {visible(str(event.data['message']), one_line=True)}")

    def _on_bench_started(self, event: Event) -> None:
        from rich.text import Text

        data = event.data
        line = visible(f"{data.get('run')}/{event.step}", one_line=True)
        samples = plural(int(data.get("samples") or 0), "sample")
        show(self.out, Text.assemble((f"bench {data.get('number')}", "bold"), f" · {line} · {samples}"))

    # --- a step -------------------------------------------------------------------------------------------------------

    def _key(self, event: Event) -> str:
        return f"{event.step}/{event.item}" if event.item else str(event.step)

    def _step(self, event: Event) -> _Running:
        return self.running.setdefault(self._key(event), _Running(started=time.monotonic()))

    def _on_step_started(self, event: Event) -> None:
        self.running[self._key(event)] = _Running(started=time.monotonic())

    def _on_step_items(self, event: Event) -> None:
        """The list is known; what had its items before is counted as done."""
        count, left = int(event.data.get("items") or 0), int(event.data.get("open") or 0)
        name = str(event.step)
        self.items[name] = known = self.items.get(name) or _Items(count)
        known.count, known.done = count, max(count - left - known.failed, 0)
        self._say(event, f"{plural(count, 'item')}, {left} to do")

    def _on_step_kept(self, event: Event) -> None:
        note = f"v{event.data.get('version')} stands: what it reads is the same"
        self._finish(event, Line(self._key(event), "kept", notes=(note,)))

    def _on_step_skipped(self, event: Event) -> None:
        self._finish(event, Line(self._key(event), "skipped", notes=(str(event.data.get("reason", "")),)))

    def _on_call_sent(self, event: Event) -> None:
        step = self._step(event)
        step.calls += 1
        step.now = step.said = ""

    def _on_call_text(self, event: Event) -> None:
        step = self._step(event)
        step.now = ""
        step.said = (step.said + str(event.data.get("delta", "")))[-MOST_SAID:]

    def _on_call_retry(self, event: Event) -> None:
        wait = float(event.data.get("wait") or 0)
        step = self._step(event)
        step.now, step.said = f"{event.data.get('why', 'failed')}; trying again in {wait:.0f}s", ""
        self._say(event, step.now)

    def _on_call_waiting(self, event: Event) -> None:
        step = self._step(event)
        step.now = f"{event.data.get('why', 'waits')}; about {float(event.data.get('wait') or 0):.0f}s"
        self._say(event, step.now)

    def _on_call_done(self, event: Event) -> None:
        step, data = self._step(event), event.data
        step.said = ""
        step.input_tokens += int(data.get("input_tokens") or 0)
        step.output_tokens += int(data.get("output_tokens") or 0)
        if data.get("cost_usd") is not None:
            cost = Decimal(str(data["cost_usd"]))
            step.cost = (step.cost or Decimal(0)) + cost
            self.spent = (self.spent or Decimal(0)) + cost
        else:
            self.partial = True

    def _on_ask_recalled(self, event: Event) -> None:
        step = self._step(event)
        step.recalled += 1
        step.now = "answered from the record"

    def _on_call_adopted(self, event: Event) -> None:
        self._step(event).notes.append("an answer that was under way was fetched, not paid again")

    def _on_tool_recalled(self, event: Event) -> None:
        name = event.data.get("name", "")
        self._step(event).notes.append(f"{name} was done before the step failed, and is not done again")

    def _on_tool_called(self, event: Event) -> None:
        missing = ", ".join(str(path) for path in event.data.get("missing") or ())
        note = f"{event.data.get('name', '')} gave nothing at {missing}, which its `keep` names"
        step = self._step(event)
        if missing and note not in step.notes:
            step.notes.append(note)

    def _on_context_edited(self, event: Event) -> None:
        what = " and ".join(str(one) for one in event.data.get("what") or ())
        self._step(event).notes.append(f"the provider {what}")

    def _on_input_unexplained(self, event: Event) -> None:
        """It stays on the screen, once for a step, however many items it has."""
        from rich.text import Text

        from orchestrator.unexplained import said

        if event.step not in self.warned:
            self.warned.add(str(event.step))
            line = visible(f"  ! {self._key(event)}: {said(event.data)}", one_line=True)
            show(self.out, Text(line, style="yellow"))

    def _on_step_reask(self, event: Event) -> None:
        step = self._step(event)
        reasons = "; ".join(str(reason) for reason in event.data.get("reasons") or ())
        step.notes.append(f"re-asked: {reasons}")
        step.now = f"re-asking: {reasons}"

    def _on_step_note(self, event: Event) -> None:
        self._step(event).notes.append(str(event.data.get("text", "")))

    def _on_step_rebuilt(self, event: Event) -> None:
        self._step(event).notes.append(f"thread rebuilt: {event.data.get('reason', '')}")

    def _on_model_switched(self, event: Event) -> None:
        data = event.data
        self._tell(event, f"{data.get('was')} does not answer, {data.get('now')} is asked: {data.get('reason')}")

    def _on_step_moved(self, event: Event) -> None:
        inputs = ", ".join(str(name) for name in event.data.get("inputs") or ())
        stands = "kept, and its readers go on" if event.data.get("stands") else "kept, but stale"
        ending = "running again" if event.data.get("redo") else stands
        self._tell(event, f"{inputs} changed meanwhile: {ending}")

    def _on_step_done(self, event: Event) -> None:
        self._finish(event, self._line(event, "succeeded"))

    def _on_step_repeat(self, event: Event) -> None:
        data = event.data
        note = f"visit {data.get('round')} of {data.get('of')}: {data.get('reason')}"
        self._finish(event, self._line(event, "repeat", note))

    def _on_step_failed(self, event: Event) -> None:
        self._finish(event, self._line(event, "failed", *_why(event)))

    def _on_step_waiting(self, event: Event) -> None:
        if event.data.get("code") == "gate":
            from orchestrator.cli.gates import gate_commands

            ways = gate_commands(self.state, self.state.run_number or 0, self._key(event))
            self._finish(event, Line(self._key(event), "waiting", notes=(f"waits for you: {' | '.join(ways)}",)))
            return
        self._finish(event, self._line(event, "waiting", *_why(event)))

    def _on_gate_answered(self, event: Event) -> None:
        data = event.data
        if data.get("decision") == "approve":
            self._finish(event, Line(self._key(event), "succeeded", notes=(f"approved by {data.get('by')}",)))

    def _line(self, event: Event, status: str, *notes: str) -> Line:
        step, data = self._step(event), event.data
        items = self.items.get(str(event.step)) if event.item is None else None
        if items is not None:
            return self._line_of_items(event, status, items, notes)
        cost = data.get("cost_usd", step.cost)
        if step.recalled:
            notes = (*notes, f"{plural(step.recalled, 'answer')} from the record, not paid again")
        return Line(
            self._key(event),
            status,
            calls=int(data.get("calls", step.calls)),
            input_tokens=int(data.get("input_tokens", step.input_tokens)),
            output_tokens=int(data.get("output_tokens", step.output_tokens)),
            cost_usd=Decimal(str(cost)) if cost is not None else None,
            cost_partial=bool(data.get("cost_partial")),
            seconds=float(data.get("seconds", time.monotonic() - step.started)),
            notes=(*step.notes, *notes),
        )

    def _line_of_items(self, event: Event, status: str, items: _Items, notes: Sequence[str]) -> Line:
        step = self._step(event)
        told = (f"{items.done} of {items.count}", *step.notes, *notes)
        return Line(
            self._key(event),
            status,
            calls=items.calls,
            input_tokens=items.input_tokens,
            output_tokens=items.output_tokens,
            cost_usd=items.cost,
            cost_partial=items.partial,
            seconds=time.monotonic() - step.started,
            notes=told,
        )

    def _finish(self, event: Event, line: Line) -> None:
        self.running.pop(self._key(event), None)
        items = self.items.get(str(event.step))
        key = self._key(event)
        if event.item is None or key in self.names:
            self.finished.add(key if key in self.names else str(event.step))
        elif items is not None:
            items.add(line)
            if items.count > FEW and line.status == "succeeded":
                if items.done % TELL_EVERY == 0 and items.done < items.count:
                    self._say(replace(event, item=None), f"{items.done} of {items.count}")
                return
        print_step(self.out, line, self.width)

    def _say(self, event: Event, text: str) -> None:
        """Something that passes: on a terminal it stands in the foot, elsewhere it is a line of its own."""
        if self.live is None:
            self._tell(event, text)

    def _tell(self, event: Event, text: str) -> None:
        """Something that is to be read later too: it scrolls by for good, on a terminal as elsewhere."""
        show(self.out, f"    {self._key(event)}: {visible(text, one_line=True)}")

    # --- the foot -----------------------------------------------------------------------------------------------------

    def _foot(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        now = time.monotonic()
        rows: list[Any] = []
        running = list(self.running.items())
        for name, step in running[:MOST_ROWS]:
            known = self.items.get(name)
            label = f"{name}  {known.done} of {known.count}" if known else name
            line = Line(
                label,
                "running",
                step.calls,
                step.input_tokens,
                step.output_tokens,
                step.cost,
                False,
                now - step.started,
            )
            text = step_text(line, self.width)
            rows.append(text)
            if step.now:
                rows.append(Text(f"      {visible(step.now, one_line=True)}", style="dim"))
            elif step.said:
                rows.append(Text(f"      {end_of(step.said, self.out.width - 6)}", style="dim italic"))
        if len(running) > MOST_ROWS:
            rows.append(Text(f"    … and {len(running) - MOST_ROWS} more", style="dim"))
        rows.append(Text(f"  {self._totals()}", style="dim"))
        for row in rows:
            row.no_wrap, row.overflow = True, "ellipsis"
        return Group(*rows)

    def _totals(self) -> str:
        if self.stopping:
            return "stopping: what is finished is kept (Ctrl-C again to quit at once)"
        left = max(self.steps - len(self.finished), 0)
        known = [cost for name, cost in self.worst.items() if name not in self.finished]
        most = f", at most {money(sum(known, Decimal(0)))}" if known and left else ""
        return f"{spent(self.spent, self.partial)} · {plural(left, 'step')} left{most}"


def end_of(text: str, room: int) -> str:
    """The end of a text as it grows, on one line of so many columns."""
    from rich.cells import cell_len

    line = visible(text, one_line=True)
    if cell_len(line) <= room:
        return line
    while cell_len(line) >= max(room, 1):
        line = line[1:]
    return f"…{line}"


def _why(event: Event) -> tuple[str, ...]:
    """The message, and the way out on a line of its own."""
    data: dict[str, Any] = dict(event.data)
    hint = data.get("hint")
    return (str(data.get("message", "")), *((f"hint: {hint}",) if hint else ()))
