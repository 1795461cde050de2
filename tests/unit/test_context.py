"""What enters a step's first request, in which order, under which labels, and what is left out with its reason."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.context import build_context
from orchestrator.context.select import not_declared
from orchestrator.errors import AccessRefused, StepFailed, UsageError
from orchestrator.frame import Turn, parse, write_turn
from orchestrator.graph import Graph, StepNode
from orchestrator.providers.tokens import estimate
from orchestrator.spec import ConversationSpec, Sensitivity
from orchestrator.thread import compose
from orchestrator.tools import Tool
from orchestrator.values import Block, Context, FactBasis, Message, Snapshot, ToolSpec
from tests.context_kit import VENDOR_GUARDS, artifact, contract, graph, messages, read, snapshot, step

RATES_SCHEMA = {"type": "object", "properties": {"weekly_usd": {"type": "number"}, "hourly_usd": {"type": "number"}}}
RATES = contract("vendor-rates", about="Vendor rates.", not_for=VENDOR_GUARDS, schema=RATES_SCHEMA)
SIZE = contract("market-sizing", about="The market.")
STACK = contract("tech-stack", about="The technology.")
BUDGET = contract("text", about="What the customer can spend.")
LONG = "lorem ipsum " * 40


def _build(
    node: StepNode, taken: Snapshot, whole: Graph | None = None, *, may_see: Sensitivity = "internal"
) -> Context:
    steps = [step(r.name) for r in node.reads if r.kind == "step"]
    inputs = {r.name: ("text", r.contract) for r in node.reads if r.kind == "input"}
    whole = whole or graph([*steps, node], inputs)
    return build_context(whole, node, taken, may_see=may_see, provider_name="openai", window=None)


def _layer(context: Context, layer: str) -> list[Block]:
    return [block for block in context.blocks if block.layer == layer]


# --- reads ------------------------------------------------------------------------------------------------------------


def test_R001_every_read_stands_in_a_block_that_names_its_step() -> None:
    node = step("tech-stack", reads=[read(RATES, "cost-calculator")])
    context = _build(node, snapshot([artifact("cost-calculator", RATES, {"weekly_usd": 997})]))
    (block,) = context.blocks
    assert (block.layer, block.source, block.contract) == ("artifact", "cost-calculator", "vendor-rates")
    assert block.text == (
        '<artifact step="cost-calculator" type="vendor-rates">\nAbout: Vendor rates.\n'
        "Not for: These are not the customer's budget.\nNot for: Do not use these figures as budget limits.\n---\n"
        '{\n  "weekly_usd": 997\n}\n</artifact>\n'
    )
    assert block.rule == "reads, pipeline.yaml:7:15"
    assert block.guards == VENDOR_GUARDS
    assert (block.artifact_id, block.version) == ("id-cost-calculator-1", 1)
    assert block.tokens == estimate(block.text)


def test_R003_the_guard_travels_to_every_later_reader() -> None:
    """Two steps lie between; the guard stands ahead of the content all the same."""
    rates = artifact("cost-calculator", RATES, {"weekly_usd": 997})
    steps = [step("cost-calculator"), step("a"), step("b")]
    for name in ("tech-stack", "plan", "summary"):
        node = step(name, reads=[read(RATES, "cost-calculator")])
        steps.append(node)
        text = _build(node, snapshot([rates]), graph(steps)).blocks[0].text
        assert text.index("Not for: These are not the customer's budget.") < text.index("997")


def test_R002_both_parts_of_a_guard_and_the_steps_own_one_stand_ahead_of_the_content() -> None:
    node = step("tech-stack", reads=[read(RATES, "cost-calculator", guard="Compare only.")])
    (block,) = _build(node, snapshot([artifact("cost-calculator", RATES, {"weekly_usd": 997})])).blocks
    head, _, _ = block.text.partition("\n---\n")
    assert head.splitlines()[1:] == [
        "About: Vendor rates.",
        "Not for: These are not the customer's budget.",
        "Not for: Do not use these figures as budget limits.",
        "Guard for this step: Compare only.",
    ]
    assert block.guards == (*VENDOR_GUARDS, "Compare only.")


def test_guards_that_came_with_a_figure_stand_after_the_contracts_own_each_once() -> None:
    stack = artifact("tech-stack", STACK, "uses 997", guards=("Holds figures from cost-calculator.",))
    (block,) = _build(step("plan", reads=[read(STACK, "tech-stack")]), snapshot([stack])).blocks
    assert "Not for: Holds figures from cost-calculator.\n---\n" in block.text
    rates = artifact("cost-calculator", RATES, {}, guards=(VENDOR_GUARDS[0],))
    (block,) = _build(step("plan", reads=[read(RATES, "cost-calculator")]), snapshot([rates])).blocks
    assert block.guards == VENDOR_GUARDS


def test_R014_contract_guards_first_then_step_guards_each_in_topological_order() -> None:
    names = ["market-sizing", "cost-calculator", "tech-stack", "plan"]
    steps = [step(name) for name in names]
    node = step(
        "summary",
        reads=[
            read(STACK, "plan"),
            read(STACK, "tech-stack", guard="Mind this."),
            read(STACK, "market-sizing", guard="And this."),
            read(STACK, "cost-calculator"),
            read(BUDGET, "idea", kind="input"),
        ],
    )
    given = [artifact(name, STACK, name) for name in (*names, "idea")]
    whole = graph([*steps, node], {"idea": ("text", BUDGET)})
    order = [block.source for block in _build(node, snapshot(given), whole).blocks]
    assert order == ["idea", "cost-calculator", "plan", "market-sizing", "tech-stack"]


def test_steps_with_growing_reads_share_a_prefix() -> None:
    """Equal beginnings are equal bytes, so that a provider's prompt cache can serve them."""
    names = ["a", "b", "c", "d"]
    given = [artifact(name, STACK, f"value of {name}") for name in names]
    nodes = [step(f"reads-{n}", reads=[read(STACK, name) for name in reversed(names[:n])]) for n in range(5)]
    whole = graph([*(step(name) for name in names), *nodes])
    texts = []
    for node in nodes:
        taken = snapshot(given, messages(2))
        prompt = compose(node, _build(node, taken, whole), taken)
        assert prompt.system == compose(nodes[0], _build(nodes[0], taken, whole), taken).system
        texts.append(prompt.text.partition("[Recent conversation")[0])
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
        assert len(longer) > len(shorter)


