"""The README's walk is real: each `$ orch …` of it runs, in order, and says what stands there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What differs from run to run, and nothing else: seconds, moments, the ids of replies.
VARIES = re.compile(r"\d+\.\d+s|\d{4}-\d\d-\d\d \d\d:\d\d|resp_[0-9a-f]+")


def walk() -> Iterator[tuple[str, list[str]]]:
    """Each command of the walk with the lines shown below it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Five minutes")[1].split("\n## ")[0]
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *shown = command.splitlines()
            yield first, shown


def lines(text: str) -> list[str]:
    return [VARIES.sub("~", line).rstrip() for line in text.splitlines()]


@pytest.mark.slow
def test_the_walk_of_the_readme_says_what_stands_there(tmp_path: Path) -> None:
    project = tmp_path / "discovery"
    shutil.copytree(ROOT / "examples" / "discovery", project, ignore=shutil.ignore_patterns(".orch", "__pycache__"))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "ORCH_MODEL": "scripted:sample_answers",
        "ORCH_USER": "ana",
        "ORCH_TRUST": "1",
    }
    commands = list(walk())
    assert len(commands) >= 7
    for command, shown in commands:
        program, *arguments = shlex.split(command)
        assert program == "orch"
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *arguments],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        said = lines(done.stdout)
        missing = [line for line in lines("\n".join(shown)) if line and line != "…" and line not in said]
        assert not missing, f"`{command}` does not say:\n" + "\n".join(missing)
