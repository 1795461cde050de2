"""Settings: which layer wins, what is refused, and what is never shown."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.project import Project, find_project
from orchestrator.settings import (
    MissingVariable,
    Setting,
    Settings,
    load_settings,
    looks_like_key_name,
    shown_url,
    substitute_env,
)

KEY = "sk-canary-0123456789"


class Folder:
    """A project folder whose layers a test fills."""

    def __init__(self, path: Path) -> None:
        self.root = path / "work"
        self.home = path / "home"
        self.root.mkdir()
        self.file("")

    def file(self, text: str) -> None:
        (self.root / "orchestrator.toml").write_text(text)

    def dotenv(self, text: str) -> None:
        (self.root / ".env").write_text(text)

    def user(self, text: str) -> None:
        folder = self.home / ".config" / "orchestrator"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)

    @property
    def project(self) -> Project:
        return find_project(self.root)

    def load(self, db: str | None = None, **environ: str) -> Settings:
        return load_settings(self.project, {"HOME": str(self.home), "LOGNAME": "ana", **environ}, db=db)

    def shown(self, name: str, db: str | None = None, **environ: str) -> Setting:
        return dict(self.load(db, **environ).table())[name]

    def refused(self, **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as raised:
            self.load(**environ)
        assert raised.value.exit_code == 3
        return raised.value


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path.resolve())


# --- the order ---


def test_the_order_of_the_layers_and_their_origins(folder: Folder) -> None:
    assert folder.shown("ORCH_MODEL") == Setting(None, "not set")
    folder.user('model = "openai:user"\n')
    assert folder.shown("ORCH_MODEL").value == "openai:user"
    assert folder.shown("ORCH_MODEL").origin.endswith(".config/orchestrator/config.toml")
    folder.file('model = "openai:file"\n')
    assert folder.shown("ORCH_MODEL") == Setting("openai:file", "orchestrator.toml")
    folder.dotenv("ORCH_MODEL=openai:dotenv\n")
    assert folder.shown("ORCH_MODEL") == Setting("openai:dotenv", ".env")
    assert folder.shown("ORCH_MODEL", ORCH_MODEL="openai:env") == Setting("openai:env", "environment")
    assert folder.shown("ORCH_MODEL", ORCH_MODEL="") == Setting("openai:dotenv", ".env")


def test_an_option_wins_over_everything(folder: Folder) -> None:
    found = folder.shown("ORCH_DB", db="sqlite:////a/b.db", ORCH_DB="sqlite:////c.db")
    assert found == Setting("sqlite:////a/b.db", "option --db")


def test_the_user_file_follows_xdg(folder: Folder, tmp_path: Path) -> None:
    place = tmp_path / "xdg" / "orchestrator"
    place.mkdir(parents=True)
    (place / "config.toml").write_text('user = "bea"\n')
    assert folder.load(XDG_CONFIG_HOME=str(tmp_path / "xdg")).user == "bea"
    assert folder.load(XDG_CONFIG_HOME="xdg").user == "ana"
    assert folder.load(ORCH_USER="cleo").user == "cleo"


def test_dotenv_is_literal_and_never_overrides(folder: Folder) -> None:
    folder.dotenv('# note\nexport A=1\nB="x y"\nC=${A}\nOPENAI_API_KEY=from-dotenv\n')
    settings = folder.load(OPENAI_API_KEY="from-environment")
    assert [settings.get(name) for name in ("A", "B", "C", "OPENAI_API_KEY")] == [
        "1",
        "x y",
        "${A}",
        "from-environment",
    ]
    folder.dotenv("A=1\nthis is no setting\n")
    place = folder.refused().place
    assert place is not None
    assert place.line == 2


def test_models_stand_in_for_each_other(folder: Folder) -> None:
    settings = folder.load(ORCH_MODEL="openai:a")
    assert (settings.model("default"), settings.model("cheap"), settings.model("other")) == (
        "openai:a",
        "openai:a",
        None,
    )
    assert substitute_env("${env:ORCH_MODEL_CHEAP}", settings.env) == "openai:a"
    assert folder.load(ORCH_MODEL="openai:a", ORCH_MODEL_CHEAP="openai:b").model("cheap") == "openai:b"
    assert folder.load().model("default") is None
    folder.file('model = "openai:file"\n')
    assert substitute_env("${env:ORCH_MODEL}", folder.load().env) == "openai:file"


# --- the database ---


def test_the_database_is_in_the_project_by_default(folder: Folder) -> None:
    assert folder.load().db == f"sqlite:///{folder.root}/.orch/orch.db"


def test_relative_database_files(folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    folder.file('db = "sqlite:///data/x.db"\n')
    assert folder.load().db == f"sqlite:///{folder.root}/data/x.db"
    assert folder.load(db="sqlite:///y.db").db == f"sqlite:///{tmp_path}/y.db"
    assert folder.load(ORCH_DB="sqlite:////abs/z.db").db == "sqlite:////abs/z.db"
    assert folder.load(db="postgresql://u:p@h/d").db == "postgresql://u:p@h/d"
    assert "sqlite:///" in (folder.refused(ORCH_DB="runs.db").hint or "")


# --- providers and prices ---


def test_the_known_kinds_need_no_table(folder: Folder) -> None:
    providers = folder.load(OPENAI_BASE_URL="http://localhost:8000/v1").providers
    assert providers["openai"].base_url == "http://localhost:8000/v1"
    assert providers["openai"].api_key_env == "OPENAI_API_KEY"
    assert providers["scripted"].kind == "scripted"


def test_provider_tables_merge_key_by_key(folder: Folder) -> None:
    folder.user('[providers.openai]\nbase_url = "https://user.example/v1"\nchaining = "replay"\n')
    folder.file(
        '[providers.openai]\nbase_url = "https://file.example/v1"\nstore = false\nmay_see = "confidential"\n'
        '[providers.local]\nkind = "openai"\nbase_url = "${env:LOCAL_URL}"\napi_key_env = "LOCAL_KEY"\n'
    )
    settings = folder.load(LOCAL_URL="http://127.0.0.1:9/v1")
    openai, local = settings.providers["openai"], settings.providers["local"]
    assert (openai.base_url, openai.chaining, openai.store, openai.may_see) == (
        *("https://file.example/v1", "replay"),
        *(False, "confidential"),
    )
    assert (local.base_url, local.api_key_env) == ("http://127.0.0.1:9/v1", "LOCAL_KEY")
    shown = dict(settings.table())
    assert shown["providers.openai.chaining"].origin.endswith("config.toml")
    assert shown["providers.openai.store"] == Setting("False", "orchestrator.toml")
    assert folder.load(OPENAI_BASE_URL="http://e/v1", LOCAL_URL="x").providers["openai"].base_url == "http://e/v1"
    assert "LOCAL_URL is not set" in folder.refused().message


def test_prices_are_exact(folder: Folder) -> None:
    folder.file('[prices."gpt-x*"]\ninput = 2.00\noutput = "8.10"\ncached = 0.2\ncontext = 128000\n')
    price = folder.load().prices["gpt-x*"]
    assert (price.input, price.output, price.cached) == (Decimal("2.00"), Decimal("8.10"), Decimal("0.2"))
    assert str(price.input) == "2.00"
    assert (price.cache_write, price.context) == (None, 128000)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[providers.openai]\nbase_ulr = 'x'\n", "unknown key: providers.openai.base_ulr", "Did you mean 'base_url'?"),
        ("pricse = {}\n", "unknown key: pricse", "Did you mean 'prices'?"),
        ("[providers.mine]\nbase_url = 'http://x'\n", "providers.mine does not say what it speaks", 'kind = "openai"'),
        ("[providers.mine]\nkind = 'opnai'\n", "providers.mine.kind must be openai, chat, anthropic,", "'openai'"),
        ("[prices.x]\ninput = -1\noutput = 1\n", "prices.x.input must be at least 0", None),
        ("[prices.x]\ninput = 1\n", "prices.x.output is missing", None),
        ("db = 5\n", "db must be text", None),
    ],
)
def test_mistakes_in_the_project_file(folder: Folder, text: str, message: str, hint: str | None) -> None:
    folder.file(text)
    error = folder.refused()
    assert "orchestrator.toml" in error.message or "orchestrator.toml" in str(error.place)
    assert message in error.message
    assert hint is None or hint in (error.hint or "")


def test_a_mistake_has_its_line_and_extras_are_allowed(folder: Folder) -> None:
    folder.file("x-mine = 1\n\n[providers.openai]\nbase_ulr = 'x'\n")
    place = folder.refused().place
    assert place is not None
    assert (Path(place.file).name, place.line) == ("orchestrator.toml", 4)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ('kind = "chats"', 7),  # and not where another table has the key
        ('kind = "chat"\nchaining = "on"', 8),
        ('base_ulr = "x"', 7),
        ('[prices."m-*"]\ninput = 1', 7),  # what is missing is missing in its table
    ],
)
def test_the_line_is_that_of_the_table_with_the_fault(folder: Folder, fault: str, line: int) -> None:
    first = '[providers.one]\nkind = "chat"\nchaining = "replay"\nbase_url = "http://a/v1"\n'
    folder.file(f"{first}\n{'# prices' if fault.startswith('[') else '[providers.two] # the second'}\n{fault}\n")
    place = folder.refused().place
    assert place is not None
    assert place.line == line


def test_pyproject_names_the_whole_table(folder: Folder) -> None:
    (folder.root / "orchestrator.toml").unlink()
    (folder.root / "pyproject.toml").write_text("[tool.orchestrator]\nmodle = 'x'\n")
    assert "tool.orchestrator.modle" in folder.refused().message


# --- secrets ---


def test_S29_keys_in_files_are_refused_and_not_repeated(folder: Folder) -> None:
    folder.file(f'[providers.openai]\napi_key = "{KEY}"\n')
    error = folder.refused()
    assert error.hint == "Keys do not belong into files; name the environment variable in api_key_env."
    folder.file(f'[providers.openai]\napi_key_env = "{KEY}"\n')
    other = folder.refused()
    assert "not the name of an environment variable" in other.message
    assert KEY not in f"{error} {error.hint} {other} {other.hint}"


def test_S29_secrets_are_shown_as_set_or_not_set(folder: Folder) -> None:
    folder.file(
        '[providers.local]\nkind = "openai"\napi_key_env = "LOCAL_KEY"\nbase_url = "https://u:hunter22@h/v1?k=1"\n'
    )
    settings = folder.load(OPENAI_API_KEY=KEY, LOCAL_KEY="local-secret", db="postgresql://u:p%40ssword@h/d")
    assert dict(settings.table())["OPENAI_API_KEY"] == Setting("set", "environment", secret=True)
    assert dict(settings.table())["ANTHROPIC_API_KEY"] == Setting(None, "not set", secret=True)
    assert set(settings.secret_values()) == {KEY, "local-secret", "hunter22", "p%40ssword", "p@ssword"}
    shown = repr(settings.table())
    assert not any(secret in shown for secret in settings.secret_values())


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("http://u:p@ssw0rd!@h/v1", {"p@ssw0rd!", "p%40ssw0rd%21"}),
        ("https://tok3n-abcdef@h/", {"tok3n-abcdef"}),
        ("https://h/v1?api-version=2026-01-01&api_key=abc%2Fdefg#x", {"abc%2Fdefg", "abc/defg"}),
        ("https://h/v1?X-Signature=0123456789&region=somewhere", {"0123456789"}),
        ("https://some-user:hunter22@h:80", {"hunter22"}),
        ("https://a-long-host-name/and/a:long@path", set()),
    ],
)
def test_S29_what_a_url_keeps_secret(folder: Folder, url: str, secrets: set[str]) -> None:
    folder.file(f'[providers.local]\nkind = "openai"\nbase_url = "{url}"\n')
    assert set(folder.load().secret_values()) == secrets


def test_S29_a_database_keeps_its_password_secret_and_not_the_name_of_its_role(folder: Folder) -> None:
    assert folder.load(ORCH_DB="postgresql://postgres@h/postgres").secret_values() == ()
    assert folder.load(ORCH_DB="postgresql://postgres:hunter22@h/postgres").secret_values() == ("hunter22",)


def test_short_values_are_not_scrubbed(folder: Folder) -> None:
    assert folder.load(OPENAI_API_KEY="none").secret_values() == ()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pass@api.example:8443/v1?key=x#y", "https://api.example:8443/v1"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1"),
        ("https://h/a@b", "https://h/a@b"),
        ("https://h:port/x", "https://…"),
        ("postgresql://u:p#x/y@h:5432/db?sslmode=require", "postgresql://h:5432/db"),
        ("postgresql+psycopg://u@h/db", "postgresql+psycopg://h/db"),
        ("sqlite:////a/b.db?mode=ro", "sqlite:////a/b.db"),
    ],
)
def test_S29_urls_are_shown_without_userinfo_and_query(url: str, shown: str) -> None:
    assert shown_url(url) == shown


# --- ${env:…} ---


def test_substitution() -> None:
    env = {"ORCH_MODEL": "openai:x", "HOST": "h", "EMPTY": ""}
    assert substitute_env("http://${env:HOST}/${env:HOST}", env) == "http://h/h"
    assert substitute_env("plain $HOST ${HOST}", env) == "plain $HOST ${HOST}"
    for name in ("EMPTY", "UNSET"):
        with pytest.raises(MissingVariable) as raised:
            substitute_env(f"${{env:{name}}}", env)
        assert raised.value.name == name
        assert name in (raised.value.hint or "")
    with pytest.raises(ConfigError, match="does not name a variable"):
        substitute_env("${env:no-name}", env)


def test_what_is_substituted_is_not_substituted_again() -> None:
    assert substitute_env("${env:A}", {"A": "${env:B}", "B": "x"}) == "${env:B}"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MYKEY"])
def test_S24_env_never_gives_a_key(name: str) -> None:
    with pytest.raises(ConfigError, match="would put a key"):
        substitute_env(f"${{env:{name}}}", {name: KEY}, keys=["MYKEY"])


def test_ordinary_names_are_not_taken_for_keys() -> None:
    assert not any(looks_like_key_name(name) for name in ("ORCH_MODEL", "KEYBOARD", "MONKEY", "TOKENIZER", "HOST"))


def test_S24_a_base_url_cannot_carry_the_key_of_its_provider(folder: Folder) -> None:
    folder.file('[providers.p]\nkind = "openai"\napi_key_env = "MINE"\nbase_url = "http://x/${env:MINE}"\n')
    assert "would put a key" in folder.refused(MINE=KEY).message
