"""Settings: from where each value comes, and what never leaves.

Highest first: option, process environment, `.env` of the project (it never overrides the environment), project file,
user file (`~/.config/orchestrator/config.toml`), default. Every value keeps its origin, so that `orch doctor` can say
which of six places to change. Keys live in the environment only; a file names the variable that holds one, and they
are shown as set or not set (S29). `${env:NAME}` works in a model's `use` and a provider's `base_url`, and never for a
key: a cloned project must not be able to send one anywhere (S24).
"""

from __future__ import annotations

import getpass
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pydantic import Field, ValidationError

from orchestrator.errors import ConfigError, Place
from orchestrator.faults import explain_fault, nearest
from orchestrator.project import Project, read_toml
from orchestrator.spec import LimitSpec, McpSpec, PriceSpec, ProjectBudgetSpec, ProviderSpec, Strict

__all__ = [
    "MissingVariable",
    "Setting",
    "Settings",
    "load_settings",
    "looks_like_key_name",
    "shown_url",
    "substitute_env",
]

KNOWN_KINDS: Final[Mapping[str, str]] = {kind: kind for kind in ("openai", "anthropic", "scripted", "replayed")}
KEY_VARIABLES: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
# Of the providers that need no table: the variables of their address and of their key.
_VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
}
_NAMED: Final = (("ORCH_MODEL", "model"), ("ORCH_MODEL_CHEAP", "model_cheap"), ("ORCH_DB", "db"), ("ORCH_USER", "user"))
_ALIASES: Final[Mapping[str, str]] = {"default": "ORCH_MODEL", "cheap": "ORCH_MODEL_CHEAP"}
_ENV = re.compile(r"\$\{env:([^}]*)\}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_SECRET_WORD = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIALS?)(_|$)")
_DATABASE_USER = re.compile(r"^(?P<scheme>[^:]+://)[^:/@]*(:[^@]*)?@")
_SHORTEST_SECRET = 6  # shorter values are no keys, and removing them from texts would garble those


class FileConfig(Strict):
    """The keys of `[tool.orchestrator]`, `orchestrator.toml` and the user file."""

    providers: dict[str, ProviderSpec] = Field(default_factory=dict)
    prices: dict[str, PriceSpec] = Field(default_factory=dict)
    limits: dict[str, LimitSpec] = Field(default_factory=dict)
    budget: ProjectBudgetSpec = ProjectBudgetSpec()
    mcp: dict[str, McpSpec] = Field(default_factory=dict)
    db: str | None = None
    user: str | None = None
    model: str | None = None
    model_cheap: str | None = None


class MissingVariable(ConfigError):
    """A `${env:NAME}` names a variable that is not set. `name` is the variable."""

    def __init__(self, name: str) -> None:
        example = ": for example openai:NAME, or scripted:DIR for written answers" if name.startswith("ORCH_") else ""
        super().__init__(f"{name} is not set", hint=f"Set {name} in the environment or in .env{example}.")
        self.name = name


