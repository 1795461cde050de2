"""Where a vendor has summed up a thread: what stands for what, what of it another vendor is shown, what it costs."""

from __future__ import annotations

import pytest

from orchestrator.providers.foreign import compacted, portable, since_compaction
from orchestrator.providers.usage import anthropic_usage
from orchestrator.values import Item, OutputItem, TextItem

HELLO, SAID = TextItem(("hello",)), OutputItem({"role": "assistant", "content": "yes"})
SEALED = OutputItem({"type": "compaction", "id": "cmp_1", "encrypted_content": "x"})
TOLD = OutputItem({"type": "compaction", "content": "They talked.", "signature": "s"})
FAILED = OutputItem({"type": "compaction", "content": None})
COUNTS = {"input_tokens": 40, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 5, "output_tokens": 7}
MADE = {"type": "compaction", "input_tokens": 900, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 9}


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ((HELLO, SAID), (HELLO, SAID)),
        ((HELLO, SEALED, SAID), (SEALED, SAID)),
        ((HELLO, SEALED, SAID, TOLD), (TOLD,)),
        ((HELLO, FAILED, SAID), (HELLO, FAILED, SAID)),  # the summing up came to nothing: a no-op
        ((), ()),
    ],
)
def test_the_last_summary_stands_for_all_before_it(items: tuple[Item, ...], kept: tuple[Item, ...]) -> None:
    assert since_compaction(items) == kept


def test_another_vendor_is_shown_what_was_said_and_no_summary() -> None:
    assert portable((HELLO, SEALED, SAID, TOLD)) == (HELLO, SAID)


def test_a_summary_is_told_of_and_a_failed_one_is_not() -> None:
    assert compacted([TOLD.data]) == compacted([SEALED.data]) == ("summed up what stood before",)
    assert compacted([FAILED.data, SAID.data]) == ()


def test_the_summing_up_is_billed_beside_the_sums_and_counted_once() -> None:
    """Its tokens are not in the sums at the top (§2.4 of the reference); those of the message's own pass are."""
    own = {**COUNTS, "type": "message"}
    usage = anthropic_usage({**COUNTS, "iterations": [{**MADE, "output_tokens": 50}, own]})
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (40 + 10 + 5 + 900 + 90 + 9, 57)
    assert (usage.cached_tokens, usage.cache_write_tokens) == (100, 14)


@pytest.mark.parametrize("iterations", [[7], [{**MADE, "output_tokens": -1}], [{"type": "compaction"}]])
def test_what_no_honest_server_counts_makes_the_usage_unknown(iterations: list[object]) -> None:
    assert anthropic_usage({**COUNTS, "iterations": iterations}) is None
