"""`db`: the care of the database: whether it is sound, a whole copy of it, and what nothing needs any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, plural, show, visible
from orchestrator.errors import StoreError, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk
    from orchestrator.retention import Reason, Retention
    from orchestrator.store.garbage import Removed

SCHEMA: Final = "orch.db/1"
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


@command("db")
@click.argument("action", type=click.Choice(["check", "backup", "gc"]), metavar="check|backup|gc")
@click.argument("file", required=False)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="gc: remove all but the newest N runs of a pipeline.")
@click.option("--yes", is_flag=True, help="gc --keep: do not ask.")
def db(state: State, action: str, file: str | None, keep: int | None, yes: bool) -> int:
    """Check the database, back it up into a file, or clean it.

    check: is the file sound, does every reference lead somewhere, is each text what it was when it was stored; exit
    code 8 where not. backup FILE: a whole copy in a new file that you alone may read. gc: remove the texts that no run
    refers to any more and nothing has for a day; no run, version or fork loses anything. Runs may go on meanwhile.
    gc --keep N: first remove runs, and make the file smaller at the end. Of each pipeline the newest N stay; so do runs
    with a tag, runs that have not ended, and what a run that stays was made from.
    """
    from orchestrator.cli.session import open_desk

    if (action == "backup") != (file is not None):
        hint = f"Write {state.command('db backup orch.bak')}."
        raise UsageError("backup needs the name of a new file, and nothing else takes one", hint=hint)
    if keep is not None and action != "gc":
        raise UsageError("only gc removes runs", hint=f"Write {state.command(f'db gc --keep {keep}')}.")
    desk = open_desk(state)
    if file is not None:
        return _backup(desk, file)
    if action == "check":
        return _check(desk)
    return _collect(desk) if keep is None else _retain(desk, keep, yes)


def _check(desk: Desk) -> int:
    from orchestrator.cli.session import drive, reading

    async def main() -> tuple[str, ...]:
        async with reading(desk) as store:
            return await store.check()

    problems = drive(main)
    _tell(desk, "check", {"problems": list(problems)}, lambda: _say_health(problems))
    return StoreError.exit_code if problems else 0


def _say_health(problems: tuple[str, ...]) -> None:
    out = console()
    for problem in problems:
        show(out, f"  {visible(problem)}")
    show(out, f"{plural(len(problems), 'problem')} found" if problems else "ok: the database is sound")


def _backup(desk: Desk, file: str) -> int:
    from orchestrator.cli.session import drive, reading

    target = Path(file).absolute()

    async def main() -> int:
        async with reading(desk) as store:
            return await store.back_up(target)

    size = drive(main)
    name = visible(file, one_line=True)
    told = f"{name}: a whole copy, {_size(size)}; --db sqlite:///{name} opens it"
    _tell(desk, "backup", {"file": str(target), "bytes": size}, lambda: show(console(), told))
    return 0


def _collect(desk: Desk) -> int:
    from orchestrator.cli.session import drive, reading

    async def main() -> Removed:
        async with reading(desk) as store:
            return await store.collect()

    removed = drive(main)
    told = "nothing to remove: every text is referred to, or was within a day"
    if removed.bodies:
        room = "the file keeps its size and uses the room again"
        told = f"{plural(removed.bodies, 'text')} removed, {_size(removed.bytes)}: {room}"
    _tell(desk, "gc", {"removed": removed.bodies, "bytes": removed.bytes}, lambda: show(console(), told))
    return 0


def _retain(desk: Desk, newest: int, yes: bool) -> int:
    """Remove runs that nothing keeps, then the texts that were theirs, and give the room back."""
    from orchestrator.cli.runs import confirm_removal, named
    from orchestrator.cli.session import drive, reading
    from orchestrator.retention import retain

    async def look() -> Retention:
        async with reading(desk) as store:
            return retain(await store.run_marks(), await store.run_needs(), newest)

    found = drive(look)
    kept = _kept(found)
    if found.gone:
        confirm_removal(desk.state, found.gone, yes, f"Remove {named(found.gone)} for good, and keep {kept}?")

    async def main() -> tuple[Removed, tuple[int, int] | None]:
        async with reading(desk) as store:
            for mark in found.gone:
                await store.remove_run(mark.id)
            return await store.collect(), await store.compact()

    removed, sizes = drive(main)
    document = {
        "runs": [mark.number for mark in found.gone],
        "kept": len(found.kept),
        "removed": removed.bodies,
        "bytes": removed.bytes,
        "file_bytes": None if sizes is None else {"before": sizes[0], "after": sizes[1]},
    }
    _tell(desk, "gc", document, lambda: _say_retained(found, removed, sizes))
    return 0


def _kept(found: Retention) -> str:
    """`5 runs (3 newest, 1 tagged, 1 needed by these)`."""
    words: Mapping[Reason, str] = {
        "newest": "newest",
        "tagged": "tagged",
        "unfinished": "not ended",
        "needed": "needed by these",
    }
    counts = Counter(found.kept.values())
    parts = [f"{counts[reason]} {word}" for reason, word in words.items() if counts[reason]]
    return plural(len(found.kept), "run") + (f" ({', '.join(parts)})" if parts else "")


def _say_retained(found: Retention, removed: Removed, sizes: tuple[int, int] | None) -> None:
    from orchestrator.cli.runs import named

    out = console()
    show(out, f"removed {named(found.gone)}" if found.gone else "no run to remove")
    show(out, f"  kept {_kept(found)}")
    texts = f"{plural(removed.bodies, 'text')} removed, {_size(removed.bytes)}"
    show(out, f"  {texts}; what was used within a day stays until then")
    if sizes is not None:
        show(out, f"  the file: {_size(sizes[0])} → {_size(sizes[1])}")


def _tell(desk: Desk, action: str, found: Mapping[str, Any], say: Callable[[], None]) -> None:
    from orchestrator.settings import shown_url

    if desk.state.json:
        print_document({"schema": SCHEMA, "action": action, "database": shown_url(desk.settings.db), **found})
    else:
        say()


def _size(count: int) -> str:
    """`12 bytes`, `1.4 MB`."""
    size, unit = float(count), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} {_UNITS[0]}"
