"""How versions came to be, read for many at once: by hashes and sums, without a text."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.ids import sha256
from orchestrator.store import Store
from orchestrator.values import Commit, Scope, Usage
from tests.store_kit import artifact, claim, done, finish, manifest, sent, started, thread, using

pytestmark = pytest.mark.usefixtures("database")


def test_a_version_tells_its_attempt_its_first_request_and_its_calls(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b", inputs={"x": artifact("in")})
        dispatch, opening = ready["a"], thread("main", "Hello ", "world")
        first = sent(opening.id, 1)
        made_from = manifest("x")
        assert await store.claim(claim(dispatch, worker, manifest=made_from, thread=opening, sent=first))
        await store.done(dispatch, done(first, "0.01", Usage(10, 2, 0, 5), outcome="reask"))
        second = sent(opening.id, 2)
        await store.sent(dispatch, second)
        last = done(second, "0.02", Usage(20, 0, 0, 7))
        await store.commit(Commit(dispatch, artifact("out"), last))
        await finish(store, worker, ready["b"], "b")
        edited = await store.edit(run.id, "a", None, 1, artifact("mine", author="ana"))
        heads = {row.name: row.head for row in await store.steps(run.id)}
        assert heads["x"] is not None
        assert heads["b"] is not None
        first_version = (await store.artifact(run.id, "a", None, 1)).version

        found = await store.makings({first_version.id, edited.id, heads["b"].id, heads["x"].id, "nothing"})
        assert set(found) == {first_version.id, edited.id, heads["b"].id}, "no attempt made an input"
        making = found[first_version.id]
        assert found[edited.id] == making, "an edit keeps the attempt of the version it changed"
        assert (making.attempt_id, making.attempt, making.manifest) == (dispatch.attempt_id, 1, made_from)
        assert (making.calls, making.reasks, making.usage) == (2, 1, Usage(30, 2, 0, 12))
        assert (making.cost_usd, making.cost_partial) == (Decimal("0.03"), False)
        [opened] = making.openings
        assert (opened.thread, opened.model, opened.settings) == (
            "main",
            "openai:m",
            {"max_output_tokens": 8000, "effort": None},
        )
        assert [(block.layer, block.source, block.parts) for block in opened.blocks] == [
            ("system", "system", (sha256("Be brief."),)),
            ("task", "b0", (sha256("Hello "),)),
            ("task", "b1", (sha256("world"),)),
        ]
        assert await store.texts({sha256("world"), sha256("never sent")}) == {sha256("world"): "world"}
        plain = found[heads["b"].id]
        assert (plain.calls, plain.cost_usd, plain.openings) == (0, Decimal(0), ())

    using(tmp_path, body)


def test_what_is_not_priced_is_not_nothing(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        opening = thread()
        call = sent(opening.id, 1)
        assert await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
        await store.commit(Commit(ready["a"], artifact("out"), done(call, None, Usage(1))))
        head = (await store.artifact(run.id, "a")).version
        making = (await store.makings([head.id]))[head.id]
        assert (making.cost_usd, making.cost_partial) == (None, True)

    using(tmp_path, body)


def test_S16_makings_stay_in_the_scope(tmp_path: Path) -> None:
    async def make(store: Store) -> str:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"], "theirs")
        return (await store.artifact(run.id, "a")).version.id

    theirs = using(tmp_path, make, Scope("other", "-", "-"))

    async def look(store: Store) -> None:
        assert await store.makings([theirs]) == {}
        assert await store.texts([sha256("theirs")]) == {}

    using(tmp_path, look)