@dataclass(frozen=True, slots=True)
class Setting:
    """One value as `orch doctor` shows it. A secret's value is only the word `set`, or None."""

    value: str | None
    origin: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one invocation. `env` is the environment over `.env`, with `ORCH_MODEL*` filled in from files."""

    env: Mapping[str, str]
    providers: Mapping[str, ProviderSpec]
    prices: Mapping[str, PriceSpec]
    db: str
    user: str
    shown: tuple[tuple[str, Setting], ...] = ()
    limits: Mapping[str, LimitSpec] = field(default_factory=dict)
    budget: ProjectBudgetSpec = field(default_factory=ProjectBudgetSpec)
    mcp: Mapping[str, McpSpec] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        """A variable of the environment or `.env`; empty counts as not set."""
        return self.env.get(name) or None

    def model(self, alias: str) -> str | None:
        """The `provider:model` of an alias where a pipeline declares no models: `default` and `cheap` only."""
        variable = _ALIASES.get(alias)
        return self.get(variable) if variable else None

    def secret_values(self) -> tuple[str, ...]:
        """Every configured secret by value, for scrubbing: keys, and what URLs hold of passwords and tokens."""
        names = {*KEY_VARIABLES, *(spec.api_key_env for spec in self.providers.values() if spec.api_key_env)}
        for server in self.mcp.values():
            names.update(filter(looks_like_key_name, server.env))
            names.update({server.token_env} if server.token_env else ())
        values = {self.env.get(name, "") for name in names}
        for url in (self.db, *(spec.base_url or "" for spec in self.providers.values())):
            values.update(url_secrets(url))
        return tuple(sorted((v for v in values if len(v) >= _SHORTEST_SECRET), key=lambda v: (-len(v), v)))

    def table(self) -> tuple[tuple[str, Setting], ...]:
        """Each setting with its origin, in a fixed order."""
        return self.shown


def is_on(value: str | None) -> bool:
    """Whether a switch that is a variable is set to yes."""
    return (value or "").strip().lower() in ("1", "true", "yes", "on")


def load_settings(project: Project | None, environ: Mapping[str, str], *, db: str | None = None) -> Settings:
    """Reads every layer. Raises ConfigError naming file and key; `db` is the value of `--db`."""
    layers = _Layers(project, environ)
    shown: list[tuple[str, Setting]] = []
    values: dict[str, str] = {}
    for variable, key in _NAMED:
        setting = _option(db) if variable == "ORCH_DB" and db else layers.find(variable, key)
        setting = setting or _fallback(variable, project, environ, values)
        values[variable] = setting.value or ""
        if variable == "ORCH_DB":
            values[variable] = _database(setting, project)
            setting = Setting(shown_url(values[variable]), setting.origin)
        shown.append((variable, setting))
    env = {**layers.env, **{name: values[name] for name in ("ORCH_MODEL", "ORCH_MODEL_CHEAP") if values[name]}}
    providers = layers.providers(env, shown)
    for name in sorted({*KEY_VARIABLES, *(spec.api_key_env for spec in providers.values() if spec.api_key_env)}):
        shown.append((name, layers.secret(name)))
    prices = layers.prices(shown)
    limits, budget, mcp = layers.limits(shown), layers.budget(shown), layers.mcp(shown)
    return Settings(env, providers, prices, values["ORCH_DB"], values["ORCH_USER"], tuple(shown), limits, budget, mcp)


class _Layers:
    """The places a setting can come from, read once."""

    def __init__(self, project: Project | None, environ: Mapping[str, str]) -> None:
        self.process = environ
        self.dotenv = _dotenv(project.root / ".env") if project else {}
        self.env = {**self.dotenv, **environ}
        self.files: list[tuple[str, FileConfig]] = []
        if project:
            table = "tool.orchestrator" if project.file.name == "pyproject.toml" else ""
            name = project.display(project.file)
            self.files.append((name, _file_config(project.config, project.file, name, table)))
        user = _user_file(environ)
        if user is not None:
            self.files.append((str(user), _file_config(read_toml(user), user, str(user), "")))

    def find(self, variable: str, key: str | None) -> Setting | None:
        for origin, env in (("environment", self.process), (".env", self.dotenv)):
            if env.get(variable):
                return Setting(env[variable], origin)
        for origin, config in self.files:
            value = getattr(config, key) if key else None
            if value:
                return Setting(value, origin)
        return None

    def secret(self, variable: str) -> Setting:
        found = self.find(variable, None)
        return Setting("set" if found else None, found.origin if found else "not set", secret=True)

    def providers(self, env: Mapping[str, str], shown: list[tuple[str, Setting]]) -> dict[str, ProviderSpec]:
        """The declared providers, key by key over the files, and the known kinds, which need no table."""
        result: dict[str, ProviderSpec] = {}
        declared = [name for _, config in self.files for name in config.providers]
        for name in dict.fromkeys([*KNOWN_KINDS, *declared]):
            merged: dict[str, Any] = {"kind": KNOWN_KINDS.get(name)}
            origins = {}
            for origin, config in reversed(self.files):
                spec = config.providers.get(name)
                given = {key: getattr(spec, key) for key in spec.model_fields_set} if spec else {}
                merged.update(given)
                origins.update(dict.fromkeys(given, origin))
            address, key = _VARIABLES.get(name, ("", ""))
            url = self.find(address, None) if address else None
            if url:
                merged["base_url"], origins["base_url"] = url.value, url.origin
            if key:
                merged.setdefault("api_key_env", key)
            result[name] = _complete(name, merged, origins, env)
            for key, origin in origins.items():
                value = getattr(result[name], key)
                text = shown_url(value) if key == "base_url" else str(value)
                shown.append((f"providers.{name}.{key}", Setting(text, origin)))
        return result

    def prices(self, shown: list[tuple[str, Setting]]) -> dict[str, PriceSpec]:
        found = {
            glob: (spec, origin) for origin, config in reversed(self.files) for glob, spec in config.prices.items()
        }
        for glob, (spec, origin) in found.items():
            said = ", ".join(f"{key} {value}" for key, value in spec.model_dump(exclude_none=True).items())
            shown.append((f'prices."{glob}"', Setting(said, origin)))
        return {glob: spec for glob, (spec, _) in found.items()}

    def limits(self, shown: list[tuple[str, Setting]]) -> dict[str, LimitSpec]:
        found = {
            glob: (spec, origin) for origin, config in reversed(self.files) for glob, spec in config.limits.items()
        }
        for glob, (spec, origin) in found.items():
            said = ", ".join(f"{key} {value}" for key, value in spec.model_dump(exclude_none=True).items())
            shown.append((f'limits."{glob}"', Setting(said or None, origin)))
        return {glob: spec for glob, (spec, _) in found.items()}

    def budget(self, shown: list[tuple[str, Setting]]) -> ProjectBudgetSpec:
        """Of each cap the lowest: a project may spend less than its user allows, and not more."""
        caps: dict[str, Decimal] = {}
        for name in ProjectBudgetSpec.model_fields:
            said = [(getattr(config.budget, name), origin) for origin, config in self.files]
            known = [(cap, origin) for cap, origin in said if cap is not None]
            if known:
                caps[name], origin = min(known)
                shown.append((f"budget.{name}", Setting(str(caps[name]), origin)))
        return ProjectBudgetSpec(**caps)

    def mcp(self, shown: list[tuple[str, Setting]]) -> dict[str, McpSpec]:
        """The servers of tools; one that two files declare is the nearer file's, as a whole."""
        found = {name: (spec, origin) for origin, config in reversed(self.files) for name, spec in config.mcp.items()}
        for name, (spec, origin) in found.items():
            _check_mcp(name, spec, origin)
            said = shown_url(spec.url) if spec.url else " ".join(spec.command or ())
            shown.append((f"mcp.{name}", Setting(said, origin)))
        return {name: spec for name, (spec, _) in found.items()}


