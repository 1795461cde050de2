"""Time, injectable: wall time is recorded, never used for order; deadlines are monotonic (S33)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall time, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, for deadlines."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
