"""What is compared: each suite makes rounds and turns them into lines of the table.

A line holds one value for each round. Ratios are taken inside a round, before anything is averaged.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measure import Numbers, apart, seconds
from benchmarks.work import PAUSE_SECONDS, PAYLOAD_BYTES

MEGABYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: a value per round, its target as the most (or, `least`, the least) it should be, and the
    same of the plain loop where there is one."""

    name: str
    unit: str
    values: list[float]
    target: float | None = None
    plain: list[float] | None = None
    least: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: rounds, and the lengths of chains and fan-outs."""

    rounds: int
    chains: tuple[int, ...]
    fanouts: tuple[int, ...]
    killed: tuple[int, int]  # the chain's length, and the step in which its process is killed


FULL: Final = Size(5, (10, 100, 1000), (200, 1000), (200, 151))
QUICK: Final = Size(2, (10, 100), (200,), (40, 31))

Sizes = Mapping[int, Numbers]
"""What one side came to in one round, by size."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What both sides came to, round by round."""

    ours: Sequence[Sizes]
    plain: Sequence[Sizes]

    def line(self, name: str, unit: str, value: Callable[[Sizes], float], target: float | None = None) -> Line:
        """A value of ours, with that of the plain loop beside it."""
        return Line(name, unit, [value(at) for at in self.ours], target, [value(at) for at in self.plain])

    def against(self, name: str, size: int, number: str, target: float | None = None) -> Line:
        """Ours as a multiple of the plain loop's."""
        pairs = zip(self.ours, self.plain, strict=True)
        return Line(name, "×", [ours[size][number] / plain[size][number] for ours, plain in pairs], target)


def chain(size: Size) -> Iterator[Line]:
    """Steps one after the other, each durable before the next begins: T1 to T5."""
    yield Line("one commit on this disk", "ms", [_commit() * 1000 for _ in range(size.rounds)])
    rounds = _rounds(size.rounds, lambda side: {n: _fresh(f"{side}.chain", n) for n in size.chains})
    for length in size.chains:
        target = 2.5 if length >= 100 else None
        yield rounds.against(f"T1 chain of {length}, against plain", length, "seconds", target)
        yield rounds.line(f"a step of a chain of {length}", "ms", partial(_per_step, size=length))
    few, many = size.chains[-2:]
    yield rounds.line(f"T1 a step of {many} against one of {few}", "×", partial(_trend, few=few, many=many))
    slope = partial(_slope, few=few, many=many)
    yield rounds.line("T2 processor time per further step", "ms", slope, 0.6)
    database = partial(_stored, size=many)
    yield rounds.line(f"T3 database against its {many} × 2 KB", "×", database, 3)
    database = partial(_exponent, number="database", few=few, many=many)
    yield rounds.line(f"T3 its growth from {few} to {many} steps", "exponent", database, 1.05)
    yield rounds.against(f"T4 bytes written, chain of {many}, against plain", many, "written", 2)
    written = partial(_exponent, number="written", few=few, many=many)
    yield rounds.line(f"T4 their growth from {few} to {many} steps", "exponent", written, 1.05)
    yield rounds.line(f"T5 memory over the graph, chain of {many}", "MB", partial(_grown, size=many), 10)
    yield Line(f"reading the files of {many} steps", "s", [at[many]["loading"] for at in rounds.ours])


def _per_step(at: Sizes, size: int) -> float:
    return at[size]["seconds"] / size * 1000


def _trend(at: Sizes, few: int, many: int) -> float:
    return _per_step(at, many) / _per_step(at, few)


def _slope(at: Sizes, few: int, many: int) -> float:
    return (at[many]["processor"] - at[few]["processor"]) / (many - few) * 1000


def _stored(at: Sizes, size: int) -> float:
    return at[size]["database"] / (size * PAYLOAD_BYTES)


def _exponent(at: Sizes, number: str, few: int, many: int) -> float:
    return math.log(at[many][number] / at[few][number], many / few)


def _grown(at: Sizes, size: int) -> float:
    return at[size]["grown"] / MEGABYTE


def fanout(size: Size) -> Iterator[Line]:
    """Independent steps of 50 ms, all ready at once: T7."""
    rounds = _rounds(size.rounds, lambda side: {n: _fresh(f"{side}.fanout", n) for n in size.fanouts})
    for width in size.fanouts:
        target = 2 if width <= 200 else 4
        yield rounds.line(f"T7 {width} steps of 50 ms, against 50 ms", "×", partial(_makespan, size=width), target)


