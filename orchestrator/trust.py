"""Trust: what a project would execute and contact, asked once, before any of it happens (S24).

A cloned project is somebody else's code. Loading its pipeline executes the Python files it names, and running it sends
what the user types to hosts of its choosing, with keys out of the user's environment. So three things are looked up
without executing anything, and need the user's word: the Python files that pipelines and contracts name, with what
these import from the project; the hosts and the database that the project's own files (`.env` included) choose; and
the environment variables that the project has sent to a host as keys. So do the MCP servers that its project file
starts or contacts.

The word is kept for each user in `trust.json`, by project folder and by hash: of a file's text, of an address, of a
variable together with where it goes. What changes is asked about again, and only that. What the user's own environment
or user file chooses needs no word, nor does what ships with this package: whoever could change that could change the
package. Templates and YAML execute nothing. A key that stands in `.env` for a host the user chose is taken as the
user's own; which files trusted code opens is that code's affair.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError
from orchestrator.files import replace_file
from orchestrator.ids import digest, sha256
from orchestrator.project import SHELVES, OutsideProject, Project, library_root

if TYPE_CHECKING:
    from orchestrator.settings import Settings
    from orchestrator.spec import StepSpec

SCHEMA: Final = "orch.trust-file/1"
Kind = Literal["code", "host", "key", "database", "mcp"]
_VARIABLE: Final = re.compile(r"\$\{env:([^}]*)\}")
_QUOTED: Final = re.compile(r"""["']([^"'\n]+\.py:\w+)["']""")


@dataclass(frozen=True, slots=True)
class Demand:
    """One thing a project wants: `name` as people read it, `note` says more, `sha` stands for what is behind the name.

    `path` is the real file of code, else None.
    """

    kind: Kind
    name: str
    note: str
    sha: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a project stands with its user. `missing` are the demands without a word; `why` says why there is none
    (`shipped`, `nothing`, `granted`, `always`), and is None where some are missing. `before`: it was trusted once."""

    demands: tuple[Demand, ...]
    missing: tuple[Demand, ...]
    why: Literal["shipped", "nothing", "granted", "always"] | None
    before: bool = False

    @property
    def executable(self) -> frozenset[Path]:
        """The Python files that were looked at, for `Project.executable`."""
        return frozenset(demand.path for demand in self.demands if demand.path is not None)


def standing(project: Project, settings: Settings, trust: TrustFile) -> Standing:
    """What the project demands, and what of it the user has not agreed to. Executes and contacts nothing."""
    found = tuple(demands(project, settings))
    if _shipped(project):
        return Standing(found, (), "shipped")
    if not found:
        return Standing(found, (), "nothing")
    grant = trust.grant(project.root)
    if grant is None:
        return Standing(found, found, None)
    if grant.always:
        return Standing(found, (), "always", before=True)
    missing = tuple(demand for demand in found if (demand.kind, demand.sha) not in grant.agreed)
    return Standing(found, missing, None if missing else "granted", before=True)


def _shipped(project: Project) -> bool:
    return project.root.is_relative_to(library_root() / "examples")


# --- what a project demands -------------------------------------------------------------------------------------------


def demands(project: Project, settings: Settings) -> Iterator[Demand]:
    """Code, hosts, keys, servers of tools and database that the project's own files ask for, each once."""
    yield from _code(project)
    yield from dict.fromkeys(_endpoints(project, settings))
    yield from _servers(project, settings)
    yield from _database(project, settings)


def code_demand(project: Project, path: Path) -> Demand:
    """The demand of one Python file of the project."""
    name = project.display(path)
    try:
        body = path.read_bytes()
    except OSError:
        body = b""  # what cannot be read is not executed either
    return Demand("code", name, "", digest([name, sha256(body)]), path)


def _code(project: Project) -> Iterator[Demand]:
    """Every Python file that loading the project's pipelines would execute, sorted by name."""
    from orchestrator.python.references import code_files, find_code

    found = [find_code(project, ref, base, shelf) for base, ref, shelf in _references(project)]
    python = [path for path in project.pipelines() if path.suffix == ".py"]
    python += [path for path in sorted((project.root / "artifacts").rglob("*.py")) if _declares(path)]
    named: set[Path] = set()
    for path in filter(None, [*python, *found]):
        named.add(path)
        with suppress(OSError):
            named.update(code_files(path))
    shelves = tuple(library_root() / kind for kind in SHELVES)
    own = [path for path in named if not any(path.is_relative_to(shelf) for shelf in shelves)]
    yield from sorted((code_demand(project, path) for path in own), key=lambda demand: demand.name)


def _declares(path: Path) -> bool:
    """Whether a Python file of the shelf may be executed for a contract that it declares."""
    with suppress(OSError):
        return b"@artifact" in path.read_bytes()
    return False


