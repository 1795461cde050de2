"""The tables of the spine: sessions, runs, steps, attempts, calls, artifacts and their contents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Sorted by code point on every server (`columns.Label`).
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "subject",
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("last_run", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("hash_key", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "account", "subject", name=op.f("pk_subject")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "content",
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("sha256", TEXT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_content_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("tenant", "account", "subject", "sha256", name=op.f("pk_content")),
    )
    op.create_table(
        "session",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("last_message", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_session_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint(
            "tenant", "account", "subject", "name", name=op.f("uq_session_tenant_account_subject_name")
        ),
    )
    op.create_table(
        "worker",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("host", TEXT, nullable=False),
        sa.Column("boot_id", TEXT, nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_worker_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
    )
    op.create_table(
        "run",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("parent_id", TEXT, nullable=True),
        sa.Column("kind", TEXT, server_default=sa.text("'run'"), nullable=False),
        sa.Column("until_message", sa.BigInteger(), nullable=True),
        sa.Column("pipeline", TEXT, nullable=False),
        sa.Column("file", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("owner", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("graph", TEXT, nullable=False),
        sa.Column("graph_digest", TEXT, nullable=False),
        sa.Column("author", TEXT, nullable=False),
        sa.Column("on_exceed", TEXT, nullable=False),
        sa.Column("unpriced", TEXT, nullable=False),
        sa.Column("models", TEXT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("tags", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("error", TEXT, nullable=True),
        sa.Column("last_event", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["parent_id"], ["run.id"], name=op.f("fk_run_parent_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_run_session_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "graph"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_run_tenant_account_subject_graph"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_run_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint(
            "tenant", "account", "subject", "number", name=op.f("uq_run_tenant_account_subject_number")
        ),
    )
    op.create_table(
        "artifact",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("step", TEXT, nullable=False),
        sa.Column("item", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("content", TEXT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("author", TEXT, nullable=False),
        sa.Column("origin", TEXT, nullable=False),
        sa.Column("parent_id", TEXT, nullable=True),
        sa.Column("attempt_id", TEXT, nullable=True),
        sa.Column("sensitivity", TEXT, server_default=sa.text("'internal'"), nullable=False),
        sa.Column("field_hashes", TEXT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("facts", TEXT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("guards", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("draft", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("merged_id", TEXT, nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["merged_id"], ["artifact.id"], name=op.f("fk_artifact_merged_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["artifact.id"], name=op.f("fk_artifact_parent_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_artifact_run_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "content"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_artifact_tenant_account_subject_content"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_artifact_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact")),
        sa.UniqueConstraint("run_id", "step", "item", "version", name=op.f("uq_artifact_run_id_step_item_version")),
    )
    op.create_table(
        "budget",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("cap_usd", sa.BigInteger(), nullable=True),
        sa.Column("spent_usd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_usd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_budget_run_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_budget_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_budget")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "spending",
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("day", TEXT, nullable=False),
        sa.Column("spent_usd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_usd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_spending_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("tenant", "account", "subject", "day", name=op.f("pk_spending")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "event",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("step", TEXT, nullable=True),
        sa.Column("item", TEXT, nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=True),
        sa.Column("data", TEXT, server_default=sa.text("'{}'"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_event_run_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_event_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_event")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "message",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", TEXT, server_default=sa.text("'turn'"), nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("message", TEXT, nullable=False),
        sa.Column("run_id", TEXT, nullable=True),
        sa.Column("step", TEXT, nullable=True),
        sa.Column("author", TEXT, nullable=False),
        sa.Column("sensitivity", TEXT, server_default=sa.text("'internal'"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_message_run_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name=op.f("fk_message_session_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_message_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_message")),
        sa.UniqueConstraint("session_id", "seq", name=op.f("uq_message_session_id_seq")),
    )
    with op.batch_alter_table("message", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_message_run_id"), ["run_id"], unique=False)

    op.create_table(
        "step",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("item", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("children", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("unmet", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("released", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("stale", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("due", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("defaulted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_version", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt_id", TEXT, nullable=True),
        sa.Column("basis_id", TEXT, nullable=True),
        sa.Column("head_id", TEXT, nullable=True),
        sa.Column("draft_id", TEXT, nullable=True),
        sa.Column("made_id", TEXT, nullable=True),
        sa.Column("carried_id", TEXT, nullable=True),
        sa.Column("entry", TEXT, nullable=True),
        sa.Column("pins", TEXT, server_default=sa.text("'{}'"), nullable=False),
        sa.ForeignKeyConstraint(["carried_id"], ["artifact.id"], name=op.f("fk_step_carried_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["draft_id"], ["artifact.id"], name=op.f("fk_step_draft_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["head_id"], ["artifact.id"], name=op.f("fk_step_head_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["made_id"], ["artifact.id"], name=op.f("fk_step_made_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_step_run_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_step_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "entry"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_step_tenant_account_subject_entry"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_step")),
        sa.UniqueConstraint("run_id", "name", "item", name=op.f("uq_step_run_id_name_item")),
    )
    with op.batch_alter_table("step", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_step_run_id_kind"), ["run_id", "kind"], unique=False)

    op.create_table(
        "attempt",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("step_id", TEXT, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("claimed_token", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("owner", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("redo", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("mode", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("round", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("message_id", TEXT, nullable=True),
        sa.Column("decision", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("inputs_hash", TEXT, nullable=True),
        sa.Column("base_head", TEXT, nullable=True),
        sa.Column("error", TEXT, nullable=True),
        sa.Column("running_us", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("manifest", TEXT, nullable=True),
        sa.ForeignKeyConstraint(
            ["message_id"], ["message.id"], name=op.f("fk_attempt_message_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["step_id"], ["step.id"], name=op.f("fk_attempt_step_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_attempt_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("step_id", "number", name=op.f("uq_attempt_step_id_number")),
    )
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.create_index(
            "ix_attempt_waiting",
            ["step_id"],
            unique=False,
            sqlite_where=sa.text("state = 'waiting'"),
            postgresql_where=sa.text("state = 'waiting'"),
        )
    op.create_table(
        "read",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("attempt_id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("item", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("artifact_id", TEXT, nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("fields", TEXT, nullable=True),
        sa.Column("hash", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact_id"], ["artifact.id"], name=op.f("fk_read_artifact_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_read_attempt_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_read_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("attempt_id", "name", "item", name=op.f("pk_read")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("read", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_read_artifact_id"), ["artifact_id"], unique=False)

    op.create_table(
        "thread",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("attempt_id", TEXT, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("continues", TEXT, nullable=True),
        sa.Column("provider", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("base_url", TEXT, nullable=False),
        sa.Column("settings", TEXT, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("system", TEXT, nullable=False),
        sa.Column("left_out", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("manifest", TEXT, nullable=True),
        sa.ForeignKeyConstraint(["continues"], ["thread.id"], name=op.f("fk_thread_continues"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_thread_attempt_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "system"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_thread_tenant_account_subject_system"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_thread_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_thread")),
        sa.UniqueConstraint("attempt_id", "position", name=op.f("uq_thread_attempt_id_position")),
    )
    op.create_table(
        "block",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("thread_id", TEXT, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("layer", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("parts", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("rule", TEXT, nullable=False),
        sa.Column("tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("artifact_id", TEXT, nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("contract", TEXT, nullable=True),
        sa.Column("fields", TEXT, nullable=True),
        sa.Column("about", TEXT, nullable=True),
        sa.Column("guards", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("sensitivity", TEXT, server_default=sa.text("'internal'"), nullable=False),
        sa.Column("attached", TEXT, nullable=True),
        sa.Column("media", TEXT, nullable=True),
        sa.Column("file_name", TEXT, nullable=True),
        sa.ForeignKeyConstraint(
            ["artifact_id"], ["artifact.id"], name=op.f("fk_block_artifact_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_block_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.id"], name=op.f("fk_block_thread_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "attached"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_block_tenant_account_subject_attached"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("thread_id", "position", name=op.f("pk_block")),
    )
    op.create_table(
        "call",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("attempt_id", TEXT, nullable=False),
        sa.Column("thread_id", TEXT, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("previous", TEXT, nullable=False),
        sa.Column("rung", TEXT, nullable=False),
        sa.Column("request_hash", TEXT, nullable=False),
        sa.Column("items", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("ask", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("provider", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("estimate_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reserved_usd", sa.BigInteger(), nullable=True),
        sa.Column("lost_usd", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("state", TEXT, server_default=sa.text("'sent'"), nullable=False),
        sa.Column("created_id", TEXT, nullable=True),
        sa.Column("response_id", TEXT, nullable=True),
        sa.Column("outcome", TEXT, nullable=True),
        sa.Column("reason", TEXT, server_default=sa.text("('')"), nullable=False),
        sa.Column("output_items", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("tool_calls", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("follow", TEXT, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("answer", TEXT, nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=True),
        sa.Column("web_searches", sa.BigInteger(), nullable=True),
        sa.Column("usage_estimated", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_usd", sa.BigInteger(), nullable=True),
        sa.Column("charged_usd", sa.BigInteger(), nullable=True),
        sa.Column("price", TEXT, nullable=True),
        sa.Column("tries", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("seconds", sa.Float(), server_default=sa.text("(0.0)"), nullable=False),
        sa.Column("first_text_seconds", sa.Float(), nullable=True),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_call_attempt_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_call_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "answer"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_call_tenant_account_subject_answer"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.id"], name=op.f("fk_call_thread_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_call")),
        sa.UniqueConstraint("thread_id", "seq", name=op.f("uq_call_thread_id_seq")),
    )
    with op.batch_alter_table("call", schema=None) as batch_op:
        batch_op.create_index(
            "ix_call_ask",
            ["ask"],
            unique=False,
            sqlite_where=sa.text("ask <> ''"),
            postgresql_where=sa.text("ask <> ''"),
        )
    op.create_table(
        "tool_call",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("call_id", TEXT, nullable=False),
        sa.Column("tool_id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("arguments", TEXT, nullable=False),
        sa.Column("state", TEXT, server_default=sa.text("'started'"), nullable=False),
        sa.Column("output", TEXT, nullable=True),
        sa.Column("whole", TEXT, nullable=True),
        sa.Column("is_error", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("decision", TEXT, nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["call_id"], ["call.id"], name=op.f("fk_tool_call_call_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "arguments"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_tool_call_tenant_account_subject_arguments"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "output"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_tool_call_tenant_account_subject_output"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "whole"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_tool_call_tenant_account_subject_whole"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_tool_call_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_call")),
        sa.UniqueConstraint("call_id", "tool_id", name=op.f("uq_tool_call_call_id_tool_id")),
    )
    op.create_table(
        "effect",
        sa.Column("tenant", TEXT, server_default="-", nullable=False),
        sa.Column("account", TEXT, server_default="-", nullable=False),
        sa.Column("subject", TEXT, server_default="-", nullable=False),
        sa.Column("attempt_id", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("state", TEXT, server_default=sa.text("'started'"), nullable=False),
        sa.Column("value", TEXT, nullable=True),
        sa.Column("decision", TEXT, nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_effect_attempt_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject", "value"],
            ["content.tenant", "content.account", "content.subject", "content.sha256"],
            name=op.f("fk_effect_tenant_account_subject_value"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "account", "subject"],
            ["subject.tenant", "subject.account", "subject.subject"],
            name=op.f("fk_effect_tenant_account_subject"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("attempt_id", "key", name=op.f("pk_effect")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("effect")
    op.drop_table("tool_call")
    with op.batch_alter_table("call", schema=None) as batch_op:
        batch_op.drop_index("ix_call_ask")

    op.drop_table("call")
    op.drop_table("block")
    op.drop_table("thread")
    with op.batch_alter_table("read", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_read_artifact_id"))

    op.drop_table("read")
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.drop_index("ix_attempt_waiting")

    op.drop_table("attempt")
    with op.batch_alter_table("step", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_step_run_id_kind"))

    op.drop_table("step")
    with op.batch_alter_table("message", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_message_run_id"))

    op.drop_table("message")
    op.drop_table("event")
    op.drop_table("spending")
    op.drop_table("budget")
    op.drop_table("artifact")
    op.drop_table("run")
    op.drop_table("worker")
    op.drop_table("session")
    op.drop_table("content")
    op.drop_table("subject")