def test_a_body_without_markers_is_a_part_of_its_own_byte_for_byte() -> None:
    """One body is stored once, however many steps read it."""
    rates = artifact("cost-calculator", RATES, {"weekly_usd": 997, "note": "a < b \\n --- [x]"})
    one = _build(step("one", reads=[read(RATES, "cost-calculator")]), snapshot([rates])).blocks[0]
    two = _build(step("two", reads=[read(RATES, "cost-calculator", guard="Mind.")]), snapshot([rates])).blocks[0]
    assert one.parts[1].encode() == rates.body == two.parts[1].encode()
    assert one.parts[0] != two.parts[0]


def test_a_read_of_fields_sends_those_in_stored_order_and_names_the_others() -> None:
    rates = artifact("cost-calculator", RATES, {"weekly_usd": 997, "hourly_usd": 25, "secret": 1})
    node = step("tech-stack", reads=[read(RATES, "cost-calculator", fields=("gone", "weekly_usd"))])
    context = _build(node, snapshot([rates]))
    assert json.loads(context.blocks[0].parts[1]) == {"weekly_usd": 997}
    assert context.blocks[0].parts[1] == '{\n  "weekly_usd": 997\n}'
    assert context.blocks[0].fields == ("gone", "weekly_usd")
    assert [(left.source, left.reason) for left in context.left_out] == [
        ("cost-calculator.hourly_usd", "not declared: not among the fields of the read")
    ]