def _check_mcp(name: str, spec: McpSpec, origin: str) -> None:
    """Raises ConfigError for a server that cannot be one."""
    where = f"mcp.{name} ({origin})"
    if not _PROVIDER.fullmatch(name):
        raise ConfigError(f"{where} has no name of a server", hint="A name is letters, digits, '.', '_' and '-'.")
    if (spec.command is None) == (spec.url is None):
        raise ConfigError(
            f"{where} needs either 'command' or 'url'",
            hint='Write command = ["python", "server.py"], which is started, or url = "https://host/mcp".',
        )
    if spec.url is not None and (_split(spec.url) is None or not spec.url.startswith(("http://", "https://"))):
        raise ConfigError(f"{where}: 'url' is no http address", hint="Write it with scheme and host: https://host/mcp")
    if spec.url is not None and spec.env:
        raise ConfigError(f"{where}: 'env' is for a server that is started", hint="A key is named in 'token_env'.")
    if spec.command is not None and spec.token_env:
        raise ConfigError(f"{where}: 'token_env' is for a server at a url", hint="Name the variable in 'env'.")
    for variable in (*spec.env, *([spec.token_env] if spec.token_env else [])):
        if not _VARIABLE.fullmatch(variable):  # the value is not repeated: it may be the key itself
            raise ConfigError(
                f"{where} names what is no environment variable", hint="Write a name in capitals, such as FILES_TOKEN."
            )
    for tool in (*spec.idempotent, *(spec.approval if spec.approval != "all" else ())):
        if tool not in spec.allow:
            raise ConfigError(f"{where}: {tool} is not in 'allow'", hint=f"allowed: {', '.join(spec.allow)}")


