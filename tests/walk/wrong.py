"""What the tests of wrong input share: a fresh starter project, commands on it, and what an error must look like.

Most commands run in this process, through the same door as the console script; `process` gives those that need one of
their own. The project's code is changed by the tests, so it is trusted by the environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as orch_run
from tests import process_kit

BRIEF = ("--input", "briefs/launch.json")
ERROR_KEYS = {"code", "message", "file", "line", "column", "hint"}
# Characters that move the cursor, change colours, reorder text or end lines where nobody sees it (S27).
DANGEROUS = {chr(n) for n in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
DANGEROUS |= {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029"}
DANGEROUS -= {"\n", "\t"}


@dataclass(frozen=True)
class Desk:
    """A project folder, and commands typed in it."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document("runs")["runs"]
        return found

    def change(self, name: str, old: str, new: str) -> str:
        """One place of a file changed (`old` = "": something put in front). Gives the new text."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        text = text.replace(old, new, 1) if old else new + text
        path.write_text(text, encoding="utf-8")
        return text

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def answers(self, step: str, *replies: Mapping[str, Any]) -> None:
        self.write(f"sample_answers/{step}.json", json.dumps(replies))

    def orch(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command; whatever it is, it is no bug and safe on a terminal."""
        self.capsys.readouterr()
        code = orch_run(arguments)
        out, err = self.capsys.readouterr()
        assert code != 70, err
        assert "Traceback" not in err
        assert not DANGEROUS & set(out + err), ascii(out + err)
        return code, out, err

    def document(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The one document of a command with --json, and nothing beside it on stdout."""
        given, out, err = self.orch(*arguments, "--json")
        assert given == code, err
        assert out.isascii()
        document = json.loads(out)
        assert isinstance(document, dict)
        return document

    def refused(self, code: int, *arguments: str) -> tuple[dict[str, Any], str]:
        """An error before anything ran: told once on stderr, with --json also as a document. Gives its body, stderr."""
        given, out, err = self.orch(*arguments)
        assert given == code, out + err
        assert out == ""
        assert err.count("error") >= 1
        document = self.document(*arguments, code=code)
        assert set(document["error"]) == ERROR_KEYS
        assert document["error"]["message"]
        return document["error"], err

    def failed(self, code: int, *arguments: str) -> tuple[dict[str, Any], str]:
        """A run that ended with a failed step. Gives the step's document, and what people read."""
        given, out, err = self.orch(*arguments)
        assert given == code, out + err
        steps = self.document(*arguments, code=code)["run"]["steps"]
        return next(step for step in steps if step["status"] == "failed"), out

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ANTHROPIC_"))}
        return {**own, **(more or {})}

    def process(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command in a process of its own."""
        return process_kit.run(self.root, *arguments, env=self.environment())

    def program(self, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """The same from the interpreter's start: libraries read some variables when they are imported."""
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *arguments],
            cwd=self.root,
            env=self.environment(env),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )

    def started(self, *arguments: str) -> process_kit.Process:
        """A command that goes on while the test does something else."""
        return process_kit.start(self.root, *arguments, env=self.environment())


def starter(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """What `orch init` makes, as the current folder, in an environment without anybody's settings."""
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ORCH_TRUST", "1")
    monkeypatch.chdir(tmp_path)
    assert orch_run(["init", "project"]) == 0
    monkeypatch.chdir(tmp_path / "project")
    return Desk(tmp_path / "project", capsys)
