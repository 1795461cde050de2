"""`import`: a file as a new version of an artifact, under the contract that the artifact has."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.edit import decoded, on_artifact, parse
from orchestrator.cli.options import State, command
from orchestrator.cli.refs import step_ref
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.edit import Job
    from orchestrator.contracts import Contract

_TABLES = (".csv", ".tsv")


@command("import")
@click.argument("reference", metavar="RUN/NAME")
@click.argument("file", metavar="FILE|-")
@click.option("--field", metavar="NAME", help="For a CSV file: which list of the value it is.")
@click.option("--base", type=click.IntRange(1), metavar="N", help="Refuse if N is not the current version any more.")
def import_(state: State, reference: str, file: str, field: str | None, base: int | None) -> int:
    """Take a file as the new version of an input or a step's artifact.

    The contract says what it must be: Markdown and text as they are, JSON, a CSV file for a list of objects, any bytes
    for a file. The value is checked as any other, and keeps its label and guards.
    """
    from orchestrator.cli.inputs import read_bytes

    ref = step_ref(reference)
    if ref.version is not None:
        raise UsageError("a file becomes a new version", hint=f"Leave out @{ref.version}.")
    is_table = PurePath(file).suffix.lower() in _TABLES
    if field is not None and not is_table:
        raise UsageError("--field is for a CSV file", hint="Leave it out, or name a .csv file.")
    data = read_bytes(file)
    name = "stdin" if file == "-" else file

    async def take(job: Job) -> None:
        table = is_table and job.contract.form == "json"
        value = _with_table(job, field, data, name) if table else _parsed(job.contract, data, name)
        await job.put(value, base or job.old.version.version, origin="import")

    on_artifact(state, ref, take)
    return 0


def _parsed(contract: Contract, data: bytes, name: str) -> Any:
    try:
        return parse(contract, data, name)
    except UsageError as error:
        if error.hint is None and contract.form == "json":
            error.hint = f"The contract {contract.name}, in {contract.place}, wants JSON."
        raise


def _with_table(job: Job, field: str | None, data: bytes, name: str) -> Any:
    """The current value with one of its lists replaced, or the list itself where the value is one."""
    from orchestrator.exchange.importing import WHOLE, read_table, table_fields

    schema = job.contract.schema or {}
    there = table_fields(schema)
    if field is None and len(there) == 1:
        field = there[0]
    if field is None or field not in there:
        raise _no_table(job, field, [one for one in there if one != WHOLE])
    rows = read_table(decoded(data, name), name, schema, field)
    if field == WHOLE:
        return rows
    return {**job.value(job.old), field: rows}


def _no_table(job: Job, field: str | None, there: list[str]) -> UsageError:
    name = job.contract.name
    if not there:
        return UsageError(f"the contract {name} has no list of objects that a table could be", hint="Give a JSON file.")
    what = f"no list of objects {field}" if field else f"{len(there)} lists of objects"
    return UsageError(f"the contract {name} has {what}", hint=f"Choose with --field: {', '.join(there)}.")
