"""Commands as processes of their own: `python -m orchestrator …`, without the second that its imports take.

Once in a test session a process imports what commands need; it forks for each command that a test starts. What it
forks has its own pid, folder, environment, streams and signals, runs `orchestrator.__main__` from its first line and
ends as an interpreter does; a SIGKILL ends it as it ends any process. Where the start itself is the point, its imports
or what a library reads from its environment meanwhile, a test starts a program instead.

    process = start(folder, "run", "--yes", env=environment)      # like subprocess.Popen, with text
    done = run(folder, "show", "last", env=environment)           # like subprocess.run
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import orchestrator

ROOT: Final = Path(__file__).parents[1]
PIPE: Final = subprocess.PIPE
DEVNULL: Final = subprocess.DEVNULL
STDOUT: Final = subprocess.STDOUT
# Beside our own modules: what these import when they are first used.
NEEDED: Final = (
    "alembic.command",
    "dotenv",
    "jinja2.sandbox",
    "jsonschema",
    "psycopg",
    "rich.console",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
)
SDKS: Final = {"ANTHROPIC_API_KEY": "anthropic", "OPENAI_API_KEY": "openai"}  # large: for whom they are of use
_asking: Final = threading.Lock()


class Process:
    """A command that was started. Its streams are text; those that were not asked for are None."""

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        env: Mapping[str, str],
        stdin: int = DEVNULL,
        stdout: int = PIPE,
        stderr: int = PIPE,
    ) -> None:
        self.args = ("orch", *arguments)
        self.returncode: int | Any = None  # as in subprocess: None until it has ended
        with contextlib.ExitStack() as theirs:
            given = theirs.enter_context(_devnull()) if stdin == DEVNULL else stdin
            self.stdout, out = _stream(stdout, theirs)
            self.stderr, err = (None, out) if stderr == STDOUT else _stream(stderr, theirs)
            self._told, told = socket.socketpair()
            theirs.enter_context(told)
            with _asking:
                socket.send_fds(_forker(), [b"."], [given, out, err, told.fileno()])
            asked = json.dumps({"arguments": arguments, "folder": str(folder), "env": dict(env)})
            self._told.sendall(f"{asked}\n".encode())
        self.pid = int(_line(self._told))

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            # Of a socket whose timeout is 0, a read that has nothing says so by another error.
            self._told.settimeout(timeout if timeout is None else max(timeout, 0.001))
            try:
                self.returncode = int(_line(self._told))
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._told.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read to the end of both streams, wait, and close them."""
        limit = None if timeout is None else time.monotonic() + timeout
        said = ["", ""]

        def read(at: int, stream: IO[str]) -> None:
            with stream:
                said[at] = stream.read()

        streams = [(at, stream) for at, stream in enumerate((self.stdout, self.stderr)) if stream is not None]
        readers = [threading.Thread(target=read, args=one, daemon=True) for one in streams if not one[1].closed]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if limit is None else max(0, limit - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if limit is None else max(0, limit - time.monotonic()))
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends in this moment, and its parent has seen it
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(folder: Path, *arguments: str, env: Mapping[str, str], **streams: int) -> Process:
    """`orch …` in a folder, with this environment and no other. `streams` are those of subprocess.Popen."""
    return Process(folder, arguments, env, **streams)


def run(
    folder: Path, *arguments: str, env: Mapping[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """The same to its end."""
    process = start(folder, *arguments, env=env)
    try:
        out, err = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _line(told: socket.socket) -> str:
    """What a command's parent says next: its pid, then how it ended."""
    said = b""
    while not said.endswith(b"\n"):
        piece = told.recv(1)
        assert piece, "the process that forks has ended"
        said += piece
    return said.decode()


@contextlib.contextmanager
def _devnull() -> Any:
    with open(os.devnull, "rb") as nothing:
        yield nothing.fileno()


def _stream(wanted: int, theirs: contextlib.ExitStack) -> tuple[IO[str] | None, int]:
    """Our end of a pipe as text, if one is wanted, and theirs."""
    if wanted != PIPE:
        return None, wanted
    ours, other = os.pipe()
    theirs.callback(os.close, other)
    return os.fdopen(ours, encoding="utf-8"), other


@functools.cache
def _forker() -> socket.socket:
    """The process that forks, begun when the first command is started; it ends when this end is closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.process_kit", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=DEVNULL)
    atexit.register(process.wait, 10)
    atexit.register(ours.close)
    return ours


# --- the process that forks -------------------------------------------------------------------------------------------


def _serve(ours: socket.socket) -> None:
    """Fork for each command that is asked for. Returns in the process of a command, which then runs it."""
    while True:
        asked, given, _, _ = socket.recv_fds(ours, 1, 4)
        if not asked:
            os._exit(0)
        with socket.socket(fileno=os.dup(given[-1])) as told, told.makefile() as lines:
            command = json.loads(lines.readline())
        for variable in SDKS.keys() & command["env"].keys():
            importlib.import_module(SDKS[variable])
        if os.fork() == 0:
            ours.close()
            return _become(command, given)
        for one in given:
            os.close(one)


def _become(asked: dict[str, Any], given: list[int]) -> None:
    """In a parent of its own: fork the command, tell its pid, wait, tell how it ended."""
    *streams, told = given
    pid = os.fork()
    if pid:
        with socket.socket(fileno=told) as teller:
            for one in streams:
                os.close(one)
            teller.sendall(b"%d\n" % pid)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                teller.sendall(b"%d\n" % code)
        os._exit(0)
    os.close(told)
    for number, one in enumerate(streams):
        os.dup2(one, number)
    for one in set(streams) - {0, 1, 2}:
        os.close(one)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as at a terminal, whatever the tests were begun by
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    for name, number, errors in (("stdout", 1, "surrogateescape"), ("stderr", 2, "backslashreplace")):
        line_by_line = number == 2 or os.isatty(number)
        stream = open(number, "w", 1 if line_by_line else -1, "utf-8", errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.path.insert(0, asked["folder"])
    sys.argv[:] = ["orch", *asked["arguments"]]


def _our_modules() -> Iterator[str]:
    """All but what pytest imports, and what runs when it is imported."""
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if module.name not in ("orchestrator.__main__", "orchestrator.testing") and "migrations" not in module.name:
            yield module.name


def _main() -> None:
    for name in (*NEEDED, *_our_modules()):
        importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the tests, which end
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the parents of commands
    ended: list[int] = []
    atexit.register(_exit, ended)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        ended += [ending.code] if isinstance(ending.code, int) else []
        raise


def _exit(ended: list[int]) -> None:
    """The last of what is done at exit: then nothing is left but to take a hundred thousand copied objects apart."""
    if ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])


if __name__ == "__main__":
    _main()
