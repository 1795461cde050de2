"""Commands as a README shows them, `$ …` and what they print: run for real, in order, in a copy of the project.

A line that is shown must be said; `…` stands for lines left out. What differs from run to run is not compared: seconds,
moments, the ids of replies. A command that asks something (`[y/N]: y`) is run at a terminal, and answered.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import EXIT_OK, EXIT_WAITING
from tests import process_kit

ROOT = Path(__file__).parents[2]
ASKS = "[y/N]:"
VARIES = re.compile(r"\d+\.\d+s|\d{4}-\d\d-\d\d \d\d:\d\d|resp_[0-9a-f]+")
PROGRAMS = {"python": sys.executable, "cat": "cat"}


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of the console blocks in a Markdown text, with the lines shown below it."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *shown = command.splitlines()
            yield first, shown


def copied(example: str, to: Path) -> Path:
    """A copy of a shipped example, without what runs leave in it."""
    folder = to / example
    left = shutil.ignore_patterns(".orch", "__pycache__", "bid_register.csv")
    shutil.copytree(ROOT / "examples" / example, folder, ignore=left)
    return folder


def environment(home: Path) -> dict[str, str]:
    """Of a process that knows this checkout, the sample answers, and nothing of the developer's settings."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "ORCH_MODEL": "scripted:sample_answers",
        "ORCH_USER": "ana",
        "ORCH_TRUST": "1",
    }


def follow(text: str, folder: Path) -> int:
    """Run the commands of a text in a folder, and hold each to what is shown below it; how many there were."""
    found = list(commands(text))
    for command, shown in found:
        program, *arguments = shlex.split(command)
        asked = any(ASKS in text for text in shown)
        code, output = (_at_a_terminal if asked else _run)(program, arguments, folder)
        assert code in (EXIT_OK, EXIT_WAITING), output
        said = _lines(output)
        missing = [text for text in _lines("\n".join(shown)) if text and text != "…" and text not in said]
        assert not missing, f"`{command}` does not say:\n" + "\n".join(missing) + f"\n\nit says:\n{output}"
    return len(found)


def _run(program: str, arguments: list[str], folder: Path) -> tuple[int, str]:
    env = environment(folder.parent)
    if program == "orch":
        done = process_kit.run(folder, *arguments, env=env)
    else:
        line = [PROGRAMS[program], *arguments]
        done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + (done.stderr if done.returncode not in (EXIT_OK, EXIT_WAITING) else "")


def _at_a_terminal(program: str, arguments: list[str], folder: Path) -> tuple[int, str]:
    """The same for one of ours that asks: at a plain terminal, where each question is answered with y."""
    ours, theirs = pty.openpty()
    assert program == "orch"
    env = environment(folder.parent) | {"TERM": "dumb"}
    process = process_kit.start(folder, *arguments, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    with os.fdopen(ours, "r+b", buffering=0) as terminal, suppress(OSError):  # EIO: the other end has closed
        while piece := terminal.read(65536):
            output += piece
            if output.endswith(f"{ASKS} ".encode()):
                terminal.write(b"y\n")
    return process.wait(timeout=120), output.decode()


def _lines(text: str) -> list[str]:
    return [VARIES.sub("~", line).rstrip() for line in text.splitlines()]
