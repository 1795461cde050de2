"""What PostgreSQL's errors mean: what is worth another try, and what to tell a person.

A message never repeats the address with its password: psycopg is given the parts of the URL, and `place` is shown.
"""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from orchestrator.errors import StoreError

# The transaction has been rolled back because of others; run again it will succeed.
_ROLLED_BACK: Final = (errors.SerializationFailure, errors.DeadlockDetected)
_GOING: Final = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
)
_READ_ONLY: Final = (errors.ReadOnlySqlTransaction,)
_REFUSED: Final = (errors.InsufficientPrivilege,)
_FULL: Final = (errors.InsufficientResources,)
_DIFFERENT: Final = (errors.UndefinedTable, errors.UndefinedColumn, errors.FeatureNotSupported)  # the last: of a plan
_ADDRESS: Final = "check the address (--db URL, ORCH_DB or `db` of the project)"


def cause(error: BaseException) -> BaseException:
    """psycopg's own error, where SQLAlchemy has wrapped it."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def rolled_back(error: BaseException) -> bool:
    """Whether the server has undone the transaction for the sake of another one."""
    return isinstance(cause(error), _ROLLED_BACK)


def disconnected(error: BaseException, connection: psycopg.Connection | None) -> bool:
    """Whether the connection is gone, or there was none to be had."""
    found = cause(error)
    if isinstance(found, _GOING):
        return True
    broken = connection is None or connection.broken or connection.closed
    return broken and isinstance(found, psycopg.OperationalError | psycopg.InterfaceError)


def passing(error: BaseException, connection: psycopg.Connection | None) -> bool:
    """Whether the transaction has had no effect and may well succeed when it is run again."""
    return rolled_back(error) or disconnected(error, connection)


def refusal(error: BaseException) -> bool:
    """Whether another try to connect is useless: the server is there and says no."""
    found = cause(error)
    text = str(found)
    return isinstance(found, psycopg.OperationalError) and (
        "authentication" in text or ("FATAL" in text and "does not exist" in text)
    )


def explain(error: BaseException, place: str) -> BaseException:
    """What the database refused, as a StoreError with a way out; anything else as it is."""
    found = cause(error)
    said = _said(found)
    if isinstance(found, errors.LockNotAvailable):
        return StoreError(
            f"the database {place} is locked by another program",
            hint="close the program that holds it, or wait for it, and try again",
            code="store_locked",
        )
    if isinstance(found, PoolTimeout):
        return StoreError(f"the database {place} is too busy to answer", hint="try again, or run less at once")
    if isinstance(found, _READ_ONLY):
        return StoreError(f"the database {place} cannot be written: it is read-only", hint=_ADDRESS)
    if isinstance(found, _REFUSED):
        return StoreError(
            f"the database {place} does not allow this to its user: {said}",
            hint="give the user CREATE on the schema, or make it the owner of Orchestrator's tables",
        )
    if isinstance(found, _FULL):
        return StoreError(
            f"the database {place} has no room: {said}", hint="make room on the server and resume the run"
        )
    if isinstance(found, _DIFFERENT):
        return StoreError(
            f"the database {place} is not what it was: {said}",
            hint="was it migrated or restored meanwhile? start again",
        )
    if isinstance(found, psycopg.OperationalError | psycopg.InterfaceError):
        answered = found.sqlstate is not None and not isinstance(found, _GOING)
        return _unavailable(said, place, answered)
    return error


def _unavailable(said: str, place: str, answered: bool) -> StoreError:
    if "password" in said or "authentication" in said or said.startswith("role "):
        return StoreError(
            f"the database {place} refuses the user: {said}",
            hint="check user and password in the address; special characters in a password are written as %40 for @",
        )
    if "database" in said and "does not exist" in said:
        return StoreError(f"the database {place} does not exist", hint="make it with createdb, or " + _ADDRESS)
    if answered:
        return StoreError(f"the database {place} gave up: {said}", hint="look into its log, and resume the run")
    return StoreError(
        f"the database {place} cannot be reached: {said}",
        hint=f"start the server, or {_ADDRESS}; an interrupted run goes on with orch resume",
    )


def _said(error: BaseException) -> str:
    """The server's words, the last of several tries, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [
        line for line in lines if not line.startswith(("HINT", "DETAIL", "CONTEXT", "LINE", "^", "Is the server", "- "))
    ]
    text = (told or lines or [type(error).__name__])[0]
    return text.rsplit("failed: ", 1)[-1].removeprefix("FATAL: ").strip()