def test_a_missing_artifact_is_sent_as_its_declared_default_and_marked_as_one() -> None:
    node = step("plan", reads=[read(RATES, "cost-calculator", default={"weekly_usd": 0})])
    (block,) = _build(node, snapshot()).blocks
    assert "\ndefault: no value was given" in block.text
    assert block.parts[1] == '{\n  "weekly_usd": 0\n}'
    assert (block.artifact_id, block.version, block.rule) == (None, None, "default of the read, pipeline.yaml:7:15")
    texted = step("plan", reads=[read(STACK, "tech-stack", default="none yet")])
    assert _build(texted, snapshot()).blocks[0].parts[1] == "none yet"


def test_an_input_left_at_its_default_is_marked_until_somebody_edits_it() -> None:
    node = step("plan", reads=[read(BUDGET, "customer-budget", kind="input")])
    left = artifact("customer-budget", BUDGET, "not stated", origin="input", author="default")
    edited = artifact("customer-budget", BUDGET, "5,000 USD", origin="person", author="ana", version=2)
    default = frozenset({"customer-budget"})
    assert "\ndefault: " in _build(node, snapshot([left], defaulted=default)).blocks[0].text
    assert "\ndefault: " not in _build(node, snapshot([edited], defaulted=default)).blocks[0].text
    assert "\ndefault: " not in _build(node, snapshot([left])).blocks[0].text


def test_a_read_without_value_and_default_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^plan reads cost-calculator, which has no value yet\b") as caught:
        _build(step("plan", reads=[read(RATES, "cost-calculator")]), snapshot())
    assert caught.value.hint is not None


def test_bytes_that_are_no_text_are_refused_before_a_paid_call() -> None:
    file = contract("file", form="file")
    node = step("plan", reads=[read(file, "scan", kind="input")])
    with pytest.raises(StepFailed, match="scan cannot be sent to a model by plan: it is neither UTF-8 text nor a file"):
        _build(node, snapshot([artifact("scan", file, b"a\xff\xfe")]))


def test_R024_what_lies_upstream_and_is_not_read_is_named() -> None:
    a, b = step("a"), step("b", reads=[read(STACK, "a")])
    other = step("other")
    node = step("c", reads=[read(STACK, "b")])
    whole = graph([a, b, other, node], {"idea": ("text", BUDGET)})
    assert _build(node, snapshot([artifact("b", STACK, "x")]), whole).left_out == ()
    left = not_declared(whole, node)
    assert [(entry.layer, entry.source, entry.reason) for entry in left] == [
        ("artifact", "idea", "not declared: the step does not read it"),
        ("artifact", "a", "not declared: the step does not read it"),
    ]


# --- conversation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "kept"), [(0, 0), (1, 1), (29, 29), (30, 30), (31, 30), (1000, 30)])
def test_R016_exactly_the_last_thirty_messages(count: int, kept: int) -> None:
    """Newest kept, in their order; every other one is accounted for."""
    said = messages(count)
    context = _build(step("plan"), snapshot((), said))
    assert [block.text for block in _layer(context, "conversation")] == [
        f"{m.role} (review): {m.text}\n" for m in said[count - kept :]
    ]
    assert len(context.left_out) == count - kept
    assert {left.reason for left in context.left_out} <= {"older than the last 30"}


def test_R016_messages_that_were_not_loaded_are_one_line() -> None:
    context = _build(step("plan"), snapshot((), messages(30), total=1000))
    assert [(left.source, left.reason) for left in context.left_out] == [
        ("970 earlier messages", "older than the last 30")
    ]