def _references(project: Project) -> Iterator[tuple[Path, str, Literal["steps", "artifacts"]]]:
    """Each reference to Python in pipelines, their step definitions and contracts: its file, itself, its shelf."""
    from orchestrator.loading import load_contract, load_pipeline

    shelf = project.root / "artifacts"
    contracts = set(shelf.rglob("*.yaml"))
    for path in project.pipelines():
        if path.suffix == ".py":
            yield from _mentioned(project, path)
            continue
        loaded = load_pipeline(project, path)
        if loaded.spec is None:
            continue
        for name, step in loaded.spec.steps.items():
            for key, ref in _step_references(step):
                yield loaded.base(name, key), ref, "steps"
        for contract in loaded.spec.artifacts.values():
            if isinstance(contract.schema_, str):
                yield path, contract.schema_, "artifacts"
        types = [spec.type for spec in loaded.spec.inputs.values()]
        for name in [*types, *(step.produces or name for name, step in loaded.spec.steps.items())]:
            with suppress(OutsideProject):
                contracts.update(filter(None, [project.shelf("artifacts", name)]))
    for path in sorted(path for path in contracts if path.suffix != ".py"):
        loaded_contract, _, _ = load_contract(project, path)
        if loaded_contract is not None and isinstance(loaded_contract.schema_, str):
            yield path, loaded_contract.schema_, "artifacts"


def _mentioned(project: Project, pipeline: Path) -> Iterator[tuple[Path, str, Literal["steps"]]]:
    """Whatever looks like a reference in a Python pipeline, which only executing it could tell for sure, and in the
    step definitions that it may use."""
    from orchestrator.yaml_nodes import read_yaml

    with suppress(OSError):
        text = pipeline.read_bytes().decode("utf-8", errors="replace")
        yield from ((pipeline, ref, "steps") for ref in _QUOTED.findall(text))
    for path in sorted((project.root / "steps").rglob("*.yaml")):
        with suppress(OSError):
            yield from ((path, text, "steps") for text in _texts(read_yaml(path.read_bytes(), path.name).data))


def _texts(data: object) -> Iterator[str]:
    if isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _texts(value)
    elif isinstance(data, str) and ".py:" in data:
        yield data


def _step_references(step: StepSpec) -> Iterator[tuple[str, str]]:
    if step.python is not None:
        yield "python", step.python
    yield from (("tools", use.tool) for use in step.tools)
    yield from (("checks", check.python) for check in step.checks if check.python is not None)


def _endpoints(project: Project, settings: Settings) -> Iterator[Demand]:
    """The hosts that the project's files choose, and the keys they have sent to a host."""
    from orchestrator.providers.registry import Providers

    origins = {name: setting.origin for name, setting in settings.table()}
    own = {project.display(project.file), ".env"}
    for name, spec in settings.providers.items():
        if not spec.sends:
            continue
        its_url = origins.get(f"providers.{name}.base_url") in own
        its_key = origins.get(f"providers.{name}.api_key_env") in own
        address = _written_url(project, name, origins) or spec.base_url or ""
        host = _host(spec.base_url) if spec.base_url else ", ".join(Providers(project, settings).hosts([name]))
        if its_url:
            put = ", ".join(_VARIABLE.findall(address))
            note = f"provider {name}" + (f"; its address holds the value of {put}" if put else "")
            yield Demand("host", host, note, digest([address]))
        if spec.api_key_env and (its_url or its_key):
            yield Demand("key", spec.api_key_env, f"sent to {host}", digest([spec.api_key_env, address]))


def _servers(project: Project, settings: Settings) -> Iterator[Demand]:
    """The MCP servers that the project's files start or contact, what they may do, and the variables they are given.

    A server that is a file of the project is looked at like its other code.
    """
    origins = {name: setting.origin for name, setting in settings.table()}
    for name, spec in settings.mcp.items():
        if origins.get(f"mcp.{name}") != project.display(project.file):
            continue
        allowed = f"tools: {', '.join(spec.allow)}"
        if spec.url is not None:
            yield Demand("host", _host(spec.url), f"MCP server {name}; {allowed}", digest([spec.url, list(spec.allow)]))
        else:
            files = [_file_sha(project, part) for part in spec.command or ()]
            sha = digest([list(spec.command or ()), list(spec.allow), files])
            yield Demand("mcp", " ".join(spec.command or ()), f"MCP server {name}; {allowed}", sha)
        for variable in (*spec.env, *([spec.token_env] if spec.token_env else [])):
            to = _host(spec.url) if spec.url is not None else f"MCP server {name}"
            yield Demand("key", variable, f"given to {to}", digest([variable, spec.url, list(spec.command or ())]))


