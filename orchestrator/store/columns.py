"""Column types that mean the same on every database: times and money are integers, exact and comparable; text sorts by
code point, whatever language a server was set up in.

A time is microseconds since 1970 in UTC; money is pico-dollars (1e-12 USD), fine enough for one token at a millionth
of a dollar per million. Raw SQL and the table classes share the same two pairs of functions.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Final

from sqlalchemy import BigInteger, Dialect, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from orchestrator.errors import UsageError
from orchestrator.store.scrub import storable

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
PICO: Final = 10**12
MAX_USD: Final = 9_000_000  # a BIGINT of pico-dollars holds 9.2 million


def to_micros(at: datetime) -> int:
    """Microseconds since 1970, UTC. Raises ValueError for a time without a zone: it could mean any of 24 instants."""
    if at.tzinfo is None:
        raise ValueError("a stored time needs a time zone")
    return (at - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The aware UTC time of a stored count."""
    return _EPOCH + micros * _MICROSECOND


def to_pico(usd: Decimal) -> int:
    """Pico-dollars; a remainder below one is rounded up, so that a cap is never passed by rounding.

    Raises UsageError for what the column cannot hold: NaN, infinities, negative or enormous sums.
    """
    if not usd.is_finite() or usd < 0 or usd > MAX_USD:
        raise UsageError(f"{usd} USD is not a sum that can be kept", hint=f"give 0 to {MAX_USD} USD")
    return int((usd * PICO).to_integral_value(ROUND_CEILING))


def from_pico(pico: int) -> Decimal:
    """USD, exact, without trailing zeros."""
    return Decimal(pico) / PICO


class Label(TypeDecorator[str]):
    """Short text. The order of names is part of what a model is sent, so no server's collation may decide it."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        return Text(collation="C") if dialect.name == "postgresql" else Text()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable(value)


class UtcTime(TypeDecorator[datetime]):
    """An aware time, stored as microseconds UTC and given back aware."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_micros(value)


class Usd(TypeDecorator[Decimal]):
    """An exact amount of dollars, stored as pico-dollars."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        return None if value is None else to_pico(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else from_pico(value)
