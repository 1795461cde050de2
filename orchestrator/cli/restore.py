"""`restore`: an earlier version as a new one; nothing that came after it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.edit import on_artifact
from orchestrator.cli.options import State, command
from orchestrator.cli.refs import step_ref
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.edit import Job


@command("restore")
@click.argument("reference", metavar="RUN/STEP@N")
def restore(state: State, reference: str) -> int:
    """Make an earlier version of an artifact the current one again.

    It becomes a new version of yours, checked against the contract as it is now.
    """
    ref = step_ref(reference)
    wanted = ref.version
    if wanted is None:
        hint = f"Write {reference}@1; {state.command(f'history {reference}')} lists the versions."
        raise UsageError("restore which version?", hint=hint)

    async def again(job: Job) -> None:
        old = await job.services.store.artifact(job.run.id, job.step, job.item, wanted)
        await job.put(job.value(old), job.old.version.version, restored=old.version)

    on_artifact(state, ref, again)
    return 0
