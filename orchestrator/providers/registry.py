"""Which endpoints a project has: a provider's name to a driver, opened once and closed together.

Names are `openai`, `anthropic`, `scripted`, `replayed`, and each `[providers.NAME]` of the project file. A name says
where a request goes, with which key, and what may be sent there; nothing else in the code knows a URL or a key. A
missing key is found here, before a run starts, and the error says which variable is empty and how to try without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import SplitResult, urlsplit

from orchestrator.errors import ConfigError
from orchestrator.providers.base import Provider, Traits
from orchestrator.providers.prices import Prices
from orchestrator.spec import EditKind, PriceSpec, ProviderSpec
from orchestrator.store.scrub import Scrubber

# By kind (`chat` is OpenAI's too): where its vendor is, the variable of its key, and the last part of its hosts.
VENDORS: Final[Mapping[str, tuple[str, str, str]]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY", "api.openai.com"),
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY", "api.anthropic.com"),
}
# Local servers want a key to be there, and do not look at it.
NO_KEY: Final = "no-key"
WITHOUT_KEY: Final = "To try without a key: `orch demo`, or ORCH_MODEL=scripted:DIR with written answers."


class ProjectRoot(Protocol):
    """As much of a project as providers need: where relative folders start."""

    @property
    def root(self) -> Path: ...


class ProviderSettings(Protocol):
    """As much of the settings as providers need. `get` gives a variable of the environment or `.env`, `secret_values`
    what must stand in no message."""

    @property
    def providers(self) -> Mapping[str, ProviderSpec]: ...
    @property
    def prices(self) -> Mapping[str, PriceSpec]: ...
    def get(self, name: str) -> str | None: ...
    def secret_values(self) -> Sequence[str]: ...


class Providers:
    """The project's providers by name. Opening one costs nothing: SDK and connection come with the first call."""

    def __init__(self, project: ProjectRoot, settings: ProviderSettings) -> None:
        self._root = project.root
        self._settings = settings
        self._opened: dict[tuple[str, bool], Provider] = {}

    def get(self, name: str) -> Provider:
        """The provider of this name. Raises ConfigError: unknown name, unusable base_url, no key."""
        return self._open(name, with_key=True)

    def offline(self, name: str) -> Provider:
        """The same provider for looking only (`wire`, `traits`): no key is needed. Raises ConfigError as `get` does."""
        return self._open(name, with_key=False)

    def hosts(self, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Every host these providers (default: all) contact, for people: `host` or `host:port`, without user or key."""
        chosen = [self._spec(name) for name in names] if names is not None else list(self._specs().values())
        found = {_shown_host(_url(spec)) for spec in chosen if spec.sends}
        return tuple(sorted(found))

    def prices(self) -> Prices:
        """The price list of this project: its own tables, and each provider's vendor by where its base_url leads."""
        urls = {name: _url(spec) for name, spec in self._specs().items() if spec.sends}
        return Prices(self._settings.prices, urls)

    async def close(self) -> None:
        """Close every connection."""
        opened = list(self._opened.values())
        self._opened.clear()
        for provider in opened:
            await provider.close()

    def _specs(self) -> Mapping[str, ProviderSpec]:
        known = {
            "openai": ProviderSpec(kind="openai"),
            "anthropic": ProviderSpec(kind="anthropic"),
            "scripted": ProviderSpec(kind="scripted"),
            "replayed": ProviderSpec(kind="replayed"),
        }
        return {**known, **self._settings.providers}

    def _spec(self, name: str) -> ProviderSpec:
        specs = self._specs()
        spec = specs.get(name)
        if spec is None or spec.kind is None:
            near = get_close_matches(name, specs, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There is: {', '.join(sorted(specs))}."
            raise ConfigError(
                f"There is no provider {name!r}",
                hint=f"{hint} A model is written provider:model; [providers.NAME] in the project file adds one.",
            )
        return spec

    def _open(self, name: str, *, with_key: bool) -> Provider:
        if (name, with_key) not in self._opened:
            spec = self._spec(name)
            if spec.kind == "scripted":
                opened = self._scripted(name, spec)
            elif spec.kind == "replayed":
                opened = self._replayed(spec)
            else:
                open_one = {"anthropic": self._anthropic, "chat": self._chat}.get(str(spec.kind), self._openai)
                opened = open_one(name, spec, _Address.of(name, spec), with_key)
            self._opened[(name, with_key)] = opened
        return self._opened[(name, with_key)]

    def _scripted(self, name: str, spec: ProviderSpec) -> Provider:
        from orchestrator.providers.scripted import ScriptedProvider

        return ScriptedProvider(
            root=self._root,
            name=name,
            zdr=spec.store is False,
            chaining="server" if spec.chaining == "auto" else spec.chaining,
            may_see=spec.may_see,
        )

    def _replayed(self, spec: ProviderSpec) -> Provider:
        from orchestrator.providers.replayed import ReplayedProvider

        scrubber = Scrubber(self._settings.secret_values())
        return ReplayedProvider(self._root, chaining=spec.chaining, may_see=spec.may_see, scrubber=scrubber)

    def _openai(self, name: str, spec: ProviderSpec, address: _Address, with_key: bool) -> Provider:
        from orchestrator.providers.openai import OpenAIProvider, detect_chaining, dialect_for

        own = frozenset({"web_search"} if address.official else ())
        traits = Traits(
            name,
            address.shown,
            spec.chaining,
            stores=spec.store is not False,
            may_see=spec.may_see,
            hosted=own if spec.hosted_tools is None else frozenset(spec.hosted_tools) - {"web_fetch"},
            accepts=_accepted(spec, address),
            edits=_edits(spec, address, {"compact"}),
        )
        traits = detect_chaining(traits, address.name)
        traits = replace(traits, background=traits.chaining != "replay")
        options = self._options(name, spec, address, with_key)
        return OpenAIProvider(traits, dialect_for(traits, address.name), **self._account(address), **options)

    def _chat(self, name: str, spec: ProviderSpec, address: _Address, with_key: bool) -> Provider:
        from orchestrator.providers.openai import ChatProvider, chat_dialect_for

        if spec.chaining == "server":
            raise ConfigError(
                f'The provider {name!r} cannot have chaining = "server": chat completions keep no responses',
                hint=f"Take the line out of [providers.{name}]: every call brings its whole thread along.",
            )
        traits = self._replaying(name, spec, address)
        options = self._options(name, spec, address, with_key)
        return ChatProvider(traits, chat_dialect_for(address.name), **self._account(address), **options)

    def _account(self, address: _Address) -> dict[str, str | None]:
        """Who pays, for the vendor itself: no other server learns of it."""
        names = {"organization": "OPENAI_ORG_ID", "project": "OPENAI_PROJECT_ID"} if address.official else {}
        return {field: self._settings.get(name) for field, name in names.items()}

    def _anthropic(self, name: str, spec: ProviderSpec, address: _Address, with_key: bool) -> Provider:
        from orchestrator.providers.anthropic import AnthropicProvider

        threads = spec.chaining == "server"
        if threads and spec.store is False:
            raise ConfigError(
                f'The provider {name!r} cannot have chaining = "server" and store = false: a thread is kept there',
                hint=f"Take one of the two lines out of [providers.{name}].",
            )
        chaining: Literal["server", "replay"] = "server" if threads else "replay"
        traits = replace(self._replaying(name, spec, address), chaining=chaining)
        if threads:  # the vendor edits no thread that it keeps
            traits = replace(traits, edits=frozenset())
        return AnthropicProvider(traits, **self._options(name, spec, address, with_key))

    def _replaying(self, name: str, spec: ProviderSpec, address: _Address) -> Traits:
        """The traits of an API without ids."""
        own = frozenset({"web_search", "web_fetch"} if address.official and spec.kind == "anthropic" else ())
        told = frozenset(spec.hosted_tools or ()) if spec.kind == "anthropic" else frozenset()
        return Traits(
            name,
            address.shown,
            "replay",
            stores=spec.store is not False,
            may_see=spec.may_see,
            hosted=own if spec.hosted_tools is None else told,
            hosted_can=frozenset({"blocked"}),
            accepts=_accepted(spec, address),
            edits=_edits(spec, address, {"compact", "clear_tools"} if spec.kind == "anthropic" else set()),
        )

    def _options(self, name: str, spec: ProviderSpec, address: _Address, with_key: bool) -> dict[str, Any]:
        """What every driver on a vendor's SDK needs."""
        variable = spec.api_key_env or (VENDORS[name][1] if name in VENDORS else "")
        needed = address.official or spec.api_key_env is not None
        return {
            "base_url": address.url,
            "host": address.host,
            "key": self._key(name, variable, address.name, needed=needed) if with_key else "",
            "key_env": variable or f"api_key_env of [providers.{name}]",
            "secrets": self._settings.secret_values(),
        }

    def _key(self, name: str, variable: str, host: str, *, needed: bool) -> str:
        key = (self._settings.get(variable) or "").strip() if variable else ""
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(
                f"The key in {variable} holds blanks or characters that no key has", hint=f"Set {variable} again."
            )
        if key or not needed:
            return key or NO_KEY
        if not variable:
            raise ConfigError(
                f"The provider {name!r} has no key for {host}",
                hint=f"Name the variable that holds it: api_key_env under [providers.{name}]. {WITHOUT_KEY}",
            )
        raise ConfigError(
            f"{variable} is not set; {host} needs a key",
            hint=f"Set {variable} in the environment or in .env. {WITHOUT_KEY}",
        )


# What people are shown, and agree to, is what is contacted: no letters of other scripts that look like these.
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


@dataclass(frozen=True, slots=True)
class _Address:
    """Where a provider is. `url` may hold a user or a key and is shown nowhere; `official`: it is the vendor itself."""

    url: str
    shown: str
    host: str
    name: str
    official: bool

    @staticmethod
    def of(name: str, spec: ProviderSpec) -> _Address:
        if spec.kind == "chat" and spec.base_url is None:
            raise ConfigError(
                f"The provider {name!r} speaks chat completions and has no base_url: it is not known where it is",
                hint=f"Give [providers.{name}] a base_url, such as http://localhost:8000/v1.",
            )
        if name in VENDORS and spec.kind != name and spec.base_url is None:
            raise ConfigError(
                f'The provider {name!r} has kind = "{spec.kind}" and no base_url: its key would go to another vendor',
                hint=f"Give [providers.{name}] a base_url, or the table another name.",
            )
        url = _checked_url(name, _url(spec))
        hostname, shown = url.hostname or "", _shown_host(url.geturl())
        vendor = _vendor(spec)[2]
        official = hostname == vendor or hostname.endswith("." + vendor)
        return _Address(url.geturl(), f"{url.scheme}://{shown}{url.path}", shown, hostname, official)


def _vendor(spec: ProviderSpec) -> tuple[str, str, str]:
    return VENDORS.get(spec.kind or "openai", VENDORS["openai"])


def _edits(spec: ProviderSpec, address: _Address, known: set[EditKind]) -> frozenset[EditKind]:
    """What a provider can do to a thread: of what its kind of interface knows, all at the vendor's own address."""
    said = known if address.official else ()
    return frozenset(known & set(said if spec.vendor_context is None else spec.vendor_context))


def _accepted(spec: ProviderSpec, address: _Address) -> frozenset[str]:
    """The kinds of files that models there take: the vendors' take both, of others nothing is known."""
    known = ("image", "pdf") if address.official else ()
    return frozenset(known if spec.accepts is None else spec.accepts)


def _url(spec: ProviderSpec) -> str:
    return spec.base_url or _vendor(spec)[0]


def _checked_url(name: str, text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        usable = None
    if usable and url.hostname and not _HOST.fullmatch(url.hostname):
        raise ConfigError(
            f"The base_url of provider {name!r} has a host with other characters than letters, digits, '.' and '-': "
            f"{url.hostname!a}",
            hint="It may look like another host. If it is meant, write its ASCII form (xn--…).",
        )
    if not usable:
        raise ConfigError(
            f"The base_url of provider {name!r} is no http address",
            hint="Write it with scheme and host: https://host/v1"
            + (f" ({name.upper()}_BASE_URL, or [providers.{name}] in the project file)." if name in VENDORS else "."),
        )
    return url


def _shown_host(text: str) -> str:
    """`host` or `host:port`, without user, password, path and query."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return ""
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port is not None else host
