"""The work that both sides do: a step makes about 2 KB of text that no other step makes.

The same file is the project's Python for Orchestrator and a module for the plain loop.
"""

import asyncio
import hashlib
import os
import signal

PAYLOAD_BYTES = 2048
PAUSE_SECONDS = 0.05

done: list[int] = []  # the numbers of the steps that ran in this process


def text(number: int) -> str:
    """Distinct for each number, and nothing that compresses."""
    return hashlib.shake_128(str(number).encode()).hexdigest(PAYLOAD_BYTES // 2 - 20)


async def step(**reads: dict[str, object]) -> dict[str, object]:
    """The next link of a chain. Ends the process, as `kill -9` does, inside the step that BENCH_KILL_IN names."""
    number = max((int(str(value["number"])) for value in reads.values()), default=0) + 1
    if os.environ.get("BENCH_KILL_IN") == str(number):
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(number)
    return {"number": number, "text": text(number)}


async def branch() -> dict[str, object]:
    """One of many that wait for nothing but the clock."""
    await asyncio.sleep(PAUSE_SECONDS)
    done.append(len(done))
    return {"number": len(done), "text": text(len(done))}