def _file_sha(project: Project, part: str) -> str | None:
    """The hash of a file of the project that a command names; None where it names none."""
    path = project.root / part
    with suppress(OSError, ValueError):
        if path.is_file() and project.holds(path):
            return sha256(path.read_bytes())
    return None


def _written_url(project: Project, name: str, origins: Mapping[str, str]) -> str | None:
    """A base_url as the project file has it, `${env:…}` included: what is agreed to is the text, not its value."""
    if origins.get(f"providers.{name}.base_url") != project.display(project.file):
        return None
    written = project.config["providers"][name]["base_url"]
    return written if isinstance(written, str) else None


def _host(url: str) -> str:
    """`host` or `host:port`; plain http, which anyone on the way can read, is said."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "an address that cannot be read"
    return f"{'http://' if parts.scheme == 'http' else ''}{f'[{host}]' if ':' in host else host}{port}"


def _database(project: Project, settings: Settings) -> Iterator[Demand]:
    """A database that the project's files choose, by name or by a link, unless it is a file inside the project."""
    from orchestrator.settings import shown_url

    origin = dict(settings.table())["ORCH_DB"].origin
    if origin not in (project.display(project.file), ".env", "default"):
        return
    note = f"set in {origin}" if origin != "default" else "a link leads there"
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(\?.*)?", settings.db)
    if match is None:
        yield Demand("database", shown_url(settings.db), note, digest([settings.db]))
        return
    real = os.path.realpath(match[1])
    if not Path(real).is_relative_to(project.root):
        yield Demand("database", f"sqlite:///{real}", note, digest([real, settings.db]))


# --- what the user has agreed to --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grant:
    """What was agreed to for one project: (kind, sha) of each demand; `always` covers whatever the folder holds."""

    agreed: frozenset[tuple[str, str]]
    always: bool


class TrustFile:
    """`trust.json` of one user. Read fresh each time, replaced as a whole under a lock, private (0600 in 0700)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> TrustFile:
        """The file of this user. `environ` is the process environment: a project's `.env` has no say in it."""
        configured, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME") or os.path.expanduser("~")
        # A relative XDG_DATA_HOME is to be ignored, says its specification.
        base = Path(configured) if Path(configured).is_absolute() else Path(home) / ".local" / "share"
        return cls(base / "orchestrator" / "trust.json")

    def grant(self, root: Path) -> Grant | None:
        """What was agreed to for the project in this folder. Raises ConfigError for a file that cannot be used."""
        entry = self._read().get(str(root))
        if entry is None:
            return None
        return Grant(frozenset((one["kind"], one["sha"]) for one in entry["agreed"]), entry["always"])

    def agree(self, root: Path, agreed: Iterable[Demand], *, by: str, always: bool = False) -> None:
        """Put down the user's word for a project, in place of an earlier one. Raises ConfigError, OSError."""
        with self._changing() as projects:
            projects[str(root)] = {
                "by": by,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "always": always,
                "agreed": [{"kind": one.kind, "name": one.name, "sha": one.sha} for one in agreed],
            }

    def revoke(self, root: Path) -> bool:
        """Take the word back; whether there was one."""
        if str(root) not in self._read():
            return False
        with self._changing() as projects:
            return projects.pop(str(root), None) is not None

    def _read(self) -> dict[str, Any]:
        try:
            with self.path.open("rb") as file:
                self._check_owner(os.fstat(file.fileno()))
                body = file.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}", hint="Check its permissions.") from error
        try:
            projects: Any = json.loads(body)["projects"]
            for entry in projects.values():
                _check_entry(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{self.path} is damaged", hint="Remove it: each project is then asked about again."
            ) from error
        found: dict[str, Any] = projects
        return found

    def _check_owner(self, info: os.stat_result) -> None:
        """Trust that others could have written is worth nothing."""
        if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"{self.path} can be written by others, so it says nothing about whom you trust",
                hint=f"Look at it, then remove it, or: chmod 600 {self.path}",
            )

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """The entries, to be changed; written back whole. Entries of folders that are gone are left out."""
        import fcntl

        folder = self.path.parent
        if not folder.is_absolute():
            raise ConfigError("there is no home folder to keep trust in", hint="Set HOME or XDG_DATA_HOME.")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "trust.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            projects = {root: entry for root, entry in self._read().items() if Path(root).is_dir()}
            yield projects
            body = json.dumps({"schema": SCHEMA, "projects": projects}, indent=2, ensure_ascii=True) + "\n"
            replace_file(self.path, body.encode())
        finally:
            os.close(lock)


def _check_entry(entry: Any) -> None:
    if not isinstance(entry["always"], bool):
        raise TypeError("always")
    for one in entry["agreed"]:
        if not (isinstance(one["kind"], str) and isinstance(one["sha"], str)):
            raise TypeError("agreed")
