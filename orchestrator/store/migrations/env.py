"""Run by alembic: migrate on the connection it is given, inside the transaction that is already open."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy.types import TypeDecorator

from orchestrator.store.columns import Label
from orchestrator.store.tables import metadata


def _render(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Our own types stand in a migration as the plain columns they are: it must not change when a class does."""
    if kind == "type" and isinstance(item, Label):
        return 'sa.Text().with_variant(sa.Text(collation="C"), "postgresql")'
    return f"sa.{type(item.impl).__name__}()" if kind == "type" and isinstance(item, TypeDecorator) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_type=True,
    compare_server_default=True,
    transactional_ddl=True,
    render_item=_render,
)
with context.begin_transaction():
    context.run_migrations()