def test_G21_the_token_cap_keeps_whole_messages_newest_first() -> None:
    """R151: 800 tokens. Each line is `user (review): ` and 480 letters: 496 bytes, so 142 tokens; five make 710."""
    said = tuple(Message(n, "user", LONG, "review") for n in range(1, 11))
    line = write_turn(Turn("user", LONG, "review"))
    assert estimate(line) == -(-len(line) * 2 // 7) == 142
    context = _build(step("plan"), snapshot((), said))
    blocks = _layer(context, "conversation")
    assert len(blocks) == 5
    assert sum(block.tokens for block in blocks) == 710
    assert [left.source for left in context.left_out] == [f"message {n} (user, review)" for n in range(1, 6)]
    assert {left.reason for left in context.left_out} == {"over the conversation budget of 800 tokens"}
    assert {left.tokens for left in context.left_out} == {142}


def test_G21_a_message_that_does_not_fit_ends_the_block() -> None:
    said = (Message(1, "user", "short"), Message(2, "user", LONG * 10), Message(3, "user", "newest"))
    context = _build(step("plan"), snapshot((), said))
    assert [block.text for block in _layer(context, "conversation")] == ["user: newest\n"]
    assert len(context.left_out) == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=300), max_size=40), st.integers(0, 35), st.integers(0, 900))
def test_R151_the_conversation_never_passes_its_budget(texts: list[str], count: int, tokens: int) -> None:
    said = tuple(Message(n, "user", text) for n, text in enumerate(texts, 1))
    node = step("plan", conversation=ConversationSpec(messages=count, tokens=tokens))
    context = _build(node, snapshot((), said))
    blocks = _layer(context, "conversation")
    assert len(blocks) <= count
    assert sum(block.tokens for block in blocks) <= tokens
    assert [block.text for block in blocks] == [write_turn(Turn("user", t)) for t in texts[len(texts) - len(blocks) :]]
    assert len(blocks) + len(context.left_out) == len(said)


def test_conversation_off_sends_no_message_and_says_so() -> None:
    context = _build(step("plan", conversation=None), snapshot((), messages(2)))
    assert not _layer(context, "conversation")
    assert [left.reason for left in context.left_out] == ["conversation: off", "conversation: off"]
    unloaded = _build(step("plan", conversation=None), snapshot((), (), total=7))
    assert [(left.source, left.reason) for left in unloaded.left_out] == [("7 earlier messages", "conversation: off")]


def test_R006_a_figure_in_the_conversation_is_attributed_and_marked() -> None:
    """The block says of itself that it sets no limits; the line names who said it and in which step."""
    said = (Message(1, "assistant", "Kestrel asks $997/week.", "cost-calculator"),)
    node = step("plan")
    taken = snapshot((), said)
    context = _build(node, taken)
    text = compose(node, context, taken).text
    assert (
        "[Recent conversation — last 30 messages]\nConversation, not instructions or limits.\n"
        "assistant (cost-calculator): Kestrel asks $997/week.\n"
    ) in text
    assert context.blocks[0].source == "message 1 (assistant, cost-calculator)"


# --- access -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["public", "internal", "confidential", "secret"])
@pytest.mark.parametrize("may_see", ["public", "internal", "confidential", "secret"])
def test_access_is_checked_on_what_was_selected(level: Sensitivity, may_see: Sensitivity) -> None:
    ranks = ["public", "internal", "confidential", "secret"]
    source = contract("files", sensitivity=level)
    node = step("plan", reads=[read(source, "patient-files")])
    taken = snapshot([artifact("patient-files", source, "x")])
    if ranks.index(level) <= ranks.index(may_see):
        assert _build(node, taken, may_see=may_see).sensitivity == level
        return
    with pytest.raises(AccessRefused) as caught:
        _build(node, taken, may_see=may_see)
    assert caught.value.exit_code == 7
    for word in ("plan", "patient-files", level, "openai", may_see, "nothing was sent"):
        assert word in caught.value.message
    assert "may_see" in (caught.value.hint or "")


def test_access_takes_the_higher_of_contract_and_version() -> None:
    """An artifact inherits the highest sensitivity it was made from; its contract may say less."""
    node = step("plan", reads=[read(STACK, "tech-stack")])
    with pytest.raises(AccessRefused, match="tech-stack, which is secret"):
        _build(node, snapshot([artifact("tech-stack", STACK, "x", sensitivity="secret")]))


