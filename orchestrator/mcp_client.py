"""MCP servers at work: started when a step needs them, in an environment that was written down, and no other (S26).

One server serves all steps of a process. A child process gets PATH, HOME and the variables that the project file names;
what it says on stderr is not ours to show, but for its last line where it cannot be started, which no model is told.
Each server lives in a task of its own, because what opens its connection must close it. It may not ask us for anything:
no sampling, no questions to the user, no folders.

The `mcp` package is loaded when the first server is needed, and only then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from orchestrator.errors import ConfigError, StepFailed
from orchestrator.mcp_pins import Pinned, differences, pinned
from orchestrator.project import Project
from orchestrator.settings import Settings
from orchestrator.spec import McpSpec
from orchestrator.tools import Tool, ToolError

START_SECONDS: Final = 30.0
MOST_TOOLS: Final = 1_000
MOST_HEARD: Final = 300  # characters of a server's last line on stderr
_EMPTIED: Final = ("LOGNAME", "SHELL", "TERM", "USER")  # what the package would pass on beside PATH and HOME


class McpServers:
    """The servers of a project, each started when it is first needed."""

    def __init__(self, project: Project | None = None, settings: Settings | None = None) -> None:
        self._project = project
        self._settings = settings
        self._running: dict[str, _Server] = {}

    async def close(self) -> None:
        """End every server."""
        running = list(self._running.values())
        self._running.clear()
        await asyncio.gather(*(server.end() for server in running))

    async def listed(self, name: str) -> Mapping[str, Pinned]:
        """The tools that a server has and the project allows, as the server describes them now. Raises ConfigError."""
        try:
            return await self._server(name).listed()
        except _Broken as broken:
            raise ConfigError(
                f"the MCP server {name} {broken}{broken.last_word}", hint=f"see [mcp.{name}] in the project file"
            ) from broken

    async def verify(self, tools: Sequence[Tool]) -> None:
        """Before anything is sent: each server still says of these tools what was pinned. Raises StepFailed."""
        pins: dict[str, dict[str, Pinned]] = {}
        for tool in tools:
            if tool.remote is not None:
                pins.setdefault(tool.remote.server, {})[tool.remote.pinned.name] = tool.remote.pinned
        for name, expected in pins.items():
            try:
                found = await self._server(name).listed()
            except _Broken as broken:
                raise StepFailed(
                    f"the MCP server {name} {broken}{broken.last_word}; nothing was sent",
                    hint=f"see [mcp.{name}] in the project file, then `orch resume`",
                    code="mcp_server",
                ) from broken
            changed = differences(expected, {tool: found[tool] for tool in expected if tool in found})
            if changed:
                raise StepFailed(
                    f"the MCP server {name} describes its tools otherwise than when they were pinned "
                    f"({'; '.join(changed)}); nothing was sent",
                    hint=f"look at what it says now: orch mcp pin {name}",
                    code="mcp_changed",
                )

    def bound(self, tool: Tool) -> Tool:
        """The tool with what runs it here."""
        remote = tool.remote
        if remote is None:
            return tool

        async def call(**arguments: Any) -> Any:
            return await self._server(remote.server).call(remote.pinned.name, arguments)

        return replace(tool, call=call)

    def _server(self, name: str) -> _Server:
        if name not in self._running:
            assert self._settings is not None
            assert self._project is not None
            spec = self._settings.mcp.get(name)
            if spec is None:
                known = ", ".join(sorted(self._settings.mcp)) or "none"
                raise ConfigError(f"there is no MCP server {name!r}", hint=f"the project file has: {known}")
            self._running[name] = _Server(name, spec, str(self._project.root), self._settings.env)
        return self._running[name]


class _Broken(Exception):
    """A server that does not answer as one, in words that follow its name; `last_word` is what it said itself."""

    def __init__(self, message: str, heard: _Heard | None = None) -> None:
        super().__init__(message)
        line = heard.last_line() if heard is not None else ""
        self.last_word = f"; its last line was “{line}”" if line else ""


class _Heard:
    """The end of what a child process says on stderr. A file for it; a thread reads it, since a full pipe would stop
    the child."""

    def __init__(self) -> None:
        read, write = os.pipe()
        self.file = os.fdopen(write, "w")
        self._end = b""
        self._thread = threading.Thread(target=self._listen, args=(read,), daemon=True)
        self._thread.start()

    def _listen(self, read: int) -> None:
        with os.fdopen(read, "rb", buffering=0) as pipe:
            while said := pipe.read(4096):
                self._end = (self._end + said)[-4096:]

    def last_line(self) -> str:
        """To be asked when the child has gone: then all of it was read soon."""
        self.file.close()
        self._thread.join(timeout=1.0)
        lines = [line.strip() for line in self._end.decode("utf-8", "replace").splitlines()]
        return next((line[:MOST_HEARD] for line in reversed(lines) if line), "")


class _Server:
    """One server, and the task that it lives in."""

    def __init__(self, name: str, spec: McpSpec, folder: str, env: Mapping[str, str]) -> None:
        self._name, self._spec, self._folder, self._env = name, spec, folder, env
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any] | None = None
        self._stop = asyncio.Event()
        self._heard: _Heard | None = None

    async def listed(self) -> Mapping[str, Pinned]:
        client = await self._client()
        found: dict[str, Pinned] = {}
        cursor = None
        try:
            async with asyncio.timeout(START_SECONDS):
                while len(found) < MOST_TOOLS:
                    page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                    for tool in page.tools:
                        if tool.name in self._spec.allow:
                            found[tool.name] = pinned(tool.name, tool.description, tool.input_schema)
                    cursor = page.next_cursor
                    if cursor is None:
                        return found
        except Exception as error:
            await self.end()
            raise _Broken(f"does not list its tools: {_said(error)}") from error
        return found

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """What the tool gives: its structured result, else its texts. Raises ToolError for what it says is an error."""
        try:
            client = await self._client()
        except _Broken as broken:
            raise ToolError(f"the server of {name} {broken}") from broken
        try:
            result = await client.call_tool(name, arguments)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self.end()  # the next call begins with a new one
            raise ToolError(f"{name} broke off: {_said(error)}; it may still have taken effect") from error
        text = "\n".join(map(_text, result.content))
        if result.is_error:
            raise ToolError(text or f"{name} failed")
        # Servers wrap a plain text so, to have a structure at all; the text itself is shorter to read.
        plain = result.structured_content is None or result.structured_content == {"result": text}
        return text if plain else result.structured_content

    async def end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=START_SECONDS)

    async def _client(self) -> Any:
        if self._task is None or self._task.done():
            self._stop = asyncio.Event()
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._live(self._ready, self._stop), name=f"mcp {self._name}")
        assert self._ready is not None
        return await asyncio.shield(self._ready)

    async def _live(self, ready: asyncio.Future[Any], stop: asyncio.Event) -> None:
        """The server from its start to its end, in one task."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(START_SECONDS):
                    client = await stack.enter_async_context(self._opened())
                ready.set_result(client)
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(_Broken(f"cannot be started: {_said(error)}", self._heard))
                ready.exception()  # whoever waits for it gets it too
            if isinstance(error, asyncio.CancelledError):
                raise

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Any]:
        try:
            from mcp import Client
        except ImportError as error:
            raise _Broken("needs the extra: pip install 'step-orchestrator[mcp]'") from error
        async with AsyncExitStack() as stack:
            if self._spec.url is not None:
                transport = await self._over_http(stack, self._spec.url)
            else:
                transport = self._as_child(stack)
            yield await stack.enter_async_context(Client(transport))

    async def _over_http(self, stack: AsyncExitStack, url: str) -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        token = self._env.get(self._spec.token_env or "") or None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx2.Timeout(START_SECONDS, read=self._spec.timeout or 600.0)
        http = httpx2.AsyncClient(headers=headers, timeout=timeout, follow_redirects=False, trust_env=False)
        return streamable_http_client(url, http_client=await stack.enter_async_context(http))

    def _as_child(self, stack: AsyncExitStack) -> Any:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        assert self._spec.command is not None
        command, *arguments = self._spec.command
        named = {name: self._env[name] for name in self._spec.env if name in self._env}
        base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {**dict.fromkeys(_EMPTIED, ""), **base, **named}
        self._heard = _Heard()
        stack.callback(self._heard.file.close)
        parameters = StdioServerParameters(command=command, args=arguments, env=env, cwd=self._folder)
        return stdio_client(parameters, errlog=self._heard.file)


def _text(part: Any) -> str:
    """A part of a result as text; what is none is named."""
    if part.type == "text":
        return str(part.text)
    if part.type == "resource" and getattr(part.resource, "text", None) is not None:
        return str(part.resource.text)
    if part.type == "resource_link":
        return f"[{part.name}: {part.uri}]"
    kind = getattr(part, "mime_type", None) or getattr(getattr(part, "resource", None), "mime_type", None)
    return f"[{part.type}{f', {kind}' if kind else ''}: not shown]"


def _said(error: BaseException) -> str:
    """The reason behind an error, which groups of tasks wrap."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"nothing within {START_SECONDS:g} s"
    return str(error) or type(error).__name__
