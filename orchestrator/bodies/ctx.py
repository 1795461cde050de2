"""What a step's Python body has in its hands: a way to ask the step's model, threads, and effects that happen once.

A body is ordinary Python that may run more than once: after a crash it begins again from its first line. So whatever it
asks is written down, and a question it has asked before is answered from the record, without paying. The record is
matched by the thread's name, by what is asked, and by its occurrence, never by the order of asking: bodies that ask
many things at once (`asyncio.gather`) are in a different order each time. What a body does to the world beside asking
belongs into `once`, which writes it down in the same way.

The names here are types for authors; the work is done by `orchestrator.bodies.body`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, overload

__all__ = ["Ctx", "Thread"]

T = TypeVar("T")


class Asking(Protocol):
    """One thread at work."""

    @property
    def name(self) -> str | None: ...

    async def ask(self, output: type[Any], prompt: str | None, template: str | None, quotes: Mapping[str, Any]) -> Any:
        """The answer to one question, checked."""
        ...


class Hands(Protocol):
    """What stands behind a `Ctx`: one attempt of one step at work."""

    @property
    def step(self) -> str: ...

    @property
    def run(self) -> int: ...

    @property
    def comment(self) -> str | None: ...

    @property
    def feedback(self) -> str | None: ...

    @property
    def draft(self) -> Any: ...

    def open(self, name: str | None) -> Asking:
        """A thread that nothing has been asked on yet."""
        ...

    async def once(self, key: str, effect: Callable[[], Any], idempotent: bool) -> Any:
        """The recorded result of an effect, or what it gives now."""
        ...


class Thread:
    """One conversation with the step's model: the first `ask` starts it, each further one continues it.

    Threads of one step know nothing of each other.
    """

    __slots__ = ("_thread",)

    def __init__(self, thread: Asking) -> None:
        self._thread = thread

    @property
    def name(self) -> str | None:
        """The name it was given; None for a thread that is known by its place."""
        return self._thread.name

    async def ask(
        self, output: type[T], prompt: str | None = None, /, *, template: str | None = None, **quotes: Any
    ) -> T:
        """Ask, check the answer, ask again where it is wrong; give the answer as `output`.

        `output` is a pydantic model, an artifact type, or `str`. The task is either `template`, a file of the shelf
        `templates/`, or `prompt`, which is sent as it stands: nothing in it is rendered. All reads of the step stand
        ahead of the first question of a thread. Further keyword values become labelled quotes: a template places them
        with `quote("name", "field")` or `block("name")`, and those it does not place follow the task.

        Raises StepFailed where no valid answer comes after the step's re-asks, ProviderFailure where the provider
        fails, BudgetExceeded before a call that could pass the cap.
        """
        answer: T = await self._thread.ask(output, prompt, template, quotes)
        return answer


class Ctx:
    """The context of a running step. A body that has a parameter of this type may ask the step's model."""

    __slots__ = ("_hands",)

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    @property
    def step(self) -> str:
        """The name of the step."""
        return self._hands.step

    @property
    def run(self) -> int:
        """The number of the run."""
        return self._hands.run

    @property
    def comment(self) -> str | None:
        """What a person wants of this version, where somebody asked for the step to be made once more (`orch revise`, a
        gate's reject); None else. Nothing of it is sent by itself: put it into what you ask."""
        return self._hands.comment

    @property
    def feedback(self) -> str | None:
        """What the step's `repeat` says of the version before, on a further visit; None else."""
        return self._hands.feedback

    @property
    def draft(self) -> Any:
        """The step's current version, where it is made once more; None on its first visit. Give it to a question as a
        quote: `ctx.ask(Plan, "Mend it.", draft=ctx.draft)`."""
        return self._hands.draft

    def thread(self, name: str | None = None) -> Thread:
        """A new thread. A name tells threads apart that ask the same, and is what `orch why` calls it."""
        return Thread(self._hands.open(name))

    async def ask(
        self, output: type[T], prompt: str | None = None, /, *, template: str | None = None, **quotes: Any
    ) -> T:
        """One question on a thread of its own; see `Thread.ask`."""
        return await self.thread().ask(output, prompt, template=template, **quotes)

    @overload
    async def once(self, key: str, effect: Callable[[], Awaitable[T]], *, idempotent: bool = False) -> T: ...
    @overload
    async def once(self, key: str, effect: Callable[[], T], *, idempotent: bool = False) -> T: ...
    async def once(self, key: str, effect: Callable[[], Any], *, idempotent: bool = False) -> Any:
        """Do something to the world once, and give its result, which must be JSON data.

        Once in this attempt, whatever interrupts it, and in those that go on with the same inputs after it failed.

        A row is written before `effect` is called and its result after. If the process ended in between, nobody knows
        whether it happened: the step then waits for a person (`orch resume --tool once:KEY=retry`, or `=done:JSON`),
        unless doing it twice does no harm (`idempotent`). Functions that block run in a thread.

        Raises StepFailed for a key that is empty, longer than 200 characters, or holds `=`, and for a result that is
        no JSON data.
        """
        return await self._hands.once(key, effect, idempotent)