def _complete(name: str, merged: dict[str, Any], origins: Mapping[str, str], env: Mapping[str, str]) -> ProviderSpec:
    if merged.get("kind") is None:
        raise ConfigError(
            f"providers.{name} does not say what it speaks: 'kind' is missing ({_origin(origins)})",
            hint='Write kind = "openai" for a server with the Responses API, "chat" for one that speaks chat '
            'completions only, "anthropic" for the Messages API.',
        )
    if merged.get("base_url"):
        keys = [merged.get("api_key_env") or ""]
        try:
            merged["base_url"] = substitute_env(merged["base_url"], env, keys=keys)
        except ConfigError as error:
            where = origins.get("base_url", "")
            raise ConfigError(f"providers.{name}.base_url ({where}): {error.message}", hint=error.hint) from error
    return ProviderSpec.model_validate(merged)


def _origin(origins: Mapping[str, str]) -> str:
    return next(iter(origins.values()), "default")


def _fallback(variable: str, project: Project | None, environ: Mapping[str, str], values: Mapping[str, str]) -> Setting:
    if variable == "ORCH_MODEL_CHEAP" and values["ORCH_MODEL"]:
        return Setting(values["ORCH_MODEL"], "ORCH_MODEL")
    if variable == "ORCH_DB":
        root = project.root if project else Path.cwd()
        return Setting(f"sqlite:///{root / '.orch' / 'orch.db'}", "default")
    if variable == "ORCH_USER":
        return Setting(environ.get("LOGNAME") or environ.get("USER") or _account(), "account")
    return Setting(None, "not set")


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in the password file
        return "unknown"


def _option(db: str | None) -> Setting:
    return Setting(db, "option --db")


def _database(setting: Setting, project: Project | None) -> str:
    """The database's URL, a relative SQLite file made absolute: from here if typed here, else from the project."""
    url = setting.value or ""
    if not re.match(r"[a-z][a-z0-9+]*://", url):
        raise ConfigError(
            f"The database must be a URL, not {shown_url(url)!r} ({setting.origin})",
            hint="For a file: sqlite:///path/to/orch.db; on a server: postgresql://user@host/name",
        )
    match = re.fullmatch(r"(sqlite(?:\+\w+)?:///)([^/?:][^?]*)(\?.*)?", url)
    if match is None:
        return url
    typed = setting.origin in ("environment", "option --db") or project is None
    folder = Path.cwd() if typed or project is None else project.root
    return f"{match[1]}{folder / match[2]}{match[3] or ''}"


def _user_file(environ: Mapping[str, str]) -> Path | None:
    configured, home = environ.get("XDG_CONFIG_HOME", ""), environ.get("HOME", "")
    # A relative XDG_CONFIG_HOME is to be ignored, says its specification.
    base = configured if Path(configured).is_absolute() else str(Path(home) / ".config") if home else ""
    path = Path(base) / "orchestrator" / "config.toml" if base else None
    return path if path is not None and path.is_file() else None


def _dotenv(path: Path) -> dict[str, str]:
    """The variables of a `.env`, taken literally: no interpolation, and a line that says nothing is an error."""
    from dotenv.parser import parse_stream

    if not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="Check the file's permissions.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", hint="Save it as UTF-8.", place=Place(str(path))) from error
    values: dict[str, str] = {}
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            place = Place(str(path), binding.original.line)
            raise ConfigError(f"{place} is not a setting", hint="Write NAME=value, one a line.", place=place)
        if binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
    return values


def _file_config(data: Mapping[str, Any], path: Path, shown: str, table: str) -> FileConfig:
    data = {key: value for key, value in data.items() if not key.startswith("x-")}
    _refuse_keys(data, path, shown)
    try:
        return FileConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=True)[0]
        loc = [str(part) for part in first["loc"]]
        dotted = ".".join([*([table] if table else []), *loc])
        place = _toml_place(path, loc)
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{shown} has an unknown key: {dotted}", hint=_key_hint(loc), place=place) from error
        fault = explain_fault(first)
        raise ConfigError(f"{shown}: {dotted} {fault.text}", hint=fault.hint, place=place) from error


def _refuse_keys(data: Mapping[str, Any], path: Path, shown: str) -> None:
    providers = data.get("providers")
    for name, table in providers.items() if isinstance(providers, dict) else ():
        if not _PROVIDER.fullmatch(name):
            raise ConfigError(
                f"{shown}: {name!r} is no name of a provider",
                hint="A name is letters, digits, '.', '_' and '-': a model is written provider:model.",
            )
        if not isinstance(table, dict):
            continue
        if "api_key" in table:
            raise ConfigError(
                f"{shown} holds a key: providers.{name}.api_key",
                hint="Keys do not belong into files; name the environment variable in api_key_env.",
                place=_toml_place(path, ["providers", name, "api_key"]),
            )
        variable = table.get("api_key_env")
        if isinstance(variable, str) and not _VARIABLE.fullmatch(variable):
            # The value is not repeated: it may be the key itself.
            raise ConfigError(
                f"{shown}: providers.{name}.api_key_env is not the name of an environment variable",
                hint="Write a name in capitals, such as OPENAI_API_KEY, and set the key in the environment.",
                place=_toml_place(path, ["providers", name, "api_key_env"]),
            )