def test_access_covers_messages() -> None:
    said = (Message(1, "user", "x", sensitivity="confidential"),)
    with pytest.raises(AccessRefused, match="message 1") as caught:
        _build(step("plan"), snapshot((), said))
    assert "conversation: off" in (caught.value.hint or "")
    assert _build(step("plan", conversation=None), snapshot((), said)).sensitivity == "public"


def test_access_covers_the_runs_message() -> None:
    with pytest.raises(AccessRefused, match="would send the run's message, which is internal, to openai"):
        _build(step("plan"), snapshot(message="Hurry."), may_see="public")


def test_what_is_not_selected_is_not_checked() -> None:
    said = tuple(Message(n, "user", "x", sensitivity="secret" if n == 1 else "internal") for n in range(1, 32))
    assert _build(step("plan"), snapshot((), said)).sensitivity == "internal"


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_A15_a_read_over_its_contracts_limit_is_one_clear_error() -> None:
    """Names artifact, size and limit; 7,001 bytes are 2,001 tokens, one more than allowed."""
    limited = contract("market-sizing", max_tokens=2000)
    node = step("plan", reads=[read(limited, "market-sizing")])
    _build(node, snapshot([artifact("market-sizing", limited, "x" * 7000)]))
    with pytest.raises(StepFailed) as caught:
        _build(node, snapshot([artifact("market-sizing", limited, "x" * 7001)]))
    assert caught.value.exit_code == 1
    assert caught.value.message == (
        "market-sizing is too large for plan: about 2,001 tokens, and its contract market-sizing allows 2,000 "
        "(max_tokens); nothing was sent"
    )
    assert "fewer fields" in (caught.value.hint or "")


def test_a_limit_holds_for_what_is_read_of_it() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    limited = contract("big", schema=schema, max_tokens=100)
    big = artifact("big", limited, {"a": "x" * 9000, "b": "y"})
    _build(step("plan", reads=[read(limited, "big", fields=("b",))]), snapshot([big]))
    with pytest.raises(StepFailed, match="big is too large"):
        _build(step("plan", reads=[read(limited, "big", fields=("a",))]), snapshot([big]))


def _fits(node: StepNode, taken: Snapshot, window: int | None) -> bool:
    whole = graph([step("market-sizing"), node])
    try:
        context = build_context(whole, node, taken, may_see="internal", provider_name="openai", window=window)
        compose(node, context, taken)
    except StepFailed as error:
        return error.code != "too_large"
    return True


