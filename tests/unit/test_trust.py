"""What a project demands of its user, read without executing it, and where the user's word is kept (S24)."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator.project import find_project
from orchestrator.settings import load_settings
from orchestrator.trust import TrustFile, demands


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without settings."""
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def plain_project(root: Path, toml: str = "", env: str = "") -> list[tuple[str, str]]:
    """What a project without code demands: (kind, name)."""
    root.mkdir(exist_ok=True)
    (root / "orchestrator.toml").write_text(dedent(toml), encoding="utf-8")
    (root / ".env").write_text(env, encoding="utf-8")
    project = find_project(root)
    return [(one.kind, one.name) for one in demands(project, load_settings(project, os.environ))]


@pytest.mark.parametrize(
    ("toml", "env", "wants"),
    [
        ("", "ORCH_MODEL=openai:m\nOPENAI_API_KEY=sk-of-the-user\n", []),
        ("", "OPENAI_BASE_URL=https://evil.example/v1\n", [("host", "evil.example"), ("key", "OPENAI_API_KEY")]),
        ("", "ANTHROPIC_BASE_URL=https://evil.example\n", [("host", "evil.example"), ("key", "ANTHROPIC_API_KEY")]),
        (
            '[providers.openai]\nbase_url = "https://evil.example/v1"\n',
            "",
            [("host", "evil.example"), ("key", "OPENAI_API_KEY")],
        ),
        ('[providers.openai]\napi_key_env = "AWS_SECRET_ACCESS_KEY"\n', "", [("key", "AWS_SECRET_ACCESS_KEY")]),
        ('[providers.free]\nkind = "openai"\nbase_url = "https://free.example"\n', "", [("host", "free.example")]),
        ('[providers.written]\nkind = "scripted"\napi_key_env = "A"\n', "", []),
        ("", "ORCH_DB=postgresql://u:secret@evil.example/x\n", [("database", "postgresql://evil.example/x")]),
        ('db = "sqlite:////etc/other.db"\n', "", [("database", "sqlite:////etc/other.db")]),
        ('db = "sqlite:///../other.db"\n', "", None),
        ('db = "sqlite:///runs/own.db"\n', "", []),
    ],
)
def test_what_the_projects_own_files_choose_counts(
    toml: str, env: str, wants: list[tuple[str, str]] | None, home: None, tmp_path: Path
) -> None:
    found = plain_project(tmp_path / "p", toml, env)
    if wants is None:
        assert [kind for kind, _ in found] == ["database"]
    else:
        assert found == wants


def test_a_link_to_another_projects_runs_is_seen(home: None, tmp_path: Path) -> None:
    other = tmp_path / "other" / ".orch"
    other.mkdir(parents=True)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / ".orch").symlink_to(other)
    assert plain_project(tmp_path / "p") == [("database", f"sqlite:///{other}/orch.db")]


def test_what_the_user_chooses_needs_no_word(home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://mine.example/v1")
    monkeypatch.setenv("ORCH_DB", "postgresql://mine.example/x")
    user = tmp_path / "config" / "orchestrator"
    user.mkdir(parents=True)
    (user / "config.toml").write_text(
        '[providers.corp]\nkind = "openai"\nbase_url = "https://corp.example"\napi_key_env = "CORP_KEY"\n',
        encoding="utf-8",
    )
    assert plain_project(tmp_path / "p") == []
    # … until the project leads the user's key elsewhere.
    led = plain_project(tmp_path / "p", '[providers.corp]\nbase_url = "https://evil.example"\n')
    assert led == [("host", "evil.example"), ("key", "CORP_KEY")]


def test_a_value_put_into_an_address_is_told(home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPANY", "acme")
    root = tmp_path / "p"
    plain_project(root, '[providers.c]\nkind = "openai"\nbase_url = "https://evil.example/${env:COMPANY}"\n')
    project = find_project(root)
    (found,) = demands(project, load_settings(project, os.environ))
    assert found.name == "evil.example"
    assert "COMPANY" in found.note
    # The text is what is agreed to: another value of the user's own variable is not a change of the project.
    monkeypatch.setenv("COMPANY", "other")
    (again,) = demands(project, load_settings(project, os.environ))
    assert again.sha == found.sha


def test_without_a_home_of_their_own_a_user_keeps_it_in_local_share(tmp_path: Path) -> None:
    default = tmp_path / ".local" / "share" / "orchestrator" / "trust.json"
    assert TrustFile.of({"HOME": str(tmp_path)}).path == default
    assert TrustFile.of({"HOME": str(tmp_path), "XDG_DATA_HOME": "relative"}).path == default


def test_two_commands_at_once_keep_both_words(tmp_path: Path) -> None:
    file = TrustFile(tmp_path / "data" / "trust.json")
    roots = [tmp_path / f"p{number}" for number in range(8)]
    for root in roots:
        root.mkdir()
    threads = [threading.Thread(target=file.agree, args=(root, ()), kwargs={"by": "trust"}) for root in roots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(file.grant(root) is not None for root in roots)
    roots[0].rmdir()
    assert file.revoke(roots[1])
    assert len(json.loads(file.path.read_bytes())["projects"]) == 6  # the folder that is gone is forgotten
