"""Money on its way: reserved before a call leaves, settled when it is over, at every level that has a cap (S31).

The levels are taken in one order, day, session, run, step, so that no two transactions wait for each other; each is one
conditional UPDATE or, where what was spent stands in other rows already, one sum under its lock. A day is the UTC day
on which a call was sent. Its row is kept whether there is a cap or not, so that one that is set at noon knows the
morning; it is only for calls that cost something. What a removed run has cost stays in it.

A scope has its own days, as it has its own sessions: no cap tells one customer about another.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NoReturn

from orchestrator.errors import BudgetExceeded
from orchestrator.store.columns import from_micros, from_pico, to_pico
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import Dispatch, SentCall

_NO_CAP: Final = 2**62
_DAY: Final = insert(
    "spending",
    "day spent_usd reserved_usd",
    "ON CONFLICT (tenant, account, subject, day) DO UPDATE SET reserved_usd = spending.reserved_usd"
    " + excluded.reserved_usd WHERE spending.spent_usd + spending.reserved_usd + excluded.reserved_usd <= :cap",
)
_DAY_SETTLED = Sql(
    "UPDATE spending SET reserved_usd = reserved_usd - :reserve, spent_usd = spent_usd + :charge"
    " WHERE day = :day AND {scope}"
)
_DAY_SPENT = Sql("SELECT spent_usd, reserved_usd FROM spending WHERE day = :day AND {scope}")
_SESSION = Sql(
    "UPDATE session SET last_message = last_message WHERE {scope} AND id ="
    " (SELECT session_id FROM run WHERE id = :run AND {scope:run}) RETURNING id, name"
)
_SESSION_SPENT = Sql(
    "SELECT COALESCE(SUM(b.spent_usd), 0), COALESCE(SUM(b.reserved_usd), 0) FROM budget b JOIN run r ON r.id = b.run_id"
    " WHERE r.session_id = :session AND {scope:b} AND {scope:r}"
)
_RUN = Sql(
    "UPDATE budget SET reserved_usd = reserved_usd + :reserve WHERE run_id = :run AND {scope}"
    " AND (cap_usd IS NULL OR spent_usd + reserved_usd + :reserve <= cap_usd)"
)
_RUN_SPENT = Sql("SELECT cap_usd, spent_usd, reserved_usd FROM budget WHERE run_id = :run AND {scope}")
_RUN_SETTLED = Sql(
    "UPDATE budget SET reserved_usd = reserved_usd - :reserve, spent_usd = spent_usd + :charge"
    " WHERE run_id = :run AND {scope}"
)
_STEP_SPENT = Sql(
    "SELECT COALESCE(SUM(CASE WHEN c.state = 'sent' THEN 0 ELSE c.charged_usd END), 0),"
    " COALESCE(SUM(CASE WHEN c.state = 'sent' THEN c.reserved_usd ELSE 0 END), 0)"
    " FROM call c JOIN attempt t ON t.id = c.attempt_id JOIN step s ON s.id = t.step_id"
    " WHERE s.run_id = :run AND s.name = :step AND {scope:c} AND {scope:t} AND {scope:s}"
)
_NUMBER = Sql("SELECT number FROM run WHERE id = :run AND {scope}")


def reserve(tx: Tx, dispatch: Dispatch, call: SentCall, pico: int, sent_at: int) -> None:
    """Hold the worst case of a try at every level. Raises BudgetExceeded, and then the transaction is undone."""
    caps, day = call.caps, _day(sent_at)
    most = _NO_CAP if caps.day is None else to_pico(caps.day)
    if pico > most or not tx.run(_DAY, day=day, spent_usd=0, reserved_usd=pico, cap=most):
        spent, held = tx.one(_DAY_SPENT, day=day) or (0, 0)
        way = "go on tomorrow, or raise per_day under [budget] in the project file"
        hint = f"{way}; then orch resume {_number(tx, dispatch)}"
        _refuse(call, f"the day {day} (UTC)", spent, held, most, hint)
    if caps.session is not None:
        _hold_session(tx, dispatch, call, pico, to_pico(caps.session))
    if not tx.run(_RUN, run=dispatch.run_id, reserve=pico):
        cap, spent, held = tx.all(_RUN_SPENT, run=dispatch.run_id)[0]
        _refuse(call, "", spent, held, cap, f"raise the cap and go on: orch resume {_number(tx, dispatch)} --cap USD")
    if caps.step is not None:
        spent, held = (int(sum_) for sum_ in tx.all(_STEP_SPENT, run=dispatch.run_id, step=dispatch.step)[0])
        if spent + held + pico > to_pico(caps.step):
            hint = f"raise max_usd of the step, then orch resume {_number(tx, dispatch)}"
            _refuse(call, f"step {dispatch.step}", spent, held, to_pico(caps.step), hint)


def _hold_session(tx: Tx, dispatch: Dispatch, call: SentCall, pico: int, cap: int) -> None:
    """The session's runs have their own rows; its own row is the lock under which they are added up."""
    session, name = tx.all(_SESSION, run=dispatch.run_id)[0]
    spent, held = (int(sum_) for sum_ in tx.all(_SESSION_SPENT, session=session)[0])
    if spent + held + pico > cap:
        hint = f"raise per_session of the budget, then orch resume {_number(tx, dispatch)}"
        _refuse(call, f"session {name}", spent, held, cap, hint)


def settle(tx: Tx, dispatch: Dispatch, reserved: int, charge: int, sent_at: int) -> None:
    """What was reserved for a call is let go, and what it cost is spent."""
    tx.run(_DAY_SETTLED, day=_day(sent_at), reserve=reserved, charge=charge)
    tx.run(_RUN_SETTLED, run=dispatch.run_id, reserve=reserved, charge=charge)


def _day(micros: int) -> str:
    return f"{from_micros(micros):%Y-%m-%d}"


def _number(tx: Tx, dispatch: Dispatch) -> int:
    return int(tx.all(_NUMBER, run=dispatch.run_id)[0][0])


def _refuse(call: SentCall, level: str, spent: int, held: int, cap: int, hint: str) -> NoReturn:
    flying = f" and ${from_pico(held):f} is held for calls in flight" if held else ""
    whose = f" for {level}" if level else ""
    raise BudgetExceeded(
        f"the next call could cost up to ${call.reserve_usd or Decimal(0):f}; ${from_pico(spent):f} is spent{flying},"
        f" and the cap{whose} is ${from_pico(cap):f}; nothing was sent",
        hint=hint,
    )