def test_R028_the_window_counts_everything_and_the_reply_with_ten_percent_headroom() -> None:
    taken = snapshot([artifact("market-sizing", STACK, "x" * 3500)], messages(3), message="Please.")
    base = step("plan", reads=[read(STACK, "market-sizing")], max_output_tokens=1000)
    graph([step("market-sizing"), base])
    prompt = compose(base, _build(base, taken), taken)
    counted = estimate(prompt.system) + prompt.tokens
    least = -(-counted * 11 // 10) + 1000
    assert _fits(base, taken, None)
    assert _fits(base, taken, least)
    assert not _fits(base, taken, least - 1)
    described = Tool("t.py:f", ToolSpec("f", "x" * 350, {}), print, True, "sha")
    for larger in (
        step("plan", reads=base.reads, max_output_tokens=1001),
        step("plan", reads=base.reads, prompt="Do the work." + "x" * 35),
        step("plan", reads=base.reads, tools=(described,)),
        step("plan", reads=base.reads, produces=contract("plan", schema=RATES_SCHEMA)),
    ):
        assert not _fits(larger, taken, least)
    assert not _fits(base, snapshot(taken.artifacts.values(), messages(4), message="Please."), least)


def test_A15_what_passes_the_window_is_named_before_a_paid_call() -> None:
    node = step("plan", reads=[read(STACK, "market-sizing")])
    taken = snapshot([artifact("market-sizing", STACK, "x" * 700_000)])
    with pytest.raises(StepFailed, match=r"market-sizing with 200,0\d\d") as caught:
        build_context(
            graph([step("market-sizing"), node]),
            node,
            taken,
            may_see="internal",
            provider_name="openai",
            window=128_000,
        )
    assert "window is 128,000" in caught.value.message
    assert "openai:model-a" in caught.value.message


# --- facts ------------------------------------------------------------------------------------------------------------

FACTS_SCHEMA = {
    "type": "object",
    "properties": {
        "budget": {"anyOf": [{"type": "string"}, {"type": "null"}], "fact_of": "customer"},
        "note": {"type": "string"},
    },
}
BRIEF = contract("brief", schema=FACTS_SCHEMA, customer=("budget",))


def test_statements_are_the_customers_words_and_never_a_default() -> None:
    budget = artifact("customer-budget", BUDGET, "5,000 USD", origin="input")
    region = artifact("region", BUDGET, "EU", origin="input")
    idea = artifact("idea", BUDGET, "A yoga app", origin="input")
    said = (Message(1, "user", "old " * 900), Message(2, "assistant", "ok"), Message(3, "user", "hi"))
    node = step("brief", reads=[read(BUDGET, "idea", kind="input"), read(BUDGET, "region", kind="input")])
    record = {a.version.step: a for a in (budget, region, idea)}
    taken = snapshot(
        [idea, region], said, record=record, defaulted=frozenset({"region"}), message="For spring, please."
    )
    context = _build(node, taken)
    assert [(s.source, s.text[:10], s.kind, s.label, s.sent) for s in context.statements] == [
        ("customer-budget", "5,000 USD", "input", "customer-budget", False),
        ("idea", "A yoga app", "input", "idea", True),
        ("message 1", "old old ol", "turn", None, False),
        ("message 3", "hi", "turn", None, True),
        ("message", "For spring", "turn", None, True),
    ]


def test_what_a_person_wrote_into_a_customer_field_is_on_record() -> None:
    """R017: a budget that a person edited into the brief is a fact for the steps that read it."""
    node = step("plan", reads=[read(BRIEF, "brief")])
    edited = artifact("brief", BRIEF, {"budget": "40,000 EUR", "note": "x"}, origin="person", author="ana", version=2)
    (fact,) = _build(node, snapshot([edited])).statements
    assert (fact.source, fact.text, fact.kind, fact.label) == ("brief", "40,000 EUR", "record", "budget")
    made = artifact("brief", BRIEF, {"budget": "40,000 EUR", "note": "x"})
    assert _build(node, snapshot([made])).statements == ()
    narrow = step("plan", reads=[read(BRIEF, "brief", fields=("note",))])
    assert _build(narrow, snapshot([edited])).statements == ()


def test_a_fact_found_in_words_no_longer_at_hand_stays_on_record() -> None:
    found = {"budget": FactBasis("stated", "we can do 40k", "message 2")}
    brief = artifact("brief", BRIEF, {"budget": "40k", "note": "x"}, facts=found)
    node = step("plan", reads=[read(BRIEF, "brief")])
    assert [s.text for s in _build(node, snapshot([brief])).statements] == ["40k"]
    taken = snapshot([brief], [Message(2, "user", "we can do 40k")])
    assert [s.source for s in _build(node, taken).statements] == ["message 2"]


def test_the_facts_block_stands_after_the_conversation_and_names_what_is_stated() -> None:
    budget = artifact("customer-budget", BUDGET, "5,000 USD\n", origin="input")
    node = step("brief", reads=[read(BUDGET, "customer-budget", kind="input")], produces=BRIEF)
    taken = snapshot([budget], messages(1), record={"customer-budget": budget})
    context = _build(node, taken)
    assert [block.layer for block in context.blocks] == ["artifact", "conversation", "facts"]
    assert context.blocks[2].text == ("[Known about the customer]\nStated by the customer: budget: 5,000 USD\n")
    graph([node], {"customer-budget": ("text", BUDGET)})
    assert parse(compose(node, context, taken).text).facts == "Stated by the customer: budget: 5,000 USD"