def _key_hint(loc: Sequence[str]) -> str:
    tables: dict[str, type[Strict]] = {
        "providers": ProviderSpec,
        "prices": PriceSpec,
        "limits": LimitSpec,
        "budget": ProjectBudgetSpec,
        "mcp": McpSpec,
    }
    model = tables.get(loc[0], FileConfig) if len(loc) > 1 else FileConfig
    return nearest(loc[-1], list(model.model_fields))


def _toml_place(path: Path, loc: Sequence[str]) -> Place:
    """The line that sets a key, below the header of its table; where it is written in another way the header, else the
    first line that sets a key of this name."""
    key = re.compile(rf"^\s*[\"']?{re.escape(loc[-1])}[\"']?\s*=")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    table: list[str] = []
    header = named = 0
    for number, line in enumerate(lines, 1):
        table = _header(line) or table
        if key.match(line):
            if table == [*loc[:-1]]:
                return Place(str(path), number)
            named = named or number
        elif _header(line) is not None and (table == [*loc] or (table == [*loc[:-1]] and not header)):
            header = number
    return Place(str(path), header or named)


def _header(line: str) -> list[str] | None:
    """The names in the header of a table, without what stands ahead of ours in a pyproject.toml."""
    if not re.match(r"\s*\[(?!\[)", line):
        return None
    try:
        found: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    names = []
    while found:
        ((name, found),) = found.items()
        names.append(name)
    return names[2:] if names[:2] == ["tool", "orchestrator"] else names


# --- ${env:NAME} ------------------------------------------------------------------------------------------------------


def looks_like_key_name(name: str) -> bool:
    """Whether a variable's name says that it holds a secret: API_KEY, TOKEN, PASSWORD and the like."""
    return bool(_SECRET_WORD.search(name.upper()))


def substitute_env(text: str, env: Mapping[str, str], *, keys: Sequence[str] = ()) -> str:
    """`${env:NAME}` replaced. Raises MissingVariable (empty counts), ConfigError for a name that holds a key."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(f"{match[0]} does not name a variable", hint="Write ${env:NAME}, the name in capitals.")
        if looks_like_key_name(name) or name in keys:
            raise ConfigError(
                f"{match[0]} would put a key into a text that is sent or shown",
                hint="Name the variable of a key in api_key_env of the provider, and nowhere else.",
            )
        if not env.get(name):
            raise MissingVariable(name)
        return env[name]

    return _ENV.sub(value, text)


# --- URLs -------------------------------------------------------------------------------------------------------------


def shown_url(url: str) -> str:
    """A URL as it may be shown: without user, password, query and fragment (S29)."""
    if not url.startswith(("http://", "https://")):
        # Database URLs: SQLAlchemy lets a password hold any character but @.
        return re.split(r"[?#]", _DATABASE_USER.sub(r"\g<scheme>", url))[0]
    parts = _split(url)
    if parts is None:
        return url.split("://")[0] + "://…"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where the port is not a number
    except ValueError:
        return None
    return parts


def url_secrets(url: str) -> Iterator[str]:
    """What a URL keeps secret: its password, and what its query calls a key. On the web a user without a password is a
    token; a database's is the name of a role, often `postgres`, and texts would be unreadable without that word."""
    match = re.match(r"(https?)?[^:/?#]*://(?:([^/?#]*)@)?[^?#]*\??([^#]*)", url)
    if match is None:
        return
    user, _, password = (match[2] or "").partition(":")
    named = [part.partition("=") for part in match[3].split("&")]
    token = user if match[1] else ""
    for value in (password or token, *(value for name, _, value in named if _SECRET_NAME.search(name))):
        yield from {value, unquote(value), quote(unquote(value), safe="")}


_PROVIDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET_NAME: Final = re.compile(r"key|token|secret|passw|sig|auth", re.IGNORECASE)
