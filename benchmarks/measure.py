"""Counting: time, processor time, bytes written, memory; in a process of its own for each measurement."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter, process_time
from types import TracebackType

Numbers = dict[str, float]


class Meter:
    """What happens inside the block. Seconds and bytes.

    `written` is what was handed to write calls, which does not depend on the file system; `grown` is how far the
    resident memory rose over where it stood at the start.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers: Numbers = {}

    def __enter__(self) -> Meter:
        gc.collect()
        _forget_peak()
        self._memory, self._written = _memory("VmRSS"), _written()
        self._processor, self._started = process_time(), perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.numbers = {
            "seconds": perf_counter() - self._started,
            "processor": process_time() - self._processor,
            "written": _written() - self._written,
            "grown": _memory("VmHWM") - self._memory,
            **self.size(self.folder),
        }

    @staticmethod
    def size(folder: Path) -> Numbers:
        """The database on disk, with what has not been moved out of its log yet."""
        files = [path for path in (*folder.glob("*.db*"), *folder.glob(".orch/*.db*")) if path.suffix != ".db-shm"]
        return {"database": sum(path.stat().st_size for path in files)}


def _written() -> int:
    return int(_field("io", "wchar"))


def _memory(name: str) -> int:
    return int(_field("status", name).removesuffix("kB")) * 1024


def _field(file: str, name: str) -> str:
    """A line of /proc/self; 0 where there is no such thing."""
    try:
        lines = Path("/proc/self", file).read_text().splitlines()
    except OSError:
        return "0"
    return next((line.split(":")[1].strip() for line in lines if line.startswith(f"{name}:")), "0")


def _forget_peak() -> None:
    """Let the peak of resident memory begin anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def apart(subject: str, folder: Path, steps: int, environment: Mapping[str, str] | None = None) -> Numbers:
    """A subject (`plain.chain`) measured in a process of its own; nothing where that process was killed."""
    command = [sys.executable, "-m", "benchmarks.measure", subject, str(folder), str(steps)]
    ended = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode < 0:
        return {}
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}")
    numbers: Numbers = json.loads(ended.stdout)
    return numbers


def seconds(*command: str) -> float:
    """How long a command takes from start to end."""
    started = perf_counter()
    subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - started


def main(subject: str, folder: str, steps: str) -> None:
    """The other side of `apart`."""
    from importlib import import_module

    module, _, function = subject.partition(".")
    numbers = getattr(import_module(f"benchmarks.{module}"), function)(Path(folder), int(steps))
    json.dump(numbers, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
