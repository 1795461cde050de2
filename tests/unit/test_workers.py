"""Blocking functions in threads of their own: what they return and raise arrives, and none can hold the process."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest

from orchestrator.workers import run_blocking, run_stoppable

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


def test_a_function_runs_in_a_thread_with_the_callers_context() -> None:
    async def main() -> tuple[int, str]:
        VARIABLE.set("mine")
        return await run_blocking(lambda at: (at + threading.get_ident(), VARIABLE.get()), 0)

    ident, value = asyncio.run(main())
    assert ident != threading.get_ident()
    assert value == "mine"


@pytest.mark.parametrize(
    ("raised", "seen"), [(ValueError, ValueError), (SystemExit, SystemExit), (StopIteration, RuntimeError)]
)
def test_what_a_function_raises_arrives_and_never_hangs(raised: type[BaseException], seen: type[BaseException]) -> None:
    def fail() -> None:
        raise raised("no")

    async def main() -> BaseException | None:
        try:
            async with asyncio.timeout(5):
                await run_blocking(fail)
        except (Exception, SystemExit) as error:
            return error
        return None

    assert type(asyncio.run(main())) is seen


def test_hundreds_of_waiting_functions_run_at_once() -> None:
    barrier = threading.Barrier(300, timeout=60)

    async def main() -> list[int]:
        return await asyncio.gather(*(run_blocking(barrier.wait) for _ in range(300)))

    assert set(asyncio.run(main())) == set(range(300)), "each has had a place of its own"


def test_a_stop_meets_the_work_and_nothing_after_it() -> None:
    """Given up just when it begins or has ended, a thread ends as quietly as in the midst of it: what it raised
    elsewhere would be in the way of somebody else, and pytest fails the test that runs then."""
    ends: list[BaseException | None] = []
    before = threading.excepthook
    threading.excepthook = lambda args: ends.append(args.exc_value)

    def work(turns: int) -> int:
        return sum(range(turns))

    async def main() -> None:
        for number in range(1500):
            tasks = [asyncio.ensure_future(run_stoppable(work, 20 * (number % 50))) for _ in range(4)]
            for task in tasks:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    try:
        asyncio.run(main())
        for thread in [thread for thread in threading.enumerate() if thread.name == "orch-function"]:
            thread.join(timeout=60)
    finally:
        threading.excepthook = before
    assert ends == []


def test_a_function_that_still_runs_does_not_keep_the_process_alive() -> None:
    script = (
        "import asyncio, time\n"
        "from orchestrator.workers import run_blocking\n"
        "async def main():\n"
        "    try:\n"
        "        await asyncio.wait_for(run_blocking(time.sleep, 3600), 0.05)\n"
        "    except TimeoutError:\n"
        "        print('gave up')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "gave up\n"
    assert done.stderr == ""