def _makespan(at: Sizes, size: int) -> float:
    return at[size]["seconds"] / PAUSE_SECONDS


def resume(size: Size) -> Iterator[Line]:
    """A chain whose process is killed inside a step; another one goes on and finishes: T9."""
    length, killed = size.killed
    rounds = _rounds(size.rounds, lambda side: {length: _killed(side, length, killed)})
    yield rounds.against(f"T9 {length} steps, killed in step {killed}: the rest", length, "seconds", 3)
    yield rounds.line("opening the database, resuming, finishing", "ms", lambda at: at[length]["seconds"] * 1000)
    again = [killed - at[length]["first"] for at in rounds.ours]
    yield Line("T9 committed steps that ran again", "steps", again, 0)


def start(size: Size) -> Iterator[Line]:
    """How soon a command answers: T10, T11."""
    plain, imported, helped = [], [], []
    for _ in range(size.rounds + 1):  # the first one writes what Python caches
        plain.append(seconds(sys.executable, "-c", "import asyncio, sqlite3") * 1000)
        imported.append(seconds(sys.executable, "-c", "import orchestrator") * 1000)
        helped.append(seconds(sys.executable, "-m", "orchestrator", "--help") * 1000)
    yield Line("T10 import orchestrator", "ms", imported[1:], 250, plain[1:])
    yield Line("T11 orch --help", "ms", helped[1:], 300, plain[1:])


def prompts(size: Size) -> Iterator[Line]:
    """What neighbouring requests share, and how requests grow: T13, T14. Beside it, one chat through all steps."""
    shared = _fresh("prompts.growing", 12)["shared"] * 100
    yield Line("T13 shared beginning, of what both steps read", "%", [shared], 90, least=True)
    few, many = _fresh("prompts.declared", 16), _fresh("prompts.declared", 64)
    ours, chat = (math.log(many[name] / few[name], 64 / 16) for name in ("tokens", "chained"))
    yield Line("T14 prompt tokens, from 16 to 64 steps", "exponent", [ours], 1.05, [chat])


def tokens(size: Size) -> Iterator[Line]:
    """The eight-step example, asked in three ways, in the money of a strict server's counts (R021): in cents."""
    for mode in ("native", "prompt"):
        found = _fresh(f"tokens.{mode}", 8)
        for key, label in (
            ("0.5", "cached at 0.5"),
            ("0.25", "0.25"),
            ("0.1", "0.1"),
            ("write", "0.1, writes at 1.25"),
        ):
            run = found[f"run.{key}"]
            yield Line(f"eight steps, forms {mode}, {label}: as run", "¢", [run * 100])
            for way, name in (("chain", "one chain"), ("history", "whole history")):
                yield Line(f"  {name}, against as run", "×", [found[f"{way}.{key}"] / run])


def stall(size: Size) -> Iterator[Line]:
    """How long the event loop stands still while a step reads 5 MB."""
    yield Line("longest stall while 5 MB are rendered and counted", "ms", _each("stall.big", size.rounds), 250)


def _each(subject: str, rounds: int) -> list[float]:
    return [_fresh(subject, 5_000_000)["stall"] * 1000 for _ in range(rounds)]


SUITES: Final[Mapping[str, Callable[[Size], Iterator[Line]]]] = {
    "chain": chain,
    "fanout": fanout,
    "resume": resume,
    "start": start,
    "prompts": prompts,
    "tokens": tokens,
    "stall": stall,
}


# --- rounds -----------------------------------------------------------------------------------------------------------


def _rounds(count: int, side: Callable[[str], Sizes]) -> Rounds:
    """The plain loop and Orchestrator in turn."""
    pairs = [(side("plain"), side("ours")) for _ in range(count)]
    return Rounds([ours for _, ours in pairs], [plain for plain, _ in pairs])


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="orch-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _fresh(subject: str, size: int) -> Numbers:
    """A subject in a new process, on an empty folder."""
    with _folder() as folder:
        return apart(subject, folder, size)


def _killed(side: str, length: int, killed: int) -> Numbers:
    """What the second process needs, after the first was killed."""
    with _folder() as folder:
        if apart(f"{side}.resume", folder, length, {"BENCH_KILL_IN": str(killed)}):
            raise SystemExit(f"the process of {side}.resume was not killed")
        return apart(f"{side}.resume", folder, length)


def _commit() -> float:
    return _fresh("plain.commit", 200)["seconds"]
