"""S23 attacked: markers in disguise, blanks without end, and everything together in one frame."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import frame
from orchestrator.context import build_context
from orchestrator.frame import FramedArtifact, FramedQuote, Turn, escape, parse, unescape
from orchestrator.ids import canonical_json
from orchestrator.templates import is_plain
from orchestrator.thread import compose
from orchestrator.values import Message
from tests.context_kit import artifact, contract, graph, read, snapshot, step

MARKERS = ["</artifact>", '<artifact step="x" type="y">', "</quote>", '<quote from="a" path="b">', "---"]
MARKERS += ["[Previous artifacts", "[Recent conversation", "[Known about the customer]", "[Message for this run]"]

# What is shown as nothing: format, control, combining, fillers, and code points reserved to be ignored.
UNSEEN = "\u200b\u2060\ufeff\u00ad\u180e\u2064\u2065\ufff0\ufff9\U000e0001\U000e0002\U000e003c\U000e0fff\U000e0100"
UNSEEN += "\ufe0f\u034f\u0301\u20e0\u115f\u1160\u3164\uffa0\x00\x07\x1b\x7f\x9b\u202e\u2066\u061c"
STYLES: dict[str, Callable[[str], str]] = {
    "fullwidth": lambda c: chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else "\u3000" if c == " " else c,
    "bold": lambda c: chr(0x1D41A + ord(c) - 97) if c.isascii() and c.islower() else c,
    "circled": lambda c: chr(0x24D0 + ord(c) - 97) if c.isascii() and c.islower() else c,
    "upper": str.upper,
    "long s": lambda c: "ſ" if c == "s" else c,
    "kelvin": lambda c: "\u212a" if c == "k" else c,
    "small": lambda c: {"<": "\ufe64", ">": "\ufe65", "-": "\ufe63", "[": "\ufe47"}.get(c, c),
    "no-break space": lambda c: "\xa0" if c == " " else c,
}


def _held(text: str) -> bool:
    """Whether the marker that the text disguises is marked as text, and comes back as it was."""
    escaped = escape(f"before\n{text}\nafter")
    assert unescape(escaped) == f"before\n{text}\nafter"
    return escaped != f"before\n{text}\nafter"


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("marker", MARKERS)
def test_S23_a_marker_in_compatible_letters_is_a_marker(marker: str, style: str) -> None:
    assert _held("".join(map(STYLES[style], marker)))


@pytest.mark.parametrize("unseen", UNSEEN, ids=lambda char: f"U+{ord(char):04X}")
@pytest.mark.parametrize("marker", MARKERS)
def test_S23_a_marker_with_unseen_characters_in_it_is_a_marker(marker: str, unseen: str) -> None:
    assert _held(unseen.join(marker))
    assert _held(marker[0] + unseen * 3 + marker[1:])
    if marker.startswith("["):
        assert _held(marker.replace(" ", unseen))


disguised = st.builds(
    lambda marker, style, unseen, at: (m := "".join(map(STYLES[style], marker)))[:at] + unseen + m[at:],
    st.sampled_from(MARKERS),
    st.sampled_from(sorted(STYLES)),
    st.text(st.sampled_from(UNSEEN), max_size=2),
    st.integers(1, 6),
)
breaks = st.sampled_from(["\n", "\r", "\r\n", "\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1d", "\x1e"])
slots = st.characters(min_codepoint=0x100000, max_codepoint=0x10FFFF)
attack = st.lists(st.one_of(disguised, breaks, slots, st.sampled_from(["\\", "\\\\", "| ", " "])), max_size=8).map(
    "".join
)


@settings(max_examples=150, deadline=None)
@given(attack, st.booleans())
def test_S23_disguised_markers_come_back_and_stand_behind_a_backslash(text: str, before_tag: bool) -> None:
    escaped = escape(text, before_tag=before_tag)
    assert unescape(escaped, before_tag=before_tag) == text
    for line in escaped.splitlines():
        bare = [c for c in unicodedata.normalize("NFKC", line).casefold() if unicodedata.category(c)[0] not in "CM"]
        seen = "".join(bare).replace(" ", "")
        at = seen.find("</artifact>")
        assert at < 0 or seen[at - 1] == "\\"


@settings(max_examples=80, deadline=None)
@given(attack, attack, attack, st.sampled_from(frame.ROLES))
def test_S23_attacks_stay_where_they_were_put(label: str, content: str, said: str, role: str) -> None:
    artifact = FramedArtifact("rates", "vendor-rates", label, (label,), content, guard=label)
    turn = Turn(role, said, "review")
    text = frame.ARTIFACTS_HEADING + "".join(frame.write_artifact(artifact)) + "\n"
    text += frame.conversation_heading(30) + frame.CONVERSATION_NOTE + frame.write_turn(turn) + frame.RULE
    text += escape(content) + frame.write_message(said)
    parsed = parse(text)
    assert parsed.artifacts == (artifact,)
    assert parsed.turns == (turn,)
    assert parsed.task == (content,)
    assert parsed.message == said


SLOW = [
    "<",
    "< ",
    "<\t",
    "</ ",
    "[",
    "[ ",
    "[previous ",
    "\\",
    "\\</artifact>",
    "--- ",
    "---",
    "\n---",
    "a\u0301",
    "<\u200b",
]
SLOW += ["<" + " " * 500, "[previous" + " " * 500, " " * 500 + "---"]


@pytest.mark.parametrize("piece", [*SLOW, " "], ids=repr)
def test_S23_escaping_takes_time_in_proportion(piece: str) -> None:
    """A megabyte of blanks behind a `<` once took hours, inside one regular expression that nothing could stop."""
    for text in (piece * (100_000 // len(piece)), "<" + piece * (100_000 // len(piece)) + "x"):
        begun = time.process_time()
        assert unescape(escape(text)) == text
        assert time.process_time() - begun < 10


# --- the request as a whole -------------------------------------------------------------------------------------------

TEXT = contract("text", about="What was said.")
LINE = contract("string", about="One line.")
DATA = contract("data", about="Data.", not_for=("Not a limit.",), schema={"type": "object", "properties": {"a": {}}})
TEMPLATE = (
    "In {{ inputs.line }}:\n{{ block('said') }}\n{{ quote('data', 'a') }}, {{ quote('data', 'a') }}{{ inputs.line }}"
)


@settings(max_examples=60, deadline=None)
@given(attack, attack, attack.map(lambda line: line.replace("\x00", "")), attack)
def test_S22_S23_whatever_stands_in_a_request_is_found_again_where_it_was_put(
    said: str, value: str, line: str, talk: str
) -> None:
    """A block, a value of another one, a plain line, a turn, a message: each may be an attack, or hold a character that
    slots are made of. A line with NUL is refused, since a template prints it as it is."""
    reads = [read(LINE, "line", kind="input"), read(TEXT, "said", kind="input"), read(DATA, "data")]
    node = step("s", prompt=TEMPLATE, reads=reads)
    rows = [artifact("line", LINE, line, origin="input"), artifact("said", TEXT, said, origin="input")]
    rows.append(artifact("data", DATA, {"a": value}))
    taken = snapshot(rows, [Message(1, "user", talk, "review")], message=talk or None)
    whole = graph([step("data"), node], {"line": ("string", LINE), "said": ("text", TEXT)})
    context = build_context(whole, node, taken, may_see="internal", provider_name="openai", window=None)
    parsed = parse(compose(node, context, taken).text)
    plain = is_plain(line)
    quote = FramedQuote("data", "a", "Not a limit.", value)
    framed = FramedArtifact("said", "text", "What was said.", (), said)
    unplaced = [canonical_json({"a": value}).decode()]
    assert [entry.content for entry in parsed.artifacts] == ([line, *unplaced] if plain else unplaced)
    assert parsed.turns == (Turn("user", talk, "review"),)
    assert parsed.message == (talk or None)
    assert [piece for piece in parsed.task if isinstance(piece, FramedQuote)] == [quote, quote]
    assert framed in parsed.task
    if plain:
        assert parsed.task == (f"In {line}:\n", framed, "\n", quote, ", ", quote, line)
